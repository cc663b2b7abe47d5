//! What a line takes that is cleared, copied or read in a row.

use std::hint::black_box;

use super::chase::{LINE, PAGE, flush};
use super::figure::{Figure, fastest, mean};
use super::topology::Topology;
use crate::bench::linux::Area;
use crate::stores::{Method, fence};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// The part that is read from memory, and put out of all caches before.
const READ: usize = 32 << 20;

/// Times of a line that is in no cache, but for two. What is cleared and copied takes the place of
/// another line, which is written back: that time is in them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LineTimes {
    /// Cleared in 2 MiB, page by page from the first to the last.
    pub upwards: Figure,
    /// Cleared in 2 MiB, page by page from the last to the first.
    pub downwards: Figure,
    /// Cleared in one run of 2 MiB.
    pub run: Figure,
    /// Cleared around the caches, by the fastest stores that there are.
    pub around: Figure,
    /// Pages cleared that were cleared a moment ago: the last level has their lines.
    pub cached: Figure,
    /// Copied, 4 KiB at a time.
    pub copied: Figure,
    /// Read in a row from memory.
    pub read: Figure,
    /// Read in a row from the last level.
    pub read_cached: Figure,
    /// Read in a row with a little other work after each.
    pub brisk: Paced,
    /// The same with more of it.
    pub slow: Paced,
}

/// What a line takes that is read in a row with other work after it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Paced {
    /// From memory.
    pub cold: Figure,
    /// From the first level: the time of the other work.
    pub hot: Figure,
}

/// Measures in an area that is all touched.
pub(super) fn measure(topology: &Topology, area: &Area) -> LineTimes {
    // What kernels use.
    let kernel = [Method::Strings, Method::Lines, Method::Memset];
    let kernel = kernel.into_iter().find(|m| m.exists() && !m.is_non_temporal());
    let kernel = kernel.unwrap_or(Method::Memset);
    // SAFETY: inside the area, which is the caller's.
    let clear = |method: Method, at: usize, bytes| unsafe { method.clear(area.at(at), bytes) };
    let bytes = area.bytes();
    let upwards = |at: usize| (at..at + HUGE).step_by(PAGE);
    // Where a page is copied from.
    let source = |page: usize| (page + bytes / 2) % bytes;
    // By pages in some order, all over the area, which no cache keeps: so each line that comes
    // into one pushes another out.
    let stays = topology.llc.is_some_and(|llc| llc.size as usize * 2 > bytes);
    let all_over = |pages: &dyn Fn(usize) -> Vec<usize>, act: &dyn Fn(&[usize])| {
        let piece = |at| {
            let pages = pages(at);
            if stays {
                put_out(area, &pages);
            }
            fastest(1, HUGE / LINE, || act(&pages))
        };
        Figure::settle(|| mean(&(0..bytes).step_by(HUGE).map(piece).collect::<Vec<_>>()))
    };
    // What is in no cache, by pages in a row.
    let cold = |act: &dyn Fn(&[usize])| {
        Figure::settle(|| {
            let pieces = (0..READ).step_by(HUGE).map(|at| {
                let pages: Vec<usize> = upwards(at).collect();
                put_out(area, &pages);
                fastest(1, HUGE / LINE, || act(&pages))
            });
            pieces.fold(f64::INFINITY, f64::min)
        })
    };
    let by_page = |pages: &[usize]| pages.iter().for_each(|&at| clear(kernel, at, PAGE));
    let in_a_row = |at| upwards(at).collect();
    let copied = |pages: &[usize]| {
        for &to in pages {
            // SAFETY: two pages of the area that are not the same.
            unsafe { area.at(to).copy_from_nonoverlapping(area.at(source(to)), PAGE) };
        }
    };
    let read = |pages: &[usize]| {
        let mut sum = 0u64;
        words(area, pages, |word| sum = sum.wrapping_add(word));
        black_box(sum);
    };
    let paced = |rounds: usize| {
        let run = |pages: &[usize]| {
            let mut state = 1;
            words(area, pages, |word| state = other_work(state, rounds) ^ word >> 63);
            black_box(state);
        };
        run(&[0]);
        let hot = Figure::settle(|| fastest(8, PAGE / LINE, || run(&[0])));
        Paced { cold: cold(&run), hot }
    };
    let again = |act: &dyn Fn(&[usize])| {
        let reach = (2 * topology.l2.size as usize).next_multiple_of(HUGE).min(bytes);
        let pages: Vec<usize> = (0..reach).step_by(PAGE).collect();
        act(&pages);
        Figure::settle(|| fastest(8, reach / LINE, || act(&pages)))
    };
    let run = |method: Method| {
        all_over(&in_a_row, &|pages| {
            clear(method, pages[0], HUGE);
            fence();
        })
    };
    let around = Method::here().filter(|m| m.is_non_temporal()).map(run);
    LineTimes {
        upwards: all_over(&in_a_row, &by_page),
        downwards: all_over(&|at| upwards(at).rev().collect(), &by_page),
        run: run(kernel),
        around: around.min_by(|a, b| a.ns.total_cmp(&b.ns)).unwrap_or_else(|| run(kernel)),
        cached: again(&by_page),
        read_cached: again(&read),
        copied: all_over(&in_a_row, &copied),
        read: cold(&read),
        brisk: paced(1),
        slow: paced(6),
    }
}

/// Reads a word of each line of some pages, one after the other.
#[inline]
fn words(area: &Area, pages: &[usize], mut each: impl FnMut(u64)) {
    for &page in pages {
        let first = area.at(page).cast_const();
        for line in 0..PAGE / LINE {
            // SAFETY: a word of a page of the area.
            each(unsafe { first.add(line * LINE).cast::<u64>().read_volatile() });
        }
    }
}

/// Six instructions a round, each of which needs the one before: a core gets ahead of the last load
/// by a few turns at most.
#[inline]
fn other_work(mut state: u64, rounds: usize) -> u64 {
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

/// Puts pages out of all caches, where programs can.
fn put_out(area: &Area, pages: &[usize]) {
    let lines = pages.iter().flat_map(|&page| (page..page + PAGE).step_by(LINE));
    flush(area, lines);
}
