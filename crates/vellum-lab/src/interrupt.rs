//! Ctrl-C: stop replaying, print what there is.
//!
//! The first signal raises a flag that replay looks at between batches of events; the second ends
//! the process at once, for whoever does not want to wait. The flag is the one piece of
//! process-wide state in the command: a signal has no other place to put its news.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

/// From here on signals raise the flag. Where the system refuses the handler, Ctrl-C ends the
/// process as ever.
pub fn install() {
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

/// Whether someone asked to stop.
#[inline]
pub fn requested() -> bool {
    STOP.load(Ordering::Relaxed)
}
