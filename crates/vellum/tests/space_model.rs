//! Random sequences of verbs against a naive model: a map from page to rights and contents.
//!
//! The model knows nothing of tables, regions or frames, so whatever they do must come out as what it says. Both codecs, four
//! and five levels, every huge-page policy, with plenty of memory and with hardly any: then a verb may answer NoMemory, and
//! the model holds it to "nothing changed". Everything is recounted as it goes, and no frame may be missing at the end.

mod space_lab;

use std::collections::BTreeMap;

use space_lab::flat::{ARM_RULES, Flat, X86_RULES};
use space_lab::*;
use vellum::addr::{Order, Pfn, Va};
use vellum::config::{Config, Thp};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::error::{FaultError, NoMemory, SpaceError};
use vellum::machine::{MmuRules, Topology};
use vellum::space::{Access, Advice, Attrs, HugeAdvice, LeafSize, Page, Placement, Rights, Space};

/// xorshift64*: the same numbers everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Cell {
    rights: Rights,
    value: u64,
    exactly: bool,
}

/// A space and what it should be.
struct Side {
    space: Space,
    model: BTreeMap<u64, Cell>,
}

/// Verbs land in this window around a 1 GiB boundary, and a bit of it at a 512 GiB boundary.
const WINDOW: u64 = 8 << 20;
const CENTERS: [u64; 2] = [1 << 30, 1 << 39];

/// Where in a page its value lies.
const WORD: u64 = 2040;

struct Run<'l, C: Codec> {
    lab: &'l Lab<C>,
    dice: Dice,
    sides: Vec<Side>,
    scarce: bool,
    stamp: u64,
}

const RIGHTS: [Rights; 7] = [
    Rights::READ_WRITE,
    Rights::READ_WRITE,
    Rights::READ_WRITE,
    Rights::ALL,
    Rights::READ,
    Rights::READ_EXEC,
    Rights::NONE,
];

impl<C: Codec> Run<'_, C> {
    fn va(&mut self) -> u64 {
        let page = self.dice.below(WINDOW / KIB4);
        let page = if self.dice.below(3) == 0 { page & !511 } else { page };
        self.dice.pick(&CENTERS) - WINDOW / 2 + page * KIB4
    }
    fn bytes(&mut self) -> u64 {
        match self.dice.below(6) {
            0 | 1 => KIB4,
            2 | 3 => KIB4 * (1 + self.dice.below(20)),
            4 => MIB2 * (1 + self.dice.below(2)),
            _ => KIB4 * (1 + self.dice.below(1200)),
        }
    }
    /// A mapped page, mostly.
    fn spot(&mut self, at: usize) -> u64 {
        let va = self.va();
        let near = self.sides[at].model.range(va / KIB4..).next();
        match near {
            Some((page, _)) if self.dice.below(8) != 0 => page * KIB4,
            _ => va,
        }
    }
    /// A length that stays inside what is mapped from `va` on, mostly; whole 2 MiB now and then.
    fn stretch(&mut self, at: usize, va: u64) -> u64 {
        let bytes = self.bytes().min(self.lab.vm.user_end().0 - va);
        if self.dice.below(8) == 0 {
            return bytes;
        }
        let bytes = if va.is_multiple_of(MIB2) && self.dice.below(2) == 0 { MIB2 } else { bytes };
        let first = va / KIB4;
        let cells = self.sides[at].model.range(first..).zip(first..first + bytes / KIB4);
        let run = cells.take_while(|((page, _), want)| **page == *want).count() as u64;
        run.max(1) * KIB4
    }
    fn no_memory(&self) {
        assert!(self.scarce, "NoMemory with memory in plenty");
    }

    fn step(&mut self) {
        let at = self.dice.below(self.sides.len() as u64) as usize;
        match self.dice.below(40) {
            0..=4 => self.map(at),
            5 | 6 => self.unmap(at),
            7 | 8 => self.protect(at),
            9 | 10 => self.remap(at),
            11..=13 => self.advise(at),
            14 => self.fork(at),
            15 => self.exit(at),
            16..=19 => self.copy(at),
            20 => self.activate(at),
            _ => self.access(at),
        }
    }

    fn map(&mut self, at: usize) {
        let (va, mut bytes) = (self.va(), self.bytes());
        let exactly = self.dice.below(12) == 0;
        if exactly {
            bytes = MIB2;
        }
        let attrs = Attrs {
            rights: self.dice.pick(&RIGHTS),
            thp: self.dice.pick(&[None, None, Some(HugeAdvice::Huge), Some(HugeAdvice::NoHuge)]),
            numa: None,
            leaf: if exactly { LeafSize::Exactly(Order::HUGE) } else { LeafSize::Policy },
        };
        let side = &mut self.sides[at];
        let pages = va / KIB4..(va + bytes) / KIB4;
        let taken = side.model.range(pages.clone()).next().is_some();
        let placement = self.dice.pick(&[Placement::At(Va(va)), Placement::Replace(Va(va)), Placement::Anywhere]);
        let placement = if self.dice.below(2) == 0 { Placement::At(Va(va)) } else { placement };
        let done = self.lab.vm.map(&side.space, placement, bytes, attrs);
        if done == Err(SpaceError::NoMemory) {
            return self.no_memory();
        }
        let start = match placement {
            Placement::Anywhere => {
                let start = done.expect("a hole").0;
                assert!(start.is_multiple_of(if bytes >= MIB2 { MIB2 } else { KIB4 }));
                assert!(
                    side.model.range(start / KIB4..(start + bytes) / KIB4).next().is_none(),
                    "a place that is taken"
                );
                start
            }
            _ if exactly && va % MIB2 != 0 => return assert_eq!(done, Err(SpaceError::LeafSize)),
            Placement::At(_) if taken => return assert_eq!(done, Err(SpaceError::Occupied)),
            _ => {
                assert_eq!(done, Ok(Va(va)));
                va
            }
        };
        for page in start / KIB4..(start + bytes) / KIB4 {
            side.model.insert(page, Cell { rights: attrs.rights, value: 0, exactly });
        }
    }

    fn mapped(&self, at: usize, va: u64, bytes: u64) -> bool {
        self.sides[at].model.range(va / KIB4..(va + bytes) / KIB4).count() as u64 == bytes / KIB4
    }

    fn unmap(&mut self, at: usize) {
        let va = self.spot(at);
        let bytes = self.stretch(at, va);
        let side = &mut self.sides[at];
        match self.lab.vm.unmap(&side.space, Va(va), bytes) {
            Err(SpaceError::NoMemory) => self.no_memory(),
            done => {
                assert_eq!(done, Ok(()));
                side.model.retain(|&page, _| page < va / KIB4 || page >= (va + bytes) / KIB4);
            }
        }
    }

    fn protect(&mut self, at: usize) {
        let (va, rights) = (self.spot(at), self.dice.pick(&RIGHTS));
        let bytes = self.stretch(at, va);
        let mapped = self.mapped(at, va, bytes);
        let side = &mut self.sides[at];
        match self.lab.vm.protect(&side.space, Va(va), bytes, rights) {
            Err(SpaceError::NoMemory) => self.no_memory(),
            Err(SpaceError::Unmapped) => assert!(!mapped),
            done => {
                assert_eq!(done, Ok(()));
                assert!(mapped);
                for (_, cell) in side.model.range_mut(va / KIB4..(va + bytes) / KIB4) {
                    cell.rights = rights;
                }
            }
        }
    }

    fn remap(&mut self, at: usize) {
        let (va, to) = (self.spot(at), self.va());
        let (bytes, new_bytes) = (self.stretch(at, va), self.bytes());
        let new_bytes = if self.dice.below(2) == 0 { bytes } else { new_bytes };
        let mapped = self.mapped(at, va, bytes);
        let placement = self.dice.pick(&[
            Placement::At(Va(to)),
            Placement::Replace(Va(to)),
            Placement::Anywhere,
            Placement::At(Va(va)),
        ]);
        let side = &mut self.sides[at];
        let done = self.lab.vm.remap(&side.space, Va(va), bytes, new_bytes, placement);
        if !mapped {
            return assert!(matches!(done, Err(SpaceError::Unmapped | SpaceError::Range(_))), "{done:?}");
        }
        let model = &mut side.model;
        let overlap = to < va + bytes && va < to + new_bytes;
        let start = match done {
            Err(SpaceError::Range(_)) => {
                return assert!(placement == Placement::At(Va(va)) && va + new_bytes > self.lab.vm.user_end().0);
            }
            Err(SpaceError::NoMemory) => {
                // What was to be replaced, and a tail that was to be cut off, may be gone as a whole; nothing else.
                let mut may_be_gone = |start: u64, end: u64| {
                    let first = model.range(start / KIB4..end / KIB4).next().map(|(page, _)| page * KIB4);
                    if first.is_some_and(|va| self.lab.vm.query(&side.space, Va(va)) == Page::Unmapped) {
                        model.retain(|&page, _| page < start / KIB4 || page >= end / KIB4);
                    }
                };
                if matches!(placement, Placement::Replace(_)) {
                    may_be_gone(to, to + new_bytes);
                }
                if new_bytes < bytes {
                    may_be_gone(va + new_bytes, va + bytes);
                }
                return self.no_memory();
            }
            Err(SpaceError::LeafSize) => {
                let (_, last) = model.range(..(va + bytes) / KIB4).next_back().expect("a last page");
                return assert!(last.exactly);
            }
            Err(SpaceError::Occupied) => {
                return match placement {
                    Placement::At(to) if to.0 != va => {
                        let taken = model.range(to.0 / KIB4..(to.0 + new_bytes) / KIB4).next().is_some();
                        assert!(taken || overlap);
                    }
                    Placement::At(_) => {
                        assert!(model.range((va + bytes) / KIB4..(va + new_bytes) / KIB4).next().is_some());
                    }
                    _ => assert!(overlap),
                };
            }
            done => done.expect("a mapping that can be moved").0,
        };
        let last = *model.range(..(va + bytes) / KIB4).next_back().expect("a last page").1;
        let old: Vec<(u64, Cell)> = model.range(va / KIB4..(va + bytes) / KIB4).map(|(&p, &c)| (p, c)).collect();
        model.retain(|&page, _| page < va / KIB4 || page >= (va + bytes) / KIB4);
        let new = start / KIB4..(start + new_bytes) / KIB4;
        match placement {
            Placement::Replace(_) => model.retain(|page, _| !new.contains(page)),
            _ => assert!(model.range(new.clone()).next().is_none(), "a place that is taken"),
        }
        for i in 0..new_bytes / KIB4 {
            let cell = old.get(i as usize).map_or(Cell { value: 0, ..last }, |(_, cell)| *cell);
            model.insert(start / KIB4 + i, cell);
        }
    }

    fn advise(&mut self, at: usize) {
        let va = self.spot(at);
        let va = if self.dice.below(2) == 0 { va & !(MIB2 - 1) } else { va };
        let bytes = self.stretch(at, va);
        let mapped = self.mapped(at, va, bytes);
        let advice = self.dice.pick(&[
            Advice::DontNeed,
            Advice::DontNeed,
            Advice::Huge,
            Advice::NoHuge,
            Advice::Collapse,
            Advice::Collapse,
            Advice::Populate { write: false },
            Advice::Populate { write: true },
        ]);
        let side = &mut self.sides[at];
        match self.lab.vm.advise(&side.space, Va(va), bytes, advice) {
            Err(SpaceError::NoMemory) => {
                // Only a huge page may be missing where base pages are left: memory in pieces.
                if advice != Advice::Collapse {
                    let exact = side.model.values().any(|cell| cell.exactly);
                    assert!(self.scarce || exact, "NoMemory with memory in plenty");
                }
            }
            Err(SpaceError::Unmapped) => assert!(!mapped),
            Err(SpaceError::Rights) => {
                let Advice::Populate { write } = advice else { panic!("{advice:?} was told of rights") };
                let access = if write { Access::Write } else { Access::Read };
                let cells = side.model.range(va / KIB4..(va + bytes) / KIB4);
                assert!(cells.map(|(_, cell)| cell).any(|cell| !cell.rights.allows(access)));
            }
            done => {
                assert_eq!(done, Ok(()));
                assert!(mapped);
                if advice == Advice::DontNeed {
                    for (_, cell) in side.model.range_mut(va / KIB4..(va + bytes) / KIB4) {
                        cell.value = 0;
                    }
                }
            }
        }
    }

    fn fork(&mut self, at: usize) {
        if self.sides.len() >= 4 {
            return self.exit(at);
        }
        match self.lab.vm.fork(&self.sides[at].space) {
            Err(NoMemory) => self.no_memory(),
            Ok(space) => {
                let model = self.sides[at].model.clone();
                self.sides.push(Side { space, model });
            }
        }
    }

    fn exit(&mut self, at: usize) {
        if self.sides.len() > 1 {
            self.lab.vm.exit(self.sides.swap_remove(at).space);
        }
    }

    fn activate(&mut self, at: usize) {
        if self.dice.below(4) == 0 { self.lab.vm.idle() } else { self.lab.vm.activate(&self.sides[at].space) }
    }

    fn judge(&self, cell: Option<Cell>, access: Access, error: FaultError) {
        match (cell, error) {
            (None, FaultError::Unmapped) => {}
            (Some(cell), FaultError::Rights) => assert!(!cell.rights.allows(access), "{access:?} refused by {cell:?}"),
            (Some(cell), FaultError::NoMemory) => {
                assert!(self.scarce || cell.exactly, "NoMemory with memory in plenty")
            }
            (cell, error) => panic!("{access:?} of {cell:?} got {error:?}"),
        }
    }

    fn access(&mut self, at: usize) {
        let va = self.spot(at);
        self.stamp += 1;
        let side = &mut self.sides[at];
        let cell = side.model.get(&(va / KIB4)).copied();
        match self.dice.below(5) {
            0 => {
                if let Err(error) = self.lab.vm.fault(&side.space, Va(va), Access::Exec) {
                    self.judge(cell, Access::Exec, error);
                }
            }
            1 => match self.lab.peek(&side.space, Va(va + WORD)) {
                Ok(value) => assert_eq!(Some(value), cell.map(|cell| cell.value), "at {va:#x}"),
                Err(error) => self.judge(cell, Access::Read, error),
            },
            _ => match self.lab.poke(&side.space, Va(va + WORD), self.stamp) {
                Ok(()) => {
                    let cell = side.model.get_mut(&(va / KIB4)).expect("a page that was written is mapped");
                    assert!(cell.rights.write);
                    cell.value = self.stamp;
                }
                Err(error) => self.judge(cell, Access::Write, error),
            },
        }
    }

    /// The kernel's way to the same word.
    fn copy(&mut self, at: usize) {
        let va = self.spot(at);
        let side = &mut self.sides[at];
        let cell = side.model.get(&(va / KIB4)).copied();
        let mut bytes = [0; 8];
        match self.lab.vm.copy_out(&side.space, Va(va + WORD), &mut bytes) {
            Ok(()) => assert_eq!(Some(u64::from_le_bytes(bytes)), cell.map(|cell| cell.value)),
            Err(error) => return self.judge(cell, Access::Read, error),
        }
        self.stamp += 1;
        match self.lab.vm.copy_in(&side.space, Va(va + WORD), &self.stamp.to_le_bytes()) {
            Ok(()) => side.model.get_mut(&(va / KIB4)).expect("mapped").value = self.stamp,
            Err(error) => self.judge(cell, Access::Write, error),
        }
    }

    /// Every page of the windows says what the model says.
    fn compare(&self) {
        for side in &self.sides {
            for center in CENTERS {
                for page in (center - WINDOW / 2) / KIB4..(center + 2 * WINDOW) / KIB4 {
                    let seen = self.lab.vm.query(&side.space, Va(page * KIB4));
                    let cell = side.model.get(&page);
                    let rights = match seen {
                        Page::Unmapped => None,
                        Page::Reserved { rights } | Page::Mapped { rights, .. } => Some(rights),
                        Page::Parked { .. } => Some(Rights::NONE),
                    };
                    assert_eq!(rights, cell.map(|cell| cell.rights), "page {:#x}", page * KIB4);
                    let value = match seen {
                        Page::Mapped { .. } => self.lab.peek(&side.space, Va(page * KIB4 + WORD)).expect("present"),
                        Page::Reserved { .. } => 0,
                        _ => continue,
                    };
                    assert_eq!(Some(value), cell.map(|cell| cell.value), "contents of page {:#x}", page * KIB4);
                }
            }
            assert_eq!(self.lab.vm.usage(&side.space).mapped_pages, side.model.len() as u64);
        }
        let spaces: Vec<&Space> = self.sides.iter().map(|side| &side.space).collect();
        self.lab.check(&spaces);
    }
}

fn run<C: Codec>(rules: MmuRules, config: Config, frames: u64, seed: u64, steps: u64) {
    let machine = Flat::<C>::new(Topology::flat(2, Pfn(512), frames), rules);
    let lab = lab_on(machine, config);
    let start = lab.vm.create().expect("a first space");
    let before = {
        lab.vm.exit(start);
        lab.free(&[])
    };
    let sides = vec![Side { space: lab.vm.create().expect("a space"), model: BTreeMap::new() }];
    let mut run = Run { lab: &lab, dice: Dice(seed | 1 << 40), sides, scarce: frames < 1 << 13, stamp: 0 };
    for step in 0..steps {
        run.step();
        if step % 8 == 0 {
            let spaces: Vec<&Space> = run.sides.iter().map(|side| &side.space).collect();
            lab.check(&spaces);
        }
        if step % 64 == 63 {
            run.compare();
        }
    }
    run.compare();
    lab.vm.idle();
    for side in run.sides {
        lab.vm.exit(side.space);
    }
    assert_eq!(lab.free(&[]), before, "frames that did not come back");
    assert_eq!(lab.vm.machine().preempt_depth(), 0);
}

fn config(thp: Thp, zero_page: bool, tlb_batch: bool) -> Config {
    Config { thp, zero_page, tlb_batch, ..Config::default() }
}

const PLENTY: u64 = 1 << 16;

#[test]
fn x86_with_base_pages_does_what_the_model_does() {
    for seed in 1..7 {
        run::<X86_64>(X86_RULES, config(Thp::Never, true, true), PLENTY, seed, 600);
    }
}

#[test]
fn x86_with_huge_pages_does_what_the_model_does() {
    for seed in 11..19 {
        run::<X86_64>(X86_RULES, config(Thp::Always, seed % 2 == 0, true), PLENTY, seed, 600);
    }
}

#[test]
fn x86_with_pcid_advice_and_single_flushes_does_what_the_model_does() {
    let rules = MmuRules { contexts: 4096, ..X86_RULES };
    for seed in 21..27 {
        run::<X86_64>(rules, config(Thp::Advise, true, false), PLENTY, seed, 600);
    }
}

#[test]
fn five_levels_do_what_the_model_does() {
    let rules = MmuRules { levels: 5, ..X86_RULES };
    for seed in 31..35 {
        run::<X86_64>(rules, config(Thp::Always, true, true), PLENTY, seed, 600);
    }
}

#[test]
fn aarch64_does_what_the_model_does() {
    for seed in 41..49 {
        let rules = MmuRules { hardware_ad: seed % 2 == 0, ..ARM_RULES };
        run::<Aarch64>(rules, config(Thp::Always, seed % 3 != 0, true), PLENTY, seed, 600);
    }
}

#[test]
fn with_hardly_any_memory_verbs_refuse_and_change_nothing() {
    for (seed, frames) in (51..75).zip([100, 200, 400, 700, 1100, 1600, 2100, 3000].into_iter().cycle()) {
        run::<X86_64>(X86_RULES, config(Thp::Always, seed % 2 == 0, true), frames, seed, 500);
        run::<Aarch64>(ARM_RULES, config(Thp::Never, true, seed % 2 == 0), frames, seed + 100, 500);
    }
}
