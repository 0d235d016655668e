//! Reads which files hold facts about models and GPUs.

use super::facts::{FactFile, FactFiles};
use super::reader::Section;
use super::value::Value;

pub(super) fn facts(section: &Section<'_>) -> FactFiles {
    let list = |key| section.read(key, |value| value.list(|entry| fact_file(&entry))).or(Vec::new());
    let facts = FactFiles { models: list("models"), hardware: list("hardware") };
    for (key, files) in [("models", &facts.models), ("hardware", &facts.hardware)] {
        for (place, file) in files.iter().enumerate() {
            if files[..place].iter().any(|earlier| earlier.name == file.name) {
                section.problem(&format!("{key}[{place}].name"), format!("`{}` is there twice", file.name));
            }
        }
    }
    facts
}

fn fact_file(entry: &Value<'_>) -> Option<FactFile> {
    entry.section(|section| {
        let name = section.text("name").required();
        let path = section.read("path", |value| value.path()).required();
        Some(FactFile { name: name?, path: path?, content: None })
    })?
}
