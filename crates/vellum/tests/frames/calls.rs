//! What each call of the allocator promises.

use vellum::unstable::{Mark, Record};
use vellum_testkit::prelude::*;

const DATA: AllocRequest = AllocRequest::kernel(Use::Data);

fn frames(cpus: usize, frames: u64) -> FramesFixture {
    FramesFixture::new(flat(cpus, frames))
}

fn on(topology: Topology) -> FramesFixture {
    FramesFixture::new(Flat::new(topology, MmuRules::X86_64))
}

fn stat(fx: &FramesFixture, counter: Counter) -> i64 {
    let mut stats = Stats::sum(&[]);
    fx.frames.stats(&mut stats);
    stats.get(counter)
}

#[test]
fn every_frame_can_be_had_once_and_then_there_is_no_memory() {
    let fx = frames(2, 3000);
    let mut all = fx.take_all(0);
    assert_eq!(fx.alloc(0), Err(NoMemory));
    assert_eq!(fx.used(), 3000);
    all.sort_unstable();
    assert!(all.iter().map(|pfn| pfn.0).eq(512..3512), "each of them once: {all:?}");
    fx.free_all(all, 0);
    assert_eq!(fx.used(), 0);
    assert_eq!(fx.frames.free_frames(0), 3000);
}

#[test]
fn every_order_is_served_aligned_and_whole_memory_comes_back_as_the_largest() {
    let fx = frames(1, 5 << 18);
    for o in 0..=18 {
        let got = fx.take(3, o);
        for (i, a) in got.iter().enumerate() {
            assert!(a.is_aligned(order(o)));
            assert!(got[..i].iter().all(|b| a.0.abs_diff(b.0) >= 1 << o));
        }
        assert_eq!(fx.used(), 3 << o);
        fx.free_all(got, o);
        assert_eq!(fx.used(), 0, "order {o}");
    }
    fx.frames.drain(&fx.m);
    // Frames 512 to 5 GiB + 512: four aligned GiB.
    let giants = fx.take(4, 18);
    assert_eq!(fx.alloc(18), Err(NoMemory));
    assert_eq!(fx.used(), 4 << 18);
    fx.free_all(giants, 18);
}

#[test]
fn exhausted_by_each_order_the_rest_is_too_small_for_it_and_nothing_is_lost() {
    for o in 0..=10 {
        let fx = frames(1, 5000);
        let got = fx.take_all(o);
        let aligned = (512..5512u64).filter(|f| f % (1 << o) == 0 && f + (1 << o) <= 5512);
        assert_eq!(got.len(), aligned.count(), "order {o}");
        fx.free_all(got, o);
        assert_eq!(fx.used(), 0);
    }
}

#[test]
fn of_freed_blocks_a_cpu_keeps_the_lowest() {
    // Every other one, so that none is freed beside a free buddy.
    for descending in [false, true] {
        let fx = frames(1, 1 << 14);
        let mut held = fx.take(32, 3);
        held.sort_unstable();
        let mut freed: Vec<Pfn> = held.into_iter().step_by(2).collect();
        let lowest = freed[..4].to_vec();
        if descending {
            freed.reverse();
        }
        freed.into_iter().for_each(|pfn| fx.free(pfn, 3));
        let mut next = fx.take(4, 3);
        next.sort_unstable();
        assert_eq!(next, lowest, "descending: {descending}");
    }
}

#[test]
fn frames_in_another_cpus_magazine_are_not_out_of_reach() {
    let fx = frames(4, 600);
    for cpu in 0..4 {
        fx.m.run_on(cpu);
        let all = fx.take_all(0);
        assert_eq!(all.len(), 600, "cpu {cpu}");
        fx.free_all(all, 0);
        assert!(fx.counts().cached > 0);
    }
    fx.m.run_on(0);
}

#[test]
fn frames_in_magazines_do_not_keep_a_large_block_from_being_had() {
    let fx = frames(2, 512);
    let one = fx.alloc(0).unwrap();
    fx.free(one, 0);
    fx.m.run_on(1);
    assert_eq!(fx.alloc(9), Ok(Pfn(512)));
    fx.m.run_on(0);
}

#[test]
fn a_batch_comes_in_ascending_order() {
    let fx = frames(1, 4096);
    let got = fx.take(500, 0);
    assert!(got.windows(2).all(|w| w[1] == w[0].add(1)), "{got:?}");
}

#[test]
fn blocks_below_2_mib_are_freed_frame_by_frame() {
    let fx = frames(1, 2048);
    for o in 1..=8u8 {
        let pfn = fx.alloc(o).unwrap();
        fx.free_all((0..1 << o).map(|i| pfn.add(i)), 0);
        assert_eq!(fx.used(), 0);
    }
}

#[test]
fn a_split_block_is_freed_in_sub_blocks_of_any_order() {
    let fx = frames(1, 3 << 18);
    for from in 9..=18u8 {
        for to in 0..from {
            let pfn = fx.alloc(from).unwrap();
            fx.split(pfn, from, to);
            assert_eq!(fx.used(), 1 << from);
            for i in 0..1u64 << (from - to) {
                fx.free(pfn.add(i << to), to);
                if i < 2 {
                    assert_eq!(fx.used(), (1 << from) - ((i + 1) << to));
                }
            }
            assert_eq!(fx.used(), 0);
            fx.frames.drain(&fx.m);
        }
    }
}

#[test]
fn one_block_of_a_giant_can_be_split_alone() {
    let fx = frames(1, 3 << 18);
    let giant = fx.alloc(18).unwrap();
    fx.split(giant, 18, 9);
    let block = giant.add(512 * 7);
    fx.split(block, 9, 0);
    fx.free_all((0..512).map(|i| block.add(i)), 0);
    assert_eq!(fx.used(), (1 << 18) - 512);
    fx.free_all((0..512).filter(|&i| i != 7).map(|i| giant.add(i * 512)), 9);
    assert_eq!(fx.used(), 0);
}

#[test]
fn reserved_frames_are_never_given_out() {
    let mut fx = frames(1, 4096);
    // An edge in the middle of a word, whole blocks, and a range that reaches past the node.
    for (first, frames) in [(600, 30), (1024, 1100), (4600, 1 << 40)] {
        assert_eq!(fx.frames.reserve(Pfn(first), frames), Ok(()));
    }
    let counts = fx.counts();
    assert_eq!((counts.reserved, counts.free), (30 + 1100 + 8, 4096 - 1138));
    let got = fx.take_all(0);
    for pfn in &got {
        assert!(!(600..630).contains(&pfn.0) && !(1024..2124).contains(&pfn.0) && pfn.0 < 4600);
    }
    assert_eq!(got.len(), 4096 - 1138);
}

#[test]
fn nodes_that_meet_inside_a_2_mib_block_keep_to_their_frames() {
    let fx = on(nodes(1, &[(700, 1000), (1700, 900)]));
    for node in 0..2u8 {
        let want = AllocRequest { policy: NumaPolicy::Bind(node), ..DATA };
        let mut got = 0;
        while let Ok(pfn) = fx.frames.alloc(&fx.m, Order::BASE, &want) {
            assert_eq!(fx.frames.node_of(pfn), Some(node as usize));
            got += 1;
        }
        assert_eq!(got, [1000, 900][node as usize]);
    }
    assert_eq!(fx.used(), 1900);
}

#[test]
fn policies_choose_nodes_and_all_but_bind_fall_back_by_distance() {
    // Nodes 0 and 2 hold CPUs' neighbours; node 1 has none.
    let mut t = nodes(2, &[(0, 1024), (1024, 1024), (2048, 1024)]);
    t.cpu_node[1] = 2;
    let fx = on(t);
    let on = |policy, index| {
        let pfn = fx.frames.alloc(&fx.m, Order::BASE, &AllocRequest { policy, index, ..DATA });
        pfn.map(|p| fx.frames.node_of(p).unwrap())
    };
    assert_eq!(on(NumaPolicy::Local, 0), Ok(0));
    fx.m.run_on(1);
    assert_eq!(on(NumaPolicy::Local, 0), Ok(2));
    assert_eq!(on(NumaPolicy::Bind(1), 0), Ok(1));
    assert_eq!(on(NumaPolicy::Prefer(1), 0), Ok(1));
    assert_eq!(on(NumaPolicy::Prefer(9), 0), Ok(2), "a node that does not exist: as local");
    assert_eq!(on(NumaPolicy::Bind(9), 0), Err(NoMemory), "a node that does not exist");
    assert_eq!([0, 1, 2, 3].map(|i| on(NumaPolicy::Interleave, i).unwrap()), [0, 1, 2, 0]);
    assert_eq!(stat(&fx, Counter::NumaMiss), 0);
    // Node 2 full: its CPU goes to 1 next, then to 0.
    let mut seen: Vec<_> = std::iter::from_fn(|| on(NumaPolicy::Local, 0).ok()).collect();
    seen.dedup();
    assert_eq!(seen, [2, 1, 0]);
    assert_eq!(on(NumaPolicy::Bind(1), 0), Err(NoMemory));
    assert_eq!(stat(&fx, Counter::NumaHit) + stat(&fx, Counter::NumaMiss), 3072);
    assert_eq!(fx.used(), 3072);
    fx.m.run_on(0);
}

#[test]
fn blocks_of_every_order_take_nodes_in_turn() {
    for count in [2, 3, 4] {
        let spans: Vec<(u64, u64)> = (0..count).map(|node| (node << 20, 1 << 20)).collect();
        let fx = on(nodes(1, &spans));
        for o in 0..=18 {
            let policy = NumaPolicy::Interleave;
            // Any page of the block says which it is.
            let got = (0..2 * count).map(|n| {
                let index = (n << o) + ((n % 7) & ((1 << o) - 1));
                let request = AllocRequest { policy, index, ..DATA };
                fx.frames.alloc(&fx.m, order(o), &request).expect("memory")
            });
            let got: Vec<Pfn> = got.collect();
            let on: Vec<_> =
                got.iter().map(|&pfn| fx.frames.node_of(pfn).unwrap() as u64).collect();
            let wanted: Vec<u64> = (0..2 * count).map(|n| n % count).collect();
            assert_eq!(on, wanted, "order {o} on {count} nodes");
            fx.free_all(got, o);
        }
    }
}

#[test]
fn misses_are_counted_for_every_order() {
    let fx = on(nodes(1, &[(0, 512), (512, 2048)]));
    fx.alloc(9).unwrap();
    assert_eq!((stat(&fx, Counter::NumaHit), stat(&fx, Counter::NumaMiss)), (1, 0));
    assert!([9, 3, 0].into_iter().all(|o| fx.alloc(o).is_ok()));
    assert_eq!((stat(&fx, Counter::NumaHit), stat(&fx, Counter::NumaMiss)), (1, 3));
    assert_eq!((stat(&fx, Counter::Alloc), stat(&fx, Counter::Free)), (512 + 512 + 8 + 1, 0));
}

#[test]
fn data_leaves_the_minimum_which_tables_may_take() {
    let fx = frames(2, 1 << 15);
    let min = fx.frames.watermarks(0).min;
    assert_eq!(min, 64);
    assert_eq!(fx.frames.mark(0), Mark::Plenty);
    let mut got = 0;
    while fx.frames.alloc(&fx.m, Order::BASE, &DATA).is_ok() {
        got += 1;
        fx.m.run_on(got as usize % 2);
    }
    fx.m.run_on(0);
    assert_eq!(got, (1 << 15) - min);
    assert_eq!(fx.frames.mark(0), Mark::Min);
    for _ in 0..min {
        fx.alloc(0).unwrap();
        let data = fx.frames.alloc(&fx.m, Order::BASE, &DATA);
        assert_eq!(data, Err(NoMemory), "the reserve is not data's");
    }
    assert_eq!(fx.alloc(0), Err(NoMemory));
}

#[test]
fn pending_frames_are_nobodys_until_their_generation_completes() {
    let fx = frames(1, 1024);
    let mut top = Token::top();
    let huge = fx.alloc(9).unwrap();
    let base = fx.take(512, 0);
    fx.frames.retire_at(&fx.m, &mut top, (huge, Order::HUGE), 5);
    for (i, &pfn) in base.iter().enumerate() {
        fx.frames.retire_at(&fx.m, &mut top, (pfn, Order::BASE), 6 + i as u64 / 256);
    }
    assert_eq!(fx.alloc(0), Err(NoMemory));
    let counts = fx.counts();
    assert_eq!((counts.pending, counts.used, counts.free), (1024, 0, 0));
    assert_eq!(fx.frames.completed(&fx.m, &mut top, 4), 0);
    assert_eq!(fx.frames.completed(&fx.m, &mut top, 5), 512);
    assert_eq!(fx.alloc(9), Ok(huge));
    assert_eq!(fx.frames.completed(&fx.m, &mut top, 6), 256);
    assert_eq!(fx.frames.pending_frames(0), 256);
    assert_eq!(fx.frames.completed(&fx.m, &mut top, u64::MAX), 256);
    assert_eq!(fx.frames.completed(&fx.m, &mut top, u64::MAX), 0);
    assert_eq!(fx.used(), 512);
}

#[test]
fn a_later_generation_ahead_in_the_queue_delays_and_never_hastens() {
    let fx = frames(1, 512);
    let mut top = Token::top();
    let (a, b) = (fx.alloc(0).unwrap(), fx.alloc(0).unwrap());
    fx.frames.retire_at(&fx.m, &mut top, (a, Order::BASE), 9);
    fx.frames.retire_at(&fx.m, &mut top, (b, Order::BASE), 3);
    assert_eq!(fx.frames.completed(&fx.m, &mut top, 8), 0);
    assert_eq!(fx.frames.completed(&fx.m, &mut top, 9), 2);
    assert_eq!(fx.used(), 0);
}

#[test]
fn the_machine_is_told_of_every_frame_that_changes_hands() {
    let fx = frames(1, 2048);
    let mut top = Token::top();
    let a = fx.frames.alloc(&fx.m, Order::HUGE, &DATA).unwrap();
    let b = fx.alloc(0).unwrap();
    fx.frames.retire_at(&fx.m, &mut top, (a, Order::HUGE), 1);
    fx.frames.completed(&fx.m, &mut top, 1);
    fx.frames.put(&fx.m, b, Order::BASE);
    let became = [Use::Free, Use::Pending, Use::Table, Use::Slab, Use::Data, Use::Zero]
        .map(|u| fx.m.asked.became[u as usize].get());
    assert_eq!(became, [513, 512, 1, 0, 512, 0]);
}

#[test]
#[cfg(debug_assertions)]
fn a_frame_freed_twice_is_noticed() {
    for o in 0..=9 {
        let twice = std::panic::catch_unwind(|| {
            let fx = frames(1, 1024);
            let pfn = fx.alloc(o).unwrap();
            fx.free_all([pfn; 2], o);
            // A single frame lies in the magazine twice until that is emptied.
            fx.frames.drain(&fx.m);
        });
        assert!(twice.is_err(), "order {o}");
    }
}

#[test]
fn a_frame_that_is_in_the_magazine_twice_is_found_by_validate() {
    let fx = frames(1, 1024);
    // So many that the magazine has room for both frees.
    let pfn = fx.take(100, 0)[99];
    fx.free_all([pfn; 2], 0);
    let found = fx.frames.audit(&fx.m).unwrap_err();
    assert_eq!((found.what, found.at), ("a frame is free twice, or pending and free", pfn.0));
}

#[test]
#[cfg(debug_assertions)]
fn a_wrong_order_or_a_foreign_frame_is_noticed() {
    let bad = |f: fn(&FramesFixture, Pfn)| {
        std::panic::catch_unwind(|| {
            let fx = frames(1, 2048);
            let pfn = fx.alloc(9).unwrap();
            f(&fx, pfn);
        })
        .is_err()
    };
    assert!(bad(|fx, p| fx.free(p, 0)));
    assert!(bad(|fx, p| fx.free(p, 8)));
    assert!(bad(|fx, p| fx.free(p, 10)));
    assert!(bad(|fx, p| fx.free(p.add(1), 9)));
    assert!(bad(|fx, _| fx.free(Pfn(3), 0)));
    assert!(bad(|fx, _| fx.free(Pfn(1 << 40), 0)));
    // A block that was allocated as one is freed as one.
    assert!(bad(|fx, p| {
        fx.free(p, 9);
        let larger = fx.alloc(10).unwrap();
        fx.free(larger, 9);
    }));
    assert!(!bad(|fx, p| fx.free(p, 9)));
}

#[test]
fn topologies_that_make_no_sense_are_refused_by_name() {
    let good = nodes(2, &[(0, 512), (512, 512)]);
    assert!(Frames::layout(&good).is_ok());
    type Wrong = (fn(&mut Topology), InitError);
    let wrong: [Wrong; 9] = [
        (|t| t.cpus = 0, InitError::NoCpu),
        (|t| t.cpus = 257, InitError::TooManyCpus),
        (|t| t.nodes = 0, InitError::NoNode),
        (|t| t.nodes = 17, InitError::TooManyNodes),
        (|t| t.node[1].frames = 0, InitError::EmptyNode),
        (|t| t.node[1].first = Pfn(511), InitError::NodesOverlap),
        (|t| t.cpu_node[1] = 2, InitError::CpuNode),
        (|t| t.node[0].frames = 1 << 40, InitError::TooLarge),
        (|t| t.node[1].first = Pfn(u64::MAX), InitError::TooLarge),
    ];
    for (make_wrong, error) in wrong {
        let mut t = good.clone();
        make_wrong(&mut t);
        assert_eq!(Frames::layout(&t), Err(error));
    }
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

#[test]
fn records_lie_side_by_side_only_inside_of_the_first_node() {
    // Frames 512 to 711, and 712 to 911.
    let fx = on(nodes(1, &[(512, 200), (712, 200)]));
    let has = |first| Record::run_of::<5>(&fx.frames, Pfn(first)).is_some();
    assert_eq!([511, 512, 707, 708, 711, 712].map(has), [false, true, true, false, false, false]);
    let records = Record::run_of::<5>(&fx.frames, Pfn(600)).expect("frames of the first node");
    for (record, n) in records.iter().zip(0..) {
        assert!(std::ptr::eq(record, fx.frames.record(Pfn(600 + n))), "record {n}");
    }
}
