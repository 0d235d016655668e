//! Parallel layouts: what a worker's shape is called, what it costs, and which shapes are legal.

use std::ops::RangeInclusive;

use crate::config::search::{ParallelConfig, SearchSpace, Shape};

/// GPUs that one worker may span.
const WORKER_SIZES: [u32; 5] = [1, 2, 4, 8, 16];

/// The shapes that one worker of `gpus` GPUs may have, in their order. A dense model has one; a mixture of experts has the
/// four that put all GPUs into one way of splitting attention and one of splitting experts, and none on a single GPU.
pub fn worker_shapes(is_moe: bool, gpus: u32) -> Vec<Shape> {
    let shape =
        |tp, attention_dp, moe_tp, moe_ep| Shape { tp, attention_dp, moe_tp, moe_ep, pp: 1, replicas: 1 };
    match (is_moe, gpus) {
        (false, _) => vec![shape(gpus, 1, 1, 1)],
        (true, 1) => Vec::new(),
        (true, _) => {
            vec![
                shape(1, gpus, 1, gpus),
                shape(1, gpus, gpus, 1),
                shape(gpus, 1, 1, gpus),
                shape(gpus, 1, gpus, 1),
            ]
        }
    }
}

/// Every shape that a worker may have within a budget of GPUs, in their order.
pub fn shapes_within(is_moe: bool, gpu_budget: u32) -> Vec<Shape> {
    let sizes = WORKER_SIZES.into_iter().filter(|gpus| *gpus <= gpu_budget);
    sizes.flat_map(|gpus| worker_shapes(is_moe, gpus)).collect()
}

/// The aggregated layouts of these shapes: every number of workers that `gpus` allows.
pub fn aggregated(shapes: &[Shape], gpus: RangeInclusive<u32>) -> Vec<ParallelConfig> {
    let layouts = shapes.iter().flat_map(|shape| replicated(*shape, *gpus.end()));
    layouts.filter(|shape| gpus.contains(&total_gpus(shape))).map(ParallelConfig::Agg).collect()
}

/// The disaggregated layouts of these shapes: every pair of a prefill and a decode role that `gpus` allows, prefill
/// outermost.
pub fn disaggregated(shapes: &[Shape], gpus: RangeInclusive<u32>) -> Vec<ParallelConfig> {
    let roles: Vec<Shape> = shapes.iter().flat_map(|shape| replicated(*shape, *gpus.end())).collect();
    let mut layouts = Vec::new();
    for prefill in &roles {
        for decode in &roles {
            if gpus.contains(&total_gpus(prefill).saturating_add(total_gpus(decode))) {
                layouts.push(ParallelConfig::Disagg { prefill: *prefill, decode: *decode });
            }
        }
    }
    layouts
}

/// A shape with every number of workers that fit in so many GPUs.
fn replicated(shape: Shape, gpus: u32) -> impl Iterator<Item = Shape> {
    (1..=gpus / gpus_per_worker(&shape)).map(move |replicas| Shape { replicas, ..shape })
}

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
    fn a_worker_has_one_dense_shape_and_four_of_experts_but_none_on_one_gpu() {
        let names =
            |is_moe, gpus| -> Vec<&str> { worker_shapes(is_moe, gpus).iter().map(strategy).collect() };
        assert_eq!(names(false, 4), ["tp"]);
        assert_eq!(names(true, 4), ["dep", "dtp", "tep", "tp"]);
        assert_eq!(names(true, 1), [""; 0]);
        for shape in shapes_within(true, 16) {
            assert_eq!(complaints(&shape), Vec::<String>::new(), "{shape:?}");
        }
    }

    #[test]
    fn budgets_leave_the_known_numbers_of_layouts() {
        let golden = [
            (1, [1, 0, 0, 0]),
            (2, [3, 1, 4, 0]),
            (4, [7, 11, 12, 16]),
            (8, [15, 71, 28, 176]),
            (16, [31, 367, 60, 1136]),
            (32, [62, 1695, 120, 5872]),
            (72, [139, 9225, 268, 33_488]),
        ];
        for (budget, counts) in golden {
            let (dense, experts) = (shapes_within(false, budget), shapes_within(true, budget));
            let all = 1..=budget;
            let counted = [
                aggregated(&dense, all.clone()).len(),
                disaggregated(&dense, all.clone()).len(),
                aggregated(&experts, all.clone()).len(),
                disaggregated(&experts, all).len(),
            ];
            assert_eq!(counted, counts, "{budget} GPUs");
        }
        assert_eq!(disaggregated(&shapes_within(true, 8), 8..=8).len(), 96);
    }

    #[test]
    fn a_least_budget_takes_away_few_workers() {
        let workers_within = |gpus| {
            let mut workers = [const { Vec::new() }; 9];
            for layout in aggregated(&shapes_within(false, 8), gpus) {
                let ParallelConfig::Agg(shape) = layout else { unreachable!() };
                workers[shape.tp as usize].push(shape.replicas);
            }
            workers
        };
        let all = workers_within(1..=8);
        let of_sizes = [8, 4, 2, 1].map(|size: usize| all[size].clone());
        assert_eq!(of_sizes, [vec![1], vec![1, 2], (1..=4).collect(), (1..=8).collect()]);
        let workers = workers_within(4..=8);
        assert_eq!(workers[8], [1]);
        assert_eq!(workers[4], [1, 2]);
        assert_eq!(workers[2], [2, 3, 4]);
        assert_eq!(workers[1], [4, 5, 6, 7, 8]);
    }

    #[test]
    fn gpus_multiply() {
        assert_eq!(gpus_per_worker(&shape(1, 8, 1, 8)), 8);
        let prefill = Shape { replicas: 2, ..shape(4, 1, 1, 4) };
        let decode = Shape { replicas: 1, ..shape(1, 8, 1, 8) };
        assert_eq!(used_gpus(&ParallelConfig::Disagg { prefill, decode }), 16);
    }
}
