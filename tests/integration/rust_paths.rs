//! The paths that a piece of Rust names, read without a compiler: enough to see who imports whom.

/// A path such as `crate::config::Document`, or a macro such as `println!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPath {
    /// The line that it ends on, from 1.
    pub(crate) line: usize,
    /// With braces opened up: `use std::{fmt, io::Read}` names `std::fmt` and `std::io::Read`.
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    line: usize,
    text: &'a str,
}

/// Every path in `source`, without those in comments, literals and items that are compiled for tests only.
pub(crate) fn named_paths(source: &str) -> Vec<NamedPath> {
    let tokens = without_tests(&tokens(source));
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at = if is_word(tokens[at].text) { path(&tokens, at, "", &mut paths) } else { at + 1 };
    }
    paths
}

/// Reads the path that starts at `at`, whose braces may hold several; answers where it ends.
fn path(tokens: &[Token<'_>], mut at: usize, prefix: &str, paths: &mut Vec<NamedPath>) -> usize {
    let text_at = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut text = prefix.to_owned();
    loop {
        text.push_str(text_at(at));
        let line = tokens[at].line;
        at += 1;
        if text_at(at) == "::" && is_word(text_at(at + 1)) {
            text.push_str("::");
            at += 1;
        } else if text_at(at) == "::" && text_at(at + 1) == "{" {
            return group(tokens, at + 2, &format!("{text}::"), paths);
        } else {
            if text_at(at) == "!" && matches!(text_at(at + 1), "(" | "[" | "{") {
                text.push('!');
            }
            paths.push(NamedPath { line, text });
            return at;
        }
    }
}

/// Reads the paths of a group up to its closing brace; answers where it ends.
fn group(tokens: &[Token<'_>], mut at: usize, prefix: &str, paths: &mut Vec<NamedPath>) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.text {
            "}" => return at + 1,
            text if is_word(text) => at = path(tokens, at, prefix, paths),
            _ => at += 1,
        }
    }
    at
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Leaves out what follows `#[cfg(test)]`: a block, or everything up to a semicolon.
fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        if rest.len() >= MARK.len() && rest.iter().zip(MARK).all(|(token, mark)| token.text == mark) {
            rest = after_item(&rest[MARK.len()..]);
        } else {
            kept.push(*first);
            rest = after;
        }
    }
    kept
}

fn after_item<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(token.text, "}" | ";") {
            return &tokens[index + 1..];
        }
    }
    &[]
}

/// Words, `::` and single signs. Comments and literals are left out.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < source.len() {
        let rest = &source[at..];
        let (length, is_token) = next_piece(rest);
        if is_token {
            tokens.push(Token { line, text: &rest[..length] });
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    tokens
}

/// How long the piece at the start of `rest` is, and whether it counts.
fn next_piece(rest: &str) -> (usize, bool) {
    let first = rest.chars().next().unwrap_or(' ');
    let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    if rest.starts_with("//") {
        (rest.find('\n').unwrap_or(rest.len()), false)
    } else if rest.starts_with("/*") {
        (block_comment(rest), false)
    } else if let Some(length) = raw_string(rest) {
        (length, false)
    } else if first == '"' || rest.starts_with("b\"") || rest.starts_with("c\"") {
        (quoted(rest, rest.find('"').unwrap_or(0)), false)
    } else if first == '\'' {
        (character_or_lifetime(rest), false)
    } else if word > 0 {
        (word, true)
    } else if rest.starts_with("::") {
        (2, true)
    } else {
        (first.len_utf8(), !first.is_whitespace())
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < rest.len() {
        let here = &rest.as_bytes()[at..];
        let (step, change) = match here {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
    }
    at
}

/// `r"..."`, `br#"..."#` and their kind.
fn raw_string(rest: &str) -> Option<usize> {
    let opened =
        rest.strip_prefix("br").or_else(|| rest.strip_prefix("cr")).or_else(|| rest.strip_prefix('r'))?;
    let text = opened.trim_start_matches('#');
    let hashes = opened.len() - text.len();
    let text = text.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - text.len();
    Some(text.find(&end).map_or(rest.len(), |length| start + length + end.len()))
}

/// Where the literal ends whose opening quote is at `quote`.
fn quoted(rest: &str, quote: usize) -> usize {
    let bytes = rest.as_bytes();
    let mut at = quote + 1;
    while at < bytes.len() && bytes[at] != bytes[quote] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn character_or_lifetime(rest: &str) -> usize {
    let mut characters = rest.chars().skip(1);
    let (first, second) = (characters.next(), characters.next());
    if first == Some('\\') || second == Some('\'') { quoted(rest, 0) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        named_paths(source).into_iter().map(|path| path.text).collect()
    }

    #[test]
    fn groups_are_opened_up() {
        assert_eq!(
            texts("use crate::{self, config::{A, b::C}, *}; use x::y as z;"),
            ["use", "crate::self", "crate::config::A", "crate::config::b::C", "use", "x::y", "as", "z"]
        );
        assert_eq!(texts("a::<B>::c(d)"), ["a", "B", "c", "d"]);
    }

    #[test]
    fn comments_literals_and_tests_do_not_count() {
        assert_eq!(texts("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(texts(r##"a("b \" c", 'd', '\'', b"e", r#"f " g"#) h"##), ["a", "h"]);
        assert_eq!(texts("a<'b>(&'c d)"), ["a", "b", "c", "d"]);
        assert_eq!(texts("#[cfg(test)] mod tests { x::y(); { z } } a #[cfg(test)] use q::r; b"), ["a", "b"]);
        assert_eq!(texts("println!(a) != b!{}"), ["println!", "a", "b!"]);
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let paths = named_paths("a\n/* \n */ \"\n\" r#\"\n\"# b");
        assert_eq!(paths, [NamedPath { line: 1, text: "a".into() }, NamedPath { line: 5, text: "b".into() }]);
    }
}
