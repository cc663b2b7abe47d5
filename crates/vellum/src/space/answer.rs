//! What the verbs answer.

use crate::addr::{Level, Pfn};
use crate::entry::{CacheMode, Flags};
use crate::space::Rights;

/// How a fault was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The entry gave the access already: another CPU was faster, a translation was older than the
    /// entry, or a mark was missing that this MMU does not set.
    Spurious,
    /// The shared zeros were mapped.
    Zero,
    /// A fresh 4 KiB page.
    Base,
    /// A page of an object was mapped, which was there or was made, or memory of a device.
    Object,
    /// The huge page of zeros was mapped.
    ZeroHuge,
    /// A table of zeros was, for all that an entry of that level stands for.
    ZeroTable(Level),
    /// A fresh 2 MiB page.
    Huge,
    /// A fresh 1 GiB page.
    Giant,
    /// A shared page was copied; the level is that of the new leaf.
    Copied(Level),
    /// A page nobody shares any more became writable in place.
    Reused(Level),
}

/// What lies at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// No region.
    Unmapped,
    /// A region, no page yet.
    Reserved {
        /// What the region gives.
        rights: Rights,
    },
    /// A page.
    Mapped {
        /// First frame of the leaf.
        pfn: Pfn,
        /// Level of the leaf: 1 is 4 KiB, 2 is 2 MiB, 3 is 1 GiB.
        level: Level,
        /// The leaf's rights and marks.
        flags: Flags,
        /// What the region gives: more than the leaf does while the page is shared, less while a
        /// `protect` that takes rights is under way.
        rights: Rights,
        /// Whether it is the shared zeros.
        zero: bool,
    },
    /// Memory of a device.
    Device {
        /// First frame of the leaf.
        pfn: Pfn,
        /// Level of the leaf.
        level: Level,
        /// The leaf's rights and marks.
        flags: Flags,
        /// What the region gives.
        rights: Rights,
        /// What the caches do with accesses.
        cache: CacheMode,
    },
    /// A page that stays, without access.
    Inaccessible {
        /// First frame of the leaf.
        pfn: Pfn,
        /// Level of the leaf.
        level: Level,
    },
}

/// What a space takes, counted by walking it. Pages are of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Pages mapped, those of large leaves and inaccessible ones included, zeros and devices not. A
    /// shared page counts in each space.
    pub rss_pages: u64,
    /// 2 MiB leaves.
    pub huge_leaves: u64,
    /// 1 GiB leaves.
    pub giant_leaves: u64,
    /// Base leaves that map the shared zeros.
    pub zero_leaves: u64,
    /// Leaves that map the huge page of zeros.
    pub zero_huge_leaves: u64,
    /// Entries that name a shared table of zeros.
    pub zero_tables: u64,
    /// Pages of `rss_pages` that objects have.
    pub shared_pages: u64,
    /// Pages of devices mapped.
    pub device_pages: u64,
    /// Pages of `rss_pages` that are inaccessible.
    pub inaccessible_pages: u64,
    /// Pages that lie in a region, present or not.
    pub mapped_pages: u64,
    /// Table nodes, the root included.
    pub table_nodes: u64,
}

/// What an object has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectUsage {
    /// Its size in bytes.
    pub bytes: u64,
    /// Pages of 4 KiB that it has in memory.
    pub pages: u64,
    /// Blocks of 2 MiB among them, which have 512 each.
    pub huge_pages: u64,
    /// Pages that were written since its pager last had them.
    pub dirty_pages: u64,
    /// What is forbidden of its size.
    pub seals: Seals,
}

/// A page that [`Objects::invalidate`](crate::vm::Objects::invalidate) has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptPage {
    /// Its first byte in the object.
    pub offset: u64,
    /// It was written since its pager last had it.
    pub dirty: bool,
    /// Somebody has it in hand: a pager, or who grabbed it.
    pub busy: bool,
}

/// What is forbidden of an object, for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seals {
    /// It becomes no shorter: what lies before its end stays accessible through mappings.
    pub shrink: bool,
    /// It becomes no longer.
    pub grow: bool,
    /// Nobody writes to it, by a call or through a mapping. Together with `shrink` its contents
    /// stay as they are.
    pub write: bool,
}

impl Seals {
    /// Whether a size may not become that.
    pub(crate) fn forbid(self, old: u64, new: u64) -> bool {
        (self.shrink && new < old) || (self.grow && new > old)
    }
}

/// Totals of a `validate` that found nothing wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Sum of the spaces' usage.
    pub usage: Usage,
    /// Base frames of data, a shared one once, those of objects included.
    pub data_frames: u64,
    /// Those of objects, mapped or not.
    pub object_frames: u64,
    /// Frames that are table nodes.
    pub table_frames: u64,
    /// Frames that are slab memory.
    pub slab_frames: u64,
    /// Frames of shared zeros, and of shared tables of them.
    pub zero_frames: u64,
    /// Frames of blocks in pools.
    pub pool_frames: u64,
    /// Frames taken out of use because they are suspected bad.
    pub poisoned_frames: u64,
    /// Frames nobody uses, magazines included.
    pub free_frames: u64,
    /// Frames in use that nothing above accounts for: those of spaces that were not given, and of
    /// embedders that allocate for themselves. If there are none of these, any other number than 0
    /// is a leak.
    pub other_frames: u64,
}
