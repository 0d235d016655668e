//! Every relative link of the documentation leads to something.

use std::path::{Path, PathBuf};

use super::bundled::{names_in, repository};

/// The targets of Markdown links, `[text](target)` and `[name]: target`, outside of code.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        // What stands between two backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        targets.extend(inline.map(str::to_owned));
        let reference = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        targets.extend(reference.map(|(_, target)| target.trim().to_owned()));
    }
    targets
}

/// The anchors of a text, made of its headings as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// What is wrong with a link in a file.
fn problem(file: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let folder = file.parent().unwrap_or(Path::new(""));
    let to: PathBuf = if path.is_empty() { file.to_owned() } else { folder.join(path) };
    if !to.exists() {
        return Some(format!("{}: {target} leads nowhere", file.display()));
    }
    let anchor = anchor?;
    let text = std::fs::read_to_string(&to).ok()?;
    (!anchors(&text).iter().any(|known| known == anchor))
        .then(|| format!("{}: {target}: there is no such heading", file.display()))
}

#[test]
fn every_link_leads_to_something() {
    let docs = repository().join("docs");
    let mut files: Vec<PathBuf> =
        names_in(&docs, "md").into_iter().map(|name| docs.join(format!("{name}.md"))).collect();
    files.push(repository().join("README.md"));
    let mut problems = Vec::new();
    let mut count = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).expect("it is there");
        let targets = targets(&text);
        count += targets.len();
        problems.extend(targets.iter().filter_map(|target| problem(file, target)));
    }
    assert_eq!(problems, Vec::<String>::new());
    assert!(count > 30, "{count} links in {files:?}");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let readme = repository().join("README.md");
    let text = "[a](docs/model.md) ![b](docs/none.svg) `[c](none.md)` [d](docs/model.md#none)\n[e]: none.md\n```\n[f](g)\n```\n";
    let found: Vec<String> = targets(text);
    assert_eq!(found, ["docs/model.md", "docs/none.svg", "docs/model.md#none", "none.md"]);
    let wrong: Vec<&String> = found.iter().filter(|target| problem(&readme, target).is_some()).collect();
    assert_eq!(wrong, [&found[1], &found[2], &found[3]]);
    assert_eq!(problem(&readme, "https://example.org/none#a"), None);
}
