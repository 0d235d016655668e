//! `spica profiles sample`: a table of passes from AI Configurator's database.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::aic::{Database, RELEASE};
use super::arguments::SampleArguments;
use super::console::Console;
use super::failure::Failure;
use super::input::open_file;
use crate::config::scenario::Backend;
use crate::model::{Catalogue, Split, WeightFormat, engine_spec};
use crate::report::files::write_atomically;

/// Where passes are sampled: prompts of a pass, new tokens of each, tokens before them.
const PROMPTS: [u32; 3] = [1, 2, 8];
const NEW: [u32; 12] = [1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768];
const PREFIX: [u32; 7] = [0, 512, 2048, 8192, 32_768, 65_536, 131_072];
/// No pass computes more tokens.
const MOST_NEW: u32 = 32_768;
/// Requests of a decode pass, and their length.
const REQUESTS: [u32; 17] = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];
const CONTEXT: [u32; 12] = [32, 128, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 98_304, 131_072];
/// No decode pass reads more tokens.
const MOST_READ: u32 = 8 << 20;

/// Prints the table; with a cache it is sampled once for each deployment and state of the data.
pub(super) fn sample(arguments: &SampleArguments) -> Result<(), Failure> {
    let spec = spec(arguments)?;
    let kept =
        arguments.cache.as_deref().map(|folder| kept_as(folder, &spec, &arguments.systems)).transpose()?;
    if let Some(text) = kept.as_deref().and_then(|path| std::fs::read_to_string(path).ok()) {
        return Console::print(&text);
    }
    let database = Database::open(spec, &arguments.systems)
        .map_err(|error| Failure::input(format!("--systems {}: {error}", arguments.systems.display())))?;
    let text = table(&database).map_err(Failure::input)?;
    if let Some(path) = kept {
        write_atomically(&path, |out| std::io::Write::write_all(out, text.as_bytes()))
            .map_err(Failure::run)?;
    }
    Console::print(&text)
}

/// The deployment: as it was exported, or compiled here.
fn spec(arguments: &SampleArguments) -> Result<Value, Failure> {
    if let Some(path) = &arguments.spec {
        let mut text = String::new();
        let name = path.display();
        open_file(path)?
            .read_to_string(&mut text)
            .map_err(|error| Failure::input(format!("{name}: {error}")))?;
        return serde_json::from_str(&text).map_err(|error| Failure::input(format!("{name}: {error}")));
    }
    let given = |value: &Option<String>, option: &str| {
        value.clone().ok_or_else(|| Failure::input(format!("{option} is needed, or --spec FILE")))
    };
    let (model, hardware) = (given(&arguments.model, "--model")?, given(&arguments.hardware, "--hardware")?);
    let version = given(&arguments.backend_version, "--backend-version")?;
    let engine = given(&arguments.backend, "--backend")?;
    let backend =
        [Backend::Vllm, Backend::Sglang, Backend::Trtllm].into_iter().find(|one| one.name() == engine);
    let backend = backend
        .ok_or_else(|| Failure::input(format!("--backend: `{engine}` is none of vllm, sglang, trtllm")))?;
    let mut model = Catalogue::bundled().model(&model).map_err(Failure::input)?;
    if let Some(format) = &arguments.quantization {
        let named = WeightFormat::named(format).ok_or_else(|| {
            Failure::input(format!("--quantization: `{format}` is no number format that is known"))
        })?;
        model.formats = crate::model::NumberFormats::uniform(named);
    }
    let SampleArguments { tp, pp, attention_dp, moe_tp, moe_ep, .. } = *arguments;
    let split = Split { tp, pp, attention_dp, moe_tp, moe_ep };
    if let Some(problem) = model.split_problem(split) {
        return Err(Failure::input(problem));
    }
    engine_spec(&model, split, &hardware, backend, &version).ok_or_else(|| {
        Failure::input(format!(
            "--model: the operators of {} are not derived here; export them and give --spec",
            model.name
        ))
    })
}

/// The name under which a table is kept: a digest of the deployment, of the release of the crate, and of the names and contents of
/// the data.
fn kept_as(folder: &Path, spec: &Value, systems: &Path) -> Result<PathBuf, Failure> {
    let unreadable = |error| Failure::input(format!("--systems {}: {error}", systems.display()));
    let mut files = Vec::new();
    list(systems, &mut files).map_err(unreadable)?;
    files.sort();
    let mut text = format!("{RELEASE}\n{spec}\n{PROMPTS:?}{NEW:?}{PREFIX:?}{REQUESTS:?}{CONTEXT:?}\n");
    for path in files {
        let content = xxh3_64(&std::fs::read(&path).map_err(unreadable)?);
        let _ = writeln!(text, "{} {content:016x}", path.strip_prefix(systems).unwrap_or(&path).display());
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::run(format!("--cache {}: {error}", folder.display())))?;
    Ok(folder.join(format!("{:016x}.csv", xxh3_64(text.as_bytes()))))
}

/// The files in a folder and below it.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// The rows, as `timing: {model: grid}` takes them.
fn table(database: &Database) -> Result<String, String> {
    let mut text = String::from("batch,new_tokens,prefix_tokens,context_tokens,latency_ms\n");
    for batch in PROMPTS {
        for new in NEW.into_iter().filter(|new| batch * new <= MOST_NEW) {
            for prefix in PREFIX {
                let ms = database.prefill_ms(batch, new, prefix)?;
                let _ = writeln!(text, "{batch},{new},{prefix},,{ms}");
            }
        }
    }
    for batch in REQUESTS {
        for context in CONTEXT.into_iter().filter(|context| batch * context <= MOST_READ) {
            let ms = database.decode_ms(batch, context)?;
            let _ = writeln!(text, "{batch},,,{context},{ms}");
        }
    }
    Ok(text)
}
