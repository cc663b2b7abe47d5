//! Nested paging: how many entries a walk of a guest reads, what is kept of them, what they cost.

use std::cell::Cell;

use crate::common::*;
use vellum::addr::{Order, Pfn};
use vellum::entry::{Entry, Flags};
use vellum::machine::{Machine, Scope, Use};
use vellum_sim::format::X86;
use vellum_sim::memory::Ticks;
use vellum_sim::tlb::{NestedShape, PageSize, WalkCacheShape};
use vellum_sim::{BuildError, Check, Counters, Cpu, Kind, Options, Parts, SimMachine};
use vellum_testkit::ext::MachineExt;

/// Frames of 1 GiB.
const GIB: u64 = 1 << 18;

/// Tables of a hypervisor of which the walker keeps one translation and no tables.
fn bare(page: PageSize, levels: u8) -> NestedShape {
    NestedShape { page, levels, entries: 1, ways: 1, walk: WalkCacheShape::default() }
}

/// `tiny` with 16 GiB, without walk caches of its own, as a guest of these tables.
fn guest(nested: Option<NestedShape>) -> Parts {
    let mut p = parts(MmuKind::X86);
    p.numa.frames = vec![8 * GIB; 2];
    p.walk_cache = WalkCacheShape::default();
    p.nested = nested;
    p
}

/// As [`guest`], with caches that hold every line of these tests.
fn roomy(nested: Option<NestedShape>) -> Parts {
    let mut p = guest(nested);
    for cache in [&mut p.caches.l1d, &mut p.caches.l2, &mut p.caches.llc] {
        (cache.sets, cache.ways) = (256, 16);
    }
    p
}

/// Runs a program on CPU 0 of a machine, with an empty root loaded. Frames are given out one GiB
/// apart where the program says so.
fn on(parts: &Parts, program: impl FnOnce(&Kernel<'_, X86>, &Cpu<'_, X86>, &Cell<u64>)) {
    // Clearing 1 GiB line by line would take longer than the test.
    let options = Options { count_clears: true, ..Options::default() };
    let sim = SimMachine::<X86>::build(parts, options).expect("it can be built");
    let next = Cell::new(16);
    sim.solo(0, |cpu| {
        let k = Kernel::new(&sim, &next, 1);
        k.load();
        program(&k, cpu, &next);
    })
    .unwrap_or_else(|stop| panic!("{stop}"));
    sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
}

/// Maps a page of a size at `va`, its tables and itself in regions of 1 GiB of their own.
fn map_apart(k: &Kernel<'_, X86>, va: u64, size: PageSize, next: &Cell<u64>) -> Pfn {
    let leaf = size as u8 + 1;
    for level in (leaf..k.sim.rules().levels).rev() {
        next.set(next.get().next_multiple_of(GIB));
        k.node(va, level);
    }
    next.set(next.get().next_multiple_of(GIB));
    let order = [Order::BASE, Order::HUGE, Order::GIANT][size as usize];
    let pfn = k.block(order, Use::Data);
    k.sim.zero_out(pfn, order.frames());
    k.set_at(va, leaf, Entry::Leaf(pfn, RW));
    pfn
}

fn get(c: &Counters, name: &str) -> u64 {
    c.get(name).expect("a counter")
}

/// What a load at `va` counts.
fn counted(k: &Kernel<'_, X86>, cpu: &Cpu<'_, X86>, va: u64) -> Counters {
    let before = k.sim.counters(0);
    let seen = cpu.access(va, 8, Kind::Load, false);
    seen.unwrap_or_else(|fault| panic!("{fault:?}"));
    k.sim.counters(0).since(&before)
}

/// Entries read by a load at `va`: the guest's, the hypervisor's.
fn reads(k: &Kernel<'_, X86>, cpu: &Cpu<'_, X86>, va: u64) -> (u64, u64) {
    let c = counted(k, cpu, va);
    (get(&c, "walk_steps"), get(&c, "nested_steps"))
}

#[test]
fn a_cold_walk_translates_each_table_and_the_page_that_it_finds() {
    for guest_levels in [4, 5] {
        for levels in [4, 5] {
            for page in PageSize::ALL {
                for size in PageSize::ALL {
                    let mut p = guest(Some(bare(page, levels)));
                    p.mmu.levels = guest_levels;
                    on(&p, |k, cpu, next| {
                        let va = 1 << 38;
                        map_apart(k, va, size, next);
                        let g = u64::from(guest_levels) - size as u64;
                        let n = u64::from(levels) - page as u64;
                        let found = reads(k, cpu, va + ((4096 * 3) & (size.bytes() - 1)));
                        assert_eq!(found, (g, (g + 1) * n), "{size:?} on {page:?}");
                        assert_eq!(found.0 + found.1, (g + 1) * (n + 1) - 1);
                        if (guest_levels, levels, size, page) == (4, 4, PageSize::K4, PageSize::K4)
                        {
                            assert_eq!(found.0 + found.1, 24);
                        }
                    });
                }
            }
        }
    }
}

/// Lines that the 24 reads of a walk are on: the five translations have their entries of levels 4
/// and 3 on one line each, since eight neighbours share one.
const COLD: u64 = 4 + 5 + 5 + 1 + 1;

#[test]
fn every_read_of_the_hypervisors_entries_is_an_access_to_the_caches() {
    on(&guest(Some(bare(PageSize::K4, 4))), |k, cpu, next| {
        map_apart(k, A, PageSize::K4, next);
        let c = counted(k, cpu, A);
        assert_eq!(get(&c, "l1d_walk_access"), 24);
        assert!(get(&c, "llc_walk_miss") >= COLD);
    });
}

#[test]
fn without_a_hypervisor_nothing_is_counted() {
    on(&guest(None), |k, cpu, next| {
        map_apart(k, A, PageSize::K4, next);
        assert_eq!(reads(k, cpu, A), (4, 0));
    });
}

#[test]
fn the_walk_of_a_neighbouring_page_reads_fewer_entries() {
    let at = |page, entries, walk| NestedShape { entries, ways: entries, walk, ..bare(page, 4) };
    let none = WalkCacheShape::default();
    let all = WalkCacheShape { levels: [Some((8, 8)), Some((8, 8)), Some((8, 8)), None] };
    // With 4 KiB pages the new page alone is translated, from the deepest table that is kept; with
    // larger ones nothing is.
    for (nested, first, second) in [
        (at(PageSize::K4, 8, none), 20, 4),
        (at(PageSize::K4, 8, all), 20 - 4, 1),
        (at(PageSize::M2, 8, none), 15, 0),
        (at(PageSize::G1, 8, none), 10, 0),
    ] {
        on(&guest(Some(nested)), |k, cpu, next| {
            map_apart(k, A, PageSize::K4, next);
            k.map(A + 4096, RW);
            assert_eq!(reads(k, cpu, A), (4, first), "{nested:?}");
            assert_eq!(reads(k, cpu, A + 4096), (4, second), "{nested:?}");
        });
    }
}

#[test]
fn a_table_that_the_walk_cache_knows_needs_no_translation() {
    let mut p = guest(Some(bare(PageSize::K4, 4)));
    p.walk_cache.levels = [Some((4, 4)), None, None, None];
    on(&p, |k, cpu, next| {
        map_apart(k, A, PageSize::K4, next);
        next.set(next.get() + GIB);
        k.map(A + 4096, RW);
        assert_eq!(reads(k, cpu, A), (4, 20));
        assert_eq!(reads(k, cpu, A + 4096), (1, 4), "the entry, and where the page is");
    });
}

#[test]
fn what_the_guest_flushes_leaves_the_hypervisors_translations() {
    let nested = NestedShape { entries: 8, ways: 8, ..bare(PageSize::K4, 4) };
    on(&guest(Some(nested)), |k, cpu, next| {
        map_apart(k, A, PageSize::K4, next);
        assert_eq!(reads(k, cpu, A), (4, 20));
        for scope in [k.page(A), Scope::Space(k.context), Scope::All] {
            k.sim.flush_local(scope);
            assert_eq!(reads(k, cpu, A), (4, 0), "{scope:?}");
        }
        k.load();
        assert_eq!(reads(k, cpu, A), (4, 0), "a root load without contexts");
    });
}

#[test]
fn hot_tables_cost_hits_of_the_caches() {
    let p = roomy(Some(bare(PageSize::K4, 4)));
    let hit = p.caches.latency[0].cycles();
    on(&p, |k, cpu, next| {
        map_apart(k, A, PageSize::K4, next);
        let cold = counted(k, cpu, A);
        k.flush_here(A);
        let hot = counted(k, cpu, A);
        assert_eq!(get(&hot, "nested_steps"), 20, "the one entry has been taken by others");
        assert_eq!((get(&cold, "l1d_walk_miss"), get(&hot, "l1d_walk_miss")), (COLD, 0));
        assert_eq!(get(&hot, "walk_cycles"), 24 * hit, "one after the other");
        assert!(get(&cold, "walk_cycles") >= COLD * 60, "from memory");
    });
}

#[test]
fn neighbouring_entries_share_a_line() {
    let nested = NestedShape { entries: 8, ways: 8, ..bare(PageSize::K4, 4) };
    on(&roomy(Some(nested)), |k, cpu, next| {
        map_apart(k, A, PageSize::K4, next);
        next.set(next.get().next_multiple_of(8));
        (1..9).for_each(|n| assert!(k.map(A + n * 4096, RW).0 > 0));
        assert!(load(cpu, A) && load(cpu, A + 4096));
        for n in 2..9 {
            let c = counted(k, cpu, A + n * 4096);
            let guest = u64::from(n == 8);
            assert_eq!((get(&c, "nested_steps"), get(&c, "l1d_walk_miss")), (4, guest), "{n}");
        }
    });
}

/// Cycles of a chase over `pages` pages, each read once before.
fn chase(parts: &Parts, pages: u64) -> u64 {
    let time = Cell::new(0);
    on(parts, |k, cpu, _| {
        (0..pages).for_each(|n| assert!(k.map(A + n * 4096, RW).0 > 0));
        let round = || {
            for n in 0..pages {
                let va = A + n * 7 % pages * 4096;
                cpu.access(va, 8, Kind::Load, true).expect("mapped");
            }
        };
        round();
        let start = cpu.now();
        round();
        time.set(cpu.now() - start);
    });
    time.get()
}

#[test]
fn a_chase_takes_longer_the_smaller_the_hypervisors_pages_are() {
    let nested = |page| Some(NestedShape { entries: 16, ways: 4, ..bare(page, 4) });
    let time = |nested| chase(&guest(nested), 1024);
    let (own, gigantic) = (time(None), time(nested(PageSize::G1)));
    let (huge, small) = (time(nested(PageSize::M2)), time(nested(PageSize::K4)));
    assert!(own <= gigantic && gigantic <= huge && huge < small, "{own} {gigantic} {huge} {small}");
    assert!(small * 2 > own * 3, "{small} against {own}");
    let few = Some(bare(PageSize::M2, 4));
    assert!(time(few) > huge, "one translation kept instead of 16");
}

#[test]
fn a_tlb_entry_is_as_large_as_the_smaller_of_the_two_pages() {
    for check in [Check::Incremental, Check::Walk] {
        for (page, walks) in [(None, 1), (Some(PageSize::M2), 1), (Some(PageSize::K4), 3)] {
            large_page(options(check), (page, RW), |k, cpu| {
                let round = || {
                    let before = k.sim.counters(0);
                    for at in [0, 5 << 12, 511 << 12, 100, 5 << 12 | 64] {
                        assert!(store(cpu, A + at));
                    }
                    get(&k.sim.counters(0).since(&before), "walks_data")
                };
                assert_eq!(round(), walks, "{page:?}");
                assert_eq!(round(), 0);
                k.flush_here(A + (7 << 12));
                assert_eq!(round(), walks, "a flush of one address drops all pieces: {page:?}");
            });
        }
    }
}

/// A CPU of a guest on pages of that size, or of a machine of its own. At [`A`] it has a page of 2
/// MiB with those flags.
fn large_page(
    options: Options,
    (page, flags): (Option<PageSize>, Flags),
    program: impl FnOnce(&Kernel<'_, X86>, &Cpu<'_, X86>),
) {
    let mut p = parts(MmuKind::X86);
    p.nested = page.map(|page| bare(page, 4));
    p.tlb_l1d.banks[0].entries = 8;
    p.tlb_l1d.banks[0].ways = 8;
    let sim = SimMachine::<X86>::build(&p, options).expect("it can be built");
    let next = Cell::new(16);
    sim.solo(0, |cpu| {
        let k = Kernel::new(&sim, &next, 1);
        k.load();
        k.map_huge(A, flags);
        program(&k, cpu);
    })
    .unwrap_or_else(|stop| panic!("{stop}"));
    sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
}

#[test]
fn a_first_store_to_a_clean_page_walks_for_its_own_piece_alone() {
    large_page(options(Check::Walk), (Some(PageSize::K4), RW_CLEAN), |k, cpu| {
        (0..4).for_each(|n| assert!(load(cpu, A + n * 4096)));
        let before = k.sim.counters(0);
        assert!(store(cpu, A) && (1..4).all(|n| load(cpu, A + n * 4096)));
        let c = k.sim.counters(0).since(&before);
        assert_eq!((get(&c, "dirty_assists"), get(&c, "walks_data")), (1, 1));
    });
}

#[test]
fn speculation_fills_any_piece_of_a_page() {
    let filled = |seed| {
        let found = Cell::new(0);
        large_page(hunting(seed), (Some(PageSize::K4), RW_CLEAN), |k, cpu| {
            for n in 1..512 {
                // Only what nobody asked for is there before it is asked for.
                let c = counted(k, cpu, A + n * 4096);
                found.set(found.get() + u64::from(get(&c, "walks_data") == 0));
            }
        });
        found.get()
    };
    assert!((0..40).any(|seed| filled(seed) > 0), "no piece but the first");
}

#[test]
fn a_walks_reads_follow_each_other_and_do_not_queue_for_their_node_at_once() {
    // A line of a node takes half of what a read of it takes: one after the other there is no wait.
    let time = |line: Ticks| {
        let mut p = guest(Some(bare(PageSize::K4, 4)));
        let latency = p.numa.latency[0][0];
        p.numa.line_time = vec![line.min(Ticks(latency.0 / 2)); 2];
        let time = Cell::new(0);
        on(&p, |k, cpu, next| {
            map_apart(k, A, PageSize::K4, next);
            time.set(get(&counted(k, cpu, A), "walk_cycles"));
        });
        time.get()
    };
    assert_eq!(time(Ticks(1)), time(Ticks(u64::MAX)));
}

#[test]
fn a_small_page_on_a_large_one_stays_small() {
    on(&guest(Some(bare(PageSize::G1, 4))), |k, cpu, _| {
        (0..2).for_each(|n| assert!(k.map(A + n * 4096, RW).0 > 0));
        for n in 0..2 {
            assert_eq!(get(&counted(k, cpu, A + n * 4096), "walks_data"), 1);
        }
    });
}

#[test]
fn a_faulting_walk_translates_the_tables_that_it_reads() {
    on(&guest(Some(bare(PageSize::K4, 4))), |k, cpu, next| {
        map_apart(k, A, PageSize::K4, next);
        let before = k.sim.counters(0);
        assert!(!load(cpu, A + 4096));
        let c = k.sim.counters(0).since(&before);
        assert_eq!((get(&c, "walk_steps"), get(&c, "nested_steps")), (4, 16));
    });
}

#[test]
fn nested_lines_are_read_from_the_node_whose_memory_they_describe() {
    for node in [0, 1] {
        on(&guest(Some(bare(PageSize::K4, 4))), |k, cpu, next| {
            // All tables but the root are in the first node, the page in one of the two.
            k.node(A, 1);
            next.set(node as u64 * 8 * GIB + 4 * GIB);
            k.map(A, RW);
            let before = k.sim.traffic(1).lines_read;
            assert_eq!(reads(k, cpu, A), (4, 20));
            let far = k.sim.traffic(1).lines_read - before;
            assert_eq!(far, if node == 0 { 0 } else { 4 + 1 }, "its translation and its line");
        });
    }
}

#[test]
fn tables_that_the_caches_cannot_tell_apart_or_of_three_levels_are_refused() {
    let mut p = guest(Some(bare(PageSize::K4, 3)));
    let refused = |p: &Parts| SimMachine::<X86>::build(p, Options::default()).err();
    assert!(matches!(refused(&p), Some(BuildError::Parts(why)) if why.contains("hypervisor")));
    p.nested = Some(bare(PageSize::K4, 4));
    assert!(refused(&p).is_none());
    // Caches of one set reach 64 GiB: the memory fits, the tables behind it do not.
    p.numa.frames = vec![32 * GIB - 512, 32 * GIB - 512];
    p.caches.l1d.sets = 1;
    p.caches.lines = 0;
    assert!(matches!(refused(&p), Some(BuildError::Cache(_))));
    p.nested = None;
    assert!(refused(&p).is_none());
}
