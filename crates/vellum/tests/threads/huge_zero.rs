//! The huge page of zeros under a shrinker: statement D-6, 100,000 iterations in all.
//!
//! Threads make spaces, read zeros, write over them, fork, end each other's children and a space
//! they have in common, and let the shrinker loose, all at once. What they write is no zero, so a
//! page of zeros that went back to the allocator under a user shows as what another thread left in
//! its frames.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use vellum_testkit::prelude::*;

const CPUS: usize = 4;

/// What is mapped of each space.
const BYTES: u64 = 2 * MIB2;

/// What all threads have.
struct Ground<C: Codec> {
    fx: Fixture<C>,
    /// A space in which all of them read and write, while there is one.
    common: RwLock<Option<Space>>,
    /// Children whose parents went on; whoever comes by ends them.
    orphans: Mutex<Vec<Space>>,
    done: AtomicU64,
    /// Times the page of zeros went and was made anew by the thread that let it go.
    renewed: AtomicU64,
}

/// One thread.
struct Player<'g, C: Codec> {
    ground: &'g Ground<C>,
    cpu: usize,
    random: Random,
    own: Option<Space>,
    /// What its own space holds, by word: what was written, else zeros.
    wrote: Vec<(u64, u64)>,
}

impl<C: Codec> Player<'_, C> {
    fn create(&self) -> Space {
        self.ground.fx.mapped(Va(GIB), BYTES, RW)
    }

    fn word(&mut self) -> u64 {
        GIB + self.random.below(BYTES / 8) * 8
    }

    /// Looks at a word of a space nobody else writes to, and, where the huge page of zeros is
    /// mapped, at that.
    fn look(&self, space: &Space, at: u64, wrote: &[(u64, u64)]) {
        let vm = &self.ground.fx.vm;
        let expect = wrote.iter().rev().find(|w| w.0 == at).map_or(0, |w| w.1);
        assert_eq!(self.ground.fx.peek(space, Va(at)), Ok(expect), "at {at:#x}, CPU {}", self.cpu);
        if let Page::Mapped { pfn, level: Level::TWO, zero: true, .. } = vm.query(space, Va(at)) {
            // This space holds it, so it is what it is, and stays.
            assert_eq!(vm.huge_zero(), Some(pfn));
            assert!(vm.is_zero(pfn.add(511)) && vm.huge_zero_references() >= 2);
            let mut bytes = [0xff; 4096];
            vm.machine().peek(pfn.add(at / 4096 % 512), 0, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 0), "zeros at {at:#x} that are none");
        }
    }

    fn step(&mut self) {
        let ground = self.ground;
        let vm = &ground.fx.vm;
        match self.random.below(16) {
            0..=4 => {
                let space = self.own.take().unwrap_or_else(|| self.create());
                vm.activate(&space);
                let at = self.word();
                self.look(&space, at, &self.wrote);
                vm.deactivate();
                // Most spaces are short-lived, or there always is one that holds the page.
                if !self.random.one_in(4) {
                    vm.exit(space);
                    self.wrote.clear();
                } else {
                    self.own = Some(space);
                }
            }
            5 => {
                let at = self.word();
                if let Some(space) = self.own.take() {
                    ground.fx.poke(&space, Va(at), at).expect("memory");
                    self.wrote.push((at, at));
                    let other = self.word();
                    self.look(&space, other, &self.wrote);
                    self.own = Some(space);
                }
            }
            6 => {
                if let Some(space) = &self.own {
                    let child = vm.fork(space).expect("memory");
                    self.look(&child, self.wrote.last().map_or(GIB, |w| w.0), &self.wrote);
                    let mut orphans = ground.orphans.lock().unwrap();
                    orphans.push(child);
                    let first = (orphans.len() > 2).then(|| orphans.remove(0));
                    drop(orphans);
                    first.into_iter().for_each(|orphan| vm.exit(orphan));
                }
            }
            7..=9 => {
                self.own.take().into_iter().for_each(|space| vm.exit(space));
                self.wrote.clear();
                let orphans = std::mem::take(&mut *ground.orphans.lock().unwrap());
                orphans.into_iter().for_each(|orphan| vm.exit(orphan));
            }
            10 => {
                // Ends it or, less often, replaces it.
                let fresh = self.random.one_in(8);
                let mut common = ground.common.write().unwrap();
                common.take().into_iter().for_each(|space| vm.exit(space));
                *common = fresh.then(|| self.create());
            }
            11 | 12 => {
                let at = (self.word() & !63) + 8 * self.cpu as u64;
                let write = self.random.one_in(16);
                let common = ground.common.read().unwrap();
                if let Some(space) = &*common {
                    vm.activate(space);
                    let seen = ground.fx.kernel_peek(space, Va(at)).expect("memory");
                    assert!(seen == 0 || seen == at, "{seen:#x} at {at:#x}");
                    if write {
                        vm.copy_in(space, Va(at), &at.to_le_bytes()).expect("memory");
                        assert_eq!(ground.fx.kernel_peek(space, Va(at)), Ok(at));
                    }
                    vm.deactivate();
                }
            }
            _ => {
                let gone = vm.shrink_zeros();
                assert!(gone == 0 || gone == 512);
                if gone != 0 && self.own.is_none() {
                    // After release the next read fault reallocates.
                    let space = self.create();
                    assert_eq!(vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
                    assert!(vm.huge_zero().is_some() && vm.huge_zero_references() >= 2);
                    self.look(&space, GIB + 8, &[]);
                    ground.renewed.fetch_add(1, Ordering::Relaxed);
                    self.own = Some(space);
                }
            }
        }
        assert!(self.own.is_none() || vm.huge_zero().is_some() || !self.wrote.is_empty());
    }
}

fn churn<C: Arch>(iterations: u64) {
    let fx = fixture_of::<C>(CPUS, 32 * 512, with_zeros(ZeroHuge::Page));
    let ground = Ground {
        fx,
        common: RwLock::new(None),
        orphans: Mutex::default(),
        done: AtomicU64::new(0),
        renewed: AtomicU64::new(0),
    };
    on_cpus(0..CPUS, |cpu| {
        jitter(1 + cpu as u64);
        let (ground, random) = (&ground, Random::new(cpu as u64));
        let mut player = Player { ground, cpu, random, own: None, wrote: Vec::new() };
        while ground.done.fetch_add(1, Ordering::Relaxed) < iterations {
            player.step();
        }
        player.own.take().into_iter().for_each(|space| ground.fx.vm.exit(space));
    });
    let Ground { fx, common, orphans, renewed, .. } = ground;
    let common = common.into_inner().unwrap();
    fx.end_zeros(common.into_iter().chain(orphans.into_inner().unwrap()));
    let (made, gone) = (fx.count(Counter::ThpZeroAlloc), fx.count(Counter::ThpZeroRelease));
    assert_eq!(made, gone, "nobody is left to hold one");
    assert_eq!((fx.vm.huge_zero(), fx.vm.huge_zero_references()), (None, 0));
    let renewed = renewed.into_inner();
    let enough = gone as u64 > iterations / 200 && renewed > iterations / 400;
    assert!(enough, "it did go and come: {gone}, {renewed}");
    let gauges = [Counter::AnonPages, Counter::AnonHuge, Counter::TablePages];
    assert_eq!(gauges.map(|gauge| fx.count(gauge)), [0; 3]);
    // Every frame but the base zeros is free again: none was lost, none is in two places.
    let audit = fx.vm.audit(&[]).expect("a valid state");
    let used = [audit.zero_frames, audit.data_frames, audit.table_frames, audit.other_frames];
    assert_eq!(used, [1, 0, 0, 0]);
    assert_eq!(fx.take_all(Order::HUGE).len() as u64, 31, "and whole");
}

#[test]
fn d_06_100000_iterations_of_churn_by_four_threads_leak_nothing_and_use_nothing_that_was_freed() {
    churn::<X86_64>(50_000);
    churn::<Aarch64>(50_000);
}
