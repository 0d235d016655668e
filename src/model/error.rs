//! What is wrong with a file of facts, or with a name for one.

/// Why there are no facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Nothing is known under this name.
    #[error("{kind} `{name}` is not known; known are, the most similar first: {known}")]
    Unknown {
        /// `model` or `GPU`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that are known, separated by commas.
        known: String,
    },
    /// The text is not JSON, or not a mapping.
    #[error("{place}: {message}")]
    Syntax {
        /// The file.
        place: String,
        /// What the parser said.
        message: String,
    },
    /// Keys that are missing, of the wrong type or of a value that is not modelled; one line each.
    #[error("{}", .problems.join("\n"))]
    Facts {
        /// Each with its file and key.
        problems: Vec<String>,
    },
}
