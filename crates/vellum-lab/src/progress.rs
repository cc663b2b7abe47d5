//! A progress bar on a terminal, silence elsewhere.
//!
//! It is drawn on standard error, so that a table or JSON on standard output stays clean when
//! piped. Several replays may run at once: they add to one bar.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress through a known number of accesses.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    done: AtomicU64,
}

impl Progress {
    /// A bar over `total` accesses; hidden where standard error is no terminal.
    pub fn new(total: u64, what: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) =
            ProgressStyle::with_template("{msg} [{bar:40}] {percent:>3} %, {eta} left")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar, done: AtomicU64::new(0) }
    }
    /// A line that says how it goes, for work without a known end; hidden where standard error is
    /// no terminal.
    pub fn line() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Progress { bar, done: AtomicU64::new(0) }
    }
    /// A bar that never shows.
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden(), done: AtomicU64::new(0) }
    }
    /// `n` more accesses are done.
    pub fn add(&self, n: u64) {
        self.bar.set_position(self.done.fetch_add(n, Ordering::Relaxed) + n);
    }
    /// Says what is being done.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
    /// Prints lines of the answer between redraws.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
