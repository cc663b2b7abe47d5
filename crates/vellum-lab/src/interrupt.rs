//! Ctrl-C: stop replaying, print what there is.
//!
//! The first signal sets a flag that replay reads between batches of events. The second ends the
//! process at once. The flag is the only process-wide state in the command: a signal handler has no
//! other place for it.

use std::sync::atomic::{AtomicBool, Ordering};

use vellum_trace::record::Listener;

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

/// Lets signals end a recording.
#[derive(Clone, Copy, Debug)]
pub struct Signals;

impl Listener for Signals {
    fn stopped(&self) -> bool {
        requested()
    }
}
