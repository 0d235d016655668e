//! Making a policy from its name and fields, and saying in plain words why that cannot be done.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::config::scenario::PolicyConfig;

/// Makes a policy from its fields.
pub(super) type Factory<T> = fn(Map<String, Value>) -> Result<Box<T>, serde_json::Error>;

/// A policy that cannot be made as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyError {
    /// The path of its key.
    pub location: String,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
}

impl PolicyError {
    /// The problems, each with the path of its key: `deployment.router.policy: ...`.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let dot = if self.location.is_empty() { "" } else { "." };
        self.problems.iter().map(move |problem| format!("{}{dot}{problem}", self.location))
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().collect::<Vec<_>>().join("\n"))
    }
}

/// Makes what is registered under the name of `config`; `kind` says what that would be, `others` which names it has beside those
/// that are registered.
pub(super) fn make<T: ?Sized>(
    factories: &BTreeMap<&'static str, Factory<T>>,
    kind: &str,
    config: &PolicyConfig,
    others: impl IntoIterator<Item = &'static str>,
) -> Result<Box<T>, PolicyError> {
    let name = config.policy.as_str();
    let Some(factory) = factories.get(name) else {
        let known: Vec<_> = factories.keys().copied().chain(others).collect();
        let nearest = nearest(name, known.iter().copied());
        let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"));
        let what = if name.is_empty() {
            format!("the name of the {kind} is missing")
        } else {
            format!("unknown {kind} `{name}`")
        };
        let problem = format!("policy: {what}; known are {}{hint}", known.join(", "));
        return Err(refuse(config, vec![problem]));
    };
    let mut fields = config.fields.clone();
    fields.values_mut().for_each(write_whole);
    factory(fields.clone()).map_err(|error| {
        let mut problems = field_problems(*factory, &fields);
        if problems.is_empty() {
            problems.push(format!("policy: `{name}`: {error}"));
        }
        refuse(config, problems)
    })
}

/// Writes whole numbers without a fraction: `8.0` is as good as `8` here, as everywhere else in a configuration.
fn write_whole(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(write_whole),
        Value::Object(values) => values.values_mut().for_each(write_whole),
        Value::Number(number) if number.is_f64() => {
            let whole =
                number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= LARGEST_EXACT);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

/// Up to here every whole number has a floating-point number of its own.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// What is wrong with each field by itself.
fn field_problems<T: ?Sized>(factory: Factory<T>, fields: &Map<String, Value>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, value) in fields {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        if let Some(error) = factory(alone).err().map(|error| error.to_string())
            && !error.starts_with("missing field")
        {
            problems.push(format!("{name}: {}", in_plain_words(&error)));
        }
    }
    problems
}

/// Refuses a policy at its key.
pub(super) fn refuse(config: &PolicyConfig, problems: Vec<String>) -> PolicyError {
    PolicyError { location: config.location.clone(), problems }
}

/// The known name that was probably meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, known)| *distance <= known.len() / 2)
        .min()
        .map(|(_, known)| known)
}

/// Serde's message in the words of a configuration, with the nearest name where one is unknown.
fn in_plain_words(message: &str) -> String {
    const WORDS: [(&str, &str); 11] = [
        ("floating point `", "`"),
        ("integer `", "`"),
        ("string \"", "the text \""),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0 to 18446744073709551615"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("expected a map", "expected keys with values"),
        ("invalid type: map", "invalid type: a mapping"),
        ("invalid type: sequence", "invalid type: a list"),
    ];
    WORDS.iter().fold(with_nearest_name(message), |text, (rust, plain)| text.replace(rust, plain))
}

/// Adds the nearest name to serde's message about an unknown field.
fn with_nearest_name(message: &str) -> String {
    let names: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    match names.split_first() {
        Some((unknown, known)) if message.starts_with("unknown") => {
            match nearest(unknown, known.iter().copied()) {
                Some(nearest) => format!("{message}; did you mean `{nearest}`?"),
                None => message.to_string(),
            }
        }
        _ => message.to_string(),
    }
}
