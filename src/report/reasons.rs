//! Why trials do not count: each reason once, with how many trials it has.

use std::hash::Hash;

use indexmap::IndexMap;

/// Trials that do not count for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason<O> {
    /// How they ended.
    pub outcome: O,
    /// Why; of a number that is not the same in all, the least and the greatest.
    pub text: String,
    /// How many there are.
    pub trials: usize,
}

/// The reasons of trials, each given with its outcome, the most frequent first (the earlier first among equals). What
/// differs in its numbers only is one reason.
pub fn reasons<'a, O: Hash + Eq>(rejected: impl Iterator<Item = (O, &'a str)>) -> Vec<Reason<O>> {
    let mut all: IndexMap<(O, Vec<&str>), Group<'a>> = IndexMap::new();
    for (outcome, reason) in rejected {
        let (words, numbers) = taken_apart(reason);
        let group = all.entry((outcome, words)).or_insert_with(|| Group::of(&numbers));
        group.trials += 1;
        for (range, number) in group.numbers.iter_mut().zip(&numbers) {
            range.take_in(number);
        }
    }
    let mut reasons: Vec<Reason<O>> = all
        .into_iter()
        .map(|((outcome, words), Group { numbers, trials })| Reason {
            outcome,
            text: put_together(&words, &numbers),
            trials,
        })
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.trials));
    reasons
}

/// Reasons with the same words.
struct Group<'a> {
    numbers: Vec<Range<'a>>,
    trials: usize,
}

impl<'a> Group<'a> {
    fn of(numbers: &[&'a str]) -> Self {
        let ranges = numbers.iter().map(|number| Range { least: number, greatest: number });
        Self { numbers: ranges.collect(), trials: 0 }
    }
}

/// The numbers at one place of a reason, as they are written.
struct Range<'a> {
    least: &'a str,
    greatest: &'a str,
}

impl<'a> Range<'a> {
    fn take_in(&mut self, number: &'a str) {
        let value = |number: &str| number.parse::<f64>().unwrap_or(f64::NAN);
        if value(number) < value(self.least) {
            self.least = number;
        }
        if value(number) > value(self.greatest) {
            self.greatest = number;
        }
    }
}

/// What stands around the numbers of a text, and these. What is part of a word, as in `load_180_5`, is no number.
fn taken_apart(text: &str) -> (Vec<&str>, Vec<&str>) {
    let ends_number = |character: char| !(character.is_ascii_digit() || "+-.e".contains(character));
    let (mut words, mut numbers) = (Vec::new(), Vec::new());
    let (mut word_start, mut at) = (0, 0);
    while let Some(start) = text[at..].find(|character: char| character.is_ascii_digit()) {
        let mut start = at + start;
        if text[word_start..start].ends_with('-') {
            start -= 1;
        }
        let length = text[start..].find(ends_number).unwrap_or(text.len() - start);
        let end = start + text[start..][..length].trim_end_matches(|last: char| !last.is_ascii_digit()).len();
        let stands_apart = text[..start].chars().next_back().is_none_or(|before| " (".contains(before))
            && text[end..].chars().next().is_none_or(|after| " ,.;:)".contains(after));
        at = end;
        if stands_apart && text[start..end].parse::<f64>().is_ok() {
            words.push(&text[word_start..start]);
            numbers.push(&text[start..end]);
            word_start = end;
        }
    }
    words.push(&text[word_start..]);
    (words, numbers)
}

fn put_together(words: &[&str], numbers: &[Range<'_>]) -> String {
    let mut text = String::new();
    for (place, word) in words.iter().enumerate() {
        text += word;
        match numbers.get(place) {
            Some(Range { least, greatest }) if least == greatest => text += least,
            Some(Range { least, greatest }) => text.extend([least, " to ", greatest]),
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(all: &[&str]) -> Vec<(String, usize)> {
        let all = all.iter().map(|reason| ("infeasible", *reason));
        reasons(all).into_iter().map(|reason| (reason.text, reason.trials)).collect()
    }

    #[test]
    fn reasons_are_counted_and_ordered() {
        let expected = [("a", 2), ("c", 2), ("b", 1)].map(|(reason, trials)| (reason.to_owned(), trials));
        assert_eq!(told(&["b", "a", "c", "a", "c"]), expected);
        let apart = reasons([("failed", "a"), ("infeasible", "a")].into_iter());
        assert_eq!(apart.len(), 2, "of another outcome");
    }

    #[test]
    fn reasons_that_differ_in_their_numbers_are_one() {
        let all = [
            "throughput of at most 512.5 tok/s: not among the best, the last of which has 600 tok/s",
            "throughput of at most 1e3 tok/s: not among the best, the last of which has 600 tok/s",
            "throughput of at most 64 tok/s: not among the best, the last of which has 600 tok/s",
        ];
        let text =
            "throughput of at most 64 to 1e3 tok/s: not among the best, the last of which has 600 tok/s";
        assert_eq!(told(&all), [(text.to_owned(), 3)]);
        assert_eq!(told(&["(-3) at 5.", "(4) at 5."]), [("(-3 to 4) at 5.".to_owned(), 2)]);
        let words =
            ["of load_180_5", "of load_181_5", "replay > 2s", "replay > 3s", "tp-4 é 5é", "tp-5 é 5é"];
        assert_eq!(told(&words), words.map(|word| (word.to_owned(), 1)), "parts of words are no numbers");
    }
}
