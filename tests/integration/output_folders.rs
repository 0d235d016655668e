//! Folders of results: one run at a time, one kind of results, and an earlier answer stays until there is another.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::cli_command::Workplace;
use super::search::{ROUTERS, three_points};

const SCENARIO: &str = "\
deployment:
  mode: agg
  router: {policy: round_robin}
  agg: {workers: 2, engine: {num_gpu_blocks: 4096}}
workload: {isl: 500, osl: 20, concurrency: 4, num_request_ratio: 10}
";

const SEARCH: [&str; 4] = ["search", "search.yaml", "--output-dir", "out"];
/// Replays that take so long that the search is certain to be interrupted.
const LONG: [&str; 4] = ["--set", "workload.num_request_ratio=2000", "--threads", "1"];

/// Every file of a folder with what it holds.
fn bytes(place: &Workplace, folder: &str) -> Vec<(String, Vec<u8>)> {
    let files = place.files().into_iter().filter(|name| name.starts_with(folder));
    files.map(|name| (name.clone(), std::fs::read(place.path(&name)).unwrap())).collect()
}

/// Starts the program and waits until a file holds something.
fn start(place: &Workplace, arguments: &[&str], until: &str) -> Child {
    let mut command = place.command(arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while std::fs::metadata(place.path(until)).map_or(0, |file| file.len()) == 0 {
        assert!(started.elapsed() < Duration::from_mins(1), "no {until}");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let place = Workplace::with("search.yaml", ROUTERS);
    place.write("scenario.yaml", SCENARIO);
    let first = start(&place, &[&SEARCH[..], &LONG].concat(), "out/config.yaml");
    let files = place.files();
    let holder = format!("--output-dir out: process {} (spica search search.yaml", first.id());
    for second in [
        &SEARCH[..],
        &["search", "search.yaml", "--output-dir", "./out/../out", "--resume"],
        &[
            "search",
            "shard",
            "search.yaml",
            "--set",
            "sweep.sampler=halton",
            "--index=0",
            "--of=1",
            "--output-dir=out",
        ],
    ] {
        let answer = place.run(second).ending(2);
        assert!(answer.stderr.contains(holder.split(": ").nth(1).unwrap()), "{}", answer.stderr);
        assert!(answer.stderr.contains("is writing to it"), "{}", answer.stderr);
    }
    place.run(&SEARCH).refusing(&[&holder]);
    assert_eq!(place.files(), files);
    kill(first);
    // The lock of a killed run is none.
    let _ = std::fs::remove_file(place.path("out/trials.jsonl"));
    place.run(&SEARCH).ending(0);
    assert!(!place.path("out/.spica.lock").exists());
    let replay =
        ["replay", "scenario.yaml", "--output-dir", "run", "--set", "workload.num_request_ratio=200000"];
    let first = start(&place, &replay, "run/.spica.lock");
    place.run(&replay).refusing(&["--output-dir run: process", "is writing to it"]);
    kill(first);
}

#[test]
fn the_next_answer_waits_until_it_is_complete() {
    let place = Workplace::with("search.yaml", &three_points());
    place.run(&SEARCH).ending(0);
    let before = bytes(&place, "out");
    let routers = "search_space.router_mode=[round_robin, power_of_two, least_loaded, random]";
    let other = ["--set", "goal={target: throughput}", "--set", "workload.isl=640", "--set", routers];
    let long = [&SEARCH[..], &other, &["--set", "workload.num_request_ratio=400", "--threads", "1"]].concat();
    place.run(&[&long[..], &["--output-dir=whole"]].concat()).ending(2);
    let whole: Vec<&str> = long.iter().map(|word| if *word == "out" { "whole" } else { word }).collect();
    place.run(&whole).ending(0);

    kill(start(&place, &long, "out/trials.next.jsonl"));
    let _ = std::fs::remove_file(place.path("out/.spica.lock"));
    let next = place.read("out/trials.next.jsonl");
    for command in [
        &["report", "out"][..],
        &["diff", "out", "out"],
        &["deploy", "out"],
        &["explain", "candidate", "out"],
    ] {
        let said = place.run(command).ending(0).stderr;
        assert!(said.contains("out: a later search has not finished (trials.next.jsonl)"), "{said}");
    }
    let earlier = || {
        let files = bytes(&place, "out");
        files.into_iter().filter(|(name, _)| !name.contains("next")).collect::<Vec<_>>()
    };
    assert!(earlier() == before);
    place.run(&SEARCH).refusing(&["out/trials.next.jsonl: trials of a search that did not finish"]);
    assert!((earlier(), place.read("out/trials.next.jsonl")) == (before, next));

    place.run(&[&long[..], &["--resume"]].concat()).ending(0);
    let names = |files: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
        files.into_iter().map(|(name, bytes)| (name.split_once('/').unwrap().1.to_owned(), bytes)).collect()
    };
    assert!(names(bytes(&place, "out")) == names(bytes(&place, "whole")));
}

#[cfg(unix)]
#[test]
fn an_interrupted_search_does_not_replace_the_answer_of_another() {
    let place = Workplace::with("search.yaml", ROUTERS);
    place.run(&SEARCH).ending(0);
    let before = bytes(&place, "out");
    let long = [&SEARCH[..], &["--set", "workload.num_request_ratio=100", "--threads", "1"]].concat();
    let child = start(&place, &long, "out/trials.next.jsonl");
    let signalled =
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    let after: Vec<_> =
        bytes(&place, "out").into_iter().filter(|(name, _)| !name.contains(".next.")).collect();
    assert!(after == before);
}

#[cfg(unix)]
#[test]
fn a_run_that_fails_leaves_the_earlier_answer() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let replay = ["replay", "scenario.yaml", "--output-dir", "out", "--timeline", "out/t.json"];
    place.run(&replay[..4]).ending(0);
    place.run(&replay).ending(0);
    let before = bytes(&place, "out");
    let more = format!("{} --set workload.num_request_ratio=20", replay.join(" "));
    let blocks = before.iter().map(|(_, bytes)| bytes.len() as u64 / 512).collect::<Vec<_>>();
    for most in [0, blocks[0].min(blocks[1]), blocks[1] + 2, *blocks.iter().max().unwrap()] {
        super::search_failures::on_a_small_disk(&place, most, &more).ending(3);
        assert!(bytes(&place, "out") == before, "{most} blocks");
    }
    let stuck =
        [&replay[..], &["--set", "deployment.router={policy: kv_router, queue_threshold: -1}"]].concat();
    let answer = place.run(&stuck);
    assert_ne!(answer.status, 0, "{answer:?}");
    assert!(bytes(&place, "out") == before);
}

#[test]
fn a_folder_holds_one_kind_of_results() {
    let place = Workplace::with("search.yaml", &three_points());
    place.write("scenario.yaml", SCENARIO);
    let halton = ["--set", "sweep.sampler=halton"];
    let into = |folder: &str, what: &str| {
        let output = format!("--output-dir={folder}");
        match what {
            "replay" => place.run(&["replay", "scenario.yaml", &output]),
            "search" => place.run(&[&["search", "search.yaml", &output], &halton[..]].concat()),
            "deployment" => place.run(&["deploy", "replay", "--model", "m", &output]),
            _ => {
                let part = ["search", "shard", "search.yaml", "--index=0", "--of=1", &output];
                place.run(&[&part[..], &halton].concat())
            }
        }
    };
    let kinds = [
        ("replay", "report.json"),
        ("search", "candidates.json"),
        ("part", "shard.json"),
        ("deployment", "commands.sh"),
    ];
    for (kind, _) in kinds {
        into(kind, kind).ending(0);
    }
    for (kind, file) in kinds {
        let before = bytes(&place, kind);
        for (other, _) in kinds.into_iter().filter(|(other, _)| *other != kind) {
            let words = format!("--output-dir {kind}: holds a {kind}");
            let answer = into(kind, other);
            // What is there is nothing that this run could go on with.
            assert!(!answer.stderr.contains("--resume"), "{}", answer.stderr);
            answer.refusing(&[&words, file, "give the", "a folder of its own"]);
            assert!(bytes(&place, kind) == before, "{other} into {kind}");
        }
        into(kind, kind).ending(0);
        assert!(bytes(&place, kind) == before, "{kind} again");
    }
    // One that was made before this was refused.
    std::fs::copy(place.path("replay/report.json"), place.path("search/report.json")).unwrap();
    for command in [&["report", "search"][..], &["diff", "search", "search"], &["deploy", "search"]] {
        place.run(command).refusing(&["search: holds a replay (report.json) and a search (candidates.json)"]);
    }
}

#[test]
fn files_that_no_run_has_written_stay_as_they_are() {
    let place = Workplace::with("search.yaml", &three_points());
    place.write("scenario.yaml", SCENARIO);
    place.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    let search = ["search", "search.yaml", "--output-dir", "mine"];
    let part = ["--set", "sweep.sampler=halton", "--index=0", "--of=1", "--output-dir", "mine"];
    let part = [&["search", "shard", "search.yaml"][..], &part].concat();
    let replay = ["replay", "scenario.yaml", "--output-dir", "mine"];
    let deploy = ["deploy", "run", "--model", "m", "--output-dir", "mine"];
    for (command, kind, file) in [
        (&search[..], "search", "best.yaml"),
        (&search, "search", "pareto.csv"),
        (&search, "search", "candidates.json"),
        (&search, "search", "config.yaml"),
        (&part, "part of a search", "config.yaml"),
        (&part, "part of a search", "shard.json"),
        (&replay, "replay", "requests.jsonl"),
        (&replay, "replay", "report.json"),
        (&deploy, "deployment", "commands.sh"),
        (&deploy, "deployment", "kubernetes.yaml"),
    ] {
        let path = format!("mine/{file}");
        place.write(&path, "{\"of\": \"mine\"}\n");
        let before = bytes(&place, "mine");
        let words = format!("--output-dir mine: {file} would be written over, and no {kind} has written it");
        place.run(command).refusing(&[&words]);
        assert!(bytes(&place, "mine") == before, "{file}");
        std::fs::remove_file(place.path(&path)).unwrap();
        // What a run has written is its own to replace.
        place.run(command).ending(0);
        place.run(command).ending(0);
        std::fs::remove_dir_all(place.path("mine")).unwrap();
    }
}

#[test]
fn nothing_is_written_over_what_is_read() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.write("search.yaml", &three_points());
    let row = "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 3, \"hash_ids\": [1]}\n";
    place.write("out/requests.jsonl", row);
    place.write("trace.jsonl", row);
    place.write("grid.csv", "batch,new_tokens,prefix_tokens,context_tokens,latency_ms\n");
    let before = bytes(&place, "");
    let trace = "workload={trace_path: trace.jsonl}";
    place
        .run(&["replay", "scenario.yaml", "--timeline", "./scenario.yaml"])
        .refusing(&["--timeline: ./scenario.yaml would be written over", "it is the configuration"]);
    place
        .run(&["replay", "scenario.yaml", "--set", trace, "--timeline", "out/../trace.jsonl"])
        .refusing(&["--timeline: out/../trace.jsonl would be written over", "it is workload.trace_path"]);
    place
        .run(&[
            "replay",
            "scenario.yaml",
            "--set",
            "workload={trace_path: out/requests.jsonl}",
            "--output-dir=out",
        ])
        .refusing(&["--output-dir: out/requests.jsonl would be written over", "workload.trace_path"]);
    place
        .run(&["replay", "scenario.yaml", "--output-dir", "out", "--timeline", "out/report.json"])
        .refusing(&["--timeline: out/report.json is written by --output-dir too"]);
    place
        .run(&[
            "search",
            "search.yaml",
            "--set",
            "workload={trace_path: out/requests.jsonl}",
            "--output-dir",
            ".",
        ])
        .ending(0);
    std::fs::rename(place.path("candidates.json"), place.path("kept.json")).unwrap();
    std::fs::copy(place.path("search.yaml"), place.path("config.yaml")).unwrap();
    let shard =
        ["search", "shard", "config.yaml", "--set=sweep.sampler=halton", "--index=0", "--of=1", "--resume"];
    place.run(&[&shard[..], &["--output-dir", "."]].concat()).refusing(&[
        "--output-dir: ./config.yaml would be written over",
        "it is the configuration; write to another place",
    ]);
    place
        .run(&["search", "config.yaml", "--output-dir", "."])
        .refusing(&["--output-dir: ./config.yaml would be written over", "it is the configuration"]);
    for (name, bytes) in before {
        assert_eq!(std::fs::read(place.path(&name)).unwrap(), bytes, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_to_what_is_read_is_no_place_to_write_to() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    std::os::unix::fs::symlink("scenario.yaml", place.path("link")).unwrap();
    place.run(&["replay", "scenario.yaml", "--timeline", "link"]).refusing(&["--timeline: link would be"]);
    place
        .run(&["replay", "link", "--timeline", "scenario.yaml"])
        .refusing(&["--timeline: scenario.yaml would"]);
    place.run(&["replay", "scenario.yaml", "--output-dir", "out"]).ending(0);
    std::os::unix::fs::symlink("out", place.path("same")).unwrap();
    for file in ["out/report.json", "same/requests.jsonl", "out/series.json"] {
        let before = place.read(file);
        place.run(&["report", "out", "-o", file]).refusing(&["--output: ", "would be written over"]);
        assert_eq!(place.read(file), before);
    }
    place.run(&["report", "same", "-o", "out/page.html"]).ending(0);
}

#[test]
fn reports_say_what_is_missing_before_any_work() {
    let place = Workplace::with("search.yaml", &three_points());
    place.run(&["report", "nowhere"]).refusing(&["nowhere: there is no such folder"]);
    place
        .run(&["report", "nowhere", "-o", "no/page.html"])
        .refusing(&["--output no/page.html: there is no folder no"]);
    place.run(&SEARCH).ending(0);
    place
        .run(&["report", "out", "-o", "no/page.html"])
        .refusing(&["--output no/page.html: there is no folder no"]);
    place.run(&["report", "out", "-o", "out"]).refusing(&["--output out: is a folder, not a file"]);
    std::fs::remove_file(place.path("out/candidates.json")).unwrap();
    let commands: [&[&str]; 4] =
        [&["report", "out"], &["deploy", "out"], &["diff", "out", "out"], &["explain", "candidate", "out"]];
    for command in commands {
        place.run(command).refusing(&["out: holds the trials of a search that did not finish", "--resume"]);
    }
    std::fs::create_dir(place.path("empty")).unwrap();
    for command in commands {
        let command: Vec<&str> =
            command.iter().map(|word| if *word == "out" { "empty" } else { word }).collect();
        place.run(&command).refusing(&["empty: holds neither report.json nor candidates.json"]);
    }
    for (folder, words) in [
        ("empty", "empty: holds no part of a search (shard.json)"),
        ("out", "out: holds trials but no shard.json: the part has not come to its end"),
    ] {
        place.run(&["search", "merge", folder]).refusing(&[words]);
    }
}

#[test]
fn what_killed_runs_left_half_written_is_cleared_away() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    for name in
        [".requests.jsonl.4711-0.tmp", ".report.json.99-3.tmp", ".mine.4711-0.tmp", "requests.jsonl.tmp"]
    {
        place.write(&format!("out/{name}"), "{");
    }
    place.run(&["replay", "scenario.yaml", "--output-dir", "out"]).ending(0);
    let files: Vec<String> = place.files().into_iter().filter(|name| name.contains("tmp")).collect();
    assert_eq!(files, ["out/.mine.4711-0.tmp", "out/requests.jsonl.tmp"]);
}

#[test]
fn an_answer_that_was_cut_off_while_it_was_put_in_place_is_none() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.write("search.yaml", &three_points());
    let replay = ["replay", "scenario.yaml", "--output-dir", "run"];
    let deploy = ["deploy", "run", "--model", "m", "--output-dir", "start"];
    for (command, folder, answer) in [
        (&replay[..], "run", "report.json"),
        (&SEARCH, "out", "candidates.json"),
        (&deploy, "start", "commands.sh"),
    ] {
        place.run(command).ending(0);
        let before = bytes(&place, folder);
        let (there, waiting) = (format!("{folder}/{answer}"), format!("{folder}/.{answer}.4711-0.tmp"));
        std::fs::rename(place.path(&there), place.path(&waiting)).unwrap();
        match folder {
            "run" => {
                // What the planner of an earlier replay may have left.
                place.write("run/scaling.jsonl", "{\"tick\": 0, \"at_ms\": 5}\n");
                for command in [&["report", "run"][..], &["explain", "tick", "run", "0"]] {
                    place.run(command).refusing(&["run: holds a replay that was cut off", "run it again"]);
                }
            }
            "out" => {
                for command in [&["report", "out"][..], &["deploy", "out"], &["diff", "out", "out"]] {
                    place
                        .run(command)
                        .refusing(&["out: holds the trials of a search", "run it again with --resume"]);
                }
                place.run(&SEARCH).refusing(&["--resume goes on"]);
            }
            _ => {}
        }
        let again = if folder == "out" { [command, &["--resume"]].concat() } else { command.to_vec() };
        place.run(&again).ending(0);
        assert!(bytes(&place, folder) == before, "{folder}");
    }
}

#[test]
fn a_later_search_that_was_cut_off_in_its_swap_is_told_of() {
    let place = Workplace::with("search.yaml", &three_points());
    let later = [&SEARCH[..], &["--set", "workload.isl=640"]].concat();
    let whole: Vec<&str> = later.iter().map(|word| if *word == "out" { "whole" } else { word }).collect();
    place.run(&whole).ending(0);
    place.run(&SEARCH).ending(0);
    // As a kill leaves it between two renames: the earlier answer is gone, the later one waits under another name.
    std::fs::remove_file(place.path("out/candidates.json")).unwrap();
    for (from, to) in [
        ("candidates.json", ".candidates.json.4711-0.tmp"),
        ("config.yaml", "config.yaml"),
        ("trials.jsonl", "trials.next.jsonl"),
    ] {
        std::fs::copy(place.path(&format!("whole/{from}")), place.path(&format!("out/{to}"))).unwrap();
    }
    let before = bytes(&place, "out");
    let how = "was cut off before its answer was in place";
    for command in [&["report", "out"][..], &["deploy", "out"], &["explain", "candidate", "out"]] {
        let answer = place.run(command);
        let words = format!("out: holds the trials of a search that {how} (trials.next.jsonl) and no answer");
        assert!(!answer.stderr.contains("this is the answer before it"), "{}", answer.stderr);
        answer.refusing(&[&words, "--resume"]);
    }
    place.run(&SEARCH).refusing(&[
        &format!("out/trials.next.jsonl: trials of a search that {how}; --resume goes on with them"),
        "without trials.next.jsonl and trials.jsonl a search begins anew",
    ]);
    assert!(bytes(&place, "out") == before);
    // The earlier configuration is not that of these trials, wherever theirs is by now.
    let earlier = place.run(&[&SEARCH[..], &["--resume"]].concat()).ending(2);
    assert!(earlier.stderr.contains("in the configuration, workload.isl: 640 -> 600"), "{}", earlier.stderr);
    place.run(&[&later[..], &["--resume"]].concat()).ending(0);
    for name in ["candidates.json", "trials.jsonl", "config.yaml", "best.yaml"] {
        assert!(place.read(&format!("out/{name}")) == place.read(&format!("whole/{name}")), "{name}");
    }
    assert!(!place.path("out/trials.next.jsonl").exists());
}

#[test]
fn a_part_does_not_take_the_place_of_another() {
    let place = Workplace::with("search.yaml", &three_points());
    let part = |index: &str, of: &str, isl: &str| {
        let (index, of) = (format!("--index={index}"), format!("--of={of}"));
        let isl = format!("workload.isl={isl}");
        let halton = ["--set", "sweep.sampler=halton", "--set", &isl];
        place.run(
            &[&["search", "shard", "search.yaml", "--output-dir=out", &index, &of][..], &halton].concat(),
        )
    };
    part("0", "2", "600").ending(0);
    let before = bytes(&place, "out");
    let words = "--output-dir out: holds part 0 of 2 of this search (shard.json)";
    part("1", "2", "600").refusing(&[words, "give part 1 of 2 a folder of its own"]);
    part("0", "3", "600").refusing(&[words, "give part 0 of 3 a folder of its own"]);
    assert!(bytes(&place, "out") == before);
    // Nor with the trials that a later run of that part has left.
    place.write("out/trials.next.jsonl", "{}\n");
    let refused = part("1", "2", "600");
    assert!(!refused.stderr.contains("--resume"), "{}", refused.stderr);
    refused.refusing(&[words]);
    part("0", "2", "600").refusing(&["trials of a part of a search that did not finish; --resume goes on"]);
    std::fs::remove_file(place.path("out/trials.next.jsonl")).unwrap();
    part("0", "2", "600").ending(0);
    assert!(bytes(&place, "out") == before);
    // Parts of an earlier search give way, as its answer would.
    part("1", "2", "640").ending(0);
}
