//! A parsed document in which every key and value knows where it was written.

use serde_json::Value as Json;

/// A stretch of a source: the file or one override.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Number of the source: 0 is the file, overrides follow.
    pub source: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// First byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar(Scalar),
    List(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) value: Node,
}

/// A scalar as written. Only plain (unquoted) ones can be anything but text.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) plain: bool,
}

/// What a scalar means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    Null,
    Boolean(bool),
    Number(Number),
    Text,
}

/// A finite decimal number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// Written without fraction or exponent, or with an integral value that a double holds exactly.
    Integer(i128),
    Real(f64),
}

impl Number {
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Real(real) => real,
        }
    }

    /// Reads a decimal number; `None` for anything else, and for what is not finite.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        // A leading zero means octal to some readers and nothing to others.
        let mut start = digits.chars();
        if start.next() == Some('0') && start.next().is_some_and(|next| next.is_ascii_digit()) {
            return None;
        }
        if digits.is_empty() || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return None;
        }
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(Self::Integer);
        }
        if !digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte)) {
            return None;
        }
        let real: f64 = text.parse().ok().filter(|real: &f64| real.is_finite())?;
        let exact = real.fract() == 0.0 && real.abs() <= 9_007_199_254_740_992.0;
        Some(if exact { Self::Integer(real as i128) } else { Self::Real(real) })
    }
}

impl Scalar {
    /// What the scalar means. Only `true` and `false` are booleans.
    pub(super) fn meaning(&self) -> Meaning {
        if !self.plain {
            return Meaning::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "true" => Meaning::Boolean(true),
            "false" => Meaning::Boolean(false),
            text => Number::parse(text).map_or(Meaning::Text, Meaning::Number),
        }
    }

    /// Whether this is one of YAML's own spellings of infinity or not-a-number.
    fn is_non_finite(&self) -> bool {
        let text = self.text.strip_prefix(['-', '+']).unwrap_or(&self.text);
        self.plain && [".inf", ".nan"].iter().any(|word| text.eq_ignore_ascii_case(word))
    }
}

impl Node {
    pub(super) fn mapping(span: Span) -> Self {
        Self { span, content: Content::Mapping(Vec::new()) }
    }

    pub(super) fn null(span: Span) -> Self {
        Self { span, content: Content::Scalar(Scalar { text: String::new(), plain: true }) }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar(scalar) if scalar.meaning() == Meaning::Null)
    }

    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.content {
            Content::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// How messages show the value: as written, shortened.
    pub(super) fn shown(&self) -> String {
        match &self.content {
            Content::Scalar(scalar) if scalar.plain => format!("`{}`", shortened(&scalar.text)),
            Content::Scalar(scalar) => format!("`\"{}\"`", shortened(&scalar.text)),
            Content::List(items) if items.is_empty() => "an empty list".to_owned(),
            Content::List(_) => "a list".to_owned(),
            Content::Mapping(_) => "a mapping".to_owned(),
        }
    }

    /// The value in the data model of JSON, or the place and the reason why it has no place there.
    pub(super) fn to_json(&self) -> Result<Json, (Span, String)> {
        match &self.content {
            Content::Scalar(scalar) => self.scalar_to_json(scalar),
            Content::List(items) => {
                items.iter().map(Self::to_json).collect::<Result<_, _>>().map(Json::Array)
            }
            Content::Mapping(entries) => entries
                .iter()
                .map(|entry| Ok((entry.key.clone(), entry.value.to_json()?)))
                .collect::<Result<_, _>>()
                .map(Json::Object),
        }
    }

    fn scalar_to_json(&self, scalar: &Scalar) -> Result<Json, (Span, String)> {
        if scalar.is_non_finite() {
            return Err((self.span, format!("{} is not a finite number", self.shown())));
        }
        Ok(match scalar.meaning() {
            Meaning::Null => Json::Null,
            Meaning::Boolean(boolean) => Json::Bool(boolean),
            Meaning::Text => Json::String(scalar.text.clone()),
            Meaning::Number(Number::Real(real)) => Json::from(real),
            Meaning::Number(Number::Integer(integer)) => {
                // A fraction of zero was written on purpose by whoever wants a real number.
                if scalar.text.contains(['.', 'e', 'E']) {
                    Json::from(integer as f64)
                } else if let Ok(unsigned) = u64::try_from(integer) {
                    Json::from(unsigned)
                } else if let Ok(signed) = i64::try_from(integer) {
                    Json::from(signed)
                } else {
                    return Err((self.span, format!("{} does not fit in 64 bits", self.shown())));
                }
            }
        })
    }
}

/// The first line of a text, or what of it a message has room for.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= LONGEST && line.len() == text.len() {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(LONGEST).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_and_finite() {
        assert_eq!(Number::parse("18446744073709551615"), Some(Number::Integer(18_446_744_073_709_551_615)));
        assert_eq!(Number::parse("-3"), Some(Number::Integer(-3)));
        assert_eq!(Number::parse("1e3"), Some(Number::Integer(1000)));
        assert_eq!(Number::parse("4.0"), Some(Number::Integer(4)));
        assert_eq!(Number::parse(".5"), Some(Number::Real(0.5)));
        for text in
            ["", "-", "+", ".", "1_000", "0x10", "010", "1e400", "inf", "nan", ".nan", "3k", "1 2", "--1"]
        {
            assert_eq!(Number::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_true_and_false_are_booleans() {
        let plain = |text: &str| Scalar { text: text.to_owned(), plain: true }.meaning();
        assert_eq!(plain("true"), Meaning::Boolean(true));
        for text in ["yes", "no", "on", "off", "True", "FALSE", "y"] {
            assert_eq!(plain(text), Meaning::Text, "{text}");
        }
        assert_eq!(Scalar { text: "true".to_owned(), plain: false }.meaning(), Meaning::Text);
    }
}
