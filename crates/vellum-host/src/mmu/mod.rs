//! A software MMU: translates a program's addresses to frames on this machine.
//!
//! [`buffer`] is one CPU's TLB. [`walk`] reads the table nodes on a miss and keeps nodes in a small
//! walk cache. Both keep their entries until they are invalidated, as hardware does. A program then
//! uses a translation that the library forgot to flush, and the test's comparison of contents
//! fails.

pub mod buffer;
pub mod walk;

use vellum::addr::{Level, Pfn, Va};
use vellum::machine::{Asid, Scope};
pub use vellum::space::Access;

/// The MMU could not translate; the kernel's fault handler is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageFault {
    /// The address.
    pub va: Va,
    /// What was tried.
    pub access: Access,
    /// A translation was found, but it does not allow the access.
    pub present: bool,
}

/// A cached translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// Whose.
    pub context: Asid,
    /// First address of the block.
    pub start: Va,
    /// The level of the node whose entry this is: 1, 2 or 3.
    pub level: Level,
    /// First frame of the block.
    pub first: Pfn,
    /// May be written.
    pub write: bool,
    /// May be fetched from.
    pub exec: bool,
    /// The dirty bit is known to be set, so that a write need not walk.
    pub dirty: bool,
}

impl Translation {
    /// Whether an address of this space is translated by it.
    #[inline]
    pub fn covers(&self, context: Asid, va: Va) -> bool {
        self.context == context && self.start == va.align_down(self.level.entry_bytes())
    }
    /// The frame of an address it covers.
    #[inline]
    pub fn frame(&self, va: Va) -> Pfn {
        self.first.add((va.0 - self.start.0) >> 12)
    }
}

/// Whether an invalidation reaches what is cached for the `bytes` bytes from `start` in `context`.
/// Where the TLB keeps no contexts apart (`contexts` false) the identifier does not matter.
pub(crate) fn reaches(scope: Scope, context: Asid, start: Va, bytes: u64, contexts: bool) -> bool {
    let same = |c: Asid| !contexts || c == context;
    let overlaps = |from: u64, to: u64| start.0 < to && from < start.0.saturating_add(bytes);
    match scope {
        Scope::Page(c, va) => same(c) && overlaps(va.0, va.0.saturating_add(1)),
        Scope::Range(c, range, _) => same(c) && overlaps(range.start().0, range.end().0),
        Scope::Space(c) => same(c),
        Scope::All => true,
    }
}

/// Whether an invalidation drops a cached leaf. The smallest leaf a range names is taken at its
/// word: smaller translations stay, as a level hint of `TLBI` may leave them.
pub(crate) fn drops_leaf(scope: Scope, t: &Translation, contexts: bool) -> bool {
    let small = matches!(scope, Scope::Range(_, _, smallest) if t.level < smallest);
    !small && reaches(scope, t.context, t.start, t.level.entry_bytes(), contexts)
}
