//! The oracle on shared tables of zeros: each legal case, and beside it the illegal one that stops
//! the run.

use crate::common::{A, Kernel, MmuKind, RO, RW, Script, broken, load, options, play};
use crate::script;
use vellum::addr::{Level, Order, Pfn, Va, VaRange};
use vellum::entry::{Busy, Codec, Entry, Flags};
use vellum::machine::{Hooks, Machine, Scope, Use, Verb};
use vellum_sim::format::Format;
use vellum_sim::{Check, Cpu, Kind, Rule};
use vellum_testkit::ext::MachineExt;

/// A base frame of zeros.
fn zeros<F: Format>(k: &Kernel<'_, F>) -> Pfn {
    let pfn = k.frame(Use::Zero);
    k.sim.zero_out(pfn, 1);
    pfn
}

/// A table that is to be shared, each entry as given. Nothing names it yet, so its words are
/// written directly.
fn table_of<F: Format>(
    k: &Kernel<'_, F>,
    used: Use,
    level: u8,
    entry: impl Fn(usize) -> Entry,
) -> Pfn {
    let pfn = k.frame(used);
    let words = k.sim.direct(pfn).cast::<u64>();
    for slot in 0..512 {
        let raw = F::Codec::encode(entry(slot), Level(level));
        // SAFETY: a frame of the machine, 512 words long, and nothing names it yet.
        unsafe { words.add(slot).write(raw) };
    }
    pfn
}

fn shared<F: Format>(k: &Kernel<'_, F>) -> (Pfn, Pfn) {
    let zero = zeros(k);
    (table_of(k, Use::ZeroTable, 1, |_| Entry::Leaf(zero, RO)), zero)
}

/// The 2 MiB that `A` begins.
fn all_of_it<F: Format>(k: &Kernel<'_, F>) -> Scope {
    Scope::Range(k.context, VaRange::new(Va(A), 2 << 20, Va(1 << 47)).expect("a range"), Level::ONE)
}

fn on_x86(script: &impl Script) -> Option<Rule> {
    let results = [Check::Incremental, Check::Walk]
        .map(|check| broken(play(MmuKind::X86, options(check), script)));
    assert_eq!(results[0], results[1], "both ways of checking agree");
    results[0]
}

#[test]
fn a_shared_table_is_read_through_by_many_entries_and_written_by_none() {
    let legal = script!(k, cpu, {
        let (table, _) = shared(k);
        for n in 0..4 {
            k.set_at(A + (n << 21), 2, Entry::ZeroTable(table));
            assert!(load(cpu, A + (n << 21) + 4096 * n));
            assert!(cpu.access(A + (n << 21), 8, Kind::Store, false).is_err(), "a write faults");
            assert!(cpu.access(A + (n << 21), 8, Kind::Fetch, false).is_err(), "so does execution");
        }
    });
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        for check in [Check::Incremental, Check::Walk] {
            assert_eq!(broken(play(mmu, options(check), &legal)), None, "{mmu:?}");
        }
    }
    let written = script!(k, cpu, {
        let (table, zero) = shared(k);
        k.set_at(A, 2, Entry::ZeroTable(table));
        load(cpu, A);
        let raw = F::Codec::encode(Entry::Leaf(zero, Flags { accessed: false, ..RO }), Level::ONE);
        k.sim.set_entry(table, 7, raw);
    });
    assert_eq!(on_x86(&written), Some(Rule::Zero));
}

#[test]
fn a_shared_table_that_is_not_zeros_read_only_and_accessed_is_refused_when_it_is_first_named() {
    let data = script!(k, _cpu, {
        let (zero, page) = (zeros(k), k.data());
        let table = table_of(k, Use::ZeroTable, 1, |slot| {
            Entry::Leaf(if slot == 300 { page } else { zero }, RO)
        });
        k.set_at(A, 2, Entry::ZeroTable(table));
    });
    let writable = script!(k, _cpu, {
        let zero = zeros(k);
        let table = table_of(k, Use::ZeroTable, 1, |_| Entry::Leaf(zero, RW));
        k.set_at(A, 2, Entry::ZeroTable(table));
    });
    let to_be_marked = script!(k, _cpu, {
        let zero = zeros(k);
        let table =
            table_of(k, Use::ZeroTable, 1, |_| Entry::Leaf(zero, Flags { accessed: false, ..RO }));
        k.set_at(A, 2, Entry::ZeroTable(table));
    });
    let executable = script!(k, _cpu, {
        let zero = zeros(k);
        let table =
            table_of(k, Use::ZeroTable, 1, |_| Entry::Leaf(zero, Flags { exec: true, ..RO }));
        k.set_at(A, 2, Entry::ZeroTable(table));
    });
    let holes = script!(k, _cpu, {
        let zero = zeros(k);
        let hole = |slot| if slot == 511 { Entry::Empty } else { Entry::Leaf(zero, RO) };
        let table = table_of(k, Use::ZeroTable, 1, hole);
        k.set_at(A, 2, Entry::ZeroTable(table));
    });
    let private_below = script!(k, _cpu, {
        let zero = zeros(k);
        let private = table_of(k, Use::Table, 1, |_| Entry::Leaf(zero, RO));
        let middle = table_of(k, Use::ZeroTable, 2, |_| Entry::ZeroTable(private));
        k.set_at(A, 3, Entry::ZeroTable(middle));
    });
    assert_eq!(on_x86(&data), Some(Rule::Zero));
    assert_eq!(on_x86(&writable), Some(Rule::Zero));
    assert_eq!(on_x86(&to_be_marked), Some(Rule::Zero));
    assert_eq!(on_x86(&executable), Some(Rule::Zero));
    assert_eq!(on_x86(&holes), Some(Rule::Zero));
    assert_eq!(on_x86(&private_below), Some(Rule::Zero));
}

#[test]
fn an_ordinary_table_still_hangs_in_one_place_only() {
    let twice = script!(k, _cpu, {
        let zero = zeros(k);
        let table = table_of(k, Use::Table, 1, |_| Entry::Leaf(zero, RO));
        k.set_at(A, 2, Entry::ZeroTable(table));
        k.set_at(A + (2 << 20), 2, Entry::ZeroTable(table));
    });
    assert_eq!(on_x86(&twice), Some(Rule::FrameState));
}

/// A private table takes the shared one's place, 511 entries equal, that of `A + 5 pages` absent;
/// then a flush, then a page there or none.
struct Unshares(fn(&Scopes) -> Option<Scope>, bool);
struct Scopes {
    page: Scope,
    other: Scope,
    all: Scope,
}

impl Script for Unshares {
    fn play<F: Format>(&self, k: &Kernel<'_, F>, cpu: &Cpu<'_, F>) {
        let (table, zero) = shared(k);
        k.set_at(A, 2, Entry::ZeroTable(table));
        let at = A + 5 * 4096;
        for va in [A, at, A + 511 * 4096] {
            load(cpu, va);
            cpu.script(1, |c| load(c, va));
        }
        k.verb(Verb::Fault, || {
            let moving = Entry::Busy(Busy::Nothing);
            let private =
                table_of(
                    k,
                    Use::Table,
                    1,
                    |slot| if slot == 5 { moving } else { Entry::Leaf(zero, RO) },
                );
            k.set_at(A, 2, Entry::Table(private));
            let scopes =
                Scopes { page: k.page(at), other: k.page(A + (4 << 20)), all: all_of_it(k) };
            if let Some(scope) = (self.0)(&scopes) {
                k.flush(&[0, 1], scope);
            }
            if self.1 {
                let page = k.data();
                k.set(at, Entry::Leaf(page, RW));
            }
        });
        // The 511 others were not flushed, and need not be.
        for va in [A, at, A + 511 * 4096, A + 8 * 4096] {
            load(cpu, va);
            cpu.script(1, |c| load(c, va));
        }
    }
}

#[test]
fn unsharing_for_one_page_flushes_that_page_and_the_walk_caches_with_it() {
    for check in [Check::Incremental, Check::Walk] {
        for mmu in [MmuKind::X86, MmuKind::Pcid] {
            for (comes, rule) in [(true, Rule::TwoPages), (false, Rule::OpenObligation)] {
                let play = |flush| broken(play(mmu, options(check), &Unshares(flush, comes)));
                assert_eq!(play(|s| Some(s.page)), None, "{mmu:?}");
                assert_eq!(play(|s| Some(s.all)), None, "{mmu:?}");
                assert_eq!(play(|s| Some(s.other)), Some(rule), "{mmu:?}");
                assert_eq!(play(|_| None), Some(rule), "{mmu:?}");
            }
        }
        // Where break-before-make is the rule a live entry does not change its table at all.
        assert_eq!(
            broken(play(MmuKind::Arm, options(check), &Unshares(|s| Some(s.all), true))),
            Some(Rule::Size)
        );
    }
}

/// The whole 2 MiB give way to a huge leaf after `flush`.
struct GivesWay(fn(&Scopes) -> Scope);

impl Script for GivesWay {
    fn play<F: Format>(&self, k: &Kernel<'_, F>, cpu: &Cpu<'_, F>) {
        let (table, _) = shared(k);
        k.set_at(A, 2, Entry::ZeroTable(table));
        load(cpu, A);
        cpu.script(1, |c| load(c, A + 77 * 4096));
        k.verb(Verb::Fault, || {
            k.set_at(A, 2, Entry::Busy(Busy::Nothing));
            let scopes =
                Scopes { page: k.page(A), other: k.page(A + (4 << 20)), all: all_of_it(k) };
            k.flush(&[0, 1], (self.0)(&scopes));
            k.map_huge(A, RW);
        });
        load(cpu, A);
        cpu.script(1, |c| load(c, A + 77 * 4096));
    }
}

#[test]
fn giving_way_to_a_huge_page_flushes_all_of_it() {
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        for check in [Check::Incremental, Check::Walk] {
            let play = |flush| broken(play(mmu, options(check), &GivesWay(flush)));
            assert_eq!(play(|s| s.all), None, "{mmu:?}");
            let rule = if mmu == MmuKind::Arm { Rule::BreakBeforeMake } else { Rule::TwoPages };
            assert_eq!(play(|s| s.page), Some(rule), "{mmu:?}");
        }
    }
}

/// Zeros take the place of zeros while the other CPU may use the old ones: a huge page of zeros, a
/// private table of them (in which one page may be `data`), a shared table, that table again after
/// it was absent, the huge page again.
struct OtherZeros(bool);

impl Script for OtherZeros {
    fn play<F: Format>(&self, k: &Kernel<'_, F>, cpu: &Cpu<'_, F>) {
        let huge = k.block(Order::HUGE, Use::Zero);
        // SAFETY: memory of the simulator; who may touch it is what is tested.
        unsafe { k.sim.clear(huge, 512) };
        let ((table, zero), data) = (shared(k), k.data());
        let entry = |slot| Entry::Leaf(if self.0 && slot == 300 { data } else { zero }, RO);
        // SAFETY: memory of the simulator; who may touch it is what is tested.
        unsafe { k.sim.write(data, 0, &[1]) };
        k.set_at(A, 2, Entry::Leaf(huge, RO));
        cpu.script(1, |c| load(c, A));
        k.verb(Verb::Fault, || {
            let private = table_of(k, Use::Table, 1, entry);
            for entry in [
                Entry::Table(private),
                Entry::ZeroTable(table),
                Entry::Busy(Busy::Nothing),
                Entry::ZeroTable(table),
                Entry::Leaf(huge, RO),
            ] {
                k.set_at(A, 2, entry);
                cpu.script(1, |c| load(c, A));
            }
            k.flush(&[0, 1], all_of_it(k));
        });
    }
}

#[test]
fn oracle_3_zeros_may_take_the_place_of_zeros_before_the_flush_and_nothing_else_may() {
    assert_eq!(on_x86(&OtherZeros(false)), None);
    assert_eq!(on_x86(&OtherZeros(true)), Some(Rule::TwoPages));
}

#[test]
fn oracle_3_a_shared_table_that_comes_before_what_was_there_is_flushed_stops() {
    struct It(bool);
    impl Script for It {
        fn play<F: Format>(&self, k: &Kernel<'_, F>, cpu: &Cpu<'_, F>) {
            let (table, _) = shared(k);
            let page = k.map(A + 7 * 4096, RO);
            // SAFETY: memory of the simulator; who may touch it is what is tested.
            unsafe { k.sim.write(page, 0, &[1]) };
            cpu.script(1, |c| load(c, A + 7 * 4096));
            k.verb(Verb::Advise, || {
                let private = k.node(A, 1);
                k.set_at(A, 2, Entry::Detached(private));
                if self.0 {
                    k.flush(&[0, 1], all_of_it(k));
                }
                k.set_at(A, 2, Entry::ZeroTable(table));
            });
        }
    }
    for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
        for check in [Check::Incremental, Check::Walk] {
            assert_eq!(broken(play(mmu, options(check), &It(true))), None, "{mmu:?}");
            let rule = if mmu == MmuKind::Arm { Rule::BreakBeforeMake } else { Rule::TwoPages };
            assert_eq!(broken(play(mmu, options(check), &It(false))), Some(rule), "{mmu:?}");
        }
    }
}

#[test]
fn a_shared_table_is_still_shared_when_one_of_its_entries_has_gone() {
    let legal = script!(k, cpu, {
        let (table, _) = shared(k);
        k.set_at(A, 2, Entry::ZeroTable(table));
        k.set_at(A + (2 << 20), 2, Entry::ZeroTable(table));
        load(cpu, A);
        k.verb(Verb::Unmap, || {
            k.set_at(A, 2, Entry::Empty);
            k.flush(&[0, 1], all_of_it(k));
        });
        assert!(load(cpu, A + (2 << 20)));
        k.sim.begin(Verb::Unmap);
        k.sim.end(Verb::Unmap);
    });
    assert_eq!(on_x86(&legal), None);
}
