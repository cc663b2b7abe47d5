//! What to record and how, and who is told.
use super::program::Choice;
use crate::build::{Clock, Window};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What to record and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// File to write.
    pub out: PathBuf,
    /// Which of the programs that the command starts.
    pub choice: Choice,
    /// Which accesses to keep; `None` keeps all.
    pub window: Option<Window>,
    /// When to keep accesses, by the clock; `None`: always.
    pub clock: Option<Clock>,
    /// End each run after this time.
    pub stop_after: Option<Duration>,
    /// The signal that ends a run.
    pub stop_signal: i32,
    /// zstd level, [`crate::LEVEL_FAST`] or [`crate::LEVEL_SMALL`].
    pub level: i32,
    /// Run natively first?
    pub native: bool,
    /// Keep the last part of each file's name?
    pub names: bool,
    /// Follow the programs that a program starts? Where the system refuses ptrace, nobody can.
    pub follow: bool,
    /// The recorder plugin, if not where [`record`](super::record) looks for it.
    pub plugin: Option<PathBuf>,
}

impl Options {
    /// Records `command` completely into `out`, after a native run.
    pub fn new(command: Vec<OsString>, out: impl Into<PathBuf>) -> Options {
        Options {
            command,
            out: out.into(),
            choice: Choice::Most,
            window: None,
            clock: None,
            stop_after: None,
            stop_signal: libc::SIGTERM,
            level: crate::LEVEL_FAST,
            native: true,
            names: true,
            follow: true,
            plugin: None,
        }
    }
}

/// Who is told of a recording while it goes on, and can end it. The methods are called from other
/// threads too.
pub trait Listener: Sync {
    /// Has somebody asked to stop?
    fn stopped(&self) -> bool {
        false
    }
    /// Has somebody asked more than once? Then nothing is waited for: the programs are killed.
    fn hurried(&self) -> bool {
        false
    }
    /// A line for whoever waits.
    fn say(&self, _line: &str) {}
    /// How far a run is.
    fn progress(&self, _progress: &Progress) {}
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Is it the native run? Then nothing is recorded.
    pub native: bool,
    /// How long it has taken.
    pub elapsed: Duration,
    /// Accesses recorded.
    pub accesses: u64,
    /// Bytes written.
    pub written: u64,
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Listener for Silent {}
