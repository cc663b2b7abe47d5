//! The receipt of a change, and the proof that it was flushed.

use crate::addr::{Level, Order, Pfn, Va};
use crate::machine::Machine;
use crate::memory::Memory;

/// What was changed in a space since its translations were last flushed: one span, whatever lies
/// between included.
#[must_use = "a receipt is flushed by `Tlb::flush`, or translations stay stale"]
pub(crate) struct Receipt {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Level of the smallest leaf.
    pub(super) level: Level,
    /// A table node went: walk caches that hold it must go on every CPU.
    pub(super) tables: bool,
}

impl Receipt {
    /// Nothing changed yet.
    #[inline]
    pub fn new() -> Receipt {
        Receipt { start: u64::MAX, end: 0, level: Level(3), tables: false }
    }

    /// A leaf of that level at `va` changed, or a part of it.
    #[inline]
    pub fn leaf(&mut self, va: Va, level: Level) {
        let start = va.align_down(level.entry_bytes()).0;
        self.start = self.start.min(start);
        self.end = self.end.max(start + level.entry_bytes());
        self.level = self.level.min(level);
    }

    /// Every base leaf in so many bytes from `va` on changed, or what led to them.
    #[inline]
    pub fn span(&mut self, va: Va, bytes: u64) {
        self.start = self.start.min(va.0);
        self.end = self.end.max(va.0 + bytes);
        self.level = Level::ONE;
    }

    /// A table node that was walked for the addresses `[start, end)` went. One invalidated address
    /// inside is enough to drop it from walk caches, so the span takes in the part of the node that
    /// the verb was about and not all of it.
    #[inline]
    pub fn table(&mut self, start: Va, end: Va) {
        self.start = self.start.min(start.0);
        self.end = self.end.max(end.0);
        self.level = Level::ONE;
        self.tables = true;
    }

    /// Whether a table node went.
    #[inline]
    pub fn has_table(&self) -> bool {
        self.tables
    }

    /// Whether nothing was noted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// Translations of what a receipt spoke of are gone on every CPU. Made by `Tlb::flush` and
/// `Tlb::flush_out` alone.
pub(crate) struct Flushed(pub(super) ());

impl Flushed {
    /// Lets go of a block of data that no entry maps any more.
    #[inline]
    pub fn free<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn, order: Order) {
        if order >= Order::HUGE && memory.give_to_pool(pfn, order) {
            return;
        }
        memory.frames.give_back(&memory.machine, pfn, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_takes_in_every_page_that_is_noted() {
        let page = |n: u64| Va(n * Level::ONE.entry_bytes());
        let mut receipt = Receipt::new();
        for n in [5, 3, 4] {
            receipt.leaf(page(n), Level::ONE);
        }
        assert_eq!((receipt.start, receipt.end, receipt.level), (page(3).0, page(6).0, Level::ONE));
        receipt.leaf(page(600), Level::TWO);
        assert_eq!(
            (receipt.start, receipt.end, receipt.level),
            (page(3).0, page(1024).0, Level::ONE)
        );
        receipt.leaf(page(2), Level::ONE);
        assert_eq!((receipt.start, receipt.end), (page(2).0, page(1024).0));
    }
}
