//! Free memory is not refused: of two acts those succeed in every interleaving that do so one after
//! the other.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use vellum::machine::MmuRules;

use crate::explorer::{NEXT, base, both, few, script};
use vellum::addr::{Level, Order, Va};
use vellum::config::{Config, Preemption, Thp, ZeroHuge};
use vellum::error::SpaceError;
use vellum::space::{Access, Advice, Attrs, Fault, LeafSize, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum_proof::explore::worlds::{AT, Fixture, MIB2};
use vellum_proof::explore::{Script, World, explore};

/// Whether memory was enough.
type Act = fn(&Fixture) -> bool;
type Acts = [(&'static str, Act)];

/// A GiB in which nothing is mapped but one reserved range.
pub const FAR: Va = Va(0x1_0000_0000);
pub const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);

fn store(l: &Fixture, at: Va) -> bool {
    l.store(at, 7).is_ok()
}

fn populate(l: &Fixture, bytes: u64) -> bool {
    l.vm.advise(l.space(), AT, bytes, Advice::Populate { write: true }).is_ok()
}

fn create(l: &Fixture) -> bool {
    l.vm.create().map(|space| l.keep(space)).is_ok()
}

fn fork(l: &Fixture) -> bool {
    l.vm.fork(l.space()).map(|child| l.keep(child)).is_ok()
}

/// What is refused for another reason was not refused for memory.
fn enough<T>(done: Result<T, SpaceError>) -> bool {
    !matches!(done, Err(SpaceError::NoMemory))
}

/// Takes every frame and gives `free` back.
pub fn starve(l: &Fixture, free: usize) {
    let mut had = usize::MAX;
    while had != l.held.borrow().len() {
        had = l.held.borrow().len();
        l.take(0);
    }
    (0..free).for_each(|_| l.give(0));
}

type Make<'a> = &'a dyn Fn() -> Fixture;

fn room(make: Make<'_>, free: usize) -> Fixture {
    let fixture = make();
    starve(&fixture, free);
    fixture.enter(0);
    fixture
}

/// Which succeed of acts that are done one after the other, each on its CPU.
fn in_turn<const N: usize>(make: Make<'_>, free: usize, acts: [(usize, Act); N]) -> [bool; N] {
    let fixture = room(make, free);
    let done = acts.map(|(cpu, act)| {
        fixture.enter(cpu);
        act(&fixture)
    });
    fixture.enter(0);
    fixture.check();
    done
}

/// The fewest frames with which that is so.
fn fewest(what: &str, suffice: impl Fn(usize) -> bool) -> usize {
    let found = (0..64).find(|&free| suffice(free));
    found.unwrap_or_else(|| panic!("{what}: 64 frames are not enough"))
}

/// Every pair of acts, one of them of those rows, with as many frames as each needs alone and as
/// both need in either order: both succeed, or what one of the orders makes of it.
fn pairs(name: &str, make: Make<'_>, acts: &Acts, rows: Range<usize>) {
    let (mut pairs, mut schedules, mut waited) = (0, 0, 0);
    let alone = |&(what, act): &_| fewest(what, |free| in_turn(make, free, [(0, act)]) == [true]);
    let alone: Vec<usize> = acts.iter().map(alone).collect();
    for (i, &(first, a)) in acts.iter().enumerate().take(rows.end).skip(rows.start) {
        for (j, &(second, b)) in acts.iter().enumerate().skip(i) {
            let orders = |free| {
                let [of_b, of_a] = in_turn(make, free, [(1, b), (0, a)]);
                [in_turn(make, free, [(0, a), (1, b)]), [of_a, of_b]]
            };
            let both = fewest(second, |free| orders(free) == [[true; 2]; 2]);
            let frames: BTreeSet<usize> = [alone[i], alone[j], both].into();
            for free in frames {
                let (orders, came) = (orders(free), Rc::new(Cell::new([None; 2])));
                let script_of = |n: usize, act: Act| -> Script<Fixture> {
                    let came = came.clone();
                    script(move |l: &Fixture| {
                        let done = act(l);
                        let mut all = came.get();
                        all[n] = Some(done);
                        came.set(all);
                        let [Some(of_a), Some(of_b)] = all else { return };
                        came.set([None; 2]);
                        let right = of_a && of_b || orders.contains(&[of_a, of_b]);
                        assert!(right, "{first}, {second}, {free} frames: {of_a}, {of_b}");
                    })
                };
                let (a, b) = (script_of(0, a), script_of(1, b));
                for scripts in [[a.clone(), b.clone()], [b, a]] {
                    let done = explore(&|| room(make, free), &scripts, 1, u64::MAX);
                    schedules += done.schedules;
                    waited += done.waited;
                }
            }
            pairs += 1;
        }
    }
    println!("{name}: {pairs} pairs, {schedules} schedules, in {waited} of them a CPU waited");
    assert!(schedules > 2 * pairs, "nothing was interleaved");
}

/// Three pages in one table, of which the first has a word in it, and a reserved range that has no
/// tables yet.
fn three() -> Fixture {
    let fixture = few(2)();
    fixture.vm.map(fixture.space(), Placement::At(FAR), 4 * MIB2, RW).expect("memory");
    fixture
}

#[test]
fn faults_are_not_refused_what_another_cpu_gives_back() {
    let acts: &Acts = &[
        ("store", |l| store(l, NEXT)),
        ("store to another word", |l| store(l, Va(NEXT.0 + 8))),
        ("store to the next page", |l| store(l, Va(NEXT.0 + 4096))),
        ("store where a table is missing", |l| store(l, FAR)),
        ("store where the same table is missing", |l| store(l, Va(FAR.0 + 4096))),
        ("copy in", |l| l.vm.copy_in(l.space(), NEXT, &[1; 8192]).is_ok()),
        ("forced write", |l| l.vm.write_forced(l.space(), NEXT, &[1]).is_ok()),
        ("populate", |l| populate(l, 4 * 4096)),
    ];
    pairs("reserved ranges", &three, acts, 0..acts.len());
}

#[test]
fn copies_are_not_refused_what_another_cpu_gives_back() {
    let make = || {
        let fixture = three();
        store(&fixture, NEXT);
        fixture.enter(0);
        fixture.keep(fixture.vm.fork(fixture.space()).expect("memory"));
        fixture
    };
    let acts: &Acts = &[
        ("store", |l| store(l, AT)),
        ("store to another word", |l| store(l, Va(AT.0 + 8))),
        ("store to the next page", |l| store(l, NEXT)),
        ("store in the child", |l| l.vm.copy_in(&l.last(), AT, &[1]).is_ok()),
        ("forced write", |l| l.vm.write_forced(l.space(), AT, &[1]).is_ok()),
        ("populate", |l| populate(l, 2 * 4096)),
    ];
    pairs("copies", &make, acts, 0..acts.len());
}

const VERBS: &Acts = &[
    ("fork", fork),
    // A store is a fault and another try, between which a fork shares the page.
    ("fault", |l| l.vm.fault(l.space(), NEXT, Access::Write).is_ok()),
    ("create", create),
    ("map", |l| enough(l.vm.map(l.space(), Placement::At(Va(FAR.0 * 2)), 4096, RW))),
    ("unmap a part of a reserved range", |l| enough(l.vm.unmap(l.space(), Va(FAR.0 + 4096), 4096))),
    ("protect", |l| enough(l.vm.protect(l.space(), Va(FAR.0 + 4096), 4096, Rights::READ))),
    ("remap", |l| enough(l.vm.remap(l.space(), AT, 4096, 4096, Placement::At(Va(FAR.0 * 3))))),
    ("advise", |l| enough(l.vm.advise(l.space(), Va(FAR.0 + 4096), 4096, Advice::NoHuge))),
];

#[test]
fn verbs_are_not_refused_what_a_fork_gives_back() {
    pairs("fork beside verbs", &three, VERBS, 0..1);
}

#[test]
fn verbs_are_not_refused_what_another_cpu_gives_back() {
    pairs("verbs", &three, VERBS, 1..VERBS.len());
}

#[test]
fn objects_are_not_refused_while_another_cpu_adds_a_page_of_them() {
    // One space more takes another page for its record.
    let make = || {
        let fixture = Fixture::new(2, 2048, base(), MmuRules::X86_64);
        fixture.enter(0);
        let pages = || fixture.vm.stats().get(Counter::SlabPages);
        fixture.keep(fixture.vm.create().expect("memory"));
        let first = pages();
        while pages() == first {
            fixture.keep(fixture.vm.create().expect("memory"));
        }
        fixture.end_last();
        fixture
    };
    pairs("create", &make, &[("create", create)], 0..1);
}

#[test]
fn a_fault_is_not_refused_what_a_verb_has_that_is_refused() {
    let map: Act = |l| l.vm.map(l.space(), Placement::At(Va(FAR.0 * 2)), 4096, RW).is_ok();
    for (what, verb) in [("map", map), ("fork", fork)] {
        assert!(!verb(&room(&three, 1)), "one frame is enough");
        let verb = script(move |l: &Fixture| _ = verb(l));
        let fault = script(|l: &Fixture| {
            let done = l.vm.fault(l.space(), NEXT, Access::Write);
            assert!(done.is_ok(), "{done:?} with a frame that nobody has");
        });
        let done = explore(&|| room(&three, 1), &[verb, fault], 2, u64::MAX);
        println!("{what}: {done:?}");
        assert!(done.waited > 0);
    }
}

/// A machine whose every page may be huge, before anything is mapped.
pub fn huge(frames: u64, zero_huge: ZeroHuge) -> (Fixture, Space) {
    let preempt = Preemption::None;
    let config = Config { thp: Thp::Always, preempt, zero_huge, ..Config::default() };
    let fixture = Fixture::new(2, frames, config, MmuRules::X86_64);
    fixture.enter(0);
    let space = fixture.vm.create().expect("memory");
    (fixture, space)
}

/// Takes all memory but so many blocks of 2 MiB.
pub fn leave_blocks(l: &Fixture, blocks: usize) {
    (0..blocks).for_each(|_| l.take(Order::HUGE.get()));
    starve(l, 0);
    for _ in 0..blocks {
        let n = l.held.borrow().iter().position(|held| held.1 == Order::HUGE);
        l.give(n.expect("a block"));
    }
    l.enter(0);
}

/// A store to the space that was kept last.
fn large(at: Va) -> Script<Fixture> {
    script(move |l: &Fixture| {
        let done = l.vm.fault(&l.last(), at, Access::Write);
        assert!(done.is_ok(), "{done:?} with a block for the page that both want");
    })
}

#[test]
fn large_pages_are_not_refused_while_another_cpu_clears_the_block() {
    for leaf in [LeafSize::Exactly(Order::HUGE), LeafSize::Policy] {
        // Another CPU may go on at each scheduling point of the clearing.
        let make = || {
            let (fixture, space) = huge(2048, ZeroHuge::Off);
            let attrs = Attrs { leaf, ..RW };
            fixture.vm.map(&space, Placement::At(AT), 2 * MIB2, attrs).expect("memory");
            // The table for it comes with the first.
            assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
            fixture.keep(space);
            leave_blocks(&fixture, 1);
            fixture
        };
        let at = Va(AT.0 + MIB2 + 5 * 4096);
        let done = explore(&make, &[large(at), large(at)], 2, 20_000);
        println!("{leaf:?}: {done:?}");
        assert!(done.schedules > 2 && (done.waited > 0 || leaf == LeafSize::Policy));
    }
}

#[test]
fn a_large_page_is_not_refused_while_another_cpu_copies_it() {
    // The space and its child share a huge page, and there is one block for a copy of it.
    let make = || {
        let (fixture, space) = huge(2048, ZeroHuge::Off);
        fixture.vm.map(&space, Placement::At(AT), MIB2, RW).expect("memory");
        assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
        let child = fixture.vm.fork(&space).expect("memory");
        fixture.keep(space);
        fixture.keep(child);
        leave_blocks(&fixture, 1);
        fixture
    };
    let done = explore(&make, &[large(AT), large(NEXT)], 2, 20_000);
    println!("{done:?}");
    assert!(done.waited > 0);
}

/// 2 MiB of zeros were read, in one of those forms.
fn zeros(form: ZeroHuge) -> Fixture {
    let (fixture, space) = huge(2048, form);
    fixture.vm.map(&space, Placement::At(AT), 2 * MIB2, RW).expect("memory");
    assert!(fixture.vm.fault(&space, AT, Access::Read).is_ok());
    fixture.keep(space);
    fixture
}

const FORMS: [ZeroHuge; 3] = [ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate];

#[test]
fn stores_over_zeros_are_not_refused_what_another_cpu_gives_back() {
    let acts: &Acts = &[
        ("store", |l| l.vm.fault(&l.last(), AT, Access::Write).is_ok()),
        ("store to the next page", |l| l.vm.fault(&l.last(), NEXT, Access::Write).is_ok()),
        ("store beyond", |l| l.vm.fault(&l.last(), Va(AT.0 + MIB2), Access::Write).is_ok()),
        ("load beyond", |l| l.vm.fault(&l.last(), Va(AT.0 + MIB2), Access::Read).is_ok()),
    ];
    for form in FORMS {
        pairs(&format!("zeros, {form:?}"), &|| zeros(form), acts, 0..acts.len());
    }
}

#[test]
fn zeros_become_a_large_page_while_another_cpu_clears_the_block() {
    for form in FORMS {
        let make = || {
            let fixture = zeros(form);
            leave_blocks(&fixture, 1);
            fixture
        };
        let done = explore(&make, &[large(AT), large(NEXT)], 2, 2000);
        println!("{form:?}: {done:?}");
        assert!(done.waited > 0);
    }
}

#[test]
fn two_reads_of_a_huge_page_of_zeros_are_not_refused_their_tables() {
    let make = || {
        let (fixture, space) = huge(2048, ZeroHuge::Page);
        fixture.vm.map(&space, Placement::At(FAR), 1 << 30, RW).expect("memory");
        fixture.keep(space);
        fixture
    };
    let read = script(|l: &Fixture| {
        let done = l.vm.fault(&l.last(), FAR, Access::Read);
        assert!(done.is_ok(), "{done:?} with the tables that both want");
    });
    let done = explore(&|| room(&make, 2), &[read.clone(), read], 1, u64::MAX);
    println!("{done:?}");
    assert!(done.waited > 0);
}

#[test]
fn who_keeps_the_zeros_has_2_mib_in_hand_and_finds_the_page_of_another() {
    let exact = Va(AT.0 + 2 * MIB2);
    let make = || {
        let (fixture, space) = huge(3072, ZeroHuge::Page);
        fixture.vm.map(&space, Placement::At(AT), 2 * MIB2, RW).expect("memory");
        fixture.vm.map(&space, Placement::At(exact), 2 * MIB2, EXACT).expect("memory");
        assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
        fixture.keep(space);
        leave_blocks(&fixture, 2);
        fixture
    };
    let keep = script(|l: &Fixture| {
        let done = l.vm.keep_zeros();
        assert!(done.is_ok(), "{done:?} with the page {:?}", l.vm.huge_zero());
    });
    let read_and_write = script(move |l: &Fixture| {
        let read = l.vm.fault(&l.last(), Va(AT.0 + MIB2), Access::Read);
        let write = l.vm.fault(&l.last(), exact, Access::Write);
        assert!(read.is_ok() && write.is_ok(), "{read:?}, {write:?} with a block for each");
    });
    for scripts in [[keep.clone(), read_and_write.clone()], [read_and_write, keep]] {
        let done = explore(&make, &scripts, 1, u64::MAX);
        println!("{done:?}");
        assert!(done.schedules > 2);
    }
}

#[test]
fn who_looks_for_memory_again_looks_for_the_least_that_will_do() {
    // A read that finds no frame for a table of zeros tries for a page, which takes more tables. In
    // the end the table of zeros is there, or what it takes is.
    let make = || {
        let (fixture, space) = huge(2048, ZeroHuge::Table);
        fixture.vm.map(&space, Placement::At(FAR), 1 << 30, RW).expect("memory");
        fixture.vm.map(&space, Placement::At(AT), MIB2, RW).expect("memory");
        assert!(fixture.vm.fault(&space, AT, Access::Read).is_ok());
        fixture.keep(space);
        fixture
    };
    let reads = |l: &Fixture| l.vm.fault(&l.last(), Va(FAR.0 + MIB2), Access::Read);
    for (free, beside) in [(3, Va(FAR.0 + 4096)), (1, AT)] {
        let writes = move |l: &Fixture| _ = l.vm.fault(&l.last(), beside, Access::Write);
        let fixture = room(&make, free);
        writes(&fixture);
        assert!(reads(&fixture).is_ok());
        let read = script(move |l: &Fixture| {
            let done = reads(l);
            assert!(done.is_ok(), "{done:?}");
        });
        for scripts in [[read.clone(), script(writes)], [script(writes), read]] {
            let done = explore(&|| room(&make, free), &scripts, 1, u64::MAX);
            println!("{done:?}");
            assert!(done.schedules > 2);
        }
    }
}

/// A page of exactly 2 MiB and a reserved range of another, and one block that is free.
fn exact() -> Fixture {
    let (fixture, space) = huge(2048, ZeroHuge::Off);
    fixture.vm.map(&space, Placement::At(AT), 2 * MIB2, EXACT).expect("memory");
    assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
    fixture.keep(space);
    leave_blocks(&fixture, 1);
    fixture
}

pub const EXACT: Attrs = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };

#[test]
fn a_page_of_exactly_2_mib_is_not_refused_the_block_that_a_pool_takes_or_gives() {
    let pooled = || {
        let fixture = exact();
        assert_eq!(fixture.vm.pool(Order::HUGE, 1), Ok(()));
        fixture
    };
    let fault = |l: &Fixture| {
        let done = l.vm.fault(&l.last(), Va(AT.0 + MIB2), Access::Write);
        assert!(done.is_ok(), "{done:?} with a block free, or in the pool");
    };
    both(&exact, |l| _ = l.vm.pool(Order::HUGE, 1), fault);
    both(&pooled, |l| _ = l.vm.pool(Order::HUGE, 0), fault);
}

#[test]
fn a_pool_is_not_refused_the_block_of_a_fault_that_is_refused() {
    // There is no table for the page.
    let make = || {
        let (fixture, space) = huge(2048, ZeroHuge::Off);
        fixture.vm.map(&space, Placement::At(FAR), 1 << 30, EXACT).expect("memory");
        fixture.keep(space);
        leave_blocks(&fixture, 1);
        fixture
    };
    both(
        &make,
        |l| assert!(l.vm.fault(&l.last(), FAR, Access::Write).is_err()),
        |l| assert_eq!(l.vm.pool(Order::HUGE, 1), Ok(())),
    );
}

#[test]
fn a_copy_of_a_page_of_exactly_2_mib_takes_the_block_of_the_pool() {
    // With no other frame, and with enough for a copy of a piece.
    for free in [0, 8] {
        let (fixture, space) = huge(4096, ZeroHuge::Off);
        fixture.vm.map(&space, Placement::At(AT), MIB2, EXACT).expect("memory");
        assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
        assert_eq!(fixture.vm.pool(Order::HUGE, 1), Ok(()));
        fixture.keep(fixture.vm.fork(&space).expect("memory"));
        starve(&fixture, free);
        fixture.enter(0);
        let done = fixture.vm.fault(&space, AT, Access::Write);
        assert_eq!(done, Ok(Fault::Copied(Level::TWO)), "{free} frames");
        fixture.keep(space);
        fixture.check();
    }
}

#[test]
fn the_page_of_zeros_is_there_or_its_block_is_free() {
    // No space holds the page.
    let make = || {
        let (fixture, space) = huge(2048, ZeroHuge::Page);
        fixture.vm.map(&space, Placement::At(AT), 2 * MIB2, RW).expect("memory");
        assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
        let other = fixture.vm.create().expect("memory");
        fixture.vm.map(&other, Placement::At(AT), 2 * MIB2, RW).expect("memory");
        assert!(fixture.vm.fault(&other, AT, Access::Read).is_ok());
        fixture.vm.exit(other);
        assert_eq!(fixture.vm.shrinkable_zeros(), Order::HUGE.frames());
        fixture.keep(space);
        fixture
    };
    let shrink = |l: &Fixture| _ = l.vm.shrink_zeros();
    both(&|| room(&make, 0), shrink, |l| assert_eq!(l.vm.keep_zeros(), Ok(())));
    both(&|| room(&make, 0), shrink, |l| {
        let done = l.vm.fault(&l.last(), Va(AT.0 + MIB2), Access::Read);
        assert!(done.is_ok(), "{done:?}");
    });
}

#[test]
fn a_collapse_takes_a_block_that_came_back_page_by_page() {
    let fixture = Fixture::new(2, 4096, base(), MmuRules::X86_64);
    fixture.enter(0);
    let space = fixture.vm.create().expect("memory");
    fixture.vm.map(&space, Placement::At(AT), MIB2, RW).expect("memory");
    assert!(fixture.vm.fault(&space, AT, Access::Write).is_ok());
    fixture.take(Order::HUGE.get());
    let block = fixture.held.borrow()[0].0;
    fixture.give(0);
    starve(&fixture, 0);
    let collapse = || fixture.vm.advise(&space, AT, MIB2, Advice::Collapse);
    // So often that the allocator no longer empties what CPUs keep.
    for _ in 0..4 {
        assert_eq!(collapse(), Err(SpaceError::NoMemory));
    }
    fixture.enter(1);
    let of_block = || fixture.held.borrow().iter().position(|h| h.0.0.wrapping_sub(block.0) < 512);
    while let Some(n) = of_block() {
        fixture.give(n);
    }
    fixture.enter(0);
    assert_eq!(collapse(), Ok(()));
    fixture.vm.exit(space);
    fixture.check();
}

#[test]
fn a_page_that_comes_and_goes_is_not_refused() {
    // Nobody else wants the frame.
    let fault = |l: &Fixture| {
        let done = l.vm.fault(l.space(), NEXT, Access::Write);
        assert!(done.is_ok(), "{done:?}");
    };
    let comes_and_goes = move |l: &Fixture| {
        for _ in 0..2 {
            l.vm.advise(l.space(), NEXT, 4096, Advice::DontNeed).expect("memory");
            fault(l);
        }
    };
    let (fault, comes_and_goes) = (script(fault), script(comes_and_goes));
    for scripts in [[fault.clone(), comes_and_goes.clone()], [comes_and_goes, fault]] {
        let done = explore(&|| room(&three, 1), &scripts, 3, 30_000);
        println!("{done:?}");
        assert!(done.waited > 0);
    }
}

#[test]
fn of_three_cpus_none_is_refused_the_page_that_all_want() {
    let store = |at| {
        script(move |l: &Fixture| {
            let done = l.vm.fault(l.space(), at, Access::Write);
            assert!(done.is_ok(), "{done:?}");
        })
    };
    let beside = Va(NEXT.0 + 4096);
    for (free, at) in [(1, [NEXT; 3]), (2, [NEXT, NEXT, beside])] {
        let done = explore(&|| room(&few(3), free), &at.map(store), 2, u64::MAX);
        println!("{done:?}");
        assert!(done.waited > 0);
    }
}

#[test]
fn who_is_refused_has_nothing_in_hand() {
    let fixture = room(&three, 0);
    assert!(!store(&fixture, NEXT) && !fork(&fixture) && fixture.vm.create().is_err());
    // One frame is enough for what takes one.
    fixture.give(0);
    assert!(store(&fixture, NEXT));
    fixture.check();
}

#[test]
fn a_remap_inside_one_reserved_range_takes_each_table_once() {
    // The first cut of the reserved range takes a table of each of two levels, in which the new
    // place lies as well.
    for (old, new) in [(4096, 4096), (4096, 3 * 4096), (3 * 4096, 4096)] {
        for (free, enough_for_it) in [(1, false), (2, true)] {
            let fixture = room(&three, free);
            let place = Placement::Replace(Va(FAR.0 + 8 * 4096));
            let done = fixture.vm.remap(fixture.space(), FAR, old, new, place);
            assert_eq!(done.is_ok(), enough_for_it, "{old} bytes to {new}, {free} frames");
            fixture.check();
        }
    }
}
