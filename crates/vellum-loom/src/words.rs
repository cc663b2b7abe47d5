//! Two protocols of `vellum::frame`, stated as models with its orderings: a block's lock and what is put aside, and a magazine's word. The heads
//! of `frame/block.rs`, `frame/sweep.rs` and `frame/magazine.rs` argue what is tried here.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{AtomicU32, AtomicU64};
use crate::model;

const FREE: u32 = 0;
const OPEN: u32 = 1;
const KIND: u32 = 7;
const LOCKED: u32 = 1 << 4;

/// An open block of two frames, and their contents: written by who has the frame, so loom sees a frame that two have.
struct Block {
    state: AtomicU32,
    word: AtomicU64,
    aside: AtomicU64,
    /// The row that says which blocks are dirty.
    dirty: AtomicU64,
    /// The busy bit of its hint.
    busy: AtomicU64,
    frames: [UnsafeCell<u32>; 2],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Block {}

impl Block {
    /// With those frames taken.
    fn new(taken: u64) -> Arc<Block> {
        let (word, aside, dirty, busy) =
            (AtomicU64::new(taken), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(1));
        let frames = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let block = Block { state: AtomicU32::new(OPEN), word, aside, dirty, busy, frames };
        assert_eq!(block.state.load(Relaxed), OPEN);
        assert_eq!(block.word.load(Relaxed) + block.aside.load(Relaxed) + block.dirty.load(Relaxed), taken);
        assert_eq!(block.busy.load(Relaxed), 1);
        Arc::new(block)
    }

    fn uses(&self, frame: usize) {
        // SAFETY: the frame is this thread's; loom sees it if it is another's, too.
        self.frames[frame].with_mut(|contents| unsafe { *contents += 1 });
    }

    fn lock(&self) -> bool {
        let state = self.state.load(Relaxed);
        state & (KIND | LOCKED) == OPEN && self.state.compare_exchange(state, state | LOCKED, Acquire, Relaxed).is_ok()
    }

    /// Gives the lock back, and closes the block if it is empty.
    fn leave(&self) {
        if self.word.load(Relaxed) != 0 {
            return self.state.store(OPEN, Release);
        }
        self.state.store(FREE, Release);
        self.busy.fetch_and(0, SeqCst);
    }

    /// Takes a frame, if one is free and nobody has the lock.
    fn take(&self) -> Option<usize> {
        if !self.lock() {
            return None;
        }
        let word = self.word.load(Relaxed);
        let got = (0..2).find(|frame| word >> frame & 1 == 0);
        if let Some(frame) = got {
            self.word.store(word | 1 << frame, Relaxed);
        }
        self.leave();
        got
    }

    fn give(&self, frame: usize) {
        if !self.lock() {
            self.aside.fetch_or(1 << frame, SeqCst);
            self.dirty.fetch_or(1, SeqCst);
            return;
        }
        self.word.store(self.word.load(Relaxed) & !(1 << frame), Relaxed);
        self.leave();
    }

    fn sweep(&self) {
        if self.dirty.load(SeqCst) == 0 || !self.lock() {
            return;
        }
        self.dirty.fetch_and(0, SeqCst);
        if self.aside.load(SeqCst) != 0 {
            self.word.store(self.word.load(Relaxed) & !self.aside.swap(0, SeqCst), Relaxed);
        }
        self.leave();
    }

    /// Takes the block whole, if it is free.
    fn take_whole(&self) -> bool {
        self.busy.compare_exchange(0, 1, SeqCst, Relaxed).is_ok()
    }
}

#[test]
fn a_frame_that_comes_back_is_had_by_one_and_never_lost() {
    model(|| {
        // Frame 0 is the giver's, frame 1 nobody's.
        let b = Block::new(1);
        let taker = thread::spawn({
            let b = b.clone();
            move || {
                let got = b.take();
                got.into_iter().for_each(|frame| b.uses(frame));
                b.sweep();
                got
            }
        });
        b.uses(0);
        b.give(0);
        let got = taker.join().expect("the taker");
        // What is left over comes back, and everything is found.
        got.into_iter().for_each(|frame| b.give(frame));
        b.sweep();
        assert!(
            b.take_whole(),
            "a frame is lost: {:#b} taken, {:#b} aside",
            b.word.load(Relaxed),
            b.aside.load(Relaxed)
        );
        (0..2).for_each(|frame| b.uses(frame));
    });
}

#[test]
fn two_that_give_the_last_frames_back_close_the_block_once() {
    model(|| {
        let b = Block::new(0b11);
        let other = thread::spawn({
            let b = b.clone();
            move || {
                b.uses(1);
                b.give(1);
                b.sweep();
            }
        });
        b.uses(0);
        b.give(0);
        b.sweep();
        let whole = b.take_whole();
        if whole {
            (0..2).for_each(|frame| b.uses(frame));
        }
        other.join().expect("the other");
        b.sweep();
        assert!(whole || b.take_whole(), "two frames came back and the block is not free");
    });
}

#[test]
fn two_takers_do_not_get_the_same_frame() {
    model(|| {
        let b = Block::new(0b10);
        let other = thread::spawn({
            let b = b.clone();
            move || b.take().map(|frame| b.uses(frame)).is_some()
        });
        let mine = b.take().map(|frame| b.uses(frame)).is_some();
        assert!(!(mine && other.join().expect("the other")));
    });
}

const HELD: u64 = 1 << 63;

/// A stack of at most one frame behind a word that is length and lock.
struct Magazine {
    word: AtomicU64,
    slot: AtomicU32,
    frame: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Magazine {}

impl Magazine {
    fn lock(&self, word: u64) -> bool {
        word & HELD == 0 && self.word.compare_exchange(word, word | HELD, Acquire, Relaxed).is_ok()
    }

    /// What an allocation and what an emptier do: neither waits.
    fn pop(&self) -> bool {
        let word = self.word.load(Relaxed);
        if word == 0 || !self.lock(word) {
            return false;
        }
        let index = self.slot.load(Relaxed);
        self.word.store(word - 1, Release);
        assert_eq!(index, 7, "a slot was read that nobody wrote");
        // SAFETY: the frame is this thread's; loom sees it if another has it, too.
        self.frame.with_mut(|frame| unsafe { *frame += 1 });
        true
    }

    fn push(&self) -> bool {
        let word = self.word.load(Relaxed);
        if word != 0 || !self.lock(word) {
            return false;
        }
        self.slot.store(7, Relaxed);
        self.word.store(word + 1, Release);
        true
    }
}

#[test]
fn a_frame_in_a_magazine_goes_to_its_cpu_or_to_the_emptier() {
    model(|| {
        let m = Arc::new(Magazine { word: AtomicU64::new(0), slot: AtomicU32::new(0), frame: UnsafeCell::new(0) });
        assert_eq!(m.word.load(Relaxed) + m.slot.load(Relaxed) as u64, 0);
        let emptier = thread::spawn({
            let m = m.clone();
            move || m.pop()
        });
        // The owner frees the frame, and wants it again.
        // SAFETY: the frame is the owner's so far.
        m.frame.with_mut(|frame| unsafe { *frame += 1 });
        let kept = m.push();
        let mine = kept && m.pop();
        let other = emptier.join().expect("the emptier");
        assert!(kept, "nobody else pushes, so nobody can have been in the way");
        assert!(!(mine && other), "the frame was had twice");
        assert!(mine || other || m.pop(), "the frame is lost");
    });
}
