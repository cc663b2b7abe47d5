//! One error type for everything that can be wrong with a trace.
//!
//! Each message is one line, says what is wrong, where, and what to do about it. Positions are byte
//! offsets in the file, so that two people with the same bad file see the same message.
use std::fmt;
use std::io;

/// Why a trace could not be read or written.
#[derive(Debug)]
pub enum TraceError {
    /// The operating system refused; `doing` says what was attempted.
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The name is of a directory, a pipe or a device.
    NotAFile,
    /// The file does not begin like a trace.
    NotATrace,
    /// The file is a trace of another format version.
    Version {
        /// Version in the file.
        found: u32,
        /// The newest version this build reads; it reads all older ones, too.
        supported: u32,
    },
    /// A stream ends before its trailer, or a file before its first whole block: the recording was
    /// killed or the copy is incomplete.
    Truncated {
        /// Byte offset at which more was expected.
        at: u64,
    },
    /// A checksum or a rule of the format does not hold.
    Corrupt {
        /// Byte offset of the block concerned.
        at: u64,
        /// Which rule.
        what: &'static str,
    },
    /// An event handed to the writer breaks a rule of the format.
    BadEvent {
        /// Which rule.
        what: &'static str,
    },
    /// A line of imported text cannot be understood.
    BadText {
        /// Line number, from 1.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl TraceError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> TraceError {
        move |source| TraceError::Io { doing, source }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io { doing, source } => write!(f, "{doing}: {source}"),
            TraceError::NotAFile => {
                write!(f, "not a regular file; give the name of a recorded trace")
            }
            TraceError::NotATrace => {
                write!(
                    f,
                    "not a vellum trace; record one with `vellum record -o FILE -- PROGRAM ARGS`"
                )
            }
            TraceError::Version { found, supported } => write!(
                f,
                "trace format version {found}, but this build reads versions 1 to {supported}; \
                 record it again, or use the vellum that wrote it"
            ),
            TraceError::Truncated { at } => write!(
                f,
                "the trace ends at byte {at} before its trailer; the recording was interrupted or \
                 the copy is incomplete: record or copy it again"
            ),
            TraceError::Corrupt { at, what } => {
                write!(f, "the trace is damaged near byte {at}: {what}; copy or record it again")
            }
            TraceError::BadEvent { what } => {
                write!(f, "an event that the trace format cannot hold: {what}")
            }
            TraceError::BadText { line, what } => {
                write!(
                    f,
                    "line {line}: {what}; expected the output of `valgrind --tool=lackey \
                     --trace-mem=yes`"
                )
            }
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
