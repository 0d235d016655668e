//! What a reader probably meant: the nearest name, the odd character.

use std::fmt::Write;

/// The name most like `word`, if any is like it at all.
pub(super) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LEAST_LIKENESS: f64 = 0.55;
    let word = word.to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for name in names {
        let likeness = likeness(&word, name);
        if likeness >= LEAST_LIKENESS && best.is_none_or(|(most, _)| likeness > most) {
            best = Some((likeness, name));
        }
    }
    best.map(|(_, name)| name)
}

/// `names`, those most like `word` first.
pub(crate) fn by_likeness<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = word.to_lowercase();
    let mut names: Vec<_> =
        names.into_iter().map(|name| (likeness(&word, &name.to_lowercase()), name)).collect();
    names.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    names.into_iter().map(|(_, name)| name).collect()
}

/// Typing slips count by edits; a name that is cut short or has something added is alike too.
fn likeness(word: &str, name: &str) -> f64 {
    let edits = strsim::normalized_damerau_levenshtein(word, name);
    let part = word.len() >= 3 && (name.starts_with(word) || word.starts_with(name));
    if part { edits.max(0.6 + 0.3 * edits) } else { edits }
}

/// Names the characters of `text` that look like something else, by code point: `U+00A0 (no-break space)`.
pub(super) fn odd_characters(text: &str) -> Option<String> {
    let mut list = String::new();
    for odd in text.chars().filter(|c| is_odd(*c)) {
        let code = format!("U+{:04X}", u32::from(odd));
        if list.contains(&code) {
            continue;
        }
        if !list.is_empty() {
            list.push_str(", ");
        }
        let _ = match description(odd) {
            Some(words) => write!(list, "{code} ({words})"),
            None => write!(list, "{code} (`{odd}`)"),
        };
    }
    (!list.is_empty()).then_some(list)
}

/// Whether a character is easily taken for one that has a meaning in YAML: a space, a quote, a colon.
pub(super) fn looks_like_syntax(character: char) -> bool {
    let letter = ('\u{370}'..='\u{4ff}').contains(&character);
    !letter && is_odd(character) && description(character).is_some()
}

fn is_odd(character: char) -> bool {
    !character.is_ascii() || (character.is_ascii_control() && !"\t\r\n".contains(character))
}

fn description(character: char) -> Option<&'static str> {
    Some(match character {
        '\u{a0}' => "no-break space",
        '\u{202f}' => "narrow no-break space",
        '\u{2000}'..='\u{200a}' | '\u{3000}' => "a wide or thin space",
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{ad}' => "an invisible character",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "a dash that is not `-`",
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{2032}' => "a quote that is not `'`",
        '\u{201c}'..='\u{201e}' | '\u{2033}' => "a quote that is not `\"`",
        '\u{ff1a}' => "a colon that is not `:`",
        '\u{ff3f}' => "a low line that is not `_`",
        '\u{ff0c}' => "a comma that is not `,`",
        '\u{370}'..='\u{3ff}' => "a Greek letter",
        '\u{400}'..='\u{4ff}' => "a Cyrillic letter",
        '\u{ff01}'..='\u{ff5e}' => "a full-width character",
        _ if character.is_control() => "a control character",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_name() {
        let names =
            ["gpu_budget", "min_gpu_budget", "backend", "ttft_ms", "itl_ms", "e2e_ms", "max_num_seqs"];
        assert_eq!(nearest("gpu_bugdet", names), Some("gpu_budget"));
        assert_eq!(nearest("itl", names), Some("itl_ms"));
        assert_eq!(nearest("max_num_seq", names), Some("max_num_seqs"));
        assert_eq!(nearest("Backend", names), Some("backend"));
        assert_eq!(nearest("retries", names), None);
    }

    #[test]
    fn odd_characters_are_named_once_each() {
        assert_eq!(odd_characters("gpu_budget"), None);
        assert_eq!(
            odd_characters("b\u{430}ck\u{a0}end\u{a0}").as_deref(),
            Some("U+0430 (a Cyrillic letter), U+00A0 (no-break space)")
        );
    }
}
