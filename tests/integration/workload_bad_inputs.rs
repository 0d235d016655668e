//! The broken and awkward traces of `tests/data/bad-inputs`: each is accepted as it should be or refused with what it should say.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use spica::config::scenario::{TraceFormat, TraceTimeUnit, ZeroOutput};
use spica::simulation::SimTime;
use spica::workload::formats::{self, Source};
use spica::workload::mooncake::{self, Options};
use spica::workload::{Loaded, WorkloadErrors};

fn read(name: &str, options: &Options) -> Result<Loaded, WorkloadErrors> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad-inputs").join(name);
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    mooncake::read(BufReader::new(file), &Options { origin: name.into(), ..options.clone() })
}

fn accepted(name: &str, options: &Options) -> Loaded {
    read(name, options).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The refusal of a file, after checking that it names the file and holds all of `parts`.
fn refused(name: &str, options: &Options, parts: &[&str]) -> String {
    let message = read(name, options).expect_err("should be refused").to_string();
    for part in [name].iter().chain(parts) {
        assert!(message.contains(part), "{name}: no {part:?} in\n{message}");
    }
    message
}

/// Requests, input tokens and output tokens.
fn totals(loaded: &Loaded) -> (usize, u64, u64) {
    let requests = &loaded.workload.requests;
    let input = requests.iter().map(|request| u64::from(request.input_length)).sum();
    let output = requests.iter().map(|request| u64::from(request.output_length)).sum();
    (requests.len(), input, output)
}

fn kinds(loaded: &Loaded) -> Vec<(&str, u64)> {
    loaded.warnings.iter().map(|warning| (warning.kind.as_str(), warning.count)).collect()
}

/// Blocks that an earlier prompt holds at the same place after the same blocks.
fn reusable_blocks(loaded: &Loaded) -> usize {
    let workload = &loaded.workload;
    let prompts: Vec<&[u32]> = workload
        .requests
        .iter()
        .map(|request| {
            let first = request.prompt.first_chunk as usize;
            &workload.chunk_ids[first..first + request.prompt.chunks as usize]
        })
        .collect();
    let shared = |a: &[u32], b: &[u32]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (0..prompts.len())
        .map(|index| {
            prompts[..index].iter().map(|earlier| shared(earlier, prompts[index])).max().unwrap_or(0)
        })
        .sum()
}

#[test]
fn a_missing_output_length_is_refused() {
    let message =
        refused("01-missing-output-length.jsonl", &Options::default(), &["line 3", "output_length"]);
    assert_eq!(message.lines().count(), 2, "one problem and its line: {message}");
}

#[test]
fn seconds_are_taken_as_milliseconds_with_a_warning() {
    let name = "02-seconds-not-milliseconds.jsonl";
    let loaded = accepted(name, &Options::default());
    assert_eq!(totals(&loaded), (12, 14_340, 546));
    let arrivals: Vec<f64> = loaded.workload.requests.iter().map(|request| request.arrival.as_ms()).collect();
    assert_eq!(arrivals[1..3], [0.21, 0.34]);
    assert_eq!(arrivals[11], 6.4);
    assert_eq!(kinds(&loaded), [("tiny span", 12)]);
    assert_eq!(loaded.workload.input.suspicious.get("tiny span"), Some(&12), "the report has the same count");
    let message = &loaded.warnings[0].message;
    assert!(
        message.contains("1875 requests per second") && message.contains("trace_time_unit: s"),
        "{message}"
    );

    let loaded = accepted(name, &Options { time_unit: TraceTimeUnit::S, ..Options::default() });
    assert_eq!(loaded.workload.requests[11].arrival, SimTime::from_ms(6400.0).unwrap());
    assert_eq!(kinds(&loaded), []);
}

#[test]
fn rows_out_of_order_are_sorted_and_counted() {
    let name = "03-unsorted-arrivals.jsonl";
    let loaded = accepted(name, &Options::default());
    let workload = &loaded.workload;
    let rows: Vec<_> = workload
        .requests
        .iter()
        .map(|request| {
            let first_id =
                workload.chunk_names[workload.chunk_ids[request.prompt.first_chunk as usize] as usize];
            (request.arrival.as_ms(), request.input_length, request.output_length, first_id)
        })
        .collect();
    let expected = [
        (0.0, 1000, 400, 3),
        (50.0, 1001, 700, 11),
        (300.0, 1003, 10, 1),
        (300.0, 1004, 60, 7),
        (600.0, 1006, 90, 9),
        (900.0, 1009, 5, 5),
    ];
    assert_eq!(rows, expected);
    assert_eq!(kinds(&loaded), [("out of order", 4)]);
    refused(name, &Options { strict: true, ..Options::default() }, &["line 2", "out of order: 4 rows"]);
}

#[test]
fn rows_without_output_are_dropped_kept_or_refused() {
    let name = "04-zero-output-length.jsonl";
    let loaded = accepted(name, &Options::default());
    let input = &loaded.workload.input;
    assert_eq!((input.read, input.used, input.dropped["zero output"]), (6, 4, 2));
    assert_eq!(kinds(&loaded), [("zero output", 2)]);

    let loaded = accepted(name, &Options { zero_output: ZeroOutput::PrefillOnly, ..Options::default() });
    assert_eq!((loaded.workload.input.used, kinds(&loaded)), (6, vec![]));

    refused(name, &Options { strict: true, ..Options::default() }, &["line 2", "zero output: 2 rows"]);
}

#[test]
fn ids_for_another_block_size_are_refused_with_the_size_that_fits() {
    let name = "05-hash-count-for-block-64.jsonl";
    let parts = [
        "line 1: hash_ids: 3 ids for 130 tokens",
        "there must be 1",
        "64 is the only one that fits every row",
    ];
    refused(name, &Options::default(), &parts);

    let loaded = accepted(name, &Options { block_size: 64, ..Options::default() });
    assert_eq!((totals(&loaded).0, totals(&loaded).1), (4, 1025));
    assert_eq!((reusable_blocks(&loaded), loaded.workload.chunk_ids.len()), (4, 18));
}

#[test]
fn prompts_without_ids_share_nothing() {
    let loaded = accepted("06-empty-or-absent-hash-ids.jsonl", &Options::default());
    assert_eq!(totals(&loaded), (5, 4250, 97));
    assert_eq!(reusable_blocks(&loaded), 1);
    assert_eq!(kinds(&loaded), [("no hash_ids", 3)]);
    assert_eq!(loaded.workload.input.repaired["no hash_ids"], 3);
}

#[test]
fn ids_are_read_to_the_last_bit() {
    let loaded = accepted("07-ids-above-32-and-53-bits.jsonl", &Options::default());
    assert_eq!(loaded.workload.requests.len(), 5);
    assert_eq!(reusable_blocks(&loaded), 1);
    assert_eq!(loaded.workload.chunk_ids[8], loaded.workload.chunk_ids[6]);
    let names = &loaded.workload.chunk_names;
    assert_eq!(names.len(), 9);
    assert!(names.contains(&u64::MAX) && names.contains(&9_007_199_254_740_993));
}

#[test]
fn what_windows_editors_leave_is_accepted() {
    let loaded = accepted("08-bom-crlf-blank-lines.jsonl", &Options::default());
    assert_eq!(totals(&loaded), (4, 15_500, 366));
    assert_eq!(kinds(&loaded), []);
    assert_eq!(loaded.workload.input.read, 4);
}

#[test]
fn a_trailing_comma_is_refused_with_its_column() {
    refused("09-trailing-comma.jsonl", &Options::default(), &["line 4, column 83", "trailing comma"]);
}

#[test]
fn strings_and_fractions_are_refused() {
    let name = "10-numbers-as-strings-and-floats.jsonl";
    let parts = [
        "line 2: timestamp: \"120\"",
        "write the number without quotes: 1500",
        "line 2: hash_ids[0]",
        "line 5",
        "300.5",
    ];
    let message = refused(name, &Options::default(), &parts);
    let problems = message.lines().filter(|line| line.starts_with(name));
    assert!(!problems.collect::<String>().contains("2048"), "{message}");
}

#[test]
fn what_is_no_time_and_no_length_is_refused() {
    let parts = [
        "line 1, column 15: timestamp: NaN",
        "line 4: input_length: -900",
        "line 6, column 15: timestamp: Infinity",
    ];
    refused("11-nan-infinity-negative.jsonl", &Options::default(), &parts);
}

#[test]
fn a_duplicate_key_is_refused() {
    let message =
        refused("12-duplicate-key.jsonl", &Options::default(), &["line 3: input_length: given twice", "670"]);
    assert!(message.contains("6700"), "{message}");
}

#[test]
fn gzip_is_recognised_by_content_and_read_to_the_last_member() {
    let loaded = accepted("13-gzip-bytes-plain-name.jsonl", &Options::default());
    assert_eq!(totals(&loaded), (6, 18_060, 673));
    assert_eq!(kinds(&loaded), []);
}

#[test]
fn columns_go_by_name_and_rows_of_zeros_are_dropped() {
    let name = "14-extra-columns-and-zero-rows.csv";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad-inputs").join(name);
    let mut file = BufReader::new(File::open(path).unwrap());
    let source = Source { origin: name.into(), reader: &mut file };
    let loaded = formats::read(TraceFormat::BurstGpt, vec![source], &formats::Options::default()).unwrap();
    assert_eq!(totals(&loaded), (4, 1502, 395));
    let arrivals: Vec<f64> = loaded.workload.requests.iter().map(|request| request.arrival.as_ms()).collect();
    assert_eq!(arrivals, [0.0, 5750.0, 10_500.0, 37_250.0]);
    assert_eq!(reusable_blocks(&loaded), 0);
    let input = &loaded.workload.input;
    assert_eq!((input.read, input.used), (6, 4));
    assert_eq!((input.dropped["zero input"], input.dropped["zero output"]), (1, 1));
    assert_eq!(input.suspicious["total does not add up"], 1);
    for place in ["first at line 4", "first at line 6", "first at line 7"] {
        assert!(loaded.warnings.iter().any(|warning| warning.message.contains(place)), "{place}");
    }

    let parts = ["line 1", "looks like CSV", "use --from burstgpt of `spica trace`"];
    refused(name, &Options::default(), &parts);
}
