//! The law of `docs/oracle.md`, lines 4 to 6 and what follows them: deferral, page sizes, table
//! frames, break-before-make.

use crate::common::*;
use crate::script;
use vellum::addr::{Level, Pfn, Va, VaRange};
use vellum::entry::{Busy, Codec, Entry};
use vellum::machine::{Root, Scope, Use, Verb};
use vellum_sim::{Bug, Rule};
use vellum_testkit::ext::MachineExt;

const CONTEXTS: [MmuKind; 2] = [MmuKind::Pcid, MmuKind::Arm];

/// A page migrates: its copy is mapped instead, the old frame waits for a flush that is put off.
fn migrate<F: vellum_sim::format::Format>(k: &Kernel<'_, F>, old: Pfn) -> Pfn {
    let new = k.frame(Use::Data);
    k.sim.copy_to(new, old);
    k.set(A, Entry::Leaf(new, RO));
    k.becomes(old, Use::Pending);
    new
}

#[test]
fn oracle_4_the_flush_of_a_read_only_clean_page_may_be_deferred_while_its_copy_reads_the_same() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Advise, || migrate(k, old));
            cpu.script(1, |c| assert!(load(c, A), "the old frame is still whole"));
            k.flush(&[0, 1], Scope::Space(k.context));
            k.becomes(old, Use::Free);
            cpu.script(1, |c| assert!(load(c, A)));
        }),
    );
}

#[test]
fn oracle_4_a_writable_page_may_not_be_deferred() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            let old = k.map(A, RW);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.becomes(old, Use::Pending);
            });
        }),
    );
}

#[test]
fn oracle_4_a_deferral_that_does_not_keep_the_frame_pending_stops_at_the_return() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Advise, || {
                let new = k.frame(Use::Data);
                k.sim.copy_to(new, old);
                k.set(A, Entry::Leaf(new, RO));
            });
        }),
    );
}

#[test]
fn oracle_4_freeing_the_old_frame_before_the_deferred_flush_stops() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Advise, || migrate(k, old));
            k.becomes(old, Use::Free);
        }),
    );
}

#[test]
fn oracle_4_a_write_to_the_new_frame_ends_the_deferral() {
    stops(
        &ALL,
        Rule::Deferral,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| assert!(load(c, A)));
            let new = k.verb(Verb::Advise, || migrate(k, old));
            k.sim.poke(new, 0, &[1]);
            cpu.script(1, |c| load(c, A));
        }),
    );
}

#[test]
fn oracle_4_a_hit_where_nothing_readable_is_mapped_is_a_lie() {
    stops(
        &ALL,
        Rule::Deferral,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.becomes(old, Use::Pending);
            });
            cpu.script(1, |c| load(c, A));
        }),
    );
}

#[test]
fn oracle_4_a_copy_with_other_bytes_is_no_excuse() {
    stops(
        &INTEL,
        Rule::TwoPages,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Advise, || {
                let new = k.data();
                k.sim.poke(new, 64, &[7]);
                k.set(A, Entry::Leaf(new, RO));
                k.becomes(old, Use::Pending);
            });
        }),
    );
}

#[test]
fn oracle_4_a_deferral_goes_on_when_the_copy_can_be_written_and_ends_when_it_is() {
    let upgrade = |stored: bool| {
        struct It(bool);
        impl Script for It {
            fn play<F: vellum_sim::format::Format>(
                &self,
                k: &Kernel<'_, F>,
                cpu: &vellum_sim::Cpu<'_, F>,
            ) {
                let old = k.map(A, RO);
                cpu.script(1, |c| assert!(load(c, A)));
                let new = k.verb(Verb::Advise, || {
                    let new = migrate(k, old);
                    k.flush_here(A);
                    new
                });
                k.verb(Verb::Protect, || k.set(A, Entry::Leaf(new, RW)));
                cpu.script(1, |c| assert!(load(c, A), "both frames read the same"));
                assert!(!self.0 || store(cpu, A));
                cpu.script(1, |c| load(c, A));
            }
        }
        It(stored)
    };
    passes(&ALL, &upgrade(false));
    stops(&ALL, Rule::Deferral, &upgrade(true));
}

/// A CPU leaves the space while a deferral stands, and comes back without a flush.
struct Sleeps(bool);

impl Script for Sleeps {
    fn play<F: vellum_sim::format::Format>(&self, k: &Kernel<'_, F>, cpu: &vellum_sim::Cpu<'_, F>) {
        let old = k.map(A, RO);
        cpu.script(1, |c| assert!(load(c, A)));
        let new = k.verb(Verb::Advise, || migrate(k, old));
        cpu.script(1, |_| k.sim.enter_root(None));
        // Another verb returns meanwhile.
        k.verb(Verb::Map, || k.map(B, RO));
        if self.0 {
            k.sim.poke(new, 0, &[1]);
        }
        cpu.script(1, |c| {
            k.load();
            assert!(load(c, A));
        });
        k.flush(&[0, 1], Scope::Space(k.context));
        k.becomes(old, Use::Free);
        cpu.script(1, |c| assert!(load(c, A)));
    }
}

#[test]
fn oracle_4_a_cpu_goes_on_after_a_sleep_with_what_a_deferral_left_it() {
    passes(&CONTEXTS, &Sleeps(false));
    stops(&CONTEXTS, Rule::Deferral, &Sleeps(true));
}

/// A huge page at `A` and the table of 512 pages that maps the same frames.
fn huge_and_table<F: vellum_sim::format::Format>(k: &Kernel<'_, F>) -> (Pfn, Pfn) {
    let huge = k.map_huge(A, RW);
    let table = k.table();
    for slot in 0..512 {
        k.sim.set_entry(
            table,
            slot,
            F::Codec::encode(Entry::Leaf(huge.add(slot as u64), RW), Level(1)),
        );
    }
    (huge, table)
}

#[test]
fn oracle_5_the_old_size_may_be_used_on_x86_until_the_flush() {
    passes(
        &INTEL,
        &script!(k, cpu, {
            let (_, table) = huge_and_table(k);
            cpu.script(1, |c| assert!(store(c, A + 0x5000)));
            k.verb(Verb::Protect, || {
                k.set_at(A, 2, Entry::Table(table));
                cpu.script(1, |c| assert!(store(c, A + 0x5000)));
                k.flush(
                    &[0, 1],
                    Scope::Range(
                        k.context,
                        VaRange::new(Va(A), 2 << 20, Va(1 << 47)).expect("a range"),
                        Level(1),
                    ),
                );
            });
            cpu.script(1, |c| assert!(store(c, A + 0x5000)));
        }),
    );
}

#[test]
fn oracle_5_the_old_size_after_the_flush_stops() {
    stops(
        &INTEL,
        Rule::Stale,
        &script!(k, cpu, {
            let (_, table) = huge_and_table(k);
            cpu.script(1, |c| assert!(store(c, A)));
            k.sim.plant(Some(Bug::DeafTlb));
            k.set_at(A, 2, Entry::Table(table));
            k.flush(&[0, 1], Scope::Space(k.context));
            cpu.script(1, |c| store(c, A));
        }),
    );
}

#[test]
fn oracle_5_a_live_size_change_stops_on_aarch64() {
    stops(
        &[MmuKind::Arm],
        Rule::Size,
        &script!(k, cpu, {
            let (_, table) = huge_and_table(k);
            assert!(store(cpu, A));
            k.set_at(A, 2, Entry::Table(table));
        }),
    );
}

#[test]
fn oracle_5_a_size_change_with_break_before_make_is_legal_everywhere() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let (huge, table) = huge_and_table(k);
            cpu.script(1, |c| assert!(store(c, A)));
            k.verb(Verb::Protect, || {
                k.set_at(A, 2, Entry::Busy(Busy::Page(huge)));
                k.flush(&[0, 1], k.page(A));
                k.set_at(A, 2, Entry::Table(table));
            });
            cpu.script(1, |c| assert!(store(c, A) && store(c, A + 4096)));
        }),
    );
}

#[test]
fn oracle_5_one_flush_of_any_address_in_a_huge_page_covers_all_of_it() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let (huge, _) = huge_and_table(k);
            cpu.script(1, |c| assert!(store(c, A) && store(c, A + 0x7000)));
            k.verb(Verb::Unmap, || {
                k.set_at(A, 2, Entry::Busy(Busy::Page(huge)));
                k.flush(&[0, 1], k.page(A + 0x3000));
            });
            cpu.script(1, |c| assert!(!load(c, A) && !load(c, A + 0x7000)));
        }),
    );
}

#[test]
fn oracle_5_two_overlapping_sizes_in_one_tlb_stop() {
    // A processor that changed its mind without a flush can come to hold both; speculation gets
    // there for some seeds.
    let both_sizes = script!(k, cpu, {
        let (_, table) = huge_and_table(k);
        assert!(load(cpu, A));
        k.set_at(A, 2, Entry::Table(table));
        for n in 0..2000 {
            load(cpu, A + n % 512 * 4096);
        }
    });
    let found = (0..20)
        .filter(|&seed| broken(play(MmuKind::X86, hunting(seed), &both_sizes)) == Some(Rule::Size))
        .count();
    assert!(found > 0, "no seed of 20 made one TLB hold both sizes");
}

#[test]
fn oracle_6_an_inactive_context_may_be_stale_until_it_is_used() {
    passes(
        &CONTEXTS,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| {
                assert!(load(c, A));
                k.sim.enter_root(None);
            });
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.flush_here(A);
            });
            cpu.script(1, |c| {
                k.sim.enter_root(Some(Root { table: k.root, asid: k.context, flush: true }));
                assert!(!load(c, A));
            });
        }),
    );
}

#[test]
fn oracle_6_using_an_inactive_context_that_missed_a_flush_stops() {
    stops(
        &[MmuKind::Pcid],
        Rule::Stale,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| {
                assert!(load(c, A));
                k.sim.enter_root(None);
            });
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.flush_here(A);
            });
            cpu.script(1, |c| {
                k.load();
                load(c, A);
            });
        }),
    );
}

#[test]
fn oracle_6_a_context_number_that_still_belongs_to_another_tree_stops_when_used() {
    stops(
        &CONTEXTS,
        Rule::Stale,
        &script!(k, cpu, {
            k.map(A, RW);
            assert!(load(cpu, A));
            let next = std::cell::Cell::new(4000);
            let other = Kernel::new(k.sim, &next, 1);
            other.map(A + 4096, RW);
            other.load();
            load(cpu, A);
        }),
    );
}

#[test]
fn oracle_6_without_contexts_a_root_load_flushes() {
    passes(
        &[MmuKind::X86],
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| {
                assert!(load(c, A));
                k.sim.enter_root(None);
            });
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.flush_here(A);
            });
            cpu.script(1, |c| {
                k.load();
                assert!(!load(c, A));
            });
        }),
    );
}

/// Cuts the level-1 table of `A` off.
fn cut<F: vellum_sim::format::Format>(k: &Kernel<'_, F>) -> Pfn {
    let table = k.node(A, 1);
    k.set(A, Entry::Empty);
    k.set_at(A, 2, Entry::Detached(table));
    table
}

#[test]
fn oracle_6_a_table_may_be_freed_after_a_flush_that_touches_its_span() {
    passes(
        &ALL,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Unmap, || {
                let table = cut(k);
                k.flush(&[0, 1], k.page(A));
                k.becomes(table, Use::Free);
            });
            cpu.script(1, |c| assert!(!load(c, A)));
        }),
    );
}

#[test]
fn oracle_6_freeing_a_table_that_a_walk_cache_reaches_stops() {
    stops(
        &ALL,
        Rule::FreedTable,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Unmap, || {
                let table = cut(k);
                k.flush_here(A);
                k.becomes(table, Use::Free);
            });
        }),
    );
}

#[test]
fn oracle_6_an_inactive_context_keeps_a_cut_table_from_being_freed() {
    stops(
        &[MmuKind::Pcid],
        Rule::FreedTable,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |_| k.sim.enter_root(None));
            k.verb(Verb::Unmap, || {
                let table = cut(k);
                k.flush_here(A);
                k.becomes(table, Use::Free);
            });
        }),
    );
    passes(
        &CONTEXTS,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |_| k.sim.enter_root(None));
            k.verb(Verb::Unmap, || {
                let table = cut(k);
                k.flush(&[0, 1], Scope::Space(k.context));
                k.becomes(table, Use::Free);
            });
        }),
    );
}

#[test]
fn oracle_6_freeing_a_loaded_root_stops() {
    stops(
        &ALL,
        Rule::FreedTable,
        &script!(k, _cpu, {
            k.becomes(k.root, Use::Free);
        }),
    );
}

#[test]
fn oracle_6_freeing_a_linked_table_stops() {
    stops(
        &ALL,
        Rule::FreedTable,
        &script!(k, _cpu, {
            let table = k.node(A, 1);
            k.becomes(table, Use::Free);
        }),
    );
}

#[test]
fn oracle_6_freeing_them_after_they_were_pending_stops_as_well() {
    stops(
        &ALL,
        Rule::FreedTable,
        &script!(k, _cpu, {
            k.becomes(k.root, Use::Pending);
            k.becomes(k.root, Use::Free);
        }),
    );
    stops(
        &ALL,
        Rule::FreedTable,
        &script!(k, _cpu, {
            let table = k.node(A, 1);
            k.becomes(table, Use::Pending);
            k.becomes(table, Use::Free);
        }),
    );
}

#[test]
fn oracle_6_a_cut_with_live_leaves_needs_their_flush_too() {
    stops(
        &INTEL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            k.map(A, RW);
            k.map(A + 4096, RW);
            cpu.script(1, |c| assert!(load(c, A + 4096)));
            k.verb(Verb::Unmap, || {
                let table = k.node(A, 1);
                k.set_at(A, 2, Entry::Detached(table));
                k.flush(&[0, 1], k.page(A));
            });
        }),
    );
}

#[test]
fn break_before_make_a_live_change_of_address_stops_on_aarch64_and_not_on_x86() {
    let change = script!(k, cpu, {
        // SAFETY: memory of the simulator; who may touch it is what is tested.
        cpu.script(1, |_| unsafe { vellum::machine::Machine::load_root(k.sim, None) });
        k.map(A, RW);
        assert!(store(cpu, A));
        k.verb(Verb::Fault, || {
            let new = k.data();
            k.set(A, Entry::Leaf(new, RW));
            k.flush(&[0, 1], k.page(A));
        });
        assert!(store(cpu, A));
    });
    stops(&[MmuKind::Arm], Rule::BreakBeforeMake, &change);
    passes(&INTEL, &change);
}

#[test]
fn break_before_make_read_only_to_an_equal_read_only_frame_is_legal_on_aarch64() {
    passes(
        &[MmuKind::Arm],
        &script!(k, cpu, {
            let old = k.map(A, RO);
            assert!(load(cpu, A));
            k.verb(Verb::Advise, || {
                let new = k.frame(Use::Data);
                k.sim.copy_to(new, old);
                k.set(A, Entry::Leaf(new, RO));
                k.flush(&[0, 1], k.page(A));
            });
            assert!(load(cpu, A));
        }),
    );
}

#[test]
fn break_before_make_making_before_the_flush_stops_on_aarch64() {
    stops(
        &[MmuKind::Arm],
        Rule::BreakBeforeMake,
        &script!(k, cpu, {
            let old = k.map(A, RW);
            assert!(store(cpu, A));
            k.verb(Verb::Fault, || {
                k.set(A, Entry::Busy(Busy::Page(old)));
                let new = k.data();
                k.set(A, Entry::Leaf(new, RW));
            });
        }),
    );
}

#[test]
fn a_reserved_bit_in_an_entry_stops() {
    stops(
        &INTEL,
        Rule::Malformed,
        &script!(k, _cpu, {
            let table = k.node(A, 2);
            k.sim.set_entry(table, 7, 0x20_1000 | 1 << 13 | 0x87);
        }),
    );
}
