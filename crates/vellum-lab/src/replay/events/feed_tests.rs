use std::time::Duration;

use vellum_trace::event::Event;
use vellum_trace::{Header, TraceWriter};

use super::*;

/// A trace of so many blocks; each begins a thread and has that thread's number in it.
fn trace(blocks: u32) -> Vec<u8> {
    let mut w = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
    for thread in 0..blocks {
        w.push(&Event::ThreadStart { thread }).expect("legal");
        w.flush().expect("memory");
    }
    w.finish().expect("memory").1
}

fn number(block: &Block) -> u32 {
    match block.events[..] {
        [Event::ThreadStart { thread }] if block.others == [0] => thread,
        _ => panic!("{block:?}"),
    }
}

/// What a taker gets, to the end.
fn all<R: std::io::Read>(mut taker: Taker<'_, R>) -> Vec<u32> {
    std::iter::from_fn(|| taker.next().expect("whole")).map(|block| number(&block)).collect()
}

#[test]
fn each_taker_gets_every_block_in_order_and_all_get_the_same() {
    let bytes = trace(50);
    for takers in 1..=3 {
        let feed = Feed::new(TraceReader::new(&bytes[..]).expect("a trace"), takers);
        std::thread::scope(|scope| {
            let each: Vec<_> =
                (0..takers).map(|n| feed.taker(n)).map(|t| scope.spawn(|| all(t))).collect();
            for taker in each {
                assert_eq!(taker.join().expect("no panic"), (0..50).collect::<Vec<_>>());
            }
        });
        assert!(feed.lock().blocks.len() <= 1, "all takers are gone");
    }
    let feed = Feed::new(TraceReader::new(&bytes[..]).expect("a trace"), 2);
    let (mut one, mut other) = (feed.taker(0), feed.taker(1));
    let [a, b] = [one.next(), other.next()].map(|block| block.expect("whole").expect("a block"));
    assert!(Arc::ptr_eq(&a, &b), "decoded once");
}

#[test]
fn who_is_far_ahead_waits_until_the_last_has_moved_or_is_gone() {
    let bytes = trace(50);
    for leaves in [false, true] {
        let feed = Feed::new(TraceReader::new(&bytes[..]).expect("a trace"), 2);
        let (mut slow, fast) = (feed.taker(0), feed.taker(1));
        std::thread::scope(|scope| {
            let fast = scope.spawn(|| all(fast));
            while feed.lock().next[1] < AHEAD {
                std::thread::sleep(Duration::from_millis(1));
            }
            // It may go on by mistake only in this time; by right it cannot at all.
            std::thread::sleep(Duration::from_millis(20));
            let (next, blocks) = {
                let state = feed.lock();
                (state.next[1], state.blocks.len())
            };
            if leaves {
                drop(slow);
            } else {
                assert!(slow.next().expect("whole").is_some());
                assert_eq!(all(slow).len(), 49);
            }
            assert_eq!(fast.join().expect("no panic").len(), 50);
            assert_eq!((next, blocks), (AHEAD, AHEAD as usize));
        });
    }
}

#[test]
fn all_takers_hear_of_damage_and_of_the_end() {
    let bytes = trace(20);
    let feed = Feed::new(TraceReader::new(&bytes[..]).expect("a trace"), 1);
    let mut taker = feed.taker(0);
    while taker.next().expect("whole").is_some() {}
    assert!(taker.next().expect("whole").is_none(), "an end stays an end");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 0x10;
    let feed = Feed::new(TraceReader::new(&damaged[..]).expect("a trace"), 2);
    let error = |mut taker: Taker<'_, &[u8]>| loop {
        match taker.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("damage was not seen"),
            Err(e) => return e.to_string(),
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| error(feed.taker(1)));
        assert_eq!(error(feed.taker(0)), other.join().expect("no panic"));
    });
}

/// A reader that breaks.
struct Broken;

impl std::io::Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        panic!("planted")
    }
}

#[test]
fn nobody_waits_for_one_who_panicked_while_decoding() {
    let bytes = trace(3);
    let whole = bytes.len() - 40;
    let broken = std::io::Read::chain(&bytes[..whole], Broken);
    let feed = Feed::new(TraceReader::new(broken).expect("a header"), 2);
    let (one, mut other) = (feed.taker(0), feed.taker(1));
    std::thread::scope(|scope| {
        assert!(scope.spawn(|| all(one)).join().is_err());
        while other.next().expect("no damage").is_some() {}
    });
}

#[test]
fn memory_of_blocks_is_used_again_once_nobody_has_them_and_little_is_kept_for_it() {
    let bytes = trace(50);
    let feed = Feed::new(TraceReader::new(&bytes[..]).expect("a trace"), 1);
    let mut taker = feed.taker(0);
    let held: Vec<_> = (0..30).map(|_| taker.next().expect("whole").expect("a block")).collect();
    assert_eq!(feed.lock().taken.len(), AHEAD as usize);
    assert_eq!(feed.lock().room().events.capacity(), 0, "all are in use");
    assert!((0..30).eq(held.iter().map(|block| number(block))));
    drop(held);
    assert!(feed.lock().room().events.capacity() > 0);
}
