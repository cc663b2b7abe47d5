//! What the kernel under us takes for a fault, a page given back, a call: 64 MiB at a time, so that
//! one act is the quotient of many.

mod calls;

use std::io;

use super::chase::{LINE, PAGE, flush};
use super::figure::{Figure, fastest, typical};
use crate::bench::linux::{Area, in_child, shared_memory};

pub use calls::CallTimes;

/// Bytes that are touched in a turn, and of a huge page.
const AREA: u64 = 64 << 20;
const HUGE: u64 = 2 << 20;
/// Pages and huge pages of a turn.
const PAGES: usize = AREA as usize / PAGE;
const BLOCKS: usize = (AREA / HUGE) as usize;
/// Pages of a file that Linux maps around a fault: its `fault_around_bytes` are 64 KiB.
const AROUND: u64 = 16;
/// Pieces of a turn.
const PIECES: u64 = 16;
/// Huge pages that count as fresh from the hypervisor take so many times as long as the fastest.
const COLD: f64 = 4.0;

/// Times of the kernel's work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KernelTimes {
    /// Making and unmaking a mapping that nobody touched.
    pub map: Figure,
    /// The first store to a page.
    pub touch: Figure,
    /// The first load from a page that nobody wrote.
    pub zero_read: Figure,
    /// A child's store to a page that it shares.
    pub copy: Figure,
    /// A page, written, unmapped with its neighbours.
    pub unmap: Figure,
    /// Pages of a file in memory; none where the system gives no such file, or huge pages of it.
    pub file: Option<FileTimes>,
    /// Calls on files; none where the temporary folder takes no file.
    pub calls: Option<CallTimes>,
    /// The same of huge pages; none where the kernel gave none.
    pub huge: Option<HugeTimes>,
}

/// Times of pages of a file in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FileTimes {
    /// A page, one of 16 that the first load of one of them maps.
    pub touch: Figure,
    /// Such a page unmapped with its neighbours.
    pub unmap: Figure,
}

/// Times of huge pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HugeTimes {
    /// The first store to a huge page.
    pub touch: Figure,
    /// A huge page unmapped.
    pub unmap: Figure,
    /// The slowest first store seen, where it took several times as long as the fastest: the
    /// hypervisor had to find memory.
    pub cold: Option<f64>,
}

/// Measures.
///
/// # Errors
/// The system refuses memory.
pub(super) fn measure() -> io::Result<KernelTimes> {
    let map = Figure::settle(|| {
        fastest(16, 200, || (0..200).for_each(|_| drop(Area::new(PAGE as u64, false))))
    });
    let mut unmap = Figure { ns: f64::INFINITY, spread: 0.0 };
    let mut small = |write| {
        let mut unmaps = Vec::new();
        let figure = settle(|| {
            let area = Area::new(AREA, false)?;
            area.advise(false);
            let ns = in_pieces(&area, PAGE as u64, write);
            put_out(&area);
            let mut area = Some(area);
            unmaps.push(fastest(1, PAGES, || drop(area.take())));
            Ok(ns)
        })?;
        if write {
            unmaps.sort_by(f64::total_cmp);
            unmap = Figure { ns: unmaps[0], spread: unmaps[1] / unmaps[0] - 1.0 };
        }
        Ok::<_, io::Error>(figure)
    };
    let (touch, zero_read) = (small(true)?, small(false)?);
    let written = Area::new(AREA, false)?;
    written.advise(false);
    written.touch(PAGE as u64, true);
    let copies = || in_pieces(&written, PAGE as u64, true);
    let copy = settle(|| Ok(in_child(copies)?.1))?;
    let file = files().ok().flatten();
    let calls = calls::measure();
    Ok(KernelTimes { map, touch, zero_read, copy, unmap, file, calls, huge: huge()? })
}

fn files() -> io::Result<Option<FileTimes>> {
    let file = shared_memory(AREA)?;
    let shown = || {
        let area = Area::new(AREA, false)?.show(&file)?;
        area.advise(false);
        Ok::<_, io::Error>(area)
    };
    let filled = shown()?;
    filled.touch(PAGE as u64, true);
    if filled.is_shared_huge() {
        return Ok(None);
    }
    drop(filled);
    let mut unmaps = Vec::new();
    let touch = settle(|| {
        let area = shown()?;
        let ns = in_pieces(&area, AROUND * PAGE as u64, false) / AROUND as f64;
        let mut area = Some(area);
        unmaps.push(fastest(1, PAGES, || drop(area.take())));
        Ok(ns)
    })?;
    unmaps.sort_by(f64::total_cmp);
    let unmap = Figure { ns: unmaps[0], spread: unmaps[1] / unmaps[0] - 1.0 };
    Ok(Some(FileTimes { touch, unmap }))
}

fn huge() -> io::Result<Option<HugeTimes>> {
    let (mut unmaps, mut slowest, mut given) = (Vec::new(), 0f64, true);
    let touch = settle(|| {
        let area = Area::new(AREA, true)?;
        area.advise(true);
        let each = each_block(&area);
        slowest = each.iter().copied().fold(slowest, f64::max);
        given &= area.is_huge();
        put_out(&area);
        let mut area = Some(area);
        unmaps.push(fastest(1, BLOCKS, || drop(area.take())));
        Ok(typical(each))
    })?;
    unmaps.sort_by(f64::total_cmp);
    let unmap = Figure { ns: unmaps[0], spread: unmaps[1] / unmaps[0] - 1.0 };
    let cold = (slowest > touch.ns * COLD).then_some(slowest);
    Ok(given.then_some(HugeTimes { touch, unmap, cold }))
}

/// Puts an area out of the caches before it is given back: who gets its frames next finds them
/// where frames of a long-running computer are.
fn put_out(area: &Area) {
    flush(area, (0..AREA as usize).step_by(LINE));
}

/// As [`Figure::settle`], for measurements that may fail.
fn settle(mut run: impl FnMut() -> io::Result<f64>) -> io::Result<Figure> {
    let mut failed = None;
    let figure = Figure::settle(|| {
        run().unwrap_or_else(|e| {
            failed = Some(e);
            1.0
        })
    });
    failed.map_or(Ok(figure), Err)
}

/// Touches an area piece by piece: nanoseconds of a typical piece for each `step` bytes.
fn in_pieces(area: &Area, step: u64, write: bool) -> f64 {
    let piece = AREA / PIECES;
    let touch = |n: u64| {
        let part = n * piece..(n + 1) * piece;
        fastest(1, (piece / step) as usize, || area.touch_part(part.clone(), step, write))
    };
    typical((0..PIECES).map(touch).collect())
}

/// Stores to each huge page of an area once; nanoseconds of each.
fn each_block(area: &Area) -> Vec<f64> {
    let block = |n: u64| fastest(1, 1, || area.touch_part(n * HUGE..(n + 1) * HUGE, HUGE, true));
    (0..BLOCKS as u64).map(block).collect()
}
