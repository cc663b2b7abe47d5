//! Which thread touches each page first, in the order of the file.
//!
//! Threads drift apart in a replay, and the locks that ordered them are not in the trace. Most of
//! that drift is harmless. This is not: thread A fills a page that thread B then reads. With B in
//! front, the page would be mapped as a page of zeros for B and copied for A: two faults instead of
//! one, and a page on B's node instead of A's. So a *faulting* access waits for the page's first
//! toucher, if that is another thread and earlier in the file (rule 3 of the module). Other
//! accesses do not check.
//!
//! Only traces of several threads are watched. The cost is one bit test for each access while
//! distributing, and an entry for each page whose first touch is not known to be done.

use std::collections::BTreeMap;

const PAGE_SHIFT: u32 = 12;
/// Entries beyond which those that are done are dropped.
const PRUNE: usize = 1 << 16;

/// Pages that are remembered to have been seen lately, a power of two.
const RECENT: usize = 64;
/// No mapping has this number: a trace has at most 2^22 of them.
const NO_PAGE: (u32, u64) = (u32::MAX, 0);

/// First touches.
#[derive(Debug)]
pub struct FirstTouches {
    /// For each mapping, a bit a page: touched since it was last emptied.
    seen: Vec<Vec<u64>>,
    /// (mapping, page, number of the event) of a first touch, and its thread.
    first: BTreeMap<(u32, u64, u64), u32>,
    /// Some (mapping, page) of which `seen` is set, each where its numbers say: most accesses are
    /// to one of them.
    recent: [(u32, u64); RECENT],
    prune_at: usize,
}

impl Default for FirstTouches {
    fn default() -> FirstTouches {
        let (seen, first) = (Vec::new(), BTreeMap::new());
        FirstTouches { seen, first, recent: [NO_PAGE; RECENT], prune_at: 0 }
    }
}

impl FirstTouches {
    /// An access was read.
    #[inline]
    pub fn see(&mut self, mapping: u32, offset: u64, size: u8, number: u64, thread: u32) {
        let page = offset >> PAGE_SHIFT;
        let end = (offset + u64::from(size.max(1)) - 1) >> PAGE_SHIFT;
        let recent = &mut self.recent[(page as usize ^ mapping as usize) % RECENT];
        if *recent != (mapping, page) || end != page {
            *recent = (mapping, page);
            self.page(mapping, page, number, thread);
            if end != page {
                self.page(mapping, end, number, thread);
            }
        }
    }

    #[inline(never)]
    fn page(&mut self, mapping: u32, page: u64, number: u64, thread: u32) {
        let (m, word) = (mapping as usize, (page / 64) as usize);
        if self.seen.len() <= m {
            self.seen.resize_with(m + 1, Vec::new);
        }
        let bits = &mut self.seen[m];
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        let bit = 1 << (page % 64);
        if bits[word] & bit == 0 {
            bits[word] |= bit;
            self.first.insert((mapping, page, number), thread);
        }
    }

    /// Pages of a mapping were emptied: the next access touches them first.
    pub fn forget(&mut self, mapping: u32, offset: u64, len: u64) {
        self.recent = [NO_PAGE; RECENT];
        let Some(bits) = self.seen.get_mut(mapping as usize) else { return };
        let end = (offset.saturating_add(len) >> PAGE_SHIFT).min(bits.len() as u64 * 64);
        for page in offset >> PAGE_SHIFT..end {
            bits[(page / 64) as usize] &= !(1 << (page % 64));
        }
    }

    /// The first touch of a page before event `number`: its thread and number.
    pub fn before(&self, mapping: u32, offset: u64, number: u64) -> Option<(u32, u64)> {
        let page = offset >> PAGE_SHIFT;
        let (key, thread) =
            self.first.range((mapping, page, 0)..(mapping, page, number)).next_back()?;
        Some((*thread, key.2))
    }

    /// Drops what is done, now and then.
    pub fn prune(&mut self, done: impl Fn(u32, u64) -> bool) {
        if self.first.len() >= self.prune_at.max(PRUNE) {
            self.first.retain(|key, thread| !done(*thread, key.2));
            self.prune_at = self.first.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_toucher_of_a_page_is_remembered_until_the_page_is_emptied() {
        let mut t = FirstTouches::default();
        t.see(0, 4096, 8, 10, 1);
        t.see(0, 4100, 8, 11, 2);
        assert_eq!(t.before(0, 5000, 11), Some((1, 10)));
        assert_eq!(t.before(0, 5000, 10), None, "an event does not wait for itself");
        assert_eq!(t.before(0, 0, 99), None);
        t.forget(0, 4096, 4096);
        t.see(0, 4096, 8, 20, 2);
        assert_eq!([t.before(0, 4096, 15), t.before(0, 4096, 25)], [Some((1, 10)), Some((2, 20))]);
    }

    #[test]
    fn an_access_over_a_page_boundary_touches_both() {
        let mut t = FirstTouches::default();
        t.see(3, 4092, 8, 5, 0);
        assert_eq!([t.before(3, 0, 9), t.before(3, 4096, 9)], [Some((0, 5)); 2]);
        // From a page that was seen into one that was not.
        t.see(4, 0, 8, 6, 0);
        t.see(4, 4092, 8, 7, 1);
        assert_eq!([t.before(4, 0, 9), t.before(4, 4096, 9)], [Some((0, 6)), Some((1, 7))]);
    }

    #[test]
    fn what_is_done_is_dropped_when_there_is_much_of_it() {
        let mut t = FirstTouches::default();
        for page in 0..2 * PRUNE as u64 {
            t.see(0, page << PAGE_SHIFT, 8, page, 0);
        }
        t.prune(|_, number| number < PRUNE as u64);
        assert_eq!(
            [t.before(0, 0, u64::MAX), t.before(0, (PRUNE as u64) << PAGE_SHIFT, u64::MAX)],
            [None, Some((0, PRUNE as u64))]
        );
    }
}
