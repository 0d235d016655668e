//! The page of a search.

use serde_json::{Map, Number, Value, json};

use super::chart::{Bars, Chart, Figure};
use super::page::{Page, Section};
use super::text::{figure, shown};
use super::tried::{Tried, best_so_far, candidates, effects, feasible, frontier, parallel, varying_knobs};
use crate::report::figure::at_least;
use crate::report::ranking::{ABSENT, Cell, Medium, Ranking, changing_gpus, left_out_of};
use crate::report::reasons::{Reason, reasons};
use crate::report::shortfalls::{shortfall_lines, shortfalls};

/// What a search has written.
#[derive(Clone, Debug, Default)]
pub struct SearchFiles {
    /// `candidates.json`.
    pub result: Value,
    /// The lines of `trials.jsonl`, if it is there.
    pub trials: Vec<Value>,
}

/// The page of a search. `name` is what the reader knows it by.
pub fn search_page(name: &str, files: &SearchFiles) -> Page {
    let candidates = candidates(&files.result);
    let trials = feasible(&files.trials);
    // The journal has what a frontier leaves out; without it the candidates have to do.
    let tried = if trials.is_empty() { candidates.clone() } else { trials };
    let all_knobs = varying_knobs(&tried);
    let objectives = objectives(&files.result);
    let score = objectives.first().map_or("score", String::as_str);
    let others: Vec<Tried<'_>> =
        if objectives.is_empty() { Vec::new() } else { without(&tried, &candidates) };
    let best = candidates.first().map(|one| one.row);
    // A frontier has no best.
    let who = if objectives.is_empty() { "the best candidate" } else { "rank 1, one end of the frontier" };
    let mut effect_figures = parallel(&tried, score);
    effect_figures.extend(effects(&tried, &all_knobs, score));
    let mut sections: Vec<Section> = nearest(&files.result).into_iter().collect();
    sections.extend(ranking(&files.result));
    sections.extend([
        Section::Figures {
            heading: "Candidates".into(),
            figures: vec![frontier(&candidates, &others, &all_knobs), best_so_far(&files.trials, score)],
        },
        policies(best, who),
        Section::Figures { heading: "Effect of each setting".into(), figures: effect_figures },
        Section::Figures { heading: "What did not count".into(), figures: vec![rejected(&files.result)] },
        rejected_table(&files.result),
        left_out(&files.result, "skipped", "Left out beforehand"),
        left_out(&files.result, "dropped_policies", "Scaling policies that the goal cannot support"),
    ]);
    if let Some(nearest) = files.result.get("nearest").filter(|nearest| nearest.is_object()) {
        let settings = pretty(&nearest["config"]);
        sections.push(Section::Details { heading: "Settings of what came nearest".into(), text: settings });
        let scenario = pretty(&nearest["scenario"]);
        sections.push(Section::Details { heading: "Scenario of what came nearest".into(), text: scenario });
    }
    if let Some(best) = best {
        sections
            .push(Section::Details { heading: format!("Settings of {who}"), text: pretty(&best["config"]) });
        sections.push(Section::Details { heading: "Its scenario".into(), text: pretty(&best["scenario"]) });
    }
    Page {
        title: format!("Search: {name}"),
        lead: lead(&files.result),
        tiles: tiles(&files.result, best),
        sections,
    }
}

/// Names of the objectives of a Pareto goal.
fn objectives(result: &Value) -> Vec<String> {
    let goal = &result["goal"];
    let is_pareto = goal["target"] == "pareto";
    let names = list(&goal["pareto_objectives"]).iter().filter(|_| is_pareto);
    names.map(shown).collect()
}

/// What was tried and is no candidate.
fn without<'r>(tried: &[Tried<'r>], candidates: &[Tried<'_>]) -> Vec<Tried<'r>> {
    let is_candidate =
        |one: &Tried<'_>| candidates.iter().any(|candidate| candidate.row["config"] == one.row["config"]);
    tried.iter().filter(|one| !is_candidate(one)).cloned().collect()
}

/// The settings of the router and of the planner of a candidate, and of its scheduler where there was a choice of them.
fn policies(candidate: Option<&Value>, who: &str) -> Section {
    let deployment = candidate.map_or(&Value::Null, |candidate| &candidate["scenario"]["deployment"]);
    let mut rows = Vec::new();
    for part in ["router", "planner"] {
        let nothing = Map::new();
        let fields = deployment[part].as_object().unwrap_or(&nothing);
        if fields.is_empty() && candidate.is_some() {
            rows.push(vec![json!(part), json!("-"), json!("none")]);
        }
        let settings = fields.iter().filter(|(_, value)| !value.is_null());
        rows.extend(settings.map(|(name, value)| vec![json!(part), json!(name), json!(shown(value))]));
    }
    let scheduler = candidate.map_or(&Value::Null, |candidate| &candidate["config"]["scheduler"]);
    let row = |name: &str, value: &Value| vec![json!("scheduler"), json!(name), json!(shown(value))];
    match scheduler {
        Value::Null => {}
        Value::Object(fields) => rows.extend(fields.iter().map(|(name, value)| row(name, value))),
        name => rows.push(row("policy", name)),
    }
    let parts = if scheduler.is_null() { "Router and planner" } else { "Router, planner and scheduler" };
    Section::Table {
        heading: format!("{parts} of {who}"),
        filter: false,
        columns: ["part", "setting", "value"].map(str::to_owned).to_vec(),
        rows,
    }
}

/// Where nothing counts, what came nearest: what each bound would have to be.
fn nearest(result: &Value) -> Option<Section> {
    let nearest = result.get("nearest").filter(|nearest| nearest.is_object())?;
    let row = |bound: &Value| {
        let verdict = if bound["missed"] == true { "missed" } else { "kept" };
        let name = format!("goal.sla.{}", shown(&bound["bound"]));
        let reached = bound["reached_ms"].as_f64().and_then(|reached| at_least(reached).parse::<f64>().ok());
        vec![json!(name), bound["limit_ms"].clone(), json!(reached), json!(verdict)]
    };
    let percent = |share: &Value| share.as_f64().map_or("-".into(), |share| figure(share * 100.0));
    let least = percent(&nearest["min_attainment"]);
    let over_budget = nearest.get("over_budget").map_or_else(String::new, |why| format!("; {}", shown(why)));
    Some(Section::Table {
        heading: format!(
            "Nothing counts; nearest came one with {} % of {least} % attainment{over_budget}",
            percent(&nearest["attainment"])
        ),
        filter: false,
        columns: vec![
            "bound".into(),
            "ms".into(),
            format!("{least} % of its requests within ms"),
            "verdict".into(),
        ],
        rows: list(&nearest["bounds"]).iter().map(row).collect(),
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn lead(result: &Value) -> String {
    let goal = &result["goal"];
    let what = goal.get("target").or_else(|| goal.get("objective")).unwrap_or(goal);
    let certified = match (result["certified_optimum"] == true, objectives(result).is_empty()) {
        (false, _) => "",
        (true, true) => "; every point was evaluated, so rank 1 is the optimum",
        (true, false) => "; every point was evaluated, so no point is beyond the frontier",
    };
    let goal = format!("goal: {}{certified}", shown(what));
    [goal].into_iter().chain(shortfall_lines(shortfalls(result))).collect::<Vec<_>>().join("; ")
}

fn tiles(result: &Value, best: Option<&Value>) -> Vec<(String, String, String)> {
    let tally = &result["tally"];
    let mut tiles = vec![("feasible trials".into(), shown(&tally["feasible"]), other_trials(tally))];
    if let Some(best) = best {
        let metric = |key: &str| best["metrics"][key].as_f64().map(figure);
        if best["objectives"].is_object() && objectives(result).len() > 1 {
            let on_it = list(&result["candidates"]).len().to_string();
            tiles.push(("on the frontier".into(), on_it, objectives(result).join(" against ")));
        } else {
            tiles.push(("best score".into(), shown(&best["score"]), "higher is better".into()));
        }
        let mode = shown(&best["config"]["deployment_mode"]);
        tiles.push((
            "GPUs of rank 1".into(),
            shown(&best["used_gpus"]),
            match changing_gpus(best) {
                Some(later) => format!("{mode}; at the start, {later}"),
                None => mode,
            },
        ));
        for (name, key) in [
            ("output tokens/s", "output_throughput_tok_s"),
            ("mean TTFT in ms", "mean_ttft_ms"),
            ("mean TPOT in ms", "mean_tpot_ms"),
        ] {
            tiles.extend(metric(key).map(|value| (name.to_owned(), value, String::new())));
        }
        let router = &best["scenario"]["deployment"]["router"]["policy"];
        let planner = &best["scenario"]["deployment"]["planner"];
        let planner = planner.get("policy").map_or_else(|| "none".into(), shown);
        tiles.push(("its router".into(), shown(router), format!("planner: {planner}")));
    }
    tiles
}

/// The trials that are not feasible, by outcome; of screened ones and those that were stopped only where there are any, as in
/// the file.
fn other_trials(tally: &Value) -> String {
    let outcomes = [
        ("infeasible", "infeasible"),
        ("failed", "failed"),
        ("unsupported", "unsupported"),
        ("screened", "screened"),
        ("stopped_early", "stopped early"),
        ("cache_hit", "repeated"),
    ];
    let count = |(key, name)| tally.get(key).map(|count| format!("{} {name}", shown(count)));
    outcomes.into_iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

/// The ranking or the frontier, with what is to be said of it.
fn ranking(result: &Value) -> [Section; 2] {
    let searched: Vec<String> = list(&result["searched"]).iter().map(shown).collect();
    let Ranking { columns, rows, remarks, .. } =
        Ranking::new(list(&result["candidates"]), &searched, Medium::Page);
    let row = |row: usize| columns.iter().map(|column| sortable(&column.cells[row])).collect();
    let is_frontier = !objectives(result).is_empty();
    let table = Section::Table {
        heading: if is_frontier { "Frontier" } else { "Ranking" }.into(),
        filter: true,
        rows: (0..rows).map(row).collect(),
        columns: columns.into_iter().map(|column| column.heading).collect(),
    };
    let lines = remarks.into_iter().chain(left_out_of(result)).collect();
    [table, Section::Remarks { lines }]
}

/// A cell as a value; settings that are numbers are sorted as such.
fn sortable(cell: &Cell) -> Value {
    match cell {
        Cell::Absent => Value::Null,
        Cell::Figure(value) => value.clone(),
        Cell::Text(text) if text == ABSENT => Value::Null,
        Cell::Text(text) => text.parse::<Number>().map_or_else(|_| json!(text), Value::Number),
        Cell::Several(texts) => json!(texts),
    }
}

fn reasons_of(result: &Value) -> Vec<Reason<&str>> {
    let rejected = list(&result["rejected"]).iter();
    reasons(rejected.filter_map(|one| Some((one["outcome"].as_str()?, one["reason"].as_str()?))))
}

fn rejected(result: &Value) -> Figure {
    let bars = reasons_of(result).into_iter().take(20);
    let bars = bars.map(|reason| (reason.text, reason.trials as f64)).collect();
    Figure {
        id: "rejected".into(),
        title: "Trials that do not count, by reason".into(),
        caption: String::new(),
        chart: Chart::Bars(Bars { x_label: "trials".into(), bars }),
    }
}

/// What was left out before the search began, as a list of the result has it.
fn left_out(result: &Value, list_of: &str, heading: &str) -> Section {
    let skipped = list(&result[list_of]);
    let columns: Vec<String> = skipped
        .first()
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|fields| fields.keys().cloned())
        .collect();
    let row = |one: &Value| columns.iter().map(|column| one[column].clone()).collect();
    Section::Table {
        heading: heading.into(),
        filter: false,
        rows: skipped.iter().map(row).collect(),
        columns,
    }
}

fn rejected_table(result: &Value) -> Section {
    let rows = reasons_of(result)
        .into_iter()
        .map(|Reason { outcome, text, trials }| vec![json!(trials), json!(outcome), json!(text)]);
    Section::Table {
        heading: "Reasons in full".into(),
        filter: false,
        columns: ["trials", "outcome", "reason"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}
