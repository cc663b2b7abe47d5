//! What tests and experiments observe and change from outside.

use vellum::config::Preemption;

use super::SimMachine;
use super::fills::FillNote;
use crate::format::Format;

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
