//! Chases of pointers: each load needs the one before, so that a step takes what a load takes.
//!
//! A chain is a random cycle through places in one area of memory. What a step costs is decided by
//! which places these are: lines of huge pages for the time of a cache, one line of each page for
//! that of a translation.

use std::hint::black_box;

use super::figure::{Figure, fastest};
use crate::bench::linux::Area;
use crate::rng::Rng;

/// Bytes of a line and of a page.
pub(super) const LINE: usize = 64;
pub(super) const PAGE: usize = 4096;
/// Lines apart of two places: neighbours that are fetched along do not help.
const SPACING: usize = 4 * LINE;
/// Places are shuffled within so many bytes: TLBs of two levels cover them even where a hypervisor
/// keeps a huge page in pieces of 4 KiB.
pub(super) const BLOCK: usize = 4 << 20;
/// Pieces of a measurement and how long each takes at least, in nanoseconds.
const PIECES: u32 = 16;
const PIECE: f64 = 400_000.0;
/// Pieces of a chase that is flushed before each.
const COLD_PIECES: u32 = 6;
/// A chase through more places takes a tenth of a second or longer, and is not repeated.
const LONG: usize = 1 << 20;
/// Chases that go on at once.
pub const CHAINS: usize = 32;

/// A cycle of pointers.
pub(super) struct Chain<'a> {
    /// Where each of [`CHAINS`] chases begins: at equal distances along the cycle.
    starts: [*const usize; CHAINS],
    places: &'a [usize],
    area: &'a Area,
}

/// One line in four of the first `bytes`, in random order, 4 MiB after 4 MiB.
pub(super) fn lines(bytes: usize) -> Vec<usize> {
    shuffled(bytes, SPACING)
}

/// Every line of the first `bytes`, in such an order. Neighbours that are fetched along are lines
/// of the chase, too, so that it needs as much of a cache as it has lines.
pub(super) fn all_lines(bytes: usize) -> Vec<usize> {
    shuffled(bytes, LINE)
}

fn shuffled(bytes: usize, spacing: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..bytes.max(2 * spacing)).step_by(spacing).collect();
    let mut rng = Rng::new(1);
    places.chunks_mut(BLOCK / spacing).for_each(|block| rng.shuffle(block));
    places
}

/// A line of each of the first `pages` pages, in random order: bytes from the start of the first.
pub fn pages(pages: usize) -> Vec<usize> {
    let mut rng = Rng::new(2);
    let line = |page: usize, rng: &mut Rng| page * PAGE + rng.below(64) as usize * LINE;
    let mut places: Vec<usize> = (0..pages.max(2)).map(|page| line(page, &mut rng)).collect();
    rng.shuffle(&mut places);
    places
}

impl Chain<'_> {
    /// Writes the cycle into an area that is long enough for its places.
    pub(super) fn new<'a>(area: &'a Area, places: &'a [usize]) -> Chain<'a> {
        let at = |n: usize| area.at(places[n % places.len()]).cast::<usize>();
        for n in 0..places.len() {
            // SAFETY: a word of the area, which nobody else uses.
            unsafe { at(n).write(at(n + 1) as usize) };
        }
        let starts = std::array::from_fn(|i| at(places.len() * i / CHAINS).cast_const());
        Chain { starts, places, area }
    }

    /// A step of one chase.
    pub(super) fn step(&self) -> Figure {
        let mut at = [self.starts[0]];
        Figure::settle(|| pieces(&mut at))
    }

    /// A step of any of [`CHAINS`] chases that go through all places together, once they were all
    /// visited: the mean, and not the fastest part, since some of them may be in a cache. Many,
    /// since neighbours take a line the sooner away the longer nobody uses it.
    pub(super) fn mean_step_of_many(&self) -> f64 {
        let each = self.places.len() / CHAINS;
        let round = || fastest(1, each * CHAINS, || _ = chase(self.starts, each));
        round();
        let rounds = if self.places.len() > LONG { 1 } else { 3 };
        (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
    }

    /// A step of one chase once through all places: the mean.
    pub(super) fn one_round(&self) -> f64 {
        fastest(1, self.places.len(), || _ = chase([self.starts[0]], self.places.len()))
    }

    /// A step of any of [`CHAINS`] chases at once.
    pub(super) fn step_of_many(&self) -> Figure {
        let mut at = self.starts;
        Figure::settle(|| pieces(&mut at) / CHAINS as f64)
    }

    /// A step of one chase, and of any of [`CHAINS`] at once, where no cache has the next place:
    /// all are flushed before they are gone through once. `None` where programs cannot flush.
    pub(super) fn cold_steps(&self) -> Option<[Figure; 2]> {
        let (places, each) = (self.places.len(), self.places.len() / CHAINS);
        let one = self.cold(COLD_PIECES, || _ = chase([self.starts[0]], places))?;
        Some([one, self.cold(COLD_PIECES, || _ = chase(self.starts, each))?])
    }

    /// What each place takes in a run that goes through all of them and finds them in no cache:
    /// the fastest of some. `None` where programs cannot flush.
    pub(super) fn cold(&self, runs: u32, run: impl Fn()) -> Option<Figure> {
        let turn = || {
            flush(self.area, self.places.iter().copied())?;
            Some(fastest(1, self.places.len(), &run))
        };
        turn()?;
        let best = || (0..runs).filter_map(|_| turn()).fold(f64::INFINITY, f64::min);
        Some(Figure::settle(best))
    }

    /// Where its places are, and these.
    pub(super) fn memory(&self) -> (*const u8, &[usize]) {
        (self.area.at(0).cast_const(), self.places)
    }
}

/// Puts places out of all caches.
#[cfg(target_arch = "x86_64")]
pub(super) fn flush(area: &Area, places: impl Iterator<Item = usize>) -> Option<()> {
    use std::arch::x86_64::{_mm_clflush, _mm_mfence};
    for place in places {
        // SAFETY: an address of the area; every x86-64 has the instruction.
        unsafe { _mm_clflush(area.at(place)) };
    }
    // SAFETY: a barrier touches nothing.
    unsafe { _mm_mfence() };
    Some(())
}

/// Programs of this architecture may not flush.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn flush(_: &Area, _: impl Iterator<Item = usize>) -> Option<()> {
    None
}

/// The fastest of some pieces. Each goes on where the one before ended, also from run to run: what
/// was visited a moment ago is in a cache.
pub(super) fn pieces<const N: usize>(at: &mut [*const usize; N]) -> f64 {
    let mut steps = 500;
    let probe = fastest(3, steps, || *at = chase(*at, steps));
    steps = ((PIECE / probe) as usize).clamp(500, 1 << 22);
    fastest(PIECES, steps, || *at = chase(*at, steps))
}

/// Follows chains side by side.
fn chase<const N: usize>(from: [*const usize; N], steps: usize) -> [*const usize; N] {
    let mut at = from;
    for _ in 0..steps {
        for a in &mut at {
            // SAFETY: a place of the chain, which holds the next one.
            *a = unsafe { a.read() as *const usize };
        }
    }
    black_box(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_visits_every_place_once_before_it_returns() {
        for places in [lines(1), lines(9 << 20), all_lines(1 << 20), pages(1), pages(700)] {
            let area = Area::new(16 << 20, false).expect("memory");
            let chain = Chain::new(&area, &places);
            let mut sorted = places.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), places.len());
            let (start, mut at) = (chain.starts[0], chain.starts[0]);
            for n in 1..=places.len() {
                [at] = chase([at], 1);
                assert_eq!(at == start, n == places.len());
            }
        }
    }
}
