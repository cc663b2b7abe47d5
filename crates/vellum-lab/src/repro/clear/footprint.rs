//! How much is touched on a machine.
//!
//! The published runs touch 64 GiB. A machine of less memory touches less: lines are counted, so
//! that the figures do not hang on how many there are, and a test compares the two.

use vellum::addr::Order;
use vellum_sim::file::Machine;
use vellum_sim::tlb::PageSize;

use crate::error::LabError;
use crate::report::number;

/// What the published runs touch, bytes.
pub const FOOTPRINT: u64 = 64 << 30;

/// What is touched on a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Footprint {
    /// Bytes, a power of two.
    pub bytes: u64,
    /// Whether there are pages of 1 GiB, and memory for some.
    giant: bool,
}

impl Footprint {
    /// That of a machine: as published, or the greatest power of two that leaves a quarter of its
    /// memory free.
    pub fn of(machine: &Machine) -> Result<Footprint, LabError> {
        let memory: u64 = machine.nodes.iter().map(|node| node.memory.0).sum();
        let most = (memory / 4 * 3).min(FOOTPRINT);
        let bytes = most.checked_ilog2().map_or(0, |log| 1 << log);
        if bytes < Order::HUGE.bytes() {
            return Err(LabError::usage(format_args!(
                "`{}` has {} of memory, and this experiment clears pages of 2 MiB: give it 4 MiB \
                 or more",
                machine.name,
                number::bytes(memory as i64)
            )));
        }
        let giant = *machine.mmu.max_leaf == PageSize::G1 && bytes >= 2 * Order::GIANT.bytes();
        Ok(Footprint { bytes, giant })
    }

    /// Whether there are pages of that size.
    pub fn has(&self, leaf: Order) -> bool {
        leaf != Order::GIANT || self.giant
    }

    /// A part of it, of a page at least.
    pub fn part(&self, by: u64, leaf: Order) -> u64 {
        (self.bytes / by).max(leaf.bytes())
    }

    /// All of it in words.
    pub fn text(&self) -> String {
        power_of_two(self.bytes)
    }

    /// What to say where it is not as published.
    pub fn scaled(&self) -> Option<String> {
        let less = (self.bytes < FOOTPRINT).then(|| {
            format!(
                "The published runs touch 64 GiB, for which this machine has too little memory: \
                 {} are touched. Figures are of a line, and do not hang on how many there are.",
                self.text()
            )
        });
        let none = "It has no pages of 1 GiB, or no memory for two of them: those rows are left \
                    out.";
        match (less, self.giant) {
            (less, true) => less,
            (None, false) => Some(none.to_owned()),
            (Some(less), false) => Some(format!("{less} {none}")),
        }
    }
}

/// A power of two, in words.
pub(super) fn power_of_two(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        gib => format!("{gib} GiB"),
    }
}
