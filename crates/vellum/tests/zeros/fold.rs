//! What `zero.huge=auto` does with what is mapped already: exchanging the page for the table, and folding a GiB's middle node into the shared one.
//!
//! Scattered first faults decide without a clock: eight of them for the table, eight more for whole GiB. So these tests need no time, and the
//! fault that folds is known: the sixteenth.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::flat::{ARM_RULES, Flat, X86_RULES, unless_it_waits, weave};
use crate::lab::state::Raw;
use crate::lab::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, ZeroHuge};
use vellum::entry::{Aarch64, Codec, Entry, X86_64};
use vellum::machine::{MmuRules, Topology};
use vellum::space::{Access, Advice, Attrs, Fault, Page, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::zero::auto::{ZeroForm, ZeroWhy};

/// The first GiB of what is mapped, and how many there are.
const FIRST: u64 = 16 * GIB;
const GIBS: u64 = 8;

struct Rig<C: Codec> {
    lab: Lab<C>,
    space: RefCell<Option<Space>>,
}

fn rig<C: Codec>(rules: MmuRules, frames: u64) -> Rig<C> {
    let config = Config { zero_huge: ZeroHuge::Auto, ..Config::default() };
    let lab = lab_on::<C>(Flat::new(Topology::flat(3, Pfn(512), frames), rules), config);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(FIRST), GIBS * GIB, RW);
    Rig { lab, space: RefCell::new(Some(space)) }
}

impl<C: Codec> Rig<C> {
    fn with<R>(&self, work: impl FnOnce(&Space) -> R) -> R {
        work(self.space.borrow().as_ref().expect("a space"))
    }
    /// A first read in a GiB, in the `n`-th place that is nobody's neighbour.
    fn read(&self, gib: u64, n: u64) -> Fault {
        self.with(|space| self.lab.vm.fault(space, Va(FIRST + gib * GIB + n * 8 * MIB2), Access::Read)).expect("memory")
    }
    /// Fifteen reads, in each of the first seven GiB two, in the first three. The table was chosen at the eighth.
    fn almost(&self) {
        for n in 0..15 {
            self.read(n % 7, n / 7);
        }
        self.with(|space| {
            let (choice, usage) = (self.lab.vm.zero_choice(space), self.lab.vm.usage(space));
            assert_eq!((choice.form, choice.why, choice.faults), (ZeroForm::Table, ZeroWhy::Scattered, 15));
            assert_eq!((usage.zero_tables, usage.zero_huge_leaves, usage.rss_pages), (15, 0, 0));
            assert_eq!(usage.table_nodes, 2 + 7, "a root, a node of 512 GiB, and one of each GiB");
        });
    }
    fn check(&self) {
        self.with(|space| self.lab.check(&[space]));
    }
    fn end(self) {
        self.lab.vm.exit(self.space.into_inner().expect("a space"));
        self.lab.vm.shrink_zeros();
        self.lab.check(&[]);
        assert_eq!(self.lab.count(Counter::TablePages), 0, "tables lost");
    }
}

fn at(gib: u64, slot: u64) -> Va {
    Va(FIRST + gib * GIB + slot * MIB2)
}

/// Whether a GiB is mapped by one entry.
fn folded<C: Codec>(lab: &Lab<C>, space: &Space, gib: u64) -> bool {
    lab.entries(space).iter().any(|&(level, va, raw)| {
        level == 3 && va == FIRST + gib * GIB && matches!(C::decode(raw, Level::THREE), Entry::ZeroTable(_))
    })
}

fn decides<C: Codec>(rules: MmuRules) {
    let rig = rig::<C>(rules, 8192);
    for n in 0..7 {
        assert_eq!(rig.read(n, 0), Fault::ZeroHuge);
    }
    assert_eq!(rig.with(|space| rig.lab.vm.usage(space).zero_huge_leaves), 7);
    let read = rig.with(|space| rig.lab.entries(space));
    rig.read(0, 1);
    // The page is gone from wherever it was; what was promised and what is not of this kind stays.
    rig.with(|space| {
        let usage = rig.lab.vm.usage(space);
        assert_eq!((usage.zero_huge_leaves, usage.zero_tables, usage.table_nodes), (0, 8, 2 + 7));
        let now = rig.lab.entries(space);
        let changed = read.iter().filter(|entry| !now.contains(entry)).count();
        assert_eq!((changed, now.len()), (8, read.len()), "seven pages, and the promise that was read now");
    });
    assert_eq!(rig.lab.count(Counter::ZeroAutoMoved), 8);
    rig.check();
    rig.end();
}

#[test]
fn eight_scattered_reads_exchange_the_page_for_the_table_wherever_it_is_mapped() {
    decides::<X86_64>(X86_RULES);
    decides::<Aarch64>(ARM_RULES);
}

fn folds<C: Codec>(rules: MmuRules) {
    let rig = rig::<C>(rules, 8192);
    rig.almost();
    // 0 and 6 stay what they are: zeros and promises. 1: with a page; 2: with a table of base pages; 3: of two regions; 4: promises alone;
    // 5: nothing may be executed in the shared tables.
    rig.with(|space| {
        let vm = &rig.lab.vm;
        rig.lab.poke(space, at(1, 100), 1).unwrap();
        let hogged = rig.lab.hog(Order::HUGE);
        rig.lab.poke(space, at(2, 100), 2).unwrap();
        rig.lab.give_back(hogged, Order::HUGE);
        vm.protect(space, at(3, 100), MIB2, Rights::READ).unwrap();
        vm.advise(space, at(4, 0), GIB, Advice::DontNeed).unwrap();
        vm.protect(space, at(5, 0), GIB, Rights::READ_EXEC).unwrap();
        assert!(matches!(vm.fault(space, at(5, 300), Access::Exec), Ok(Fault::ZeroTable(_) | Fault::ZeroHuge)));
    });
    let before = rig.with(|space| rig.lab.entries(space));
    let (tables, flushes) =
        (rig.lab.count(Counter::TablePages), rig.lab.vm.machine().asked.remote_flushes.load(Ordering::Relaxed));
    // Somebody else runs in it.
    rig.lab.vm.machine().run_on(1);
    rig.with(|space| rig.lab.vm.activate(space));
    rig.lab.vm.machine().run_on(0);
    rig.read(6, 30);
    let flushed = rig.lab.vm.machine().asked.remote_flushes.load(Ordering::Relaxed) - flushes;
    rig.lab.vm.machine().run_on(1);
    rig.lab.vm.idle();
    rig.lab.vm.machine().run_on(0);
    assert!(flushed >= 2, "a flush for each node that went, before it is anything else: {flushed}");
    rig.with(|space| {
        let now: Vec<bool> = (0..GIBS).map(|gib| folded(&rig.lab, space, gib)).collect();
        assert_eq!(now, [true, false, false, false, false, false, true, false]);
        assert_eq!(rig.lab.count(Counter::TablePages), tables - 2);
        // All else is as it was, to the bit.
        let inside = |va: u64| !(FIRST + GIB..FIRST + 6 * GIB).contains(&va);
        let kept = |all: Vec<Raw>| all.into_iter().filter(|e| !inside(e.1) && e.0 < 3).collect::<Vec<_>>();
        assert_eq!(kept(rig.lab.entries(space)), kept(before));
        // The GiB are read whole, from any page.
        for (gib, slot) in [(0, 0), (0, 511), (0, 77), (6, 30), (6, 31)] {
            assert_eq!(rig.lab.peek(space, Va(at(gib, slot).0 + 5 * KIB4)), Ok(0));
            assert!(matches!(rig.lab.vm.query(space, at(gib, slot)), Page::Mapped { zero: true, .. }));
        }
        // What was written is there.
        assert_eq!((rig.lab.peek(space, at(1, 100)), rig.lab.peek(space, at(2, 100))), (Ok(1), Ok(2)));
        assert_eq!(rig.lab.vm.zero_choice(space).faults, 16, "and nothing of it was taken for a first fault");
    });
    rig.check();
    // A write takes tables of its own again.
    rig.with(|space| rig.lab.poke(space, at(0, 200), 3)).unwrap();
    rig.check();
    assert_eq!(rig.with(|space| rig.lab.peek(space, at(0, 200))), Ok(3));
    rig.end();
}

#[test]
fn sixteen_scattered_reads_fold_the_gib_in_which_nothing_but_zeros_is_and_leave_all_others() {
    folds::<X86_64>(X86_RULES);
    folds::<X86_64>(MmuRules { contexts: 64, ..X86_RULES });
    folds::<Aarch64>(ARM_RULES);
}

fn starves<C: Codec>(rules: MmuRules) {
    // The eighth read wants a shared leaf table, the sixteenth a shared middle table. Without it the read is served, and nothing else changes.
    for (reads, needs) in [(7u64, 1usize), (15, 1)] {
        for left in 0..=needs {
            let rig = rig::<C>(rules, 4096);
            if reads == 15 {
                rig.almost();
            } else {
                (0..reads).for_each(|n| _ = rig.read(n, 0));
            }
            let before = rig.with(|space| rig.lab.state(&[space]));
            let mut hogged = rig.lab.hog(Order::BASE);
            rig.lab.give_back(hogged.split_off(hogged.len() - left), Order::BASE);
            rig.read(0, 40);
            rig.lab.give_back(hogged, Order::BASE);
            let after = rig.with(|space| rig.lab.state(&[space]));
            let came: Vec<&Raw> = after.tables[0].iter().filter(|e| !before.tables[0].contains(e)).collect();
            let gone: Vec<&Raw> = before.tables[0].iter().filter(|e| !after.tables[0].contains(e)).collect();
            if left < needs {
                // One promise became zeros.
                assert_eq!((came.len(), gone.len()), (1, 1), "{reads} reads: {came:x?} for {gone:x?}");
                assert_eq!((came[0].1, gone[0].1, gone[0].0), (at(0, 320).0, at(0, 320).0, 2));
                assert_eq!(C::decode(gone[0].2, Level::TWO), Entry::Reserved);
                assert_eq!(
                    (&after.gauges, after.audit.zero_frames, after.audit.free_frames),
                    (&before.gauges, before.audit.zero_frames, before.audit.free_frames)
                );
            } else {
                assert!(came.len() + gone.len() > 2, "{reads} reads: with memory it is done");
                assert_eq!(rig.with(|space| (0..7).all(|gib| folded(&rig.lab, space, gib))), reads == 15);
            }
            rig.check();
            // It goes on from there, memory or not.
            for gib in 0..GIBS {
                assert_eq!(rig.with(|space| rig.lab.peek(space, at(gib, 490))), Ok(0));
            }
            rig.check();
            rig.end();
        }
    }
}

#[test]
fn a_fold_or_an_exchange_that_finds_no_memory_leaves_every_bit_as_it_was_but_the_read_itself() {
    starves::<X86_64>(X86_RULES);
    starves::<Aarch64>(ARM_RULES);
}

type Act<C> = fn(&Rig<C>);

/// A verb that may well be refused here.
fn may<T>(_: T) {}

/// What another CPU does in the middle of it.
fn acts<C: Codec>() -> [(&'static str, Act<C>); 9] {
    [
        ("reads it", |r| r.with(|s| may(r.lab.vm.fault(s, at(0, 2), Access::Read)))),
        ("reads elsewhere", |r| r.with(|s| may(r.lab.vm.fault(s, at(7, 2), Access::Read)))),
        ("writes it", |r| r.with(|s| may(r.lab.vm.fault(s, at(0, 0), Access::Write)))),
        ("writes a promise", |r| r.with(|s| may(r.lab.vm.fault(s, at(0, 9), Access::Write)))),
        ("unmaps some of it", |r| r.with(|s| may(r.lab.vm.unmap(s, at(0, 0), MIB2 + KIB4)))),
        ("protects it", |r| r.with(|s| may(r.lab.vm.protect(s, at(0, 0), MIB2, Rights::READ)))),
        ("forgets it", |r| r.with(|s| may(r.lab.vm.advise(s, at(0, 0), GIB, Advice::DontNeed)))),
        ("maps over it", |r| {
            r.with(|s| may(r.lab.vm.map(s, Placement::Replace(at(0, 0)), GIB, Attrs::anonymous(Rights::READ))));
        }),
        ("forks", |r| {
            r.with(|s| {
                let child = r.lab.vm.fork(s);
                child.into_iter().for_each(|child| r.lab.vm.exit(child));
            });
        }),
    ]
}

/// The fault that folds (or exchanges), with each act at each shared word it touches.
fn meets<C: Codec + 'static>(rules: MmuRules, reads: u64) {
    for (name, act) in acts::<C>() {
        let mut places = 0;
        for place in 0.. {
            let rig = Rc::new(rig::<C>(rules, 4096));
            if reads == 15 {
                // One GiB and some of another, or every place would be gone through nine times.
                (0..15).for_each(|n| _ = rig.read(n / 12, n % 12));
            } else {
                (0..reads).for_each(|n| _ = rig.read(n / 5, n % 5));
            }
            let ran = Rc::new(Cell::new(false));
            let woven = {
                let (rig, ran) = (Rc::clone(&rig), Rc::clone(&ran));
                Box::new(move || {
                    rig.lab.vm.machine().run_on(1);
                    ran.set(unless_it_waits(|| act(&rig)).is_some())
                })
            };
            rig.lab.vm.machine().run_on(0);
            let began = weave(vec![(place, woven as Box<dyn FnOnce()>)], || {
                let body = || rig.with(|s| may(rig.lab.vm.fault(s, at(1, 320), Access::Read)));
                if let Err(why) = catch_unwind(AssertUnwindSafe(body))
                    && ran.get()
                {
                    resume_unwind(why);
                }
            });
            if began == 0 {
                break;
            }
            if !ran.get() {
                // The act waited, holding what it held: that schedule ends there, and nothing is taken apart.
                continue;
            }
            places += 1;
            rig.check();
            for (gib, slot) in [(0, 300), (1, 320), (1, 0)] {
                assert_eq!(
                    rig.with(|s| rig.lab.peek(s, at(gib, slot))),
                    Ok(0),
                    "another CPU {name}, after {place} words"
                );
            }
            Rc::into_inner(rig).expect("the act is over").end();
        }
        assert!(places >= 3, "{name}: {places} places");
    }
}

#[test]
fn an_exchange_or_a_fold_meets_any_other_change_at_any_step_and_everything_adds_up() {
    for reads in [7, 15] {
        meets::<X86_64>(X86_RULES, reads);
        meets::<Aarch64>(ARM_RULES, reads);
    }
}
