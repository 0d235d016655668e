//! The line that a problem is about, with the place marked.

use std::ops::Range;

/// A line of an input with its number in front and the bytes of `mark` marked beneath. Of a long one so much around the mark is shown
/// as fits into `width` columns. `None` for a line that shows nothing.
///
/// What a terminal would act on instead of showing it is escaped.
pub(crate) fn excerpt(number: u64, line: &[u8], mark: Option<Range<usize>>, width: usize) -> Option<String> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    let start = mark.as_ref().map_or(0, |mark| mark.start.min(line.len()));
    // No character has more bytes than this, and none takes less than a column.
    let near = start.saturating_sub(4 * width)..line.len().min(start + 4 * width);
    let (before, after) = (shown(&line[near.start..start]), shown(&line[start..near.end]));
    let at = before.len();
    let characters = [before, after].concat();
    let is_whole = near == (0..line.len()) && columns(&characters) <= width;
    let Range { start: first, end: last } =
        if is_whole { 0..characters.len() } else { window(&characters, at, width - 2) };
    let dots = |are_there: bool| if are_there { "…" } else { "" };
    let left = format!("{}{}", dots(first > 0 || near.start > 0), characters[first..at].concat());
    let right = characters[at..last].concat();
    let end = dots(last < characters.len() || near.end < line.len());
    let text = format!("  {number} | {left}{right}{end}");
    let Some(mark) = mark else { return Some(text) };
    let marked = &line[start..mark.end.clamp(start, near.end)];
    let length = columns(&shown(marked)).min(right.chars().count()).max(1);
    let margin = " ".repeat(number.to_string().len());
    let (gap, arrows) = (" ".repeat(left.chars().count()), "^".repeat(length));
    Some(format!("{text}\n  {margin} | {gap}{arrows}"))
}

/// Each character as a terminal can show it.
fn shown(bytes: &[u8]) -> Vec<String> {
    // The first may be what is left of a character that was cut.
    let start = bytes.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
    let show = |character: char| match character {
        '\t' => " ".to_owned(),
        '"' | '\'' | '\\' => character.to_string(),
        other => other.escape_debug().to_string(),
    };
    String::from_utf8_lossy(&bytes[start..]).chars().map(show).collect()
}

fn columns(characters: &[String]) -> usize {
    characters.iter().map(|shown| shown.chars().count()).sum()
}

/// The characters on both sides of `at` that fit into so many columns.
fn window(characters: &[String], at: usize, room: usize) -> Range<usize> {
    let mut window = at..at;
    let mut used = 0;
    let mut fits = |place: usize| {
        let more = characters[place].chars().count();
        let fits = used + more <= room;
        used += if fits { more } else { 0 };
        fits
    };
    loop {
        let before = window.clone();
        if window.end < characters.len() && fits(window.end) {
            window.end += 1;
        }
        if window.start > 0 && fits(window.start - 1) {
            window.start -= 1;
        }
        if window == before {
            return window;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(line: &str, mark: Option<Range<usize>>) -> Vec<String> {
        let text = excerpt(7, line.as_bytes(), mark, 20).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_place_is_marked() {
        assert_eq!(lines("short: yes", Some(7..10)), ["  7 | short: yes", "    |        ^^^"]);
        assert_eq!(lines("short", None), ["  7 | short"]);
        assert_eq!(lines("short", Some(5..9)), ["  7 | short", "    |      ^"]);
        assert_eq!(lines(" \t ", Some(0..1)), Vec::<String>::new());
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = "0123456789abcdefghijklmnopqrstuvwxyz";
        assert_eq!(lines(line, None), ["  7 | 0123456789abcdefgh…"]);
        assert_eq!(lines(line, Some(0..2)), ["  7 | 0123456789abcdefgh…", "    | ^^"]);
        assert_eq!(lines(line, Some(20..21)), ["  7 | …bcdefghijklmnopqrs…", "    |           ^"]);
        assert_eq!(lines(line, Some(35..40)), ["  7 | …ijklmnopqrstuvwxyz", "    |                   ^"]);
        let endless = "x".repeat(1 << 20);
        let shown = lines(&endless, Some((1 << 19)..(1 << 20)));
        assert_eq!(shown, ["  7 | …xxxxxxxxxxxxxxxxxx…", "    |           ^^^^^^^^^"]);
    }

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        let text = excerpt(1, b"a\x1b[31m\tb\xff\x07", Some(1..2), 40).unwrap();
        assert_eq!(text, "  1 | a\\u{1b}[31m b\u{fffd}\\u{7}\n    |  ^^^^^^");
        let text = excerpt(1, "\u{202e}né".as_bytes(), Some(3..4), 40).unwrap();
        assert_eq!(text, "  1 | \\u{202e}né\n    |         ^");
        let cut = excerpt(1, "\x1b".repeat(30).as_bytes(), Some(3..4), 20).unwrap();
        assert!(cut.lines().all(|line| line.chars().count() <= 26), "{cut}");
    }
}
