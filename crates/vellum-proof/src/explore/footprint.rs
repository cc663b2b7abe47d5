//! The words that the CPUs of a world access, named alike in every run.
//!
//! Two schedules that order conflicting accesses alike end alike. So a preemption matters only
//! where a CPU is about to access what another CPU accesses, one of them for writing. Those words
//! are collected from every run, and [`search`](super::search) asks here.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// An access that is about to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// What is touched: see the functions that make one.
    pub line: u64,
    /// Whether it is written.
    pub write: bool,
}

const ENTRY: u64 = 1 << 60;
const PAGE: u64 = 2 << 60;
const TLB: u64 = 3 << 60;
const WORLD: u64 = 4 << 60;
const MEMORY: u64 = 5 << 60;
const PROGRAM: u64 = 6 << 60;

impl Touch {
    /// A word at an address of this process.
    pub fn word(address: usize, write: bool) -> Touch {
        let (world, bytes) = HERE.get();
        let line = match address.wrapping_sub(world) {
            offset if offset < bytes => WORLD | offset as u64,
            _ => LENT.with_borrow(|lent| {
                let found = lent
                    .iter()
                    .enumerate()
                    .find(|(_, (base, bytes))| address.wrapping_sub(*base) < *bytes);
                found.map_or(address as u64, |(n, (base, _))| {
                    MEMORY | (n as u64) << 48 | (address - base) as u64
                })
            }),
        };
        Touch { line, write }
    }
    /// An entry of a page table.
    pub fn entry(table: u64, slot: usize, write: bool) -> Touch {
        Touch { line: ENTRY | table << 9 | slot as u64, write }
    }
    /// What a page of data holds.
    pub fn page(frame: u64, write: bool) -> Touch {
        Touch { line: PAGE | frame, write }
    }
    /// What a CPU's TLB holds.
    pub fn tlb(cpu: usize, write: bool) -> Touch {
        Touch { line: TLB | cpu as u64, write }
    }
    /// A program's access: what it touches is known only when it is done.
    pub fn program() -> Touch {
        Touch { line: PROGRAM, write: true }
    }
}

thread_local! {
    /// The world that runs: where it lies, and its size.
    static HERE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Memory of the world beside it: where each piece lies, and its size.
    static LENT: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    static CPU: Cell<usize> = const { Cell::new(0) };
    static SEEN: RefCell<Seen> = RefCell::default();
}

/// CPUs a world may have.
const CPUS: usize = 8;

/// What is known of a line.
#[derive(Clone, Copy, Default)]
struct Line {
    /// The CPUs that read it and those that wrote it in any run, a bit for each.
    readers: u8,
    writers: u8,
    /// The run that what follows is of.
    run: u64,
    /// The write before, and the reads since: what came before each, as a number.
    write: u64,
    reads: u64,
}

/// The accesses of all CPUs so far.
#[derive(Default)]
struct Seen {
    collects: bool,
    lines: HashMap<u64, Line, Mixing>,
    run: u64,
    /// What came before each CPU's next access, as a number.
    past: [u64; CPUS],
    /// The pasts of runs that ended.
    ended: HashSet<u64, Mixing>,
}

fn mix(a: u64, b: u64) -> u64 {
    (a.rotate_left(23) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Hashes a few numbers. The numbers are not chosen by an adversary.
#[derive(Default)]
pub(super) struct Mixer(u64);

pub(super) type Mixing = BuildHasherDefault<Mixer>;

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = mix(self.0, u64::from(b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0, n);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

/// Memory that belongs to the world that is being made, in the same order in every run.
pub fn lend(base: usize, bytes: usize) {
    LENT.with_borrow_mut(|lent| lent.push((base, bytes)));
}

/// There is no world; the next one registers its memory anew.
pub fn forget_memory() {
    LENT.with_borrow_mut(Vec::clear);
}

/// A world in that memory is about to run.
pub(super) fn begin(world: usize, bytes: usize) {
    HERE.set((world, bytes));
    SEEN.with_borrow_mut(|seen| {
        seen.run += 1;
        seen.past = [0; CPUS];
    });
}

/// Whether a run ordered its conflicting accesses as an earlier one did, which then ended alike.
/// Asked once, when it ends.
pub(super) fn is_known() -> bool {
    SEEN.with_borrow_mut(|seen| {
        let past = seen.past.iter().fold(0, |all, &past| mix(all, past));
        seen.collects && !seen.ended.insert(past)
    })
}

pub(super) fn runs(cpu: usize) {
    CPU.set(cpu);
}

/// Notes an access of the CPU that runs.
#[inline]
pub fn note(touch: Touch) {
    SEEN.with_borrow_mut(|seen| {
        if seen.collects && super::is_explored() {
            let cpu = CPU.get();
            let past = &mut seen.past[cpu];
            let known = seen.lines.entry(touch.line).or_default();
            if known.run != seen.run {
                (known.run, known.write, known.reads) = (seen.run, 0, 0);
            }
            *past = mix(mix(*past, touch.line), known.write);
            if touch.write {
                known.writers |= 1 << cpu;
                *past = mix(*past, known.reads);
                (known.write, known.reads) = (*past, 0);
            } else {
                known.readers |= 1 << cpu;
                known.reads = known.reads.wrapping_add(*past);
            }
        }
    });
}

/// From here accesses are collected, those known so far forgotten.
pub(super) fn collect(collects: bool) {
    SEEN.with_borrow_mut(|seen| {
        seen.collects = collects;
        seen.lines.clear();
        seen.ended.clear();
    });
}

/// Whether another CPU is known to touch what `cpu` is about to, one of them writing.
pub(super) fn conflicts(cpu: u8, touch: Touch) -> bool {
    touch.line == PROGRAM
        || SEEN.with_borrow(|seen| {
            let others = !(1 << cpu);
            seen.lines.get(&touch.line).is_some_and(|known| {
                known.writers & others != 0 || touch.write && known.readers & others != 0
            })
        })
}
