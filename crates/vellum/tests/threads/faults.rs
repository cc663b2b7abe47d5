//! Threads in one space, and in spaces that fork.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum_testkit::prelude::*;

const CPUS: usize = 3;

/// For a verb that may fail here.
fn may<T>(_: T) {}

/// Each thread has its own words in every page, so what it wrote is there until the page is
/// dropped.
fn faults_in_one_space<C: Arch>(config: Config) {
    let fx = fixture_of::<C>(CPUS, 1 << 15, config);
    let pages = 2048;
    let space = fx.mapped(AT, pages * KIB4, RW);
    on_cpus(0..CPUS, |cpu| {
        let mut random = Random::new(99 + cpu as u64);
        for _ in 0..20_000 {
            let va = Va(AT.0 + random.below(pages) * KIB4 + 8 * cpu as u64);
            if random.one_in(2) {
                let seen = fx.kernel_peek(&space, va).unwrap();
                assert!(seen == 0 || seen == va.0);
            } else {
                fx.vm.copy_in(&space, va, &va.0.to_le_bytes()).unwrap();
                assert_eq!(fx.kernel_peek(&space, va), Ok(va.0));
            }
        }
    });
    fx.end([space]);
}

#[test]
fn threads_that_fault_the_same_pages_agree_on_them() {
    faults_in_one_space::<X86_64>(no_thp());
    faults_in_one_space::<X86_64>(Config::default());
    faults_in_one_space::<Aarch64>(Config { zero_page: false, ..no_thp() });
}

/// One thread changes the layout of a window while others fault in it; a page is zero or what was
/// written, and a refused fault is refused for a reason that could be.
fn faults_against_verbs<C: Codec>(rules: MmuRules, config: Config, rounds: u64) {
    let fx = Fixture::new(flat_with::<C>(CPUS, 1 << 15, rules), config);
    let space = fx.vm.create().unwrap();
    let pages = 1536;
    let stop = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    let player = |cpu| {
        fx.vm.activate(&space);
        let mut random = Random::new(7 * cpu as u64);
        let mine = 0xabc0 + cpu as u64;
        while !stop.load(Ordering::Relaxed) {
            let va = Va(AT.0 + random.below(pages) * KIB4 + 8 * cpu as u64);
            match random.below(3) {
                0 => match fx.kernel_peek(&space, va) {
                    Ok(seen) => assert!(seen == 0 || seen == mine, "{seen:#x} at {va:?}"),
                    Err(error) => assert_ne!(error, FaultError::NoMemory),
                },
                1 => match fx.vm.copy_in(&space, va, &mine.to_le_bytes()) {
                    Ok(()) => may(served.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => assert_ne!(error, FaultError::NoMemory),
                },
                _ => may(fx.vm.fault(&space, va, Access::Write)),
            }
        }
        fx.vm.deactivate();
    };
    on_cpus(0..CPUS, |cpu| {
        if cpu != 0 {
            return player(cpu);
        }
        let mut random = Random::new(4242);
        let mut children: Vec<Space> = Vec::new();
        let mut round = 0;
        // Also until the others have had their share of a busy host.
        while round < rounds || served.load(Ordering::Relaxed) < rounds / 4 {
            round += 1;
            if round % 8 == 0 {
                std::thread::yield_now();
            }
            let va = Va(AT.0 + random.below(pages) * KIB4);
            let bytes = KIB4 * (1 + random.below(300)).min((AT.0 + pages * KIB4 - va.0) / KIB4);
            let elsewhere = Va(AT.0 + (64 << 20) + random.below(1024) * KIB4);
            match random.below(12) {
                0..=3 => may(fx.vm.map(&space, Placement::Replace(va), bytes, RW)),
                4 => may(fx.vm.unmap(&space, va, bytes)),
                5 => may(fx.vm.protect(&space, va, bytes, Rights::READ)),
                6 => may(fx.vm.protect(&space, va, bytes, Rights::NONE)),
                7 => may(fx.vm.protect(&space, va, bytes, Rights::READ_WRITE)),
                8 => may(fx.vm.advise(&space, va, bytes, Advice::DontNeed)),
                9 => may(fx.vm.advise(&space, Va(AT.0), pages * KIB4, Advice::Collapse)),
                10 => may(fx
                    .vm
                    .remap(&space, va, bytes, bytes, Placement::Replace(elsewhere))
                    .and_then(|_| fx.vm.remap(&space, elsewhere, bytes, bytes, Placement::At(va)))),
                _ => {
                    if children.len() > 2 {
                        fx.vm.exit(children.remove(0));
                    }
                    children.push(fx.vm.fork(&space).unwrap());
                }
            }
            if round % 16 == 0 {
                fx.vm.map(&space, Placement::Replace(AT), pages * KIB4, RW).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        children.into_iter().for_each(|child| fx.vm.exit(child));
    });
    assert!(served.load(Ordering::Relaxed) > 0, "no thread wrote anything");
    fx.end([space]);
}

#[test]
fn faults_on_base_pages_survive_every_verb_beside_them() {
    faults_against_verbs::<X86_64>(MmuRules::X86_64, no_thp(), 800);
}

#[test]
fn faults_on_huge_pages_survive_every_verb_beside_them() {
    let rules = MmuRules { asids: 64, ..MmuRules::X86_64 };
    faults_against_verbs::<X86_64>(rules, Config::default(), 300);
}

#[test]
fn faults_under_break_before_make_survive_every_verb_beside_them() {
    let config = Config { thp: Thp::Always, tlb_batch: false, ..Config::default() };
    faults_against_verbs::<Aarch64>(MmuRules::AARCH64, config, 1000);
}

#[test]
fn spaces_that_fork_and_write_at_once_keep_their_own_contents() {
    let fx = fixture_of::<X86_64>(CPUS, 1 << 15, Config::default());
    let pages = 1024;
    let parent = fx.mapped(AT, pages * KIB4, RW);
    for page in 0..pages {
        fx.vm.copy_in(&parent, page_at(page), &page.to_le_bytes()).unwrap();
    }
    for round in 0..6u64 {
        let spaces = [(); CPUS].map(|()| fx.vm.fork(&parent).unwrap());
        on_cpus(0..CPUS, |cpu| {
            let space = &spaces[cpu];
            fx.vm.activate(space);
            let mut random = Random::new(round * 31 + cpu as u64 + 1);
            let mine = 1000 * (cpu as u64 + 1);
            let mut wrote = std::collections::BTreeSet::new();
            for _ in 0..600 {
                let page = random.below(pages);
                fx.vm.copy_in(space, page_at(page), &(mine + page).to_le_bytes()).unwrap();
                wrote.insert(page);
            }
            let grandchild = fx.vm.fork(space).unwrap();
            if random.one_in(2) {
                fx.vm.unmap(space, AT, pages / 3 * KIB4).unwrap();
            }
            for page in 0..pages {
                let want = if wrote.contains(&page) { mine + page } else { page };
                assert_eq!(fx.kernel_peek(&grandchild, page_at(page)), Ok(want));
            }
            fx.vm.exit(grandchild);
            fx.vm.deactivate();
        });
        fx.check(&spaces.iter().chain([&parent]).collect::<Vec<_>>());
        spaces.into_iter().for_each(|space| fx.vm.exit(space));
    }
    for page in 0..pages {
        assert_eq!(fx.kernel_peek(&parent, page_at(page)), Ok(page));
    }
    fx.end([parent]);
}
