//! Page-walk caches: entries that point to tables, so that a walk starts near the leaf.
//!
//! There is one bank for each level. A lookup returns the deepest level that it has, which leaves
//! the fewest reads. Which invalidation drops what is a rule of the machine.

use super::bank::{Bank, key};
use super::entry::{Flags, TableEntry};

/// Entries and ways of the bank for each level from 2 to 5; `None` for a level that is not cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkCacheShape {
    /// For levels 2, 3, 4, 5: (entries, ways).
    pub levels: [Option<(u32, u32)>; 4],
}

/// The walk caches of one CPU.
#[derive(Clone, Debug)]
pub struct WalkCache {
    banks: [Option<Bank<TableEntry>>; 4],
}

const BLANK: TableEntry = TableEntry {
    va: 0,
    table: 0,
    source: 0,
    tag: 0,
    ctx: 0,
    level: 2,
    flags: Flags::NONE,
    stale: false,
};

#[inline(always)]
fn key_of(level: u8, ctx: u16, va: u64) -> u64 {
    key(level - 2, ctx, va >> TableEntry::shift(level))
}

impl WalkCache {
    /// Empty caches.
    pub fn new(shape: &WalkCacheShape) -> WalkCache {
        WalkCache {
            banks: shape.levels.map(|l| l.map(|(entries, ways)| Bank::new(entries, ways, BLANK))),
        }
    }

    fn banks(&mut self) -> impl Iterator<Item = &mut Bank<TableEntry>> {
        self.banks.iter_mut().flatten()
    }

    /// The deepest cached entry on the way to `va`, below level `top` + 1; it becomes the most
    /// recent of its set.
    #[inline]
    pub fn lookup(&mut self, ctx: u16, va: u64, top: u8) -> Option<&mut TableEntry> {
        let (level, slot) = (2..=top.min(5)).find_map(|level| {
            let bank = self.banks[usize::from(level) - 2].as_ref().filter(|b| b.live() > 0)?;
            bank.find(key_of(level, ctx, va)).map(|slot| (level, slot))
        })?;
        Some(self.banks[usize::from(level) - 2].as_mut()?.touch(slot))
    }

    /// Keeps an entry; `entry.va` may be any address below it. Returns false for levels that are
    /// not cached.
    #[inline]
    pub fn insert(&mut self, mut entry: TableEntry) -> bool {
        let Some(bank) = &mut self.banks[usize::from(entry.level) - 2] else { return false };
        entry.va &= !(entry.bytes() - 1);
        bank.insert(key_of(entry.level, entry.ctx, entry.va), entry);
        true
    }

    /// Drops the entries on the way to `va`, at all levels; `ctx` `None` means in every context.
    /// Returns how many went.
    pub fn invalidate_page(&mut self, ctx: Option<u16>, va: u64) -> u32 {
        let mut count = 0;
        for (n, bank) in self.banks.iter_mut().enumerate() {
            if let Some(bank) = bank {
                let page = va >> TableEntry::shift(n as u8 + 2);
                bank.remove_page(n as u8, page, |e| ctx.is_none_or(|c| c == e.ctx), |_| count += 1);
            }
        }
        count
    }

    /// Drops the entries that cover any address of a range.
    pub fn invalidate_range(&mut self, ctx: Option<u16>, va: u64, bytes: u64) -> u32 {
        let Some(last) = bytes.checked_sub(1).map(|b| va.saturating_add(b)) else { return 0 };
        self.drop_if(|e| ctx.is_none_or(|c| c == e.ctx) && touches(e, va, last))
    }

    /// Drops a context's entries.
    pub fn invalidate_context(&mut self, ctx: u16) -> u32 {
        self.drop_if(|e| e.ctx == ctx)
    }

    /// Drops everything.
    pub fn invalidate_all(&mut self) -> u32 {
        let count = self.live() as u32;
        self.banks().for_each(Bank::clear);
        count
    }

    fn drop_if(&mut self, mut which: impl FnMut(&TableEntry) -> bool) -> u32 {
        let mut count = 0;
        self.banks().for_each(|bank| bank.remove_if(&mut which, |_| count += 1));
        count
    }

    /// Marks the entry read from `source`, in every context. Returns how many were marked.
    #[inline]
    pub fn mark_stale(&mut self, va: u64, source: u64) -> u32 {
        let mut count = 0;
        for (n, bank) in self.banks.iter_mut().enumerate() {
            if let Some(bank) = bank {
                bank.each_of_page(n as u8, va >> TableEntry::shift(n as u8 + 2), |e| {
                    if e.source == source {
                        e.stale = true;
                        count += 1;
                    }
                });
            }
        }
        count
    }

    /// Marks entries of a range that `which` picks. Returns how many.
    pub fn mark_stale_range(
        &mut self,
        va: u64,
        bytes: u64,
        mut which: impl FnMut(&TableEntry) -> bool,
    ) -> u32 {
        let Some(last) = bytes.checked_sub(1).map(|b| va.saturating_add(b)) else { return 0 };
        let mut count = 0;
        self.for_each_mut(|e| {
            if touches(e, va, last) && which(e) {
                e.stale = true;
                count += 1;
            }
        });
        count
    }

    /// Live entries.
    pub fn live(&self) -> usize {
        self.banks.iter().flatten().map(Bank::live).sum()
    }

    /// Live entries, by level.
    pub fn iter(&self) -> impl Iterator<Item = &TableEntry> {
        self.banks.iter().flatten().flat_map(Bank::iter)
    }

    /// Visits live entries. Address, level and context must stay as they are; the rest may change.
    pub fn for_each_mut(&mut self, visit: impl FnMut(&mut TableEntry)) {
        self.banks().flat_map(Bank::iter_mut).for_each(visit);
    }

    /// Recounts everything.
    pub fn validate(&self) -> Result<(), String> {
        for (n, bank) in self.banks.iter().enumerate() {
            if let Some(bank) = bank {
                bank.validate(|e| key_of(e.level, e.ctx, e.va))
                    .map_err(|e| format!("level {}: {e}", n + 2))?;
                if bank.iter().any(|e| usize::from(e.level) != n + 2) {
                    return Err(format!("level {}: an entry of another level", n + 2));
                }
            }
        }
        Ok(())
    }
}

fn touches(entry: &TableEntry, first: u64, last: u64) -> bool {
    entry.va <= last && entry.va + (entry.bytes() - 1) >= first
}

#[cfg(test)]
#[path = "walk_cache_tests.rs"]
mod tests;
