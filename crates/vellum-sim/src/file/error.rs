//! What can be wrong with a machine file: each in one line that says how to mend it.

/// A machine that cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MachineError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// The operating system's reason.
        why: String,
    },
    /// The text is not a machine file: bad TOML, an unknown or a missing key, a value of the wrong
    /// type.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// Line of the file, from 1.
        line: usize,
        /// What was expected.
        message: String,
    },
    /// A value that no machine can have, or that contradicts another.
    #[error("{file}: {key}: {wrong}; {mend}")]
    Value {
        /// The file.
        file: String,
        /// The dotted key.
        key: String,
        /// What is wrong.
        wrong: String,
        /// What would be right.
        mend: String,
    },
    /// No preset has this name.
    #[error("no preset is called '{name}': use one of {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The presets.
        known: String,
    },
}
