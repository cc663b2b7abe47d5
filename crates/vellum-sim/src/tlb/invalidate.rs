//! Dropping translations, and marking those whose source changed.
//!
//! One page is found by its place in each bank, whatever its context. Ranges longer than
//! [`BY_PAGE`] pages and anything that may concern pieces of larger pages walk all entries: a
//! thousand comparisons, which is what such a flush costs in hardware too.

use super::buffer::Tlb;
use super::entry::{Entry, Flags, PageSize};

/// Ranges of up to this many 4 KiB pages are invalidated page by page.
const BY_PAGE: u64 = 32;

impl Tlb {
    /// Drops what translates `va` in a context (`None`: in every context), of whatever page size;
    /// global entries too if `globals`. Returns how many entries went.
    pub fn invalidate_page(&mut self, ctx: Option<u16>, va: u64, globals: bool) -> u32 {
        if self.pieces > 0 {
            // All pieces of the page go, wherever in it they are.
            return self
                .drop_if(|e| covers(e, ctx, globals) && e.leaf.base(e.va) == e.leaf.base(va));
        }
        let mut count = 0;
        for size in PageSize::ALL {
            if self.live[size as usize] > 0 {
                count += self.drop_one(size, va, ctx, globals);
            }
        }
        count
    }

    /// Drops the entry that translates an address in a context, and no other piece of its page.
    pub fn drop_translation(&mut self, ctx: u16, va: u64) {
        for size in PageSize::ALL {
            if self.live[size as usize] > 0 {
                self.drop_one(size, va, Some(ctx), false);
            }
        }
    }

    fn drop_one(&mut self, size: PageSize, va: u64, ctx: Option<u16>, globals: bool) -> u32 {
        let (mut count, mut global, mut pieces) = (0, 0, 0);
        if let Some(bank) = self.bank(size) {
            let gone = |e: &Entry| {
                count += 1;
                global += u32::from(e.flags.contains(Flags::GLOBAL));
                pieces += u32::from(e.size != e.leaf);
            };
            bank.remove_page(size as u8, va >> size.shift(), |e| covers(e, ctx, globals), gone);
        }
        self.live[size as usize] -= count;
        self.globals -= global;
        self.pieces -= pieces;
        count
    }

    /// Drops what translates any address of a range.
    pub fn invalidate_range(
        &mut self,
        ctx: Option<u16>,
        va: u64,
        bytes: u64,
        globals: bool,
    ) -> u32 {
        let Some(last) = bytes.checked_sub(1).map(|b| va.saturating_add(b)) else { return 0 };
        if self.pieces == 0 && (last >> 12) - (va >> 12) < BY_PAGE {
            let mut count = 0;
            for size in PageSize::ALL {
                for page in va >> size.shift()..=last >> size.shift() {
                    if self.live[size as usize] > 0 {
                        count += self.drop_one(size, page << size.shift(), ctx, globals);
                    }
                }
            }
            return count;
        }
        self.drop_if(|e| covers(e, ctx, globals) && touches(e, va, last))
    }

    /// Drops a context's entries; global ones stay.
    pub fn invalidate_context(&mut self, ctx: u16) -> u32 {
        self.drop_if(|e| covers(e, Some(ctx), false))
    }

    /// Drops everything, or everything but global entries.
    pub fn invalidate_all(&mut self, globals: bool) -> u32 {
        if globals || self.globals == 0 {
            let count = self.live() as u32;
            self.banks.iter_mut().for_each(|b| b.clear());
            (self.live, self.globals, self.pieces) = ([0; 3], 0, 0);
            return count;
        }
        self.drop_if(|e| !e.flags.contains(Flags::GLOBAL))
    }

    fn drop_if(&mut self, mut which: impl FnMut(&Entry) -> bool) -> u32 {
        let mut count = 0;
        let (live, globals, pieces) = (&mut self.live, &mut self.globals, &mut self.pieces);
        for bank in &mut self.banks {
            bank.remove_if(&mut which, |e| {
                count += 1;
                live[e.size as usize] -= 1;
                *globals -= u32::from(e.flags.contains(Flags::GLOBAL));
                *pieces -= u32::from(e.size != e.leaf);
            });
        }
        count
    }

    /// Marks entries of every context that translate `va` and were read from the leaf entry at
    /// `source`. Returns how many.
    #[inline]
    pub fn mark_stale(&mut self, va: u64, source: u64) -> u32 {
        let mut count = 0;
        let mut mark = |e: &mut Entry| {
            if e.source == source {
                e.stale = true;
                count += 1;
            }
        };
        if self.pieces > 0 {
            self.for_each_mut(mark);
            return count;
        }
        for size in PageSize::ALL {
            if self.live[size as usize] > 0
                && let Some(bank) = self.bank(size)
            {
                bank.each_of_page(size as u8, va >> size.shift(), &mut mark);
            }
        }
        count
    }

    /// Marks entries of a range that `which` picks: for changes above the leaves. Returns how many.
    pub fn mark_stale_range(
        &mut self,
        va: u64,
        bytes: u64,
        mut which: impl FnMut(&Entry) -> bool,
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
}

fn covers(entry: &Entry, ctx: Option<u16>, globals: bool) -> bool {
    if entry.flags.contains(Flags::GLOBAL) { globals } else { ctx.is_none_or(|c| c == entry.ctx) }
}

/// Whether an entry's page (the whole page, for a piece) has an address in `first..=last`.
fn touches(entry: &Entry, first: u64, last: u64) -> bool {
    let base = entry.leaf.base(entry.va);
    base <= last && base + (entry.leaf.bytes() - 1) >= first
}
