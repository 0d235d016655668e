//! Result files that were cut off, edited by hand, or are none: a message with the place, and never a panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::{Value, json};

use super::cli_command::Workplace;
use super::search::three_points;

const SCENARIO: &str = "\
deployment:
  mode: agg
  router: {policy: round_robin}
  planner: {policy: load_180_5}
  agg: {workers: 2, engine: {num_gpu_blocks: 4096}}
workload: {isl: 500, osl: 20, request_rate: 4, num_request_ratio: 10}
";

/// A search in `out` and a replay in `run`.
fn results() -> Workplace {
    let place = Workplace::with("search.yaml", &three_points());
    place.write("scenario.yaml", SCENARIO);
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    place.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    place
}

const OF_SEARCH: [&[&str]; 4] =
    [&["report", "out"], &["diff", "out", "out"], &["deploy", "out"], &["explain", "candidate", "out"]];
const OF_REPLAY: [&[&str]; 3] =
    [&["report", "run"], &["diff", "run", "run"], &["deploy", "run", "--model=a"]];

#[test]
fn a_file_that_was_cut_off_is_refused_with_its_line() {
    let place = results();
    for (commands, file) in [(&OF_SEARCH[..], "out/candidates.json"), (&OF_REPLAY, "run/report.json")] {
        let whole = place.read(file);
        for cut in [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 3] {
            place.write(file, &whole[..cut]);
            let line = whole[..cut].matches('\n').count() + 1;
            for command in commands {
                let words = [format!("{file}:{line}: is no JSON: EOF while parsing")];
                place.run(command).refusing(&[&words[0]]);
            }
        }
        place.write(file, &whole.replacen("\"schema_version\": 1", "\"schema_version\": NaN", 1));
        for command in commands {
            place.run(command).refusing(&[&format!("{file}:2: is no JSON: expected value, column 21")]);
        }
        place.write(file, &whole);
        for command in commands {
            place.run(command).ending(0);
        }
    }
    for file in ["run/requests.jsonl", "run/scaling.jsonl", "run/series.json"] {
        let whole = place.read(file);
        place.write(file, &whole[..whole.len() - 9]);
        let lines = whole[..whole.len() - 9].lines().count();
        place.run(&["report", "run"]).refusing(&[&format!("{file}:{lines}: is no JSON")]);
        place.write(file, &whole);
    }
}

/// The text with one value in the place of another.
fn edited(text: &str, pointer: &str, value: Value) -> String {
    let mut whole: Value = serde_json::from_str(text).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match whole.pointer_mut(parent).unwrap() {
        Value::Object(fields) if value == json!("absent") => drop(fields.shift_remove(key)),
        _ => *whole.pointer_mut(pointer).unwrap() = value,
    }
    serde_json::to_string_pretty(&whole).unwrap() + "\n"
}

#[test]
fn values_of_another_kind_and_figures_that_contradict_are_refused_with_their_line() {
    let place = results();
    for (file, pointer, value, words) in [
        ("out/candidates.json", "/candidates", json!({}), "candidates: {} is not a list"),
        (
            "out/candidates.json",
            "/candidates",
            json!("absent"),
            "candidates: is missing; it has to be a list",
        ),
        ("out/candidates.json", "/goal/target", json!("speed"), "goal.target: \"speed\" is no objective"),
        (
            "out/candidates.json",
            "/tally/feasible",
            json!(1),
            "tally.feasible: 1 are fewer than the 3 candidates",
        ),
        ("out/candidates.json", "/tally/failed", json!(1), "rejected: has 0 trials, and the tally 1 of them"),
        ("out/candidates.json", "/candidates/1/rank", json!(7), "candidates[1].rank: 7 is in the place of 2"),
        (
            "out/candidates.json",
            "/candidates/1/score",
            json!(1.5),
            "candidates[1].score: 1.5 is not what its metrics come to, -",
        ),
        (
            "out/candidates.json",
            "/candidates/2/score",
            json!(null),
            "candidates[2].score: null is not a number",
        ),
        (
            "out/candidates.json",
            "/candidates/2/metrics/mean_ttft_ms",
            json!("5"),
            "candidates[2].metrics.mean_ttft_ms: \"5\" is not a number or null",
        ),
        (
            "out/candidates.json",
            "/candidates/0/scenario",
            json!("absent"),
            "candidates[0].scenario: is missing",
        ),
        (
            "out/candidates.json",
            "/candidates/0/used_gpus",
            json!(3),
            "candidates[0].used_gpus: 3 GPUs, and its config has 16",
        ),
        ("run/report.json", "/summary", json!([1]), "summary: [1] is not an object"),
        ("run/report.json", "/summary/num_requests", json!("absent"), "summary.num_requests: is missing"),
        (
            "run/report.json",
            "/summary/num_requests",
            json!(7),
            "summary.num_requests: 7 is not the sum of those that ended, 40",
        ),
        (
            "run/report.json",
            "/summary/mean_ttft_ms",
            json!([]),
            "summary.mean_ttft_ms: [] is not a number or null",
        ),
        (
            "run/report.json",
            "/scenario/deployment/agg/workers",
            json!("two"),
            "scenario.deployment.agg.workers: ",
        ),
        (
            "run/report.json",
            "/scenario/deployment/agg/wrokers",
            json!(2),
            "scenario.deployment.agg.wrokers: unknown key",
        ),
    ] {
        let whole = place.read(file);
        let pointer_of_new = pointer.ends_with("wrokers");
        let text = if pointer_of_new {
            whole.replacen("\"agg\": {", "\"agg\": {\"wrokers\": 2,", 1)
        } else {
            edited(&whole, pointer, value)
        };
        place.write(file, &text);
        let commands = if file.starts_with("out") { &OF_SEARCH[..] } else { &OF_REPLAY };
        for command in commands {
            let answer = place.run(command);
            assert_eq!(answer.status, 2, "{pointer} {command:?}: {}", answer.stderr);
            let place_and_words = answer.stderr.lines().next().unwrap();
            let (before, _) =
                place_and_words.split_once(words).unwrap_or_else(|| panic!("{words}: {}", answer.stderr));
            let line = before.strip_prefix(&format!("{file}:")).unwrap().trim_end_matches(": ");
            assert!(line.parse::<usize>().is_ok() || words.contains("missing"), "{place_and_words}");
        }
        place.write(file, &whole);
    }
    let whole = place.read("out/candidates.json");
    place.write(
        "out/candidates.json",
        &edited(&whole, "/candidates/1/scenario/deployment/agg/workers", json!(9)),
    );
    place.run(&["deploy", "out"]).ending(0);
    place
        .run(&["deploy", "out", "--rank", "2"])
        .refusing(&["candidates[1].used_gpus: 16 GPUs, and its scenario has 36"]);
}

#[test]
fn rows_of_another_kind_and_rows_that_are_missing_are_refused_with_their_line() {
    let place = results();
    let rows = place.read("run/requests.jsonl");
    let lines: Vec<&str> = rows.split_inclusive('\n').collect();
    for (from, to, words) in [
        (
            "\"ttft_ms\":",
            "\"ttft_ms\":\"fast\",\"x\":",
            "run/requests.jsonl:3: ttft_ms: \"fast\" is not a number or null",
        ),
        ("\"request_id\":", "\"id\":", "run/requests.jsonl:3: request_id: is missing; it has to be a text"),
        ("\"arrival_ms\":", "\"arrival_ms\":NaN,\"x\":", "run/requests.jsonl:3: is no JSON: expected value"),
        ("{", "[{", "run/requests.jsonl:3: is no JSON"),
        (
            "\"completed\"",
            "\"rejected\"",
            "run/requests.jsonl: 39 requests are completed, and report.json counts 40",
        ),
    ] {
        let third = lines[2].replacen(from, to, 1);
        place.write("run/requests.jsonl", &[lines[0], lines[1], &third, &lines[3..].concat()].concat());
        for command in [&["report", "run"][..], &["diff", "run", "run"]] {
            place.run(command).refusing(&[words]);
        }
    }
    place.write("run/requests.jsonl", &lines[1..].concat());
    place.run(&["report", "run"]).refusing(&["39 requests are completed, and report.json counts 40"]);
    place.write("run/requests.jsonl", &rows);
    place.write("run/scaling.jsonl", "{\"tick\": 0, \"at_ms\": 1}\n{\"tick\": \"one\", \"at_ms\": 2}\n");
    for command in [&["report", "run"][..], &["explain", "tick", "run", "0"]] {
        place.run(command).refusing(&["run/scaling.jsonl:2: tick: \"one\" is not a whole number from 0"]);
    }
}

#[test]
fn only_the_last_line_of_a_journal_may_be_torn() {
    let place = results();
    let resume = ["search", "search.yaml", "--output-dir", "out", "--resume"];
    let journal = place.read("out/trials.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    let commands: [&[&str]; 3] = [&["report", "out"], &["diff", "out", "out"], &resume];
    let refused = |text: String, words: &str| {
        place.write("out/trials.jsonl", &text);
        for command in commands {
            let answer = place.run(command).ending(2);
            assert!(answer.stderr.contains("out/trials.jsonl"), "{}", answer.stderr);
            assert!(answer.stderr.contains(words), "`{words}` is not in {}", answer.stderr);
        }
        assert_eq!(place.read("out/trials.jsonl"), text);
    };
    refused([lines[0], &lines[1][..40], "\n", lines[2]].concat(), "is no trial of a search");
    refused([lines[0], lines[2]].concat(), "is trial 3, not trial 2");
    // The last line is whole, and wrong: no kill leaves it so.
    refused(
        [lines[0], lines[1], &lines[2].replace("\"outcome\":\"feasible\"", "\"outcome\":\"good\"")].concat(),
        "is no trial",
    );
    refused([lines[0], lines[1], "{}\n"].concat(), "is no trial");
    refused("garbage\n".into(), "1: is no trial of a search");
    refused("garbage".into(), "1: is no trial of a search");
    for torn in ["{\"trial\": 3", "\0\0\0", "{\"trial\": 3\n"] {
        place.write("out/trials.jsonl", &[lines[0], lines[1], torn].concat());
        for command in [&["report", "out"][..], &["diff", "out", "out"]] {
            place.run(command).ending(0);
        }
        assert!(place.run(&resume).ending(0).stderr.contains("the last line was cut off"));
        assert_eq!(place.read("out/trials.jsonl"), journal);
    }
    let second: Value = serde_json::from_str(lines[1]).unwrap();
    let edit = |key: &str, value: Value| {
        let mut trial = second.clone();
        trial[key] = value;
        place.write("out/trials.jsonl", &[lines[0], &trial.to_string(), "\n", lines[2]].concat());
        place.run(&resume).ending(2).stderr
    };
    let mut metrics = second["metrics"].clone();
    metrics["mean_e2e_latency_ms"] = json!(1.0);
    for (key, value) in [("score", json!(-1.0)), ("metrics", metrics), ("outcome", json!("infeasible"))] {
        let stderr = edit(key, value);
        assert!(stderr.contains("out: trial 2 of the journal is not worth what it says"), "{key}: {stderr}");
    }
}

/// Every value of every file in turn is something else, and nothing panics.
#[test]
fn whatever_a_file_holds_nothing_panics() {
    let place = results();
    for (commands, file) in [
        (&OF_SEARCH[..], "out/candidates.json"),
        (&OF_REPLAY, "run/report.json"),
        (&OF_REPLAY[..1], "run/series.json"),
    ] {
        let text = place.read(file);
        let whole: Value = serde_json::from_str(&text).unwrap();
        let mut pointers = Vec::new();
        collect(&whole, "", 0, &mut pointers);
        for (turn, pointer) in pointers.iter().enumerate() {
            let others =
                [json!("absent"), json!("text"), json!(-1.5), json!([[]]), json!({"a": 1}), json!(null)];
            place.write(file, &edited(&text, pointer, others[turn % others.len()].clone()));
            let answer = place.run(commands[turn % commands.len()]);
            assert!([0, 2].contains(&answer.status), "{file} {pointer}: {answer:?}");
        }
        place.write(file, &text);
    }
}

/// Places of values down to some depth, of lists the first items.
fn collect(value: &Value, path: &str, depth: usize, found: &mut Vec<String>) {
    if depth > 0 {
        found.push(path.to_owned());
    }
    match value {
        _ if depth > 5 => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| collect(value, &format!("{path}/{key}"), depth + 1, found));
        }
        Value::Array(items) => {
            let items = items.iter().take(2).enumerate();
            items.for_each(|(place, item)| collect(item, &format!("{path}/{place}"), depth + 1, found));
        }
        _ => {}
    }
}
