//! `spica deploy`: from a candidate to what starts it.

mod account;
#[cfg(test)]
mod flags;
mod manifest;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use self::account::{Account, PoolContext, account, frontend};
use super::arguments::{DeployArguments, DeployForm, Format};
use super::console::Console;
use super::failure::{Failure, Status};
use super::output::OutputFolder;
use super::results::{candidate, find, json_file};

/// The files that `--output-dir` gets.
const COMMANDS: &str = "commands.sh";
const DYNAMO: &str = "dynamo.yaml";
const KUBERNETES: &str = "kubernetes.yaml";

/// A candidate, ready to be written down.
struct Plan {
    /// What it is called in manifests.
    name: String,
    model: String,
    hardware: Option<String>,
    backend: String,
    pools: Vec<PoolPlan>,
    frontend: Account,
    /// Fields outside pools and router that cannot be said.
    unsaid: Vec<(String, String)>,
}

struct PoolPlan {
    name: &'static str,
    workers: u64,
    gpus: u64,
    account: Account,
}

pub(super) fn run(arguments: &DeployArguments, console: Console) -> Result<Status, Failure> {
    let plan = plan(arguments)?;
    if let Some(path) = &arguments.output_dir {
        let folder = OutputFolder::prepare(path, &[COMMANDS, DYNAMO, KUBERNETES])?;
        for (name, form) in [
            (COMMANDS, DeployForm::Commands),
            (DYNAMO, DeployForm::Dynamo),
            (KUBERNETES, DeployForm::Kubernetes),
        ] {
            let text = plan.text(form, arguments);
            folder.write(name, |out| std::io::Write::write_all(out, text.as_bytes()))?;
        }
    }
    match console.format() {
        Format::Text => Console::print(&plan.text(arguments.to, arguments))?,
        Format::Json => Console::print_json(&plan.json())?,
    }
    for (field, why) in plan.all_unsaid(arguments.to) {
        console.note(format!("not said: {field} ({why})"));
    }
    Ok(Status::Success)
}

fn plan(arguments: &DeployArguments) -> Result<Plan, Failure> {
    let folder = &arguments.folder;
    let (config, scenario) = source(folder, arguments.rank)?;
    let deployment = &scenario["deployment"];
    let pools: Vec<PoolPlan> = ["agg", "prefill", "decode"]
        .into_iter()
        .filter(|name| deployment[name].is_object())
        .map(|name| pool_plan(name, &deployment[name], &config))
        .collect();
    let Some(first) = pools.first() else {
        return Err(Failure::input(format!("{}: the candidate has no workers", folder.display())));
    };
    let backend = deployment[first.name]["engine"]["backend"].as_str().unwrap_or("vllm").to_owned();
    let timing = &deployment[first.name]["timing"];
    let text =
        |name: &str| config.get(name).or_else(|| timing.get(name)).and_then(Value::as_str).map(str::to_owned);
    let Some(model) = arguments.model.clone().or_else(|| text("model_name")) else {
        return Err(Failure::input("--model: missing: the scenario does not say which model it is about"));
    };
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
    let name: String = model
        .rsplit('/')
        .next()
        .unwrap_or("model")
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' })
        .collect();
    let name = name.trim_matches('-').to_owned();
    Ok(Plan {
        name,
        model,
        hardware: text("hardware_sku"),
        backend,
        pools,
        frontend: frontend(deployment),
        unsaid,
    })
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
fn source(folder: &Path, rank: usize) -> Result<(Map<String, Value>, Value), Failure> {
    if find(folder, "candidates.json").is_some() {
        let candidate = candidate(folder, rank)?;
        let config = candidate["config"].as_object().cloned().unwrap_or_default();
        return Ok((config, candidate["scenario"].clone()));
    }
    let Some(path) = find(folder, "report.json") else {
        return Err(Failure::input(format!(
            "{}: holds neither candidates.json nor report.json: give the --output-dir of a search or a replay",
            folder.display()
        )));
    };
    if rank != 1 {
        return Err(Failure::input("--rank: a replay has one deployment only"));
    }
    Ok((Map::new(), json_file(&path)?["scenario"].clone()))
}

fn pool_plan(name: &'static str, pool: &Value, config: &Map<String, Value>) -> PoolPlan {
    let count = |field: &str| pool[field].as_u64().unwrap_or(1);
    PoolPlan {
        name,
        workers: count("workers"),
        gpus: count("dp_size") * count("tensor_parallel_size") * count("pipeline_parallel_size"),
        account: account(pool, PoolContext { name, config }),
    }
}

impl Plan {
    fn text(&self, form: DeployForm, arguments: &DeployArguments) -> String {
        let body = match form {
            DeployForm::Commands => self.commands(),
            DeployForm::Dynamo => manifest::dynamo(self, arguments.image.as_deref()),
            DeployForm::Kubernetes => manifest::kubernetes(self, arguments.image.as_deref()),
        };
        format!("{}{body}", self.header(form))
    }

    /// What it is, and what it cannot say, as comments.
    fn header(&self, form: DeployForm) -> String {
        let hardware = self.hardware.as_deref().map(|name| format!(" on {name}")).unwrap_or_default();
        let mut lines = vec![format!("# {}{hardware}", self.model)];
        for pool in &self.pools {
            lines.push(format!("# {}: {} workers of {} GPUs", pool.name, pool.workers, pool.gpus));
        }
        let unsaid = self.all_unsaid(form);
        if !unsaid.is_empty() {
            lines.push("# Not said below:".into());
            lines.extend(unsaid.iter().map(|(field, why)| format!("#   {field}: {why}").replace('\n', " ")));
        }
        lines.join("\n") + "\n"
    }

    fn all_unsaid(&self, form: DeployForm) -> Vec<(String, String)> {
        let pools = self.pools.iter().flat_map(|pool| {
            let fields = pool.account.unsaid.iter();
            fields.map(move |(field, why)| (format!("{}.{field}", pool.name), why.clone()))
        });
        let mut unsaid: Vec<_> = pools.collect();
        if form == DeployForm::Dynamo {
            unsaid.extend(self.frontend.unsaid.iter().cloned());
        } else {
            let why = "engines have no router: put Dynamo's frontend or your own in front of them";
            unsaid.push((format!("router: {}", self.frontend.arguments().join(" ")), why.into()));
            unsaid.extend(self.frontend.unsaid.iter().cloned());
        }
        unsaid.extend(self.unsaid.iter().cloned());
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
        start.chain([self.model.clone()]).chain(pool.account.arguments()).collect()
    }

    fn commands(&self) -> String {
        let mut text = String::new();
        for pool in &self.pools {
            let words: Vec<String> = self.command(pool).iter().map(|word| quoted(word)).collect();
            let line = words.join(" ").replace(" --", " \\\n    --");
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
        let unsaid = self.all_unsaid(DeployForm::Dynamo);
        let unsaid = unsaid.iter().map(|(field, why)| json!({"field": field, "why": why}));
        json!({
            "model": self.model,
            "backend": self.backend,
            "pools": pools.collect::<Vec<_>>(),
            "frontend": self.frontend.arguments(),
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
