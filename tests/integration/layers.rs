//! Who may know whom: imports point downwards, and some names belong to one module alone.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};

use super::rust_paths::{NamedPath, named_paths};

/// Every top-level module of the crate, with the others that it may use.
const MODULES: &[(&str, &[&str])] = &[
    ("simulation", &[]),
    ("config", &[]),
    ("workload", &["simulation", "config"]),
    ("model", &["config"]),
    ("timing", &["simulation", "config", "model"]),
    ("report", &["simulation", "workload", "config"]),
    ("engine", &["simulation", "workload", "timing", "config", "report"]),
    ("serving", &["simulation", "workload", "model", "timing", "engine", "config", "report", "registry"]),
    ("sampling", &[]),
    ("registry", &["engine", "serving", "sampling", "config"]),
    (
        "search",
        &[
            "simulation",
            "workload",
            "model",
            "timing",
            "engine",
            "serving",
            "sampling",
            "config",
            "report",
            "registry",
        ],
    ),
    (
        "run",
        &[
            "simulation",
            "workload",
            "model",
            "timing",
            "engine",
            "serving",
            "search",
            "config",
            "report",
            "registry",
        ],
    ),
    (
        "cli",
        &[
            "simulation",
            "workload",
            "model",
            "timing",
            "engine",
            "serving",
            "search",
            "run",
            "config",
            "report",
            "registry",
        ],
    ),
];

/// A name, or a path from its start, that only some modules may write.
struct Reserved {
    names: &'static [&'static str],
    to: &'static [&'static str],
    why: &'static str,
}

const RESERVED: &[Reserved] = &[
    Reserved {
        names: &["aisimulate_core"],
        to: &["cli/aic"],
        why: "cli::aic alone knows the crate of AI Configurator",
    },
    Reserved { names: &["actix"], to: &["search"], why: "study actors live in search" },
    Reserved { names: &["crossbeam_channel"], to: &["search"], why: "the trial pool lives in search" },
    Reserved { names: &["serde_yaml"], to: &["config/yaml"], why: "config::yaml alone knows the YAML crate" },
    Reserved {
        names: &["std::time", "Instant", "SystemTime", "std::thread"],
        to: &["search", "run", "cli"],
        why: "simulated code has no clock and no threads",
    },
    Reserved {
        names: &["std::fs", "File", "OpenOptions", "std::net"],
        to: &["report", "run", "cli"],
        why: "opening files is for runs and the command line",
    },
    Reserved {
        names: &["println!", "print!", "eprintln!", "eprint!", "stdout", "stderr", "Stdout", "Stderr"],
        to: &["report", "cli"],
        why: "only the command line and the report write to a terminal",
    },
    Reserved { names: &["std::env"], to: &["cli"], why: "the environment is the command line's" },
    Reserved {
        names: &["clap", "indicatif", "comfy_table", "ctrlc", "tracing_subscriber"],
        to: &["cli"],
        why: "the terminal is the command line's",
    },
    Reserved { names: &["HashMap", "HashSet", "RandomState"], to: &[], why: "their order is random" },
    Reserved { names: &["dbg!", "todo!", "unimplemented!"], to: &[], why: "not for finished code" },
];

/// What a source file does that its place does not allow. `file` is relative to `src`, with `/` between its parts.
fn violations(file: &str, source: &str) -> Vec<String> {
    let place = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let paths = named_paths(source);
    let mut found: Vec<(usize, String)> = Vec::new();
    for path in &paths {
        if let Some(target) = upward(place, path) {
            found.push((path.line, format!("{} may not use {target}", module_of(place))));
        }
        for reserved in RESERVED {
            let allowed = reserved.to.iter().any(|owner| is_within(place, owner));
            if let Some(name) = reserved.names.iter().find(|name| !allowed && mentions(path, name)) {
                found.push((path.line, format!("`{name}`: {}", reserved.why)));
            }
        }
    }
    found.sort();
    found.dedup();
    found.into_iter().map(|(line, message)| format!("src/{file}:{line}: {message}")).collect()
}

fn module_of(place: &str) -> &str {
    place.split('/').next().unwrap_or(place)
}

fn is_within(place: &str, owner: &str) -> bool {
    place == owner || place.strip_prefix(owner).is_some_and(|rest| rest.starts_with('/'))
}

/// The top-level module that a path leads to although it must not.
fn upward(place: &str, path: &NamedPath) -> Option<String> {
    let parts: Vec<&str> = path.text.split("::").collect();
    let supers = parts.iter().take_while(|part| **part == "super").count();
    let target = match parts[0] {
        // The binary and the root of the library tie everything together.
        _ if place == "main" || place == "lib" => return None,
        "crate" => parts.get(1)?,
        "super" if supers >= place.split('/').count() => parts.get(supers)?,
        _ => return None,
    };
    let module = module_of(place);
    let known = MODULES.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, uses)| uses);
    (*target != module && !known.contains(target)).then(|| (*target).to_string())
}

/// Whether a path starts with a reserved path, or has a reserved word in it.
fn mentions(path: &NamedPath, name: &str) -> bool {
    if name.contains("::") {
        path.text == name || path.text.strip_prefix(name).is_some_and(|rest| rest.starts_with("::"))
    } else {
        path.text.split("::").any(|part| part == name)
    }
}

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Files that hold tests and nothing else, by the name that the crate gives them.
fn is_test_code(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs" || name == "test_support.rs")
}

#[test]
fn imports_point_downwards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    source_files(&root, &mut files);
    files.sort();
    assert!(files.len() > 50, "the sources are where this test looks: {files:?}");
    let mut found = Vec::new();
    for path in files.iter().filter(|path| !is_test_code(path)) {
        let file = path.strip_prefix(&root).unwrap().display().to_string().replace('\\', "/");
        found.extend(violations(&file, &std::fs::read_to_string(path).unwrap()));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_module_has_its_place() {
    let library = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let mut declared: Vec<_> = library
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod ")))
        .map(|rest| rest.trim_end_matches(';'))
        .collect();
    declared.sort_unstable();
    let mut placed: Vec<_> = MODULES.iter().map(|(name, _)| *name).collect();
    placed.sort_unstable();
    assert_eq!(declared, placed, "give a new module its place in MODULES");
}

#[test]
fn no_two_modules_need_each_other() {
    // The one exception: the registry makes policies, and serving asks it for them.
    let uses =
        |name: &str| MODULES.iter().find(|(module, _)| *module == name).map_or(&[][..], |(_, uses)| uses);
    for (module, used) in MODULES {
        for other in *used {
            let mutual = uses(other).contains(module);
            let allowed = matches!((*module, *other), ("serving", "registry") | ("registry", "serving"));
            assert!(!mutual || allowed, "{module} and {other} need each other");
        }
    }
}

#[test]
fn a_planted_violation_is_found() {
    let cases = [
        ("simulation/run.rs", "use crate::serving::Traffic;", "simulation may not use serving"),
        ("timing/mod.rs", "use super::engine::Engine;", "timing may not use engine"),
        ("engine/kv/cache.rs", "use super::super::super::serving::message;", "engine may not use serving"),
        ("workload/load.rs", "use crate::{config::x, search};", "workload may not use search"),
        ("report/files.rs", "fn f() { crate::serving::replay(); }", "report may not use serving"),
        ("config/yaml.rs", "use crate::workload::Workload;", "config may not use workload"),
        ("serving/client.rs", "use std::{fmt, time::Instant};", "`std::time`"),
        ("serving/client.rs", "fn f() { let t = std::time::Instant::now(); }", "`std::time`"),
        ("engine/vllm.rs", "use std::thread;", "`std::thread`"),
        ("workload/load.rs", "use std::fs::File;", "`std::fs`"),
        ("search/mod.rs", "fn f(file: File) {}", "`File`"),
        ("search/mod.rs", "fn f() { println!(\"x\"); }", "`println!`"),
        ("simulation/mod.rs", "use actix::Actor;", "`actix`"),
        ("cli/mod.rs", "use crossbeam_channel as channel;", "`crossbeam_channel`"),
        ("config/reader.rs", "use serde_yaml::Value;", "`serde_yaml`"),
        ("report/table.rs", "use comfy_table::Table;", "`comfy_table`"),
        ("cli/mod.rs", "use std::collections::HashMap;", "`HashMap`"),
        ("registry.rs", "use crate::search::Sampler;", "registry may not use search"),
        ("lib.rs", "use std::collections::{BTreeMap, HashSet};", "`HashSet`"),
    ];
    for (file, source, expected) in cases {
        let found = violations(file, &format!("\n{source}\n"));
        assert!(found.iter().any(|one| one.contains(expected)), "{file}: {source}: {found:?}");
        assert!(found[0].starts_with(&format!("src/{file}:2: ")), "{found:?}");
    }
}

#[test]
fn what_is_allowed_passes() {
    let cases = [
        ("cli/mod.rs", "use crate::search; use std::time::Instant; fn f() { println!(); }"),
        ("search/study/pool.rs", "use actix::Recipient; use crossbeam_channel::Sender; use std::thread;"),
        ("config/yaml.rs", "use serde_yaml::Value;"),
        ("config/yaml/scan.rs", "use serde_yaml::Value;"),
        ("engine/kv/cache.rs", "use super::super::sequence::Sequence; use super::pieces;"),
        ("engine/mod.rs", "use crate::simulation::SimTime; use rustc_hash::FxHashMap;"),
        ("serving/router/policy.rs", "use super::super::worker::Worker; use crate::registry::Registry;"),
        ("simulation/mod.rs", "//! Unlike std::time, see [`crate::serving`].\n/* use actix; */ fn f() {}"),
        ("simulation/mod.rs", "fn f() -> &'static str { \"use std::fs; println!\" }"),
        ("simulation/mod.rs", "fn f() -> &'static str { r#\"crate::cli \"quoted\" File\"# }"),
        ("simulation/time.rs", "#[cfg(test)]\nmod tests { use std::time::Duration; }"),
        ("simulation/time.rs", "fn f(eprint: bool) -> bool { eprint != true && !eprint }"),
    ];
    for (file, source) in cases {
        assert_eq!(violations(file, source), [""; 0], "{file}: {source}");
    }
}
