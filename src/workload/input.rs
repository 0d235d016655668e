//! Bytes to lines: gzip by content, lines of bounded length.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::ops::Range;

use flate2::bufread::MultiGzDecoder;

use super::problem::Place;
use crate::config::excerpt::excerpt;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const UNPACKED_BUFFER: usize = 64 * 1024;
/// Bytes behind which the end of a line that is too long is looked for no further.
const LONGEST_SKIPPED: usize = 256 << 20;

/// The text behind `reader`: unpacked when its first bytes say gzip (of one or more members), else as it is.
pub fn unpacked<'r>(mut reader: impl BufRead + 'r) -> io::Result<Box<dyn BufRead + 'r>> {
    let mut start = Vec::with_capacity(GZIP_MAGIC.len());
    reader.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
    let packed = start == GZIP_MAGIC;
    let whole = Cursor::new(start).chain(reader);
    Ok(if packed {
        Box::new(BufReader::with_capacity(UNPACKED_BUFFER, MultiGzDecoder::new(whole)))
    } else {
        Box::new(whole)
    })
}

/// Lines of a text that are not blank, in one buffer.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    limit: usize,
    number: u64,
}

/// A line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// From 1; blank lines count.
    pub(super) number: u64,
    /// Bytes before the text.
    pub(super) indent: usize,
    /// The text without the blanks around it; `None` if it was too long and skipped.
    pub(super) text: Option<&'a [u8]>,
}

/// Columns that are shown of the line of a problem: with its number, about those of a terminal.
const WIDTH: usize = 76;

impl Line<'_> {
    /// The line with a place in it marked: what begins at a column, or else the value of a field.
    pub(super) fn excerpt(&self, place: Place, field: &str) -> Option<String> {
        let text = self.text?;
        let mark = match place {
            Place::Column(_, column) => {
                let start = (column - 1).saturating_sub(self.indent);
                let value = text.get(start..).unwrap_or_default();
                let length = value.iter().position(|byte| matches!(byte, b',' | b'}' | b']'));
                // Where nothing was read yet, the place is all that is known.
                Some(start..start + if field.is_empty() { 1 } else { length.unwrap_or(value.len()) })
            }
            _ => value_of(text, field),
        };
        excerpt(self.number, text, mark, WIDTH)
    }

    /// The digits of a whole number, the value of a field, as they stand there.
    pub(super) fn whole_number(&self, field: &str) -> Option<&str> {
        let text = str::from_utf8(self.text?.get(value_of(self.text?, field)?)?).ok()?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_whole.then_some(text)
    }
}

/// Where the value of a field of a JSON object stands; of an object its beginning, and of a list that of an element, if the field
/// names one and all of them are numbers.
fn value_of(text: &[u8], field: &str) -> Option<Range<usize>> {
    // `hash_ids[2]` and `replay.input_length` are found by their own names.
    let own = field.split('[').next()?.rsplit('.').next().filter(|own| !own.is_empty())?;
    let name = format!("\"{own}\"");
    let after = text.windows(name.len()).position(|part| part == name.as_bytes())? + name.len();
    let start = after + text[after..].iter().position(|byte| !matches!(byte, b' ' | b'\t' | b':'))?;
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ');
    let length = match text[start] {
        b'"' => text[start + 1..].iter().position(|byte| *byte == b'"').map(|end| end + 2),
        b'[' => match element_of(&text[start + 1..], field) {
            Some(element) => return Some(start + 1 + element.start..start + 1 + element.end),
            None => Some(1),
        },
        b'{' => Some(1),
        _ => text[start..].iter().position(is_end),
    };
    Some(start..length.map_or(text.len(), |length| start + length))
}

/// Where the element of `field[2]` stands within a list of numbers, from behind its bracket on.
fn element_of(list: &[u8], field: &str) -> Option<Range<usize>> {
    let index: usize = field.strip_suffix(']')?.rsplit_once('[')?.1.parse().ok()?;
    let end = list.iter().position(|byte| matches!(byte, b']' | b'[' | b'{' | b'"'))?;
    let mut start = 0;
    for (place, element) in list[..end].split(|byte| *byte == b',').enumerate() {
        if place == index && list[end] == b']' {
            let start = start + element.len() - element.trim_ascii_start().len();
            return Some(start..start + element.trim_ascii().len());
        }
        start += element.len() + 1;
    }
    None
}

impl<R: BufRead> Lines<R> {
    /// Lines of at most `limit` bytes.
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, buffer: Vec::new(), limit, number: 0 }
    }

    /// Reads the next line that is not blank; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut too_long = false;
        loop {
            self.buffer.clear();
            let bound = self.limit as u64 + 1;
            if self.reader.by_ref().take(bound).read_until(b'\n', &mut self.buffer)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.len() > self.limit && self.buffer.last() != Some(&b'\n') {
                self.skip_line()?;
                too_long = true;
            }
            if too_long || !unmarked(&self.buffer, self.number).trim_ascii_start().is_empty() {
                break;
            }
        }
        let text = unmarked(&self.buffer, self.number).trim_ascii_start();
        let indent = self.buffer.len() - text.len();
        Ok(Some(Line { number: self.number, indent, text: (!too_long).then(|| text.trim_ascii_end()) }))
    }

    /// Discards the rest of the line.
    fn skip_line(&mut self) -> io::Result<()> {
        let mut skipped = 0;
        loop {
            let chunk = self.reader.fill_buf()?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(used);
            skipped += used;
            if end.is_some() || used == 0 {
                return Ok(());
            }
            if skipped > LONGEST_SKIPPED {
                let most = LONGEST_SKIPPED >> 20;
                return Err(io::Error::other(format!("line {} has no end within {most} MiB", self.number)));
            }
        }
    }
}

/// A first line without the byte order mark that some editors put there.
fn unmarked(line: &[u8], number: u64) -> &[u8] {
    match number {
        1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn text_of(bytes: &[u8]) -> String {
        let mut text = String::new();
        // A buffer of one byte is the hardest case for a look at the first two.
        unpacked(BufReader::with_capacity(1, bytes)).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn gzip_is_known_by_its_content() {
        let two_members = [packed("one\n"), packed("two\n")].concat();
        assert_eq!(text_of(&two_members), "one\ntwo\n");
        for plain in ["", "x", "{}", "plain\n"] {
            assert_eq!(text_of(plain.as_bytes()), plain);
        }
    }

    #[test]
    fn lines_are_trimmed_counted_and_bounded() {
        let text = "\u{feff} a \r\n\r\n0123456789\n0123456789a\nlast".as_bytes();
        let mut lines = Lines::new(BufReader::with_capacity(3, text), 10);
        assert_eq!(lines.next().unwrap(), Some(Line { number: 1, indent: 4, text: Some(b"a") }));
        assert_eq!(lines.next().unwrap(), Some(Line { number: 3, indent: 0, text: Some(b"0123456789") }));
        assert_eq!(lines.next().unwrap(), Some(Line { number: 4, indent: 0, text: None }));
        assert_eq!(lines.next().unwrap(), Some(Line { number: 5, indent: 0, text: Some(b"last") }));
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn values_are_marked() {
        let marked = |place, field| {
            let text = br#"{"a": 1, "bc":[2, 3], "d": "x y", "e": {"f": -7}}"#;
            let line = Line { number: 3, indent: 2, text: Some(text) };
            let excerpt = line.excerpt(place, field).unwrap();
            let arrows = excerpt.lines().nth(1)?;
            let start = arrows.find('^')?;
            Some(excerpt[start..start + arrows.matches('^').count()].to_owned())
        };
        let of = |field| marked(Place::Line(3), field);
        assert_eq!(of("a").as_deref(), Some("1"));
        assert_eq!(of("bc[1]").as_deref(), Some("3"));
        assert_eq!((of("bc[0]").as_deref(), of("bc[2]").as_deref()), (Some("2"), Some("[")));
        assert_eq!(of("d").as_deref(), Some("\"x y\""));
        assert_eq!(of("e.f").as_deref(), Some("-7"));
        assert_eq!((of("g"), of("")), (None, None));
        assert_eq!(marked(Place::Column(3, 17), "bc").as_deref(), Some("[2"));
        assert_eq!(marked(Place::Column(3, 9), "").as_deref(), Some("1"));
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut lines = Lines::new(BufReader::with_capacity(1 << 16, io::repeat(0)), 10);
        assert_eq!(lines.next().unwrap_err().to_string(), "line 1 has no end within 256 MiB");
    }
}
