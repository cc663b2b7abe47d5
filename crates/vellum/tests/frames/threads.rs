//! The allocator on real threads: no frame is had twice, and none is lost.

use std::sync::atomic::{AtomicU8, Ordering};

use vellum_testkit::prelude::*;

const CPUS: usize = 4;

/// Each thread allocates and frees at random; a byte for each frame says whether it is allocated.
fn churn(fx: &FramesFixture, steps: u64, cpu_of: fn(usize) -> usize, orders: &'static [u8]) {
    let (first, end) = (fx.m.topology().frames_start(), fx.m.topology().frames_end());
    let owned: Vec<AtomicU8> = (first..end).map(|_| AtomicU8::new(0)).collect();
    let set = |(pfn, o): (Pfn, u8), to: u8| {
        for f in pfn.0..pfn.0 + (1 << o) {
            let was = owned[(f - first) as usize].swap(to, Ordering::AcqRel);
            assert_eq!(was, 1 - to, "frame {f}, had twice where it is 1");
        }
    };
    on_cpus(0..CPUS, |t| {
        fx.m.run_on(cpu_of(t));
        let mut random = Random::new(t as u64);
        let mut held: Vec<(Pfn, u8)> = vec![];
        let mut top = Token::top();
        for step in 0..steps {
            // In waves, so that memory runs out and comes back.
            let filling = step / 300 % 2 == 0;
            if held.is_empty() || random.below(10) < if filling { 7 } else { 3 } {
                let o = orders[random.below(orders.len() as u64) as usize];
                let policy = match random.below(3) {
                    0 => NumaPolicy::Local,
                    1 => NumaPolicy::Interleave,
                    _ => NumaPolicy::Prefer(1),
                };
                let want = AllocRequest { policy, index: step, ..AllocRequest::kernel(Use::Data) };
                if let Ok(pfn) = fx.frames.alloc(&fx.m, order(o), &want) {
                    set((pfn, o), 1);
                    held.push((pfn, o));
                }
            } else {
                let (pfn, o) = held.swap_remove(random.below(held.len() as u64) as usize);
                set((pfn, o), 0);
                match random.below(8) {
                    0 if o >= 9 => {
                        fx.split(pfn, o, 0);
                        fx.free_all((0..1 << o).map(|i| pfn.add(i)), 0);
                    }
                    1 => fx.frames.retire_at(&fx.m, &mut top, (pfn, order(o)), step),
                    _ => fx.free(pfn, o),
                }
            }
            if step % 64 == 0 {
                fx.frames.completed(&fx.m, &mut top, step);
            }
            if step % 997 == 0 {
                fx.frames.drain(&fx.m);
            }
        }
        for (pfn, o) in held {
            set((pfn, o), 0);
            fx.free(pfn, o);
        }
        fx.frames.completed(&fx.m, &mut top, u64::MAX);
    });
    fx.frames.completed(&fx.m, &mut Token::top(), u64::MAX);
    let counts = fx.counts();
    assert_eq!((counts.used, counts.pending), (0, 0));
    fx.frames.drain(&fx.m);
    let counts = fx.counts();
    assert_eq!(counts.free, counts.total);
}

fn two_nodes() -> FramesFixture {
    let mut t = nodes(CPUS, &[(700, 4000), (4700, 4000)]);
    t.cpu_node[2..4].fill(1);
    FramesFixture::new(Flat::new(t, MmuRules::X86_64))
}

#[test]
fn single_frames_under_threads_are_never_had_twice() {
    churn(&two_nodes(), 60_000, |t| t, &[0]);
}

#[test]
fn all_orders_under_threads_are_never_had_twice() {
    churn(&two_nodes(), 30_000, |t| t, &[0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10]);
}

#[test]
fn blocks_that_open_and_close_all_the_time_lose_nothing() {
    // Four blocks for all threads: a block is closed, allocated whole, split and opened while other
    // threads use its words.
    let fx = FramesFixture::new(flat(CPUS, 2048));
    churn(&fx, 40_000, |t| t, &[8, 7, 9, 0, 6]);
}

#[test]
fn threads_that_share_a_cpu_lose_nothing() {
    // As if interrupted between any two instructions: a busy magazine is bypassed.
    churn(&two_nodes(), 20_000, |_| 0, &[0, 0, 0, 1, 4, 9]);
}
