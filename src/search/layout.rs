//! Parallel layouts: what a worker's shape is called, what it costs, and which shapes are legal.

use crate::config::search::{ParallelConfig, SearchSpace, Shape};

/// GPUs that one worker may span.
const WORKER_SIZES: [u32; 5] = [1, 2, 4, 8, 16];

/// GPUs of one worker of this shape.
pub fn gpus_per_worker(shape: &Shape) -> u32 {
    shape.tp.saturating_mul(shape.attention_dp).saturating_mul(shape.pp)
}

/// GPUs of all workers of this shape.
pub fn total_gpus(shape: &Shape) -> u32 {
    gpus_per_worker(shape).saturating_mul(shape.replicas)
}

/// GPUs of a whole layout.
pub fn used_gpus(layout: &ParallelConfig) -> u32 {
    match layout {
        ParallelConfig::Agg(shape) => total_gpus(shape),
        ParallelConfig::Disagg { prefill, decode } => total_gpus(prefill).saturating_add(total_gpus(decode)),
    }
}

/// What the way a worker splits attention and experts is called: `tp` (also of dense models), `tep`, `dep`, `dtp`, or
/// `mixed` for anything else.
pub fn strategy(shape: &Shape) -> &'static str {
    let split = |parts: u32| parts > 1;
    match (split(shape.tp), split(shape.attention_dp), split(shape.moe_tp), split(shape.moe_ep)) {
        (_, false, false, false) | (true, false, true, false) => "tp",
        (true, false, false, true) => "tep",
        (false, true, false, true) => "dep",
        (false, true, true, false) => "dtp",
        _ => "mixed",
    }
}

/// Why a pinned layout is not among the legal ones; empty when it is.
///
/// Whether the model is dense or a mixture of experts is not asked here: a shape is legal that is legal for either.
pub(super) fn problems(layout: &ParallelConfig, space: &SearchSpace) -> Vec<String> {
    let mut problems = Vec::new();
    match layout {
        ParallelConfig::Agg(shape) => shape_problems("", shape, &mut problems),
        ParallelConfig::Disagg { prefill, decode } => {
            shape_problems("prefill: ", prefill, &mut problems);
            shape_problems("decode: ", decode, &mut problems);
        }
    }
    let used = used_gpus(layout);
    if used > space.gpu_budget {
        problems.push(format!("uses {used} GPUs, over search_space.gpu_budget {}", space.gpu_budget));
    }
    if let Some(minimum) = space.min_gpu_budget
        && used < minimum
    {
        problems.push(format!("uses {used} GPUs, under search_space.min_gpu_budget {minimum}"));
    }
    problems
}

fn shape_problems(role: &str, shape: &Shape, problems: &mut Vec<String>) {
    if shape.pp != 1 {
        problems.push(format!("{role}pp {} is not modelled; only pp 1 is", shape.pp));
        return;
    }
    let gpus = gpus_per_worker(shape);
    if !WORKER_SIZES.contains(&gpus) {
        problems
            .push(format!("{role}a worker of {gpus} GPUs (tp x attention_dp); it may have 1, 2, 4, 8 or 16"));
    }
    let experts = shape.moe_tp.saturating_mul(shape.moe_ep);
    let dense = experts == 1 && shape.attention_dp == 1;
    if !dense && (strategy(shape) == "mixed" || experts != gpus) {
        problems.push(format!(
            "{role}tp {} x attention_dp {} with moe_tp {} x moe_ep {} is no legal split: a dense worker has \
             attention_dp, moe_tp and moe_ep 1; a mixture of experts puts all GPUs of a worker ({gpus}) into one of tp \
             and attention_dp and into one of moe_tp and moe_ep",
            shape.tp, shape.attention_dp, shape.moe_tp, shape.moe_ep
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(tp: u32, attention_dp: u32, moe_tp: u32, moe_ep: u32) -> Shape {
        Shape { tp, attention_dp, moe_tp, moe_ep, pp: 1, replicas: 2 }
    }

    fn complaints(shape: &Shape) -> Vec<String> {
        let mut problems = Vec::new();
        shape_problems("", shape, &mut problems);
        problems
    }

    #[test]
    fn the_four_patterns_and_dense_workers_are_legal() {
        let legal = [
            (shape(1, 1, 1, 1), "tp"),
            (shape(4, 1, 1, 1), "tp"),
            (shape(4, 1, 4, 1), "tp"),
            (shape(4, 1, 1, 4), "tep"),
            (shape(1, 8, 1, 8), "dep"),
            (shape(1, 8, 8, 1), "dtp"),
        ];
        for (shape, name) in legal {
            assert_eq!(strategy(&shape), name);
            assert_eq!(complaints(&shape), Vec::<String>::new(), "{shape:?}");
        }
    }

    #[test]
    fn other_splits_are_not() {
        for illegal in [
            shape(3, 1, 1, 1),
            shape(32, 1, 1, 1),
            shape(1, 4, 1, 1),
            shape(2, 2, 1, 4),
            shape(4, 1, 2, 2),
            shape(4, 1, 1, 2),
            Shape { pp: 2, ..shape(4, 1, 1, 1) },
        ] {
            assert_eq!(complaints(&illegal).len(), 1, "{illegal:?}");
        }
    }

    #[test]
    fn gpus_multiply() {
        assert_eq!(gpus_per_worker(&shape(1, 8, 1, 8)), 8);
        let prefill = Shape { replicas: 2, ..shape(4, 1, 1, 4) };
        let decode = Shape { replicas: 1, ..shape(1, 8, 1, 8) };
        assert_eq!(used_gpus(&ParallelConfig::Disagg { prefill, decode }), 16);
    }
}
