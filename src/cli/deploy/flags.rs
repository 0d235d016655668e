//! Flags of serving engines and of Dynamo's frontend, as their documentation has them.
//!
//! | list | documentation |
//! |---|---|
//! | [`VLLM`] | vLLM, "Engine Arguments" and `vllm serve --help`, 0.8 and later |
//! | [`SGLANG`] | SGLang, "Server Arguments", `python3 -m sglang.launch_server --help` |
//! | [`TRTLLM`] | TensorRT-LLM, "trtllm-serve" |
//! | [`FRONTEND`] | Dynamo, "Frontend Configuration Reference" and "Configuration and Tuning" of the router, 1.3 |

/// `vllm serve MODEL ...`
pub(super) const VLLM: &[&str] = &[
    "--port",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--enable-expert-parallel",
    "--block-size",
    "--num-gpu-blocks-override",
    "--gpu-memory-utilization",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--max-model-len",
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--enable-chunked-prefill",
    "--no-enable-chunked-prefill",
    "--kv-transfer-config",
    "--speculative-config",
];

/// `python3 -m sglang.launch_server --model-path MODEL ...`
pub(super) const SGLANG: &[&str] = &[
    "--model-path",
    "--host",
    "--port",
    "--tp-size",
    "--pp-size",
    "--dp-size",
    "--enable-dp-attention",
    "--ep-size",
    "--page-size",
    "--max-total-tokens",
    "--mem-fraction-static",
    "--max-running-requests",
    "--chunked-prefill-size",
    "--max-prefill-tokens",
    "--context-length",
    "--disable-radix-cache",
    "--schedule-policy",
    "--schedule-conservativeness",
    "--disaggregation-mode",
];

/// `trtllm-serve MODEL ...`
pub(super) const TRTLLM: &[&str] = &[
    "--port",
    "--host",
    "--tp_size",
    "--pp_size",
    "--ep_size",
    "--max_batch_size",
    "--max_num_tokens",
    "--max_seq_len",
    "--kv_cache_free_gpu_memory_fraction",
];

/// `python3 -m dynamo.frontend ...`
pub(super) const FRONTEND: &[&str] = &[
    "--http-port",
    "--router-mode",
    "--router-kv-overlap-score-credit",
    "--router-kv-overlap-score-credit-decay",
    "--router-prefill-load-scale",
    "--router-decode-active-request-weight",
    "--router-temperature",
    "--router-queue-threshold",
];
