//! The allocator and the locks under real threads: no frame is had twice, none is lost, nobody
//! looks at freed memory.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::thread;

use crate::flat::{Flat, FrameHands, Meta, flat};
use vellum::addr::{Order, Pfn};
use vellum::config::NumaPolicy;
use vellum::machine::{Machine, MmuRules, NodeInfo, Topology, Use};
use vellum::unstable::{Busy, Epochs, Frames, Lock, Node, SeqCount, Token, Want};

const CPUS: usize = 4;

struct Rig {
    frames: Frames,
    m: Flat,
    _meta: Meta,
}

fn rig_on(m: Flat) -> Rig {
    let meta = Meta::new(Frames::layout(m.topology()).unwrap());
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let frames = unsafe { Frames::new(m.topology(), meta.base()) }.unwrap();
    Rig { frames, m, _meta: meta }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Each thread takes and gives at random; a byte per frame says whether someone has it.
fn churn(
    r: &Rig,
    first: u64,
    frames: u64,
    steps: u64,
    cpu_of: fn(usize) -> usize,
    orders: &'static [u8],
) {
    let owned: Vec<AtomicU8> = (0..frames).map(|_| AtomicU8::new(0)).collect();
    let take = |pfn: Pfn, o: u8| {
        for f in pfn.0..pfn.0 + (1 << o) {
            assert_eq!(
                owned[(f - first) as usize].swap(1, Ordering::AcqRel),
                0,
                "frame {f} had twice"
            );
        }
    };
    let give = |pfn: Pfn, o: u8| {
        for f in pfn.0..pfn.0 + (1 << o) {
            assert_eq!(owned[(f - first) as usize].swap(0, Ordering::AcqRel), 1);
        }
    };
    let order = |o: u8| Order::new(o).unwrap();
    thread::scope(|s| {
        for t in 0..CPUS {
            let (take, give) = (&take, &give);
            s.spawn(move || {
                r.m.run_on(cpu_of(t));
                let mut random = Random(t as u64 * 77 + 1);
                let mut held: Vec<(Pfn, u8)> = vec![];
                let mut top = Token::top();
                for step in 0..steps {
                    // Waves, so that memory runs out and comes back.
                    let filling = step / 300 % 2 == 0;
                    if held.is_empty() || random.below(10) < if filling { 7 } else { 3 } {
                        let o = orders[random.below(orders.len() as u64) as usize];
                        let policy = match random.below(3) {
                            0 => NumaPolicy::Local,
                            1 => NumaPolicy::Interleave,
                            _ => NumaPolicy::Prefer(1),
                        };
                        if let Ok(pfn) = r.frames.alloc(
                            &r.m,
                            order(o),
                            &Want { policy, index: step, use_: Use::Data },
                        ) {
                            take(pfn, o);
                            held.push((pfn, o));
                        }
                    } else {
                        let (pfn, o) = held.swap_remove(random.below(held.len() as u64) as usize);
                        give(pfn, o);
                        match random.below(8) {
                            0 if o >= 9 => {
                                r.frames.cut(&r.m, pfn, order(o), Order::BASE);
                                (0..1 << o)
                                    .for_each(|i| r.frames.put(&r.m, pfn.add(i), Order::BASE));
                            }
                            1 => r.frames.retire_at(&r.m, &mut top, (pfn, order(o)), step),
                            _ => r.frames.put(&r.m, pfn, order(o)),
                        }
                    }
                    if step % 64 == 0 {
                        r.frames.completed(&r.m, &mut top, step);
                    }
                    if step % 997 == 0 {
                        r.frames.drain(&r.m);
                    }
                }
                for (pfn, o) in held {
                    give(pfn, o);
                    r.frames.put(&r.m, pfn, order(o));
                }
                r.frames.completed(&r.m, &mut top, u64::MAX);
            });
        }
    });
    r.frames.completed(&r.m, &mut Token::top(), u64::MAX);
    let counts = r.frames.audit(&r.m).unwrap();
    assert_eq!((counts.used, counts.pending), (0, 0));
    r.frames.drain(&r.m);
    let counts = r.frames.audit(&r.m).unwrap();
    assert_eq!(counts.free, counts.total);
}

fn two_nodes() -> Rig {
    let mut t = Topology::flat(CPUS, Pfn(700), 4000);
    t.nodes = 2;
    t.node[1] = NodeInfo { first: Pfn(4700), frames: 4000 };
    t.cpu_node[2] = 1;
    t.cpu_node[3] = 1;
    rig_on(Flat::new(t, MmuRules::X86_64))
}

#[test]
fn single_frames_under_threads_are_never_had_twice() {
    churn(&two_nodes(), 700, 8000, 60_000, |t| t, &[0]);
}

#[test]
fn all_orders_under_threads_are_never_had_twice() {
    churn(&two_nodes(), 700, 8000, 30_000, |t| t, &[0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10]);
}

#[test]
fn blocks_that_open_and_close_all_the_time_lose_nothing() {
    // Four blocks, all threads: a block is closed, had whole, split and opened while others are at
    // its words.
    let r = rig_on(flat(CPUS, 2048));
    churn(&r, 512, 2048, 40_000, |t| t, &[8, 7, 9, 0, 6]);
}

#[test]
fn threads_that_share_a_cpu_lose_nothing() {
    // As if interrupted between any two instructions: a busy magazine is gone round.
    churn(&two_nodes(), 700, 8000, 20_000, |_| 0, &[0, 0, 0, 1, 4, 9]);
}

#[test]
fn a_lock_keeps_others_out() {
    let m = flat(CPUS, 512);
    let lock: Lock<Busy> = Lock::new();
    let counter = AtomicU64::new(0);
    thread::scope(|s| {
        for cpu in 0..CPUS {
            let (m, lock, counter) = (&m, &lock, &counter);
            s.spawn(move || {
                m.run_on(cpu);
                let mut top = Token::top();
                for i in 0..20_000 {
                    let guard = if i % 3 == 0 {
                        lock.try_lock(m, &mut top, 0)
                    } else {
                        Some(lock.lock(m, &mut top, 0))
                    };
                    if guard.is_some() {
                        assert_eq!(m.preempt_depth(), 1);
                        let seen = counter.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        counter.store(seen + 1, Ordering::Relaxed);
                    } else {
                        counter.fetch_add(0, Ordering::Relaxed);
                    }
                }
                // What `try_lock` did not get is made up for, so that the sum is known.
                assert_eq!(m.preempt_depth(), 0);
            });
        }
    });
    assert!(!lock.is_locked());
    // Two of three take the lock for sure.
    assert!(counter.load(Ordering::Relaxed) >= (CPUS as u64 * 20_000 * 2) / 3);
}

#[test]
fn locks_count_every_increment_made_under_them() {
    let m = flat(CPUS, 512);
    let word = AtomicU32::new(0);
    let counter = AtomicU64::new(0);
    thread::scope(|s| {
        for cpu in 0..CPUS {
            let (m, word, counter) = (&m, &word, &counter);
            s.spawn(move || {
                m.run_on(cpu);
                for _ in 0..20_000 {
                    let mut top = Token::top();
                    let _guard = Lock::<Node>::from_word(word).lock(m, &mut top, 1);
                    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), CPUS as u64 * 20_000);
}

#[test]
fn a_sequence_count_shows_no_torn_pair() {
    let m = flat(2, 512);
    let count = SeqCount::new();
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            m.run_on(1);
            for i in 1..50_000 {
                let _write = count.write(&m);
                pair[0].store(i, Ordering::Relaxed);
                pair[1].store(i, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Release);
        });
        let mut last = 0;
        while !stop.load(Ordering::Acquire) {
            let seen = count.begin(&m);
            let read = [&pair[0], &pair[1]].map(|p| p.load(Ordering::Relaxed));
            if !count.changed(&m, seen) {
                assert_eq!(read[0], read[1]);
                assert!(read[0] >= last);
                last = read[0];
            }
        }
    });
}

#[test]
fn nothing_is_freed_while_someone_inside_an_epoch_may_look_at_it() {
    let m = flat(CPUS, 512);
    let meta = Meta::new(Epochs::layout(CPUS));
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let epochs = unsafe { Epochs::new(CPUS, meta.base()) };
    // Two slots take turns: the one linked holds the number of its round, the other is wiped once
    // nobody can be reading it.
    let slots = [AtomicU64::new(1), AtomicU64::new(0)];
    let linked = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let looked = AtomicU64::new(0);
    thread::scope(|s| {
        for cpu in 1..CPUS {
            let (m, epochs, slots, linked, stop, looked) =
                (&m, &epochs, &slots, &linked, &stop, &looked);
            s.spawn(move || {
                m.run_on(cpu);
                while !stop.load(Ordering::Acquire) {
                    // Outside, so that on a host with fewer CPUs the freer gets its turn.
                    thread::yield_now();
                    let _outer = epochs.enter(m);
                    let at = linked.load(Ordering::Acquire) as usize;
                    let seen = slots[at].load(Ordering::Acquire);
                    let _inner = epochs.enter(m);
                    assert!(epochs.is_inside(m) && seen != 0);
                    for _ in 0..4 {
                        // The freer gets its turn while this one looks.
                        thread::yield_now();
                        assert_eq!(
                            slots[at].load(Ordering::Acquire),
                            seen,
                            "looked at what was freed"
                        );
                    }
                    looked.fetch_add(1, Ordering::Relaxed);
                }
                assert!(!epochs.is_inside(m));
                assert_eq!(m.preempt_depth(), 0);
            });
        }
        let mut round = 2;
        while round < 200 || looked.load(Ordering::Relaxed) < 2000 && round < 100_000 {
            let old = linked.load(Ordering::Relaxed);
            slots[1 - old as usize].store(round, Ordering::Release);
            linked.store(1 - old, Ordering::SeqCst);
            epochs.synchronize(&m, &mut Token::top());
            slots[old as usize].store(0, Ordering::Release);
            round += 1;
        }
        stop.store(true, Ordering::Release);
    });
}

/// Who waits for epochs may move to another CPU at any time. Whether it is inside itself is asked
/// of one CPU's line, where the task of the CPU that it left may be inside by then.
#[test]
fn a_task_that_may_move_is_not_taken_for_another_that_is_inside() {
    let m = flat(2, 512);
    let meta = Meta::new(Epochs::layout(2));
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let epochs = unsafe { Epochs::new(2, meta.base()) };
    let inside = epochs.enter(&m);
    m.run_on(1);
    assert!(!epochs.is_inside(&m));
    m.run_on(0);
    assert!(epochs.is_inside(&m));
    drop(inside);
    epochs.synchronize(&m, &mut Token::top());
    assert_eq!(
        m.asked.loose_cpus.load(Ordering::Relaxed),
        0,
        "a number that may be another task's by its use"
    );
}

#[test]
#[cfg(debug_assertions)]
fn two_locks_of_a_level_in_the_wrong_order_are_noticed() {
    let m = flat(1, 512);
    let (a, b): (Lock<Node>, Lock<Node>) = (Lock::new(), Lock::new());
    let mut top = Token::top();
    {
        let mut first = a.lock(&m, &mut top, 1);
        let _second = b.lock_next(&m, first.token(), 2);
    }
    let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut first = b.lock(&m, &mut top, 2);
        let _second = a.lock_next(&m, first.token(), 1);
    }));
    assert!(wrong.is_err());
    assert!(!a.is_locked() && !b.is_locked());
}
