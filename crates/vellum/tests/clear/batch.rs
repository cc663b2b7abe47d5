//! Batches by measured bandwidth and a target.

use crate::flat::VmHands;
use crate::lab::*;
use vellum::addr::{Pfn, Va};
use vellum::unstable::Extent;

/// Cycles of a microsecond, and of a base page at 10 GB/s by that clock.
const PER_US: u64 = 2500;
const PAGE: u64 = 1024;

/// Pages of each portion away from the fault.
fn portions(lab: &Lab, extent: &Extent) -> Vec<u64> {
    lab.m().acts();
    lab.vm.cleared(extent).unwrap();
    let runs = lab
        .m()
        .acts()
        .into_iter()
        .filter_map(|a| if let Act::Run(_, n, _) = a { Some(n) } else { None });
    let mut all: Vec<u64> = runs.collect();
    // The neighbourhood of page 0 is two pieces.
    all.truncate(all.len().saturating_sub(2));
    all
}

fn giant() -> Extent {
    Extent { first: Pfn(512), frames: 1 << 18, at: Va(0), fault: 0 }
}

fn lab_at(page_cycles: u64, switches: &[(&str, &str)]) -> Lab {
    let machine = Probe::hollow(1 << 18);
    machine.set_clock(page_cycles, PER_US);
    lab_on(machine, switches)
}

#[test]
fn a_batch_is_what_can_be_cleared_within_the_target_at_the_bandwidth_of_recent_clears() {
    for (target, expected) in [("1000", 2441), ("100", 244), ("4000", 9765)] {
        let lab = lab_at(PAGE, &[("clear.target", target)]);
        assert_eq!(lab.vm.clear_bandwidth(0), None);
        let all = portions(&lab, &giant());
        assert_eq!(all[0], 64, "nothing is known yet");
        assert!(
            all[1..all.len() - 1].iter().all(|&n| n == expected),
            "target {target} us: {:?}",
            &all[..4]
        );
        assert_eq!(lab.vm.clear_bandwidth(0), Some(10_000_000_000));
        assert_eq!(lab.vm.clear_bandwidth(1), None, "no such node");
    }
}

#[test]
fn a_05_after_bandwidth_falls_tenfold_gaps_stay_below_1_5_targets_after_two_portions() {
    let lab = lab_at(PAGE, &[]);
    portions(&lab, &giant());
    lab.m().set_clock(10 * PAGE, PER_US);
    let all = portions(&lab, &giant());
    let gaps: Vec<u64> = all.iter().map(|n| n * 10 * PAGE / PER_US).collect();
    assert!(gaps[0] > 5000, "the first portion could not know: {} us", gaps[0]);
    assert!(gaps[1..].iter().all(|&us| us <= 1500), "{:?}", &gaps[..4]);
    assert!(
        gaps[1..gaps.len() - 1].iter().all(|&us| us >= 900),
        "and not needlessly short: {:?}",
        &gaps[..4]
    );
    // When it comes back, so do long batches, within some ten portions.
    lab.m().set_clock(PAGE, PER_US);
    let all = portions(&lab, &giant());
    assert!(all[..12].windows(2).all(|w| w[1] >= w[0]) && all[14] > 2000, "{:?}", &all[..15]);
}

#[test]
fn fixed_batches_are_what_was_asked_for_and_a_clock_of_unknown_rate_means_the_published_8_mib() {
    assert_eq!(
        portions(&lab_at(PAGE, &[("clear.batch", "8M")]), &giant())[..3],
        [2048, 2048, 2048]
    );
    assert_eq!(
        portions(&lab_at(PAGE, &[("clear.batch", "32M")]), &giant())[..3],
        [8192, 8192, 8192]
    );
    let machine = Probe::hollow(1 << 18);
    machine.set_clock(PAGE, 0);
    let lab = lab_on(machine, &[]);
    assert_eq!(portions(&lab, &giant())[..3], [2048, 2048, 2048]);
    assert_eq!(lab.vm.clear_bandwidth(0), None);
}

#[test]
fn even_the_slowest_memory_gets_on_page_by_page() {
    let lab = lab_at(100_000_000, &[]);
    let all = portions(&lab, &Extent { frames: 512, ..giant() });
    assert!(all[1..].iter().all(|&n| n == 1) && all.iter().sum::<u64>() == 509, "{:?}", &all[..4]);
}
