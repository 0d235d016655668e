//! Which block size fits a trace: the number of ids of each row tells.

/// Block sizes `b` for which every row seen has `ceil(input_length / b)` ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct FittingSizes {
    least: u64,
    most: u64,
}

impl FittingSizes {
    pub(super) fn all() -> Self {
        Self { least: 1, most: u64::MAX }
    }

    /// Keeps those sizes that give `ids` blocks for a prompt of `input_length` tokens.
    pub(super) fn keep(&mut self, input_length: u32, ids: u32) {
        let (input_length, ids) = (u64::from(input_length), u64::from(ids));
        // ceil(L / b) = n  <=>  L / n <= b < L / (n - 1)
        self.least = self.least.max(input_length.div_ceil(ids));
        if ids > 1 {
            self.most = self.most.min(input_length.div_ceil(ids - 1) - 1);
        }
    }

    /// What to tell somebody whose size does not fit.
    pub(super) fn advice(self) -> String {
        let Self { least, most } = self;
        if least > most {
            return "no block size fits every row: the hash_ids were made for several sizes, or wrongly"
                .into();
        }
        if least == most {
            return format!(
                "a block size of {least} is the only one that fits every row: set `workload.trace_block_size: {least}`, or \
                 --block-size {least} of `spica trace`"
            );
        }
        let range = match most {
            u64::MAX => format!("every size from {least} on fits"),
            _ => format!("every size from {least} to {most} fits"),
        };
        match least.checked_next_power_of_two() {
            Some(size) if size <= most => {
                format!(
                    "a block size of {size} fits every row ({range}): set `workload.trace_block_size: {size}`, or \
                     --block-size {size} of `spica trace`"
                )
            }
            _ => format!(
                "{range} every row: set `workload.trace_block_size`, or --block-size of `spica trace`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(rows: &[(u32, u32)]) -> String {
        let mut sizes = FittingSizes::all();
        for (input_length, ids) in rows {
            sizes.keep(*input_length, *ids);
        }
        sizes.advice()
    }

    #[test]
    fn the_sizes_that_fit_are_found_by_trying_all() {
        for size in 1..40_u32 {
            let rows: Vec<(u32, u32)> = (1..30_u32).map(|n| (n * 7, (n * 7).div_ceil(size))).collect();
            let mut sizes = FittingSizes::all();
            for (length, ids) in &rows {
                sizes.keep(*length, *ids);
            }
            for other in 1..60_u32 {
                let fits = rows.iter().all(|(length, ids)| length.div_ceil(other) == *ids);
                let kept = (sizes.least..=sizes.most).contains(&u64::from(other));
                assert_eq!(fits, kept, "{size} {other}");
            }
        }
    }

    #[test]
    fn advice_names_a_size() {
        assert!(advice(&[(130, 3), (190, 3), (640, 10), (65, 2)]).contains("size of 64 is the only one"));
        assert!(advice(&[(16, 2)]).contains("size of 8 fits every row (every size from 8 to 15 fits)"));
        assert!(advice(&[(100, 1)]).contains("size of 128 fits every row (every size from 100 on fits)"));
        assert!(advice(&[(18, 2)]).contains("size of 16 fits every row (every size from 9 to 17 fits)"));
        assert!(advice(&[(18, 2), (10, 1), (11, 1), (17, 2), (15, 1)]).contains("size of 16"));
        assert!(advice(&[(26, 2), (20, 1), (20, 2)]).contains("no block size fits"));
    }
}
