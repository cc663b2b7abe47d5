//! What a load takes, by where its data is and how its translation is found.

use super::chase::{BLOCK, Chain, LINE, all_lines, lines, pages};
use super::figure::Figure;
use super::first::{self as level, FirstTimes};
use super::topology::Topology;
use super::{row, strides, window};
use crate::bench::linux::Area;

/// Times of loads.
#[derive(Clone, PartialEq, Debug)]
pub struct PlaceTimes {
    /// From the first level.
    pub l1: Figure,
    /// What the first does beside holding lines.
    pub first: FirstTimes,
    /// From the second.
    pub l2: Figure,
    /// From the last.
    pub llc: Figure,
    /// From memory.
    pub memory: Figure,
    /// From memory, where many go on at once: 32 chases, or loads by addresses that are known,
    /// whichever are faster. Time of any load.
    pub memory_of_many: Figure,
    /// Instructions that a core runs ahead of its oldest unfinished load, where that can be
    /// measured.
    pub window: Option<u32>,
    /// Stores that a core has issued and no cache has yet, where that can be measured.
    pub store_buffer: Option<u32>,
    /// Bytes that the last level keeps for one program. A guest's kernel describes the whole, which
    /// other guests use, too.
    pub llc_share: u64,
    /// The share of lines used several times that the last level keeps through a row of twice as
    /// many lines as it has, where that can be told.
    pub kept: Option<f64>,
    /// Streams that are fetched ahead for at once, where that can be measured.
    pub streams: Option<u32>,
    /// From lines at the stride of the last level's sets, more than it and the second have ways;
    /// `None` where that says nothing.
    pub one_set: Option<Figure>,
    /// Entries of the first and the second TLB for pages of 4 KiB, by where chases become slower.
    pub tlb: [u32; 2],
    /// Chases over one line of each page.
    pub chases: Vec<PageChase>,
}

/// A chase over one line of each of some pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PageChase {
    /// Pages of 4 KiB.
    pub pages: usize,
    /// A step where the memory is in pages of 4 KiB.
    pub small: Figure,
    /// A step where the kernel maps it by 2 MiB, if it does.
    pub huge: Option<Figure>,
    /// A step in pages of 4 KiB of any of the chases that go on at once.
    pub small_of_many: Figure,
}

/// Pages of the chases: from what a first-level TLB holds to what none does.
const PAGES: [usize; 5] = [512, 4096, 8192, 16_384, 65_536];

/// Sizes that TLBs of 4 KiB pages have been built in.
const FIRST_TLB: [u32; 7] = [16, 32, 48, 64, 72, 96, 128];
const SECOND_TLB: [u32; 6] = [512, 1024, 1536, 2048, 3072, 4096];

/// Measures in two areas of the same size.
pub(super) fn measure(
    topology: &Topology,
    is_guest: Option<bool>,
    [huge, small]: [&Area; 2],
) -> PlaceTimes {
    let through = |bytes: usize| Chain::new(huge, &lines(bytes)).step();
    let (l1, l2) = (topology.l1d.size as usize, topology.l2.size as usize);
    let most = huge.bytes();
    // Pages of the second chase are within reach of first-level TLBs even in pieces of 4 KiB.
    let first = through(l1 / 2);
    let second = through((l2 / 2).min(256 << 10).max(l1 * 2));
    // What neighbours take away is seldom, and then nearly all.
    let last = || {
        topology.llc.map_or(second, |llc| {
            Chain::new(huge, &all_lines((l2 * 4).min(llc.size as usize))).step()
        })
    };
    let early = last();
    let block = lines(BLOCK);
    let chain = Chain::new(huge, &block);
    let (cold, independent) = (chain.cold_steps(), window::independent(&chain));
    let [memory, of_chases] = cold.unwrap_or_else(|| {
        let all = lines(most);
        let chain = Chain::new(huge, &all);
        [chain.step(), chain.step_of_many()]
    });
    let store_buffer = window::store_buffer(chain, memory);
    let late = last();
    let last = if late.ns < early.ns { late } else { early };
    // Neighbours use it more in one moment than in the next: the median of three counts.
    let through_all = |bytes: usize| Chain::new(huge, &all_lines(bytes)).mean_step_of_many();
    let llc_share = || match topology.llc {
        Some(llc) if is_guest != Some(false) => {
            let inside = through_all((l2 * 4).min(llc.size as usize));
            share(llc.size, most, [inside, of_chases.ns], through_all)
        }
        Some(llc) => llc.size,
        None => topology.l2.size,
    };
    let early = llc_share();
    let is_huge = huge.is_huge();
    let chase = |n: usize| {
        let places = pages(n.min(most / super::chase::PAGE));
        let chain = Chain::new(small, &places);
        let (step, small_of_many) = (chain.step(), chain.step_of_many());
        let huge = is_huge.then(|| Chain::new(huge, &places).step());
        PageChase { pages: places.len(), small: step, huge, small_of_many }
    };
    let of_pages = |n: usize| Chain::new(small, &pages(n)).step().ns;
    let chases = PAGES.map(chase).to_vec();
    let between = llc_share();
    let tlb = [entries(&FIRST_TLB, of_pages), entries(&SECOND_TLB, of_pages)];
    let llc_share = median([early, between, llc_share()]);
    let kept = topology.llc.and_then(|llc| {
        let sizes = [llc.size, llc_share.min(llc.size), topology.l2.size];
        row::kept(huge, sizes.map(|size| size as usize), [last, memory])
    });
    PlaceTimes {
        kept,
        streams: row::streams(huge, memory),
        one_set: strides::measure(topology, huge),
        tlb,
        l1: first,
        first: level::measure(topology, huge),
        l2: second,
        llc: last,
        memory: if memory.ns < last.ns { last } else { memory },
        memory_of_many: match independent {
            Some(loads) if loads.alone.ns < of_chases.ns => loads.alone,
            _ => of_chases,
        },
        window: independent.map(|loads| loads.window(memory)),
        store_buffer,
        llc_share,
        chases,
    }
}

/// The size at which a chase over so many pages becomes slower by most.
fn entries(sizes: &[u32], chase: impl Fn(usize) -> f64) -> u32 {
    let rise = |size: u32| chase(size as usize * 11 / 10) - chase(size as usize * 19 / 20);
    let rises = sizes.iter().map(|&size| (size, rise(size)));
    rises.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(size, _)| size)
}

/// Less of a cache is not looked for.
const SMALLEST: u64 = 1 << 20;
/// What remains where nothing at all was found: neighbours had everything.
const LEAST: u64 = 64 << 10;

/// The one in the middle.
fn median(mut of: [u64; 3]) -> u64 {
    of.sort_unstable();
    of[1]
}

/// The bytes of a cache of `known` bytes that one program gets: of chases through every line of
/// twice as much and less, the most that was found there. What is not found takes the time of the
/// longest chase. `inside`: one that is taken to be found whole; `memory`: of one that is not found
/// at all. Less than the first needs is not told from less.
fn share(known: u64, most: usize, [inside, memory]: [f64; 2], chase: impl Fn(usize) -> f64) -> u64 {
    let mut bytes = most.min(2 * known as usize);
    let (all, outside) = (bytes as u64, chase(bytes));
    if outside < memory / 2.0 {
        // It stayed, so that nothing says that there is not more.
        return known;
    }
    // Where neighbours have nearly all, that one is not found either.
    let inside = inside.min(outside / 2.0);
    let found = |bytes: usize| {
        let missed = (chase(bytes) - inside) / (outside - inside);
        (bytes as f64 * (1.0 - missed.clamp(0.0, 1.0))) as u64
    };
    let (mut kept, mut most) = (0, bytes);
    while bytes as u64 > kept.max(SMALLEST) {
        bytes = bytes / (7 * LINE) * 5 * LINE;
        let here = found(bytes);
        if here > kept {
            (kept, most) = (here, bytes);
        }
    }
    // The edge lies between that chase and the next longer one.
    let longer = found((most / (6 * LINE) * 7 * LINE).min(all as usize));
    kept.max(longer).clamp(LEAST, known.min(all).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tlb_is_as_large_as_the_pages_up_to_which_chases_are_fast() {
        for size in FIRST_TLB {
            let chase = |pages: usize| if pages > size as usize { 4.0 } else { 1.7 };
            assert_eq!(entries(&FIRST_TLB, chase), size);
        }
        // Conflicts before all entries are in use, and longer walks after.
        let chase = |pages: usize| match pages {
            0..1600 => 7.0,
            1600..2100 => 9.5,
            2100..3000 => 21.0,
            _ => 24.0,
        };
        assert_eq!(entries(&SECOND_TLB, chase), 2048);
    }

    #[test]
    fn the_share_of_a_cache_is_the_most_that_stays_in_it() {
        let of = |capacity: f64, known: u64| {
            let chase = |bytes: usize| {
                let missed = (1.0 - capacity / bytes as f64).max(0.0);
                30.0 + 70.0 * missed
            };
            share(known, 256 << 20, [30.0, 100.0], chase) as f64 / capacity
        };
        for (capacity, known) in [(20e6, 256 << 20), (16e6, 32 << 20), (5e6, 32 << 20)] {
            let found = of(capacity, known);
            assert!((0.95..=1.4).contains(&found), "{found} of {capacity}");
        }
        assert_eq!(share(256 << 20, 256 << 20, [30.0, 100.0], |_| 31.0), 256 << 20, "it stayed");
        let nothing = |bytes: usize| {
            assert!(bytes <= 256 << 20, "beyond the memory that is chased through");
            120.0
        };
        for known in [32 << 20, 300 << 20] {
            assert!(share(known, 256 << 20, [30.0, 120.0], nothing) <= SMALLEST);
        }
        // Under LRU a chase that is too long finds nothing.
        let edge = |bytes: usize| if bytes > 11 << 20 { 90.0 } else { 12.0 };
        let found = share(32 << 20, 256 << 20, [12.0, 90.0], edge);
        assert!((8 << 20..=11 << 20).contains(&found), "{found}");
        // Neighbours have so much that a chase through 4 MiB, taken to be inside, misses as well.
        for capacity in [1e6, 2e6, 3e6] {
            let chase = |bytes: usize| 30.0 + 70.0 * (1.0 - capacity / bytes as f64).max(0.0);
            let found = share(32 << 20, 256 << 20, [chase(4 << 20), 100.0], chase);
            assert!(found <= 4 << 20, "{found} of {capacity}");
        }
        // They have all, and noise is no share.
        let noise = |bytes: usize| if bytes > 50 << 20 { 100.5 } else { 100.0 };
        assert!(share(32 << 20, 256 << 20, [100.0, 100.0], noise) <= SMALLEST);
    }
}
