//! What a line takes that is cleared, copied or read in a row.

use std::hint::black_box;

use super::chase::{LINE, PAGE, flush};
use super::figure::{Figure, fastest};
use crate::bench::linux::Area;
use crate::stores::{Choice, Method, fence};

/// Bytes of a huge page, and its pages.
const HUGE: usize = 2 << 20;
const PAGES: usize = HUGE / PAGE;
/// Pages from one cleared to the next where they are scattered: a prime.
const STRIDE: usize = 97;

/// Times of a line that is in no cache, but for one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LineTimes {
    /// Cleared in 2 MiB, page by page from the first to the last.
    pub upwards: Figure,
    /// Cleared in 2 MiB, page by page from the last to the first.
    pub downwards: Figure,
    /// Cleared in one run of 2 MiB.
    pub run: Figure,
    /// Cleared around the caches.
    pub around: Figure,
    /// Pages cleared in random order.
    pub scattered: Figure,
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

/// Measures in the first `bytes` of an area, all of it touched; a part of `cached` bytes stays in
/// the last level.
pub(super) fn measure(area: &Area, bytes: usize, cached: usize) -> LineTimes {
    // What kernels use.
    let kernel = [Method::Strings, Method::Lines, Method::Memset];
    let kernel = kernel.into_iter().find(|m| m.exists() && !m.is_non_temporal());
    let kernel = kernel.unwrap_or(Method::Memset);
    let around = Choice::by_features().non_temporal;
    // SAFETY: inside the area, which is the caller's.
    let clear = |method: Method, at: usize, bytes| unsafe { method.clear(area.at(at), bytes) };
    let upwards = |at: usize| (at..at + HUGE).step_by(PAGE);
    let far = |at: usize| (0..PAGES).map(move |n| (at + n * STRIDE * PAGE) % bytes);
    // Where a page is copied from.
    let source = |page: usize| (page + bytes / 2) % bytes;
    // What is not in the caches, by pages in some order.
    let cold = |pages: &dyn Fn(usize) -> Vec<usize>, act: &dyn Fn(&[usize])| {
        Figure::settle(|| {
            let pieces = (0..bytes).step_by(HUGE).map(|at| {
                let pages = pages(at);
                put_out(area, &pages);
                put_out(area, &pages.iter().map(|&page| source(page)).collect::<Vec<_>>());
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
        Paced { cold: cold(&in_a_row, &run), hot }
    };
    let again = |act: &dyn Fn(&[usize])| {
        let reach = cached.next_multiple_of(HUGE).min(bytes);
        let pages: Vec<usize> = (0..reach).step_by(PAGE).collect();
        act(&pages);
        Figure::settle(|| fastest(8, reach / LINE, || act(&pages)))
    };
    LineTimes {
        upwards: cold(&in_a_row, &by_page),
        downwards: cold(&|at| upwards(at).rev().collect(), &by_page),
        run: cold(&in_a_row, &|pages| clear(kernel, pages[0], HUGE)),
        around: cold(&in_a_row, &|pages| {
            clear(around, pages[0], HUGE);
            fence();
        }),
        scattered: cold(&|at| far(at).collect(), &by_page),
        cached: again(&by_page),
        read_cached: again(&read),
        copied: cold(&in_a_row, &copied),
        read: cold(&in_a_row, &read),
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
