//! What a simulator hears of the library, apart from what the library asks of a machine.
//!
//! Each method is empty unless a machine overrides it. A kernel writes `impl Hooks for Mine {}`,
//! and the calls compile to nothing. The library reports the truth; other callers, who get the
//! machine from [`Vm::machine`](crate::vm::Vm::machine), may report anything.
//!
//! The primitives report: what writes an entry says that it wrote one. A loop may report its work
//! once, at its end.
//!
//! Rejected: an enum of events and one method (a machine that wants one kind of report has to match
//! on all), and a field of `Vm` for a listener (each space and lock would have to reach it).

use crate::addr::{Order, Pfn};

/// What simulators and tests watch. Kernels leave it empty.
pub trait Hooks {
    /// This CPU did `count` pieces of work.
    #[inline(always)]
    fn work(&self, work: Work, count: u64) {
        let _ = (work, count);
    }
    /// This CPU is about to touch memory that other CPUs may write: a place where schedules differ.
    /// `line` is the address touched, to tell lines apart, and never to be kept in simulated state.
    #[inline(always)]
    fn shared(&self, line: usize, write: bool) {
        let _ = (line, write);
    }
    /// The block of that order at `first` is used for `to` from now on. A machine may write to what
    /// becomes free, so that tests stumble over who still looks there.
    ///
    /// # Safety
    /// What becomes [`Use::Free`] is nobody's: no entry names it, no CPU has a translation of it,
    /// and nobody writes or reads it but the allocator's next taker.
    #[inline(always)]
    unsafe fn frame(&self, first: Pfn, order: Order, to: Use) {
        let _ = (first, order, to);
    }
    /// A run of frames is about to be cleared or copied into. There is one report for each range
    /// that the order of clearing makes.
    #[inline(always)]
    fn fill(&self, first: Pfn, frames: u64) {
        let _ = (first, frames);
    }
    /// A verb starts on this CPU.
    #[inline(always)]
    fn begin(&self, verb: Verb) {
        let _ = verb;
    }
    /// The verb returns to its caller: what it promised holds from here.
    #[inline(always)]
    fn end(&self, verb: Verb) {
        let _ = verb;
    }
}

/// A piece of kernel work, for machines that charge time for it ([`Hooks::work`]). Clearing,
/// copying, flushing and interrupts are not here: those are acts of the machine, which knows itself
/// what they cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Work {
    /// A fault was taken: entry, decoding, return.
    Fault,
    /// A verb was called by a program: entry and return.
    Call,
    /// One table node visited on the way down or along.
    Descend,
    /// One entry looked at in a scan.
    Scan,
    /// One entry written.
    Entry,
    /// A region found or changed.
    Region,
    /// A 4 KiB frame taken from this CPU's magazine, or given to it.
    Magazine,
    /// A magazine refilled or emptied into the allocator.
    Refill,
    /// A larger block allocated or freed.
    Block,
    /// A fault served with a large page: what a kernel does then beside clearing it (charging,
    /// accounting, statistics).
    Large,
    /// A table node made or given back.
    Table,
    /// A lock taken that another CPU held last.
    Contended,
}

/// Number of [`Work`] kinds.
pub const WORKS: usize = Work::Contended as usize + 1;

/// What a frame is used for, as the machine is told. One state at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Use {
    /// In the allocator, a magazine or a cache of empty nodes.
    Free,
    /// Unmapped, its flush not complete: nobody's, and not free.
    Pending,
    /// A table node.
    Table,
    /// Slab memory.
    Slab,
    /// Data that programs see.
    Data,
    /// The shared zeros.
    Zero,
    /// A page table of shared zeros: written before the first entry names it, and never again.
    ZeroTable,
    /// Suspected bad and taken out of use, by `Vm::poison`: nobody's, and never free again.
    Poisoned,
    /// Data of an object, which spaces may share and all write.
    Object,
}

impl Use {
    /// Whether an allocation leaves each node its minimum, so that a verb which has to cut a huge
    /// page to give memory back does not fail for want of a table.
    #[inline]
    pub(crate) fn leaves_minimum(self) -> bool {
        match self {
            Use::Data | Use::Object | Use::Zero => true,
            Use::Table | Use::ZeroTable | Use::Slab => false,
            // Nobody asks for those.
            Use::Free | Use::Pending | Use::Poisoned => false,
        }
    }
}

/// Number of [`Use`] kinds.
pub const USES: usize = Use::Object as usize + 1;

/// The verbs, for machines that account by verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Verb {
    /// `Vm::map`
    Map,
    /// `Vm::unmap`
    Unmap,
    /// `Vm::protect`
    Protect,
    /// `Vm::remap`
    Remap,
    /// `Vm::advise`
    Advise,
    /// `Vm::fork`
    Fork,
    /// `Vm::exit`
    Exit,
    /// `Vm::fault`
    Fault,
    /// `Vm::copy_in`, `Vm::copy_out`, `Vm::write_forced`
    Copy,
    /// `Vm::forbid_zeros`
    Forbid,
    /// `Vm::poison`
    Poison,
    /// A verb of [`Objects`](crate::vm::Objects)
    Object,
}
