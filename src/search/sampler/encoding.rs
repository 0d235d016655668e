//! Points as lists of numbers, for samplers that ask how much alike two points are.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

use crate::config::search::{ParallelConfig, Shape};
use crate::search::idle::Idle;
use crate::search::layout;
use crate::search::pool::Placement;
use crate::search::space::{Dimension, Point, Space};

/// The numbers that stand for a point: one per axis.
pub(super) type Features = Box<[f64]>;

/// What the number on an axis means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// A size between 0 and 1: near numbers are alike.
    Ordered,
    /// The number of a name: two are the same or are not.
    Named,
}

impl Axis {
    /// The squared distance of two numbers on this axis, at most 1.
    pub(super) fn squared_distance(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Ordered => (left - right) * (left - right),
            Self::Named => f64::from(u8::from(left != right)),
        }
    }
}

/// Where a knob stands that has no effect: between all its choices.
const WITHOUT_EFFECT: f64 = 0.5;

/// How the points of one branch become numbers. What never varies has no axis.
///
/// A parallel layout is described by what its parts have in common with those of others (engine, share of the budget, GPUs
/// per worker, how attention and experts are split) and not by its place in the list. The choices of a numeric knob stand at
/// even distances in ascending order: nearly all are powers of two.
#[derive(Clone, Debug)]
pub(super) struct Encoding {
    space: Arc<Space>,
    axes: Vec<Axis>,
    /// The numbers of each layout.
    layouts: Vec<Features>,
    /// The layout nearest to the middle of all.
    central_layout: u32,
    /// The knobs that vary, and the number of each choice.
    knobs: Vec<(usize, Vec<f64>)>,
    idle: Idle,
}

impl Encoding {
    pub(super) fn new(space: &Arc<Space>, placements: &[Placement]) -> Self {
        let (mut axes, layouts) = layout_axes(placements);
        let mut knobs = Vec::new();
        for (place, dimension) in space.dimensions().iter().enumerate() {
            if dimension.choices.len() > 1 {
                let (axis, numbers) = knob_axis(dimension);
                axes.push(axis);
                knobs.push((place, numbers));
            }
        }
        let central_layout = central_layout(&axes, &layouts);
        Self { space: Arc::clone(space), axes, layouts, central_layout, knobs, idle: Idle::default() }
    }

    /// The same where it is known beforehand which knobs make no difference.
    pub(super) fn with_idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    /// The middle of the space: of sizes the middle choice (the smaller of two), of names the first.
    pub(super) fn centre(&self) -> Point {
        let mut choices = vec![0; self.space.dimensions().len()];
        for (place, numbers) in &self.knobs {
            if self.knob(*place).is_some_and(|(axis, _)| axis == Axis::Ordered) {
                choices[*place] = nearest_to_middle(numbers);
            }
        }
        self.space.canonical(self.central_layout, choices)
    }

    /// What each number means.
    pub(super) fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The numbers of a point.
    pub(super) fn encode(&self, point: &Point) -> Features {
        let layout = self.layouts.get(point.layout as usize).map_or(&[][..], |numbers| numbers);
        let knobs = self.knobs.iter().map(|(place, numbers)| {
            let has_effect =
                self.space.is_active(&point.choices, *place) && !self.idle.has(&self.space, point, *place);
            if has_effect { numbers[point.choices[*place] as usize] } else { WITHOUT_EFFECT }
        });
        layout.iter().copied().chain(knobs).collect()
    }

    /// The numbers of a layout, on the first axes.
    pub(super) fn layout(&self, layout: u32) -> &[f64] {
        &self.layouts[layout as usize]
    }

    /// The axis of a knob and the number of each of its choices; `None` for one that never varies.
    pub(super) fn knob(&self, dimension: usize) -> Option<(Axis, &[f64])> {
        let place = self.knobs.iter().position(|(place, _)| *place == dimension)?;
        let layout_axes = self.axes.len() - self.knobs.len();
        Some((self.axes[layout_axes + place], &self.knobs[place].1))
    }
}

fn nearest_to_middle(numbers: &[f64]) -> u32 {
    let off = |choice: usize| (numbers[choice] - 0.5).abs();
    let nearer = |best: usize, next: usize| match off(next).total_cmp(&off(best)) {
        Ordering::Less => next,
        Ordering::Equal if numbers[next] < numbers[best] => next,
        _ => best,
    };
    (0..numbers.len()).reduce(nearer).unwrap_or(0) as u32
}

/// The layout whose sizes are nearest to the middle, the first of equals.
fn central_layout(axes: &[Axis], layouts: &[Features]) -> u32 {
    let off = |layout: &Features| -> f64 {
        let ordered = axes.iter().zip(layout).filter(|(axis, _)| **axis == Axis::Ordered);
        ordered.map(|(_, number)| (number - 0.5) * (number - 0.5)).sum()
    };
    let nearer =
        |best: usize, next: usize| if off(&layouts[next]) < off(&layouts[best]) { next } else { best };
    (0..layouts.len()).reduce(nearer).unwrap_or(0) as u32
}

fn knob_axis(dimension: &Dimension) -> (Axis, Vec<f64>) {
    let values: Option<Vec<f64>> = dimension.choices.iter().map(Value::as_f64).collect();
    let Some(values) = values else {
        return (Axis::Named, (0..dimension.choices.len()).map(|choice| choice as f64).collect());
    };
    let last = (values.len() - 1) as f64;
    let rank = |value: &f64| values.iter().filter(|other| *other < value).count() as f64 / last;
    (Axis::Ordered, values.iter().map(rank).collect())
}

/// The axes on which layouts differ, and the numbers of each on them.
fn layout_axes(placements: &[Placement]) -> (Vec<Axis>, Vec<Features>) {
    let traits: Vec<Vec<(Axis, f64)>> = placements.iter().map(layout_traits).collect();
    let Some(first) = traits.first() else { return (Vec::new(), Vec::new()) };
    let mut axes = Vec::new();
    let mut numbers = vec![Vec::new(); placements.len()];
    for (place, &(axis, _)) in first.iter().enumerate() {
        let values = || traits.iter().map(|one| one[place].1);
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if low == high {
            continue;
        }
        axes.push(axis);
        for (numbers, value) in numbers.iter_mut().zip(values()) {
            numbers.push(if axis == Axis::Ordered { (value - low) / (high - low) } else { value });
        }
    }
    (axes, numbers.into_iter().map(Vec::into_boxed_slice).collect())
}

fn layout_traits(placement: &Placement) -> Vec<(Axis, f64)> {
    let config = &placement.layout;
    let engine = f64::from(placement.backend as u8);
    let mut traits =
        vec![(Axis::Ordered, libm::log2(f64::from(layout::used_gpus(config)))), (Axis::Named, engine)];
    match config {
        ParallelConfig::Agg(shape) => traits.extend(shape_traits(shape)),
        ParallelConfig::Disagg { prefill, decode } => {
            let share = f64::from(layout::total_gpus(prefill)) / f64::from(layout::used_gpus(config));
            traits.push((Axis::Ordered, share));
            traits.extend(shape_traits(prefill));
            traits.extend(shape_traits(decode));
        }
    }
    traits
}

fn shape_traits(shape: &Shape) -> [(Axis, f64); 3] {
    let split = |parts: u32| f64::from(u8::from(parts > 1));
    [
        (Axis::Ordered, libm::log2(f64::from(layout::gpus_per_worker(shape)))),
        (Axis::Named, split(shape.attention_dp)),
        (Axis::Named, split(shape.moe_ep)),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::scenario::Backend;
    use crate::search::space::Condition;

    fn shape(tp: u32, attention_dp: u32, moe_ep: u32, replicas: u32) -> Shape {
        Shape { tp, attention_dp, moe_tp: 1, moe_ep, pp: 1, replicas }
    }

    pub(in super::super) fn placements() -> Vec<Placement> {
        [shape(4, 1, 4, 2), shape(1, 8, 8, 2), shape(4, 1, 4, 4)]
            .map(|shape| Placement { backend: Backend::Vllm, layout: ParallelConfig::Agg(shape) })
            .to_vec()
    }

    /// Three layouts, two routers of which the first has a weight, and a knob with one choice.
    pub(in super::super) fn space() -> Arc<Space> {
        let knob = |name, choices: Value, condition| Dimension {
            name,
            choices: choices.as_array().unwrap().clone(),
            condition,
        };
        let weighted = Condition { dimension: 0, active: vec![true, false] };
        Arc::new(Space::new(
            3,
            vec![
                knob("router", json!(["kv_router", "round_robin"]), None),
                knob("weight", json!([32.0, 0.0, 0.25]), Some(weighted)),
                knob("pinned", json!([7]), None),
            ],
        ))
    }

    #[test]
    fn what_varies_has_an_axis() {
        let encoding = Encoding::new(&space(), &placements());
        // GPUs, GPUs per worker, attention; the experts are split alike in all three. Then the router and its weight.
        assert_eq!(encoding.axes(), [Axis::Ordered, Axis::Ordered, Axis::Named, Axis::Named, Axis::Ordered]);
    }

    #[test]
    fn numeric_choices_stand_in_ascending_order_and_a_knob_without_effect_in_the_middle() {
        let (space, encoding) = (space(), Encoding::new(&space(), &placements()));
        let encode = |layout, choices: [u32; 3]| encoding.encode(&space.canonical(layout, choices.to_vec()));
        assert_eq!(*encode(0, [0, 0, 0]), [0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(*encode(1, [0, 1, 0]), [1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(*encode(2, [0, 2, 0]), [1.0, 0.0, 0.0, 0.0, 0.5]);
        assert_eq!(*encode(2, [1, 2, 0]), [1.0, 0.0, 0.0, 1.0, 0.5]);
        assert_eq!(encoding.knob(2), None);
        assert_eq!(encoding.knob(1), Some((Axis::Ordered, &[1.0, 0.0, 0.5][..])));
    }

    #[test]
    fn a_knob_that_makes_no_difference_stands_in_the_middle() {
        let knob = |name, choices: Value| Dimension {
            name,
            choices: choices.as_array().unwrap().clone(),
            condition: None,
        };
        let space = Arc::new(Space::new(
            3,
            vec![
                knob("router_mode", json!(["kv_router"])),
                knob("overlap_score_credit", json!([0.0, 1.0])),
                knob("prefill_load_scale", json!([0.0, 1.0])),
            ],
        ));
        let idle = Idle::new(&space, &placements(), true);
        let encoding = Encoding::new(&space, &placements()).with_idle(idle);
        let weights =
            |choices: [u32; 3]| encoding.encode(&space.canonical(0, choices.to_vec()))[3..].to_vec();
        assert_eq!([weights([0, 0, 0]), weights([0, 1, 0])], [[0.5, 0.0], [0.5, 0.0]]);
        assert_eq!([weights([0, 0, 1]), weights([0, 1, 1])], [[0.0, 1.0], [1.0, 1.0]]);
    }

    #[test]
    fn the_centre_is_in_the_middle() {
        let centre = Encoding::new(&space(), &placements()).centre();
        assert_eq!((centre.layout, &*centre.choices), (0, &[0, 2, 0][..]));
        assert_eq!(nearest_to_middle(&[1.0, 0.0]), 1);
    }

    #[test]
    fn names_are_equally_far_apart() {
        assert_eq!(Axis::Named.squared_distance(0.0, 5.0), 1.0);
        assert_eq!(Axis::Named.squared_distance(5.0, 5.0), 0.0);
        assert_eq!(Axis::Ordered.squared_distance(0.25, 0.75), 0.25);
    }
}
