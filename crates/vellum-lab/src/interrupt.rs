//! Ctrl-C: stop replaying, print what there is.
//!
//! The first signal is counted, and replay reads the count between batches of events. A later one
//! ends the process at once: the second in a replay, the third in a recording, whose second kills
//! the program. The count is the only process-wide state in the command: a signal handler has no
//! other place for it.

use std::sync::atomic::{AtomicU32, Ordering};

use vellum_trace::record::Listener;

static ASKED: AtomicU32 = AtomicU32::new(0);

/// From here on signals are counted. Where the system refuses the handler, Ctrl-C ends the process
/// as ever.
pub fn install() {
    end_after(1, || {});
}

/// The same, but so many signals are only counted; `last` is done before the process ends.
pub fn end_after(counted: u32, last: impl Fn() + Send + 'static) {
    let _ = ctrlc::set_handler(move || {
        if ASKED.fetch_add(1, Ordering::Relaxed) >= counted {
            last();
            std::process::exit(130);
        }
    });
}

/// Whether someone asked to stop.
#[inline]
pub fn requested() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}

/// Whether someone asked more than once.
pub fn hurried() -> bool {
    ASKED.load(Ordering::Relaxed) > 1
}

/// Lets signals end a recording.
#[derive(Clone, Copy, Debug)]
pub struct Signals;

impl Listener for Signals {
    fn stopped(&self) -> bool {
        requested()
    }
}
