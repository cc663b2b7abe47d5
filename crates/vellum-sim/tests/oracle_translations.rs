//! The law of `docs/oracle.md`, lines 1 to 3: each legal case passes and its illegal neighbour stops the run, under
//! incremental and under walk checking.

mod common;
use common::*;
use vellum::addr::{Pfn, Va, VaRange};
use vellum::entry::Entry;
use vellum::machine::{Machine, Root, Scope, Use, Verb};
use vellum_sim::{Bug, Kind, Program, Rule};

const ALL: [Habits; 3] = [Habits::X86, Habits::Pcid, Habits::Arm];
/// Where a live entry may change its frame at all.
const INTEL: [Habits; 2] = [Habits::X86, Habits::Pcid];

fn passes<S: Script>(habits: &[Habits], s: &S) {
    for &h in habits {
        for o in both() {
            if let Err(stop) = play(h, o, s) {
                panic!("{h:?} {:?}: {stop}", o.check);
            }
        }
    }
}

fn stops<S: Script>(habits: &[Habits], rule: Rule, s: &S) {
    for &h in habits {
        for o in both() {
            assert_eq!(broken(play(h, o, s)), Some(rule), "{h:?} {:?}", o.check);
        }
    }
}

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
        &[Habits::X86, Habits::Pcid],
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
        &[Habits::Arm],
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
        &[Habits::Arm],
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
                cpu.script(1, |c| assert!(!store(c, A), "the locked update finds the page read-only"));
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
                k.set(A, Entry::Moving(Pfn(1)));
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
            fn play<F: vellum_sim::format::Format>(&self, k: &Kernel<'_, F>, cpu: &vellum_sim::Cpu<'_, F>) {
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

/// A page that is mapped nowhere yet and holds what `old` holds.
fn copy<F: vellum_sim::format::Format>(k: &Kernel<'_, F>, old: Pfn) -> Pfn {
    let new = k.frame(Use::Data);
    // SAFETY: memory of the simulator; who may touch it is what is tested.
    unsafe { k.sim.copy(new, old, 1) };
    new
}

#[test]
fn oracle_3_a_cpu_that_is_alone_in_a_space_may_exchange_a_page_before_it_flushes_itself() {
    passes(
        &INTEL,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| {
                assert!(load(c, A));
                // SAFETY: memory of the simulator; who may touch it is what is tested.
                unsafe { k.sim.load_root(None) };
            });
            assert!(load(cpu, A));
            k.verb(Verb::Fault, || {
                k.set(A, Entry::Leaf(copy(k, old), RW));
                k.flush_here(A);
            });
            assert!(store(cpu, A));
        }),
    );
}

#[test]
fn oracle_3_a_page_that_can_be_written_comes_when_the_old_one_is_flushed_everywhere() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            cpu.script(1, |c| assert!(load(c, A)));
            k.verb(Verb::Fault, || {
                k.set(A, Entry::Moving(old));
                cpu.script(1, |c| assert!(load(c, A), "the old page, which nobody can write to"));
                k.flush(&[0, 1], k.page(A));
                k.set(A, Entry::Leaf(copy(k, old), RW));
            });
            cpu.script(1, |c| assert!(store(c, A)));
        }),
    );
}

#[test]
fn oracle_3_a_page_that_can_be_written_before_the_old_one_is_flushed_stops() {
    let live = script!(k, _cpu, {
        let old = k.map(A, RO);
        // CPU 1 has never touched it. It could have speculated.
        k.verb(Verb::Fault, || {
            k.set(A, Entry::Leaf(copy(k, old), RW));
            k.flush(&[0, 1], k.page(A));
        });
    });
    let absent_between = script!(k, _cpu, {
        let old = k.map(A, RO);
        k.verb(Verb::Fault, || {
            k.set(A, Entry::Moving(old));
            k.flush_here(A);
            k.set(A, Entry::Leaf(copy(k, old), RW));
        });
    });
    stops(&INTEL, Rule::TwoPages, &live);
    stops(&INTEL, Rule::TwoPages, &absent_between);
    stops(&[Habits::Arm], Rule::BreakBeforeMake, &live);
    stops(&[Habits::Arm], Rule::BreakBeforeMake, &absent_between);
}

#[test]
fn oracle_3_a_cpu_that_does_not_flush_itself_because_the_verb_is_another_cpus_counts() {
    stops(
        &INTEL,
        Rule::TwoPages,
        &script!(k, cpu, {
            let old = k.map(A, RO);
            assert!(load(cpu, A));
            cpu.script(1, |_| {
                // SAFETY: memory of the simulator; who may touch it is what is tested.
                unsafe { k.sim.load_root(None) };
                k.set(A, Entry::Moving(old));
            });
            k.set(A, Entry::Leaf(copy(k, old), RW));
        }),
    );
}

/// A read-only page is exchanged for a read-only copy while CPU 1 holds the old one; `then` comes before the flush, or after it.
struct Exchange(fn(&Exchanged), bool);

/// What a script may do to an exchanged page.
struct Exchanged<'k> {
    write: &'k dyn Fn(),
    allow_writes: &'k dyn Fn(),
    use_old: &'k dyn Fn(),
}

impl Script for Exchange {
    fn play<F: vellum_sim::format::Format>(&self, k: &Kernel<'_, F>, cpu: &vellum_sim::Cpu<'_, F>) {
        let old = k.map(A, RO);
        // SAFETY: memory of the simulator; who may touch it is what is tested.
        unsafe { k.sim.write(old, 0, &[1]) };
        cpu.script(1, |c| assert!(load(c, A)));
        k.verb(Verb::Advise, || {
            let new = copy(k, old);
            k.set(A, Entry::Leaf(new, RO));
            let then = || {
                self.0(&Exchanged {
                    // SAFETY: memory of the simulator; who may touch it is what is tested.
                    write: &|| unsafe { k.sim.write(new, 0, &[2]) },
                    allow_writes: &|| k.set(A, Entry::Leaf(new, RW)),
                    use_old: &|| cpu.script(1, |c| assert!(load(c, A))),
                });
            };
            if self.1 {
                then();
            }
            k.flush(&[0, 1], k.page(A));
            if !self.1 {
                then();
            }
        });
    }
}

#[test]
fn oracle_3_two_pages_that_can_only_be_read_and_hold_equal_bytes_may_be_in_use_until_the_flush() {
    passes(&ALL, &Exchange(|x| (x.use_old)(), true));
    passes(&ALL, &Exchange(|x| (x.allow_writes)(), false));
    stops(&ALL, Rule::TwoPages, &Exchange(|x| (x.allow_writes)(), true));
}

#[test]
fn oracle_3_a_write_by_the_kernel_to_one_of_two_pages_shows_when_the_other_is_used() {
    let written = |x: &Exchanged<'_>| {
        (x.write)();
        (x.use_old)();
    };
    passes(&ALL, &Exchange(written, false));
    stops(&ALL, Rule::TwoPages, &Exchange(written, true));
}

#[test]
fn oracle_3_a_page_with_other_bytes_before_the_old_one_is_flushed_stops() {
    let other = script!(k, _cpu, {
        let old = k.map(A, RO);
        k.verb(Verb::Advise, || {
            let new = copy(k, old);
            // SAFETY: memory of the simulator; who may touch it is what is tested.
            unsafe { k.sim.write(new, 0, &[1]) };
            k.set(A, Entry::Leaf(new, RO));
            k.flush(&[0, 1], k.page(A));
        });
    });
    stops(&INTEL, Rule::TwoPages, &other);
    stops(&[Habits::Arm], Rule::BreakBeforeMake, &other);
}

#[test]
fn oracle_3_a_copy_of_a_page_that_could_just_now_be_written_waits_for_the_flush() {
    struct It(bool);
    impl Script for It {
        fn play<F: vellum_sim::format::Format>(&self, k: &Kernel<'_, F>, cpu: &vellum_sim::Cpu<'_, F>) {
            let old = k.map(A, RW);
            cpu.script(1, |c| assert!(store(c, A)));
            k.verb(Verb::Fork, || {
                k.set(A, Entry::Leaf(old, RO));
                if self.0 {
                    k.flush(&[0, 1], k.page(A));
                }
                k.set(A, Entry::Leaf(copy(k, old), RO));
                k.flush(&[0, 1], k.page(A));
            });
        }
    }
    passes(&ALL, &It(true));
    stops(&ALL, Rule::TwoPages, &It(false));
}

#[test]
fn oracle_3_the_same_page_may_come_back_with_other_rights_before_the_flush() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            cpu.script(1, |c| assert!(store(c, A)));
            k.verb(Verb::Protect, || {
                k.set(A, Entry::Moving(pfn));
                k.set(A, Entry::Leaf(pfn, RO));
                k.set(A, Entry::Leaf(pfn, RW));
                cpu.script(1, |c| assert!(store(c, A)));
                k.flush(&[0, 1], k.page(A));
            });
        }),
    );
}

/// CPU 1 comes back to a context it kept while a page is being exchanged there: absent still or not, with a flush or without.
struct Woken {
    made: bool,
    flush: bool,
}

impl Script for Woken {
    fn play<F: vellum_sim::format::Format>(&self, k: &Kernel<'_, F>, cpu: &vellum_sim::Cpu<'_, F>) {
        let old = k.map(A, RO);
        cpu.script(1, |c| {
            assert!(load(c, A));
            // SAFETY: memory of the simulator; who may touch it is what is tested.
            unsafe { k.sim.load_root(None) };
        });
        k.verb(Verb::Fault, || {
            k.set(A, Entry::Moving(old));
            k.flush_here(A);
            let new = Entry::Leaf(copy(k, old), RW);
            if self.made {
                k.set(A, new);
            }
            // SAFETY: memory of the simulator; who may touch it is what is tested.
            cpu.script(1, |_| unsafe {
                k.sim.load_root(Some(Root { table: k.root, context: k.context, flush: self.flush }))
            });
            k.flush(&[0, 1], k.page(A));
            k.set(A, new);
        });
        cpu.script(1, |c| assert!(store(c, A)));
    }
}

#[test]
fn oracle_3_a_cpu_that_wakes_where_another_page_came_meanwhile_has_to_flush_as_it_does() {
    passes(&INTEL, &Woken { made: false, flush: false });
    passes(&INTEL, &Woken { made: true, flush: true });
    stops(&[Habits::Pcid], Rule::TwoPages, &Woken { made: true, flush: false });
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
                k.set(A, Entry::Moving(pfn));
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
            play(h, hunting(seed), &ComeAndGo(None)).unwrap_or_else(|stop| panic!("{h:?} seed {seed}: {stop}"));
        }
    }
}

#[test]
fn oracle_3_a_walk_begun_before_the_invalidation_that_fills_after_it_stops() {
    for h in ALL {
        let found = |seed| broken(play(h, hunting(seed), &ComeAndGo(Some(Bug::LateFill)))) == Some(Rule::Stale);
        assert!((0..20).any(found), "{h:?}: no seed of 20 let a late fill be used");
    }
}
