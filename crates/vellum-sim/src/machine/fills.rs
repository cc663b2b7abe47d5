//! What long clears did, in order and by the clock: for tests and experiments about portions, order
//! and latency.
//!
//! Kept apart from the oracle's ring, which holds the last few events of everything; this list
//! holds all of one kind, and only where someone asked for it.

use vellum::addr::Pfn;
use vellum::config::Preemption;
use vellum::machine::Stores;

use super::{SimMachine, State};
use crate::format::Format;

/// Something that happened in or about a clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillNote {
    /// The library begins a range.
    Range {
        /// First frame.
        first: Pfn,
        /// Number of frames.
        frames: u64,
    },
    /// A scheduling point.
    Point,
    /// The machine is told to clear a run.
    Run {
        /// First frame.
        first: Pfn,
        /// Number of frames.
        frames: u64,
        /// Through the caches or around them.
        stores: Stores,
    },
}

impl<F: Format> State<F> {
    #[inline]
    pub(crate) fn note_fill(&mut self, c: usize, note: FillNote) {
        if let Some(fills) = &mut self.fills {
            fills.push((self.cpus[c].core.now().cycles(), note));
        }
    }
}

impl<F: Format> SimMachine<F> {
    /// From here [`fills`](SimMachine::fills) are kept; those kept so far are dropped.
    pub fn watch_fills(&self) {
        self.state.with(|s| s.fills = Some(Vec::new()));
    }

    /// What was noted since [`watch_fills`](SimMachine::watch_fills), each with the clock of its
    /// CPU in cycles.
    pub fn fills(&self) -> Vec<(u64, FillNote)> {
        self.state.with(|s| s.fills.clone().unwrap_or_default())
    }

    /// Says how the kernel is preempted, from now on. `None` leaves it to the library's switch.
    pub fn set_preemption(&self, model: Option<Preemption>) {
        self.state.with(|s| s.preemption = model);
    }

    /// The task on a CPU is to end, or no longer.
    pub fn set_stop_pending(&self, cpu: usize, pending: bool) {
        self.state.with(|s| s.cpus[cpu].stop_pending = pending);
    }

    /// From now on a memory node moves a line in `times` the time it had before, as when many
    /// others use it.
    pub fn slow_node(&self, node: usize, times: u64) {
        self.state.with(|s| s.memory.slow(node, times));
    }
}
