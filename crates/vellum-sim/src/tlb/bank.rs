//! One array of a TLB or walk cache: sets and ways under true LRU.
//!
//! A key is one word: valid, class (page size or level), context, page number. Up to 16 ways are
//! searched by comparing every key of the set; fully associative arrays of 32 or 64 ways, common in
//! first-level TLBs, are searched through a hash chain, or a miss would cost 64 comparisons. Set
//! and chain depend on class and page number alone, so that "this page in any context" is found as
//! fast as in one.
//!
//! The order of use is a number a slot, greater with each use. Programs use entries some fifty
//! times before one leaves, and only that looks at the ways of the set; of many ways it leaves a
//! list of who is next. Rejected: moving entries as the caches do (they are 40 bytes here), and a
//! linked list a set (nine stores for each use).

use crate::cache::{Divider, Index};

const NONE: u16 = u16::MAX;
const EMPTY: u64 = 0;
/// More ways than this are searched through hash chains.
const SCANNED_WAYS: usize = 16;
const PAGE_BITS: u32 = 45;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;

/// Most entries of one bank of a TLB or walk cache.
pub const MAX_ENTRIES: u32 = 1 << 15;

/// The key of a page number in a class (0 to 3) and context.
#[inline(always)]
pub(crate) fn key(class: u8, ctx: u16, page: u64) -> u64 {
    1 << 63 | (class as u64) << 61 | (ctx as u64) << PAGE_BITS | (page & PAGE_MASK)
}

/// Key without its context.
#[inline(always)]
fn place(key: u64) -> u64 {
    key & !((u16::MAX as u64) << PAGE_BITS)
}

/// Chains of slots by hash of their place; empty for banks that are scanned.
#[derive(Clone, Debug)]
struct Chains {
    buckets: Vec<u16>,
    next: Vec<u16>,
    shift: u32,
}

impl Chains {
    fn new(entries: usize) -> Chains {
        let buckets = (entries * 4).next_power_of_two();
        Chains {
            buckets: vec![NONE; buckets],
            next: vec![NONE; entries],
            shift: 64 - buckets.trailing_zeros(),
        }
    }

    #[inline(always)]
    fn bucket(&self, key: u64) -> usize {
        // Fibonacci hashing: the product's high bits depend on every bit of the place.
        (place(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    fn add(&mut self, key: u64, slot: usize) {
        let bucket = self.bucket(key);
        self.next[slot] = self.buckets[bucket];
        self.buckets[bucket] = slot as u16;
    }

    #[inline]
    fn remove(&mut self, key: u64, slot: usize) {
        let bucket = self.bucket(key);
        let mut at = self.buckets[bucket];
        if at as usize == slot {
            self.buckets[bucket] = self.next[slot];
            return;
        }
        while self.next[at as usize] as usize != slot {
            at = self.next[at as usize];
        }
        self.next[at as usize] = self.next[slot];
    }
}

/// A set-associative array of `T`.
#[derive(Clone, Debug)]
pub(crate) struct Bank<T> {
    divider: Divider,
    ways: usize,
    keys: Vec<u64>,
    values: Vec<T>,
    /// When each slot was last used, by `uses`; 0 for those that are vacant.
    used: Vec<u64>,
    uses: u64,
    /// For sets of many ways: their slots and when these were last used when all ways were looked
    /// at, the first to leave last. Those used since then do not leave.
    next: Vec<Vec<(u64, u16)>>,
    chains: Option<Chains>,
    live: usize,
}

impl<T: Copy> Bank<T> {
    /// `ways` divides `entries`; both are from 1 to [`MAX_ENTRIES`]. `blank` fills vacant slots.
    pub(crate) fn new(entries: u32, ways: u32, blank: T) -> Bank<T> {
        let (entries, ways) = (entries as usize, ways as usize);
        let sets = entries / ways;
        Bank {
            divider: Divider::new(sets as u64, Index::Modulo),
            ways,
            keys: vec![EMPTY; entries],
            values: vec![blank; entries],
            used: vec![0; entries],
            uses: 0,
            next: vec![Vec::new(); if ways > SCANNED_WAYS { sets } else { 0 }],
            chains: (ways > SCANNED_WAYS).then(|| Chains::new(entries)),
            live: 0,
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn capacity(&self) -> usize {
        self.keys.len()
    }

    #[inline(always)]
    fn set_of(&self, key: u64) -> usize {
        self.divider.split_plain(key & PAGE_MASK).0
    }

    #[inline(always)]
    fn slot_of(&self, set: usize, key: u64) -> Option<usize> {
        match &self.chains {
            None => {
                let base = set * self.ways;
                let mut found = None;
                for (way, &k) in self.keys[base..base + self.ways].iter().enumerate() {
                    if k == key {
                        found = Some(base + way);
                    }
                }
                found
            }
            Some(chains) => {
                let mut at = chains.buckets[chains.bucket(key)];
                while at != NONE {
                    if self.keys[at as usize] == key {
                        return Some(at as usize);
                    }
                    at = chains.next[at as usize];
                }
                None
            }
        }
    }

    /// The slot of a key.
    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.slot_of(self.set_of(key), key)
    }

    /// The value in a slot that [`find`](Bank::find) gave; the slot becomes the most
    /// recent of its set.
    #[inline(always)]
    pub(crate) fn touch(&mut self, slot: usize) -> &mut T {
        self.uses += 1;
        self.used[slot] = self.uses;
        &mut self.values[slot]
    }

    /// Whether a slot holds this key.
    #[inline(always)]
    pub(crate) fn holds(&self, slot: usize, key: u64) -> bool {
        self.keys[slot] == key
    }

    /// The value in a slot that [`find`](Bank::find) gave.
    pub(crate) fn value(&self, slot: usize) -> &T {
        &self.values[slot]
    }

    /// Puts a value in, over the one with the same key or over the least recent of its set; returns
    /// what was there.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64, value: T) -> Option<T> {
        let set = self.set_of(key);
        let (slot, old) = match self.slot_of(set, key) {
            Some(slot) => (slot, Some(self.values[slot])),
            None => {
                let slot = self.oldest(set);
                let old_key = self.keys[slot];
                let old = (old_key != EMPTY).then_some(self.values[slot]);
                self.live += usize::from(old.is_none());
                if let Some(chains) = &mut self.chains {
                    if old_key != EMPTY {
                        chains.remove(old_key, slot);
                    }
                    chains.add(key, slot);
                }
                self.keys[slot] = key;
                (slot, old)
            }
        };
        *self.touch(slot) = value;
        old
    }

    /// The slot of a set that is vacant, or used least recently.
    #[inline]
    fn oldest(&mut self, set: usize) -> usize {
        let base = set * self.ways;
        if let Some(next) = self.next.get_mut(set) {
            loop {
                while let Some((used, slot)) = next.pop() {
                    if self.used[usize::from(slot)] == used {
                        return usize::from(slot);
                    }
                }
                let used = &self.used[base..base + self.ways];
                next.extend(used.iter().copied().zip(base as u16..));
                next.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
        let (mut slot, mut least) = (base, u64::MAX);
        for (way, &used) in self.used[base..base + self.ways].iter().enumerate() {
            (slot, least) = if used < least { (base + way, used) } else { (slot, least) };
        }
        slot
    }

    #[inline]
    fn remove(&mut self, slot: usize) {
        if let Some(chains) = &mut self.chains {
            chains.remove(self.keys[slot], slot);
        }
        self.keys[slot] = EMPTY;
        self.used[slot] = 0;
        if let Some(next) = self.next.get_mut(slot / self.ways) {
            next.push((0, slot as u16));
        }
        self.live -= 1;
    }

    /// Removes each entry that `which` picks; tells `gone` about it.
    pub(crate) fn remove_if(
        &mut self,
        mut which: impl FnMut(&T) -> bool,
        mut gone: impl FnMut(&T),
    ) {
        if self.live == 0 {
            return;
        }
        for slot in 0..self.keys.len() {
            if self.keys[slot] != EMPTY && which(&self.values[slot]) {
                gone(&self.values[slot]);
                self.remove(slot);
            }
        }
    }

    /// Removes each entry of a page of a class, in whatever context, that `which` picks.
    #[inline]
    pub(crate) fn remove_page(
        &mut self,
        class: u8,
        page: u64,
        mut which: impl FnMut(&T) -> bool,
        mut gone: impl FnMut(&T),
    ) {
        self.each_slot(key(class, 0, page), |bank, slot| {
            if which(&bank.values[slot]) {
                gone(&bank.values[slot]);
                bank.remove(slot);
            }
        });
    }

    /// Visits each entry of a page of a class, in whatever context.
    #[inline]
    pub(crate) fn each_of_page(&mut self, class: u8, page: u64, mut visit: impl FnMut(&mut T)) {
        self.each_slot(key(class, 0, page), |bank, slot| visit(&mut bank.values[slot]));
    }

    #[inline]
    fn each_slot(&mut self, key: u64, mut act: impl FnMut(&mut Bank<T>, usize)) {
        if self.live == 0 {
            return;
        }
        let wanted = place(key);
        if let Some(chains) = &self.chains {
            let mut at = chains.buckets[chains.bucket(key)];
            while at != NONE {
                let slot = at as usize;
                at = self.chains.as_ref().map_or(NONE, |c| c.next[slot]);
                if place(self.keys[slot]) == wanted {
                    act(self, slot);
                }
            }
        } else {
            let base = self.set_of(key) * self.ways;
            for slot in base..base + self.ways {
                if place(self.keys[slot]) == wanted {
                    act(self, slot);
                }
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        if self.live > 0 {
            self.keys.fill(EMPTY);
            self.used.fill(0);
            self.next.iter_mut().for_each(Vec::clear);
            if let Some(chains) = &mut self.chains {
                chains.buckets.fill(NONE);
            }
            self.live = 0;
        }
    }

    /// Live entries, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.keys.iter().zip(&self.values).filter(|&(&k, _)| k != EMPTY).map(|(_, v)| v)
    }

    /// Live entries, by slot.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.keys.iter().zip(&mut self.values).filter(|&(&k, _)| k != EMPTY).map(|(_, v)| v)
    }

    /// Recounts everything; `key_of` gives the key a value should have.
    pub(crate) fn validate(&self, key_of: impl Fn(&T) -> u64) -> Result<(), String> {
        let live = self.keys.iter().filter(|&&k| k != EMPTY).count();
        if live != self.live {
            return Err(format!("{live} live entries, {} counted", self.live));
        }
        for (slot, &k) in self.keys.iter().enumerate().filter(|&(_, &k)| k != EMPTY) {
            if key_of(&self.values[slot]) != k {
                return Err(format!("slot {slot} has another entry's key"));
            }
            if self.slot_of(self.set_of(k), k) != Some(slot) {
                return Err(format!("slot {slot} is not found under its key"));
            }
        }
        let mut used: Vec<u64> = self.used.iter().copied().filter(|&used| used != 0).collect();
        used.sort_unstable();
        used.dedup();
        if used.len() != live || used.last().is_some_and(|&last| last > self.uses) {
            return Err(format!("{} times of use for {live} live entries", used.len()));
        }
        for (set, next) in self.next.iter().enumerate().filter(|(_, next)| !next.is_empty()) {
            let newest = next.iter().map(|&(used, _)| used).max().unwrap_or(0);
            let mut slots = set * self.ways..(set + 1) * self.ways;
            let is_known = |slot: usize| {
                self.used[slot] > newest || next.contains(&(self.used[slot], slot as u16))
            };
            if let Some(slot) = slots.find(|&slot| !is_known(slot)) {
                return Err(format!("slot {slot} is not among those that leave next"));
            }
        }
        let vacant = self.keys.iter().zip(&self.used).position(|(k, u)| (*k == EMPTY) != (*u == 0));
        if let Some(slot) = vacant {
            return Err(format!("slot {slot} is vacant and was used, or neither"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A naive bank: keys of each set, the most recent first.
    struct Naive(Vec<Vec<u64>>, usize);

    #[test]
    fn a_bank_agrees_with_a_naive_model_scanned_or_chained() {
        let mut x = 0x1234_5678_9abc_def1u64;
        for (entries, ways) in
            [(1, 1), (2, 2), (16, 4), (24, 8), (48, 16), (32, 32), (64, 64), (96, 48)]
        {
            let mut bank = Bank::new(entries, ways, 0u64);
            let sets = (entries / ways) as u64;
            let mut naive = Naive(vec![Vec::new(); sets as usize], ways as usize);
            for step in 0..20_000 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let page = (x >> 8) % (u64::from(entries) * 2);
                let k = key((x >> 40 & 1) as u8, (x >> 50 & 1) as u16, page);
                let set = &mut naive.0[(page % sets) as usize];
                let at = set.iter().position(|&other| other == k);
                match x & 7 {
                    0 => {
                        let mut gone = Vec::new();
                        bank.remove_page((k >> 61 & 3) as u8, page, |_| true, |&v| gone.push(v));
                        let mut expect: Vec<_> =
                            set.iter().copied().filter(|&o| place(o) == place(k)).collect();
                        set.retain(|&o| place(o) != place(k));
                        gone.sort_unstable();
                        expect.sort_unstable();
                        assert_eq!(gone, expect);
                    }
                    1..=4 => {
                        let found = bank.find(k);
                        assert_eq!(
                            found.map(|s| *bank.touch(s)),
                            at.map(|_| k),
                            "{entries}/{ways} step {step}"
                        );
                        if let Some(at) = at {
                            set.remove(at);
                            set.insert(0, k);
                        }
                    }
                    _ => {
                        let old = bank.insert(k, k);
                        let expect = match at {
                            Some(at) => Some(set.remove(at)),
                            None if set.len() == naive.1 => set.pop(),
                            None => None,
                        };
                        assert_eq!(old, expect, "{entries}/{ways} step {step}");
                        set.insert(0, k);
                        bank.validate(|&v| v).expect("consistent");
                    }
                }
            }
            bank.validate(|&v| v).expect("consistent");
            bank.clear();
            assert_eq!((bank.live(), bank.iter().count()), (0, 0));
            bank.validate(|&v| v).expect("consistent");
        }
    }
}
