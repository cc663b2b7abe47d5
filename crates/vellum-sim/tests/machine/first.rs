//! What a first level of data may do beside holding lines, in a machine.

use std::cell::Cell;

use crate::common::*;
use vellum::addr::Order;
use vellum::entry::{Entry, Flags};
use vellum::machine::Use;
use vellum_sim::cache::{FirstLevel, Policy, PrefetchShape};
use vellum_sim::file;
use vellum_sim::format::X86;
use vellum_sim::memory::Ticks;
use vellum_sim::{Counters, Kind, Options, Parts, SimMachine};
use vellum_testkit::ext::MachineExt;

/// Cycles of hits in the first level and in the second.
const L1: u64 = 2;
const L2: u64 = 8;
/// Another address of the memory at [`A`], and one whose hash is that of `A`.
const SAME_HASH: u64 = A + (1 << 28);

const PLAIN: FirstLevel = FirstLevel { refill: None, refill_dirty: None, predicts_ways: false };
const PREDICTS: FirstLevel = FirstLevel { predicts_ways: true, ..PLAIN };

fn refill(cycles: u64) -> FirstLevel {
    FirstLevel { refill: Some(Ticks::from_cycles(cycles)), ..PLAIN }
}

/// An L1D of 8 sets and 2 ways, and levels behind it that hold all.
fn machine(first: FirstLevel) -> Parts {
    let mut parts = parts(MmuKind::X86);
    let caches = &mut parts.caches;
    (caches.l1d.sets, caches.l1d.ways, caches.l1d.policy) = (8, 2, Policy::Lru);
    (caches.l2.sets, caches.l2.ways) = (64, 8);
    (caches.llc.sets, caches.llc.ways) = (128, 16);
    caches.latency = [L1, L2, 20, 0].map(Ticks::from_cycles);
    parts.core.fill_buffers = 16;
    parts.core.window = 64;
    parts.first = first;
    parts
}

/// Loads by address, each dependent on the one before or not.
type Loads = Vec<(u64, bool)>;

fn chained(addresses: impl IntoIterator<Item = u64>) -> Loads {
    addresses.into_iter().map(|va| (va, true)).collect()
}

fn apart(addresses: impl IntoIterator<Item = u64>) -> Loads {
    addresses.into_iter().map(|va| (va, false)).collect()
}

/// Cycles and counts of these loads, after they were made once before.
fn run(parts: &Parts, loads: &Loads) -> (u64, Counters) {
    let load = |&(va, after): &(u64, bool)| To { va, kind: Kind::Load, after };
    run_of(parts, &loads.iter().map(load).collect::<Vec<_>>())
}

/// An access.
#[derive(Clone, Copy)]
struct To {
    va: u64,
    kind: Kind,
    /// It waits for the load before.
    after: bool,
}

/// An access that waits for none.
fn to(va: u64, kind: Kind) -> To {
    To { va, kind, after: false }
}

/// As [`run`], of loads and stores.
fn run_of(parts: &Parts, accesses: &[To]) -> (u64, Counters) {
    let sim = SimMachine::<X86>::build(parts, Options::default()).expect("it can be built");
    let next = Cell::new(16);
    let ran = sim.solo(0, |cpu| {
        let k = Kernel::new(&sim, &next, 1);
        let pfn = k.block(Order::HUGE, Use::Data);
        k.sim.zero_out(pfn, 512);
        // Nobody may write what is mapped in several places.
        if accesses.iter().any(|a| a.kind == Kind::Store) {
            k.set_at(A, 2, Entry::Leaf(pfn, RW));
        } else {
            [A, B, SAME_HASH].iter().for_each(|&va| k.set_at(va, 2, Entry::Leaf(pfn, RO)));
        }
        k.load();
        let go = || {
            accesses.iter().for_each(|&To { va, kind, after }| {
                cpu.access(va, 8, kind, after).expect("mapped");
            })
        };
        go();
        cpu.syscall();
        let (start, before) = (cpu.now(), sim.counters(0));
        go();
        cpu.syscall();
        (cpu.now() - start, sim.counters(0).since(&before))
    });
    sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
    ran.unwrap_or_else(|stop| panic!("{stop}"))
}

fn misses((_, counts): &(u64, Counters)) -> [u64; 2] {
    ["l1d_demand_miss", "l2_demand_miss"].map(|name| counts.get(name).expect("a counter"))
}

#[test]
fn a_line_under_two_addresses_is_missed_by_each_where_ways_are_predicted() {
    let turns = |other: u64| chained((0..100).flat_map(|_| [A, other]));
    let plain = run(&machine(PLAIN), &turns(B));
    let aliases = run(&machine(PREDICTS), &turns(B));
    assert_eq!((misses(&plain), misses(&aliases)), ([0, 0], [200, 0]));
    assert_eq!(aliases.0 - plain.0, 200 * (L2 - L1));
    let same = run(&machine(PREDICTS), &turns(SAME_HASH));
    assert_eq!((same.0, misses(&same)), (plain.0, [0, 0]), "addresses of one hash");
}

/// Small pages beside each other, each of which is found where it was found before.
#[test]
fn the_same_holds_where_translations_take_no_search() {
    let missed = |first: FirstLevel| {
        let sim = SimMachine::<X86>::build(&machine(first), Options::default()).expect("built");
        let next = Cell::new(16);
        let ran = sim.solo(0, |cpu| {
            let k = Kernel::new(&sim, &next, 1);
            let pfn = k.block(Order::BASE, Use::Data);
            k.sim.zero_out(pfn, 1);
            [A, A + 4096].iter().for_each(|&va| k.set_at(va, 1, Entry::Leaf(pfn, RO)));
            k.load();
            let turns = || {
                for n in 0..100 {
                    cpu.access(A + n % 2 * 4096, 8, Kind::Load, true).expect("mapped");
                }
            };
            turns();
            let before = sim.counters(0);
            turns();
            sim.counters(0).since(&before).get("l1d_demand_miss").expect("a counter")
        });
        ran.unwrap_or_else(|stop| panic!("{stop}"))
    };
    assert_eq!([missed(PLAIN), missed(PREDICTS)], [0, 100]);
}

#[test]
fn an_access_to_two_lines_waits_for_the_load_before_in_both() {
    let took = |va| run(&machine(PLAIN), &chained([va; 100])).0;
    assert!(took(A + 60) >= took(A) + 100 * L1, "{} and {}", took(A + 60), took(A));
}

/// Accesses that end in the line of the last one, in the first line of a set, in another line of
/// it, and beyond it, are all counted as what they are.
#[test]
fn accesses_are_counted_by_kind_wherever_they_end() {
    let sim = SimMachine::<X86>::build(&machine(PLAIN), Options::default()).expect("built");
    let next = Cell::new(16);
    let ran = sim.solo(0, |cpu| {
        let k = Kernel::new(&sim, &next, 1);
        k.map_huge(A, Flags { exec: true, ..RW });
        k.load();
        let before = sim.counters(0);
        for kind in [Kind::Load, Kind::Store, Kind::Fetch] {
            // 8 sets of the first level of data: each of these lines is of the first.
            for line in [0, 0, 8, 0, 8, 8, 16, 0, 1, 0, 8] {
                cpu.access(A + line * 64, 8, kind, false).expect("mapped");
            }
        }
        let counts = sim.counters(0).since(&before);
        ["l1d_demand_access", "l1i_demand_access"].map(|n| counts.get(n).expect("a counter"))
    });
    assert_eq!(ran.unwrap_or_else(|stop| panic!("{stop}")), [22, 11]);
}

/// A store to a page that was written before, and to the line that was loaded just now.
#[test]
fn a_store_to_the_line_of_the_last_load_makes_it_dirty() {
    let written = |stores: bool| {
        let sim = SimMachine::<X86>::build(&machine(PLAIN), Options::default()).expect("built");
        let next = Cell::new(16);
        let ran = sim.solo(0, |cpu| {
            let k = Kernel::new(&sim, &next, 1);
            k.map_huge(A, RW);
            k.load();
            let go = |line: u64, kind| {
                cpu.access(A + line * 64, 8, kind, false).expect("mapped");
            };
            let all = || (0..16_384).for_each(|line| go(line, Kind::Load));
            all();
            let before = sim.traffic(0).lines_written;
            go(0, Kind::Store);
            // The last of these finds its line there.
            [1, 2, 1].into_iter().for_each(|line| go(line, Kind::Load));
            if stores {
                go(1, Kind::Store);
            }
            all();
            sim.traffic(0).lines_written - before
        });
        ran.unwrap_or_else(|stop| panic!("{stop}"))
    };
    assert_eq!(written(true) - written(false), 1);
}

#[test]
fn lines_of_one_hash_in_a_set_take_turns_though_there_are_ways_enough() {
    // The hash of SAME_HASH is that of A, and these lines are in one set.
    let turns = chained((0..100).flat_map(|_| [A, SAME_HASH + 512]));
    assert_eq!(misses(&run(&machine(PLAIN), &turns)), [0, 0]);
    assert_eq!(misses(&run(&machine(PREDICTS), &turns)), [200, 0]);
}

#[test]
fn independent_misses_of_one_set_come_one_after_the_other() {
    let lines = |distance: u64| apart((0..30).map(|n| A + n * distance));
    let [one, many] = [8, 1].map(|sets| lines(64 * sets));
    let [free, waits] = [PLAIN, refill(10)].map(machine);
    let took = |parts: &Parts, loads: &Loads| run(parts, loads).0 - run(parts, &Vec::new()).0;
    assert!(took(&free, &one) < 30 * L2, "they overlap");
    let last = took(&waits, &one);
    assert!((29 * 10..32 * 10 + L2).contains(&last), "{last} cycles for 30 lines of a set");
    assert!(took(&waits, &many) < last / 3, "sets do not wait for one another");
    let after = chained((0..30).map(|n| A + n * 512));
    assert_eq!(took(&free, &after), took(&machine(refill(L2)), &after), "a chain is no faster");
}

#[test]
fn a_load_joins_a_line_that_is_on_its_way_even_where_others_have_pushed_it_out() {
    // Four lines for two ways, in turn, all within a window.
    let turns = apart((0..8).flat_map(|_| (0..4).map(|n| A + n * 512)));
    let free = run(&machine(PLAIN), &turns);
    let joins = run(&machine(refill(1)), &turns);
    assert_eq!(misses(&free), [32, 0]);
    assert!(misses(&joins)[0] <= 16, "{:?}", misses(&joins));
    let loads = |ran: &(u64, Counters)| ran.1.get("l1d_demand_access");
    assert_eq!(loads(&joins), loads(&free), "each access is counted");
    // Another address asks for the line itself.
    let turns = apart((0..8).flat_map(|_| [A, B]));
    let parts = machine(FirstLevel { predicts_ways: true, ..refill(1) });
    assert!(misses(&run(&parts, &turns))[0] >= 2);
}

/// An instruction that modifies memory is in a trace as a store and a load, in this order.
#[test]
fn a_load_of_a_line_that_a_store_has_missed_waits_for_it() {
    let (store, load) = (Kind::Store, Kind::Load);
    let modified = (0..30).flat_map(|n| [store, load].map(|kind| to(A + n * 512, kind)));
    let modified: Vec<_> = modified.collect();
    let stored: Vec<_> = modified.iter().copied().filter(|a| a.kind == store).collect();
    let mut parts = machine(refill(1));
    // In order: nothing overlaps with a load.
    parts.core.window = 1;
    let took = |parts: &Parts, of: &[_]| run_of(parts, of).0 - run_of(parts, &[]).0;
    assert!(took(&parts, &stored) < 30 * L2, "stores overlap");
    let each = took(&parts, &modified);
    assert!((29 * L2..31 * (L2 + 2)).contains(&each), "{each} cycles for 30 modified lines");
    parts.core.window = 64;
    assert!(took(&parts, &modified) < each / 2, "they overlap within a window");
}

#[test]
fn a_dirty_line_that_leaves_a_set_holds_up_the_next_one() {
    let of = |kind: Kind, sets: u64| -> Vec<_> {
        (0..30).map(|n| to(A + n * 64 * sets, kind)).collect()
    };
    let dirty = FirstLevel { refill_dirty: Some(Ticks::from_cycles(40)), ..refill(10) };
    let took = |first, of: &[_]| run_of(&machine(first), of).0 - run_of(&machine(first), &[]).0;
    let stores = took(dirty, &of(Kind::Store, 8));
    assert!((29 * 40..32 * 40 + L2).contains(&stores), "{stores} cycles for 30 lines of a set");
    assert!(took(dirty, &of(Kind::Store, 1)) < stores / 3, "sets do not wait for one another");
    assert!(took(refill(10), &of(Kind::Store, 8)) < stores / 3, "left out: as a clean one");
    let loads = of(Kind::Load, 8);
    assert_eq!(took(dirty, &loads), took(refill(10), &loads), "nothing dirty leaves");
    let low = FirstLevel { refill_dirty: Some(Ticks::from_cycles(3)), ..refill(10) };
    assert_eq!(took(low, &loads), took(refill(10), &loads), "never less than a clean one");
}

#[test]
fn lines_of_the_last_level_follow_each_other_where_the_machine_says_so() {
    let took = |line: u64, after: bool| {
        let mut parts = machine(PLAIN);
        (parts.caches.l2.sets, parts.caches.l2.ways) = (8, 1);
        parts.core.last_level_line = Ticks::from_cycles(line);
        let lines: Loads = (0..200).map(|n| (A + n * 64, after)).collect();
        run(&parts, &lines).0
    };
    assert!(took(0, false) < 200 * 10);
    assert!((200 * 15..200 * 16 + 100).contains(&took(15, false)), "{}", took(15, false));
    assert!(took(15, true) - took(0, true) < 100, "a chain of loads is slower than that anyway");
}

#[test]
fn it_works_beside_a_prefetcher() {
    let mut parts = machine(FirstLevel { predicts_ways: true, ..refill(3) });
    parts.prefetch =
        Some(PrefetchShape { streams: 4, train: 2, depth: 4, walks: false, crosses_pages: false });
    let row = apart((0..4096).map(|n| A + n * 64));
    let (cycles, counts) = run(&parts, &row);
    assert!(counts.get("prefetches") > Some(0) && cycles > 4096);
}

#[test]
fn no_preset_names_any_of_it() {
    for name in file::presets() {
        let machine = file::preset(name).expect("valid");
        assert_eq!(machine.first_level(), FirstLevel::default(), "{name}");
    }
}
