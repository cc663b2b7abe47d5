//! The law of `docs/oracle.md`, line 3, where an entry comes to name another page: which CPUs may
//! still use the old one.

use crate::common::*;
use crate::script;
use vellum::addr::Pfn;
use vellum::entry::{Busy, Entry};
use vellum::machine::{Machine, Root, Use, Verb};
use vellum_sim::Rule;

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
                k.set(A, Entry::Busy(Busy::Page(old)));
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
            k.set(A, Entry::Busy(Busy::Page(old)));
            k.flush_here(A);
            k.set(A, Entry::Leaf(copy(k, old), RW));
        });
    });
    stops(&INTEL, Rule::TwoPages, &live);
    stops(&INTEL, Rule::TwoPages, &absent_between);
    stops(&[MmuKind::Arm], Rule::BreakBeforeMake, &live);
    stops(&[MmuKind::Arm], Rule::BreakBeforeMake, &absent_between);
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
                k.set(A, Entry::Busy(Busy::Page(old)));
            });
            k.set(A, Entry::Leaf(copy(k, old), RW));
        }),
    );
}

/// A read-only page is exchanged for a read-only copy while CPU 1 holds the old one; `then` comes
/// before the flush, or after it.
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
    stops(&[MmuKind::Arm], Rule::BreakBeforeMake, &other);
}

#[test]
fn oracle_3_a_copy_of_a_page_that_could_just_now_be_written_waits_for_the_flush() {
    struct It(bool);
    impl Script for It {
        fn play<F: vellum_sim::format::Format>(
            &self,
            k: &Kernel<'_, F>,
            cpu: &vellum_sim::Cpu<'_, F>,
        ) {
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

/// Another CPU copies a page while the line that was stored last is at hand for the next store.
#[test]
fn oracle_3_a_store_behind_a_copy_makes_its_page_another() {
    struct It(bool);
    impl Script for It {
        fn play<F: vellum_sim::format::Format>(
            &self,
            k: &Kernel<'_, F>,
            cpu: &vellum_sim::Cpu<'_, F>,
        ) {
            let old = k.map(A, RW);
            (0..2).for_each(|_| assert!(store(cpu, A)));
            let new = cpu.script(1, |_| copy(k, old));
            if self.0 {
                assert!(store(cpu, A));
            }
            k.verb(Verb::Fork, || {
                k.set(A, Entry::Leaf(old, RO));
                k.flush(&[0, 1], k.page(A));
                k.set(A, Entry::Leaf(new, RO));
                k.flush(&[0, 1], k.page(A));
            });
        }
    }
    passes(&ALL, &It(false));
    stops(&INTEL, Rule::TwoPages, &It(true));
    stops(&[MmuKind::Arm], Rule::BreakBeforeMake, &It(true));
}

#[test]
fn oracle_3_the_same_page_may_come_back_with_other_rights_before_the_flush() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            cpu.script(1, |c| assert!(store(c, A)));
            k.verb(Verb::Protect, || {
                k.set(A, Entry::Busy(Busy::Page(pfn)));
                k.set(A, Entry::Leaf(pfn, RO));
                k.set(A, Entry::Leaf(pfn, RW));
                cpu.script(1, |c| assert!(store(c, A)));
                k.flush(&[0, 1], k.page(A));
            });
        }),
    );
}

/// CPU 1 comes back to a context it kept while a page is being exchanged there: absent still or
/// not, with a flush or without.
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
            k.set(A, Entry::Busy(Busy::Page(old)));
            k.flush_here(A);
            let new = Entry::Leaf(copy(k, old), RW);
            if self.made {
                k.set(A, new);
            }
            // SAFETY: memory of the simulator; who may touch it is what is tested.
            cpu.script(1, |_| unsafe {
                k.sim.load_root(Some(Root { table: k.root, asid: k.context, flush: self.flush }))
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
    stops(&[MmuKind::Pcid], Rule::TwoPages, &Woken { made: true, flush: false });
}
