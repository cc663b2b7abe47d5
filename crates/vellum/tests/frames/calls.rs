//! The frame allocator: what each call promises.

use crate::flat::{Flat, FrameHands, Meta, flat};
use vellum::addr::{Order, Pfn};
use vellum::config::NumaPolicy;
use vellum::error::{InitError, NoMemory};
use vellum::machine::{MmuRules, NodeInfo, Topology, Use};
use vellum::stats::{Counter, Stats};
use vellum::unstable::{Frames, Mark, Token, Want};

const TABLE: Want = Want::kernel(Use::Table);
const DATA: Want = Want { policy: NumaPolicy::Local, index: 0, use_: Use::Data };

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Frames over their metadata; the fields drop in this order.
struct Rig<M = Flat> {
    frames: Frames,
    m: M,
    _meta: Meta,
}

fn rig_on(m: Flat) -> Rig {
    use vellum::machine::Machine;
    let meta = Meta::new(Frames::layout(m.topology()).unwrap());
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let frames = unsafe { Frames::new(m.topology(), meta.base()) }.unwrap();
    Rig { frames, m, _meta: meta }
}

fn rig(cpus: usize, frames: u64) -> Rig {
    rig_on(flat(cpus, frames))
}

/// Nodes with those frames, `cpus` CPUs on node 0.
fn nodes(cpus: usize, ranges: &[(u64, u64)]) -> Topology {
    let mut t = Topology::flat(cpus, Pfn(0), 1);
    t.nodes = ranges.len();
    for (i, &(first, frames)) in ranges.iter().enumerate() {
        t.node[i] = NodeInfo { first: Pfn(first), frames };
        for j in 0..ranges.len() {
            t.distance[i][j] = 10 + 10 * i.abs_diff(j) as u8;
        }
    }
    t
}

impl Rig {
    fn alloc(&self, o: u8) -> Result<Pfn, NoMemory> {
        self.frames.alloc(&self.m, order(o), &TABLE)
    }
    fn free(&self, pfn: Pfn, o: u8) {
        self.frames.put(&self.m, pfn, order(o));
    }
    fn used(&self) -> u64 {
        self.frames.audit(&self.m).unwrap().used
    }
    fn stat(&self, counter: Counter) -> i64 {
        let mut stats = Stats::sum(&[]);
        self.frames.stats(&mut stats);
        stats.get(counter)
    }
}

#[test]
fn every_frame_can_be_had_once_and_then_there_is_no_memory() {
    let r = rig(2, 3000);
    let mut seen = std::collections::BTreeSet::new();
    while let Ok(pfn) = r.alloc(0) {
        assert!(seen.insert(pfn), "{pfn:?} twice");
        assert!((512..3512).contains(&pfn.0));
    }
    assert_eq!(seen.len(), 3000);
    assert_eq!(r.alloc(0), Err(NoMemory));
    assert_eq!(r.used(), 3000);
    for pfn in seen {
        r.free(pfn, 0);
    }
    assert_eq!(r.used(), 0);
    assert_eq!(r.frames.free_frames(0), 3000);
}

#[test]
fn every_order_is_served_aligned_and_whole_memory_comes_back_as_the_largest() {
    let r = rig(1, 5 << 18);
    for o in 0..=18 {
        let got: Vec<Pfn> = (0..3).map(|_| r.alloc(o).unwrap()).collect();
        for (i, a) in got.iter().enumerate() {
            assert!(a.is_aligned(order(o)));
            assert!(got[..i].iter().all(|b| a.0.abs_diff(b.0) >= 1 << o));
        }
        assert_eq!(r.used(), 3 << o);
        for pfn in got {
            r.free(pfn, o);
        }
        assert_eq!(r.used(), 0, "order {o}");
    }
    r.frames.drain(&r.m);
    // Frames 512 to 5 GiB + 512: four aligned GiB.
    let giants: Vec<Pfn> = (0..4).map(|_| r.alloc(18).unwrap()).collect();
    assert_eq!(r.alloc(18), Err(NoMemory));
    assert_eq!(r.used(), 4 << 18);
    for pfn in giants {
        r.free(pfn, 18);
    }
}

#[test]
fn exhausted_by_each_order_the_rest_is_too_small_for_it_and_nothing_is_lost() {
    for o in 0..=10 {
        let r = rig(1, 5000);
        let mut got = vec![];
        while let Ok(pfn) = r.alloc(o) {
            got.push(pfn);
        }
        let aligned =
            (512..5512u64).step_by(1).filter(|f| f % (1 << o) == 0 && f + (1 << o) <= 5512).count();
        assert_eq!(got.len(), aligned, "order {o}");
        for &pfn in &got {
            r.free(pfn, o);
        }
        assert_eq!(r.used(), 0);
    }
}

#[test]
fn frames_in_another_cpus_magazine_are_not_out_of_reach() {
    let r = rig(4, 600);
    for cpu in 0..4 {
        r.m.run_on(cpu);
        let all: Vec<Pfn> = std::iter::from_fn(|| r.alloc(0).ok()).collect();
        assert_eq!(all.len(), 600, "cpu {cpu}");
        for pfn in all {
            r.free(pfn, 0);
        }
        assert!(r.frames.audit(&r.m).unwrap().cached > 0);
    }
    r.m.run_on(0);
}

#[test]
fn frames_in_magazines_do_not_keep_a_large_block_from_being_had() {
    let r = rig(2, 512);
    let one = r.alloc(0).unwrap();
    r.free(one, 0);
    r.m.run_on(1);
    assert_eq!(r.alloc(9), Ok(Pfn(512)));
    r.m.run_on(0);
}

#[test]
fn a_batch_comes_in_ascending_order() {
    let r = rig(1, 4096);
    let got: Vec<u64> = (0..500).map(|_| r.alloc(0).unwrap().0).collect();
    assert!(got.windows(2).all(|w| w[1] == w[0] + 1), "{got:?}");
}

#[test]
fn blocks_below_2_mib_come_back_in_pieces() {
    let r = rig(1, 2048);
    for o in 1..=8u8 {
        let pfn = r.alloc(o).unwrap();
        for i in 0..1 << o {
            r.free(pfn.add(i), 0);
        }
        assert_eq!(r.used(), 0);
    }
}

#[test]
fn a_split_block_comes_back_in_pieces_of_any_order() {
    let r = rig(1, 3 << 18);
    for from in 9..=18u8 {
        for to in 0..from {
            let pfn = r.alloc(from).unwrap();
            r.frames.cut(&r.m, pfn, order(from), order(to));
            assert_eq!(r.used(), 1 << from);
            for i in 0..1u64 << (from - to) {
                r.free(pfn.add(i << to), to);
                if i < 2 {
                    assert_eq!(r.used(), (1 << from) - ((i + 1) << to));
                }
            }
            assert_eq!(r.used(), 0);
            r.frames.drain(&r.m);
        }
    }
}

#[test]
fn one_block_of_a_giant_can_be_shattered_alone() {
    let r = rig(1, 3 << 18);
    let giant = r.alloc(18).unwrap();
    r.frames.cut(&r.m, giant, Order::GIANT, Order::HUGE);
    let block = giant.add(512 * 7);
    r.frames.cut(&r.m, block, Order::HUGE, Order::BASE);
    for i in 0..512 {
        r.free(block.add(i), 0);
    }
    assert_eq!(r.used(), (1 << 18) - 512);
    for i in (0..512).filter(|&i| i != 7) {
        r.free(giant.add(i * 512), 9);
    }
    assert_eq!(r.used(), 0);
}

#[test]
fn reserved_frames_are_never_given_out() {
    let mut r = rig(1, 4096);
    // An edge in the middle of a word, whole blocks, and a range that reaches past the node.
    for (first, frames) in [(600, 30), (1024, 1100), (4600, 1 << 40)] {
        assert_eq!(r.frames.reserve(Pfn(first), frames), Ok(()));
    }
    let counts = r.frames.audit(&r.m).unwrap();
    assert_eq!((counts.reserved, counts.free), (30 + 1100 + 8, 4096 - 1138));
    let mut got = 0;
    while let Ok(pfn) = r.alloc(0) {
        assert!(!(600..630).contains(&pfn.0) && !(1024..2124).contains(&pfn.0) && pfn.0 < 4600);
        got += 1;
    }
    assert_eq!(got, 4096 - 1138);
}

#[test]
fn nodes_that_meet_inside_a_2_mib_block_keep_to_their_frames() {
    let r = rig_on(Flat::new(nodes(1, &[(700, 1000), (1700, 900)]), MmuRules::X86_64));
    for node in 0..2u8 {
        let want = Want { policy: NumaPolicy::Bind(node), index: 0, use_: Use::Data };
        let mut got = 0;
        while let Ok(pfn) = r.frames.alloc(&r.m, Order::BASE, &want) {
            assert_eq!(r.frames.node_of(pfn), Some(node as usize));
            got += 1;
        }
        assert_eq!(got, [1000, 900][node as usize]);
    }
    assert_eq!(r.used(), 1900);
}

#[test]
fn policies_choose_nodes_and_all_but_bind_fall_back_by_distance() {
    // Nodes 0 and 2 hold CPUs' neighbours; node 1 has none.
    let mut t = nodes(2, &[(0, 1024), (1024, 1024), (2048, 1024)]);
    t.cpu_node[1] = 2;
    let r = rig_on(Flat::new(t, MmuRules::X86_64));
    let on = |policy, index| {
        let pfn = r.frames.alloc(&r.m, Order::BASE, &Want { policy, index, use_: Use::Data });
        pfn.map(|p| r.frames.node_of(p).unwrap())
    };
    assert_eq!(on(NumaPolicy::Local, 0), Ok(0));
    r.m.run_on(1);
    assert_eq!(on(NumaPolicy::Local, 0), Ok(2));
    assert_eq!(on(NumaPolicy::Bind(1), 0), Ok(1));
    assert_eq!(on(NumaPolicy::Prefer(1), 0), Ok(1));
    assert_eq!(on(NumaPolicy::Prefer(9), 0), Ok(2), "a node that does not exist: as local");
    assert_eq!(on(NumaPolicy::Bind(9), 0), Err(NoMemory), "a node that does not exist");
    assert_eq!([0, 1, 2, 3].map(|i| on(NumaPolicy::Interleave, i).unwrap()), [0, 1, 2, 0]);
    assert_eq!(r.stat(Counter::NumaMiss), 0);
    // Node 2 full: its CPU goes to 1 next, then to 0.
    let mut seen = vec![];
    while let Ok(node) = on(NumaPolicy::Local, 0) {
        if seen.last() != Some(&node) {
            seen.push(node);
        }
    }
    assert_eq!(seen, [2, 1, 0]);
    assert_eq!(on(NumaPolicy::Bind(1), 0), Err(NoMemory));
    assert_eq!(r.stat(Counter::NumaHit) + r.stat(Counter::NumaMiss), 3072);
    assert_eq!(r.used(), 3072);
    r.m.run_on(0);
}

#[test]
fn misses_are_counted_for_every_order() {
    let r = rig_on(Flat::new(nodes(1, &[(0, 512), (512, 2048)]), MmuRules::X86_64));
    r.alloc(9).unwrap();
    assert_eq!((r.stat(Counter::NumaHit), r.stat(Counter::NumaMiss)), (1, 0));
    r.alloc(9).unwrap();
    r.alloc(3).unwrap();
    r.alloc(0).unwrap();
    assert_eq!((r.stat(Counter::NumaHit), r.stat(Counter::NumaMiss)), (1, 3));
    assert_eq!((r.stat(Counter::Alloc), r.stat(Counter::Free)), (512 + 512 + 8 + 1, 0));
}

#[test]
fn data_leaves_the_minimum_which_tables_may_take() {
    let r = rig(2, 1 << 15);
    let min = r.frames.watermarks(0).min;
    assert_eq!(min, 64);
    assert_eq!(r.frames.mark(0), Mark::Plenty);
    let mut got = 0;
    while r.frames.alloc(&r.m, Order::BASE, &DATA).is_ok() {
        got += 1;
        r.m.run_on(got as usize % 2);
    }
    r.m.run_on(0);
    assert_eq!(got, (1 << 15) - min);
    assert_eq!(r.frames.mark(0), Mark::Min);
    for _ in 0..min {
        r.alloc(0).unwrap();
        assert_eq!(
            r.frames.alloc(&r.m, Order::BASE, &DATA),
            Err(NoMemory),
            "the reserve is not data's"
        );
    }
    assert_eq!(r.alloc(0), Err(NoMemory));
}

#[test]
fn pending_frames_are_nobodys_until_their_generation_completes() {
    let r = rig(1, 1024);
    let mut top = Token::top();
    let huge = r.alloc(9).unwrap();
    let base: Vec<Pfn> = (0..512).map(|_| r.alloc(0).unwrap()).collect();
    r.frames.retire_at(&r.m, &mut top, (huge, Order::HUGE), 5);
    for (i, &pfn) in base.iter().enumerate() {
        r.frames.retire_at(&r.m, &mut top, (pfn, Order::BASE), 6 + i as u64 / 256);
    }
    assert_eq!(r.alloc(0), Err(NoMemory));
    let counts = r.frames.audit(&r.m).unwrap();
    assert_eq!((counts.pending, counts.used, counts.free), (1024, 0, 0));
    assert_eq!(r.frames.completed(&r.m, &mut top, 4), 0);
    assert_eq!(r.frames.completed(&r.m, &mut top, 5), 512);
    assert_eq!(r.alloc(9), Ok(huge));
    assert_eq!(r.frames.completed(&r.m, &mut top, 6), 256);
    assert_eq!(r.frames.pending_frames(0), 256);
    assert_eq!(r.frames.completed(&r.m, &mut top, u64::MAX), 256);
    assert_eq!(r.frames.completed(&r.m, &mut top, u64::MAX), 0);
    assert_eq!(r.used(), 512);
}

#[test]
fn a_later_generation_ahead_in_the_queue_delays_and_never_hastens() {
    let r = rig(1, 512);
    let mut top = Token::top();
    let (a, b) = (r.alloc(0).unwrap(), r.alloc(0).unwrap());
    r.frames.retire_at(&r.m, &mut top, (a, Order::BASE), 9);
    r.frames.retire_at(&r.m, &mut top, (b, Order::BASE), 3);
    assert_eq!(r.frames.completed(&r.m, &mut top, 8), 0);
    assert_eq!(r.frames.completed(&r.m, &mut top, 9), 2);
    assert_eq!(r.used(), 0);
}

#[test]
fn the_machine_is_told_of_every_frame_that_changes_hands() {
    use std::sync::atomic::Ordering::Relaxed;
    let r = rig(1, 2048);
    let mut top = Token::top();
    let a = r.frames.alloc(&r.m, Order::HUGE, &DATA).unwrap();
    let b = r.alloc(0).unwrap();
    r.frames.retire_at(&r.m, &mut top, (a, Order::HUGE), 1);
    r.frames.completed(&r.m, &mut top, 1);
    r.frames.put(&r.m, b, Order::BASE);
    let became = [Use::Free, Use::Pending, Use::Table, Use::Slab, Use::Data, Use::Zero]
        .map(|u| r.m.asked.became[u as usize].load(Relaxed));
    assert_eq!(became, [513, 512, 1, 0, 512, 0]);
}

#[test]
#[cfg(debug_assertions)]
fn a_frame_freed_twice_is_noticed() {
    let twice = |o: u8| {
        std::panic::catch_unwind(move || {
            let r = rig(1, 1024);
            let pfn = r.alloc(o).unwrap();
            r.free(pfn, o);
            r.free(pfn, o);
            // A single frame lies in the magazine twice until that is emptied.
            r.frames.drain(&r.m);
        })
        .is_err()
    };
    for o in 0..=9 {
        assert!(twice(o), "order {o}");
    }
}

#[test]
fn a_frame_that_is_in_the_magazine_twice_is_found_by_validate() {
    let r = rig(1, 1024);
    // As many as leave room on the stack of what was had at once.
    let pfn = (0..100).map(|_| r.alloc(0).unwrap()).last().unwrap();
    r.free(pfn, 0);
    r.free(pfn, 0);
    let found = r.frames.audit(&r.m).unwrap_err();
    assert_eq!((found.what, found.at), ("a frame is free twice, or pending and free", pfn.0));
}

#[test]
#[cfg(debug_assertions)]
fn a_wrong_order_or_a_foreign_frame_is_noticed() {
    let bad = |f: fn(&Rig, Pfn)| {
        std::panic::catch_unwind(|| {
            let r = rig(1, 2048);
            let pfn = r.alloc(9).unwrap();
            f(&r, pfn);
        })
        .is_err()
    };
    assert!(bad(|r, p| r.free(p, 0)));
    assert!(bad(|r, p| r.free(p, 8)));
    assert!(bad(|r, p| r.free(p, 10)));
    assert!(bad(|r, p| r.free(p.add(1), 9)));
    assert!(bad(|r, _| r.free(Pfn(3), 0)));
    assert!(bad(|r, _| r.free(Pfn(1 << 40), 0)));
    // What was had as one block comes back as one.
    assert!(bad(|r, p| {
        r.free(p, 9);
        let larger = r.alloc(10).unwrap();
        r.free(larger, 9);
    }));
    assert!(!bad(|r, p| r.free(p, 9)));
}

#[test]
fn topologies_that_make_no_sense_are_refused_by_name() {
    let err = |t: &Topology| Frames::layout(t).unwrap_err();
    let good = nodes(2, &[(0, 512), (512, 512)]);
    assert!(Frames::layout(&good).is_ok());
    let with = |f: fn(&mut Topology)| {
        let mut t = good.clone();
        f(&mut t);
        err(&t)
    };
    assert_eq!(with(|t| t.cpus = 0), InitError::NoCpu);
    assert_eq!(with(|t| t.cpus = 257), InitError::TooManyCpus);
    assert_eq!(with(|t| t.nodes = 0), InitError::NoNode);
    assert_eq!(with(|t| t.nodes = 17), InitError::TooManyNodes);
    assert_eq!(with(|t| t.node[1].frames = 0), InitError::EmptyNode);
    assert_eq!(with(|t| t.node[1].first = Pfn(511)), InitError::NodesOverlap);
    assert_eq!(with(|t| t.cpu_node[1] = 2), InitError::CpuNode);
    assert_eq!(with(|t| t.node[0].frames = 1 << 40), InitError::TooLarge);
    assert_eq!(with(|t| t.node[1].first = Pfn(u64::MAX)), InitError::TooLarge);
}

#[test]
fn memory_that_is_not_aligned_is_refused() {
    let t = Topology::flat(1, Pfn(0), 512);
    let layout = Frames::layout(&t).unwrap();
    let meta = Meta::new(std::alloc::Layout::from_size_align(layout.size() + 8, 64).unwrap());
    // SAFETY: the call refuses before it touches anything.
    let refused = unsafe { Frames::new(&t, meta.base().add(8)) };
    assert_eq!(refused.err(), Some(InitError::Unaligned));
}
