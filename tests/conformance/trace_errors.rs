//! C42: what a trace reader refuses, and how it says so.

use serde::Deserialize;
use spica::workload::mooncake::{self, Options};

use crate::support::case;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trace {
    name: String,
    text: String,
    refused: Option<Refusal>,
    /// Prompt lengths of what is read.
    accepted: Option<Vec<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    line: Option<u64>,
    #[serde(default)]
    words: Vec<String>,
}

#[test]
fn c42() {
    let traces: Vec<Trace> = case::read("C42");
    let options = Options { block_size: 4, ..Options::default() };
    for trace in traces {
        match (mooncake::read(trace.text.as_bytes(), &options), &trace.refused, &trace.accepted) {
            (Ok(loaded), None, Some(lengths)) => {
                let found: Vec<u32> =
                    loaded.workload.requests.iter().map(|request| request.input_length).collect();
                assert_eq!(*lengths, found, "{}", trace.name);
            }
            (Err(errors), Some(refusal), None) => {
                let message = errors.to_string();
                let line = refusal.line.map(|line| format!("line {line}"));
                for word in line.iter().chain(&refusal.words) {
                    assert!(message.contains(word), "{}: no {word:?} in {message:?}", trace.name);
                }
            }
            (found, ..) => panic!("{}: {found:?}", trace.name),
        }
    }
}
