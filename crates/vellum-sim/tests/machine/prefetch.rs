//! The stream prefetcher in a machine: what it saves, and what it costs.

use std::cell::Cell;

use crate::common::*;
use vellum::addr::{Order, Pfn};
use vellum::entry::Entry;
use vellum::machine::Use;
use vellum_sim::cache::{Inclusion, Policy, PrefetchShape};
use vellum_sim::format::X86;
use vellum_sim::memory::Ticks;
use vellum_sim::{Counters, Kind, Options, Parts, SimMachine};
use vellum_testkit::ext::MachineExt;

/// Cycles of a read of memory and of a hit in the second level.
const MEMORY: u64 = 200;
const L2: u64 = 8;
/// Lines of a page.
const PAGE: u64 = 64;
/// All memory of the test: one page of 2 MiB.
const LINES: u64 = 32768;

const SHAPE: PrefetchShape =
    PrefetchShape { streams: 4, train: 2, depth: 16, walks: false, crosses_pages: false };

/// One CPU with an L1D of 4 KiB, an L2 of 32 KiB and a last level of 128 KiB.
fn machine(prefetch: Option<PrefetchShape>) -> Parts {
    let mut parts = parts(MmuKind::X86);
    let caches = &mut parts.caches;
    (caches.l1d.sets, caches.l1d.ways) = (8, 8);
    (caches.l2.sets, caches.l2.ways) = (64, 8);
    (caches.llc.sets, caches.llc.ways) = (128, 16);
    caches.llc.policy = Policy::Lru;
    caches.latency = [2, L2, 20, 0].map(Ticks::from_cycles);
    parts.numa.latency = vec![vec![Ticks::from_cycles(MEMORY); 2]; 2];
    parts.numa.line_time = vec![Ticks::from_cycles(2); 2];
    parts.core.fill_buffers = 4;
    parts.prefetch = prefetch;
    parts
}

/// An access to a line of the test's memory.
#[derive(Clone, Copy)]
struct To(u64, Kind, bool);

fn load(line: u64) -> To {
    To(line, Kind::Load, false)
}

fn chained(line: u64) -> To {
    To(line, Kind::Load, true)
}

fn store(line: u64) -> To {
    To(line, Kind::Store, false)
}

/// What was counted.
struct Ran {
    cycles: u64,
    counts: Counters,
    /// Lines read from memory.
    read: u64,
}

impl Ran {
    fn get(&self, name: &str) -> u64 {
        self.counts.get(name).expect("a counter")
    }
    fn prefetches(&self) -> [u64; 2] {
        ["prefetches", "prefetch_hits"].map(|name| self.get(name))
    }
}

/// Runs these accesses after one to the last line, with caches that hold nothing else of them.
fn run(parts: &Parts, accesses: impl IntoIterator<Item = To>) -> Ran {
    let sim = SimMachine::<X86>::build(parts, Options::default()).expect("it can be built");
    let next = Cell::new(16);
    let ran = sim.solo(0, |cpu| {
        let k = Kernel::new(&sim, &next, 1);
        k.map_huge(A, RW);
        k.load();
        let go = |To(line, kind, dependent)| {
            cpu.access(A + line % LINES * 64, 8, kind, dependent).expect("mapped");
        };
        go(load(LINES - 1));
        cpu.syscall();
        let (start, before, read) = (cpu.now(), sim.counters(0), sim.traffic(0).lines_read);
        accesses.into_iter().for_each(go);
        cpu.syscall();
        let counts = sim.counters(0).since(&before);
        Ran { cycles: cpu.now() - start, counts, read: sim.traffic(0).lines_read - read }
    });
    sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
    ran.unwrap_or_else(|stop| panic!("{stop}"))
}

fn with(accesses: impl IntoIterator<Item = To>) -> Ran {
    run(&machine(Some(SHAPE)), accesses)
}

fn without(accesses: impl IntoIterator<Item = To>) -> Ran {
    run(&machine(None), accesses)
}

/// Cycles of a system call that waits for nothing.
fn syscall() -> u64 {
    without([]).cycles
}

#[test]
fn a_stream_finds_its_lines_in_the_second_level_after_training_in_every_page() {
    let pages = 40;
    for kind in [load, chained, store] {
        for descending in [false, true] {
            let line = |n| if descending { pages * PAGE - 1 - n } else { n };
            let ran = with((0..pages * PAGE).map(line).map(kind));
            assert_eq!(ran.prefetches(), [62 * pages; 2], "all but two lines of each page");
            assert_eq!(ran.get("l1d_demand_miss"), pages * PAGE);
            assert_eq!(ran.get("l2_demand_miss"), 2 * pages);
            assert_eq!(ran.read, pages * PAGE, "each line is read once");
        }
    }
}

#[test]
fn streams_are_faster_by_what_overlaps_and_pay_for_the_start_in_each_page() {
    let stream = |of: fn(u64) -> To| (0..40 * PAGE).map(of);
    // A chain takes a read a line. With a prefetcher, its first lines take that, and then each
    // window of lines ahead arrives at once.
    let (plain, ahead) = (without(stream(chained)).cycles, with(stream(chained)).cycles);
    assert!(plain >= 40 * PAGE * MEMORY, "{plain}");
    assert!(ahead >= 40 * 3 * MEMORY, "three lines of each page take a read: {ahead}");
    assert!(ahead * 5 < plain, "{ahead} against {plain}");
    // Four fill buffers overlap four reads of independent loads; the prefetcher is not limited by
    // them.
    let (plain, ahead) = (without(stream(load)).cycles, with(stream(load)).cycles);
    assert!(ahead * 2 < plain, "{ahead} against {plain}");
    let (plain, ahead) = (without(stream(store)).cycles, with(stream(store)).cycles);
    assert!(ahead * 2 < plain, "{ahead} against {plain}");
}

#[test]
fn a_line_that_is_on_its_way_is_waited_for_and_one_that_has_arrived_is_not() {
    let call = syscall();
    let cycles = |lines: &[u64]| with(lines.iter().map(|&line| chained(line))).cycles - call;
    let two = cycles(&[0, 1]);
    assert!((2 * MEMORY..2 * MEMORY + 4).contains(&two), "{two}");
    // Line 2 is fetched when line 1 is asked for, and comes with it or just behind.
    let three = cycles(&[0, 1, 2]);
    assert!((two + L2..two + L2 + 4).contains(&three), "{three}");
    // Line 3 is fetched when line 2 is asked for, as line 1 arrives: it is waited for.
    let four = cycles(&[0, 1, 2, 3]);
    assert!((two + MEMORY..two + MEMORY + 4).contains(&four), "{four}");
    // After a read of another page it has arrived.
    let later = cycles(&[0, 1, 2, 20 * PAGE, 3]);
    assert!((two + 2 * L2 + MEMORY..two + 2 * L2 + MEMORY + 4).contains(&later), "{later}");
}

#[test]
fn fetching_ahead_takes_the_bandwidth_of_the_node() {
    let mut slow = machine(Some(SHAPE));
    slow.numa.line_time = vec![Ticks::from_cycles(32); 2];
    let stream = || (0..40 * PAGE).map(load);
    let ran = run(&slow, stream());
    assert!(ran.cycles >= 40 * PAGE * 32 - 2 * 64, "{} cycles", ran.cycles);
    assert!(ran.cycles * 2 > 3 * with(stream()).cycles);
}

#[test]
fn every_other_line_is_found_ahead_too_and_as_many_are_fetched_for_nothing() {
    let ran = with((0..40 * PAGE).step_by(2).map(load));
    // Trained by lines 0 and 2 of a page: 3 is fetched too late for 4, then 5 to 63, and of these
    // 6 to 62 are used.
    assert_eq!(ran.prefetches(), [60 * 40, 29 * 40]);
    assert_eq!(ran.read, 63 * 40);
    let third = with((0..40 * PAGE).step_by(3).map(load));
    assert_eq!(third.prefetches(), [0, 0]);
}

#[test]
fn a_random_pattern_fetches_nearly_nothing_and_takes_as_long_as_without() {
    let random = || (0..20_000u64).map(|n| chained(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49));
    let (ahead, plain) = (with(random()), without(random()));
    assert!(ahead.prefetches()[0] < 20, "{:?}", ahead.prefetches());
    assert!(ahead.cycles.abs_diff(plain.cycles) * 1000 < plain.cycles);
    assert_eq!(plain.prefetches(), [0, 0]);
}

#[test]
fn as_many_streams_as_trackers_are_all_followed_and_one_more_spoils_all() {
    let streams = |count: u64| (0..count * 4 * PAGE).map(move |n| n % count * 4096 + n / count);
    for count in [2, 4] {
        let ran = with(streams(count).map(load));
        assert_eq!(ran.prefetches(), [count * 4 * 62; 2], "{count} streams");
    }
    assert_eq!(with(streams(5).map(load)).prefetches(), [0, 0]);
}

#[test]
fn the_kernel_does_not_train_it_and_finds_no_time_saved() {
    let sim = SimMachine::<X86>::build(&machine(Some(SHAPE)), Options::default()).expect("built");
    let next = Cell::new(16);
    sim.solo(0, |_| {
        let k = Kernel::new(&sim, &next, 1);
        let pages: Vec<_> = (0..32).map(|_| k.data()).collect();
        pages.windows(2).for_each(|pair| k.sim.copy_to(pair[0], pair[1]));
    })
    .unwrap_or_else(|stop| panic!("{stop}"));
    let total = sim.total();
    assert_eq!((total.get("prefetches"), total.get("lines_cleared")), (Some(0), Some(32 * 64)));
}

/// A load in each of many pages: each walk reads an entry, eight of them in a line.
#[test]
fn walks_train_it_where_the_machine_says_so_and_then_find_their_tables_in_the_second_level() {
    let pages = 8 * 512;
    let run = |prefetch| {
        let mut parts = machine(prefetch);
        parts.core.walkers = 1;
        let sim = SimMachine::<X86>::build(&parts, Options::default()).expect("it can be built");
        let next = Cell::new(16);
        let ran = sim.solo(0, |cpu| {
            let k = Kernel::new(&sim, &next, 1);
            let pfn = k.data();
            (0..pages).for_each(|n| k.set_at(A + n * 4096, 1, Entry::Leaf(pfn, RO)));
            k.load();
            let (start, before) = (cpu.now(), sim.counters(0));
            (0..pages).for_each(|n| {
                cpu.access(A + n * 4096, 8, Kind::Load, true).expect("mapped");
            });
            (cpu.now() - start, sim.counters(0).since(&before))
        });
        sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
        ran.unwrap_or_else(|stop| panic!("{stop}"))
    };
    let (plain, none) = run(None);
    let (blind, unseen) = run(Some(SHAPE));
    assert_eq!((blind, unseen.get("prefetches")), (plain, Some(0)), "left out: it sees no walk");
    let (ahead, counts) = run(Some(PrefetchShape { walks: true, ..SHAPE }));
    let both = PrefetchShape { walks: true, crosses_pages: true, ..SHAPE };
    let (across, same) = run(Some(both));
    assert_eq!((across, &same), (ahead, &counts), "tables lie anywhere: no walk crosses a page");
    let get = |counts: &Counters, name| counts.get(name).expect("a counter");
    // Two lines of each table train it.
    assert_eq!(get(&counts, "prefetches"), 8 * 62);
    assert_eq!(get(&counts, "prefetch_hits"), 8 * 62);
    assert_eq!(get(&counts, "l1d_walk_miss"), get(&none, "l1d_walk_miss"), "L1 is as it was");
    let saved = plain - ahead;
    let most = 8 * 62 * (MEMORY - L2);
    assert!(saved <= most && saved > most * 9 / 10, "{saved} of {most} cycles");
}

/// Small pages whose frames lie in no order, read in a row: up, or down.
#[test]
fn one_that_crosses_pages_goes_on_where_the_next_page_lies() {
    let pages = 12;
    let run = |shape: PrefetchShape, descending: bool| {
        let sim = SimMachine::<X86>::build(&machine(Some(shape)), Options::default());
        let sim = sim.expect("it can be built");
        let next = Cell::new(16);
        let ran = sim.solo(0, |cpu| {
            let k = Kernel::new(&sim, &next, 1);
            let pfn = k.block(Order::HUGE, Use::Data);
            k.sim.zero_out(pfn, 512);
            for n in 0..pages {
                let frame = pfn.0 + n * 5 % pages * 7;
                k.set_at(A + n * 4096, 1, Entry::Leaf(Pfn(frame), RO));
            }
            k.load();
            let (start, before) = (cpu.now(), sim.counters(0));
            for n in 0..pages * PAGE {
                let line = if descending { pages * PAGE - 1 - n } else { n };
                cpu.access(A + line * 64, 8, Kind::Load, true).expect("mapped");
            }
            cpu.syscall();
            let counts = sim.counters(0).since(&before);
            let get = |name| counts.get(name).expect("a counter");
            ([get("prefetches"), get("prefetch_hits")], cpu.now() - start)
        });
        sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
        ran.unwrap_or_else(|stop| panic!("{stop}"))
    };
    for descending in [false, true] {
        let (within, slow) = run(SHAPE, descending);
        assert_eq!(within, [62 * pages; 2]);
        let (across, fast) = run(PrefetchShape { crosses_pages: true, ..SHAPE }, descending);
        assert_eq!(across, [64 * pages - 2; 2], "nothing is mapped behind the last page");
        let saved = slow - fast;
        assert!(saved > 2 * (pages - 1) * (MEMORY - L2) * 9 / 10, "{saved} cycles");
    }
}

#[test]
fn after_a_flush_lines_ahead_come_from_where_the_page_lies_now() {
    let shape = PrefetchShape { crosses_pages: true, ..SHAPE };
    let sim = SimMachine::<X86>::build(&machine(Some(shape)), Options::default());
    let sim = sim.expect("it can be built");
    let next = Cell::new(16);
    let ran = sim.solo(0, |cpu| {
        let k = Kernel::new(&sim, &next, 1);
        let pfn = k.block(Order::HUGE, Use::Data);
        k.sim.zero_out(pfn, 512);
        let (second, elsewhere) = (A + 4096, A + 64 * 4096);
        for (va, frame) in [(A, 7), (second, 20), (elsewhere, 40)] {
            k.set_at(va, 1, Entry::Leaf(Pfn(pfn.0 + frame), RO));
        }
        k.load();
        let read = |page: u64| {
            for line in 0..PAGE {
                cpu.access(page + line * 64, 8, Kind::Load, true).expect("mapped");
            }
        };
        // The first page's end brings lines of the second, and this takes it out of the L1.
        read(A);
        read(elsewhere);
        k.set_at(second, 1, Entry::Empty);
        k.flush_here(second);
        k.set_at(second, 1, Entry::Leaf(Pfn(pfn.0 + 33), RO));
        read(A);
        let before = sim.counters(0);
        read(second);
        sim.counters(0).since(&before).get("l2_demand_miss")
    });
    sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
    assert_eq!(ran.unwrap_or_else(|stop| panic!("{stop}")), Some(0));
}

/// Prefetched lines push others out of the caches of all kinds; the audit finds them sound, and
/// every line is still read and written.
#[test]
fn caches_stay_sound_under_each_inclusion_while_lines_are_fetched_ahead() {
    for inclusion in [Inclusion::Inclusive, Inclusion::Victim, Inclusion::Independent] {
        for policy in [Policy::Lru, Policy::Random, Policy::NruRotating] {
            let mut parts = machine(Some(PrefetchShape { depth: 63, ..SHAPE }));
            parts.caches.inclusion = inclusion;
            parts.caches.llc.policy = policy;
            // As small as the L2, so that an inclusive one takes lines back.
            parts.caches.llc.sets = 32;
            let line = |n: u64| n / 48 * 17 % 512 * PAGE + n % 48;
            let kind = |n: u64| if n.is_multiple_of(5) { store(line(n)) } else { load(line(n)) };
            let ran = run(&parts, (0..60_000).map(kind));
            let [fetched, used] = ran.prefetches();
            assert!(fetched > 10_000 && used > 10_000, "{inclusion:?} {fetched} {used}");
            let again = run(&parts, (0..60_000).map(kind));
            assert_eq!((ran.cycles, ran.counts), (again.cycles, again.counts), "repeatable");
        }
    }
}
