//! Real traces, which are not part of the repository: read where a folder `shared` lies beside it.

use std::fs::File;
use std::io::BufReader;

use spica::config::scenario::TraceFormat;
use spica::workload::formats::{self, Source};
use spica::workload::mooncake::{self, Options};
use spica::workload::stats::{LengthStats, WorkloadStats};

use crate::shared_folder::shared_file;

#[test]
fn every_real_trace_is_accepted_without_repairs() {
    for (name, block_size, requests) in [
        ("mooncake_fast25_conversation.jsonl.gz", 512, 12_031),
        ("mooncake_fast25_synthetic.jsonl", 512, 3_993),
        ("mooncake_arxiv_first1000.jsonl", 512, 1_000),
        ("toolagent_standin.jsonl.gz", 512, 23_608),
        ("sharegpt300_llama3_hash16.jsonl", 16, 300),
        ("lmcache_agent_miniswe_hash64.jsonl", 64, 402),
        ("lmcache_agent_taubench_hash64.jsonl", 64, 471),
    ] {
        let Some(path) = shared_file(&format!("traces/{name}")) else { continue };
        let options = Options { origin: name.into(), block_size, ..Options::default() };
        let loaded = mooncake::read(BufReader::new(File::open(path).unwrap()), &options)
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(loaded.workload.requests.len(), requests, "{name}");
        assert!(loaded.workload.input.repaired.is_empty(), "{name}: {:?}", loaded.workload.input);
        let odd: Vec<_> =
            loaded.warnings.iter().filter(|warning| warning.kind != "shrinking session").collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
    }
}

/// A trace, its block size, and its row of the table that describes the traces: requests, span in seconds, mean and
/// percentiles of input and output, reuse bound in percent of blocks, of tokens, and of tokens of the later half.
type Row = (&'static str, u32, u64, f64, [u32; 4], [u32; 4], [f64; 3]);

#[rustfmt::skip]
const TABLE: [Row; 8] = [
    ("mooncake_fast25_conversation.jsonl.gz", 512, 12_031, 3536.999, [12035, 6909, 27367, 85401], [343, 350, 597, 1120], [36.6, 37.4, 39.8]),
    ("mooncake_fast25_synthetic.jsonl", 512, 3_993, 1022.025, [15326, 11587, 38615, 66458], [149, 69, 389, 769], [64.0, 65.1, 86.3]),
    ("mooncake_arxiv_first1000.jsonl", 512, 1_000, 177.098, [9792, 6557, 19771, 77792], [199, 34, 534, 831], [38.0, 39.1, 46.7]),
    ("toolagent_standin.jsonl.gz", 512, 23_608, 3534.0, [8589, 6468, 15227, 57955], [182, 32, 529, 870], [55.0, 56.8, 58.9]),
    ("sharegpt300_llama3_hash16.jsonl", 16, 300, 29.137, [858, 730, 1458, 2764], [652, 631, 770, 784], [7.5, 7.6, 10.2]),
    ("lmcache_agent_miniswe_hash64.jsonl", 64, 402, 552.131, [6017, 3777, 12313, 34513], [114, 98, 191, 294], [92.7, 93.2, 93.5]),
    ("lmcache_agent_taubench_hash64.jsonl", 64, 471, 180.918, [166, 106, 410, 688], [22, 1, 61, 187], [77.7, 81.0, 81.7]),
    ("lmcache_agent_magagent_hash64.jsonl", 64, 746, 6448.642, [1978, 1191, 6452, 10690], [621, 378, 564, 10001], [83.7, 83.8, 88.0]),
];

#[test]
fn figures_are_those_of_the_table_beside_the_traces() {
    for (name, block_size, requests, span_s, input, output, reuse) in TABLE {
        let Some(path) = shared_file(&format!("traces/{name}")) else { continue };
        let options = Options { origin: name.into(), block_size, ..Options::default() };
        let loaded = mooncake::read(BufReader::new(File::open(path).unwrap()), &options)
            .unwrap_or_else(|e| panic!("{e}"));
        let stats = WorkloadStats::new(&loaded.workload);
        assert_eq!(stats.requests, requests, "{name}");
        assert!((stats.span_s - span_s).abs() < 1e-6, "{name}: {}", stats.span_s);
        // The table rounds means twice: to a tenth and then to even.
        let mean = |of: &LengthStats| ((of.mean * 10.0).round() / 10.0).round_ties_even() as u32;
        let figures = |of: &LengthStats| [mean(of), of.p50, of.p90, of.p99];
        assert_eq!((figures(&stats.input_length), figures(&stats.output_length)), (input, output), "{name}");
        let bound = stats.reuse_bound.unwrap();
        let ratios = [bound.block_ratio, bound.token_ratio, bound.warm_token_ratio];
        for (ratio, percent) in ratios.iter().zip(reuse) {
            // Ratios were rounded twice too: to a hundredth of a percent and then to a tenth.
            assert!((ratio * 100.0 - percent).abs() <= 0.055, "{name}: {ratios:?}");
        }
    }
}

/// A trace of another form, and its row of the same table.
type Foreign = (TraceFormat, &'static str, u64, f64, [u32; 4], [u32; 4]);

#[rustfmt::skip]
const FOREIGN: [Foreign; 7] = [
    (TraceFormat::Dynamo, "dynamo_pi_request_trace.jsonl", 17, 162.147, [3913, 3423, 8282, 8780], [476, 389, 832, 1101]),
    (TraceFormat::Azure, "azure_2023_code.csv", 8_819, 3435.948, [2048, 1469, 5194, 7436], [28, 13, 55, 252]),
    (TraceFormat::Azure, "azure_2023_conv.csv", 19_366, 3501.722, [1155, 1020, 2735, 4142], [211, 129, 424, 601]),
    (TraceFormat::Splitwise, "vidur_splitwise_conv.csv", 19_366, 3501.722, [1155, 1020, 2735, 4142], [211, 129, 424, 601]),
    (TraceFormat::Splitwise, "apex_creation_05_lengths.csv", 512, 1097.37, [308, 309, 400, 567], [1144, 1106, 1708, 2368]),
    (TraceFormat::LlmServingSim, "llmservingsim_mixed608.jsonl", 608, 60.898, [9218, 2909, 24447, 28451], [3021, 872, 11815, 15040]),
    (TraceFormat::Azure, "inference_perf_example.csv", 20, 13.025, [577, 388, 1315, 2221], [84, 84, 152, 174]),
];

#[test]
fn traces_of_other_forms_have_the_figures_of_the_table() {
    for (format, name, requests, span_s, input, output) in FOREIGN {
        let Some(path) = shared_file(&format!("traces/{name}")) else { continue };
        let mut reader = BufReader::new(File::open(path).unwrap());
        let source = Source { origin: name.into(), reader: &mut reader };
        let loaded = formats::read(format, vec![source], &formats::Options::default())
            .unwrap_or_else(|errors| panic!("{errors:?}"));
        let stats = WorkloadStats::new(&loaded.workload);
        assert_eq!(stats.requests, requests, "{name}");
        assert!((stats.span_s - span_s).abs() < 5.1e-4, "{name}: {}", stats.span_s);
        let lengths = |found: LengthStats| [found.mean.round() as u32, found.p50, found.p90, found.p99];
        assert_eq!(lengths(stats.input_length), input, "{name}");
        assert_eq!(lengths(stats.output_length), output, "{name}");
        if format == TraceFormat::Dynamo {
            let reuse = stats.reuse_bound.unwrap();
            assert_eq!((reuse.reused_blocks, reuse.blocks), (2980, 4163));
        }
    }
}
