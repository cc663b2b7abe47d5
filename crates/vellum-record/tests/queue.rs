//! The way to the background thread, without QEMU.
#[path = "../src/sink/queue.rs"]
mod queue;

use queue::{MOST, Queue};

#[test]
fn what_was_sent_comes_in_order_and_whoever_sends_waits_for_room() {
    static QUEUE: Queue<usize> = Queue::new();
    let from = QUEUE.receiver();
    let sender = std::thread::spawn(|| (0..10 * MOST).for_each(|n| QUEUE.send(n)));
    let mut all = Vec::new();
    while all.len() < 10 * MOST {
        let some = from.receive();
        assert!((1..=MOST).contains(&some.len()));
        all.extend(some);
    }
    assert!(all.into_iter().eq(0..10 * MOST));
    sender.join().expect("sent");
}

#[test]
fn nobody_waits_for_a_receiver_that_is_gone() {
    static QUEUE: Queue<usize> = Queue::new();
    let from = QUEUE.receiver();
    let sender = std::thread::spawn(|| (0..2 * MOST).for_each(|n| QUEUE.send(n)));
    drop(from);
    sender.join().expect("sent to nobody");
}
