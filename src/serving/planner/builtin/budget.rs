//! What the GPU budget and the minimum numbers of workers allow.
//!
//! A deployment is within its budget when its GPUs lie between the two bounds; an absent bound does not bind. Where both
//! bind, the lower one may be missed by up to one worker of the larger kind, for some budgets cannot be met exactly.

use std::cmp::Ordering;

/// GPU budget of a deployment; `None` does not bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// GPUs at least.
    pub min: Option<u32>,
    /// GPUs at most.
    pub max: Option<u32>,
}

/// A pool as far as budgets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// GPUs of one worker.
    pub gpus: u32,
    /// Workers at least.
    pub min: u32,
}

/// A number of workers after a guard, and whether the present number had to be brought back into the budget first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded<T> {
    /// Workers.
    pub workers: T,
    /// Whether that is a repair, whatever was proposed.
    pub reconciles: bool,
}

impl<T> Guarded<T> {
    fn free(workers: T) -> Self {
        Self { workers, reconciles: false }
    }
}

impl Budget {
    /// Only the upper bound.
    #[must_use]
    pub fn ceiling(self) -> Self {
        Self { min: None, ..self }
    }

    fn contains(self, total: u64, tolerance: u64) -> bool {
        self.max.is_none_or(|max| total <= max.into())
            && self.min.is_none_or(|min| total + tolerance >= min.into())
    }

    /// The tolerance at the lower bound when the largest worker has `gpus`.
    fn tolerance(self, gpus: u32) -> u64 {
        if self.min.is_some() && self.max.is_some() { gpus.into() } else { 0 }
    }

    /// The number of workers nearest to `workers` that the budget allows; 0 where it allows none.
    pub fn clamp_single(self, pool: Endpoint, workers: u32) -> u32 {
        let total = gpus(workers, pool);
        if self.contains(total, self.tolerance(pool.gpus)) {
            return workers;
        }
        match (self.max, self.min) {
            (Some(max), _) if total > max.into() => {
                if gpus(pool.min, pool) > max.into() {
                    0
                } else {
                    pool.min.max(max / pool.gpus)
                }
            }
            (_, Some(min)) => pool.min.max(min.div_ceil(pool.gpus)),
            _ => workers,
        }
    }

    /// What a single pool of `current` workers may become when `proposed` are wanted.
    pub fn guard_single(self, pool: Endpoint, current: u32, proposed: u32) -> Guarded<u32> {
        let total = gpus(current, pool);
        if !self.contains(total, self.tolerance(pool.gpus)) {
            return Guarded { workers: self.clamp_single(pool, current), reconciles: true };
        }
        let at_floor = self.min.is_some_and(|min| total <= min.into());
        let at_ceiling = self.max.is_some_and(|max| total >= max.into());
        if (at_floor && proposed < current) || (at_ceiling && proposed > current) {
            return Guarded::free(current);
        }
        let allowed = self.clamp_single(pool, proposed);
        let lies_between = (current.min(proposed)..=current.max(proposed)).contains(&allowed);
        Guarded::free(if lies_between { allowed } else { current })
    }

    /// The pair nearest to `workers` in proportion that the budget allows; (0, 0) where it allows none.
    pub fn clamp_pair(self, pools: [Endpoint; 2], workers: [u32; 2]) -> [u32; 2] {
        let total = gpus(workers[0], pools[0]) + gpus(workers[1], pools[1]);
        if self.contains(total, self.tolerance(pools[0].gpus.max(pools[1].gpus))) {
            return workers;
        }
        match (self.max, self.min) {
            (Some(max), _) if total > max.into() => shrink_pair(pools, workers, max, total),
            (_, Some(min)) => self.grow_pair(pools, workers, min, total),
            _ => workers,
        }
    }

    fn grow_pair(self, pools: [Endpoint; 2], workers: [u32; 2], min: u32, total: u64) -> [u32; 2] {
        let ([prefill, decode], [p, d]) = (pools, workers);
        let (min_gpus, gpus_p, gpus_d) = (f64::from(min), f64::from(prefill.gpus), f64::from(decode.gpus));
        let wanted = if total == 0 {
            (min_gpus / 2.0 / gpus_p).ceil()
        } else {
            // The quotient comes first, as in the reference: what is just above a whole number counts as more.
            (f64::from(p) * (min_gpus / total as f64)).ceil()
        };
        let more_p = prefill.min.max(wanted as u32);
        let rest = min_gpus - f64::from(more_p) * gpus_p;
        let least_d = if rest > 0.0 { (rest / gpus_d).ceil() as u32 } else { 0 };
        let more_d = d.max(decode.min.max(least_d));
        let grown = [more_p, more_d];
        let spent = gpus(more_p, prefill) + gpus(more_d, decode);
        match self.max {
            Some(max) if spent <= max.into() => grown,
            None => grown,
            // Decode alone would have had to shrink for it: prefill grows as far as it can.
            Some(_) if decode.min.max(least_d) < d => self.directional_fit(pools, workers, [more_p, d]),
            Some(_) => workers,
        }
    }

    /// The pair nearest to `proposed`, on the way from `current`, that the budget allows. If one pool was to grow and the
    /// other to shrink, both move or neither.
    pub fn directional_fit(self, pools: [Endpoint; 2], current: [u32; 2], proposed: [u32; 2]) -> [u32; 2] {
        let tolerance = self.tolerance(pools[0].gpus.max(pools[1].gpus));
        let allowed = |pair: [u32; 2]| {
            self.contains(gpus(pair[0], pools[0]) + gpus(pair[1], pools[1]), tolerance)
                && pair[0] >= pools[0].min
                && pair[1] >= pools[1].min
        };
        if allowed(proposed) {
            return proposed;
        }
        let opposing = opposing(current, proposed);
        let span = |pool: usize| current[pool].min(proposed[pool])..=current[pool].max(proposed[pool]);
        let requested = [0, 1].map(|pool| i64::from(proposed[pool].abs_diff(current[pool])));
        let mut best = None;
        for p in span(0) {
            for d in span(1) {
                let progress = [i64::from(p.abs_diff(current[0])), i64::from(d.abs_diff(current[1]))];
                let moves_alone = opposing && (progress[0] == 0) != (progress[1] == 0);
                if !allowed([p, d]) || moves_alone {
                    continue;
                }
                let distance = i64::from(p.abs_diff(proposed[0])) + i64::from(d.abs_diff(proposed[1]));
                let skew = (progress[0] * requested[1] - progress[1] * requested[0]).abs();
                let key = (distance, skew, -(progress[0] + progress[1]), p, d);
                if best.is_none_or(|best| key < best) {
                    best = Some(key);
                }
            }
        }
        best.map_or(current, |(.., p, d)| [p, d])
    }

    /// What two pools of `current` workers may become when `proposed` are wanted.
    pub fn guard_pair(
        self,
        pools: [Endpoint; 2],
        current: [u32; 2],
        proposed: [u32; 2],
    ) -> Guarded<[u32; 2]> {
        let largest: u64 = pools[0].gpus.max(pools[1].gpus).into();
        let tolerance = if self.max.is_some() { largest } else { 0 };
        let total = gpus(current[0], pools[0]) + gpus(current[1], pools[1]);
        if !self.contains(total, tolerance) {
            return Guarded { workers: self.clamp_pair(pools, current), reconciles: true };
        }
        let grows = proposed[0] > current[0] || proposed[1] > current[1];
        let opposing = opposing(current, proposed);
        let at_floor = self.min.is_some_and(|min| total <= min.into());
        let at_ceiling = self.max.is_some_and(|max| total >= max.into());
        if (at_floor && !grows) || (at_ceiling && grows && !opposing) {
            return Guarded::free(current);
        }
        if opposing && (at_floor || at_ceiling) {
            return Guarded::free(self.directional_fit(pools, current, proposed));
        }
        let allowed = self.clamp_pair(pools, proposed);
        let lies_between = (0..2).all(|pool| {
            let (from, to) = (current[pool].min(proposed[pool]), current[pool].max(proposed[pool]));
            (from..=to).contains(&allowed[pool])
        });
        let spent = gpus(allowed[0], pools[0]) + gpus(allowed[1], pools[1]);
        Guarded::free(if lies_between && self.contains(spent, tolerance) { allowed } else { current })
    }
}

fn shrink_pair(pools: [Endpoint; 2], workers: [u32; 2], max: u32, total: u64) -> [u32; 2] {
    let [prefill, decode] = pools;
    if gpus(prefill.min, prefill) + gpus(decode.min, decode) > max.into() {
        return [0, 0];
    }
    let share = f64::from(max) / total as f64;
    let room = (u64::from(max) - gpus(decode.min, decode)) / u64::from(prefill.gpus);
    let scaled = (f64::from(workers[0]) * share).floor() as u64;
    let p = prefill.min.max(room.min(scaled) as u32);
    let rest = u64::from(max) - gpus(p, prefill);
    [p, decode.min.max((rest / u64::from(decode.gpus)) as u32)]
}

/// Whether one pool is to grow and the other to shrink.
fn opposing(current: [u32; 2], proposed: [u32; 2]) -> bool {
    let direction = |pool: usize| proposed[pool].cmp(&current[pool]);
    direction(0) != Ordering::Equal && direction(0) == direction(1).reverse()
}

fn gpus(workers: u32, pool: Endpoint) -> u64 {
    u64::from(workers) * u64::from(pool.gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(gpus: u32) -> Endpoint {
        Endpoint { gpus, min: 1 }
    }

    fn up_to(max: u32) -> Budget {
        Budget { min: None, max: Some(max) }
    }

    /// Case 14.
    #[test]
    fn a_single_pool_stops_at_the_ceiling_and_comes_back_under_it() {
        let guard = |current, proposed| up_to(32).guard_single(pool(4), current, proposed);
        assert_eq!(guard(2, 10), Guarded { workers: 8, reconciles: false });
        assert_eq!(guard(8, 12), Guarded { workers: 8, reconciles: false });
        assert_eq!(guard(10, 10), Guarded { workers: 8, reconciles: true });
    }

    /// Case 16.
    #[test]
    fn two_pools_share_a_ceiling() {
        let guard = |pools: [u32; 2], max, current, proposed| {
            up_to(max).guard_pair(pools.map(pool), current, proposed).workers
        };
        assert_eq!(guard([2, 2], 12, [2, 4], [3, 4]), [2, 4]);
        assert_eq!(guard([2, 2], 12, [2, 4], [3, 3]), [3, 3]);
        assert_eq!(guard([1, 4], 12, [4, 2], [3, 3]), [4, 2], "both or neither");
        assert_eq!(guard([2, 4], 20, [2, 2], [5, 3]), [4, 3]);
        assert_eq!(guard([2, 4], 20, [2, 2], [5, 6]), [2, 4]);
        assert_eq!(up_to(20).directional_fit([pool(2), pool(4)], [2, 2], [5, 6]), [4, 3]);
    }

    #[test]
    fn a_floor_holds_and_is_filled() {
        let budget = Budget { min: Some(8), max: Some(32) };
        assert_eq!(budget.guard_single(pool(4), 2, 1).workers, 2, "at the floor");
        assert_eq!(budget.clamp_single(pool(4), 0), 2);
        let floor = Budget { min: Some(9), max: None };
        assert_eq!(floor.guard_single(pool(4), 1, 1), Guarded { workers: 3, reconciles: true });
        assert_eq!(floor.clamp_pair([pool(2), pool(4)], [1, 1]), [2, 2]);
    }

    #[test]
    fn prefill_grows_as_far_as_it_can_where_decode_would_have_to_shrink() {
        let pools = [pool(9), pool(1)];
        let budget = Budget { min: Some(57), max: Some(60) };
        // 47 GPUs are 57 / 47 too few: 7 prefill workers would do with no decode worker, and 65 GPUs are too many.
        assert_eq!(budget.clamp_pair(pools, [5, 2]), [6, 2]);
        let room = Budget { min: Some(57), max: Some(65) };
        assert_eq!(room.clamp_pair(pools, [5, 2]), [7, 2]);
        // 7 x (58 / 14) is 29 and a trifle.
        let narrow = Budget { min: Some(58), max: Some(58) };
        assert_eq!(narrow.clamp_pair([pool(1), pool(1)], [7, 7]), [30, 28]);
        // Decode has to grow too, and there is no room for that: nothing can be done.
        let wide = Budget { min: Some(20), max: Some(20) };
        assert_eq!(wide.clamp_pair([pool(4), pool(9)], [1, 0]), [1, 0]);
    }

    #[test]
    fn an_impossible_minimum_leaves_nothing() {
        let pools = [Endpoint { gpus: 4, min: 2 }, Endpoint { gpus: 4, min: 2 }];
        assert_eq!(up_to(12).clamp_pair(pools, [3, 3]), [0, 0]);
        assert_eq!(up_to(4).clamp_single(pools[0], 3), 0);
    }
}
