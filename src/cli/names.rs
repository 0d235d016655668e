//! The files that commands write to a folder, and by which it is known whose folder it is.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::report::files::is_leftover;

/// What a replay writes.
pub(super) const REPORT: &str = "report.json";
pub(super) const REQUESTS: &str = "requests.jsonl";
pub(super) const SCALING: &str = "scaling.jsonl";
pub(super) const SERIES: &str = "series.json";

/// What a search writes.
pub(super) const CANDIDATES: &str = "candidates.json";
pub(super) const TRIALS: &str = "trials.jsonl";
pub(super) const BEST: &str = "best.yaml";
pub(super) const PARETO: &str = "pareto.csv";
/// Scenarios of trials that failed, one for each of the first reasons.
pub(super) const FAILED: [&str; 3] = ["failed-1.yaml", "failed-2.yaml", "failed-3.yaml"];
/// The trials of a search whose answer is going to replace an earlier one, which keeps its own till then.
pub(super) const NEXT_TRIALS: &str = "trials.next.jsonl";

/// The configuration of a search in full, from the moment it begins.
pub(super) const CONFIG: &str = "config.yaml";
/// That of the search to which [`NEXT_TRIALS`] belong.
pub(super) const NEXT_CONFIG: &str = "config.next.yaml";
/// By which it is known that no hand has written it.
pub(super) const CONFIG_HEADER: &str = "# The configuration of the search whose results are here, in full.\n";

/// What a part of a search writes.
pub(super) const SHARD: &str = "shard.json";

/// What starts a deployment.
pub(super) const COMMANDS: &str = "commands.sh";
pub(super) const DYNAMO: &str = "dynamo.yaml";
pub(super) const KUBERNETES: &str = "kubernetes.yaml";

/// Whose results a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Replay,
    Search,
    Part,
    /// Not beside the results that it was made of, where a later answer would leave it behind.
    Deployment,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Search => "search",
            Self::Part => "part of a search",
            Self::Deployment => "deployment",
        }
    }

    /// Every file that it may write.
    pub(super) fn files(self) -> &'static [&'static str] {
        const OF_REPLAY: &[&str] = &[REPORT, REQUESTS, SCALING, SERIES];
        const OF_SEARCH: &[&str] = &[
            CANDIDATES,
            CONFIG,
            NEXT_CONFIG,
            TRIALS,
            NEXT_TRIALS,
            BEST,
            PARETO,
            FAILED[0],
            FAILED[1],
            FAILED[2],
        ];
        match self {
            Self::Replay => OF_REPLAY,
            Self::Search => OF_SEARCH,
            Self::Part => &[SHARD, CONFIG, NEXT_CONFIG, TRIALS, NEXT_TRIALS],
            Self::Deployment => &[COMMANDS, DYNAMO, KUBERNETES],
        }
    }

    /// The file that is there when it has come to its end.
    pub(super) fn answer(self) -> &'static str {
        match self {
            Self::Replay => REPORT,
            Self::Search => CANDIDATES,
            Self::Part => SHARD,
            Self::Deployment => COMMANDS,
        }
    }

    /// Files of a folder that it would write over, and that no run of this kind accounts for.
    pub(super) fn foreign(self, folder: &Path) -> Vec<&'static str> {
        let is_there = |name: &&str| folder.join(name).exists();
        let is_accounted_for = self.is_cut_off(folder)
            || match self {
                // They are always written together.
                Self::Deployment => self.files().iter().all(&is_there),
                Self::Replay => says_its_version(&folder.join(REPORT)),
                // Trials of a run that did not finish have rules of their own.
                Self::Search | Self::Part => {
                    let answer = folder.join(self.answer());
                    says_its_version(&answer)
                        || (!answer.exists() && [TRIALS, NEXT_TRIALS].iter().any(is_there))
                }
            };
        // A configuration is often kept beside its results by hand.
        let is_own = |name: &&str| match *name {
            CONFIG | NEXT_CONFIG => beginning(&folder.join(name)).starts_with(CONFIG_HEADER),
            _ => is_accounted_for,
        };
        let files = self.files().iter().copied().filter(is_there);
        files.filter(|name| !is_own(name)).collect()
    }

    /// Whether a run of this kind was killed while it put the files of its answer in place: the answer is complete under its
    /// temporary name, and some of the others may be in theirs.
    pub(super) fn is_cut_off(self, folder: &Path) -> bool {
        let answer = self.answer();
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        !folder.join(answer).exists()
            && names.into_iter().any(|name| name.to_str().is_some_and(|name| is_leftover(name, answer)))
    }

    /// Results of another kind that a folder holds, and the file that tells.
    pub(super) fn stranger(self, folder: &Path) -> Option<(Self, &'static str)> {
        let (replay, search, part) =
            ((Self::Replay, REPORT), (Self::Search, CANDIDATES), (Self::Part, SHARD));
        let trials = [(Self::Search, TRIALS), (Self::Search, NEXT_TRIALS)];
        // Commands are called so elsewhere too; all of its files are not.
        let is_deployed = Self::Deployment.files().iter().all(|file| folder.join(file).exists());
        if is_deployed && self != Self::Deployment {
            return Some((Self::Deployment, COMMANDS));
        }
        let strangers = match self {
            Self::Replay => vec![search, part, trials[0], trials[1]],
            Self::Search => vec![replay, part],
            Self::Part => vec![replay, search],
            Self::Deployment => vec![replay, search, part, trials[0], trials[1]],
        };
        strangers.into_iter().find(|(_, file)| folder.join(file).exists())
    }
}

/// Whether a file of JSON begins as every answer does.
fn says_its_version(path: &Path) -> bool {
    let text = beginning(path);
    let fields = text.trim_start().strip_prefix('{').map(str::trim_start);
    fields.is_some_and(|fields| fields.starts_with("\"schema_version\""))
}

/// The first bytes of a file; nothing of one that cannot be read.
fn beginning(path: &Path) -> String {
    const LONGEST: u64 = 128;
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut beginning));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&beginning).into_owned())
}
