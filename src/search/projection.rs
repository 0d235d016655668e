//! Layouts as points of a structured space.
//!
//! A pool of layouts is a list without order. A sampler that learns wants to ask for "more GPUs" or "larger workers":
//! [`StructuredPool`] describes the pool by such dimensions, and turns a request along them into the nearest layout that
//! there is.

use std::cmp::Ordering;

use super::layout::{gpus_per_worker, total_gpus};
use super::pool::Placement;
use crate::config::scenario::Backend;
use crate::config::search::{ParallelConfig, Shape};

/// A dimension along which layouts differ.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutDimension {
    /// Its name: that of a feature, a role's in front of what belongs to a role.
    pub name: String,
    /// What may be asked for.
    pub domain: Domain,
}

/// What may be asked for along a dimension, and what is asked for when nothing is said.
#[derive(Clone, Debug, PartialEq)]
pub enum Domain {
    /// A number between two bounds.
    Real {
        /// The lower bound.
        least: f64,
        /// The upper bound.
        most: f64,
        /// When nothing is said.
        default: f64,
    },
    /// One of several sizes, in ascending order; doublings are equally far apart.
    Sizes {
        /// The sizes.
        choices: Vec<u32>,
        /// When nothing is said.
        default: u32,
    },
    /// One of several names.
    Names {
        /// The names; the first is asked for when nothing is said.
        choices: Vec<&'static str>,
    },
}

impl Domain {
    /// Whether there is nothing to ask for.
    fn is_constant(&self) -> bool {
        match self {
            Self::Real { least, most, .. } => least == most,
            Self::Sizes { choices, .. } => choices.len() == 1,
            Self::Names { choices } => choices.len() == 1,
        }
    }
}

/// What is asked for: for each dimension of [`StructuredPool::dimensions`], in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// A number; of sizes too.
    Number(f64),
    /// A name.
    Name(&'static str),
}

/// The layout that comes nearest to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Projection {
    /// Its place in the pool.
    pub place: usize,
    /// Sum of the squared differences of numbers, each relative to its span in the pool of the engine.
    pub distance: f64,
    /// Whether a name that was asked for could not be had.
    pub mode_projected: bool,
}

/// A pool described by its dimensions.
#[derive(Clone, Debug)]
pub struct StructuredPool {
    layouts: Vec<(Backend, ParallelConfig, Features)>,
    dimensions: Vec<LayoutDimension>,
}

/// A layout along all dimensions, the constant ones too: numbers, then names.
#[derive(Clone, Debug, PartialEq)]
struct Features {
    /// Share of the budget, share of prefill (disaggregated only), base-2 logarithm of each role's worker size.
    numbers: Vec<f64>,
    /// Attention and feed-forward of every role.
    names: Vec<&'static str>,
}

impl StructuredPool {
    pub(super) fn new(placements: &[Placement], gpu_budget: u32) -> Self {
        let split_experts = placements.iter().flat_map(|one| shapes(&one.layout).0).any(|shape| {
            let Shape { moe_tp, moe_ep, .. } = shape;
            moe_tp > 1 || moe_ep > 1
        });
        let layouts: Vec<_> = placements
            .iter()
            .map(|one| (one.backend, one.layout, features(&one.layout, gpu_budget, split_experts)))
            .collect();
        let dimensions =
            placements.first().map_or(Vec::new(), |first| all_dimensions(&first.layout, &layouts));
        Self { layouts, dimensions }
    }

    /// The dimensions along which something can be asked for. A pool of one layout has none.
    pub fn dimensions(&self) -> impl Iterator<Item = &LayoutDimension> {
        self.dimensions.iter().filter(|dimension| !dimension.domain.is_constant())
    }

    /// The layout of an engine that comes nearest to what is asked for; `None` if the pool has none of that engine.
    ///
    /// As many names as possible are met first. Among the layouts that meet them, the numbers decide, and then the
    /// smaller split.
    ///
    /// # Panics
    /// If `wishes` does not have one entry of the right kind for each of [`Self::dimensions`].
    pub fn project(&self, wishes: &[Wish], backend: Backend) -> Option<Projection> {
        let (numbers, names) = self.completed(wishes);
        let of_engine = || self.layouts.iter().enumerate().filter(|(_, (engine, ..))| *engine == backend);
        let spans: Vec<f64> = (0..numbers.len())
            .map(|axis| {
                let values = of_engine().map(|(_, (_, _, features))| features.numbers[axis]);
                let (least, most) = bounds(values);
                most - least
            })
            .collect();
        let mismatches = |features: &Features| {
            features.names.iter().zip(&names).filter(|(is, wanted)| is != wanted).count()
        };
        let fewest = of_engine().map(|(_, (_, _, features))| mismatches(features)).min()?;
        let distance = |features: &Features| -> f64 {
            let axes = features.numbers.iter().zip(&numbers).zip(&spans).filter(|(_, span)| **span > 0.0);
            axes.map(|((is, wanted), span)| ((is - wanted) / span).powi(2)).sum()
        };
        let nearest = of_engine()
            .filter(|(_, (_, _, features))| mismatches(features) == fewest)
            .map(|(place, (_, layout, features))| (distance(features), key(layout), place))
            .min_by(|left, right| left.0.total_cmp(&right.0).then_with(|| left.1.cmp(&right.1)))?;
        Some(Projection { place: nearest.2, distance: nearest.0, mode_projected: fewest > 0 })
    }

    /// Numbers and names of all dimensions: what is asked for, and the default of constant ones.
    fn completed(&self, wishes: &[Wish]) -> (Vec<f64>, Vec<&'static str>) {
        let mut wishes = wishes.iter();
        let (mut numbers, mut names) = (Vec::new(), Vec::new());
        for dimension in &self.dimensions {
            let wish = if dimension.domain.is_constant() { None } else { wishes.next() };
            match (&dimension.domain, wish) {
                (Domain::Real { default, .. }, None) => numbers.push(*default),
                (Domain::Real { .. }, Some(Wish::Number(wish))) => numbers.push(*wish),
                (Domain::Sizes { default, .. }, None) => numbers.push(f64::from(*default).log2()),
                (Domain::Sizes { .. }, Some(Wish::Number(wish))) => numbers.push(wish.log2()),
                (Domain::Names { choices }, None) => names.push(choices[0]),
                (Domain::Names { .. }, Some(Wish::Name(wish))) => names.push(wish),
                (domain, wish) => panic!("{wish:?} for {} of {domain:?}", dimension.name),
            }
        }
        (numbers, names)
    }
}

/// The shapes of a layout with the names of their roles.
fn shapes(layout: &ParallelConfig) -> (Vec<Shape>, &'static [&'static str]) {
    match layout {
        ParallelConfig::Agg(shape) => (vec![*shape], &["agg"]),
        ParallelConfig::Disagg { prefill, decode } => (vec![*prefill, *decode], &["prefill", "decode"]),
    }
}

fn features(layout: &ParallelConfig, gpu_budget: u32, split_experts: bool) -> Features {
    let (shapes, _) = shapes(layout);
    let totals: Vec<f64> = shapes.iter().map(|shape| f64::from(total_gpus(shape))).collect();
    let total: f64 = totals.iter().sum();
    let mut numbers = vec![total / f64::from(gpu_budget)];
    if totals.len() > 1 {
        numbers.push(totals[0] / total);
    }
    numbers.extend(shapes.iter().map(|shape| f64::from(gpus_per_worker(shape)).log2()));
    let mut names = Vec::new();
    for shape in &shapes {
        names.push(if shape.attention_dp > 1 { "dp" } else { "tp" });
        if split_experts {
            names.push(if shape.moe_ep > 1 { "ep" } else { "tp" });
        }
    }
    Features { numbers, names }
}

/// The dimensions in the order of [`Features`]: all numbers, then all names.
fn all_dimensions(
    layout: &ParallelConfig,
    layouts: &[(Backend, ParallelConfig, Features)],
) -> Vec<LayoutDimension> {
    let (_, roles) = shapes(layout);
    let numbers = |axis: usize| layouts.iter().map(move |(_, _, features)| features.numbers[axis]);
    let real = |name: &str, axis, usual: f64| {
        let (least, most) = bounds(numbers(axis));
        let domain = Domain::Real { least, most, default: usual.clamp(least, most) };
        LayoutDimension { name: name.into(), domain }
    };
    let mut dimensions = vec![real("used_gpu_ratio", 0, 1.0)];
    if roles.len() > 1 {
        dimensions.push(real("prefill_gpu_share", 1, 0.5));
    }
    let first_size = dimensions.len();
    for (place, role) in roles.iter().enumerate() {
        let mut choices: Vec<u32> =
            numbers(first_size + place).map(|size| size.exp2().round() as u32).collect();
        choices.sort_unstable();
        choices.dedup();
        let default = geometric_centre(&choices);
        let name = format!("{role}_num_gpus_per_engine_target");
        dimensions.push(LayoutDimension { name, domain: Domain::Sizes { choices, default } });
    }
    let per_role = layouts[0].2.names.len() / roles.len();
    for (place, role) in roles.iter().enumerate() {
        let kinds = [("attention_mode", ["tp", "dp"]), ("ffn_mode", ["ep", "tp"])];
        for (kind, (name, known)) in kinds.into_iter().take(per_role).enumerate() {
            let axis = place * per_role + kind;
            let present =
                |choice: &&str| layouts.iter().any(|(_, _, features)| features.names[axis] == *choice);
            let choices = known.into_iter().filter(present).collect();
            dimensions
                .push(LayoutDimension { name: format!("{role}_{name}"), domain: Domain::Names { choices } });
        }
    }
    dimensions
}

/// The size nearest to the geometric mean of the smallest and the largest, the smaller of two that are equally near.
fn geometric_centre(sizes: &[u32]) -> u32 {
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    let square = u64::from(first) * u64::from(last);
    // How far the square of a size is from that of the mean, as a ratio of at least 1: exact, unlike logarithms.
    let ratio = |size: u32| {
        let own = u64::from(size) * u64::from(size);
        if own >= square { (own, square) } else { (square, own) }
    };
    let nearer = |left: &u32, right: &u32| -> Ordering {
        let ((a, b), (c, d)) = (ratio(*left), ratio(*right));
        (u128::from(a) * u128::from(d)).cmp(&(u128::from(c) * u128::from(b))).then(left.cmp(right))
    };
    sizes.iter().copied().min_by(nearer).unwrap_or(first)
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)))
}

/// What decides between layouts that are equally near.
fn key(layout: &ParallelConfig) -> Vec<[u32; 6]> {
    let (shapes, _) = shapes(layout);
    let of =
        |shape: &Shape| [shape.tp, shape.pp, shape.attention_dp, shape.moe_tp, shape.moe_ep, shape.replicas];
    shapes.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::layout::{aggregated, disaggregated, shapes_within};

    fn tep(gpus: u32, replicas: u32) -> Shape {
        Shape { tp: gpus, attention_dp: 1, moe_tp: 1, moe_ep: gpus, pp: 1, replicas }
    }

    fn dep(gpus: u32, replicas: u32) -> Shape {
        Shape { tp: 1, attention_dp: gpus, moe_tp: 1, moe_ep: gpus, pp: 1, replicas }
    }

    fn pool(layouts: Vec<ParallelConfig>) -> StructuredPool {
        let placed = layouts.into_iter().map(|layout| Placement { backend: Backend::Vllm, layout });
        StructuredPool::new(&placed.collect::<Vec<_>>(), 32)
    }

    fn names(pool: &StructuredPool) -> Vec<&str> {
        pool.dimensions().map(|dimension| dimension.name.as_str()).collect()
    }

    #[test]
    fn a_layout_that_is_there_is_met_exactly() {
        let pool = pool(vec![ParallelConfig::Agg(tep(4, 4)), ParallelConfig::Agg(dep(8, 2))]);
        // Both use 16 of 32 GPUs and experts in parallel: there is nothing to ask for.
        assert_eq!(names(&pool), ["agg_num_gpus_per_engine_target", "agg_attention_mode"]);
        let wishes = [Wish::Number(8.0), Wish::Name("dp")];
        let expected = Projection { place: 1, distance: 0.0, mode_projected: false };
        assert_eq!(pool.project(&wishes, Backend::Vllm), Some(expected));
        assert_eq!(pool.project(&wishes, Backend::Sglang), None);
    }

    #[test]
    fn a_name_that_cannot_be_had_is_given_up() {
        let two = [
            Placement { backend: Backend::Vllm, layout: ParallelConfig::Agg(dep(8, 2)) },
            Placement { backend: Backend::Sglang, layout: ParallelConfig::Agg(tep(8, 2)) },
        ];
        let pool = StructuredPool::new(&two, 32);
        assert_eq!(names(&pool), ["agg_attention_mode"]);
        let projection = pool.project(&[Wish::Name("tp")], Backend::Vllm).unwrap();
        assert_eq!(projection, Projection { place: 0, distance: 0.0, mode_projected: true });
    }

    #[test]
    fn names_go_before_numbers() {
        let a = ParallelConfig::Disagg { prefill: tep(2, 4), decode: tep(8, 1) };
        let decode = Shape { tp: 8, attention_dp: 1, moe_tp: 8, moe_ep: 1, pp: 1, replicas: 3 };
        let b = ParallelConfig::Disagg { prefill: tep(4, 1), decode };
        let pool = pool(vec![a, b]);
        assert_eq!(
            names(&pool),
            ["used_gpu_ratio", "prefill_gpu_share", "prefill_num_gpus_per_engine_target", "decode_ffn_mode"]
        );
        let wishes = |ffn| [Wish::Number(0.5), Wish::Number(0.5), Wish::Number(2.0), Wish::Name(ffn)];
        assert_eq!(pool.project(&wishes("ep"), Backend::Vllm).unwrap().place, 0);
        assert_eq!(pool.project(&wishes("tp"), Backend::Vllm).unwrap().place, 1);
    }

    #[test]
    fn engines_have_their_own_layouts() {
        let two = [
            Placement { backend: Backend::Vllm, layout: ParallelConfig::Agg(tep(8, 1)) },
            Placement { backend: Backend::Sglang, layout: ParallelConfig::Agg(tep(4, 2)) },
        ];
        let pool = StructuredPool::new(&two, 32);
        let projection = pool.project(&[Wish::Number(8.0)], Backend::Sglang).unwrap();
        assert_eq!(projection.place, 1);
    }

    #[test]
    fn dimensions_come_with_their_spans_and_defaults() {
        let pool = pool(disaggregated(&shapes_within(true, 32), 1..=32));
        let domain = |name: &str| &pool.dimensions().find(|one| one.name == name).unwrap().domain;
        assert_eq!(*domain("used_gpu_ratio"), Domain::Real { least: 4.0 / 32.0, most: 1.0, default: 1.0 });
        let sizes = Domain::Sizes { choices: vec![2, 4, 8, 16], default: 4 };
        assert_eq!(*domain("decode_num_gpus_per_engine_target"), sizes);
        assert_eq!(*domain("prefill_ffn_mode"), Domain::Names { choices: vec!["ep", "tp"] });
        assert_eq!(pool.dimensions().count(), 8);
        assert_eq!(names(&super::tests::pool(aggregated(&shapes_within(false, 1), 1..=1))), [""; 0]);
    }

    #[test]
    fn every_layout_is_nearest_to_itself() {
        let layouts = aggregated(&shapes_within(true, 16), 1..=16);
        let pool = pool(layouts);
        for (place, (_, layout, features)) in pool.layouts.iter().enumerate() {
            let wishes = [
                Wish::Number(features.numbers[0]),
                Wish::Number(features.numbers[1].exp2()),
                Wish::Name(features.names[0]),
                Wish::Name(features.names[1]),
            ];
            let projection = pool.project(&wishes, Backend::Vllm).unwrap();
            assert_eq!((projection.place, projection.mode_projected), (place, false), "{layout:?}");
        }
    }

    /// Floating-point logarithms would pick the larger of two equally near sizes, as the reference does.
    #[test]
    fn the_centre_of_sizes_is_exact() {
        let cases: [(&[u32], u32); 5] =
            [(&[2, 4, 8, 16], 4), (&[2, 4], 2), (&[4, 8], 4), (&[1, 2, 4, 8, 16], 4), (&[8, 16], 8)];
        for (sizes, centre) in cases {
            assert_eq!(geometric_centre(sizes), centre, "{sizes:?}");
        }
    }
}
