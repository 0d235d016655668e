//! How long it takes to load a trace.
//!
//! Reads the recorded conversation trace when it lies in a folder `shared` beside the repository, and a generated one
//! of the same size otherwise.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use spica::workload::generate::Conversation;
use spica::workload::mooncake::{self, Options};

/// Name, packed bytes and plain bytes of the trace.
fn trace() -> (&'static str, Vec<u8>, Vec<u8>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recorded =
        root.ancestors().skip(1).take(2).find_map(|folder| {
            fs::read(folder.join("shared/traces/mooncake_fast25_conversation.jsonl.gz")).ok()
        });
    let mut plain = Vec::new();
    if let Some(packed) = recorded {
        GzDecoder::new(&packed[..]).read_to_end(&mut plain).expect("the trace is gzip");
        return ("recorded", packed, plain);
    }
    Conversation { rows: 12_031, ..Conversation::default() }
        .write(&mut plain)
        .expect("the options are in range");
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&plain).expect("memory does not fail");
    ("generated", encoder.finish().expect("memory does not fail"), plain)
}

fn load(c: &mut Criterion) {
    let (name, packed, plain) = trace();
    let options = Options::default();
    let mut group = c.benchmark_group(format!("load/{name}"));
    group.throughput(Throughput::Bytes(plain.len() as u64)).sample_size(30);
    for (form, bytes) in [("gzip", &packed), ("plain", &plain)] {
        group.bench_function(form, |b| {
            b.iter(|| mooncake::read(&bytes[..], &options).expect("the trace is good"));
        });
    }
    group.finish();
}

criterion_group!(benches, load);
criterion_main!(benches);
