//! Long runs of one kind: churn that never leaves one block, so that what the allocator counts
//! there comes to more than its field could hold.
//!
//! Every second sub-block of a block is held, the rest of memory too: what is taken fits exactly,
//! so no search ever has a reason to look at the block again, and what comes back is counted late
//! or not at all. Every run ends with everything recounted, and the count of free frames is
//! compared all the way.

use std::ops::Deref;

use vellum_testkit::prelude::*;

/// Frames of a block.
const BLOCK: u64 = 512;

/// Blocks there are: the one under test, and one whose frames fill magazines.
const BLOCKS: u64 = 2;

/// More frames than any packed field of the allocator could count.
const LONG: u64 = 1 << 16;

/// Frames that fill a CPU's magazine, so that the next free goes straight to the block.
const STACK: usize = 64;

/// Frames, and a count of them.
struct Counted(FramesFixture);

impl Deref for Counted {
    type Target = FramesFixture;
    fn deref(&self) -> &FramesFixture {
        &self.0
    }
}

impl Counted {
    fn new(cpus: usize) -> Counted {
        let topology = Topology::flat(cpus, Pfn(0), BLOCKS * BLOCK);
        Counted(FramesFixture::new(Flat::hollow(topology, MmuRules::X86_64)))
    }

    fn check(&self, held: u64) {
        assert_eq!(self.frames.free_frames(0), BLOCKS * BLOCK - held, "free frames, {held} held");
    }

    /// Everything recounted, with so many frames held.
    fn recount(&self, held: u64) {
        self.check(held);
        let counts = self.counts();
        assert_eq!((counts.used, counts.pending), (held, 0));
    }
}

/// A block of which every second sub-block of one order is held; nothing is free elsewhere.
struct Checkerboard {
    fx: Counted,
    o: u8,
    /// What is held of the block, and the frames of the other block.
    held: Vec<Pfn>,
    rest: Vec<Pfn>,
}

impl Checkerboard {
    fn new(cpus: usize, o: u8) -> Checkerboard {
        let fx = Counted::new(cpus);
        let all = fx.take_all(o);
        assert_eq!(all.len() as u64, (BLOCKS * BLOCK) >> o);
        let (block, rest): (Vec<Pfn>, Vec<Pfn>) = all.into_iter().partition(|pfn| pfn.0 < BLOCK);
        let (held, free): (Vec<Pfn>, Vec<Pfn>) =
            block.into_iter().partition(|pfn| pfn.0 >> o & 1 == 1);
        fx.free_all(free, o);
        fx.frames.drain(&fx.m);
        let rest = rest.into_iter().flat_map(|pfn| (0..1 << o).map(move |i| pfn.add(i))).collect();
        let board = Checkerboard { fx, o, held, rest };
        board.fx.recount(board.frames_held());
        board
    }

    /// Fills the magazine of the current CPU with frames of the other block.
    fn fill_stack(&mut self) {
        let from = self.rest.len() - STACK;
        self.fx.0.free_all(self.rest.drain(from..), 0);
    }

    fn frames_held(&self) -> u64 {
        ((self.held.len() as u64) << self.o) + self.rest.len() as u64
    }

    /// Everything comes back, and memory is whole again.
    fn end(self) {
        let Checkerboard { fx, o, held, rest } = self;
        fx.free_all(held, o);
        fx.free_all(rest, 0);
        fx.recount(0);
        fx.frames.drain(&fx.m);
        fx.recount(0);
        let whole = fx.take_all(9).len() as u64;
        assert_eq!(whole, BLOCKS, "blocks that are whole though all of each is free");
        fx.recount(BLOCKS * BLOCK);
    }
}

/// How the test frees what it allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Back {
    /// As it was allocated.
    Whole,
    /// Frame by frame.
    Singles,
}

/// Allocates sub-blocks of the free half of a block and frees them, `most` at a time at most, until
/// [`LONG`] frames were freed.
fn churn(o: u8, cpus: usize, back: Back, most: u64) {
    println!("order {o}, {cpus} CPUs, back {back:?}, {most} at a time");
    let mut board = Checkerboard::new(cpus, o);
    let giver = cpus - 1;
    board.fx.m.run_on(giver);
    board.fill_stack();
    let (mut came_back, mut had, mut at_once) = (0, vec![], 0);
    while came_back < LONG {
        // Another number each time, so that the steps follow no pattern.
        at_once = at_once * 5 % most + 1;
        board.fx.m.run_on(0);
        had.extend((0..at_once).map_while(|_| board.fx.alloc(o).ok()));
        assert!(!had.is_empty(), "nothing is to be had though half a block is free");
        board.fx.check(board.frames_held() + ((had.len() as u64) << o));
        board.fx.m.run_on(giver);
        for pfn in had.drain(..) {
            came_back += 1 << o;
            match back {
                Back::Whole => board.fx.free(pfn, o),
                Back::Singles => (0..1 << o).for_each(|i| board.fx.free(pfn.add(i), 0)),
            }
        }
        board.fx.check(board.frames_held());
    }
    board.fx.recount(board.frames_held());
    board.fx.m.run_on(0);
    board.end();
}

/// Freed by the CPU that allocated them, then by another one.
const GIVERS: [usize; 2] = [1, 2];

#[test]
fn frames_of_a_checkerboard_are_freed_without_end() {
    for cpus in GIVERS {
        for most in [1, 100, 192] {
            churn(0, cpus, Back::Singles, most);
        }
    }
}

/// Each order between a frame and a block, a few ways to take what is free of it.
fn churn_sub_blocks(back: Back) {
    for cpus in GIVERS {
        for o in 1..=8 {
            let free = (BLOCK / 2) >> o;
            for most in [1, free / 2, free - 1] {
                churn(o, cpus, back, most.max(1));
            }
        }
    }
}

#[test]
fn sub_blocks_of_a_checkerboard_are_freed_without_end() {
    churn_sub_blocks(Back::Whole);
}

#[test]
fn sub_blocks_of_a_checkerboard_are_freed_frame_by_frame_without_end() {
    churn_sub_blocks(Back::Singles);
}
