//! Every point, one after another.

use std::sync::Arc;

use super::{Observation, Sampler};
use crate::search::space::{Point, Space};

/// Suggests every point of a space once, in its canonical order: layouts outermost, the last knob varying fastest.
#[derive(Debug)]
pub struct Grid {
    space: Arc<Space>,
    next: u64,
}

impl Grid {
    /// A walk over all of `space`.
    pub fn new(space: Arc<Space>) -> Self {
        Self::starting_at(space, 0)
    }

    /// A walk over `space` from the point with this index on.
    pub fn starting_at(space: Arc<Space>, index: u64) -> Self {
        Self { space, next: index }
    }
}

impl Sampler for Grid {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        let end = self.space.size().min(self.next.saturating_add(count as u64));
        let points = (self.next..end).map(|index| self.space.point(index)).collect();
        self.next = end;
        points
    }

    fn observe(&mut self, _point: &Point, _observation: &Observation<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::space::tests::small_space;

    #[test]
    fn walks_over_all_points_and_stops() {
        let space = Arc::new(small_space());
        let mut grid = Grid::new(Arc::clone(&space));
        let mut points = Vec::new();
        while let batch = grid.suggest(5)
            && !batch.is_empty()
        {
            points.extend(batch);
        }
        let all: Vec<Point> = (0..space.size()).map(|index| space.point(index)).collect();
        assert_eq!(points, all);
    }
}
