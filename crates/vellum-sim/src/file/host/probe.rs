//! Short measurements of this host: clock, latency of each level, misses in flight, clearing and
//! copying.
//!
//! Latency is a chase of pointers through a random cycle, in blocks of 1 MiB so that the
//! second-level TLB covers a block: what is wanted is the cache's time, walks are simulated. One
//! line in four is used, so that neighbours fetched along do not help. Each measurement is cut into
//! pieces of a millisecond or two, shorter than a scheduler's turn, and the fastest piece counts,
//! since whatever disturbs a measurement makes it slower. All together take under three seconds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::topology::Topology;

/// Times in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    pub(super) clock_hz: u64,
    pub(super) l1: u64,
    pub(super) l2: u64,
    pub(super) llc: u64,
    pub(super) memory: u64,
    /// Misses that overlap: latency over time per independent miss.
    pub(super) overlap: u32,
    /// A line cleared page by page, a line cleared in a long run, a line copied.
    pub(super) clear_page: u64,
    pub(super) clear_extent: u64,
    pub(super) copy: u64,
    /// Bytes a second one core reads.
    pub(super) bandwidth: u64,
}

/// Words in a line, lines apart of two nodes of a chain.
const WORDS: usize = 8;
const SPACING: usize = 4 * WORDS;
const BLOCK: usize = (1 << 20) / 8;
/// How long a piece of a measurement takes, and how many there are.
const PIECE: Duration = Duration::from_millis(1);
const PIECES: u32 = 40;
/// Bytes cleared, copied or read, in all and in a piece.
const RUN: usize = 64 << 20;
const RUN_PIECE: usize = 4 << 20;

fn xorshift(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

/// The shortest of several repetitions, as picoseconds for each of `count` steps.
fn fastest(repetitions: u32, count: u64, mut run: impl FnMut()) -> u64 {
    let times = (0..repetitions).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    let best = times.min().unwrap_or_default();
    u64::try_from(best.as_nanos() * 1000 / u128::from(count.max(1))).unwrap_or(u64::MAX).max(1)
}

/// Cycles a second: a chain in which each step needs the one before, three shifts and three
/// exclusive ors, one cycle each.
fn clock() -> u64 {
    const STEPS: u64 = 500_000;
    let mut x = black_box(88172645463325252);
    let ps = fastest(PIECES, STEPS, || {
        for _ in 0..STEPS {
            xorshift(&mut x);
        }
        black_box(x);
    });
    6_000_000_000_000 / ps
}

/// A random cycle through one line in four of `bytes`, block by block.
fn cycle(bytes: usize) -> Vec<usize> {
    let words = (bytes / 8).max(SPACING * 2);
    let mut chain = vec![0; words];
    let mut order: Vec<usize> = (0..words).step_by(SPACING).collect();
    let mut x = 88172645463325252;
    for block in order.chunks_mut(BLOCK / SPACING) {
        for i in (1..block.len()).rev() {
            block.swap(i, (xorshift(&mut x) % (i as u64 + 1)) as usize);
        }
    }
    for (i, &at) in order.iter().enumerate() {
        chain[at] = order[(i + 1) % order.len()];
    }
    chain
}

/// Picoseconds a step of a chase through `bytes`.
fn chase(bytes: usize) -> u64 {
    let chain = cycle(bytes);
    let mut at = 0;
    let mut steps = 1000;
    let mut run = |steps: u64| {
        // A local: what a closure borrows would go through memory at each step.
        let mut here = at;
        for _ in 0..steps {
            here = chain[here];
        }
        at = black_box(here);
    };
    let probe = fastest(4, steps, || run(steps));
    steps = (PIECE.as_nanos() as u64 * 1000 / probe.max(500)).max(1000);
    fastest(PIECES, steps, || run(steps))
}

/// Picoseconds a step where sixteen chases go on at once.
fn chase_in_parallel(bytes: usize) -> u64 {
    const CHAINS: usize = 16;
    let chain = cycle(bytes);
    let mut at: [usize; CHAINS] =
        std::array::from_fn(|i| chain.len() / CHAINS * i / SPACING * SPACING);
    let steps = 2000;
    fastest(PIECES, steps * CHAINS as u64, || {
        let mut here = at;
        for _ in 0..steps {
            for a in &mut here {
                *a = chain[*a];
            }
        }
        at = black_box(here);
    })
}

/// Does `act` to each piece of a run, with its place; picoseconds for each line of the fastest.
fn each_piece(run: &mut [u8], mut act: impl FnMut(usize, &mut [u8])) -> u64 {
    let mut at = 0;
    fastest((RUN / RUN_PIECE) as u32, (RUN_PIECE / 64) as u64, || {
        let piece = black_box(&mut run[at..at + RUN_PIECE]);
        act(at, piece);
        black_box(piece);
        at += RUN_PIECE;
    })
}

/// Measures; takes the sizes to chase through from the topology.
pub(super) fn measure(topology: &Topology) -> Times {
    let llc = topology.llc.unwrap_or(topology.l2).size as usize;
    let (l1, l2) = (topology.l1d.size as usize, topology.l2.size as usize);
    let beyond = (llc * 2).clamp(64 << 20, 256 << 20);
    let memory = chase(beyond);
    let each = chase_in_parallel(beyond).max(1);
    // Just beyond the second level: other programs use the last level too.
    let within = if topology.llc.is_some() { chase((l2 * 3).min(llc)) } else { chase(l2 / 2) };
    let from = vec![1u8; RUN];
    let mut to = vec![2u8; RUN];
    let clear_page = each_piece(&mut to, |_, piece| {
        for page in piece.chunks_mut(4096) {
            page.fill(0);
            black_box(page);
        }
    });
    let clear_extent = each_piece(&mut to, |_, piece| piece.fill(0));
    let copy = each_piece(&mut to, |at, piece| {
        piece.copy_from_slice(black_box(&from[at..at + RUN_PIECE]))
    });
    let read = each_piece(&mut to, |_, piece| {
        let sum = piece.chunks(64).fold(0u64, |s, line| s.wrapping_add(u64::from(line[0])));
        black_box(sum);
    });
    let l1_time = chase(l1 / 2);
    let l2_time = chase((l2 / 2).max(l1 * 2)).max(l1_time);
    let llc_time = within.max(l2_time);
    Times {
        clock_hz: clock(),
        l1: l1_time,
        l2: l2_time,
        llc: llc_time,
        memory: memory.max(llc_time),
        overlap: ((memory + each / 2) / each).clamp(1, 64) as u32,
        clear_page,
        clear_extent,
        copy,
        bandwidth: 64_000_000_000_000 / read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_visits_every_node_once_before_it_returns() {
        for bytes in [1, 4096, 3 << 20] {
            let chain = cycle(bytes);
            let nodes = chain.len().div_ceil(SPACING);
            let mut seen = 0;
            let mut at = 0;
            loop {
                at = chain[at];
                seen += 1;
                if at == 0 {
                    break;
                }
                assert!(seen <= nodes, "{bytes}");
            }
            assert_eq!(seen, nodes, "{bytes}");
        }
    }
}
