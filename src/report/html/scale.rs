//! From numbers to places on an axis.

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    least: f64,
    most: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
}

impl Scale {
    /// An axis that holds all `values`, from `start` to `end` in the drawing. A linear axis ends at round numbers.
    pub(super) fn over(values: impl Iterator<Item = f64>, start: f64, end: f64, logarithmic: bool) -> Self {
        let exact = Self::exact(values, start, end, logarithmic);
        if logarithmic {
            return exact;
        }
        let step = step(exact.least, exact.most);
        let (least, most) = ((exact.least / step).floor() * step, (exact.most / step).ceil() * step);
        Self { least, most, ..exact }
    }

    /// An axis that ends where its values do.
    pub(super) fn exact(values: impl Iterator<Item = f64>, start: f64, end: f64, logarithmic: bool) -> Self {
        let usable = |value: &f64| value.is_finite() && (!logarithmic || *value > 0.0);
        let (mut least, mut most) =
            values.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        if least > most {
            (least, most) = if logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if least == most {
            if logarithmic {
                (least, most) = (least / 2.0, most * 2.0);
            } else if least == 0.0 {
                most = 1.0;
            } else {
                (least, most) = (least.min(0.0), most.max(0.0));
            }
        }
        Self { least, most, start, end, logarithmic }
    }

    /// A linear axis between two numbers.
    pub(super) fn between(least: f64, most: f64, start: f64, end: f64) -> Self {
        Self { least, most, start, end, logarithmic: false }
    }

    /// Where a number stands; what lies outside stands at the edge.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            if value <= 0.0 { 0.0 } else { (value / self.least).ln() / (self.most / self.least).ln() }
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Round numbers along the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            return self.decades();
        }
        let step = step(self.least, self.most);
        let first = (self.least / step - 1e-9).ceil() as i64;
        let last = (self.most / step + 1e-9).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }

    fn decades(&self) -> Vec<f64> {
        let first = self.least.log10().floor() as i32;
        let last = self.most.log10().ceil() as i32;
        let parts: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (first..=last)
            .flat_map(|power| parts.iter().map(move |part| part * 10_f64.powi(power)))
            .filter(|tick| (self.least..=self.most).contains(tick))
            .collect()
    }
}

/// A round distance that makes about five parts.
fn step(least: f64, most: f64) -> f64 {
    let raw = (most - least) / 5.0;
    let power = 10_f64.powf(raw.log10().floor());
    let part = raw / power;
    let round = match part {
        part if part <= 1.0 => 1.0,
        part if part <= 2.0 => 2.0,
        part if part <= 2.5 => 2.5,
        part if part <= 5.0 => 5.0,
        _ => 10.0,
    };
    round * power
}

/// A number beside an axis.
pub(super) fn label(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 3,
        size => (3.0 - size.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{scaled:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let scale = Scale::over([3.0, 97.0].into_iter(), 0.0, 100.0, false);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((scale.place(50.0), scale.place(-5.0), scale.place(1e9)), (50.0, 0.0, 100.0));
    }

    #[test]
    fn logarithmic_axes() {
        let scale = Scale::over([1.0, 100.0, 0.0].into_iter(), 0.0, 100.0, true);
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!((scale.place(10.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn degenerate_axes_still_have_a_length() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![-2.0], vec![f64::NAN]] {
            for logarithmic in [false, true] {
                let scale = Scale::over(values.iter().copied(), 0.0, 10.0, logarithmic);
                assert!(scale.place(5.0).is_finite(), "{values:?}");
                assert!(!scale.ticks().is_empty(), "{values:?}");
            }
        }
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.0, 0.25, 12_345.0, 2_500_000.0, 0.000_02, 100.0, 1234.5].map(label);
        assert_eq!(labels, ["0", "0.25", "12.345k", "2.5M", "0.00002", "100", "1234.5"]);
    }
}
