//! The library's unsafe calls, by names that need no `unsafe` at each use.
//!
//! The library cannot know that a caller gives back what it has and that nothing else runs; a test
//! does: it holds what it allocated, and audits when its threads are done. One that breaks this on
//! purpose calls the library itself.

use vellum::addr::{Order, Pfn, Va};
use vellum::error::{Invalid, Stopped};
use vellum::machine::{Machine, Root, Use};
use vellum::space::{Audit, Space};
use vellum::unstable::{Above, Extent, FrameCounts, Frames, Queue, Token};
use vellum::vm::Vm;

/// Entries and bytes of a machine that is at rest, or whose other CPUs are not at the same words.
pub trait MachineExt: Machine {
    fn entry(&self, table: Pfn, slot: usize) -> u64 {
        // SAFETY: tests name tables that they reached from a root.
        unsafe { self.entry_load(table, slot) }
    }
    fn set_entry(&self, table: Pfn, slot: usize, raw: u64) {
        // SAFETY: as in `entry`; what the test says there is its own, or wrong on purpose on a
        // machine that finds it.
        unsafe { self.entry_store(table, slot, raw) }
    }
    fn zero_out(&self, first: Pfn, frames: u64) {
        // SAFETY: the test has the frames.
        unsafe { self.clear(first, frames) }
    }
    fn copy_to(&self, to: Pfn, from: Pfn) {
        // SAFETY: the test has both frames.
        unsafe { self.copy(to, from, 1) }
    }
    fn becomes(&self, first: Pfn, order: Order, to: Use) {
        // SAFETY: the test has the block; or it says what is wrong, to a machine that finds it.
        unsafe { self.frame(first, order, to) }
    }
    fn enter_root(&self, root: Option<Root>) {
        // SAFETY: the root is a table of the test's, which is kept as long as the machine.
        unsafe { self.load_root(root) }
    }
    fn peek(&self, pfn: Pfn, offset: usize, bytes: &mut [u8]) {
        // SAFETY: tests read frames of the machine, inside a page.
        unsafe { self.read(pfn, offset, bytes) }
    }
    fn poke(&self, pfn: Pfn, offset: usize, bytes: &[u8]) {
        // SAFETY: as in `peek`, and tests write as the program would that owns the page.
        unsafe { self.write(pfn, offset, bytes) }
    }
}

impl<M: Machine> MachineExt for M {}

/// Frames that a test has.
pub trait FramesExt {
    fn put<M: Machine>(&self, m: &M, pfn: Pfn, order: Order);
    fn split_to<M: Machine>(&self, m: &M, pfn: Pfn, from: Order, to: Order);
    fn retire_at<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        top: &mut Token<H>,
        block: (Pfn, Order),
        generation: u64,
    );
    fn completed<M: Machine, H: Above<Queue>>(&self, m: &M, top: &mut Token<H>, done: u64) -> u64;
    fn audit<M: Machine>(&self, m: &M) -> Result<FrameCounts, Invalid>;
}

impl FramesExt for Frames {
    fn put<M: Machine>(&self, m: &M, pfn: Pfn, order: Order) {
        // SAFETY: the test had the block, and nothing is mapped on its machine.
        unsafe { self.free(m, pfn, order) }
    }
    fn split_to<M: Machine>(&self, m: &M, pfn: Pfn, from: Order, to: Order) {
        // SAFETY: the test has the block.
        unsafe { self.split(m, pfn, from, to) }
    }
    fn retire_at<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        top: &mut Token<H>,
        block: (Pfn, Order),
        generation: u64,
    ) {
        // SAFETY: the test had the block, and there are no translations.
        unsafe { self.retire(m, top, block.0, block.1, generation) }
    }
    fn completed<M: Machine, H: Above<Queue>>(&self, m: &M, top: &mut Token<H>, done: u64) -> u64 {
        // SAFETY: there are no translations.
        unsafe { self.complete(m, top, done) }
    }
    fn audit<M: Machine>(&self, m: &M) -> Result<FrameCounts, Invalid> {
        // SAFETY: tests audit when their threads are done.
        unsafe { self.validate(m) }
    }
}

/// A subsystem at rest, and blocks that a test has.
pub trait VmExt {
    fn audit(&self, spaces: &[&Space]) -> Result<Audit, Invalid>;
    fn cleared(&self, extent: &Extent) -> Result<(), Stopped>;
    fn cleared_singles(&self, frames: &[(Pfn, Va)]) -> Result<(), Stopped>;
    fn copied(&self, from: Pfn, extent: &Extent) -> Result<(), Stopped>;
}

impl<M: Machine> VmExt for Vm<M> {
    fn audit(&self, spaces: &[&Space]) -> Result<Audit, Invalid> {
        // SAFETY: tests audit when their threads are done, or wait.
        unsafe { self.validate(spaces) }
    }
    fn cleared(&self, extent: &Extent) -> Result<(), Stopped> {
        // SAFETY: the test has the block.
        unsafe { self.clear_extent(extent) }
    }
    fn cleared_singles(&self, frames: &[(Pfn, Va)]) -> Result<(), Stopped> {
        // SAFETY: the test has the frames.
        unsafe { self.clear_frames(frames) }
    }
    fn copied(&self, from: Pfn, extent: &Extent) -> Result<(), Stopped> {
        // SAFETY: the test has both blocks.
        unsafe { self.copy_extent(from, extent) }
    }
}
