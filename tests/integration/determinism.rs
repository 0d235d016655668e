//! The same input gives the same bytes: again, with any number of threads, and whatever the compiler optimises.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::Path;

use tempfile::TempDir;

use super::bundled::{Bundled, bundled_scenarios, contents, spica};

/// What a run leaves behind: its standard output, then its files, by name.
type Traces = Vec<(String, String)>;

fn traces(scenario: &Bundled, program: &Path, arguments: &[&str]) -> Traces {
    let folder = TempDir::new().unwrap();
    // The folder's name is part of no file, but its depth is: the same for all.
    let output = scenario.run(program, &folder.path().join("out"), arguments);
    let mut traces = vec![("standard output".to_owned(), String::from_utf8(output.stdout).unwrap())];
    traces.extend(contents(&folder.path().join("out")));
    assert!(traces.len() > 2, "{}: {traces:?}", scenario.name);
    traces
}

/// Where two runs part: the first line that differs, of the first file that does.
fn first_difference(left: &Traces, right: &Traces) -> Option<String> {
    let names = |traces: &Traces| traces.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(left) != names(right) {
        return Some(format!("the files {:?} against {:?}", names(left), names(right)));
    }
    let differs = left.iter().zip(right).find(|(one, other)| one != other)?;
    let ((name, one), (_, other)) = differs;
    let (mut ones, mut others) = (one.split_inclusive('\n'), other.split_inclusive('\n'));
    for number in 1.. {
        let (one, other) = (ones.next(), others.next());
        if one != other {
            let from = common_start(one.unwrap_or_default(), other.unwrap_or_default()).saturating_sub(60);
            let part = |line: Option<&str>| {
                line.map_or("the end".to_owned(), |line| line.chars().skip(from).take(160).collect())
            };
            return Some(format!(
                "{name}, line {number} from character {from}:\n  {}\n  {}",
                part(one),
                part(other)
            ));
        }
    }
    None
}

fn common_start(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

#[track_caller]
fn assert_same(what: &str, left: &Traces, right: &Traces) {
    if let Some(difference) = first_difference(left, right) {
        panic!("{what}: {difference}");
    }
}

#[test]
fn a_replay_gives_the_same_bytes_again() {
    for scenario in bundled_scenarios().iter().filter(|scenario| !scenario.is_search()) {
        let runs = [(); 2].map(|()| traces(scenario, spica(), &[]));
        assert_same(&format!("{} run twice", scenario.name), &runs[0], &runs[1]);
    }
}

#[test]
fn a_search_gives_the_same_bytes_with_any_number_of_threads() {
    for scenario in bundled_scenarios().iter().filter(|scenario| scenario.is_search()) {
        let [alone, again, two, eight] =
            ["1", "1", "2", "8"].map(|threads| traces(scenario, spica(), &["--threads", threads]));
        assert_same(&format!("{} run twice", scenario.name), &alone, &again);
        assert_same(&format!("{} with 1 and 2 threads", scenario.name), &alone, &two);
        assert_same(&format!("{} with 1 and 8 threads", scenario.name), &alone, &eight);
    }
}

/// Compares with another build of the program, which the variable `SPICA_RELEASE_BINARY` names; CI builds one.
#[test]
fn the_release_build_gives_the_same_bytes() {
    let Some(release) = std::env::var_os("SPICA_RELEASE_BINARY") else {
        eprintln!("skipped: SPICA_RELEASE_BINARY names no other build");
        return;
    };
    assert!(Path::new(&release).is_file(), "{} is no file", release.display());
    for scenario in bundled_scenarios() {
        let runs = [spica(), Path::new(&release)].map(|program| traces(&scenario, program, &[]));
        assert_same(&format!("{} as built here and for release", scenario.name), &runs[0], &runs[1]);
    }
}

#[test]
fn a_difference_is_found_and_placed() {
    let traces = |text: &str| vec![("a".to_owned(), "same\n".to_owned()), ("b".to_owned(), text.to_owned())];
    let difference = |one: &str, other: &str| first_difference(&traces(one), &traces(other));
    assert_eq!(difference("x\ny\n", "x\ny\n"), None);
    let placed = difference("x\ny1\n", "x\ny2\n").unwrap();
    assert_eq!(placed, "b, line 2 from character 0:\n  y1\n\n  y2\n");
    assert!(difference("x\n", "x\ny\n").unwrap().contains("line 2 from character 0:\n  the end\n  y"));
    assert!(difference("x\n", "x").is_some(), "a missing end of line is a difference");
    let long = "z".repeat(200);
    let placed = difference(&format!("{long}1"), &format!("{long}2")).unwrap();
    assert!(placed.contains("from character 140:") && placed.ends_with('2'), "{placed}");
    let fewer = vec![("a".to_owned(), "same\n".to_owned())];
    assert!(first_difference(&fewer, &traces("x")).unwrap().contains("files"));
}
