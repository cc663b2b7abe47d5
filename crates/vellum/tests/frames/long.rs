//! Long runs of one kind: churn that never leaves one block, so that what the allocator counts
//! there comes to more than its field could hold.
//!
//! Every second piece of a block is held, the rest of memory too: what is taken fits exactly, so no
//! search ever has a reason to look at the block again, and what comes back is counted late or not
//! at all. Every run ends with everything recounted, and the count of free frames is compared all
//! the way.

use crate::flat::{Flat, Meta};
use vellum::addr::{Order, Pfn};
use vellum::machine::{Machine, MmuRules, Topology, Use};
use vellum::unstable::{Frames, Want};

/// Frames of a block.
const BLOCK: u64 = 512;
/// Blocks there are: the one churned in, and one whose frames fill stacks.
const BLOCKS: u64 = 2;
/// More frames than any field of the allocator could count that is no word of its own.
const LONG: u64 = 1 << 16;
/// Frames that fill a CPU's stack, so that what is freed next goes straight to its block.
const STACK: usize = 64;

struct Rig {
    frames: Frames,
    m: Flat,
    _meta: Meta,
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

impl Rig {
    fn new(cpus: usize) -> Rig {
        let m = Flat::hollow(Topology::flat(cpus, Pfn(0), BLOCKS * BLOCK), MmuRules::X86_64);
        let meta = Meta::new(Frames::layout(m.topology()).unwrap());
        // SAFETY: zeroed memory of that layout, kept beside the value.
        let frames = unsafe { Frames::new(m.topology(), meta.base()) }.unwrap();
        Rig { frames, m, _meta: meta }
    }

    fn take(&self, o: u8) -> Option<Pfn> {
        self.frames.alloc(&self.m, order(o), &Want::kernel(Use::Table)).ok()
    }

    fn give(&self, pfn: Pfn, o: u8) {
        // SAFETY: the test took it, and gives it back once.
        unsafe { self.frames.free(&self.m, pfn, order(o)) };
    }

    fn check(&self, held: u64) {
        assert_eq!(self.frames.free_frames(0), BLOCKS * BLOCK - held, "free frames, {held} held");
    }

    /// Everything recounted, with so many frames held.
    fn recount(&self, held: u64) {
        self.check(held);
        // SAFETY: one thread, which is in no other call.
        let counts = unsafe { self.frames.validate(&self.m) }.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((counts.used, counts.pending), (held, 0));
    }
}

/// A block of whose pieces of one order every second one is held, and nothing free elsewhere.
struct Checkerboard {
    r: Rig,
    o: u8,
    /// What is held of the block, and the frames of the other one.
    held: Vec<Pfn>,
    rest: Vec<Pfn>,
}

impl Checkerboard {
    fn new(cpus: usize, o: u8) -> Checkerboard {
        let r = Rig::new(cpus);
        let all: Vec<Pfn> = std::iter::from_fn(|| r.take(o)).collect();
        assert_eq!(all.len() as u64, (BLOCKS * BLOCK) >> o);
        let (block, rest): (Vec<Pfn>, Vec<Pfn>) = all.into_iter().partition(|pfn| pfn.0 < BLOCK);
        let (held, free): (Vec<Pfn>, Vec<Pfn>) =
            block.into_iter().partition(|pfn| pfn.0 >> o & 1 == 1);
        free.into_iter().for_each(|pfn| r.give(pfn, o));
        r.frames.drain(&r.m);
        let rest = rest.into_iter().flat_map(|pfn| (0..1 << o).map(move |i| pfn.add(i))).collect();
        let board = Checkerboard { r, o, held, rest };
        board.r.recount(board.frames_held());
        board
    }

    /// Fills the stack of the CPU that runs, by frames of the other block.
    fn fill_stack(&mut self) {
        let from = self.rest.len() - STACK;
        self.rest.drain(from..).for_each(|pfn| self.r.give(pfn, 0));
    }

    fn frames_held(&self) -> u64 {
        ((self.held.len() as u64) << self.o) + self.rest.len() as u64
    }

    /// Everything comes back, and memory is whole again.
    fn end(self) {
        let Checkerboard { r, o, held, rest } = self;
        held.into_iter().for_each(|pfn| r.give(pfn, o));
        rest.into_iter().for_each(|pfn| r.give(pfn, 0));
        r.recount(0);
        r.frames.drain(&r.m);
        r.recount(0);
        for _ in 0..BLOCKS {
            assert!(r.take(9).is_some(), "a block is not whole though all of it is free");
        }
        r.recount(BLOCKS * BLOCK);
    }
}

/// How what was taken comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Back {
    /// As it was taken.
    Whole,
    /// Frame by frame.
    Singles,
}

/// Takes pieces of the free half of a block and gives them back, `most` at a time at most, until
/// [`LONG`] frames came back.
fn churn(o: u8, cpus: usize, back: Back, most: u64) {
    println!("order {o}, {cpus} CPUs, back {back:?}, {most} at a time");
    let mut board = Checkerboard::new(cpus, o);
    let giver = cpus - 1;
    board.r.m.run_on(giver);
    board.fill_stack();
    let (mut came_back, mut had, mut at_once) = (0, vec![], 0);
    while came_back < LONG {
        // Another number each time, so that the steps fall into no rhythm with what is taken at
        // once.
        at_once = at_once * 5 % most + 1;
        board.r.m.run_on(0);
        had.extend((0..at_once).map_while(|_| board.r.take(o)));
        assert!(!had.is_empty(), "nothing is to be had though half a block is free");
        board.r.check(board.frames_held() + ((had.len() as u64) << o));
        board.r.m.run_on(giver);
        for pfn in had.drain(..) {
            came_back += 1 << o;
            match back {
                Back::Whole => board.r.give(pfn, o),
                Back::Singles => (0..1 << o).for_each(|i| board.r.give(pfn.add(i), 0)),
            }
        }
        board.r.check(board.frames_held());
    }
    board.r.recount(board.frames_held());
    board.r.m.run_on(0);
    board.end();
}

/// By the CPU that took them, then by another one.
const GIVERS: [usize; 2] = [1, 2];

#[test]
fn singles_of_a_checkerboard_come_back_without_end() {
    for cpus in GIVERS {
        for most in [1, 100, 192] {
            churn(0, cpus, Back::Singles, most);
        }
    }
}

#[test]
fn larger_pieces_of_a_checkerboard_come_back_without_end() {
    for cpus in GIVERS {
        for o in 1..=8 {
            let free = (BLOCK / 2) >> o;
            for most in [1, free / 2, free - 1] {
                churn(o, cpus, Back::Whole, most.max(1));
            }
        }
    }
}

#[test]
fn larger_pieces_of_a_checkerboard_come_back_frame_by_frame_without_end() {
    for cpus in GIVERS {
        for o in 1..=8 {
            let free = (BLOCK / 2) >> o;
            for most in [1, free / 2, free - 1] {
                churn(o, cpus, Back::Singles, most.max(1));
            }
        }
    }
}
