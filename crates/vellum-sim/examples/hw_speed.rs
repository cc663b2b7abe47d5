//! How fast the hardware models are on this host: nanoseconds for each kind of lookup the simulator
//! makes.
//!
//! `cargo run --release -p vellum-sim --example hw_speed`

use std::hint::black_box;
use std::time::Instant;

use vellum_sim::cache::{Agent, Cache, Geometry, Hierarchy, Inclusion, Index, Kind, Policy, Shape};
use vellum_sim::memory::{Core, Memory, Numa, Overlap, Ticks};
use vellum_sim::tlb::{BankShape, Entry, Flags, PageSize, Tlb, TlbShape};

const PIECES: u64 = 200;
const STEPS: u64 = 20_000;

/// The mean of the fastest quarter of many short pieces: other programs disturb the rest.
fn time(name: &str, mut step: impl FnMut(u64) -> u64) {
    let mut sum = 0;
    let mut piece = |first: u64| {
        let start = Instant::now();
        for i in first..first + STEPS {
            sum += step(i);
        }
        start.elapsed().as_nanos() as u64
    };
    (0..PIECES).for_each(|n| _ = piece(n * STEPS));
    let mut times: Vec<u64> = (PIECES..2 * PIECES).map(|n| piece(n * STEPS)).collect();
    black_box(sum);
    times.sort_unstable();
    let fastest = &times[..times.len() / 4];
    let each = fastest.iter().sum::<u64>() as f64 / (fastest.len() as u64 * STEPS) as f64;
    println!("{name:<58} {each:6.1} ns");
}

/// A number that looks random, from a counter.
fn mix(i: u64) -> u64 {
    let x = (i ^ i >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (x ^ x >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) >> 20
}

fn main() {
    let geometry =
        |sets, ways, policy| Geometry { sets, ways, policy, index: Index::Modulo, seed: 1 };
    for policy in [Policy::Lru, Policy::Plru, Policy::Random] {
        let mut l1 = Cache::new(geometry(64, 8, policy)).expect("valid");
        time(&format!("{policy:?} 32 KiB: 8 loads of a line, line after line, 16 KiB"), |i| {
            u64::from(l1.access(i / 8 % 256, false) == vellum_sim::cache::Lookup::Hit)
        });
        let mut l1 = Cache::new(geometry(64, 8, policy)).expect("valid");
        time(&format!("{policy:?} 32 KiB: random hits"), |i| {
            u64::from(l1.access(mix(i) % 400, i & 3 == 0) == vellum_sim::cache::Lookup::Hit)
        });
        let mut llc = Cache::new(geometry(32768, 16, policy)).expect("valid");
        time(&format!("{policy:?} 32 MiB: random misses over 1 GiB"), |i| {
            u64::from(llc.access(mix(i) % (1 << 24), i & 3 == 0) == vellum_sim::cache::Lookup::Hit)
        });
    }
    for inclusion in [Inclusion::Inclusive, Inclusion::Victim, Inclusion::Independent] {
        let make = || {
            Hierarchy::new(&Shape {
                cpus: 16,
                cpus_per_llc: 8,
                l1i: geometry(64, 8, Policy::Lru),
                l1d: geometry(64, 8, Policy::Lru),
                l2: geometry(1024, 8, Policy::Lru),
                llc: geometry(32768, 16, Policy::Lru),
                inclusion,
                latency: [4, 12, 46, 46].map(Ticks::from_cycles),
                lines: 1 << 30,
            })
            .expect("valid")
        };
        let mut h = make();
        time(&format!("hierarchy, {inclusion:?}: L1 hits"), |i| {
            h.access(0, Agent::Demand, i / 8 % 256, Kind::Load).level as u64
        });
        let mut h = make();
        time(&format!("hierarchy, {inclusion:?}: random over 1 GiB"), |i| {
            h.access(0, Agent::Demand, mix(i) % (1 << 24), Kind::Store).level as u64
        });
        let mut h = make();
        time(&format!("hierarchy, {inclusion:?}: a line of a store stream"), |i| {
            if i % 1024 == 0 { h.store_stream(0, Agent::Kernel, i, 1024, false).fetched } else { 0 }
        });
        let mut h = make();
        time(&format!("hierarchy, {inclusion:?}: a line of an elided stream"), |i| {
            if i % 1024 == 0 { h.store_stream(0, Agent::Kernel, i, 1024, true).fetched } else { 0 }
        });
    }
    let entry = |page: u64| Entry {
        va: page << 12,
        frame: page << 12,
        source: page << 3,
        tag: 0,
        ctx: 1,
        size: PageSize::K4,
        leaf: PageSize::K4,
        flags: Flags::USER,
        stale: false,
    };
    let tlb = |entries, ways| {
        Tlb::new(&TlbShape {
            banks: vec![BankShape { entries, ways, sizes: PageSize::ALL.to_vec() }],
            fracture: false,
        })
    };
    for (entries, ways) in [(64, 64), (64, 4), (1536, 12), (2048, 8)] {
        let mut t = tlb(entries, ways);
        (0..u64::from(entries)).for_each(|p| _ = t.insert(entry(p), p << 12));
        time(&format!("TLB {entries} entries, {ways} ways: same page"), |i| {
            t.lookup(1, i % 4096).map_or(0, |e| e.translate(i))
        });
        time(&format!("TLB {entries} entries, {ways} ways: random hits"), |i| {
            let va = (mix(i) % u64::from(entries)) << 12;
            t.lookup(1, va).map_or(0, |e| e.translate(va))
        });
        time(&format!("TLB {entries} entries, {ways} ways: random misses, each inserted"), |i| {
            let page = mix(i) % (1 << 18);
            if t.lookup(1, page << 12).is_none() {
                t.insert(entry(page), page << 12);
            }
            0
        });
    }
    let overlap = Overlap {
        fill_buffers: 10,
        walkers: 2,
        window: 224,
        store_buffer: 0,
        instruction: Ticks(64),
        l1: Ticks::from_cycles(4),
        load: Ticks::ZERO,
        mispredict: Ticks::ZERO,
        last_level_line: Ticks::ZERO,
    };
    let mut core = Core::new(overlap);
    time("core: 4 instructions and a hit", |_| (core.retire(4) + core.hit(false)).0);
    let mut core = Core::new(overlap);
    time("core: 4 instructions, a walk and a miss", |_| {
        core.retire(4);
        let ready = core.walk(Ticks::from_cycles(30));
        core.load_after(ready, Ticks::from_cycles(200), false, true).0
    });
    let numa = Numa {
        frames: vec![1 << 20, 1 << 20],
        line_time: vec![Ticks(190); 2],
        latency: vec![vec![Ticks::from_cycles(270); 2]; 2],
    };
    let mut memory = Memory::new(&numa);
    time("memory: a read", |i| memory.read(Ticks::from_cycles(i * 20), 0, mix(i) % (1 << 27)).0);
}
