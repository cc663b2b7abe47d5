//! The law of `docs/oracle.md`, lines 1 to 3: each legal case passes and its illegal neighbour
//! stops the run, under incremental and under walk checking.

use crate::common::*;
use crate::script;
use vellum::addr::{Pfn, Va, VaRange};
use vellum::entry::{Busy, Entry};
use vellum::machine::{Scope, Use, Verb};
use vellum_sim::{Bug, Kind, Program, Rule};

#[test]
fn oracle_0_nothing_changes_and_every_hit_is_legal() {
    passes(
        &ALL,
        &script!(k, cpu, {
            for n in 0..8 {
                k.map(A + n * 4096, RW);
            }
            for n in 0..64 {
                assert!(load(cpu, A + n % 8 * 4096) && store(cpu, A + n % 8 * 4096 + 8));
            }
            assert!(!load(cpu, B), "nothing is mapped there");
        }),
    );
}

#[test]
fn oracle_1_a_cached_read_only_page_that_became_writable_faults_once_on_x86() {
    passes(
        &[MmuKind::X86, MmuKind::Pcid],
        &script!(k, cpu, {
            let pfn = k.map(A, RO);
            assert!(load(cpu, A));
            k.set(A, Entry::Leaf(pfn, RW));
            assert!(load(cpu, A), "fewer rights than the entry gives are legal");
            assert!(!store(cpu, A), "the cached translation forbids it");
            assert!(store(cpu, A), "the fault dropped it");
        }),
    );
}

#[test]
fn oracle_1_the_fault_keeps_the_translation_on_aarch64_until_the_handler_flushes() {
    passes(
        &[MmuKind::Arm],
        &script!(k, cpu, {
            let pfn = k.map(A, RO);
            assert!(load(cpu, A));
            k.set(A, Entry::Leaf(pfn, RW));
            assert!(!store(cpu, A) && !store(cpu, A));
            k.flush_here(A);
            assert!(store(cpu, A));
        }),
    );
}

#[test]
fn oracle_1_two_equal_faults_without_progress_stop_when_the_handler_does_not_flush() {
    stops(
        &[MmuKind::Arm],
        Rule::NoProgress,
        &script!(k, cpu, {
            let pfn = k.map(A, RO);
            assert!(load(cpu, A));
            k.set(A, Entry::Leaf(pfn, RW));
            let _ = Program::new(cpu, |_, _| Ok::<(), ()>(())).store(A, 8, false);
        }),
    );
}

#[test]
fn oracle_1_two_equal_faults_without_progress_stop_when_the_handler_does_nothing() {
    stops(
        &ALL,
        Rule::NoProgress,
        &script!(k, cpu, {
            k.map(A, RO);
            let _ = Program::new(cpu, |_, _| Ok::<(), ()>(())).store(A, 8, false);
        }),
    );
}

#[test]
fn oracle_1_a_second_fault_after_progress_is_legal() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let mut faults = 0;
            let r = Program::new(cpu, |va, _| {
                faults += 1;
                match faults {
                    1 => drop(k.map(va, RO)),
                    _ => {
                        let Entry::Leaf(pfn, _) = k.get(va) else { return Err("lost") };
                        k.set(va, Entry::Leaf(pfn, RW));
                        k.flush_here(va);
                    }
                }
                Ok(())
            })
            .store(A, 8, false);
            assert!(r.is_ok());
            assert_eq!(faults, 2);
        }),
    );
}

#[test]
fn oracle_1_more_rights_than_the_entry_gives_stop() {
    stops(
        &ALL,
        Rule::Stale,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            assert!(store(cpu, A));
            k.sim.plant(Some(Bug::DeafTlb));
            k.set(A, Entry::Leaf(pfn, RO));
            k.flush(&[0, 1], k.page(A));
            store(cpu, A);
        }),
    );
}

#[test]
fn oracle_2_the_accessed_bit_may_be_cleared_without_a_flush() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            assert!(load(cpu, A));
            k.verb(Verb::Advise, || {
                let old = vellum::entry::Flags { accessed: false, ..RW };
                k.set(A, Entry::Leaf(pfn, old));
            });
            assert!(load(cpu, A) && store(cpu, A));
        }),
    );
}

#[test]
fn oracle_2_walks_set_the_accessed_bit_before_they_cache() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let young = vellum::entry::Flags { accessed: false, ..RO };
            k.map(A, young);
            assert!(matches!(k.get(A), Entry::Leaf(_, f) if !f.accessed));
            assert!(load(cpu, A));
            assert!(matches!(k.get(A), Entry::Leaf(_, f) if f.accessed));
        }),
    );
}

#[test]
fn oracle_2_a_clean_page_is_marked_dirty_by_its_first_store_on_each_cpu() {
    passes(
        &ALL,
        &script!(k, cpu, {
            k.map(A, RW_CLEAN);
            assert!(load(cpu, A));
            cpu.script(1, |c| assert!(load(c, A)));
            assert!(matches!(k.get(A), Entry::Leaf(_, f) if !f.dirty));
            assert!(store(cpu, A));
            assert!(matches!(k.get(A), Entry::Leaf(_, f) if f.dirty));
            cpu.script(1, |c| assert!(load(c, A) && store(c, A), "e.D = 0 with w.D = 1 is legal"));
        }),
    );
}

#[test]
fn oracle_2_a_store_through_a_clean_translation_rechecks_the_entry_and_may_fault() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let pfn = k.map(A, RW_CLEAN);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Protect, || {
                k.set(A, Entry::Leaf(pfn, RO));
                cpu.script(1, |c| {
                    assert!(!store(c, A), "the locked update finds the page read-only")
                });
                k.flush(&[0, 1], k.page(A));
            });
        }),
    );
}

#[test]
fn oracle_2_a_cleared_dirty_bit_is_excused_until_the_flush() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            cpu.script(1, |c| assert!(store(c, A)));
            k.verb(Verb::Advise, || {
                k.set(A, Entry::Leaf(pfn, RW_CLEAN));
                cpu.script(1, |c| assert!(store(c, A)));
                k.flush(&[0, 1], k.page(A));
            });
            cpu.script(1, |c| assert!(store(c, A)));
            assert!(matches!(k.get(A), Entry::Leaf(_, f) if f.dirty));
        }),
    );
}

#[test]
fn oracle_2_clearing_the_dirty_bit_without_a_flush_stops_at_the_return() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            assert!(store(cpu, A));
            k.verb(Verb::Advise, || k.set(A, Entry::Leaf(pfn, RW_CLEAN)));
        }),
    );
}

#[test]
fn oracle_2_a_dirty_translation_of_a_clean_page_after_the_flush_stops() {
    stops(
        &ALL,
        Rule::Marks,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            assert!(store(cpu, A));
            k.sim.plant(Some(Bug::DeafTlb));
            k.set(A, Entry::Leaf(pfn, RW_CLEAN));
            k.flush(&[0, 1], k.page(A));
            store(cpu, A);
        }),
    );
}

#[test]
fn oracle_3_a_stale_translation_may_be_used_until_this_cpu_is_flushed() {
    passes(
        &ALL,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| assert!(store(c, A)));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Busy(Busy::Page(Pfn(1))));
                cpu.script(1, |c| assert!(store(c, A) && load(c, A), "the obligation is open"));
                k.flush(&[0, 1], k.page(A));
                cpu.script(1, |c| assert!(!load(c, A)));
            });
        }),
    );
}

#[test]
fn oracle_3_a_stale_translation_after_the_flush_stops() {
    stops(
        &ALL,
        Rule::Stale,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| assert!(store(c, A)));
            k.sim.plant(Some(Bug::DeafTlb));
            k.set(A, Entry::Empty);
            k.flush(&[0, 1], k.page(A));
            cpu.script(1, |c| load(c, A));
        }),
    );
}

#[test]
fn oracle_3_returning_without_the_remote_flush_stops() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            k.map(A, RW);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.flush_here(A);
            });
        }),
    );
}

#[test]
fn oracle_3_a_cpu_that_could_have_speculated_counts_even_if_it_never_touched_the_page() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            k.map(A, RW);
            assert!(load(cpu, A));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.flush_here(A);
            });
        }),
    );
}

#[test]
fn oracle_3_an_invalidation_begun_before_the_store_closes_nothing() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            k.map(A, RW);
            assert!(load(cpu, A));
            k.verb(Verb::Unmap, || {
                k.flush(&[0, 1], Scope::All);
                k.set(A, Entry::Empty);
            });
        }),
    );
}

#[test]
fn oracle_3_an_invalidation_of_another_page_closes_nothing() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            k.map(A, RW);
            k.map(A + 4096, RW);
            assert!(load(cpu, A));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Empty);
                k.set(A + 4096, Entry::Empty);
                k.flush(&[0, 1], k.page(A));
            });
        }),
    );
}

#[test]
fn oracle_3_every_scope_that_covers_the_page_closes() {
    for n in 0..4 {
        struct It(u8);
        impl Script for It {
            fn play<F: vellum_sim::format::Format>(
                &self,
                k: &Kernel<'_, F>,
                cpu: &vellum_sim::Cpu<'_, F>,
            ) {
                let end = Va(1 << 46);
                let range = VaRange::new(Va(A - 4096), 3 * 4096, end).expect("a range");
                let scope = match self.0 {
                    0 => k.page(A),
                    1 => Scope::Range(k.context, range, vellum::addr::Level::ONE),
                    2 => Scope::Space(k.context),
                    _ => Scope::All,
                };
                k.map(A, RW);
                cpu.script(1, |c| assert!(store(c, A)));
                k.verb(Verb::Unmap, || {
                    k.set(A, Entry::Empty);
                    k.flush(&[0, 1], scope);
                });
                cpu.script(1, |c| assert!(!load(c, A)));
            }
        }
        passes(&ALL, &It(n));
    }
}

#[test]
fn oracle_3_restoring_the_entry_does_not_excuse_a_missing_flush_of_what_was_between() {
    stops(
        &ALL,
        Rule::OpenObligation,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            assert!(store(cpu, A));
            k.verb(Verb::Protect, || {
                k.set(A, Entry::Leaf(pfn, RO));
                k.set(A, Entry::Leaf(pfn, RW));
            });
        }),
    );
}

#[test]
fn oracle_3_adding_rights_or_pages_opens_nothing() {
    passes(
        &ALL,
        &script!(k, cpu, {
            k.verb(Verb::Map, || {
                let pfn = k.map(A, RO);
                k.set(A, Entry::Leaf(pfn, RW));
            });
            let fetched = cpu.access(A, 4, Kind::Fetch, false);
            assert!(fetched.is_err(), "the page is not executable");
            assert!(store(cpu, A));
        }),
    );
}

#[test]
fn oracle_3_an_absent_page_is_not_cached_and_needs_no_flush_when_it_appears() {
    passes(
        &ALL,
        &script!(k, cpu, {
            k.map(A + 4096, RW);
            assert!(!load(cpu, A));
            k.verb(Verb::Map, || k.map(A, RW));
            assert!(load(cpu, A));
        }),
    );
}

/// Pages come and go while MMUs speculate on both CPUs.
struct ComeAndGo(Option<Bug>);

impl Script for ComeAndGo {
    fn play<F: vellum_sim::format::Format>(&self, k: &Kernel<'_, F>, cpu: &vellum_sim::Cpu<'_, F>) {
        k.sim.plant(self.0);
        let mut pfn = k.map(A, RW);
        for _ in 0..60 {
            assert!(store(cpu, A));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Busy(Busy::Page(pfn)));
                k.flush(&[0, 1], k.page(A));
                k.set(A, Entry::Empty);
                k.becomes(pfn, Use::Free);
            });
            assert!(!load(cpu, A), "nothing is mapped");
            pfn = k.map(A, RW);
        }
    }
}

#[test]
fn oracle_3_a_walk_begun_before_the_store_may_fill_until_the_invalidation() {
    for h in ALL {
        for seed in seeds(20) {
            play(h, hunting(seed), &ComeAndGo(None))
                .unwrap_or_else(|stop| panic!("{h:?} seed {seed}: {stop}"));
        }
    }
}

#[test]
fn oracle_3_a_walk_begun_before_the_invalidation_that_fills_after_it_stops() {
    for h in ALL {
        let found = |seed| {
            broken(play(h, hunting(seed), &ComeAndGo(Some(Bug::LateFill)))) == Some(Rule::Stale)
        };
        assert!((0..20).any(found), "{h:?}: no seed of 20 let a late fill be used");
    }
}
