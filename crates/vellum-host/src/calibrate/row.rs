//! What a core and its caches make of a row of lines among other loads.
//!
//! A core fetches ahead for so many streams at once. Of lines that are read in a row with loads at
//! random places between them, each line comes in time as long as the core remembers the row. And a
//! last level may keep what was used again through a row that is longer than itself.

use std::hint::black_box;

use super::chase::{Chain, LINE, PAGE, all_lines, flush};
use super::figure::{Figure, fastest};
use crate::bench::linux::Area;
use crate::rng::Rng;

/// Where the other loads go: more than a first level holds, within reach of a second.
const OTHERS: usize = 2 << 20;
/// Other loads between two lines of the row, each in another page than those before.
const BETWEEN: [usize; 5] = [15, 31, 63, 127, 255];
/// Lines of the row.
const ROW: usize = 1024;
/// Times that all pages are gone through in the list of the others, which is then begun anew.
const ROUNDS: usize = 16;
/// Runs, each after the row was put out of the caches.
const RUNS: u32 = 6;

/// Streams that a core fetches ahead for at once, as far as is asked: one more than the most loads
/// in other pages between two lines of a row that still comes in time. `None` where programs cannot
/// flush.
pub(super) fn streams(area: &Area, memory: Figure) -> Option<u32> {
    flush(area, std::iter::empty()).filter(|()| area.bytes() >= OTHERS + ROW * LINE)?;
    let others = others();
    let is_ahead = |between: usize| {
        let run = || read(area, &others, between);
        let cold = || {
            flush(area, row());
            fastest(1, ROW, run)
        };
        let cold = (0..RUNS).map(|_| cold()).fold(f64::INFINITY, f64::min);
        cold - fastest(RUNS, ROW, run) < memory.ns / 2.0
    };
    Some(remembered(is_ahead))
}

/// See [`streams`].
fn remembered(is_ahead: impl Fn(usize) -> bool) -> u32 {
    let most = BETWEEN.into_iter().take_while(|&between| is_ahead(between)).last();
    most.map_or(BETWEEN[0] / 2 + 1, |between| between + 1) as u32
}

/// A line of each page, in another order each time.
fn others() -> Vec<usize> {
    let mut rng = Rng::new(4);
    let mut pages: Vec<usize> = (0..OTHERS).step_by(PAGE).collect();
    let mut round = |_| {
        rng.shuffle(&mut pages);
        let lines = pages.iter().map(|page| page + rng.below((PAGE / LINE) as u64) as usize * LINE);
        lines.collect::<Vec<_>>()
    };
    (0..ROUNDS).flat_map(&mut round).collect()
}

/// The lines of the row.
fn row() -> impl Iterator<Item = usize> {
    (0..ROW).map(|n| OTHERS + n * LINE)
}

/// Reads the row, with other loads after each line. All that follows a line waits for it.
fn read(area: &Area, others: &[usize], between: usize) {
    let none = black_box(0usize);
    let mut others = others.iter().cycle();
    let (mut waited, mut sum) = (0, 0usize);
    // SAFETY: words of the area, which nobody writes now; `waited` is always 0.
    let load = |place: usize| unsafe { area.at(place).cast::<usize>().read_volatile() };
    for line in row() {
        waited = load(line + waited) & none;
        for &place in others.by_ref().take(between) {
            sum = sum.wrapping_add(load(place + waited));
        }
    }
    black_box(sum);
}

/// The share of lines used several times that a last level still has after twice as many lines as
/// it holds in all were read in a row: the most of five moments, since others' lines only drive
/// out. `inside` and `outside`: a load from there and from memory. `None` where the area, or the
/// part of the level that is the program's, is too small to tell.
pub(super) fn kept(
    area: &Area,
    [level, part, above]: [usize; 3],
    [inside, outside]: [Figure; 2],
) -> Option<f64> {
    let (used, row) = (part / 4 / LINE * LINE, level.saturating_mul(2));
    let fits = used >= 2 * above && used.saturating_add(row) <= area.bytes();
    // Not so either where one of them is no number.
    let differs = outside.ns.is_finite() && outside.ns > 2.0 * inside.ns;
    if !fits || !differs {
        return None;
    }
    let lines = all_lines(used);
    let chain = Chain::new(area, &lines);
    let moment = |_| {
        (0..4).for_each(|_| _ = chain.one_round());
        let mut sum = 0usize;
        for place in (used..used + row).step_by(LINE) {
            // SAFETY: a word of the area.
            sum = sum.wrapping_add(unsafe { area.at(place).cast::<usize>().read_volatile() });
        }
        black_box(sum);
        let missed = (chain.one_round() - inside.ns) / (outside.ns - inside.ns);
        1.0 - missed.clamp(0.0, 1.0)
    };
    (0..5).map(moment).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_streams_are_remembered_as_loads_are_between_and_one_more() {
        for streams in [16, 32, 64, 128, 256] {
            assert_eq!(remembered(|between| between < streams), streams as u32);
        }
        assert_eq!(remembered(|_| false), 8, "not even the fewest");
        assert_eq!(remembered(|_| true), 256);
    }

    #[test]
    fn other_loads_are_in_pages_of_their_own_and_all_within_their_part() {
        let others = others();
        assert_eq!(others.len(), ROUNDS * OTHERS / PAGE);
        for round in others.chunks(OTHERS / PAGE) {
            let mut pages: Vec<usize> = round.iter().map(|place| place / PAGE).collect();
            pages.sort_unstable();
            assert_eq!(pages, (0..OTHERS / PAGE).collect::<Vec<_>>());
        }
        assert!(others.iter().all(|place| place % LINE == 0));
    }

    #[test]
    fn where_nothing_can_be_told_nothing_is_said() {
        let area = Area::new(16 << 20, false).expect("memory");
        area.touch(PAGE as u64, true);
        let figure = |ns| Figure { ns, spread: 0.0 };
        let of = |sizes, outside| kept(&area, sizes, [figure(10.0), figure(outside)]);
        assert_eq!(of([4 << 20, 4 << 20, 1 << 20], 100.0), None, "the level above has it");
        assert_eq!(of([8 << 20, 8 << 20, 1 << 20], 100.0), None, "more than the area");
        for outside in [15.0, 0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(of([4 << 20, 4 << 20, 256 << 10], outside), None, "no such memory");
        }
        assert_eq!(of([1 << 63, 4 << 20, 256 << 10], 100.0), None, "no such level");
        let small = Area::new(1 << 20, false).expect("memory");
        assert_eq!(streams(&small, figure(100.0)), None, "no room for the row");
        let share = of([4 << 20, 4 << 20, 256 << 10], 100.0).expect("a share");
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
}
