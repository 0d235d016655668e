//! A portion of the requests, for a first look at a candidate.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::config::scenario::{WorkloadConfig, WorkloadSource};
use crate::config::search::Fidelity;

/// The first of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Portion {
    /// So many rows of a trace.
    Rows(u32),
    /// This share of generated requests.
    Fraction(f64),
}

impl Portion {
    /// The workload with only this portion of its requests.
    pub fn of(self, mut workload: WorkloadConfig) -> WorkloadConfig {
        match (&mut workload.source, self) {
            (WorkloadSource::Trace(trace), Self::Rows(rows)) => trace.max_requests = Some(rows),
            (WorkloadSource::Synthetic(synthetic), Self::Fraction(fraction)) => {
                synthetic.count = (f64::from(synthetic.count) * fraction).round_ties_even().max(1.0) as u32;
            }
            // Portions of a trace are counted in rows, and those of other workloads are shares.
            _ => {}
        }
        workload
    }

    /// The portions that a search looks at, the smallest first. `trace_rows` are the rows of its trace, if it has one.
    ///
    /// # Errors
    /// When a portion is not smaller than the whole, or not greater than the one before it.
    pub fn all(fidelity: &Fidelity, trace_rows: Option<u32>) -> Result<Vec<Self>, Refusal> {
        let Some(all) = trace_rows else {
            return Ok(fidelity.fractions.iter().map(|fraction| Self::Fraction(*fraction)).collect());
        };
        if let Some(rows) = fidelity.rows.iter().find(|rows| **rows >= all) {
            let message = format!("{rows} rows are no part of the trace, of which {all} rows are replayed");
            return Err(Refusal::new("sweep.fidelity.rows", message));
        }
        let mut portions: Vec<u32> = fidelity.rows.clone();
        for &fraction in &fidelity.fractions {
            let rows = ((f64::from(all) * fraction).ceil() as u32).clamp(1, all);
            let refuse = |problem: String| Err(Refusal::new("sweep.fidelity.fractions", problem));
            if rows == all {
                return refuse(format!("{fraction} of {all} rows is all of them; leave it out"));
            }
            if portions.last() == Some(&rows) {
                return refuse(format!(
                    "{fraction} of {all} rows is {rows} of them, as is the fraction before it; leave it out"
                ));
            }
            portions.push(rows);
        }
        Ok(portions.into_iter().map(Self::Rows).collect())
    }
}

impl fmt::Display for Portion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => write!(formatter, "the first {rows} rows"),
            Self::Fraction(fraction) => write!(formatter, "the first {} % of the requests", fraction * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fidelity(rows: &[u32], fractions: &[f64]) -> Fidelity {
        Fidelity { rows: rows.to_vec(), fractions: fractions.to_vec(), keep: 0.5 }
    }

    #[test]
    fn shares_of_a_trace_are_whole_rows() {
        let portions = |fidelity, rows| Portion::all(&fidelity, rows).unwrap();
        assert_eq!(portions(fidelity(&[5, 50], &[]), Some(51)), [Portion::Rows(5), Portion::Rows(50)]);
        assert_eq!(portions(fidelity(&[], &[0.02, 0.5]), Some(50)), [Portion::Rows(1), Portion::Rows(25)]);
        let refused = |fractions: &[f64], all| {
            Portion::all(&fidelity(&[], fractions), Some(all)).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&[0.01, 0.02, 0.5], 50),
            "sweep.fidelity.fractions: 0.02 of 50 rows is 1 of them, as is the fraction before it; leave it out"
        );
        assert_eq!(
            refused(&[0.5], 1),
            "sweep.fidelity.fractions: 0.5 of 1 rows is all of them; leave it out"
        );
        assert_eq!(portions(fidelity(&[], &[0.25]), None), [Portion::Fraction(0.25)]);
        let refusal = Portion::all(&fidelity(&[5, 50], &[]), Some(50)).unwrap_err();
        assert!(refusal.to_string().starts_with("sweep.fidelity.rows: 50 rows"), "{refusal}");
    }
}
