//! A page fault.
//!
//! ```text
//! enter the epoch; read the space's edit count; descend to the entry without locks
//! decide: refuse, wait, map zeros, a fresh page, a huge page, a copy; which tables are missing
//! allocate and clear; no lock is held
//! lock the node; is it alive, the entry as seen, no region edited? install, else start over
//! ```
//! `seen.rs` holds the first and the last line for every kind of fault, and says why they suffice.
//! The kinds have a file each. Missing tables are made with the page and linked with it by one
//! store (`pagetable/unlinked.rs`), so a fault that finds no memory has changed nothing.
//!
//! While a fork copies, or `protect` takes rights and gives others, no fault changes an entry: it
//! finds the edit count changed, and waits for the end with nothing held.
//!
//! A fault that started over 16 times looks again under the mmap lock, so that a thread which edits
//! the space in a loop cannot starve it. Waits for busy entries do not count: each of them ends.
//!
//! Blocks of 2 MiB and up are cleared outside of the epoch, since others may wait for the epoch;
//! the descent is repeated afterwards.

mod cow;
mod exchange;
mod migrate;
pub(crate) mod object;
mod patience;
mod plant;
pub(crate) mod populate;
mod reserved;
mod seen;
mod serve;
mod zeros;

use crate::addr::{Pfn, Va};
use crate::machine::Machine;
use crate::object::ObjectLayer;
use crate::platform::above;
use crate::space::{Access, Fault};
use crate::stats::{Counter, CpuCounters};

pub(crate) use cow::Unshare;
pub(crate) use migrate::{Migrate, Migrated};
pub(crate) use seen::Seen;
pub(crate) use serve::Serve;
pub(crate) use zeros::ZeroTable;

/// The layer that faults and the verbs share: what is at an address, is it still so, exchange it.
pub(crate) struct Faults<M: Machine> {
    objects: ObjectLayer<M>,
}

above!(Faults, objects: ObjectLayer);

impl<M: Machine> Faults<M> {
    pub fn new(objects: ObjectLayer<M>) -> Faults<M> {
        Faults { objects }
    }

    /// Counts a fault that is served by a base page, the shared zeros of one or a page of an
    /// object, where that is stored: there preemption is off. The others are counted at the end.
    #[inline(always)]
    fn count_fault(&self, ask: FaultRequest, counters: &CpuCounters) {
        counters.add(Counter::Faults, i64::from(ask.origin == FaultOrigin::Program));
    }
}

/// How an attempt ended that did not fail.
pub(crate) enum Step {
    Done(Fault),
    /// Something changed, or was prepared: look again.
    Again,
    /// Another CPU has the entry busy: let it go on, then look again.
    Wait,
    /// A verb is about to change this entry, which its region no longer describes. As `Wait`, but
    /// it counts: the next verb may do so again.
    Behind,
    /// The page lies in a block that is to be split first, with nothing held; then look again.
    Split,
    /// Somebody has the page of an object frozen, perhaps a task of this CPU: as `Wait`.
    Frozen,
    /// The page has to be read from a pager, with nothing held.
    Fetch,
    /// The next pages are to be read from the pager, with nothing held; then look again.
    FetchNext,
    /// A pager fills the page, whose frame is kept for who waits: wait, then look again.
    Reading(Pfn),
    /// No huge block was to be had: look again, for a base page.
    Smaller,
    /// A private table of zeros is to be replaced by a huge page, which takes the mmap lock.
    ReplaceZeroTable,
}

/// What is asked of a fault.
#[derive(Clone, Copy)]
pub(crate) struct FaultRequest {
    pub va: Va,
    pub access: Access,
    pub origin: FaultOrigin,
}

impl FaultRequest {
    /// For a page of the space's own, which any rights at all give: each of them gives a read.
    pub fn own(va: Va) -> Self {
        Self { va, access: Access::Read, origin: FaultOrigin::Owner }
    }

    /// Whether an object's page would not do as it is for a read.
    #[inline(always)]
    pub fn writes(self) -> bool {
        self.access == Access::Write || self.origin == FaultOrigin::Owner
    }
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultOrigin {
    /// A verb that wants the page.
    Verb,
    /// A program, whose faults are counted.
    Program,
    /// A verb that wants a page of the space's own: zeros will not do even for a read.
    Owner,
    /// A verb that reads or writes the bytes.
    Bytes,
}

impl FaultOrigin {
    /// Whether the library touches the bytes that the page has, which it does not with a device's.
    pub fn touches_bytes(self) -> bool {
        matches!(self, FaultOrigin::Owner | FaultOrigin::Bytes)
    }
}
