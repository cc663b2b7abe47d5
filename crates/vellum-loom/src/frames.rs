//! The allocator: a frame has one owner, a freed frame is found again, and an owner's writes happen
//! before those of the next owner.

use crate::addr::{Order, Pfn};
use crate::atomic::contents;
use crate::fixture::{Memory, model, race};
use crate::frame::{AllocRequest, Frames};
use crate::machine::{Topology, Use};
use crate::machines::{OneCpu, preempted};
use crate::sync::Token;

const CPUS: [OneCpu; 2] = [OneCpu(0), OneCpu(1)];
const DATA: AllocRequest = AllocRequest::kernel(Use::Data);
const BLOCK: u64 = 512;
/// A magazine with so many frames takes no more.
const FULL: usize = 64;
const BASE: Order = Order::BASE;
const HUGE: Order = Order::HUGE;

const fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

/// Two CPUs, the frames of one node, and the blocks of them that are allocated.
struct Fixture {
    frames: Frames,
    had: Vec<(Pfn, Order)>,
}

impl Fixture {
    fn new(memory: &mut Memory, frames: u64) -> Fixture {
        let topology = Topology::flat(2, Pfn(0), frames);
        let layout = Frames::layout(&topology).expect("a layout");
        // SAFETY: zeroed memory of that layout, which is never freed.
        let frames = unsafe { Frames::new(&topology, memory.take(layout)) }.expect("frames");
        Fixture { frames, had: vec![] }
    }

    /// A CPU allocates `n` blocks, which are noted in the order of their addresses.
    fn with(mut self, cpu: usize, n: usize, order: Order) -> Fixture {
        let take = |_| self.frames.alloc(&CPUS[cpu], order, &DATA).expect("a frame");
        let mut taken: Vec<_> = (0..n).map(take).map(|pfn| (pfn, order)).collect();
        taken.sort_unstable();
        self.had.extend(taken);
        self
    }

    /// A CPU frees the blocks noted from number `at` on.
    fn without(mut self, cpu: usize, at: usize) -> Fixture {
        for (pfn, order) in self.had.drain(at..) {
            self.frames.give_back(&CPUS[cpu], pfn, order);
        }
        self
    }

    /// A CPU allocates `n` frames and has a full magazine: what it frees goes to the 2 MiB block.
    fn with_full(self, cpu: usize, n: usize) -> Fixture {
        let before = self.had.len();
        self.with(cpu, n + FULL, BASE).without(cpu, before + n)
    }

    /// Everything that CPUs keep goes back to the 2 MiB blocks, and nobody claims one.
    fn drained(self) -> Fixture {
        self.frames.drain(&CPUS[0]);
        self
    }

    /// Writes the block noted as number `which`, and frees it.
    fn free(&self, cpu: usize, which: usize) {
        let (pfn, order) = self.had[which];
        self.write(pfn, order);
        self.frames.give_back(&CPUS[cpu], pfn, order);
    }

    /// Allocates a block and writes it.
    fn take(&self, cpu: usize, order: Order) -> Option<Pfn> {
        let got = self.frames.alloc(&CPUS[cpu], order, &DATA).ok()?;
        self.write(got, order);
        Some(got)
    }

    /// Of a block, only frames with which a noted block begins are observed.
    fn write(&self, first: Pfn, order: Order) {
        let had = self.had.iter().map(|had| had.0.0);
        let within = had.filter(|pfn| pfn.wrapping_sub(first.0) < order.frames());
        within.for_each(|pfn| contents(pfn, true));
    }

    /// So many frames are allocated, and everything adds up.
    fn check(&self, used: u64) {
        // SAFETY: one thread is left.
        let counts = unsafe { self.frames.validate(&CPUS[0]) }.expect("frames in order");
        assert_eq!(counts.used, used, "{counts:?}");
    }

    /// No frame is allocated, and all of them can be.
    fn check_free(&self, blocks: usize) {
        self.check(0);
        self.frames.drain(&CPUS[0]);
        self.check(0);
        let all = (0..blocks).map_while(|_| self.frames.alloc(&CPUS[0], HUGE, &DATA).ok());
        assert_eq!(all.count(), blocks, "blocks all of whose frames came back are not free");
    }
}

#[test]
fn frames_that_two_cpus_give_to_one_word_are_both_free() {
    // Two more are freed at once: the block is dirty, so each free is a lock, a word and an unlock.
    let fixture = |memory: &mut Memory| {
        let fixture = Fixture::new(memory, BLOCK).with_full(1, 2);
        fixture.with_full(0, 3).without(0, 4)
    };
    model(3, fixture, |fixture| {
        race(|| fixture.free(0, 2), || fixture.free(1, 1));
        fixture.check(2);
    });
}

#[test]
fn a_frame_goes_from_cpu_to_cpu_through_its_block() {
    let fixture = |memory: &mut Memory| Fixture::new(memory, FULL as u64 + 5).with_full(0, 3);
    model(3, fixture, |fixture| {
        let (_, got) = race(|| fixture.free(0, 2), || fixture.take(1, BASE));
        assert!(got.is_some(), "frames are free all the time");
        fixture.check(3);
    });
}

/// One 2 MiB block in pieces of an order, every second of which is allocated. Nobody claims it. A
/// freed piece merges, so no CPU keeps it.
fn checkered(memory: &mut Memory, order: Order) -> Fixture {
    let n = (BLOCK / order.frames()) as usize;
    let mut fixture = Fixture::new(memory, BLOCK).with(0, n, order);
    fixture.had.sort_by_key(|had| had.0.0 / order.frames() % 2);
    fixture.without(0, n / 2).drained()
}

fn quarters(memory: &mut Memory) -> Fixture {
    checkered(memory, order(7))
}

#[test]
fn what_comes_back_beside_a_sweep_is_found() {
    model(
        3,
        |memory| checkered(memory, order(6)),
        |fixture| {
            let sweeps = || {
                fixture.free(1, 2);
                fixture.frames.drain(&CPUS[1]);
            };
            race(|| (0..2).for_each(|which| fixture.free(0, which)), sweeps);
            fixture.check(64);
            fixture.free(0, 3);
            fixture.check_free(1);
        },
    );
}

#[test]
fn the_last_that_come_back_to_a_block_close_it_once() {
    model(3, quarters, |fixture| {
        race(|| fixture.free(0, 0), || fixture.free(1, 1));
        fixture.check_free(1);
    });
}

#[test]
fn a_block_that_was_closed_is_had_whole() {
    model(
        2,
        |memory| quarters(memory).without(0, 1),
        |fixture| {
            let (_, got) = race(|| fixture.free(0, 0), || fixture.take(1, HUGE));
            fixture.check(if got.is_some() { BLOCK } else { 0 });
        },
    );
}

#[test]
fn a_block_whose_claim_is_given_up_is_closed_or_found() {
    // The first CPU claims the block; half of it is allocated.
    model(
        3,
        |memory| Fixture::new(memory, BLOCK).with(0, 1, order(8)),
        |fixture| {
            race(|| fixture.frames.drain(&CPUS[0]), || fixture.free(1, 0));
            fixture.check_free(1);
        },
    );
}

#[test]
fn room_of_one_block_is_noted_while_that_of_its_neighbour_goes() {
    // A half of the first block is free and nothing of the second. The second CPU keeps a half of
    // the third, and so keeps no other.
    let fixture = |memory: &mut Memory| {
        let fixture =
            Fixture::new(memory, 3 * BLOCK).with(0, 1, order(8)).with(1, 2, order(8)).drained();
        fixture.with(1, 2, order(8)).without(1, 4)
    };
    model(3, fixture, |fixture| {
        race(|| fixture.take(0, order(8)), || fixture.free(1, 1));
        fixture.check(2 * BLOCK);
    });
}

/// A closed block leaves its bits in rows behind. A CPU that searches a row clears such a bit
/// without a lock. If another CPU opens the block meanwhile and relies on the bit, the first one
/// sets it again.
#[test]
fn room_of_a_block_that_is_opened_is_noted_while_its_old_note_is_cleared() {
    // The first CPU fills its magazine from a free quarter of its block. Half of the second CPU's
    // block is allocated.
    let fixture = |memory: &mut Memory| {
        let mut fixture = Fixture::new(memory, 3 * BLOCK).with(0, 4, order(7)).with(1, 1, order(8));
        fixture.had.swap(3, 4);
        fixture.without(0, 4).drained()
    };
    model(2, fixture, |fixture| {
        let others = || {
            let again = || {
                fixture.free(1, 3);
                fixture.take(1, order(8))
            };
            race(|| fixture.take(0, order(8)), again);
        };
        preempted(others, || assert!(fixture.take(0, BASE).is_some()));
        // SAFETY: one thread is left.
        unsafe { fixture.frames.validate(&CPUS[0]) }.expect("frames in order");
    });
}

#[test]
fn room_of_a_block_that_is_split_is_noted_while_its_old_note_is_cleared() {
    // The second CPU allocated a 2 MiB block that was open before. The first one keeps a half of
    // another block, and so keeps no other.
    let fixture = |memory: &mut Memory| {
        let opened = Fixture::new(memory, 3 * BLOCK).with(1, 1, order(8)).drained();
        let fixture = opened.without(1, 0).with(1, 1, HUGE);
        fixture.with(0, 2, order(8)).without(0, 2)
    };
    model(3, fixture, |fixture| {
        let split = || {
            let (large, _) = fixture.had[0];
            // SAFETY: the block is this fixture's, and whole.
            unsafe { fixture.frames.split(&CPUS[0], large, HUGE, BASE) };
            fixture.frames.give_back(&CPUS[0], large, order(8));
        };
        race(split, || fixture.take(1, order(8)));
        // SAFETY: one thread is left.
        unsafe { fixture.frames.validate(&CPUS[0]) }.expect("frames in order");
    });
}

#[test]
fn a_frame_in_a_magazine_goes_to_its_cpu_or_to_who_empties_it() {
    model(
        2,
        |memory| Fixture::new(memory, 512).with(0, 2, BASE).drained(),
        |fixture| {
            let own = || {
                fixture.free(0, 0);
                fixture.free(0, 1);
                fixture.take(0, BASE)
            };
            race(own, || fixture.frames.drain(&CPUS[1]));
            fixture.check(1);
        },
    );
}

#[test]
fn large_blocks_go_from_cpu_to_cpu() {
    model(
        3,
        |memory| Fixture::new(memory, 2 * BLOCK).with(0, 1, order(10)),
        |fixture| {
            let (_, got) = race(|| fixture.free(0, 0), || fixture.take(1, order(10)));
            fixture.check(if got.is_some() { 2 * BLOCK } else { 0 });
        },
    );
}

#[test]
fn frames_that_waited_for_a_flush_are_freed_once() {
    model(
        3,
        |memory| Fixture::new(memory, 2).with(0, 2, BASE),
        |fixture| {
            let retire = || {
                fixture.had.iter().enumerate().for_each(|(i, &(pfn, order))| {
                    contents(pfn.0, true);
                    // SAFETY: taken by this fixture, and given up once.
                    unsafe {
                        fixture.frames.retire(&CPUS[0], &mut Token::top(), pfn, order, i as u64)
                    };
                });
            };
            let complete = || {
                // SAFETY: nobody has a translation of them.
                let freed = unsafe { fixture.frames.complete(&CPUS[1], &mut Token::top(), 1) };
                let got = fixture.take(1, BASE);
                assert_eq!(got.is_some(), freed != 0, "a frame is free before its flush is done");
                freed
            };
            let (_, freed) = race(retire, complete);
            fixture.check(u64::from(freed != 0));
            // SAFETY: as above.
            let left = unsafe { fixture.frames.complete(&CPUS[0], &mut Token::top(), 1) };
            assert_eq!(freed + left, 2);
            fixture.check(u64::from(freed != 0));
        },
    );
}
