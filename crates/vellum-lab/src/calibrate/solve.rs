//! What a simulated run of a measured loop leaves unexplained.
//!
//! Each price is in one loop and in those after it alone, so that one pass decides all: walks
//! first, which every loop has; then a fault that clears nothing; then what a page costs beside
//! it; and so on. A price that comes out below nothing is nothing, and the loop is then predicted
//! too slow.

use vellum_host::calibrate::{Computer, Figure};
use vellum_sim::file::Machine;

use super::loops::{Loop, nanoseconds};
use super::values::{Nested, Values};
use super::{machine, text};
use crate::error::LabError;

/// Lines that prefetchers run ahead; 0: there is none.
const DEPTHS: [u32; 7] = [0, 2, 4, 8, 16, 32, 63];

/// Walks that a machine file may have in flight.
const MOST_WALKERS: u32 = 8;

/// By how many nanoseconds a price is raised to see how often a loop pays it.
const STEP: f64 = 100.0;

/// A loop that pays a price more rarely does not decide it.
const MOST_RARE: f64 = 0.5;

/// All of them.
pub fn solve(computer: &Computer) -> Result<Values, LabError> {
    let mut values = Values { copy_line: computer.lines.copied.ns, ..Values::default() };
    walks(computer, &mut values)?;
    values.walkers = walkers(computer, &values)?;
    values.depth = depth(computer, &values)?;
    let kernel = &computer.kernel;
    let mut price = |of: Loop, measured: Figure, put: fn(&mut Values) -> &mut f64| {
        // Known from here on, if only as nothing.
        *put(&mut values) += 0.0;
        let mut more = values;
        *put(&mut more) += STEP;
        let [with, with_more] = [values, more].map(|v| nanoseconds(&at(computer, &v)?, of));
        let (with, with_more) = (with?, with_more?);
        // How often the loop's act pays it.
        let times = (with_more - with) / STEP;
        let value = put(&mut values);
        *value = (*value + (measured.ns - with) / times.max(MOST_RARE)).max(0.0);
        Ok::<(), LabError>(())
    };
    price(Loop::Map, kernel.map, |v| &mut v.call)?;
    price(Loop::ZeroRead, kernel.zero_read, |v| &mut v.fault)?;
    price(Loop::Touch, kernel.touch, |v| &mut v.charge_page)?;
    price(Loop::Unmap, kernel.unmap, |v| &mut v.uncharge_page)?;
    price(Loop::Copy, kernel.copy, |v| &mut v.copy_line)?;
    if let Some(file) = &kernel.file {
        price(Loop::FileTouch, file.touch, |v| v.map_file.get_or_insert(0.0))?;
        price(Loop::FileUnmap, file.unmap, |v| v.unmap_file.get_or_insert(0.0))?;
    }
    if let Some(calls) = &kernel.calls {
        price(Loop::ReadFew, calls.few, |v| &mut v.calls.get_or_insert_default().call)?;
        // A line takes this or what it waits for, whichever is longer: so one step is not enough.
        for _ in 0..3 {
            price(Loop::ReadLine, calls.line, |v| &mut v.calls.get_or_insert_default().line)?;
        }
        price(Loop::WriteFew, calls.over, |v| &mut v.calls.get_or_insert_default().write)?;
        price(Loop::AddPage, calls.add, |v| &mut v.calls.get_or_insert_default().add)?;
        price(Loop::Grow, calls.grow, |v| &mut v.calls.get_or_insert_default().grow)?;
        price(Loop::DropPage, calls.drop, |v| &mut v.calls.get_or_insert_default().drop)?;
    }
    if let Some(huge) = &kernel.huge {
        price(Loop::HugeTouch, huge.touch, |v| v.large.get_or_insert(0.0))?;
        price(Loop::HugeUnmap, huge.unmap, |v| v.uncharge_large.get_or_insert(0.0))?;
    }
    Ok(values)
}

/// The machine as far as it is known.
fn at(computer: &Computer, values: &Values) -> Result<Machine, LabError> {
    machine(&text::write(computer, values))
}

/// Chooses the page size of the hypervisor's tables, and what a walk takes beside its reads, by
/// which chases through page tables are explained best.
fn walks(computer: &Computer, values: &mut Values) -> Result<(), LabError> {
    let mut best = f64::INFINITY;
    let tables: &[Nested] = match computer.is_guest {
        Some(false) => &[None],
        _ => &[None, Some("1G"), Some("2M"), Some("4K")],
    };
    for &nested in tables {
        let tried = Values { nested, walk_start: 0.0, ..*values };
        let steps = chases(computer, &tried)?;
        let start = match in_a_row(computer, &tried)? {
            Some(step) => ((step.measured - step.simulated) / step.walks.max(MOST_RARE)).max(0.0),
            None => start_of_walk(&steps),
        };
        let off = off(&steps, start);
        if off < best {
            best = off;
            *values = Values { walk_start: start, walks_off: off, ..tried };
        }
    }
    Ok(())
}

/// A step of a chase: what was measured, what is simulated where walks take nothing beside their
/// reads, and how many walks it has.
#[derive(Clone, Copy, Debug)]
struct Step {
    measured: f64,
    simulated: f64,
    walks: f64,
}

/// The time of a walk that brings simulated steps nearest to measured ones, in steps of half a
/// nanosecond.
fn start_of_walk(steps: &[Step]) -> f64 {
    let tried = (0..200).map(|n| f64::from(n) / 2.0);
    tried.min_by(|&a, &b| off(steps, a).total_cmp(&off(steps, b))).unwrap_or_default()
}

/// By how much steps are off where a walk takes so long: the mean, as a share. Not of its square:
/// of pages that are visited seldom neighbours take the lines away, and one such chase would
/// outweigh all others.
fn off(steps: &[Step], start: f64) -> f64 {
    let each = steps.iter().map(|s| ((s.simulated + start * s.walks) / s.measured).ln().abs());
    (each.sum::<f64>() / steps.len().max(1) as f64).exp() - 1.0
}

/// A walk whose table is fetched ahead, where that is so: nothing but the walk takes time. Neither
/// memory nor neighbours have a part in it, so it says what a walk takes better than chases do.
fn in_a_row(computer: &Computer, values: &Values) -> Result<Option<Step>, LabError> {
    let tables = &computer.tables;
    tables
        .are_fetched_ahead()
        .then(|| step(computer, values, tables.in_a_row, Loop::Tables))
        .transpose()
}

/// How many walks go on at once: as many as bring the chases that go on at once nearest.
fn walkers(computer: &Computer, values: &Values) -> Result<Option<u32>, LabError> {
    let beyond = |pages: usize| pages > computer.places.tlb[1] as usize;
    let chases: Vec<_> = computer.places.chases.iter().filter(|c| beyond(c.pages)).collect();
    if chases.is_empty() {
        return Ok(None);
    }
    let mut best = (f64::INFINITY, 0);
    for walkers in 1..=MOST_WALKERS {
        let machine = at(computer, &Values { walkers: Some(walkers), ..*values })?;
        let mut off = 0.0;
        for chase in &chases {
            let simulated = nanoseconds(&machine, Loop::Chases(chase.pages))?;
            off += (simulated / chase.small_of_many.ns).ln().powi(2);
        }
        if off < best.0 {
            best = (off, walkers);
        }
    }
    Ok(Some(best.1))
}

/// How far a prefetcher runs ahead: the depth by which lines read in a row come out nearest, at
/// once and with other work between.
fn depth(computer: &Computer, values: &Values) -> Result<u32, LabError> {
    let (mut best, lines) = ((f64::INFINITY, 0), &computer.lines);
    let loops = [
        (lines.read, 3),
        (lines.brisk.cold, instructions(computer, lines.brisk.hot)),
        (lines.slow.cold, instructions(computer, lines.slow.hot)),
    ];
    for depth in DEPTHS {
        let machine = at(computer, &Values { depth, ..*values })?;
        let mut off = 0.0;
        for (measured, between) in loops {
            off += (nanoseconds(&machine, Loop::Stream(between))? / measured.ns).ln().powi(2);
        }
        if off < best.0 {
            best = (off, depth);
        }
    }
    Ok(best.1)
}

/// As many instructions of the machine as take a time.
fn instructions(computer: &Computer, time: Figure) -> u64 {
    let each = computer.instruction.map_or(time.ns / 8.0, |instruction| instruction.ns);
    (time.ns / each).round() as u64
}

/// Steps of the chases that no TLB of 4 KiB pages holds.
fn chases(computer: &Computer, values: &Values) -> Result<Vec<Step>, LabError> {
    let beyond = |pages: usize| pages > computer.places.tlb[1] as usize;
    let mut steps = Vec::new();
    for chase in computer.places.chases.iter().filter(|c| beyond(c.pages)) {
        let measured = [(false, Some(chase.small)), (true, chase.huge)];
        for (huge, figure) in measured.into_iter().filter_map(|(h, f)| Some((h, f?))) {
            steps.push(step(computer, values, figure, Loop::Chase(chase.pages, huge))?);
        }
    }
    Ok(steps)
}

/// What a step of a loop takes with these values, and how many walks it has.
fn step(
    computer: &Computer,
    values: &Values,
    measured: Figure,
    act: Loop,
) -> Result<Step, LabError> {
    let slow = Values { walk_start: values.walk_start + STEP, ..*values };
    let simulated = nanoseconds(&at(computer, values)?, act)?;
    let walks = (nanoseconds(&at(computer, &slow)?, act)? - simulated) / STEP;
    Ok(Step { measured: measured.ns, simulated, walks })
}

#[cfg(test)]
mod tests {
    use vellum_host::calibrate::{PageChase, TableTimes};

    use super::super::text::tests::computer;
    use super::*;

    #[test]
    fn a_walk_gets_the_time_that_brings_all_chases_nearest() {
        let step = |measured, simulated, walks| Step { measured, simulated, walks };
        let found = |steps: &[Step]| (start_of_walk(steps), off(steps, start_of_walk(steps)));
        let every = [step(30.0, 10.0, 1.0), step(50.0, 30.0, 1.0), step(100.0, 80.0, 1.0)];
        let (start, wrong) = found(&every);
        assert_eq!(start, 20.0);
        assert!(wrong < 1e-9);
        let (start, wrong) = found(&[step(20.0, 30.0, 1.0), step(40.0, 50.0, 1.0)]);
        assert!(start == 0.0 && wrong > 0.2, "never below nothing");
        let (start, wrong) = found(&[step(30.0, 10.0, 1.0), step(5.0, 5.0, 0.0)]);
        assert_eq!((start, wrong < 1e-9), (20.0, true), "what does not walk does not pay");
        let [a, b, _] = every;
        assert_eq!(start_of_walk(&[a, b, step(900.0, 80.0, 1.0)]), 20.0, "one is no majority");
    }

    /// Measured by a machine itself, the time of a walk is its own, whatever chases take.
    #[test]
    fn a_walk_whose_table_is_fetched_ahead_says_what_a_walk_takes() {
        let mut computer = computer();
        let figure = |ns| Figure { ns, spread: 0.01 };
        for start in [0.0, 12.0, 40.0] {
            let own = Values { walk_start: start, ..Values::default() };
            let machine = at(&computer, &own).expect("valid");
            let in_a_row = figure(nanoseconds(&machine, Loop::Tables).expect("it runs"));
            computer.tables = TableTimes { in_a_row, shuffled: figure(500.0) };
            let (small, many) = (figure(300.0), figure(30.0));
            let chase = PageChase { pages: 4096, small, huge: None, small_of_many: many };
            computer.places.chases = vec![chase];
            computer.is_guest = Some(false);
            let mut values = Values::default();
            walks(&computer, &mut values).expect("solved");
            assert!((values.walk_start - start).abs() < 0.2, "{} for {start}", values.walk_start);
        }
    }

    /// Measured by a machine itself, the number of walkers is its own.
    #[test]
    fn as_many_walkers_are_found_as_explain_chases_at_once() {
        let mut computer = computer();
        computer.places.memory_of_many.ns = 4.0;
        let figure = |ns| Figure { ns, spread: 0.01 };
        for walkers in [1, 3, 6] {
            let values = Values { walkers: Some(walkers), walk_start: 30.0, ..Values::default() };
            let machine = at(&computer, &values).expect("valid");
            let of = |pages| nanoseconds(&machine, Loop::Chases(pages)).expect("it runs");
            let chase = |pages| PageChase {
                pages,
                small: figure(100.0),
                huge: None,
                small_of_many: figure(of(pages)),
            };
            computer.places.chases = vec![chase(4096), chase(16_384)];
            let start = Values { walk_start: 30.0, ..Values::default() };
            assert_eq!(super::walkers(&computer, &start).expect("solved"), Some(walkers));
        }
        computer.places.chases.clear();
        assert_eq!(super::walkers(&computer, &Values::default()).expect("solved"), None);
    }

    /// The promise of all prices: each loop takes on the simulated machine what it took here.
    #[test]
    fn each_loop_of_the_kernels_work_then_takes_what_was_measured() {
        let computer = computer();
        let values = solve(&computer).expect("solved");
        let machine = at(&computer, &values).expect("valid");
        let kernel = &computer.kernel;
        let huge = kernel.huge.as_ref().expect("huge pages");
        let file = kernel.file.as_ref().expect("a file");
        let calls = kernel.calls.as_ref().expect("calls");
        for (act, measured) in [
            (Loop::Map, kernel.map),
            (Loop::ZeroRead, kernel.zero_read),
            (Loop::Touch, kernel.touch),
            (Loop::Unmap, kernel.unmap),
            (Loop::Copy, kernel.copy),
            (Loop::FileTouch, file.touch),
            (Loop::FileUnmap, file.unmap),
            (Loop::ReadFew, calls.few),
            (Loop::ReadLine, calls.line),
            (Loop::WriteFew, calls.over),
            (Loop::AddPage, calls.add),
            (Loop::Grow, calls.grow),
            (Loop::DropPage, calls.drop),
            (Loop::HugeTouch, huge.touch),
            (Loop::HugeUnmap, huge.unmap),
        ] {
            let simulated = nanoseconds(&machine, act).expect("it runs");
            let off = (simulated / measured.ns - 1.0).abs();
            assert!(off < 0.02, "{act:?}: {simulated} for {}", measured.ns);
        }
        assert!(values.fault > 0.0 && values.charge_page > 0.0 && values.large > Some(0.0));
    }
}
