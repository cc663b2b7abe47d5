//! A TLB: banks for the page sizes it can hold.
//!
//! Sizes may share a bank (AMD's first level, Intel's second) or have their own. A lookup tries
//! each size that has live entries, small ones first. A size without a bank is either not held at
//! all (2 MiB pages in Westmere's second level) or held in pieces of the next smaller size
//! (`fracture`), as some machines do with 1 GiB pages.

use super::bank::{Bank, key};
use super::entry::{Entry, Flags, GLOBAL_CONTEXT, PageSize};

/// The shape of one bank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BankShape {
    /// Entries in all.
    pub entries: u32,
    /// Entries of a set; divides `entries`.
    pub ways: u32,
    /// Page sizes it holds.
    pub sizes: Vec<PageSize>,
}

/// The shape of a TLB.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlbShape {
    /// Its banks; a page size is in at most one.
    pub banks: Vec<BankShape>,
    /// Whether pages of a size without a bank are held in pieces of a smaller size.
    pub fracture: bool,
}

const NO_BANK: u8 = u8::MAX;

/// One TLB of one CPU.
#[derive(Clone, Debug)]
pub struct Tlb {
    pub(super) banks: Vec<Bank<Entry>>,
    bank_of: [u8; 3],
    /// Live entries of each size.
    pub(super) live: [u32; 3],
    /// Live entries that match every context.
    pub(super) globals: u32,
    /// Live entries that are pieces of larger pages.
    pub(super) pieces: u32,
    fracture: bool,
    /// Where entries were found, by the low bits of the 4 KiB page that was asked for.
    found: Box<[Found; FOUND]>,
}

/// Pages of which it is remembered where their entries are: as many as a first level holds.
const FOUND: usize = 64;

/// Where the entry for a page was. What the slot holds now decides whether it still is.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Page and context that were asked for.
    asked: u64,
    key: u64,
    bank: u16,
    slot: u16,
}

/// No slot holds this key.
const NOWHERE: Found = Found { asked: u64::MAX, key: u64::MAX, bank: 0, slot: 0 };

/// What is asked for, as one word.
#[inline(always)]
fn asked(ctx: u16, page: u64) -> u64 {
    page << 16 | u64::from(ctx)
}

const BLANK: Entry = Entry {
    va: 0,
    frame: 0,
    source: 0,
    tag: 0,
    ctx: 0,
    size: PageSize::K4,
    leaf: PageSize::K4,
    flags: Flags::NONE,
    stale: false,
};

/// Where an entry is.
struct Location {
    bank: usize,
    key: u64,
    slot: usize,
}

impl Tlb {
    /// An empty TLB. Shapes from machine files have been checked (entries divisible by ways, a size
    /// in at most one bank).
    pub fn new(shape: &TlbShape) -> Tlb {
        let mut bank_of = [NO_BANK; 3];
        for (n, bank) in shape.banks.iter().enumerate() {
            for &size in &bank.sizes {
                bank_of[size as usize] = n as u8;
            }
        }
        Tlb {
            banks: shape.banks.iter().map(|b| Bank::new(b.entries, b.ways, BLANK)).collect(),
            bank_of,
            live: [0; 3],
            globals: 0,
            pieces: 0,
            fracture: shape.fracture,
            found: Box::new([NOWHERE; FOUND]),
        }
    }

    /// The bank that holds a size, if one does.
    #[inline(always)]
    pub(super) fn bank(&mut self, size: PageSize) -> Option<&mut Bank<Entry>> {
        self.banks.get_mut(self.bank_of[size as usize] as usize)
    }

    /// Whether entries of this size are held whole.
    pub fn holds(&self, size: PageSize) -> bool {
        self.bank_of[size as usize] != NO_BANK
    }

    /// The translation of an address in a context, if it is here; the entry becomes the most recent
    /// of its set.
    #[inline]
    pub fn lookup(&mut self, ctx: u16, va: u64) -> Option<&mut Entry> {
        if self.globals > 0 {
            let Location { bank, slot, .. } = self.locate_with_globals(ctx, va)?;
            return Some(self.banks[bank].touch(slot));
        }
        let Location { bank, key, slot } = self.locate(ctx, va)?;
        let page = va >> PageSize::K4.shift();
        let (bank16, slot16) = (bank as u16, slot as u16);
        self.found[page as usize % FOUND] =
            Found { asked: asked(ctx, page), key, bank: bank16, slot: slot16 };
        Some(self.banks[bank].touch(slot))
    }

    /// The same where it is found at once; `None` says nothing.
    #[inline(always)]
    pub fn lookup_again(&mut self, ctx: u16, va: u64) -> Option<&mut Entry> {
        let page = va >> PageSize::K4.shift();
        let at = self.found[page as usize % FOUND];
        if at.asked != asked(ctx, page) {
            return None;
        }
        let (bank, slot) = (self.banks.get_mut(usize::from(at.bank))?, usize::from(at.slot));
        bank.holds(slot, at.key).then(|| bank.touch(slot))
    }

    /// Where the entry for an address is.
    #[inline(always)]
    fn locate(&self, ctx: u16, va: u64) -> Option<Location> {
        for size in PageSize::ALL {
            if self.live[size as usize] > 0 {
                let bank = self.bank_of[size as usize] as usize;
                let key = key(size as u8, ctx, va >> size.shift());
                if let Some(slot) = self.banks[bank].find(key) {
                    return Some(Location { bank, key, slot });
                }
            }
        }
        None
    }

    #[inline(never)]
    fn locate_with_globals(&self, ctx: u16, va: u64) -> Option<Location> {
        self.locate(ctx, va).or_else(|| self.locate(GLOBAL_CONTEXT, va))
    }

    /// The translation of an address in a context, without counting as a use.
    pub fn probe(&self, ctx: u16, va: u64) -> Option<&Entry> {
        let Location { bank, slot, .. } = self.locate_with_globals(ctx, va)?;
        Some(self.banks[bank].value(slot))
    }

    /// Keeps a translation; `va` is the address that missed. Returns false if this TLB does not
    /// hold pages of that size.
    #[inline]
    pub fn insert(&mut self, mut entry: Entry, va: u64) -> bool {
        if !self.holds(entry.size) && !self.cut(&mut entry, va) {
            return false;
        }
        let key = key(entry.size as u8, entry.key_context(), entry.va >> entry.size.shift());
        // A lookup finds the smallest page first: it must not be led past this one.
        if entry.size == PageSize::K4 {
            self.found[(entry.va >> PageSize::K4.shift()) as usize % FOUND] = NOWHERE;
        } else if entry.size == PageSize::G1 || self.live[PageSize::G1 as usize] > 0 {
            self.found.fill(NOWHERE);
        }
        let Some(bank) = self.bank(entry.size) else { return false };
        let old = bank.insert(key, entry);
        self.count(&entry, 1);
        if let Some(old) = old {
            self.count(&old, u32::MAX);
        }
        true
    }

    /// Adds `by` (1, or -1 wrapped) to the counts that an entry belongs to.
    #[inline]
    fn count(&mut self, entry: &Entry, by: u32) {
        let live = &mut self.live[entry.size as usize];
        *live = live.wrapping_add(by);
        if entry.flags.contains(Flags::GLOBAL) {
            self.globals = self.globals.wrapping_add(by);
        }
        if entry.size != entry.leaf {
            self.pieces = self.pieces.wrapping_add(by);
        }
    }

    /// Reduces an entry to the piece around `va` that this TLB can hold.
    #[inline(never)]
    fn cut(&self, entry: &mut Entry, va: u64) -> bool {
        let smaller = PageSize::ALL.into_iter().rev().find(|&s| s < entry.size && self.holds(s));
        let Some(size) = smaller.filter(|_| self.fracture) else { return false };
        *entry = entry.piece(size, va);
        true
    }

    /// Live entries.
    pub fn live(&self) -> usize {
        self.banks.iter().map(Bank::live).sum()
    }

    /// Entries it can hold, of all sizes together.
    pub fn capacity(&self) -> usize {
        self.banks.iter().map(Bank::capacity).sum()
    }

    /// Live entries, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.banks.iter().flat_map(Bank::iter)
    }

    /// Visits live entries. Address, size, context and the global flag must stay as they are; the
    /// rest may change.
    pub fn for_each_mut(&mut self, visit: impl FnMut(&mut Entry)) {
        self.banks.iter_mut().flat_map(Bank::iter_mut).for_each(visit);
    }

    /// Recounts everything, and reports two entries of one context that translate one address as
    /// pages of different sizes.
    pub fn validate(&self) -> Result<(), String> {
        for bank in &self.banks {
            bank.validate(|e| key(e.size as u8, e.key_context(), e.va >> e.size.shift()))?;
        }
        let count =
            |which: &dyn Fn(&Entry) -> bool| self.iter().filter(|e| which(e)).count() as u32;
        let live = PageSize::ALL.map(|size| count(&|e| e.size == size));
        let globals = count(&|e| e.flags.contains(Flags::GLOBAL));
        let pieces = count(&|e| e.size != e.leaf);
        if (live, globals, pieces) != (self.live, self.globals, self.pieces) {
            return Err(format!(
                "{live:?} entries by size, {globals} global, {pieces} pieces: counted otherwise"
            ));
        }
        let mut spans: Vec<_> = self.iter().map(|e| (e.key_context(), e.va, e.size)).collect();
        spans.sort_unstable_by_key(|&(ctx, va, size)| (ctx, va, std::cmp::Reverse(size)));
        let global_from = spans.partition_point(|s| s.0 != GLOBAL_CONTEXT);
        let (own, global) = spans.split_at(global_from);
        let overlap = |a: &(u16, u64, PageSize), b: &(u16, u64, PageSize)| {
            a.1 < b.1 + b.2.bytes() && b.1 < a.1 + a.2.bytes()
        };
        // Sorted by start, larger first: an overlap of nested pages shows up between a page and the
        // last one that is not inside another.
        let mut outer: Option<&(u16, u64, PageSize)> = None;
        for span in &spans {
            match outer {
                Some(o) if o.0 == span.0 && overlap(o, span) => {
                    return Err(format!(
                        "{:#x} is held as {:?} and as {:?} in context {}",
                        span.1, o.2, span.2, span.0
                    ));
                }
                _ => outer = Some(span),
            }
        }
        for g in global {
            if let Some(o) = own.iter().find(|o| overlap(o, g) && o.2 != g.2) {
                return Err(format!(
                    "{:#x} is held as {:?} globally and as {:?} in context {}",
                    o.1, g.2, o.2, o.0
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
