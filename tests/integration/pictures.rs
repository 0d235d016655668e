//! The pictures of the documents are made by the program itself. After a deliberate change, make them anew with
//!
//! ```text
//! SPICA_RENEW_DOCUMENTS=1 cargo test --test integration pictures
//! ```

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;
use std::process::Command;

use tempfile::TempDir;

use super::bundled::{Bundled, names_in, repository, run_in_repository, spica};

/// Each picture: its name, the scenario that it is of, and the figure of its report.
const PICTURES: [(&str, &str, &str); 4] = [
    ("quickstart", "quickstart", "settings"),
    ("attainment", "conversation", "ttft_ms_attainment"),
    ("planner_workers", "planner_hybrid", "workers"),
    ("planner_requests", "planner_hybrid", "queue"),
];

#[test]
fn pictures_are_what_the_program_draws() {
    let folder = repository().join("docs/pictures");
    for (picture, scenario, figure) in PICTURES {
        let text = std::fs::read_to_string(repository().join(format!("scenarios/{scenario}.yaml"))).unwrap();
        let results = TempDir::new().unwrap();
        Bundled { name: scenario.into(), text }.run(spica(), results.path(), &[]);
        let mut report = Command::new(spica());
        report.arg("report").arg(results.path()).args(["--format", "svg", "--figure", figure]);
        let drawn = run_in_repository(&mut report);
        assert!(drawn.status.success(), "{picture}: {}", String::from_utf8_lossy(&drawn.stderr));
        let drawn = String::from_utf8(drawn.stdout).unwrap();
        let path = folder.join(picture).with_extension("svg");
        if std::env::var_os("SPICA_RENEW_DOCUMENTS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &drawn).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap() == drawn, "docs/pictures/{picture}.svg is another");
    }
}

#[test]
fn every_picture_is_in_a_document() {
    let drawn: BTreeSet<String> = PICTURES.iter().map(|(picture, ..)| (*picture).to_owned()).collect();
    let there: BTreeSet<String> = names_in(&repository().join("docs/pictures"), "svg").into_iter().collect();
    assert_eq!(there, drawn);
    let docs = repository().join("docs");
    let mut texts = std::fs::read_to_string(repository().join("README.md")).unwrap();
    for name in names_in(&docs, "md") {
        texts += &std::fs::read_to_string(docs.join(name).with_extension("md")).unwrap();
    }
    for picture in drawn {
        assert!(texts.contains(&format!("pictures/{picture}.svg)")), "no document shows {picture}");
    }
}
