//! Searches that find nothing that counts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;

use super::cli_command::Workplace;
use super::search::three_points;

#[test]
fn nothing_feasible_is_an_answer_of_its_own() {
    let place = Workplace::with("search.yaml", &three_points());
    place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(0);
    assert!(place.path("out/best.yaml").exists());
    let impossible = ["--set", "goal.sla.ttft_ms=0.001", "--set", "goal.min_attainment=0.5"];
    let arguments = [&["search", "search.yaml", "--output-dir", "out"][..], &impossible].concat();
    let answer = place.run(&arguments).ending(1);
    assert!(answer.stderr.contains("no feasible candidate"), "{}", answer.stderr);
    assert!(
        answer.stdout.contains("rejected 3x: attainment cannot reach goal.min_attainment 0.5"),
        "{}",
        answer.stdout
    );
    assert!(!place.path("out/best.yaml").exists(), "the best of another search must not stay");
    let result = place.read_json("out/candidates.json");
    assert_eq!(result["candidates"], Value::Array(Vec::new()));
    assert_eq!((&result["tally"]["infeasible"], &result["certified_optimum"]), (&3.into(), &false.into()));
    let written = place.read("out/candidates.json");
    place.run(&[&arguments[..], &["--resume"]].concat()).ending(1);
    assert_eq!(place.read("out/candidates.json"), written, "remembered trials say the same");
    for rejected in result["rejected"].as_array().unwrap() {
        assert_eq!(rejected["outcome"], "infeasible");
        assert!(rejected["config"]["agg_max_num_seqs"].is_number());
    }
}

/// What the least value is that at least `share` of the rows of a replay have at most.
fn within(rows: &[Value], figure: &str, share: f64) -> f64 {
    let completed = |row: &&Value| row["status"] == "completed";
    let mut values: Vec<f64> =
        rows.iter().filter(completed).map(|row| row[figure].as_f64().unwrap_or(0.0)).collect();
    values.sort_by(f64::total_cmp);
    let all = rows.len() as f64;
    let enough = |value: &&f64| values.iter().filter(|other| other <= value).count() as f64 / all >= share;
    *values.iter().find(enough).unwrap()
}

#[test]
fn what_came_nearest_is_told_of_a_whole_replay() {
    let place = Workplace::with("search.yaml", &three_points());
    let sets = ["--set", "goal.sla.ttft_ms=0.001", "--set", "goal.min_attainment=0.7"];
    let arguments = [&["search", "search.yaml", "--output-dir", "out"][..], &sets].concat();
    let answer = place.run(&arguments).ending(1);
    let nearest = &place.read_json("out/candidates.json")["nearest"];
    place.write("nearest.yaml", &nearest["scenario"].to_string());
    place.run(&["replay", "nearest.yaml", "--output-dir", "again"]).ending(0);
    assert_eq!(nearest["metrics"], place.read_json("again/report.json")["summary"]);
    assert_eq!(nearest["attainment"], nearest["metrics"]["attainment"]);
    assert_eq!((&nearest["min_attainment"], &nearest["used_gpus"]), (&0.7.into(), &16.into()));
    assert!(nearest["config"]["agg_max_num_seqs"].is_number());
    let rows: Vec<Value> =
        place.read("again/requests.jsonl").lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let bounds = nearest["bounds"].as_array().unwrap();
    for (bound, (name, figure, limit)) in
        bounds.iter().zip([("ttft_ms", "ttft_ms", 0.001), ("itl_ms", "tpot_ms", 12.0)])
    {
        let reached = within(&rows, figure, 0.7);
        assert_eq!((&bound["bound"], &bound["limit_ms"]), (&name.into(), &limit.into()));
        assert_eq!(bound["reached_ms"], reached, "{name}");
        assert_eq!(bound["missed"], reached > limit, "{name}");
    }
    assert_eq!((bounds.len(), &bounds[0]["missed"]), (2, &true.into()));
    assert!(answer.stdout.contains("nearest, replayed to its end: layout 4 x "), "{}", answer.stdout);
    let line = answer.stdout.lines().find(|line| line.contains("goal.sla.ttft_ms")).unwrap();
    assert!(line.contains("70 % within ") && line.ends_with("missed"), "{line}");

    // Neither threads nor parts nor a bound that is as hopeless change what is told.
    let written = place.read("out/candidates.json");
    let alone = [&["search", "search.yaml", "--output-dir", "alone", "--threads", "1"][..], &sets].concat();
    assert_eq!(place.run(&alone).ending(1).stdout, answer.stdout);
    assert_eq!(place.read("alone/candidates.json"), written);
    place.run(&[&alone[..], &["--resume"]].concat()).ending(1);
    assert_eq!(place.read("alone/candidates.json"), written);
    let every = [&["--set", "sweep.exhaustive=true"][..], &sets].concat();
    place.run(&[&["search", "search.yaml", "--output-dir", "whole"][..], &every].concat()).ending(1);
    for index in ["0", "1"] {
        let folder = format!("part{index}");
        let part = ["search", "shard", "search.yaml", "--index", index, "--of", "2", "--output-dir", &folder];
        place.run(&[&part[..], &every].concat()).ending(0);
    }
    place.run(&["search", "merge", "part0", "part1", "--output-dir", "merged"]).ending(1);
    assert_eq!(place.read("merged/candidates.json"), place.read("whole/candidates.json"));
    let lower = [&arguments[..3], &["other"], &arguments[4..], &["--set", "goal.sla.ttft_ms=0.002"]].concat();
    place.run(&lower).ending(1);
    let other = &place.read_json("other/candidates.json")["nearest"]["bounds"][0];
    assert_eq!(other["reached_ms"], bounds[0]["reached_ms"]);

    // And it is the bound that would have done.
    let reached = format!("goal.sla.ttft_ms={}", bounds[0]["reached_ms"]);
    let slow = ["--set", "goal.sla.itl_ms=1000"];
    place
        .run(&[&["search", "search.yaml", "--set", &reached, "--set", sets[3]][..], &slow].concat())
        .ending(0);
}

#[test]
fn scores_that_are_all_0_are_remarked_on() {
    let place = Workplace::with("search.yaml", &three_points());
    let sets = ["--set", "goal.target=goodput", "--set", "goal.sla.ttft_ms=0.001"];
    let arguments = [&["search", "search.yaml"][..], &sets].concat();
    let said = "no request of any candidate met the bounds: every score is 0";
    assert!(place.run(&arguments).ending(0).stderr.contains(said));
    assert!(!place.run(&[&arguments[..], &["--quiet"]].concat()).ending(0).stderr.contains(said));
    assert!(!place.run(&["search", "search.yaml"]).ending(0).stderr.contains(said));
}

/// A model of 405 billion parameters in two roles on one GPU: a valid question whose answer is that nothing fits.
#[test]
fn what_cannot_fit_is_an_answer_with_its_figures() {
    let place = Workplace::with("search.yaml", include_str!("../data/bad-inputs/20-nothing-can-fit.yaml"));
    let answer = place.run(&["search", "search.yaml", "--output-dir", "out"]).ending(1);
    let result = place.read_json("out/candidates.json");
    assert_eq!(result["candidates"], Value::Array(Vec::new()));
    let skipped = result["skipped"].as_array().unwrap();
    let branch = skipped.iter().find(|skip| skip["shape"].is_null()).unwrap();
    assert_eq!((&branch["deployment_mode"], &branch["backend"]), (&"disagg".into(), &"vllm".into()));
    let reason = branch["reason"].as_str().unwrap();
    for part in [
        "at least two workers",
        "gpu_budget is 1",
        "762.2 GiB per GPU are needed without it (756.0 GiB of weights)",
        "126.9 GiB are available of 141.0 GiB: the weights alone exceed the memory",
        "no timing profile of meta-llama/Llama-3.1-405B on h200_sxm with vllm",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    assert!(answer.stdout.contains("left out: no disaggregated deployment with vllm: "), "{}", answer.stdout);
    assert!(!answer.stdout.contains("TTFT") && answer.stderr.contains("no feasible candidate"));
    assert!(!place.path("out/best.yaml").exists());
}
