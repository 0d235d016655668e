//! Prices of single passes, asked for as rows: `deployment,phase,batch,new_or_context,prefix`.

use std::io::BufRead;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::Serialize;

use super::model::{PassTables, Priced};
use super::pack::Pack;
use crate::timing::csv::{Csv, Row, RowProblem};

/// The columns of a query, in their usual order.
pub const QUERY_COLUMNS: [&str; 5] = ["deployment", "phase", "batch", "new_or_context", "prefix"];
/// The columns that an answer adds.
pub const ANSWER_COLUMNS: [&str; 3] = ["latency_ms", "source", "extrapolated"];
/// Larger than any pass; it keeps products of tokens within their types.
const MOST_TOKENS: u32 = 1 << 30;

/// A row of a query with its answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The fields of the row under their columns, as they were given.
    #[serde(flatten)]
    pub given: IndexMap<String, String>,
    /// Milliseconds of one pass.
    pub latency_ms: f64,
    /// Where they come from.
    pub source: String,
    /// Whether the profile had to be continued beyond its samples.
    pub extrapolated: bool,
}

/// What a row asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    Prefill { batch: u32, new: u32, prefix: u32 },
    Decode { batch: u32, context: f64 },
}

/// Answers every row of a query.
///
/// # Errors
/// Every row that cannot be answered.
pub fn answer(reader: impl BufRead) -> Result<Vec<Answer>, Vec<RowProblem>> {
    let csv = Csv::read(reader, &QUERY_COLUMNS)?;
    let mut problems = csv.repeated(|_| true);
    problems.extend(ANSWER_COLUMNS.iter().filter(|name| csv.column(name).is_some()).map(|name| {
        RowProblem::new(
            1,
            format!("{name}: an answer adds this column: leave it out or call it something else"),
        )
    }));
    if !problems.is_empty() {
        return Err(problems);
    }
    let missing: Vec<&str> =
        QUERY_COLUMNS.into_iter().filter(|name| *name != "prefix" && csv.column(name).is_none()).collect();
    if !missing.is_empty() {
        let message =
            format!("columns are missing: {}; a query has {}", missing.join(", "), QUERY_COLUMNS.join(","));
        return Err(vec![RowProblem::new(1, message)]);
    }
    let mut profiles = Profiles::default();
    let (mut answers, mut problems) = (Vec::new(), Vec::new());
    for row in &csv.rows {
        match answer_row(&csv, row, &mut profiles) {
            Ok(answer) => answers.push(answer),
            Err(found) => {
                problems.extend(found.into_iter().map(|message| RowProblem::new(row.line, message)));
            }
        }
    }
    if problems.is_empty() { Ok(answers) } else { Err(problems) }
}

/// The profiles that a query has named so far: each is prepared once, each unknown name looked for once.
#[derive(Default)]
struct Profiles {
    by_name: IndexMap<String, Result<(String, Arc<PassTables>), String>>,
}

impl Profiles {
    fn get(&mut self, name: &str) -> Result<(&str, &PassTables), String> {
        let found = self.by_name.entry(name.to_owned()).or_insert_with(|| {
            let entry = Pack::embedded().named(name).map_err(|error| error.message)?;
            Ok((entry.profile.id.clone(), entry.pass_tables()))
        });
        found.as_ref().map(|(id, tables)| (id.as_str(), tables.as_ref())).map_err(Clone::clone)
    }
}

fn answer_row(csv: &Csv, row: &Row, profiles: &mut Profiles) -> Result<Answer, Vec<String>> {
    let field = |name: &str| csv.column(name).map_or("", |place| row.fields[place].as_str());
    let profile = profiles.get(field("deployment")).map_err(|message| format!("deployment: {message}"));
    let pass = pass(field);
    let (Ok((id, tables)), Ok(pass)) = (&profile, &pass) else {
        let mut problems = pass.err().unwrap_or_default();
        problems.extend(profile.err());
        return Err(problems);
    };
    let Priced { ms, extrapolated } = match *pass {
        Pass::Prefill { batch, new, prefix } => tables.prefill(batch, new, prefix),
        Pass::Decode { batch, context } => tables.decode(batch, context),
    };
    let given = csv.columns.iter().cloned().zip(row.fields.iter().cloned()).collect();
    Ok(Answer { given, latency_ms: ms, source: format!("profile:{id}"), extrapolated })
}

fn pass<'a>(field: impl Fn(&str) -> &'a str) -> Result<Pass, Vec<String>> {
    let mut problems = Vec::new();
    let mut whole = |name: &str, least: u32, absent: Option<u32>| {
        let text = field(name);
        if text.is_empty()
            && let Some(absent) = absent
        {
            return absent;
        }
        match text.parse::<u32>() {
            Ok(number) if (least..=MOST_TOKENS).contains(&number) => number,
            _ => {
                problems
                    .push(format!("{name}: `{text}` is not a whole number from {least} to {MOST_TOKENS}"));
                least
            }
        }
    };
    let batch = whole("batch", 1, None);
    let prefix = whole("prefix", 0, Some(0));
    let pass = match field("phase") {
        "prefill" => Some(Pass::Prefill { batch, new: whole("new_or_context", 1, None), prefix }),
        "decode" => {
            let text = field("new_or_context");
            let context = text.parse::<f64>().ok();
            let context = context.filter(|context| (1.0..=f64::from(MOST_TOKENS)).contains(context));
            if context.is_none() {
                problems.push(format!("new_or_context: `{text}` is not a number from 1 to {MOST_TOKENS}"));
            }
            if prefix > 0 {
                problems.push(format!(
                    "prefix: {prefix} has no meaning in a decode pass; the context is the whole length"
                ));
            }
            context.map(|context| Pass::Decode { batch, context })
        }
        other => {
            problems.push(format!("phase: `{other}` is neither `prefill` nor `decode`"));
            None
        }
    };
    match pass {
        Some(pass) if problems.is_empty() => Ok(pass),
        _ => Err(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "m25_fp8_b200_vllm019_tp4ep4";

    #[test]
    fn rows_are_answered_in_their_order() {
        let query = format!(
            "prefix,deployment,phase,batch,new_or_context,remark\n\
             100,{ID},prefill,2,300,first\n,{ID},decode,8,1000.5,\n0,{ID},decode,513,1000,\n"
        );
        let answers = answer(query.as_bytes()).unwrap();
        let entry = Pack::embedded().named(ID).unwrap();
        let tables = PassTables::new(entry.axes, &entry.profile.tables);
        assert_eq!(answers[0].latency_ms, tables.prefill(2, 300, 100).ms);
        assert_eq!(answers[1].latency_ms, tables.decode(8, 1000.5).ms);
        assert_eq!(answers[0].source, "profile:m25_fp8_b200_vllm019_g4_tep");
        assert_eq!(answers[0].given["remark"], "first");
        assert_eq!(
            answers.iter().map(|answer| answer.extrapolated).collect::<Vec<_>>(),
            [false, false, true]
        );
        let usual = answer(format!("{ID},decode,8,1000.5,0\n").as_bytes()).unwrap();
        assert_eq!(usual[0].latency_ms, answers[1].latency_ms);
    }

    #[test]
    fn every_bad_row_is_reported() {
        let query = format!(
            "deployment,phase,batch,new_or_context,prefix\n\
             {ID},prefil,1,1,0\n{ID},prefill,0,-1,x\n{ID}x,decode,1,0,5\n{ID},decode,1,nan,0\n"
        );
        let problems = answer(query.as_bytes()).unwrap_err();
        let all: Vec<String> =
            problems.iter().map(|problem| format!("{} {}", problem.line, problem.message)).collect();
        let expected = [
            "2 phase: `prefil`",
            "3 batch: `0`",
            "3 prefix: `x`",
            "3 new_or_context: `-1`",
            "4 new_or_context: `0`",
            "4 prefix: 5 has no meaning",
            "4 deployment: `m25_fp8_b200_vllm019_tp4ep4x` is no profile; the nearest names are m25_fp8",
            "5 new_or_context: `nan`",
        ];
        assert_eq!(all.len(), expected.len(), "{all:#?}");
        for (found, expected) in all.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
        let twice =
            format!("deployment,phase,phase,batch,new_or_context,source\n{ID},decode,prefill,1,9,me\n");
        let problems = answer(twice.as_bytes()).unwrap_err();
        let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "phase: stands in columns 2 and 3",
                "source: an answer adds this column: leave it out or call it something else"
            ]
        );
        let problems = answer("deployment,batch\na,1\n".as_bytes()).unwrap_err();
        assert!(problems[0].message.contains("phase, new_or_context"), "{problems:?}");
    }
}
