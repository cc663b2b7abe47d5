//! Random sequences of verbs and accesses on the tiny machine against a naive model of contents.
//!
//! The model is a map from page to rights and, for each line, the version that the last store left
//! there. Four CPUs take part, one act at a time, each with its own TLBs: so every stale
//! translation that a verb leaves behind is used sooner or later, and either the oracle stops or a
//! load sees a version it must not. Everything is under walk checking.

use std::collections::BTreeMap;
use vellum_testkit::ext::VmExt;

use crate::common::{MmuKind, options, parts, seeds};
use vellum::addr::Va;
use vellum::config::Config;
use vellum::error::SpaceError;
use vellum::machine::Use;
use vellum::space::{Access, Advice, Attrs, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::schedule::Rng;
use vellum_sim::{Check, Cpu, Kind, Meta, Program, SimMachine, Stop};

const PAGE: u64 = 4096;
/// Verbs land in this window across a 1 GiB boundary.
const START: u64 = (1 << 30) - (3 << 20);
const PAGES: u64 = 6 << 8;

#[derive(Clone, PartialEq, Debug)]
struct Page {
    rights: Rights,
    lines: BTreeMap<u64, u64>,
}

struct Side {
    space: Space,
    pages: BTreeMap<u64, Page>,
}

struct Game<'r, 'a, F: Format> {
    vm: &'r Vm<SimMachine<F>>,
    cpu: &'r Cpu<'a, F>,
    rng: Rng,
    sides: Vec<Side>,
    /// What each CPU runs: the number of a side.
    running: [Option<usize>; 4],
    refused: u64,
    done: u64,
}

const RIGHTS: [Rights; 6] = [
    Rights::READ_WRITE,
    Rights::READ_WRITE,
    Rights::READ_WRITE,
    Rights::READ,
    Rights::READ_EXEC,
    Rights::NONE,
];

impl<F: Format> Game<'_, '_, F> {
    fn range(&mut self) -> (u64, u64) {
        let mut first = self.rng.below(PAGES);
        let mut count = match self.rng.below(4) {
            0 => 1,
            1 => 1 + self.rng.below(8),
            2 => 512,
            _ => 1 + self.rng.below(700),
        };
        if self.rng.one_in(3) {
            first &= !511;
            count = count.next_multiple_of(512);
        }
        (START / PAGE + first, count.min(PAGES - first))
    }

    /// A range, most often one that starts in something mapped.
    fn mapped_range(&mut self, s: usize) -> (u64, u64) {
        let (first, count) = self.range();
        let n = self.rng.below(self.sides[s].pages.len().max(1) as u64) as usize;
        match self.sides[s].pages.keys().nth(n) {
            Some(&page) if !self.rng.one_in(4) => {
                (page, count.min(1 + self.rng.below(40)).min(START / PAGE + PAGES - page).max(1))
            }
            _ => (first, count),
        }
    }

    fn whole(&self, s: usize, first: u64, count: u64) -> bool {
        (first..first + count).all(|p| self.sides[s].pages.contains_key(&p))
    }

    fn step(&mut self) {
        if self.sides.is_empty() {
            let space = self.vm.create().expect("memory");
            self.sides.push(Side { space, pages: BTreeMap::new() });
        }
        let s = self.rng.below(self.sides.len() as u64) as usize;
        let id = self.rng.below(4) as usize;
        let cpu = self.cpu;
        match self.rng.below(40) {
            0..=3 => cpu.script(id, |_| self.map(s)),
            4..=5 => cpu.script(id, |_| self.unmap(s)),
            6..=8 => cpu.script(id, |_| self.protect(s)),
            9..=10 => cpu.script(id, |_| self.advise(s)),
            11 => cpu.script(id, |_| self.remap(s)),
            12 if self.sides.len() < 4 => cpu.script(id, |_| self.fork(s)),
            13 if self.rng.one_in(3) => self.exit(s),
            14..=16 => cpu.script(id, |_| {
                self.vm.activate(&self.sides[s].space);
                self.running[id] = Some(s);
            }),
            17 => cpu.script(id, |_| {
                self.vm.deactivate();
                self.running[id] = None;
            }),
            _ => (0..12).for_each(|_| self.access(id)),
        }
    }

    fn map(&mut self, s: usize) {
        let (first, count) = self.range();
        let rights = RIGHTS[self.rng.below(6) as usize];
        let replace = self.rng.one_in(3);
        let at = Va(first * PAGE);
        let place = if replace { Placement::Replace(at) } else { Placement::At(at) };
        let side = &mut self.sides[s];
        let occupied = (first..first + count).any(|p| side.pages.contains_key(&p));
        match self.vm.map(&side.space, place, count * PAGE, Attrs::anonymous(rights)) {
            Ok(va) => {
                assert!(va == at && (replace || !occupied), "mapped over something");
                for p in first..first + count {
                    side.pages.insert(p, Page { rights, lines: BTreeMap::new() });
                }
            }
            Err(SpaceError::Occupied) => assert!(occupied && !replace),
            Err(SpaceError::NoMemory) => self.refused += 1,
            Err(e) => panic!("map: {e}"),
        }
    }

    fn unmap(&mut self, s: usize) {
        let (first, count) = self.mapped_range(s);
        let side = &mut self.sides[s];
        match self.vm.unmap(&side.space, Va(first * PAGE), count * PAGE) {
            Ok(()) => side.pages.retain(|p, _| !(first..first + count).contains(p)),
            Err(SpaceError::NoMemory) => self.refused += 1,
            Err(e) => panic!("unmap: {e}"),
        }
    }

    fn protect(&mut self, s: usize) {
        let (first, count) = self.mapped_range(s);
        let rights = RIGHTS[self.rng.below(6) as usize];
        let whole = self.whole(s, first, count);
        let side = &mut self.sides[s];
        match self.vm.protect(&side.space, Va(first * PAGE), count * PAGE, rights) {
            Ok(()) => {
                assert!(whole, "protected a hole");
                side.pages.range_mut(first..first + count).for_each(|(_, p)| p.rights = rights);
            }
            Err(SpaceError::Unmapped) => assert!(!whole),
            Err(SpaceError::NoMemory) => self.refused += 1,
            Err(e) => panic!("protect: {e}"),
        }
    }

    fn advise(&mut self, s: usize) {
        let (first, count) = self.mapped_range(s);
        let write = self.rng.one_in(2);
        let advice = match self.rng.below(5) {
            0 | 1 => Advice::DontNeed,
            2 => Advice::Huge,
            3 => Advice::Collapse,
            _ => Advice::Populate { write },
        };
        let whole = self.whole(s, first, count);
        let side = &mut self.sides[s];
        let allowed = side
            .pages
            .range(first..first + count)
            .all(|(_, p)| p.rights.allows(if write { Access::Write } else { Access::Read }));
        match self.vm.advise(&side.space, Va(first * PAGE), count * PAGE, advice) {
            Ok(()) => {
                assert!(whole || matches!(advice, Advice::Populate { .. }), "advised about a hole");
                if advice == Advice::DontNeed {
                    side.pages.range_mut(first..first + count).for_each(|(_, p)| p.lines.clear());
                }
            }
            Err(SpaceError::Unmapped) => assert!(!whole),
            Err(SpaceError::Rights) => {
                assert!(!allowed && matches!(advice, Advice::Populate { .. }))
            }
            Err(SpaceError::NoMemory) => self.refused += 1,
            Err(e) => panic!("advise: {e}"),
        }
    }

    fn remap(&mut self, s: usize) {
        let (old, count) = self.mapped_range(s);
        let (new, _) = self.range();
        let apart = new + count <= old || old + count <= new;
        let fits = new + count <= START / PAGE + PAGES;
        let hole = (new..new + count).all(|p| !self.sides[s].pages.contains_key(&p));
        if !apart || !fits || !self.whole(s, old, count) {
            return;
        }
        let side = &mut self.sides[s];
        match self.vm.remap(
            &side.space,
            Va(old * PAGE),
            count * PAGE,
            count * PAGE,
            Placement::At(Va(new * PAGE)),
        ) {
            Ok(va) => {
                assert!(hole && va.0 == new * PAGE, "moved over something");
                for n in 0..count {
                    let page = side.pages.remove(&(old + n)).expect("it was mapped");
                    side.pages.insert(new + n, page);
                }
            }
            Err(SpaceError::Occupied) => assert!(!hole),
            Err(SpaceError::NoMemory) => self.refused += 1,
            Err(e) => panic!("remap: {e}"),
        }
    }

    fn fork(&mut self, s: usize) {
        match self.vm.fork(&self.sides[s].space) {
            Ok(space) => {
                let pages = self.sides[s].pages.clone();
                self.sides.push(Side { space, pages });
            }
            Err(_) => self.refused += 1,
        }
    }

    fn exit(&mut self, s: usize) {
        for id in 0..4 {
            if self.running[id] == Some(s) {
                self.cpu.script(id, |_| self.vm.deactivate());
                self.running[id] = None;
            } else if self.running[id] == Some(self.sides.len() - 1) {
                self.running[id] = Some(s);
            }
        }
        let side = self.sides.swap_remove(s);
        self.vm.exit(side.space);
    }

    fn access(&mut self, id: usize) {
        let Some(s) = self.running[id] else { return };
        let page = self.mapped_range(s).0;
        let line = self.rng.below(64);
        let kind = if self.rng.one_in(2) { Kind::Store } else { Kind::Load };
        let (vm, side) = (self.vm, &mut self.sides[s]);
        let result = self.cpu.script(id, |cpu| {
            let access = if kind == Kind::Store { Access::Write } else { Access::Read };
            let mut p =
                Program::new(cpu, |va, _| vm.fault(&side.space, Va(va), access).map(|_| ()));
            p.access(page * PAGE + line * 64, 8, kind, false)
        });
        let allowed = side
            .pages
            .get_mut(&page)
            .filter(|p| if kind == Kind::Store { p.rights.write } else { !p.rights.is_none() });
        match (result, allowed) {
            (Ok(seen), Some(page)) if kind == Kind::Store => {
                page.lines.insert(line, seen.0);
                self.done += 1;
            }
            (Ok(seen), Some(page)) => {
                assert_eq!(
                    seen.0,
                    page.lines.get(&line).copied().unwrap_or(1),
                    "a load saw another store"
                );
                self.done += 1;
            }
            (Err(vellum::error::FaultError::NoMemory), _) => self.refused += 1,
            (Err(_), None) => {}
            (r, allowed) => panic!("{kind:?} of page {page:#x}: {r:?}, the model says {allowed:?}"),
        }
    }
}

fn game<F: Format>(mmu: MmuKind, seed: u64, thp: &str) -> Result<u64, Stop> {
    let sim = SimMachine::<F>::build(&parts(mmu), options(Check::Walk)).expect("tiny can be built");
    let meta = Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).expect("memory");
    let mut config = Config::default();
    config.set("thp", thp).expect("a value");
    // SAFETY: zero memory of the layout asked for; it outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let done = vm.machine().solo(0, |cpu| {
        let mut g = Game {
            vm: &vm,
            cpu,
            rng: Rng::new(seed),
            sides: Vec::new(),
            running: [None; 4],
            refused: 0,
            done: 0,
        };
        for n in 0..300 {
            g.step();
            if n % 64 == 63 {
                let all: Vec<&Space> = g.sides.iter().map(|s| &s.space).collect();
                vm.audit(&all).expect("everything adds up");
                for side in &g.sides {
                    let usage = vm.usage(&side.space);
                    assert!(
                        usage.rss_pages <= side.pages.len() as u64,
                        "more resident than mapped"
                    );
                }
            }
        }
        while !g.sides.is_empty() {
            g.exit(0);
        }
        g.done
    })?;
    vm.machine().audit(Some(0))?;
    vm.audit(&[]).expect("everything adds up");
    assert_eq!(vm.machine().frames_in(Use::Data), 0);
    assert_eq!(vm.machine().frames_in(Use::Table), 0);
    Ok(done)
}

#[test]
fn random_verbs_and_accesses_agree_with_a_naive_model_under_every_set_of_habits() {
    let mut done = 0;
    for seed in seeds(10) {
        for mmu in [MmuKind::X86, MmuKind::Pcid, MmuKind::Arm] {
            for thp in ["never", "advise", "always"] {
                let r = if mmu == MmuKind::Arm {
                    game::<Arm>(mmu, seed, thp)
                } else {
                    game::<X86>(mmu, seed, thp)
                };
                done += r.unwrap_or_else(|stop| panic!("{mmu:?} seed {seed} thp={thp}\n{stop}"));
            }
        }
    }
    assert!(done > 10_000, "only {done} accesses went through");
}
