//! What a line takes that is cleared, copied or read in a row.

use std::hint::black_box;

use super::chase::{LINE, PAGE};
use super::figure::{Figure, fastest};
use crate::bench::linux::Area;
use crate::stores::{Choice, Method, fence};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Times of a line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LineTimes {
    /// Cleared in 2 MiB, page by page from the first to the last.
    pub upwards: Figure,
    /// Cleared in 2 MiB, page by page from the last to the first.
    pub downwards: Figure,
    /// Cleared in one run of 2 MiB.
    pub run: Figure,
    /// Cleared in one run of at least 32 MiB.
    pub long_run: Figure,
    /// Cleared around the caches.
    pub around: Figure,
    /// Pages cleared in random order.
    pub scattered: Figure,
    /// Pages cleared that were cleared a moment ago: the last level has their lines.
    pub cached: Figure,
    /// Copied, 4 KiB at a time.
    pub copied: Figure,
    /// Read in a row.
    pub read: Figure,
}

/// Measures in the first `bytes` of an area, all of it touched; a part of `cached` bytes stays in
/// the last level.
pub(super) fn measure(area: &Area, bytes: usize, cached: usize) -> LineTimes {
    // What kernels use.
    let kernel = [Method::Strings, Method::Lines, Method::Memset];
    let kernel = kernel.into_iter().find(|m| m.exists() && !m.is_non_temporal());
    let kernel = kernel.unwrap_or(Method::Memset);
    let around = Choice::by_features().non_temporal;
    // SAFETY (both): inside the area, which is the caller's.
    let clear = |method: Method, at: usize, bytes| unsafe { method.clear(area.at(at), bytes) };
    let pages = |at: usize| (at..at + HUGE).step_by(PAGE);
    let each = |act: &mut dyn FnMut(usize)| in_turn(bytes, HUGE, act);
    let upwards = each(&mut |at| pages(at).for_each(|at| clear(kernel, at, PAGE)));
    let downwards = each(&mut |at| pages(at).rev().for_each(|at| clear(kernel, at, PAGE)));
    let run = each(&mut |at| clear(kernel, at, HUGE));
    let long_run = in_turn(bytes, bytes / 2, &mut |at| clear(kernel, at, bytes / 2));
    let around = each(&mut |at| {
        clear(around, at, HUGE);
        fence();
    });
    let stride = 97;
    let scattered = each(&mut |at| {
        (0..512).for_each(|n| clear(kernel, (at + n * stride * PAGE) % bytes, PAGE));
    });
    let reach = cached.next_multiple_of(HUGE).min(bytes);
    let again = &mut |at| pages(at).for_each(|at| clear(kernel, at, PAGE));
    in_turn(reach, HUGE, again);
    let cached = in_turn(reach, HUGE, again);
    let copied = each(&mut |at| {
        let from = (at + bytes / 2) % bytes;
        // SAFETY: two pages of the area that are not the same.
        (0..512).for_each(|n| unsafe {
            let (to, from) = (area.at(at + n * PAGE), area.at(from + n * PAGE));
            to.copy_from_nonoverlapping(from, PAGE);
        });
    });
    let read = each(&mut |at| {
        // SAFETY: words of the area.
        let word = |n: usize| unsafe { area.at(at + n * LINE).cast::<u64>().read_volatile() };
        black_box((0..HUGE / LINE).fold(0u64, |sum, n| sum.wrapping_add(word(n))));
    });
    LineTimes { upwards, downwards, run, long_run, around, scattered, cached, copied, read }
}

/// An act on each piece of an area in turn; nanoseconds a line of the fastest.
fn in_turn(bytes: usize, piece: usize, act: &mut dyn FnMut(usize)) -> Figure {
    Figure::settle(|| {
        let mut at = 0;
        fastest((bytes / piece) as u32, piece / LINE, || {
            act(at);
            at += piece;
        })
    })
}
