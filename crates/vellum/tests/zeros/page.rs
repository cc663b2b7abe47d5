//! The huge page of zeros through real verbs: statements D-1 to D-3, D-6, D-8 to D-10 and D-13 of
//! part D, on a machine without TLBs. What needs other CPUs in between is in `weave.rs`, what needs
//! TLBs in the simulator's `huge_zero_hunt.rs`.

use crate::flat::{Flat, MachineHands, VmHands};
use crate::lab::state::difference;
use crate::lab::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, Thp, ZeroHuge};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::error::{FaultError, SpaceError};
use vellum::machine::{MmuRules, Topology, Use};
use vellum::space::{
    Access, Advice, Attrs, Fault, LeafSize, Page, Placement, Rights, Space, Usage,
};
use vellum::stats::Counter;

fn page() -> Config {
    Config { zero_huge: ZeroHuge::Page, ..Config::default() }
}

const HUGE: u64 = 512;
const MIB: u64 = 1 << 20;

/// A lab of that architecture.
fn on<C: Codec>(rules: MmuRules, frames: u64) -> Lab<C> {
    lab_on(Flat::new(Topology::flat(2, Pfn(512), frames), rules), page())
}

/// 1 GiB and 8 MiB of frames.
fn big() -> Lab {
    lab((1 << 18) + 2048, page())
}

fn usage<C: Codec>(lab: &Lab<C>, space: &Space) -> Usage {
    lab.vm.usage(space)
}

/// A word of the huge page of zeros' contents: 0, or something wrote into it.
fn checksum<C: Codec>(lab: &Lab<C>) -> u64 {
    let first = lab.vm.huge_zero().expect("there is one");
    let mut bytes = [0; 4096];
    (0..HUGE).fold(0, |sum, i| {
        lab.vm.machine().peek(first.add(i), 0, &mut bytes);
        sum + bytes.iter().map(|&b| u64::from(b)).sum::<u64>()
    })
}

#[test]
fn d_01_reading_200_mib_costs_no_page_one_huge_page_for_all_and_100_huge_mappings() {
    let lab = big();
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), 200 * MIB, RW);
    let before = usage(&lab, &space);
    for at in (0..200 * MIB).step_by(4096) {
        assert_eq!(lab.peek(&space, Va(GIB + at)), Ok(0));
    }
    let after = usage(&lab, &space);
    assert_eq!(after.rss_pages - before.rss_pages, 0);
    assert_eq!((after.zero_huge_leaves, after.zero_leaves), (100, 0));
    assert_eq!(after.table_nodes, before.table_nodes, "no tables wait for splits");
    assert_eq!((lab.count(Counter::ThpZeroAlloc), lab.count(Counter::ThpFaultAlloc)), (1, 0));
    assert_eq!(
        lab.vm.machine().asked.became[Use::Zero as usize]
            .load(std::sync::atomic::Ordering::Relaxed),
        1 + HUGE
    );
    assert_eq!(lab.count(Counter::FaultsZeroHuge), 100);
    lab.check(&[&space]);
    lab.vm.exit(space);
    assert_eq!(lab.vm.shrink_zeros(), HUGE);
    lab.check(&[]);
}

#[test]
fn d_01_with_the_switch_off_the_same_reads_take_200_mib() {
    let lab = lab((1 << 18) + 2048, Config { zero_huge: ZeroHuge::Off, ..Config::default() });
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), 200 * MIB, RW);
    for at in (0..200 * MIB).step_by(4096) {
        assert_eq!(lab.peek(&space, Va(GIB + at)), Ok(0));
    }
    assert_eq!(usage(&lab, &space).rss_pages, 51_200);
    assert_eq!((lab.count(Counter::ThpZeroAlloc), lab.vm.huge_zero()), (0, None));
    lab.vm.exit(space);
}

fn d_02<C: Codec>(rules: MmuRules) {
    let lab = lab_on::<C>(Flat::new(Topology::flat(2, Pfn(512), 8192), rules), page());
    let (space, other) = (lab.vm.create().unwrap(), lab.vm.create().unwrap());
    for s in [&space, &other] {
        lab.map(s, Va(GIB), MIB2, RW);
        assert_eq!(lab.vm.fault(s, Va(GIB + 5), Access::Read), Ok(Fault::ZeroHuge));
    }
    assert_eq!(lab.vm.huge_zero_references(), 3);
    assert_eq!(lab.vm.fault(&space, Va(GIB + 12345), Access::Write), Ok(Fault::Huge));
    lab.poke(&space, Va(GIB + 0x3038), 7).unwrap();
    assert_eq!(usage(&lab, &space).rss_pages, 512);
    assert_eq!(lab.count(Counter::AnonHuge), 1);
    for at in (0..MIB2).step_by(8) {
        assert_eq!(lab.peek(&space, Va(GIB + at)), Ok(if at == 0x3038 { 7 } else { 0 }));
    }
    assert_eq!((lab.peek(&other, Va(GIB + 0x3038)), usage(&lab, &other).rss_pages), (Ok(0), 0));
    assert_eq!(lab.vm.huge_zero_references(), 3, "references are per space");
    assert_eq!(checksum(&lab), 0);
    lab.check(&[&space, &other]);
    lab.vm.exit(space);
    lab.vm.exit(other);
    assert_eq!(lab.vm.huge_zero_references(), 1);
    lab.check(&[]);
}

#[test]
fn d_02_one_write_makes_512_pages_and_others_go_on_seeing_zeros() {
    d_02::<X86_64>(MmuRules::X86_64);
    d_02::<Aarch64>(MmuRules::AARCH64);
}

fn falls_back<C: Codec>(rules: MmuRules) {
    let lab = on::<C>(rules, 4096);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), MIB2, RW);
    assert_eq!(lab.peek(&space, Va(GIB)), Ok(0));
    // Another CPU runs in the space as well: one flush, for both.
    lab.vm.machine().run_on(1);
    lab.vm.activate(&space);
    lab.vm.machine().run_on(0);
    lab.vm.activate(&space);
    let hogged = lab.hog(Order::HUGE);
    let flushes = || lab.count(Counter::FlushRemote);
    let before = flushes();
    let at = Va(GIB + 77 * KIB4 + 16);
    assert_eq!(lab.vm.fault(&space, at, Access::Write), Ok(Fault::Copied(Level::ONE)));
    assert_eq!(flushes() - before, 1);
    lab.poke(&space, at, 9).unwrap();
    let now = usage(&lab, &space);
    assert_eq!((now.rss_pages, now.zero_leaves, now.zero_huge_leaves), (1, 511, 0));
    assert_eq!((lab.count(Counter::AnonPages), lab.count(Counter::AnonHuge)), (1, 0));
    assert_eq!((lab.count(Counter::ThpFaultFallback), lab.count(Counter::ThpZeroSplit)), (1, 1));
    for page in 0..512 {
        assert_eq!(
            lab.peek(&space, Va(GIB + page * KIB4 + 16)),
            Ok(if page == 77 { 9 } else { 0 })
        );
    }
    lab.vm.idle();
    lab.vm.machine().run_on(1);
    lab.vm.idle();
    lab.vm.exit(space);
    lab.vm.machine().run_on(0);
    lab.give_back(hogged, Order::HUGE);
    lab.check(&[]);
}

#[test]
fn d_03_without_a_huge_page_the_write_makes_one_page_and_511_zeros_with_one_flush() {
    falls_back::<X86_64>(MmuRules::X86_64);
    falls_back::<Aarch64>(MmuRules::AARCH64);
}

fn refuses<C: Codec>(rules: MmuRules) {
    // What a write needs without a huge page: the page, then the node. With 0 and 1 frames to be
    // had it fails at one and the other.
    for left in 0..3 {
        let lab = on::<C>(rules, 4096);
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), MIB2, RW);
        assert_eq!(lab.peek(&space, Va(GIB)), Ok(0));
        let mut hogged = lab.hog(Order::BASE);
        lab.give_back(hogged.split_off(hogged.len() - left), Order::BASE);
        let before = lab.state(&[&space]);
        let got = lab.vm.fault(&space, Va(GIB + 5000), Access::Write);
        if left == 2 {
            assert_eq!(got, Ok(Fault::Copied(Level::ONE)));
        } else {
            assert_eq!(got, Err(FaultError::NoMemory), "{left} frames left");
            let after = lab.state(&[&space]);
            assert!(after == before, "{left} frames left: {}", difference(&before, &after));
            assert!(matches!(
                lab.vm.query(&space, Va(GIB + 5000)),
                Page::Mapped { level: Level::TWO, zero: true, flags, .. } if !flags.write
            ));
        }
        lab.give_back(hogged, Order::BASE);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn d_03_without_any_page_the_write_is_refused_at_each_step_and_nothing_changes() {
    refuses::<X86_64>(MmuRules::X86_64);
    refuses::<Aarch64>(MmuRules::AARCH64);
}

fn no_zeros<C: Codec>(rules: MmuRules) {
    let lab = on::<C>(rules, 2048);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), MIB2, RW);
    let hogged = lab.hog(Order::HUGE);
    assert_eq!(lab.vm.fault(&space, Va(GIB + 4096), Access::Read), Ok(Fault::Zero));
    assert_eq!((lab.count(Counter::ThpZeroAllocFailed), lab.count(Counter::ThpZeroAlloc)), (1, 0));
    assert_eq!((usage(&lab, &space).rss_pages, usage(&lab, &space).zero_leaves), (0, 1));
    lab.give_back(hogged, Order::HUGE);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn d_03_without_memory_for_the_zeros_themselves_a_read_maps_base_zeros() {
    no_zeros::<X86_64>(MmuRules::X86_64);
    no_zeros::<Aarch64>(MmuRules::AARCH64);
}

fn shrinks<C: Codec>(rules: MmuRules) {
    let lab = on::<C>(rules, 8192);
    assert_eq!((lab.vm.shrink_zeros(), lab.vm.shrinkable_zeros()), (0, 0));
    for round in 1..4 {
        let (a, b) = (lab.vm.create().unwrap(), lab.vm.create().unwrap());
        for space in [&a, &b] {
            lab.map(space, Va(GIB), MIB2, RW);
            assert_eq!(lab.peek(space, Va(GIB)), Ok(0));
            assert_eq!((lab.vm.shrink_zeros(), lab.vm.shrinkable_zeros()), (0, 0));
        }
        assert_eq!(lab.vm.unmap(&a, Va(GIB), MIB2), Ok(()));
        assert_eq!(lab.vm.huge_zero_references(), 3, "a space that used it holds it to its end");
        lab.vm.exit(a);
        assert_eq!((lab.vm.huge_zero_references(), lab.vm.shrink_zeros()), (2, 0));
        lab.check(&[&b]);
        lab.vm.exit(b);
        assert_eq!((lab.vm.shrinkable_zeros(), lab.vm.shrink_zeros()), (HUGE, HUGE));
        assert_eq!((lab.vm.huge_zero(), lab.vm.shrink_zeros()), (None, 0));
        assert_eq!(lab.count(Counter::ThpZeroAlloc), round);
        assert_eq!(lab.count(Counter::ThpZeroRelease), round);
        lab.check(&[]);
    }
}

#[test]
fn d_06_the_shrinker_frees_only_at_count_one_and_the_next_read_makes_a_new_page() {
    shrinks::<X86_64>(MmuRules::X86_64);
    shrinks::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn d_06_100000_iterations_of_churn_leak_nothing() {
    let lab = lab(4096, page());
    let mut dice = 1u64;
    let mut kept: Vec<Space> = Vec::new();
    for i in 0..100_000 {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        if kept.len() == 3 || dice.is_multiple_of(3) && !kept.is_empty() {
            lab.vm.exit(kept.swap_remove(dice as usize / 7 % kept.len()));
        } else {
            let space = lab.vm.create().unwrap();
            lab.map(&space, Va(GIB), MIB2, RW);
            assert_eq!(lab.peek(&space, Va(GIB + dice % MIB2 / 8 * 8)), Ok(0));
            kept.push(space);
        }
        // Now and then memory is short: with nobody left the page goes, and comes again.
        if dice.is_multiple_of(2) {
            let gone = lab.vm.shrink_zeros();
            assert!(gone == 0 || kept.is_empty(), "iteration {i}: freed under a user");
            assert!(kept.is_empty() || lab.vm.huge_zero().is_some());
        }
        if i % 10_000 == 0 {
            lab.check(&kept.iter().collect::<Vec<_>>());
        }
    }
    assert!(lab.count(Counter::ThpZeroRelease) > 1000, "it did go and come");
    kept.into_iter().for_each(|space| lab.vm.exit(space));
    lab.vm.shrink_zeros();
    assert_eq!(lab.count(Counter::ThpZeroAlloc), lab.count(Counter::ThpZeroRelease));
    assert_eq!(lab.vm.audit(&[]).unwrap().zero_frames, 1);
    lab.check(&[]);
}

fn forks<C: Codec>(rules: MmuRules) {
    let lab = on::<C>(rules, 8192);
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, Va(GIB), 2 * MIB2, RW);
    lab.peek(&parent, Va(GIB)).unwrap();
    lab.peek(&parent, Va(GIB + MIB2)).unwrap();
    let allocated = lab.count(Counter::ThpZeroAlloc);
    let child = lab.vm.fork(&parent).unwrap();
    assert_eq!((lab.vm.huge_zero_references(), lab.count(Counter::ThpZeroAlloc)), (3, allocated));
    assert_eq!((usage(&lab, &child).zero_huge_leaves, usage(&lab, &child).rss_pages), (2, 0));
    assert_eq!(lab.peek(&child, Va(GIB + 8)), Ok(0));
    lab.poke(&child, Va(GIB + 8), 5).unwrap();
    assert_eq!((lab.peek(&parent, Va(GIB + 8)), usage(&lab, &parent).zero_huge_leaves), (Ok(0), 2));
    assert_eq!((usage(&lab, &child).zero_huge_leaves, usage(&lab, &child).rss_pages), (1, 512));
    lab.check(&[&parent, &child]);
    lab.vm.exit(parent);
    assert_eq!((lab.peek(&child, Va(GIB + MIB2)), lab.vm.huge_zero_references()), (Ok(0), 2));
    lab.vm.exit(child);
    assert_eq!(lab.vm.huge_zero_references(), 1);
    assert_eq!((lab.count(Counter::AnonPages), lab.count(Counter::AnonHuge)), (0, 0));
    lab.check(&[]);
}

#[test]
fn d_08_a_child_sees_zeros_and_writes_its_own_and_counts_return_to_where_they_were() {
    forks::<X86_64>(MmuRules::X86_64);
    forks::<Aarch64>(MmuRules::AARCH64);
}

fn forks_in_vain<C: Codec>(rules: MmuRules) {
    let lab = on::<C>(rules, 4096);
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, Va(GIB), MIB2, RW);
    lab.peek(&parent, Va(GIB)).unwrap();
    for left in 0..8 {
        let mut hogged = lab.hog(Order::BASE);
        lab.give_back(hogged.split_off(hogged.len() - left), Order::BASE);
        let forked = lab.vm.fork(&parent);
        lab.give_back(hogged, Order::BASE);
        assert_eq!(
            lab.vm.huge_zero_references(),
            if forked.is_ok() { 3 } else { 2 },
            "{left} frames left"
        );
        let all: Vec<&Space> = std::iter::once(&parent).chain(&forked).collect();
        lab.check(&all);
        if let Ok(child) = forked {
            assert!(left > 0);
            lab.vm.exit(child);
        }
    }
    lab.vm.exit(parent);
    lab.check(&[]);
}

#[test]
fn d_08_a_fork_that_finds_no_memory_takes_no_reference() {
    forks_in_vain::<X86_64>(MmuRules::X86_64);
    forks_in_vain::<Aarch64>(MmuRules::AARCH64);
}

fn protects<C: Codec>(rules: MmuRules) {
    let lab = on::<C>(rules, 8192);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), MIB2, Attrs::anonymous(Rights::READ));
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Write), Err(FaultError::Rights));
    lab.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    assert!(matches!(
        lab.vm.query(&space, Va(GIB)),
        Page::Mapped { zero: true, level: Level::TWO, flags, .. } if !flags.write && !flags.dirty
    ));
    lab.vm.protect(&space, Va(GIB), MIB2, Rights::ALL).unwrap();
    assert!(matches!(
        lab.vm.query(&space, Va(GIB)),
        Page::Mapped { flags, .. } if flags.exec && !flags.write
    ));
    lab.vm.protect(&space, Va(GIB), MIB2, Rights::NONE).unwrap();
    assert_eq!(lab.vm.query(&space, Va(GIB)), Page::Reserved { rights: Rights::NONE });
    assert_eq!(usage(&lab, &space).rss_pages, 0);
    lab.check(&[&space]);
    lab.vm.protect(&space, Va(GIB), MIB2, Rights::READ_WRITE).unwrap();
    lab.poke(&space, Va(GIB), 1).unwrap();
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn d_09_protect_leaves_the_write_bit_clear_and_no_rights_leave_a_promise() {
    protects::<X86_64>(MmuRules::X86_64);
    protects::<Aarch64>(MmuRules::AARCH64);
}

fn unmaps<C: Codec>(rules: MmuRules) {
    for hole in [0, 1, 255, 511] {
        let lab = on::<C>(rules, 8192);
        let space = lab.vm.create().unwrap();
        let before = usage(&lab, &space);
        lab.map(&space, Va(GIB), MIB2, RW);
        lab.peek(&space, Va(GIB)).unwrap();
        lab.vm.unmap(&space, Va(GIB + hole * KIB4), KIB4).unwrap();
        let now = usage(&lab, &space);
        assert_eq!(
            (now.zero_leaves, now.zero_huge_leaves, now.rss_pages, now.mapped_pages),
            (511, 0, 0, 511)
        );
        assert_eq!(lab.vm.query(&space, Va(GIB + hole * KIB4)), Page::Unmapped);
        lab.check(&[&space]);
        lab.vm.unmap(&space, Va(GIB), MIB2).unwrap();
        assert_eq!(usage(&lab, &space), before);
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn d_09_unmapping_4_kib_leaves_511_base_zeros_and_unmapping_the_rest_leaves_nothing() {
    unmaps::<X86_64>(MmuRules::X86_64);
    unmaps::<Aarch64>(MmuRules::AARCH64);
}

fn cuts_in_vain<C: Codec>(rules: MmuRules) {
    let lab = on::<C>(rules, 4096);
    let space = lab.vm.create().unwrap();
    lab.map(&space, Va(GIB), MIB2, RW);
    lab.peek(&space, Va(GIB)).unwrap();
    let hogged = lab.hog(Order::BASE);
    let before = lab.state(&[&space]);
    assert_eq!(lab.vm.unmap(&space, Va(GIB + KIB4), KIB4), Err(SpaceError::NoMemory));
    assert_eq!(
        lab.vm.protect(&space, Va(GIB + KIB4), KIB4, Rights::READ),
        Err(SpaceError::NoMemory)
    );
    let after = lab.state(&[&space]);
    assert!(after == before, "{}", difference(&before, &after));
    lab.give_back(hogged, Order::BASE);
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn d_09_a_cut_that_finds_no_memory_changes_nothing() {
    cuts_in_vain::<X86_64>(MmuRules::X86_64);
    cuts_in_vain::<Aarch64>(MmuRules::AARCH64);
}

fn remaps<C: Codec>(rules: MmuRules) {
    for to in [3 * GIB, 3 * GIB + 5 * KIB4] {
        let lab = on::<C>(rules, 8192);
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), 2 * MIB2, RW);
        lab.peek(&space, Va(GIB)).unwrap();
        lab.poke(&space, Va(GIB + MIB2), 4).unwrap();
        lab.vm.remap(&space, Va(GIB), 2 * MIB2, 2 * MIB2, Placement::At(Va(to))).unwrap();
        assert_eq!(lab.vm.query(&space, Va(GIB)), Page::Unmapped);
        assert_eq!((lab.peek(&space, Va(to)), lab.peek(&space, Va(to + MIB2))), (Ok(0), Ok(4)));
        assert_eq!(usage(&lab, &space).rss_pages, 512);
        lab.poke(&space, Va(to + 8), 6).unwrap();
        lab.check(&[&space]);
        lab.vm.exit(space);
        lab.check(&[]);
    }
}

#[test]
fn d_09_a_remap_moves_the_mapping_and_the_zeros_with_it() {
    remaps::<X86_64>(MmuRules::X86_64);
    remaps::<Aarch64>(MmuRules::AARCH64);
}

fn forces<C: Codec>(rules: MmuRules) {
    for rights in [Rights::READ, Rights::READ_WRITE, Rights::READ_EXEC] {
        let lab = on::<C>(rules, 8192);
        let (space, other) = (lab.vm.create().unwrap(), lab.vm.create().unwrap());
        for s in [&space, &other] {
            lab.map(s, Va(GIB), MIB2, Attrs::anonymous(rights));
            assert_eq!(lab.vm.fault(s, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
        }
        for _ in 0..2 {
            lab.vm.write_forced(&space, Va(GIB + 4090), b"breakpoint").unwrap();
        }
        assert_eq!(checksum(&lab), 0);
        let mut bytes = [0; 10];
        lab.vm.copy_out(&space, Va(GIB + 4090), &mut bytes).unwrap();
        assert_eq!((&bytes, lab.peek(&other, Va(GIB + 4096))), (b"breakpoint", Ok(0)));
        assert!(matches!(
            lab.vm.query(&space, Va(GIB)),
            Page::Mapped { flags, zero: false, .. }
                if flags.write == rights.write && flags.dirty == rights.write
        ));
        lab.check(&[&space, &other]);
        lab.vm.exit(space);
        lab.vm.exit(other);
        lab.check(&[]);
    }
}

#[test]
fn d_10_a_forced_write_makes_a_page_of_its_own_and_never_touches_the_zeros() {
    forces::<X86_64>(MmuRules::X86_64);
    forces::<Aarch64>(MmuRules::AARCH64);
}

#[test]
fn d_10_a_forced_write_copies_what_others_share_and_respects_what_has_no_rights() {
    let lab = lab(4096, never());
    let parent = lab.vm.create().unwrap();
    lab.map(&parent, AT, 3 * KIB4, RW);
    lab.poke(&parent, AT, 1).unwrap();
    lab.vm.protect(&parent, AT, 2 * KIB4, Rights::READ).unwrap();
    lab.vm.protect(&parent, Va(AT.0 + 2 * KIB4), KIB4, Rights::NONE).unwrap();
    let child = lab.vm.fork(&parent).unwrap();
    lab.vm.write_forced(&child, AT, &2u64.to_le_bytes()).unwrap();
    assert_eq!((lab.peek(&parent, AT), lab.peek(&child, AT)), (Ok(1), Ok(2)));
    assert_eq!(lab.vm.fault(&child, AT, Access::Write), Err(FaultError::Rights));
    // Where nothing was yet.
    lab.vm.write_forced(&child, Va(AT.0 + KIB4), &3u64.to_le_bytes()).unwrap();
    assert_eq!(
        (lab.peek(&parent, Va(AT.0 + KIB4)), lab.peek(&child, Va(AT.0 + KIB4))),
        (Ok(0), Ok(3))
    );
    assert_eq!(lab.vm.write_forced(&child, Va(AT.0 + 2 * KIB4), b"x"), Err(FaultError::Rights));
    assert_eq!(lab.vm.write_forced(&child, Va(AT.0 + 3 * KIB4), b"x"), Err(FaultError::Unmapped));
    lab.check(&[&parent, &child]);
    lab.vm.exit(parent);
    lab.vm.exit(child);
    lab.check(&[]);
}

#[test]
fn d_10_touching_a_read_mapping_by_software_marks_sets_accessed_and_never_dirty() {
    let rules = MmuRules { hardware_ad: false, ..MmuRules::AARCH64 };
    for form in [ZeroHuge::Off, ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate] {
        let thp = if form == ZeroHuge::Off { Thp::Never } else { Thp::Always };
        let config = Config { zero_huge: form, thp, ..Config::default() };
        let lab = lab_on::<Aarch64>(Flat::new(Topology::flat(2, Pfn(512), 4096), rules), config);
        let space = lab.vm.create().unwrap();
        lab.map(&space, Va(GIB), MIB2, Attrs::anonymous(Rights::READ));
        lab.peek(&space, Va(GIB)).unwrap();
        for access in [Access::Read, Access::Write, Access::Read] {
            let expect =
                if access == Access::Write { Err(FaultError::Rights) } else { Ok(Fault::Spurious) };
            assert_eq!(lab.vm.fault(&space, Va(GIB), access), expect, "{form:?}");
            assert!(matches!(
                lab.vm.query(&space, Va(GIB)),
                Page::Mapped { flags, zero: true, .. }
                    if flags.accessed && !flags.dirty && !flags.write
            ));
        }
        lab.check(&[&space]);
        lab.vm.exit(space);
    }
}

#[test]
fn d_13_kept_zeros_are_never_counted_and_never_shrunk() {
    let lab = lab(8192, page());
    lab.vm.keep_zeros().unwrap();
    lab.vm.keep_zeros().unwrap();
    let references = lab.vm.huge_zero_references();
    let spaces: Vec<Space> = (0..72)
        .map(|_| {
            let space = lab.vm.create().unwrap();
            lab.map(&space, Va(GIB), MIB2, RW);
            assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
            assert_eq!((lab.vm.huge_zero_references(), lab.vm.shrink_zeros()), (references, 0));
            space
        })
        .collect();
    assert_eq!(lab.count(Counter::ThpZeroAlloc), 1);
    lab.check(&spaces.iter().collect::<Vec<_>>());
    spaces.into_iter().for_each(|space| lab.vm.exit(space));
    assert_eq!(
        (lab.vm.huge_zero_references(), lab.vm.shrink_zeros(), lab.vm.shrinkable_zeros()),
        (references, 0, 0)
    );
    lab.check(&[]);
}

#[test]
fn zeros_are_for_regions_where_a_huge_page_would_be_used_and_no_others() {
    let lab = lab(1 << 12, page());
    let space = lab.vm.create().unwrap();
    let exactly = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };
    lab.map(&space, Va(GIB), MIB2, exactly);
    assert_eq!(lab.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::Huge));
    lab.map(&space, Va(2 * GIB), MIB2 - KIB4, RW);
    assert_eq!(lab.vm.fault(&space, Va(2 * GIB), Access::Read), Ok(Fault::Zero));
    lab.map(&space, Va(3 * GIB), MIB2, RW);
    lab.vm.advise(&space, Va(3 * GIB), MIB2, Advice::NoHuge).unwrap();
    assert_eq!(lab.vm.fault(&space, Va(3 * GIB), Access::Read), Ok(Fault::Zero));
    assert_eq!(lab.vm.huge_zero(), None);
    // Populating for reading maps them, populating for writing replaces them.
    lab.map(&space, Va(4 * GIB), MIB2, RW);
    lab.vm.advise(&space, Va(4 * GIB), MIB2, Advice::Populate { write: false }).unwrap();
    assert_eq!(usage(&lab, &space).zero_huge_leaves, 1);
    lab.vm.advise(&space, Va(4 * GIB), MIB2, Advice::Collapse).unwrap();
    assert_eq!(usage(&lab, &space).zero_huge_leaves, 1, "nothing to collapse");
    lab.vm.advise(&space, Va(4 * GIB), MIB2, Advice::Populate { write: true }).unwrap();
    assert_eq!((usage(&lab, &space).zero_huge_leaves, usage(&lab, &space).huge_leaves), (0, 2));
    lab.vm.advise(&space, Va(4 * GIB), MIB2, Advice::DontNeed).unwrap();
    assert_eq!(lab.peek(&space, Va(4 * GIB)), Ok(0));
    lab.vm.advise(&space, Va(4 * GIB), MIB2, Advice::DontNeed).unwrap();
    assert_eq!(lab.vm.query(&space, Va(4 * GIB)), Page::Reserved { rights: Rights::READ_WRITE });
    // The kernel's own reads and writes do as the program's.
    assert_eq!(lab.kernel_peek(&space, Va(4 * GIB)), Ok(0));
    lab.vm.copy_in(&space, Va(4 * GIB + 8), &[1]).unwrap();
    assert_eq!(checksum(&lab), 0);
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}
