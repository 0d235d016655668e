//! `spica deploy`: from a candidate to what starts it.

mod account;
mod engines;
#[cfg(test)]
mod flags;
mod frontend;
mod manifest;

use std::fmt::Write as _;
use std::path::Path;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use self::account::{Account, PoolContext, Starter, account};
use self::frontend::{frontend, planner, takes_kv_events};
use super::arguments::{DeployArguments, DeployForm, Format};
use super::console::Console;
use super::failure::{Failure, Status};
use super::names::{CANDIDATES, COMMANDS, DYNAMO, KUBERNETES, Kind};
use super::output::OutputFolder;
use super::results::{answer, chosen, note_unfinished, replay_report, search_result};
use crate::config::Document;
use crate::report::shortfalls::{shortfall_lines, shortfalls};
use crate::run;
use crate::serving;

/// A candidate, ready to be written down.
struct Plan {
    /// What it is called in manifests.
    name: String,
    model: String,
    hardware: Option<String>,
    backend: String,
    pools: Vec<PoolPlan>,
    frontend: Account,
    /// The configuration of Dynamo's planner.
    planner: Option<Value>,
    /// What that cannot say.
    planner_unsaid: Vec<(String, String)>,
    /// Fields outside pools, router and planner that cannot be said.
    unsaid: Vec<(String, String)>,
    /// What the answer lacks that it was chosen from.
    incomplete: Vec<Value>,
}

struct PoolPlan {
    name: &'static str,
    workers: u64,
    gpus: u64,
    /// For the engine's own command.
    engine: Account,
    /// For a worker behind Dynamo's runtime.
    dynamo: Account,
}

pub(super) fn run(arguments: &DeployArguments, console: Console) -> Result<Status, Failure> {
    if let Some(path) = &arguments.output_dir {
        OutputFolder::look_at(path, Kind::Deployment)?;
    }
    let plan = plan(arguments)?;
    note_unfinished(&arguments.folder, console);
    if let Some(path) = &arguments.output_dir {
        let folder = OutputFolder::open(path, Kind::Deployment)?;
        let mut files = folder.replacement();
        for (name, form) in [
            (COMMANDS, DeployForm::Commands),
            (DYNAMO, DeployForm::Dynamo),
            (KUBERNETES, DeployForm::Kubernetes),
        ] {
            let text = plan.text(form, arguments);
            files.write(name, |out| std::io::Write::write_all(out, text.as_bytes()))?;
        }
        files.put()?;
    }
    match console.format() {
        Format::Text => Console::print(&plan.text(arguments.to, arguments))?,
        Format::Json => Console::print_json(&plan.json())?,
    }
    shortfall_lines(&plan.incomplete).for_each(|line| console.note(line));
    for (field, why) in plan.all_unsaid(arguments.to, arguments.image.as_deref()) {
        console.note(format!("not said: {field} ({why})"));
    }
    Ok(Status::Success)
}

fn plan(arguments: &DeployArguments) -> Result<Plan, Failure> {
    let folder = &arguments.folder;
    let Source { config, scenario, incomplete } = source(folder, arguments.rank)?;
    let deployment = &scenario["deployment"];
    let blocks = modelled_blocks(&scenario, folder);
    let pools: Vec<PoolPlan> = ["agg", "prefill", "decode"]
        .into_iter()
        .filter(|name| deployment[name].is_object())
        .map(|name| pool_plan(name, deployment, &config, blocks.get(name).copied()))
        .collect();
    let Some(first) = pools.first() else {
        return Err(Failure::input(format!("{}: the candidate has no workers", folder.display())));
    };
    let backend = deployment[first.name]["engine"]["backend"].as_str().unwrap_or("vllm").to_owned();
    let timing = &deployment[first.name]["timing"];
    let text =
        |name: &str| config.get(name).or_else(|| timing.get(name)).and_then(Value::as_str).map(str::to_owned);
    let (key, model) = match (&arguments.model, text("model_name")) {
        (Some(model), _) => ("--model".to_owned(), model.clone()),
        (None, Some(model)) => (format!("{}: model_name", folder.display()), model),
        (None, None) => {
            return Err(Failure::input(
                "--model: missing: the scenario does not say which model it is about",
            ));
        }
    };
    one_line(&key, &model)?;
    if let Some(image) = &arguments.image {
        one_line("--image", image)?;
        if image.contains(char::is_whitespace) {
            return Err(Failure::input(format!("--image: {image:?} has a space; no image is called so")));
        }
    }
    let mut unsaid = Vec::new();
    let transfer = &deployment["kv_transfer"];
    if pools.len() > 1 && transfer.is_object() {
        unsaid.push((format!("kv_transfer: {transfer}"), "a property of the network".into()));
    }
    for (name, why) in
        [("replica_changes", "a script of the simulation"), ("sla", "a bound to be measured, not a setting")]
    {
        if let Some(value) = scenario.get(name).or_else(|| deployment.get(name)).filter(|value| is_set(value))
        {
            unsaid.push((format!("{name}: {value}"), why.to_owned()));
        }
    }
    let (planner, planner_account) = planner(deployment, &backend);
    Ok(Plan {
        name: resource_name(&model),
        model,
        hardware: text("hardware_sku"),
        backend,
        pools,
        frontend: frontend(deployment),
        planner,
        planner_unsaid: planner_account.unsaid,
        unsaid,
        incomplete,
    })
}

/// A name that stands in scripts and manifests has to be one visible line: the rest of it would be a command.
fn one_line(key: &str, name: &str) -> Result<(), Failure> {
    let rule = if name.trim().is_empty() {
        "is empty"
    } else if name.contains(breaks_line) {
        "has control characters; a name is one line of text"
    } else {
        return Ok(());
    };
    Err(Failure::input(format!("{key}: {name:?} {rule}")))
}

/// Whether a shell or YAML could end a line here.
fn breaks_line(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

/// What a cluster can call the deployment of a model: short, in small letters, digits and dashes, a letter first.
fn resource_name(model: &str) -> String {
    let last = model.split('/').rfind(|part| !part.is_empty()).unwrap_or_default();
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }
    };
    let name: String = last.chars().map(plain).take(40).collect();
    let name = name.trim_matches('-');
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        format!("model-{name}").trim_end_matches('-').to_owned()
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

/// The settings and the scenario of a candidate, or of a replay.
struct Source {
    config: Map<String, Value>,
    scenario: Value,
    incomplete: Vec<Value>,
}

fn source(folder: &Path, rank: Option<usize>) -> Result<Source, Failure> {
    if answer(folder)? == Kind::Search {
        let result = search_result(folder)?;
        let candidate = chosen(folder, &result, rank)?;
        return Ok(Source {
            config: candidate["config"].as_object().cloned().unwrap_or_default(),
            scenario: candidate["scenario"].clone(),
            incomplete: shortfalls(&result).to_vec(),
        });
    }
    if rank.is_some_and(|rank| rank != 1) {
        return Err(Failure::input("--rank: a replay has one deployment only"));
    }
    let scenario = replay_report(folder)?["scenario"].clone();
    Ok(Source { config: Map::new(), scenario, incomplete: Vec::new() })
}

/// The KV blocks that a memory model finds room for, by pool.
fn modelled_blocks(scenario: &Value, folder: &Path) -> IndexMap<&'static str, u32> {
    let loaded = run::document(&scenario.to_string(), &folder.join(CANDIDATES), &[]);
    match loaded.map(|loaded| loaded.document) {
        Ok(Document::Scenario(scenario)) => serving::modelled_blocks(&scenario),
        Ok(Document::Search(_)) | Err(_) => IndexMap::new(),
    }
}

fn pool_plan(
    name: &'static str,
    deployment: &Value,
    config: &Map<String, Value>,
    modelled_blocks: Option<u32>,
) -> PoolPlan {
    let pool = &deployment[name];
    let count = |field: &str| pool[field].as_u64().unwrap_or(1);
    let started_by = |starter| account(pool, PoolContext { name, config, modelled_blocks, starter });
    PoolPlan {
        name,
        workers: count("workers"),
        gpus: count("dp_size") * count("tensor_parallel_size") * count("pipeline_parallel_size"),
        engine: started_by(Starter::Engine),
        dynamo: started_by(Starter::Dynamo { kv_events: takes_kv_events(deployment) }),
    }
}

impl Plan {
    fn text(&self, form: DeployForm, arguments: &DeployArguments) -> String {
        let image = arguments.image.as_deref();
        let body = match form {
            DeployForm::Commands => self.commands(),
            DeployForm::Dynamo => manifest::dynamo(self, image),
            DeployForm::Kubernetes => manifest::kubernetes(self, image),
        };
        format!("{}{body}", self.header(form, image))
    }

    /// What it is, and what it cannot say, as comments.
    fn header(&self, form: DeployForm, image: Option<&str>) -> String {
        let hardware = self.hardware.as_deref().map(|name| format!(" on {name}")).unwrap_or_default();
        let mut lines = vec![format!("# {}{hardware}", self.model)];
        for pool in &self.pools {
            lines.push(format!("# {}: {} workers of {} GPUs", pool.name, pool.workers, pool.gpus));
        }
        lines.extend(shortfall_lines(&self.incomplete).map(|line| format!("# {line}")));
        let unsaid = self.all_unsaid(form, image);
        if !unsaid.is_empty() {
            lines.push("# Not said below:".into());
            lines.extend(unsaid.iter().map(|(field, why)| format!("#   {field}: {why}")));
        }
        lines.iter().map(|line| line.replace(breaks_line, " ") + "\n").collect()
    }

    fn all_unsaid(&self, form: DeployForm, image: Option<&str>) -> Vec<(String, String)> {
        let is_dynamo = form == DeployForm::Dynamo;
        let pools = self.pools.iter().flat_map(|pool| {
            let account = if is_dynamo { &pool.dynamo } else { &pool.engine };
            account.unsaid.iter().map(move |(field, why)| (format!("{}.{field}", pool.name), why.clone()))
        });
        let mut unsaid: Vec<_> = pools.collect();
        if !is_dynamo {
            let why = "engines have no router: put Dynamo's frontend or your own in front of them";
            unsaid.push((format!("router: {}", self.frontend.arguments().join(" ")), why.into()));
        }
        unsaid.extend(self.frontend.unsaid.iter().cloned());
        match &self.planner {
            Some(config) if !is_dynamo => {
                let why = "engines have no planner: start Dynamo's with this configuration";
                unsaid.push((format!("planner: {config}"), why.into()));
            }
            _ => {}
        }
        unsaid.extend(self.planner_unsaid.iter().cloned());
        unsaid.extend(self.unsaid.iter().cloned());
        if let Some(image) = image.filter(|image| is_dynamo && !manifest::has_version(image)) {
            let why = "its tag is no version: newer operators want runtimeVersionOverride in each component";
            unsaid.push((format!("image: {image}"), why.into()));
        }
        unsaid
    }

    /// The command of a worker, word by word.
    fn command(&self, pool: &PoolPlan) -> Vec<String> {
        let start: &[&str] = match self.backend.as_str() {
            "sglang" => &["python3", "-m", "sglang.launch_server", "--model-path"],
            "trtllm" => &["trtllm-serve"],
            _ => &["vllm", "serve"],
        };
        let start = start.iter().map(|word| (*word).to_owned());
        start.chain([self.model.clone()]).chain(pool.engine.arguments()).collect()
    }

    fn commands(&self) -> String {
        let mut text = String::new();
        for pool in &self.pools {
            let mut line = String::new();
            for word in self.command(pool) {
                let between = match word.starts_with("--") {
                    _ if line.is_empty() => "",
                    true => " \\\n    ",
                    false => " ",
                };
                line += between;
                line += &quoted(&word);
            }
            let _ = writeln!(
                text,
                "\n# {}: start {} of these, each on {} GPUs and a port of its own",
                pool.name, pool.workers, pool.gpus
            );
            text += &line;
            text.push('\n');
        }
        text
    }

    fn json(&self) -> Value {
        let pools = self.pools.iter().map(|pool| {
            json!({"pool": pool.name, "workers": pool.workers, "gpus_per_worker": pool.gpus, "command": self.command(pool)})
        });
        let unsaid = self.all_unsaid(DeployForm::Dynamo, None);
        let unsaid = unsaid.iter().map(|(field, why)| json!({"field": field, "why": why}));
        json!({
            "incomplete": self.incomplete,
            "model": self.model,
            "backend": self.backend,
            "pools": pools.collect::<Vec<_>>(),
            "frontend": self.frontend.arguments(),
            "planner": self.planner,
            "not_said": unsaid.collect::<Vec<_>>(),
        })
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=,@%+".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line() {
        for good in ["a/Model-7", "/models/my model", "Modèle"] {
            assert!(one_line("--model", good).is_ok(), "{good}");
        }
        for (bad, message) in [
            ("", "--model: \"\" is empty"),
            (" ", "--model: \" \" is empty"),
            ("a\nb", "--model: \"a\\nb\" has control characters; a name is one line of text"),
            ("a\u{2028}b", "--model: \"a\\u{2028}b\" has control characters; a name is one line of text"),
        ] {
            assert_eq!(one_line("--model", bad).unwrap_err().message, message);
        }
    }

    #[test]
    fn resources_get_names_that_a_cluster_takes() {
        for (model, expected) in [
            ("Qwen/Qwen3-32B", "qwen3-32b"),
            ("/models/Llama_3.1/", "llama-3-1"),
            ("3b", "model-3b"),
            ("//", "model"),
        ] {
            assert_eq!(resource_name(model), expected);
        }
        assert!(resource_name(&"a".repeat(90)).len() <= 40);
    }
}
