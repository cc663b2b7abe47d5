//! Two protocols of `vellum::frame`, stated as models with its orderings: a block's words against its closing, and a magazine's lock against an
//! emptier. The heads of `frame/block.rs` and `frame/magazine.rs` argue what is tried here.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{AtomicU32, AtomicU64};
use crate::model;

const FREE: u32 = 0;
const OPEN: u32 = 1;
const LARGE: u32 = 2;
const CLOSING: u32 = 4;
const SEALED: u32 = 5;

/// A block of two words, and whose its frames are: a cell for each word's first frame, written by who has it.
struct Block {
    state: AtomicU32,
    words: [AtomicU64; 2],
    frames: [UnsafeCell<u32>; 2],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Block {}

/// Open, with the first frame of word 0 taken.
fn block() -> Arc<Block> {
    let words = [AtomicU64::new(1), AtomicU64::new(0)];
    let block = Block { state: AtomicU32::new(OPEN), words, frames: [UnsafeCell::new(0), UnsafeCell::new(0)] };
    block.state.load(Relaxed);
    assert_eq!(block.words[0].load(Relaxed) + block.words[1].load(Relaxed), 1);
    Arc::new(block)
}

impl Block {
    fn owns(&self, word: usize) {
        // SAFETY: the frame was handed out to this thread; loom sees it if it was to another, too.
        self.frames[word].with_mut(|frame| unsafe { *frame += 1 });
    }

    /// Takes the first frame of a word.
    fn take(&self, word: usize) -> bool {
        if self.state.load(Relaxed) != OPEN || self.words[word].compare_exchange(0, 1, SeqCst, Relaxed).is_err() {
            return false;
        }
        if matches!(self.state.load(SeqCst), OPEN | CLOSING) {
            return true;
        }
        self.give(word);
        false
    }

    fn give(&self, word: usize) {
        if self.words[word].fetch_and(!1, SeqCst) == 1 {
            self.close();
        }
    }

    fn close(&self) {
        loop {
            if self.state.load(SeqCst) != OPEN || self.words.iter().any(|w| w.load(SeqCst) != 0) {
                return;
            }
            if self.state.compare_exchange(OPEN, CLOSING, SeqCst, Relaxed).is_err() {
                return;
            }
            let locked = self.words.iter().take_while(|w| w.compare_exchange(0, !0, SeqCst, Relaxed).is_ok()).count();
            if locked == 2 {
                self.state.store(SEALED, Release);
            }
            self.words[..locked].iter().for_each(|w| w.store(0, SeqCst));
            if locked == 2 {
                return self.state.store(FREE, Release);
            }
            self.state.store(OPEN, SeqCst);
        }
    }

    /// Takes the block whole.
    fn take_whole(&self) -> bool {
        self.state.load(Relaxed) == FREE && self.state.compare_exchange(FREE, LARGE, SeqCst, Relaxed).is_ok()
    }
}

#[test]
fn a_frame_of_a_block_that_is_closed_and_had_whole_is_not_had_a_second_time() {
    for word in 0..2 {
        model(move || {
            let b = block();
            let taker = thread::spawn({
                let b = b.clone();
                move || {
                    let got = b.take(word);
                    if got {
                        b.owns(word);
                    }
                    got
                }
            });
            // The last frame comes back, the block is closed, and had whole.
            b.give(0);
            let whole = b.take_whole();
            if whole {
                (0..2).for_each(|word| b.owns(word));
            }
            let got = taker.join().expect("the taker");
            assert!(!(whole && got), "a frame was had twice");
            if !whole && !got {
                assert!(b.take_whole(), "an empty block stays open");
            }
        });
    }
}

#[test]
fn two_takers_of_one_word_do_not_get_the_same_frame() {
    model(|| {
        let b = block();
        let other = thread::spawn({
            let b = b.clone();
            move || b.take(1).then(|| b.owns(1)).is_some()
        });
        let mine = b.take(1).then(|| b.owns(1)).is_some();
        assert!(mine != other.join().expect("the other"));
    });
}

/// A stack behind a swap that takes and a store that gives back.
struct Magazine {
    lock: AtomicU32,
    len: AtomicU32,
    slot: AtomicU32,
    frame: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Magazine {}

impl Magazine {
    /// In the library a plain store. loom would let the store come before the write of a failed exchange that it came after, which atomicity
    /// forbids and leaves the lock taken for ever; an exchange has its place.
    fn unlock(&self) {
        self.lock.swap(0, Release);
    }

    /// What an allocation and what an emptier do: neither waits.
    fn pop(&self) -> bool {
        if self.lock.swap(1, Acquire) != 0 {
            return false;
        }
        let len = self.len.load(Relaxed);
        let got = len != 0 && {
            self.len.store(len - 1, Relaxed);
            self.slot.load(Relaxed) == 7
        };
        self.unlock();
        if got {
            // SAFETY: the frame is this thread's; loom sees it if another has it, too.
            self.frame.with_mut(|frame| unsafe { *frame += 1 });
        }
        got
    }
}

#[test]
fn a_frame_in_a_magazine_goes_to_its_cpu_or_to_the_emptier() {
    model(|| {
        let (lock, len, slot) = (AtomicU32::new(1), AtomicU32::new(0), AtomicU32::new(0));
        let m = Arc::new(Magazine { lock, len, slot, frame: UnsafeCell::new(0) });
        assert_eq!(m.lock.load(Relaxed) + m.len.load(Relaxed) + m.slot.load(Relaxed), 1);
        let emptier = thread::spawn({
            let m = m.clone();
            move || m.pop()
        });
        // The owner holds it, puts a frame in, gives the lock back, and wants the frame again.
        m.slot.store(7, Relaxed);
        m.len.store(1, Relaxed);
        m.unlock();
        let mine = m.pop();
        let other = emptier.join().expect("the emptier");
        assert!(!(mine && other), "the frame was had twice");
        assert!(mine || other || m.pop(), "the frame is lost");
    });
}
