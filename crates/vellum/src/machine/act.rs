//! What the library does with a machine.
//!
//! The methods of [`Machine`] that could corrupt memory are `unsafe`, since
//! [`Vm::machine`](crate::vm::Vm::machine) hands the machine to everybody. The library keeps their
//! contracts by its own invariants, which are the same at every call, so they are stated once,
//! here, and the verbs call safe methods of other names. The trait is not visible outside the
//! crate.

use crate::addr::{Order, Pfn, Va};
use crate::machine::{Machine, Root, Stores, Use};

/// The acts of a machine, for the library alone.
pub(crate) trait Act: Machine {
    /// [`Machine::entry_load`] of a table node of this `Vm`.
    #[inline(always)]
    fn entry(&self, table: Pfn, slot: usize) -> u64 {
        // SAFETY: the library names only frames that it made table nodes (or tables of zeros) and
        // that an epoch, a lock or the mmap lock keeps, and slots that `Level::slot` or a count
        // up to 512 gave.
        unsafe { self.entry_load(table, slot) }
    }
    /// [`Machine::entry_store`] to a table node of this `Vm`.
    #[inline(always)]
    fn set_entry(&self, table: Pfn, slot: usize, raw: u64) {
        // SAFETY: as in `entry`; the caller holds the node's lock, or nobody else can find the
        // node. What the entry names is a table, a frame the space owns or shares, a shared zero
        // without the right to write, or memory of a device that programs may access.
        unsafe { self.entry_store(table, slot, raw) }
    }
    /// [`Machine::entry_cas`] on a table node of this `Vm`.
    #[inline(always)]
    fn swap_entry(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        // SAFETY: as in `set_entry`.
        unsafe { self.entry_cas(table, slot, old, new) }
    }
    /// [`Machine::clear`] of frames that the caller has just allocated.
    #[inline(always)]
    fn clear_frames(&self, first: Pfn, frames: u64) {
        // SAFETY: the allocator gave the run to the caller, no entry names it yet, and the flush of
        // whoever had it before is done.
        unsafe { self.clear(first, frames) }
    }
    /// [`Machine::clear_run`] of frames that the caller has just allocated.
    #[inline(always)]
    fn clear_span(&self, first: Pfn, frames: u64, stores: Stores, at: Va) {
        // SAFETY: as in `clear_frames`.
        unsafe { self.clear_run(first, frames, stores, at) }
    }
    /// [`Machine::clear_pages`] of frames that the caller has just allocated.
    #[inline(always)]
    fn clear_singles(&self, pages: &[(Pfn, Va)], stores: Stores) {
        // SAFETY: as in `clear_frames`; the allocator gives no frame twice, so all are different.
        unsafe { self.clear_pages(pages, stores) }
    }
    /// [`Machine::copy`] of one frame to one that the caller has just allocated.
    #[inline(always)]
    fn copy_frame(&self, to: Pfn, from: Pfn) {
        // SAFETY: `to` as in `clear_frames`; `from` is mapped, stays so under the lock of the node
        // that maps it, and has no translation any more that allows to store to it.
        unsafe { self.copy(to, from, 1) }
    }
    /// [`Machine::copy_run`] to frames that the caller has just allocated.
    #[inline(always)]
    fn copy_span(&self, to: Pfn, from: Pfn, frames: u64, stores: Stores, at: Va) {
        // SAFETY: as in `copy_frame`; an entry in transit keeps a large source where it is.
        unsafe { self.copy_run(to, from, frames, stores, at) }
    }
    /// [`Machine::read`] of a mapped frame.
    #[inline(always)]
    fn read_bytes(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        // SAFETY: the frame is mapped and an epoch, or the lock of the node that maps it, keeps it;
        // callers stay inside a page.
        unsafe { self.read(pfn, offset, bytes) }
    }
    /// [`Machine::write`] to a mapped frame.
    #[inline(always)]
    fn write_bytes(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        // SAFETY: as in `read_bytes`; the frame is data of one space, never a shared zero.
        unsafe { self.write(pfn, offset, bytes) }
    }
    /// [`Machine::load_root`] of a space that this CPU has entered in the space's set of active
    /// CPUs.
    #[inline(always)]
    fn run_on(&self, root: Option<Root>) {
        // SAFETY: the root lives as long as a CPU is in the set: `exit` waits for that.
        unsafe { self.load_root(root) }
    }
    /// [`Machine::prepare_root`] of a root that was just made.
    #[inline(always)]
    fn adopt_root(&self, root: Pfn) {
        // SAFETY: a new root, empty, that no CPU has loaded and nobody else knows.
        unsafe { self.prepare_root(root) }
    }
    /// [`Hooks::frame`](crate::machine::Hooks::frame) of a block that the allocator gives or gets.
    #[inline(always)]
    fn becomes(&self, first: Pfn, order: Order, to: Use) {
        // SAFETY: a block is freed by who alone has it, after the flush of what mapped it.
        unsafe { self.frame(first, order, to) }
    }
    /// [`Machine::preempt_on`] for a `preempt_off` of the same function.
    #[inline(always)]
    fn allow_preemption(&self) {
        // SAFETY: each call follows one `preempt_off` of its function, on every path.
        unsafe { self.preempt_on() }
    }
}

impl<M: Machine> Act for M {}
