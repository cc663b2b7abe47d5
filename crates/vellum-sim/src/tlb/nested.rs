//! What the walks of a guest keep of the hypervisor's page tables.
//!
//! A processor that walks a guest's tables translates each guest-physical address on the way, and
//! keeps those translations: in the words of Intel's manual (SDM volume 3, caching translation
//! information with EPT) guest-physical mappings and their paging-structure caches, in those of AMD
//! a nested TLB. They are told apart from the combined translations in the [`Tlb`](super::Tlb)s:
//! what a guest flushes drops combined ones only, since the guest changes none of the hypervisor's
//! tables. Here the hypervisor never does so either, and nothing is ever dropped.

use super::bank::{Bank, key};
use super::entry::{Flags, PageSize, TableEntry};
use super::walk_cache::{WalkCache, WalkCacheShape};

/// A hypervisor's tables, and what the walker keeps of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NestedShape {
    /// Size of the pages that the guest's memory consists of.
    pub page: PageSize,
    /// Levels of the tables, 4 or 5.
    pub levels: u8,
    /// Translations of guest-physical pages that are kept.
    pub entries: u32,
    /// Entries of a set; divides `entries`.
    pub ways: u32,
    /// Caches for entries that point to tables.
    pub walk: WalkCacheShape,
}

impl NestedShape {
    /// The level of the entries that map a page, from 1.
    pub const fn leaf(&self) -> u8 {
        self.page as u8 + 1
    }
}

/// Guest-physical translations of one CPU.
#[derive(Clone, Debug)]
pub struct NestedTlb {
    page: PageSize,
    /// First addresses of the pages whose translation is kept.
    pages: Bank<u64>,
    walk: WalkCache,
}

impl NestedTlb {
    /// Nothing kept yet.
    pub fn new(shape: &NestedShape) -> NestedTlb {
        NestedTlb {
            page: shape.page,
            pages: Bank::new(shape.entries, shape.ways, 0),
            walk: WalkCache::new(&shape.walk),
        }
    }

    #[inline]
    fn key_of(page: PageSize, address: u64) -> u64 {
        key(page as u8, 0, address >> page.shift())
    }

    /// Whether the translation of a guest-physical address is kept; it becomes the most recent of
    /// its set.
    #[inline]
    pub fn lookup(&mut self, address: u64) -> bool {
        let key = NestedTlb::key_of(self.page, address);
        let slot = self.pages.find(key);
        if let Some(slot) = slot {
            self.pages.touch(slot);
        }
        slot.is_some()
    }

    /// Keeps the translation of a guest-physical address.
    #[inline]
    pub fn insert(&mut self, address: u64) {
        self.pages.insert(NestedTlb::key_of(self.page, address), self.page.base(address));
    }

    /// The level at which a walk for a guest-physical address starts, in tables of `levels`: below
    /// the deepest kept entry that points to a table.
    #[inline]
    pub fn start(&mut self, address: u64, levels: u8) -> u8 {
        self.walk.lookup(0, address, levels).map_or(levels, |hit| hit.level - 1)
    }

    /// Keeps the entry of a level that points to a table.
    #[inline]
    pub fn insert_table(&mut self, address: u64, level: u8) {
        self.walk.insert(TableEntry {
            va: address,
            table: 0,
            source: 0,
            tag: 0,
            ctx: 0,
            level,
            flags: Flags::NONE,
            stale: false,
        });
    }

    /// Recounts everything.
    pub fn validate(&self) -> Result<(), String> {
        self.pages.validate(|&address| NestedTlb::key_of(self.page, address))?;
        if let Some(address) = self.pages.iter().find(|&&a| self.page.base(a) != a) {
            return Err(format!("{address:#x} is not where a page of {:?} begins", self.page));
        }
        if let Some(entry) = self.walk.iter().find(|e| e.level <= self.page as u8 + 1) {
            return Err(format!("an entry of level {} is kept as one of a table", entry.level));
        }
        self.walk.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(page: PageSize, walk: WalkCacheShape) -> NestedShape {
        NestedShape { page, levels: 4, entries: 4, ways: 2, walk }
    }

    #[test]
    fn a_translation_covers_its_page_and_the_least_recent_of_a_set_leaves() {
        for page in PageSize::ALL {
            let mut tlb = NestedTlb::new(&shape(page, WalkCacheShape::default()));
            let at = |n: u64| n * page.bytes();
            tlb.insert(at(3) + 5);
            assert!(tlb.lookup(at(3)) && tlb.lookup(at(4) - 1));
            assert!(!tlb.lookup(at(3) - 1) && !tlb.lookup(at(4)));
            tlb.insert(at(5));
            assert!(tlb.lookup(at(3)), "now the most recent");
            tlb.insert(at(7));
            assert!(tlb.lookup(at(3)) && !tlb.lookup(at(5)) && tlb.lookup(at(7)));
            tlb.validate().expect("consistent");
        }
    }

    #[test]
    fn a_walk_starts_below_the_deepest_table_that_is_kept() {
        let walk = WalkCacheShape { levels: [Some((2, 2)), None, Some((1, 1)), None] };
        let mut tlb = NestedTlb::new(&shape(PageSize::K4, walk));
        assert_eq!(tlb.start(0, 4), 4);
        for level in [4, 3, 2] {
            tlb.insert_table(0x1000, level);
        }
        assert_eq!(tlb.start(0, 4), 1, "the table of leaves is known");
        assert_eq!(tlb.start(1 << 21, 4), 3, "nothing is kept of level 3");
        assert_eq!(tlb.start(1 << 39, 4), 4);
        tlb.validate().expect("consistent");
    }

    #[test]
    fn a_leaf_kept_as_a_table_is_found_by_validation() {
        let walk = WalkCacheShape { levels: [Some((2, 2)), None, None, None] };
        let mut tlb = NestedTlb::new(&shape(PageSize::M2, walk));
        tlb.insert_table(0, 2);
        assert!(tlb.validate().is_err());
    }
}
