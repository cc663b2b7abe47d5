//! What the oracle knows: of each frame, each table, each tree, and the obligations that are open.

use vellum::machine::{CpuMask, USES, Use};

use super::stop::Ring;
use crate::machine::lazy::{Lazy, Plain};

/// All the oracle remembers.
pub(crate) struct Oracle {
    /// What each frame is used for, as `Use as u8`.
    pub uses: Lazy<u8>,
    /// One past the highest frame that was ever in use.
    pub used: u64,
    pub frames: Lazy<FrameNote>,
    pub tables: Lazy<TableNote>,
    pub roots: Vec<RootNote>,
    /// Open obligations, by the CPU that opened them.
    pub parts: Vec<Vec<Obligation>>,
    /// Their number, over all CPUs.
    pub open: usize,
    /// Number of the next obligation.
    pub next: u32,
    /// Number of the next detachment of a table.
    pub next_cut: u64,
    /// Frames with obligations of more than one opener.
    pub extra: Vec<ExtraObligation>,
    pub in_use: [u64; USES],
    pub peak: [u64; USES],
    pub ring: Ring,
}

impl Oracle {
    pub(crate) fn new((own, frames): (u64, u64), cpus: usize) -> Option<Oracle> {
        let n = usize::try_from(frames).ok()?;
        let mut only_free = [0; USES];
        only_free[Use::Free as usize] = own;
        Some(Oracle {
            uses: Lazy::new(n, true)?,
            used: 0,
            frames: Lazy::new(n, true)?,
            tables: Lazy::new(n, false)?,
            roots: Vec::new(),
            parts: vec![Vec::new(); cpus],
            open: 0,
            next: 1,
            next_cut: 1,
            extra: Vec::new(),
            in_use: only_free,
            peak: only_free,
            ring: Ring::default(),
        })
    }
}

impl Oracle {
    /// Whether a walker may read a frame: it is a node of a tree, or a table of zeros of
    /// everybody's.
    #[inline]
    pub(crate) fn is_table(&self, pfn: u64) -> bool {
        let used = self.uses[pfn as usize];
        used == Use::Table as u8 || used == Use::ZeroTable as u8
    }

    /// Whether a frame is a table of zeros that everybody shares.
    #[inline]
    pub(crate) fn is_zero_table(&self, pfn: u64) -> bool {
        self.uses[pfn as usize] == Use::ZeroTable as u8
    }
}

/// What the oracle knows of one frame, apart from its use.
#[derive(Clone, Copy)]
pub(crate) struct FrameNote {
    /// Leaf entries, in trees that were loaded, that map it; a large leaf counts on each of its
    /// frames.
    pub maps: u32,
    /// Those of them that are writable.
    pub writers: u32,
    /// Number of the last obligation that concerns it, 0 for none.
    pub obligation: u32,
    /// The CPU that opened it.
    pub owner: u32,
    /// The page it was mapped at then.
    pub page: u64,
    /// The memory type by which a frame of a device is mapped. It means nothing where none is.
    pub memory_type: u64,
}

// SAFETY: integers.
unsafe impl Plain for FrameNote {}

/// The place of a table node in its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableNote {
    /// First address it translates.
    pub va: u64,
    /// The detachment that took it out of its tree, 0 while it is linked or was never linked.
    pub cut: u64,
    /// Index of its root plus 1, 0 while it is in no known tree. Kept when it is detached.
    pub root: u32,
    /// Entry stores so far.
    pub stores: u32,
    /// Level; 0 while it is in no known tree.
    pub level: u8,
}

// SAFETY: integers.
unsafe impl Plain for TableNote {}

/// A tree.
#[derive(Clone, Debug)]
pub(crate) struct RootNote {
    /// Frame of the root node.
    pub table: u64,
    /// CPUs that may hold translations of it.
    pub cpus: CpuMask,
}

/// A span of pages some CPUs may hold old translations of.
#[derive(Clone, Debug)]
pub(crate) struct Obligation {
    pub root: u32,
    /// Pages `start..end`.
    pub start: u64,
    pub end: u64,
    /// Numbers `first..=last`: the obligations merged in it.
    pub first: u32,
    pub last: u32,
    /// Level of the entries that changed. For tables, of the entry that named them.
    pub level: u8,
    /// The detachment that took a table away, 0 for leaves: any invalidation that touches the span
    /// drops the walk-cache entry.
    pub cut: u64,
    /// The old entry was read-only and clean: its end may be deferred. Such obligations are not
    /// merged.
    pub harmless: bool,
    /// First frame of the old entry, for harmless obligations.
    pub frame: u64,
    /// The old pages were those of a shared table of zeros.
    pub zeros: bool,
    /// Kept past the verb's return by declared deferral.
    pub deferred: bool,
    /// The verb has returned; kept because a table waits for CPUs that are asleep.
    pub returned: bool,
    /// CPUs that have the tree loaded and have not invalidated yet.
    pub open: CpuMask,
    /// CPUs that keep the tree's context and have not invalidated yet. Only a table waits for them.
    pub asleep: CpuMask,
}

/// A further obligation on a frame that already has one of another opener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtraObligation {
    pub pfn: u64,
    pub obligation: u32,
    pub owner: u32,
    pub page: u64,
}
