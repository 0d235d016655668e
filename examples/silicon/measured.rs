//! Rows of measured points.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use spica::timing::csv::{Csv, RowProblem, RowProblems};

/// One measured point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) system: String,
    pub(crate) backend: String,
    pub(crate) version: String,
    pub(crate) precision: String,
    /// Longest prompt, in tokens.
    pub(crate) isl: u32,
    /// Longest output, in tokens.
    pub(crate) osl: u32,
    pub(crate) concurrency: u32,
    pub(crate) layout: Layout,
    pub(crate) ttft_ms: f64,
    pub(crate) tpot_ms: f64,
}

/// How the workers of a point were laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One worker that does both phases.
    Aggregated(Shape),
    /// Workers for each phase: how many, and the shape of each.
    Split { prefill: (u32, Shape), decode: (u32, Shape) },
}

impl Layout {
    /// Its short name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Aggregated(shape) => shape.name(),
            Self::Split { prefill: (prefills, prefill), decode: (decodes, decode) } => {
                format!("{prefills}x{} + {decodes}x{}", prefill.name(), decode.name())
            }
        }
    }

    pub(crate) fn is_split(self) -> bool {
        matches!(self, Self::Split { .. })
    }
}

/// How a worker spreads a model over its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) tp: u32,
    pub(crate) pp: u32,
    pub(crate) attention_dp: u32,
    pub(crate) moe_tp: u32,
    pub(crate) moe_ep: u32,
}

impl Shape {
    /// GPUs, how attention and how experts are spread: `4tp`, `8tep`, `8dep`, `4dtp`.
    pub(crate) fn name(self) -> String {
        let gpus = self.tp * self.pp * self.attention_dp;
        let attention = if self.attention_dp > 1 { "d" } else { "t" };
        match (self.moe_ep > 1, self.attention_dp > 1) {
            (true, _) => format!("{gpus}{attention}ep"),
            (false, true) => format!("{gpus}dtp"),
            (false, false) => format!("{gpus}tp"),
        }
    }

    /// What was measured, from what is written.
    ///
    /// Rows of one of the two ways in which the data were collected have the number of GPUs in two fields that are
    /// multiplied: `tp4_ep4` on four GPUs is written as tp 16 with experts 4 by 4, and its four attention-data-parallel
    /// ranks as tp 4, attention dp 4, ep 16. Wherever an id spells out its `tpN_epM`, this reading agrees with it.
    fn read_as_driven(self) -> Self {
        let is_doubled = (self.moe_tp > 1 && self.moe_ep > 1) || (self.tp > 1 && self.attention_dp > 1);
        if !is_doubled {
            return self;
        }
        let gpus = (self.tp * self.attention_dp).isqrt();
        let (tp, attention_dp) = if self.attention_dp > 1 { (1, gpus) } else { (gpus, 1) };
        let moe_ep = if self.moe_tp > 1 { self.moe_ep } else { gpus };
        Self { tp, attention_dp, moe_tp: gpus / moe_ep.clamp(1, gpus), moe_ep, ..self }
    }
}

impl Measured {
    /// Whether two rows tell of one run: the data hold some runs twice, once from each snapshot.
    pub(crate) fn is_same_measurement(&self, other: &Self) -> bool {
        *self == Self { id: self.id.clone(), ..other.clone() }
    }
}

/// All complete rows of the public database, aggregated ones first.
///
/// # Errors
/// Files that cannot be read and rows that are not understood, by line.
pub(crate) fn read_folder(folder: &Path) -> Result<Vec<Measured>, Box<dyn std::error::Error>> {
    let mut rows = read(&folder.join("aic_silicon_agg.csv"), |fields| {
        Ok(Layout::Aggregated(fields.shape("")?.read_as_driven()))
    })?;
    rows.extend(read(&folder.join("aic_silicon_disagg.csv"), |fields| {
        Ok(Layout::Split {
            prefill: (fields.number("prefill_workers")?, fields.shape("prefill_")?),
            decode: (fields.number("decode_workers")?, fields.shape("decode_")?),
        })
    })?);
    Ok(rows)
}

fn read(
    path: &Path,
    layout: impl Fn(Fields<'_>) -> Result<Layout, String>,
) -> Result<Vec<Measured>, Box<dyn std::error::Error>> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
    let refuse = |problems| RowProblems { file: name.clone(), problems };
    let csv = Csv::read(BufReader::new(file), &["id"]).map_err(refuse)?;
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    for row in &csv.rows {
        let fields = Fields { csv: &csv, fields: &row.fields };
        match fields.is_wanted().and_then(|wanted| wanted.then(|| fields.measured(&layout)).transpose()) {
            Ok(measured) => rows.extend(measured),
            Err(message) => problems.push(RowProblem::new(row.line, message)),
        }
    }
    if problems.is_empty() { Ok(rows) } else { Err(refuse(problems).into()) }
}

/// The fields of one row by their names.
#[derive(Clone, Copy)]
struct Fields<'a> {
    csv: &'a Csv,
    fields: &'a [String],
}

impl<'a> Fields<'a> {
    fn text(self, name: &str) -> Result<&'a str, String> {
        let place = self.csv.column(name).ok_or_else(|| format!("there is no column `{name}`"))?;
        Ok(&self.fields[place])
    }

    fn number<T: std::str::FromStr>(self, name: &str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("{name}: `{text}` is not a number of its kind"))
    }

    fn shape(self, role: &str) -> Result<Shape, String> {
        let size = |name: &str| -> Result<u32, String> { self.number(&format!("{role}{name}")) };
        let [tp, pp, attention_dp, moe_tp, moe_ep] =
            ["tp", "pp", "attention_dp", "moe_tp", "moe_ep"].map(size);
        Ok(Shape { tp: tp?, pp: pp?, attention_dp: attention_dp?, moe_tp: moe_tp?, moe_ep: moe_ep? })
    }

    fn is_wanted(self) -> Result<bool, String> {
        Ok(self.text("complete")? == "1" && self.text("origin")? == "inferencex")
    }

    fn measured(self, layout: impl Fn(Self) -> Result<Layout, String>) -> Result<Measured, String> {
        let text = |name: &str| self.text(name).map(str::to_owned);
        Ok(Measured {
            id: text("id")?,
            model: text("model")?,
            system: text("system")?,
            backend: text("backend")?,
            version: text("backend_version")?,
            precision: text("precision")?,
            isl: self.number("isl")?,
            osl: self.number("osl")?,
            concurrency: self.number("concurrency")?,
            layout: layout(self)?,
            ttft_ms: self.number("ttft_ms")?,
            tpot_ms: self.number("tpot_ms")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape([tp, attention_dp, moe_tp, moe_ep]: [u32; 4]) -> Shape {
        Shape { tp, pp: 1, attention_dp, moe_tp, moe_ep }
    }

    #[test]
    fn sizes_that_were_multiplied_are_read_as_driven() {
        for (written, driven) in [
            ([4, 1, 4, 1], [4, 1, 4, 1]),
            ([8, 1, 1, 8], [8, 1, 1, 8]),
            ([1, 8, 1, 8], [1, 8, 1, 8]),
            ([16, 1, 4, 4], [4, 1, 1, 4]),
            ([64, 1, 8, 8], [8, 1, 1, 8]),
            ([4, 1, 2, 2], [2, 1, 1, 2]),
            ([1, 16, 4, 4], [1, 4, 1, 4]),
            ([4, 4, 1, 16], [1, 4, 1, 4]),
        ] {
            assert_eq!(shape(written).read_as_driven(), shape(driven), "{written:?}");
        }
    }

    #[test]
    fn shapes_have_short_names() {
        let names = [[4, 1, 4, 1], [8, 1, 1, 8], [1, 8, 1, 8], [1, 4, 4, 1]].map(|sizes| shape(sizes).name());
        assert_eq!(names, ["4tp", "8tep", "8dep", "4dtp"]);
    }
}
