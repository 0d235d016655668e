//! Rows as traces are usually written, read without a JSON parser, which would take a fifth of a replay.
//!
//! Such a row is an object of the four common fields, each at most once, with whole numbers; `hash_ids` is a list of them.
//! Everything else is left to the parser, which alone says what is wrong.

use super::row::Key;

/// Whole numbers of this many digits fit 64 bits, whatever the digits.
const DIGITS: usize = 19;

/// The fields of plain rows as they are written.
const NAMES: [(&[u8], Key); 4] = [
    (b"\"timestamp\"", Key::Timestamp),
    (b"\"input_length\"", Key::InputLength),
    (b"\"output_length\"", Key::OutputLength),
    (b"\"hash_ids\"", Key::HashIds),
];

/// The fields of a row in its order; that of `hash_ids` has no value.
#[derive(Default)]
pub(super) struct Fields {
    values: [(Option<Key>, u64); NAMES.len()],
}

impl Fields {
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, u64)> {
        self.values.iter().map_while(|(key, value)| Some(((*key)?, *value)))
    }
}

/// Reads a plain row, with each of its ids as it is met; `None`, perhaps after some ids, if it is not plain.
pub(super) fn read(row: &[u8], mut with_id: impl FnMut(u64)) -> Option<Fields> {
    let mut fields = Fields::default();
    let mut rest = Rest(row);
    rest.byte(b'{')?;
    let mut count = 0;
    loop {
        let key = rest.name()?;
        rest.byte(b':')?;
        if fields.iter().any(|(other, _)| other == key) {
            return None;
        }
        let value = match key {
            Key::HashIds => rest.list(&mut with_id).map(|()| 0),
            _ => rest.number(),
        };
        fields.values[count] = (Some(key), value?);
        count += 1;
        if rest.byte(b',').is_none() {
            rest.byte(b'}')?;
            rest.skip_blanks();
            return rest.0.is_empty().then_some(fields);
        }
    }
}

/// What is still to be read.
struct Rest<'r>(&'r [u8]);

impl Rest<'_> {
    /// Goes on behind what JSON counts as blank.
    #[inline]
    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    /// Goes on behind blanks and `byte`, if they come next.
    #[inline]
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.skip_blanks();
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn name(&mut self) -> Option<Key> {
        self.skip_blanks();
        let (rest, key) = NAMES.iter().find_map(|(name, key)| Some((self.0.strip_prefix(*name)?, *key)))?;
        self.0 = rest;
        Some(key)
    }

    /// A whole number that is not negative.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        self.skip_blanks();
        let text = self.0;
        let mut value = 0_u64;
        let mut length = 0;
        for byte in text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(digit.into());
            length += 1;
        }
        self.0 = &text[length..];
        let is_plain = (1..=DIGITS).contains(&length) && (length == 1 || text[0] != b'0');
        is_plain.then_some(value)
    }

    fn list(&mut self, with_id: &mut impl FnMut(u64)) -> Option<()> {
        self.byte(b'[')?;
        if self.byte(b']').is_some() {
            return Some(());
        }
        loop {
            with_id(self.number()?);
            if self.byte(b',').is_none() {
                return self.byte(b']');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Row = (Vec<(Key, u64)>, Vec<u64>);

    /// The fields of a plain row, and its ids.
    fn numbers(row: &str) -> Option<Row> {
        let mut ids = Vec::new();
        let fields = read(row.as_bytes(), |id| ids.push(id))?;
        Some((fields.iter().collect(), ids))
    }

    #[test]
    fn plain_rows_are_read() {
        let row = r#" {"timestamp": 0,"input_length" :18446,	"hash_ids":[ 0, 9999999999999999999,7 ] , "output_length": 12} "#;
        let fields =
            vec![(Key::Timestamp, 0), (Key::InputLength, 18446), (Key::HashIds, 0), (Key::OutputLength, 12)];
        assert_eq!(numbers(row.trim()), Some((fields, vec![0, 9_999_999_999_999_999_999, 7])));
        assert_eq!(numbers(r#"{"hash_ids": []}"#), Some((vec![(Key::HashIds, 0)], vec![])));
    }

    #[test]
    fn the_parser_judges_everything_else() {
        for row in [
            "",
            "{",
            "{}",
            "[1]",
            r#"{"timestamp": 1.5}"#,
            r#"{"timestamp": -1}"#,
            r#"{"timestamp": 01}"#,
            r#"{"timestamp": 1e3}"#,
            r#"{"timestamp": "1"}"#,
            r#"{"timestamp": }"#,
            r#"{"timestamp": 1"#,
            r#"{"timestamp": 1,}"#,
            r#"{"timestamp": 1} x"#,
            r#"{"timestamp": 1 2}"#,
            r#"{"timestamp": 1, "timestamp": 1}"#,
            r#"{"hash_ids": [], "hash_ids": []}"#,
            r#"{"hash_ids": [1,]}"#,
            r#"{"hash_ids": [1 2]}"#,
            r#"{"hash_ids": [00]}"#,
            r#"{"hash_ids": [1}"#,
            r#"{"hash_ids": 1}"#,
            r#"{"hash_ids": [10000000000000000000]}"#,
            "{\"timestamp\":\u{c}1}",
            r#"{"time": 1}"#,
            r#"{"delay": 1}"#,
            r#"{"time\u0073tamp": 1}"#,
            r#"{"output_token_ids": [1]}"#,
        ] {
            assert!(numbers(row).is_none(), "{row}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_a_parser_reads(row in r#"\{("(timestamp|input_length)" ?: ?[0-9]{1,3}, ?){0,2}"hash_ids":[ \t]{0,2}\[([0-9]{1,20}, {0,2}){0,3}[0-9,]{0,2} ?\] ?\} ?"#) {
            if let Some((fields, ids)) = numbers(&row) {
                let parsed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&row).unwrap();
                prop_assert_eq!(parsed.len(), fields.len());
                for (key, value) in fields.into_iter().filter(|(key, _)| *key != Key::HashIds) {
                    prop_assert_eq!(parsed[key.name()].as_u64(), Some(value));
                }
                let listed: Option<Vec<u64>> = parsed["hash_ids"].as_array().unwrap().iter().map(serde_json::Value::as_u64).collect();
                prop_assert_eq!(listed, Some(ids));
            }
        }
    }
}
