//! Portions by measured bandwidth and a target.

use vellum_testkit::prelude::*;
use vellum_testkit::probe::*;

/// Cycles in a microsecond; `PAGE` is those that clearing a base page takes at 10 GB/s.
const PER_US: u64 = 2500;

const PAGE: u64 = 1024;

/// Pages of each portion away from the fault.
fn portions(fx: &ProbeFixture, extent: &Extent) -> Vec<u64> {
    fx.m().acts();
    fx.vm.cleared(extent).unwrap();
    let mut all: Vec<u64> = fx.m().acts().runs().into_iter().map(|run| run.0).collect();
    // The pages around page 0 are two runs.
    all.truncate(all.len().saturating_sub(2));
    all
}

fn giant() -> Extent {
    Extent { first: Pfn(512), frames: 1 << 18, at: Va(0), fault: Some(0) }
}

fn fixture_at(page_cycles: u64, switches: &[(&str, &str)]) -> ProbeFixture {
    let machine = Probe::hollow(1 << 18);
    machine.set_clock(page_cycles, PER_US);
    probe_fixture_on(machine, switches)
}

#[test]
fn a_batch_is_what_can_be_cleared_within_the_target_at_the_bandwidth_of_recent_clears() {
    for (target, expected) in [("1000", 2441), ("100", 244), ("4000", 9765)] {
        let fx = fixture_at(PAGE, &[("clear.target", target)]);
        assert_eq!(fx.vm.clear_bandwidth(0), None);
        let all = portions(&fx, &giant());
        assert_eq!(all[0], 64, "nothing is known yet");
        let known = &all[1..all.len() - 1];
        assert!(known.iter().all(|&n| n == expected), "target {target} us: {known:?}");
        assert_eq!(fx.vm.clear_bandwidth(0), Some(10_000_000_000));
        assert_eq!(fx.vm.clear_bandwidth(1), None, "no such node");
    }
}

#[test]
fn a_05_after_bandwidth_falls_tenfold_gaps_stay_below_1_5_targets_after_two_portions() {
    let fx = fixture_at(PAGE, &[]);
    portions(&fx, &giant());
    fx.m().set_clock(10 * PAGE, PER_US);
    let all = portions(&fx, &giant());
    let gaps: Vec<u64> = all.iter().map(|n| n * 10 * PAGE / PER_US).collect();
    assert!(gaps[0] > 5000, "the first portion could not know: {} us", gaps[0]);
    assert!(gaps[1..].iter().all(|&us| us <= 1500), "{:?}", &gaps[..4]);
    let full = &gaps[1..gaps.len() - 1];
    assert!(full.iter().all(|&us| us >= 900), "and not needlessly short: {full:?}");
    // When the bandwidth comes back, long batches come back within some ten portions.
    fx.m().set_clock(PAGE, PER_US);
    let all = portions(&fx, &giant());
    assert!(all[..12].windows(2).all(|w| w[1] >= w[0]) && all[14] > 2000, "{:?}", &all[..15]);
}

#[test]
fn fixed_batches_are_what_was_asked_for_and_a_clock_of_unknown_rate_means_the_published_8_mib() {
    for (batch, pages) in [("8M", 2048), ("32M", 8192)] {
        let fx = fixture_at(PAGE, &[("clear.batch", batch)]);
        assert_eq!(portions(&fx, &giant())[..3], [pages; 3], "{batch}");
    }
    let machine = Probe::hollow(1 << 18);
    machine.set_clock(PAGE, 0);
    let fx = probe_fixture_on(machine, &[]);
    assert_eq!(portions(&fx, &giant())[..3], [2048, 2048, 2048]);
    assert_eq!(fx.vm.clear_bandwidth(0), None);
}

#[test]
fn even_the_slowest_memory_gets_on_page_by_page() {
    let fx = fixture_at(100_000_000, &[]);
    let all = portions(&fx, &Extent { frames: 512, ..giant() });
    assert!(all[1..].iter().all(|&n| n == 1) && all.iter().sum::<u64>() == 509, "{:?}", &all[..4]);
}
