//! What the first level of data does beside holding lines.
//!
//! Lines that come into one set may come one after the other, however many loads wait for them. And
//! a level may look for a line in the way that a hash of its linear address names: a frame that is
//! mapped in several places is then missed at each of them.

use super::chase::{Chain, LINE, PAGE, lines, pieces};
use super::figure::{Figure, fastest};
use super::topology::Topology;
use crate::bench::linux::{Area, shared_memory};
use crate::rng::Rng;

/// Times of loads that ask the first level in ways that a plain one would not mind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FirstTimes {
    /// From the second level, where 32 chases go on at once through lines of one set of the first:
    /// time of any load.
    pub one_set: Figure,
    /// Stores to lines of one set that the second level has: any of them.
    pub one_set_stores: Figure,
    /// As [`one_set`](FirstTimes::one_set), through lines of many sets.
    pub many_sets: Figure,
    /// From one line, by eight addresses in turn; `None` where memory cannot be mapped twice.
    pub aliases: Option<Figure>,
}

/// Lines of one set: more than any first level has ways, and than chases go on at once. Each is in
/// another page, few enough for first-level TLBs.
const ONE_SET: usize = 48;
/// The same for stores, of which cores combine some.
const STORED: usize = 128;
/// Addresses of one line, a word of it for each.
const ALIASES: usize = LINE / size_of::<usize>();

/// Measures in an area of huge pages, if the kernel has them.
pub(super) fn measure(topology: &Topology, huge: &Area) -> FirstTimes {
    let at_once = |places: &[usize]| Chain::new(huge, places).step_of_many();
    let l2 = topology.l2.size as usize;
    FirstTimes {
        one_set: at_once(&one_set()),
        one_set_stores: stores(huge),
        many_sets: at_once(&lines((l2 / 2).min(256 << 10))),
        aliases: aliases(),
    }
}

/// The first line of some pages, in an order that no prefetcher knows.
fn one_set() -> Vec<usize> {
    let mut places: Vec<usize> = (0..ONE_SET).map(|n| n * PAGE).collect();
    Rng::new(3).shuffle(&mut places);
    places
}

/// Stores in turn to the first lines of pages, as fast as a core does them.
fn stores(area: &Area) -> Figure {
    const ROUNDS: usize = 100;
    let words: Vec<*mut usize> = (0..STORED).map(|n| area.at(n * PAGE).cast()).collect();
    let round = |n: usize| {
        for &word in &words {
            // SAFETY: a word of the area, which nobody else uses.
            unsafe { word.write_volatile(n) };
        }
    };
    round(0);
    Figure::settle(|| fastest(16, ROUNDS * STORED, || (0..ROUNDS).for_each(round)))
}

/// A step from one address of a line to the next.
fn aliases() -> Option<Figure> {
    let file = shared_memory(PAGE as u64).ok()?;
    let show = |_| Area::new(PAGE as u64, false)?.show(&file);
    let areas = (0..ALIASES).map(show).collect::<Result<Vec<_>, _>>().ok()?;
    let word = |n: usize| areas[n % ALIASES].at(n % ALIASES * size_of::<usize>()).cast::<usize>();
    for n in 0..ALIASES {
        // SAFETY: a word of the page that is mapped there, which nobody else uses.
        unsafe { word(n).write(word(n + 1) as usize) };
    }
    let mut at = [word(0).cast_const()];
    Some(Figure::settle(|| pieces(&mut at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_set_are_in_pages_of_their_own_and_in_no_order() {
        let places = one_set();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..ONE_SET).map(|n| n * PAGE).collect::<Vec<_>>());
        let is_run = |w: &&[usize]| w[1].wrapping_sub(w[0]) == w[2].wrapping_sub(w[1]);
        assert!(places.windows(3).filter(is_run).count() < 4, "{places:?}");
    }

    #[test]
    fn a_line_is_read_by_each_of_its_addresses() {
        let step = aliases().expect("a kernel with memfd");
        assert!(step.ns > 0.0 && step.ns < 1000.0, "{step:?}");
    }
}
