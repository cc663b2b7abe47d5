//! What is known of the pages that were touched lately: in which mappings they lie, and how they
//! were touched. A word for each, so that those of 256 MiB fit into a core's second-level cache.
//!
//! From the lowest bit: 3 bits of touches, 10 of the place where the mapping is, 35 of the page, 16
//! of the generation. Addresses of programs have 47 bits.

use crate::PAGE;
use crate::codec::table;

/// Pages, and mappings of which they may be at one time.
const PAGES: usize = 1 << 16;
const PLACES: usize = 1 << PLACE_BITS;
/// Places where the place of a mapping may be.
const TRIES: usize = 4;

const TOUCH_BITS: u32 = 3;
const PLACE_BITS: u32 = 10;
/// Where the page and the generation begin.
const PAGE_AT: u32 = TOUCH_BITS + PLACE_BITS;
const GENERATION_AT: u32 = PAGE_AT + 35;

/// A mapping that pages lie in, in one generation.
#[derive(Clone, Copy, Default)]
struct Place {
    base: u64,
    mapping: u32,
    generation: u16,
}

/// See the file's head.
pub(super) struct Pages {
    words: Box<[u64; PAGES]>,
    places: Box<[Place; PLACES]>,
    /// Never 0, which is that of words without a page.
    generation: u16,
}

impl Pages {
    /// Nothing is known.
    pub(super) fn new() -> Pages {
        Pages { words: table(), places: table(), generation: 1 }
    }

    fn word(&self, page: u64) -> u64 {
        u64::from(self.generation) << GENERATION_AT | page << PAGE_AT
    }

    /// The mapping of an address and the address of its offset 0, if its page was touched in all
    /// these ways.
    #[inline(always)]
    pub(super) fn find(&self, addr: u64, touches: u8) -> Option<(u32, u64)> {
        let page = addr / PAGE;
        debug_assert!(addr < 1 << 47, "not an address of a program");
        let found = self.words[page as usize % PAGES];
        let touches = u64::from(touches);
        if (found ^ self.word(page)) >> PAGE_AT != 0 || found & touches != touches {
            return None;
        }
        let place = &self.places[(found >> TOUCH_BITS) as usize % PLACES];
        Some((place.mapping, place.base))
    }

    /// An access is about to come: its word may be far away.
    #[inline(always)]
    pub(super) fn expect(&self, addr: u64) {
        std::hint::black_box(self.words[(addr / PAGE) as usize % PAGES]);
    }

    /// The page of an address, below 2^47, lies in this mapping, with offset 0 at `base`, and was
    /// touched in these ways, three bits.
    pub(super) fn learn(&mut self, addr: u64, (mapping, base): (u32, u64), touches: u8) {
        let place = self.place(mapping, base) as u64;
        let page = addr / PAGE;
        self.words[page as usize % PAGES] =
            self.word(page) | place << TOUCH_BITS | u64::from(touches);
    }

    /// Where a mapping is noted. If all its places have others, all are forgotten.
    fn place(&mut self, mapping: u32, base: u64) -> usize {
        let first = mapping as usize;
        let free = (first..first + TRIES).map(|at| at % PLACES).find(|&at| {
            let place = &self.places[at];
            place.generation != self.generation || (place.mapping, place.base) == (mapping, base)
        });
        let at = free.unwrap_or_else(|| {
            self.forget();
            first % PLACES
        });
        self.places[at] = Place { base, mapping, generation: self.generation };
        at
    }

    /// What was known is void.
    pub(super) fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            self.words.fill(0);
            self.places.fill(Place::default());
            self.generation = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses all over, each page in a mapping of its own or of its neighbours.
    #[test]
    fn what_is_found_is_what_was_learned_last_and_since_all_was_forgotten() {
        let mut pages = Pages::new();
        let mut known = std::collections::HashMap::new();
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut found = 0;
        for _ in 0..400_000 {
            let page = random(400) + [0, 1 << 16, (1 << 35) - 400][random(3) as usize];
            let addr = page * PAGE + random(PAGE);
            match random(1000) {
                0..500 => {
                    let mapping = (random(2) * 1024 + random(3)) as u32;
                    let moved = u64::from(random(1000) == 0);
                    let place = (mapping, (u64::from(mapping) + moved) * PAGE);
                    let touches = random(8) as u8;
                    pages.learn(addr, place, touches);
                    known.insert(page, (place, touches));
                }
                500 => {
                    pages.forget();
                    known.clear();
                }
                _ => {
                    let touches = random(4) as u8;
                    if let Some(place) = pages.find(addr, touches) {
                        let (last, all) = known[&page];
                        assert_eq!((place, all & touches), (last, touches));
                        found += 1;
                    }
                }
            }
        }
        assert!(found > 2_000, "{found}");
    }

    #[test]
    fn a_generation_that_comes_again_knows_nothing_of_the_first() {
        let mut pages = Pages::new();
        pages.learn(5 * PAGE, (7, PAGE), 3);
        assert_eq!(pages.find(5 * PAGE + 9, 3), Some((7, PAGE)));
        assert_eq!(pages.find(5 * PAGE, 7), None, "another way");
        (0..u16::MAX).for_each(|_| pages.forget());
        assert_eq!((pages.generation, pages.find(5 * PAGE, 0)), (1, None));
        assert_eq!(pages.find(0, 0), None);
        for n in 0..1 << 17 {
            pages.forget();
            assert_eq!((pages.find(5 * PAGE, 0), pages.find(0, 0)), (None, None), "{n}");
        }
    }

    #[test]
    fn each_mapping_has_its_place_and_four_that_meet_have_theirs() {
        let mut pages = Pages::new();
        let all = (0..PLACES as u32).map(|n| (u64::from(n) * PAGE, (n, u64::from(n) << 20)));
        all.clone().for_each(|(addr, place)| pages.learn(addr, place, 1));
        assert!(all.clone().all(|(addr, place)| pages.find(addr, 1) == Some(place)));
        let mut pages = Pages::new();
        for n in 0..6 {
            let (addr, place) = (u64::from(n) * PAGE, (n * PLACES as u32, PAGE));
            pages.learn(addr, place, 3);
            assert_eq!(pages.find(addr, 3), Some(place), "{n}");
            let first = (n < TRIES as u32).then_some((0, PAGE));
            assert_eq!(pages.find(0, 3), first, "all are forgotten where there is no place");
        }
    }
}
