//! Which place of a small table has which page, and which was used longest ago.
//!
//! A prefetcher asks this at each miss of the first level, with up to 256 places. So pages are
//! found by a hash, and the order of use is a list through the places.

/// No page has this number.
pub(super) const NONE: u64 = u64::MAX;
/// The end of a chain.
const END: u16 = u16::MAX;

/// A place, in the list of use and in the chain of its page's hash.
#[derive(Clone, Copy, Debug)]
struct Place {
    page: u64,
    older: u16,
    newer: u16,
    next: u16,
}

/// Places with a page each. The list of use goes through one more, which stands between the newest
/// and the oldest.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    places: Vec<Place>,
    /// The first place of each chain.
    chains: Vec<u16>,
}

impl Recent {
    /// So many places without a page, 1 to 256.
    pub(super) fn new(count: usize) -> Recent {
        let around = |n: usize, by: usize| ((n + by) % (count + 1)) as u16;
        let place =
            |n| Place { page: NONE, older: around(n, count), newer: around(n, 1), next: END };
        Recent {
            places: (0..=count).map(place).collect(),
            chains: vec![END; (4 * count).next_power_of_two()],
        }
    }

    fn chain(&self, page: u64) -> usize {
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % self.chains.len()
    }

    /// The place of a page.
    #[inline]
    pub(super) fn find(&self, page: u64) -> Option<usize> {
        let mut at = self.chains[self.chain(page)];
        while at != END && self.places[usize::from(at)].page != page {
            at = self.places[usize::from(at)].next;
        }
        (at != END).then_some(at.into())
    }

    /// A place is used.
    #[inline]
    pub(super) fn touch(&mut self, at: usize) {
        let between = self.places.len() - 1;
        let Place { older, newer, .. } = self.places[at];
        self.places[usize::from(older)].newer = newer;
        self.places[usize::from(newer)].older = older;
        let newest = self.places[between].older;
        self.places[at].older = newest;
        self.places[at].newer = between as u16;
        self.places[usize::from(newest)].newer = at as u16;
        self.places[between].older = at as u16;
    }

    /// The place that was used longest ago.
    pub(super) fn oldest(&self) -> usize {
        self.places[self.places.len() - 1].newer.into()
    }

    /// A place has another page from now on, which no place had.
    pub(super) fn rename(&mut self, at: usize, page: u64) {
        let old = self.places[at].page;
        if old != NONE {
            let chain = self.chain(old);
            let next = self.places[at].next;
            let mut link = self.chains[chain];
            if usize::from(link) == at {
                self.chains[chain] = next;
            } else {
                while usize::from(self.places[usize::from(link)].next) != at {
                    link = self.places[usize::from(link)].next;
                }
                self.places[usize::from(link)].next = next;
            }
        }
        let chain = self.chain(page);
        self.places[at].page = page;
        self.places[at].next = std::mem::replace(&mut self.chains[chain], at as u16);
    }

    /// Each place with a page is found by it, and all are in the list, which is the same in both
    /// directions.
    pub(super) fn validate(&self) -> Result<(), String> {
        for (at, place) in self.places.iter().enumerate().filter(|(_, p)| p.page != NONE) {
            if self.find(place.page) != Some(at) {
                return Err(format!("page {} is not found in place {at}", place.page));
            }
        }
        let between = self.places.len() - 1;
        let (mut at, mut seen) = (between, 0);
        while seen <= between {
            let newer = usize::from(self.places[at].newer);
            if usize::from(self.places[newer].older) != at {
                return Err(format!("place {newer} is not after place {at}"));
            }
            (at, seen) = (newer, seen + 1);
            if at == between {
                break;
            }
        }
        if seen != self.places.len() {
            return Err(format!("{seen} of {} places are in the list", self.places.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list of pages, the oldest first.
    #[test]
    fn pages_are_found_and_the_oldest_leaves_whatever_they_are_renamed_to() {
        for count in [1, 2, 16, 256] {
            let mut recent = Recent::new(count);
            let mut naive: Vec<(u64, usize)> =
                (0..count).map(|at| (NONE - 1 - at as u64, at)).collect();
            let mut x = 88172645463325252u64;
            for _ in 0..4000 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let page = x >> 20 & (2 * count as u64 - 1);
                let known = naive.iter().position(|&(p, _)| p == page);
                assert_eq!(recent.find(page), known.map(|n| naive[n].1));
                let n = match known {
                    Some(n) if x & 3 == 0 => {
                        // It goes to a page that nobody has.
                        let fresh = (x >> 8 | 1 << 40) & !(1 << 63);
                        recent.rename(naive[n].1, fresh);
                        naive[n].0 = fresh;
                        n
                    }
                    Some(n) => n,
                    None => {
                        assert_eq!(recent.oldest(), naive[0].1);
                        recent.rename(naive[0].1, page);
                        naive[0].0 = page;
                        0
                    }
                };
                let used = naive.remove(n);
                recent.touch(used.1);
                naive.push(used);
                recent.validate().expect("consistent");
            }
        }
    }
}
