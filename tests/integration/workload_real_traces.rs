//! Real traces, which are not part of the repository: read where a folder `shared` lies beside it.

use std::fs::File;
use std::io::BufReader;

use spica::workload::mooncake::{self, Options};

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
