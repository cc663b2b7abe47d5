//! What the oracle checks beside translations: each frame in one state, no old contents for a new
//! owner, zeros that stay zero, shared pages that nobody can write. And the planted bugs, each with
//! a run that passes without it.

use crate::common::*;
use crate::script;
use vellum::addr::{Order, Pfn};
use vellum::entry::{Busy, Entry};
use vellum::machine::{Use, Verb};
use vellum_sim::{Bug, Check, Rule};
use vellum_testkit::ext::MachineExt;

#[test]
fn frames_a_life_in_order_is_legal() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let pfn = k.map(A, RW);
            assert!(store(cpu, A));
            k.verb(Verb::Unmap, || {
                k.set(A, Entry::Busy(Busy::Page(pfn)));
                k.flush(&[0, 1], k.page(A));
                k.becomes(pfn, Use::Pending);
                k.becomes(pfn, Use::Free);
                k.set(A, Entry::Empty);
            });
            k.becomes(pfn, Use::Data);
            k.sim.zero_out(pfn, 1);
            k.set(A, Entry::Leaf(pfn, RW));
            assert!(load(cpu, A));
            assert_eq!(k.sim.frames_in(Use::Data), 1);
        }),
    );
}

#[test]
fn frames_freed_twice_stops() {
    stops(
        &ALL,
        Rule::FrameState,
        &script!(k, _cpu, {
            let pfn = k.data();
            k.becomes(pfn, Use::Free);
            k.becomes(pfn, Use::Free);
        }),
    );
}

#[test]
fn frames_given_twice_stops() {
    stops(
        &ALL,
        Rule::FrameState,
        &script!(k, _cpu, {
            let pfn = k.data();
            k.becomes(pfn, Use::Data);
        }),
    );
}

#[test]
fn frames_a_pending_frame_cannot_be_given() {
    stops(
        &ALL,
        Rule::FrameState,
        &script!(k, _cpu, {
            let pfn = k.data();
            k.becomes(pfn, Use::Pending);
            k.becomes(pfn, Use::Data);
        }),
    );
}

#[test]
fn frames_freed_while_mapped_stops() {
    stops(
        &ALL,
        Rule::FrameState,
        &script!(k, _cpu, {
            let pfn = k.map(A, RW);
            k.becomes(pfn, Use::Free);
        }),
    );
}

#[test]
fn frames_mapped_while_free_stops() {
    stops(
        &ALL,
        Rule::FrameState,
        &script!(k, _cpu, {
            k.set(A, Entry::Leaf(Pfn(3000), RW));
        }),
    );
}

/// A script in which one frame becomes all of these in turn.
macro_rules! becomes {
    ($($to:ident),*) => {
        script!(k, _cpu, { $(k.becomes(Pfn(3000), Use::$to);)* })
    };
}

#[test]
fn frames_poisoned_while_they_are_no_data_or_mapped_stop() {
    stops(&ALL, Rule::FrameState, &becomes!(Poisoned));
    stops(&ALL, Rule::FrameState, &becomes!(Table, Poisoned));
    stops(&ALL, Rule::FrameState, &becomes!(Zero, Poisoned));
    stops(&ALL, Rule::FrameState, &becomes!(Data, Pending, Poisoned));
    stops(
        &ALL,
        Rule::FrameState,
        &script!(k, _cpu, {
            let pfn = k.map(A, RW);
            k.becomes(pfn, Use::Poisoned);
        }),
    );
}

#[test]
fn frames_that_come_back_after_they_were_poisoned_stop() {
    passes(&ALL, &becomes!(Data, Poisoned));
    stops(&ALL, Rule::FrameState, &becomes!(Data, Poisoned, Free));
    stops(&ALL, Rule::FrameState, &becomes!(Data, Poisoned, Pending));
    stops(&ALL, Rule::FrameState, &becomes!(Data, Poisoned, Data));
    stops(&ALL, Rule::FrameState, &becomes!(Data, Poisoned, Table));
    stops(&ALL, Rule::FrameState, &becomes!(Data, Poisoned, Poisoned));
}

#[test]
fn frames_past_the_end_of_memory_stop() {
    stops(
        &ALL,
        Rule::FrameState,
        &script!(k, _cpu, {
            k.sim.becomes(Pfn(1 << 40), Order::BASE, Use::Data);
        }),
    );
    stops(
        &ALL,
        Rule::Contract,
        &script!(k, _cpu, {
            k.sim.zero_out(Pfn(1 << 40), 1);
        }),
    );
}

#[test]
fn contents_a_frame_mapped_before_it_is_cleared_stops() {
    stops(
        &ALL,
        Rule::Dirty,
        &script!(k, _cpu, {
            let pfn = k.frame(Use::Data);
            k.set(A, Entry::Leaf(pfn, RO));
        }),
    );
}

#[test]
fn contents_one_dirty_frame_in_a_huge_page_stops() {
    stops(
        &ALL,
        Rule::Dirty,
        &script!(k, _cpu, {
            let huge = k.block(Order::HUGE, Use::Data);
            k.sim.zero_out(huge, 511);
            k.set_at(A, 2, Entry::Leaf(huge, RW));
        }),
    );
}

#[test]
fn contents_a_copy_of_foreign_bytes_stops_and_a_copy_of_own_bytes_does_not() {
    stops(
        &ALL,
        Rule::Dirty,
        &script!(k, _cpu, {
            let (from, to) = (k.frame(Use::Data), k.frame(Use::Data));
            k.sim.copy_to(to, from);
            k.set(A, Entry::Leaf(to, RO));
        }),
    );
    passes(
        &ALL,
        &script!(k, _cpu, {
            let (from, to) = (k.data(), k.frame(Use::Data));
            k.sim.copy_to(to, from);
            k.set(A, Entry::Leaf(to, RO));
        }),
    );
}

#[test]
fn contents_a_load_sees_the_version_of_the_last_store() {
    for h in ALL {
        let s = script!(k, cpu, {
            use vellum_sim::{Kind, Seen};
            k.map(A, RW);
            assert_eq!(cpu.access(A, 8, Kind::Load, false), Ok(Seen(1)), "zeros");
            let stored = cpu.access(A + 64, 8, Kind::Store, false).expect("mapped");
            assert!(stored.0 > 1);
            cpu.script(1, |c| assert_eq!(c.access(A + 72, 4, Kind::Load, false), Ok(stored)));
            assert_eq!(cpu.access(A, 8, Kind::Load, false), Ok(Seen(1)));
        });
        play(h, options(Check::Walk), &s).expect("legal");
    }
}

#[test]
fn contents_bytes_written_are_read_back_and_cleared_and_copied() {
    passes(
        &ALL,
        &script!(k, _cpu, {
            let (a, b) = (k.data(), k.data());
            k.sim.poke(a, 100, b"bytes");
            let mut got = [0; 5];
            k.sim.peek(a, 100, &mut got);
            assert_eq!(&got, b"bytes");
            k.sim.copy_to(b, a);
            k.sim.zero_out(a, 1);
            k.sim.peek(b, 100, &mut got);
            assert_eq!(&got, b"bytes");
            k.sim.peek(a, 100, &mut got);
            assert_eq!(got, [0; 5]);
        }),
    );
}

#[test]
fn zeros_are_mapped_read_only_by_many() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let zero = k.frame(Use::Zero);
            k.sim.zero_out(zero, 1);
            k.set(A, Entry::Leaf(zero, RO));
            k.set(B, Entry::Leaf(zero, RO));
            assert!(load(cpu, A) && load(cpu, B) && !store(cpu, A));
        }),
    );
}

#[test]
fn zeros_mapped_writable_stop() {
    stops(
        &ALL,
        Rule::Zero,
        &script!(k, _cpu, {
            let zero = k.frame(Use::Zero);
            k.sim.zero_out(zero, 1);
            k.set(A, Entry::Leaf(zero, RW));
        }),
    );
}

#[test]
fn zeros_that_were_never_cleared_stop() {
    stops(
        &ALL,
        Rule::Zero,
        &script!(k, _cpu, {
            let zero = k.frame(Use::Zero);
            k.set(A, Entry::Leaf(zero, RO));
        }),
    );
}

#[test]
fn zeros_written_by_the_kernel_stop() {
    stops(
        &ALL,
        Rule::Zero,
        &script!(k, _cpu, {
            let zero = k.frame(Use::Zero);
            k.sim.zero_out(zero, 1);
            k.sim.poke(zero, 0, &[0]);
        }),
    );
}

#[test]
fn sharing_two_read_only_mappings_are_legal_and_a_writable_one_among_them_is_not() {
    passes(
        &ALL,
        &script!(k, cpu, {
            let pfn = k.map(A, RO);
            k.set(B, Entry::Leaf(pfn, RO));
            assert!(load(cpu, A) && load(cpu, B));
        }),
    );
    stops(
        &ALL,
        Rule::Shared,
        &script!(k, _cpu, {
            let pfn = k.map(A, RW);
            k.set(B, Entry::Leaf(pfn, RO));
        }),
    );
    stops(
        &ALL,
        Rule::Shared,
        &script!(k, _cpu, {
            let pfn = k.map(A, RO);
            k.set(B, Entry::Leaf(pfn, RO));
            k.set(A, Entry::Leaf(pfn, RW));
        }),
    );
}

/// A life in which every planted bug gets its chance: map, share, unshare, migrate, unmap, reuse.
struct Life(Option<Bug>);

impl Script for Life {
    fn play<F: vellum_sim::format::Format>(&self, k: &Kernel<'_, F>, cpu: &vellum_sim::Cpu<'_, F>) {
        k.sim.plant(self.0);
        let pfn = k.map(A, RW);
        assert!(store(cpu, A));
        cpu.script(1, |c| assert!(load(c, A)));
        k.verb(Verb::Fork, || {
            k.set(A, Entry::Leaf(pfn, RO));
            k.flush(&[0, 1], k.page(A));
            k.set(B, Entry::Leaf(pfn, RO));
        });
        cpu.script(1, |c| assert!(load(c, A)));
        let copy = k.verb(Verb::Fault, || {
            let copy = k.frame(Use::Data);
            k.sim.copy_to(copy, pfn);
            k.set(A, Entry::Busy(Busy::Page(pfn)));
            k.flush(&[0, 1], k.page(A));
            k.set(A, Entry::Leaf(copy, RW));
            copy
        });
        assert!(store(cpu, A));
        cpu.script(1, |c| load(c, A));
        k.verb(Verb::Unmap, || {
            k.set(B, Entry::Busy(Busy::Page(pfn)));
            k.flush(&[0, 1], k.page(B));
            k.set(A, Entry::Busy(Busy::Page(copy)));
            k.flush(&[0, 1], k.page(A));
            k.becomes(pfn, Use::Free);
            k.becomes(copy, Use::Free);
        });
        k.becomes(pfn, Use::Data);
        k.sim.zero_out(pfn, 1);
        k.set(A, Entry::Leaf(pfn, RW));
        assert!(load(cpu, A));
        if let Err(stop) = k.sim.audit(Some(0)) {
            cpu.stop_with(stop);
        }
    }
}

fn planted(bug: Bug, rules: &[Rule]) {
    for h in ALL {
        for o in both() {
            play(h, o, &Life(None)).expect("without the bug the run passes");
            let r = broken(play(h, o, &Life(Some(bug))));
            assert!(
                r.is_some_and(|r| rules.contains(&r)),
                "{bug:?} under {h:?} {:?}: {r:?}",
                o.check
            );
        }
    }
}

#[test]
fn planted_skipped_remote_flush_stops() {
    planted(Bug::SkippedRemoteFlush, &[Rule::OpenObligation, Rule::BreakBeforeMake]);
}

#[test]
fn planted_frame_freed_before_its_flush_stops() {
    planted(Bug::EarlyFree, &[Rule::OpenObligation]);
}

#[test]
fn planted_writable_shared_page_stops() {
    planted(Bug::WritableShared, &[Rule::Shared]);
}

#[test]
fn planted_stale_read_of_changed_contents_stops() {
    planted(Bug::DeafTlb, &[Rule::Stale]);
}

#[test]
fn planted_leaked_frame_stops() {
    planted(Bug::Leak, &[Rule::Leak, Rule::FrameState]);
}

#[test]
fn planted_reused_dirty_frame_stops() {
    planted(Bug::SkippedClear, &[Rule::Dirty]);
    planted(Bug::SkippedCopy, &[Rule::Dirty]);
}

#[test]
fn reports_name_the_law_the_place_and_the_seed() {
    let s = script!(k, _cpu, {
        let pfn = k.map(A, RW);
        k.becomes(pfn, Use::Free);
    });
    let text = play(MmuKind::X86, options(Check::Walk), &s).expect_err("illegal").to_string();
    for part in [
        "STOPPED by the oracle",
        "a frame is not in the state",
        "while 1 entries map it",
        "cpu 0",
        "seed 1",
        "last events",
        "become Free",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}
