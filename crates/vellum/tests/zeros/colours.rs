//! Coloured shared zeros, on the flat machine: statements B-1 to B-5, B-11 and what holds beside
//! them.
//!
//! The flat machine knows no caches of its own, so the tests say what it has. B-6 to B-8 are about
//! misses and live with the simulator; B-9 needs merging, which does not exist yet; B-12 compares
//! counters and needs all of the simulator's.

use crate::cached::{Cached, Lab, RW, at, lab, machine, way};
use crate::flat::{FrameHands, MachineHands, VmHands};
use vellum::addr::{Order, Pfn, Va};
use vellum::config::{Colours, Config, NumaPolicy, Thp};
use vellum::error::NoMemory;
use vellum::machine::{CacheLevel, Caches, Machine, NodeInfo, Topology, Use};
use vellum::space::{Access, Advice, Fault, Page, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::unstable::{MAX_COLOURS, Want};

const KIB: u64 = 1024;

fn config(colours: Colours) -> Config {
    Config { thp: Thp::Never, zero_colours: colours, ..Config::default() }
}

fn eight() -> Config {
    config(Colours::Exactly(Order::new(3).unwrap()))
}

/// The frame behind a page.
fn frame(lab: &Lab, space: &Space, va: Va) -> Option<Pfn> {
    match lab.vm.query(space, va) {
        Page::Mapped { pfn, .. } => Some(pfn),
        _ => None,
    }
}

fn mapped(lab: &Lab, pages: u64) -> Space {
    let space = lab.vm.create().unwrap();
    lab.vm.map(&space, Placement::At(at(0)), pages * 4096, RW).unwrap();
    space
}

fn read(lab: &Lab, space: &Space, va: Va) -> Pfn {
    assert_eq!(lab.vm.fault(space, va, Access::Read), Ok(Fault::Zero));
    frame(lab, space, va).expect("it was mapped")
}

/// All bytes of all zeros, folded.
fn sum_of_zeros(lab: &Lab) -> u64 {
    let mut sum = 0;
    for node in 0..lab.vm.machine().topology().nodes {
        let (first, frames) = lab.vm.zeros(node);
        for i in 0..frames {
            let mut bytes = [0xff; 4096];
            lab.vm.machine().peek(first.add(i), 0, &mut bytes);
            sum = bytes.iter().fold(sum, |sum: u64, &b| sum.rotate_left(5) ^ u64::from(b));
        }
    }
    sum
}

#[test]
fn b_01_a_way_of_32_kib_gives_eight_frames_in_the_order_of_addresses() {
    let lab =
        lab(machine(1 << 14, Caches { l2: way(32 * KIB), ..Caches::UNKNOWN }), config(Colours::L2));
    let space = mapped(&lab, 64);
    let (first, frames) = lab.vm.zeros(0);
    assert_eq!((frames, first.0 % 8), (8, 0), "aligned to its length");
    for page in 0..64 {
        let pfn = read(&lab, &space, at(page));
        assert_eq!(pfn, first.add(page & 7), "page {page}: mask 0x7000");
        assert_eq!(lab.vm.zero_frame(at(page)), Some(pfn));
    }
    for v in (0..0x8000).step_by(0x1000) {
        assert_eq!(lab.vm.zero_frame(Va(v)), lab.vm.zero_frame(Va(v + 0x8000)));
    }
    lab.check(&[&space]);
    lab.vm.exit(space);
    lab.check(&[]);
}

#[test]
fn b_01_every_space_sees_the_same_frame_at_an_address_and_so_does_a_page_mapped_again() {
    let lab = lab(machine(1 << 14, Caches::UNKNOWN), eight());
    let (a, b) = (mapped(&lab, 16), mapped(&lab, 16));
    let child = {
        (0..16).for_each(|page| _ = read(&lab, &a, at(page)));
        lab.vm.fork(&a).unwrap()
    };
    for page in 0..16 {
        let pfn = frame(&lab, &a, at(page));
        assert_eq!(Some(read(&lab, &b, at(page))), pfn);
        assert_eq!(frame(&lab, &child, at(page)), pfn, "a fork copies the entry");
        lab.vm.advise(&b, at(page), 4096, Advice::DontNeed).unwrap();
        assert_eq!(Some(read(&lab, &b, at(page))), pfn);
    }
    lab.check(&[&a, &b, &child]);
    [a, b, child].into_iter().for_each(|space| lab.vm.exit(space));
}

#[test]
fn b_01_a_page_that_moves_gets_the_colour_of_where_it_is() {
    let lab = lab(machine(1 << 14, Caches::UNKNOWN), eight());
    let space = mapped(&lab, 16);
    (0..16).for_each(|page| _ = read(&lab, &space, at(page)));
    lab.vm.remap(&space, at(0), 16 * 4096, 16 * 4096, Placement::At(at(101))).unwrap();
    for page in 101..117 {
        lab.vm.advise(&space, at(page), 4096, Advice::Populate { write: false }).unwrap();
        assert_eq!(frame(&lab, &space, at(page)), lab.vm.zero_frame(at(page)));
    }
    lab.check(&[&space]);
    lab.vm.exit(space);
}

#[test]
fn b_02_exactly_the_eight_frames_are_zeros() {
    let lab = lab(machine(1 << 14, Caches::UNKNOWN), eight());
    let space = lab.vm.create().unwrap();
    let (first, frames) = lab.vm.zeros(0);
    assert_eq!(frames, 8);
    let all: Vec<u64> = (0..1 << 15).filter(|&pfn| lab.vm.is_zero(Pfn(pfn))).collect();
    assert_eq!(all, (first.0..first.0 + 8).collect::<Vec<_>>());
    for pfn in [0, first.0 - 1, first.0 + 8, u64::MAX, u64::MAX >> 1, (1 << 52) - 1, (1 << 36) - 1]
    {
        assert!(!lab.vm.is_zero(Pfn(pfn)), "{pfn:#x}");
    }
    lab.vm.exit(space);
}

#[test]
fn b_02_before_the_first_space_and_without_zero_pages_no_frame_is() {
    for zero_page in [true, false] {
        let lab = lab(machine(4096, Caches::UNKNOWN), Config { zero_page, ..eight() });
        assert!((0..8192).all(|pfn| !lab.vm.is_zero(Pfn(pfn))));
        assert_eq!((lab.vm.zeros(0).1, lab.vm.zero_frame(at(0))), (0, None));
        let space = mapped(&lab, 1);
        assert_eq!(lab.vm.zeros(0).1, if zero_page { 8 } else { 0 });
        let fault = lab.vm.fault(&space, at(0), Access::Read);
        assert_eq!(fault, Ok(if zero_page { Fault::Zero } else { Fault::Base }));
        lab.vm.exit(space);
    }
}

/// A machine on which no more than `run` frames in a row are to be had, and those as often as
/// liked. Says what it took.
fn fragmented(run: u64) -> (Lab, Vec<Pfn>) {
    let lab = lab(machine(2048, Caches::UNKNOWN), eight());
    let (m, frames) = (lab.vm.machine(), lab.vm.frames());
    let want = Want { policy: NumaPolicy::Local, index: 0, use_: Use::Zero };
    let mut all = Vec::new();
    while let Ok(pfn) = frames.alloc(m, Order::BASE, &want) {
        all.push(pfn);
    }
    let keep = |pfn: &Pfn| run == 0 || pfn.0 & run != 0;
    all.iter().filter(|pfn| !keep(pfn)).for_each(|&pfn| frames.put(m, pfn, Order::BASE));
    all.retain(keep);
    (lab, all)
}

#[test]
fn b_03_where_long_runs_are_not_to_be_had_a_shorter_one_does_and_the_system_works() {
    for (run, order) in [(4, 2), (2, 1), (1, 0)] {
        let (lab, taken) = fragmented(run);
        let space = mapped(&lab, 32);
        let (first, frames) = lab.vm.zeros(0);
        assert_eq!(frames, 1 << order, "runs of {run}");
        for page in 0..32 {
            assert_eq!(read(&lab, &space, at(page)), first.add(page % frames));
        }
        assert!(lab.vm.fault(&space, at(3), Access::Write).is_ok());
        assert_eq!(sum_of_zeros(&lab), 0);
        taken.iter().for_each(|&pfn| lab.vm.frames().put(lab.vm.machine(), pfn, Order::BASE));
        lab.check(&[&space]);
        lab.vm.exit(space);
    }
}

#[test]
fn b_03_without_a_single_frame_there_is_no_space_and_nothing_is_lost() {
    let (lab, taken) = fragmented(0);
    assert_eq!(lab.vm.create().map(|space| lab.vm.exit(space)), Err(NoMemory));
    assert_eq!(lab.vm.create().map(|space| lab.vm.exit(space)), Err(NoMemory), "and again");
    assert_eq!(lab.vm.zeros(0).1, 0);
    taken.iter().for_each(|&pfn| lab.vm.frames().put(lab.vm.machine(), pfn, Order::BASE));
    let space = mapped(&lab, 8);
    assert_eq!(lab.vm.zeros(0).1, 8, "with memory there are as many as wanted");
    lab.check(&[&space]);
    lab.vm.exit(space);
}

#[test]
fn b_04_caches_that_are_unknown_or_absurd_give_one_frame_or_as_many_as_there_may_be() {
    let level = |sets, line| CacheLevel { sets, ways: 8, line };
    let cases = [
        (level(0, 64), 1),
        (level(512, 0), 1),
        (CacheLevel::UNKNOWN, 1),
        (level(64, 64), 1),
        (level(u64::MAX, u64::MAX), MAX_COLOURS),
        (level(1 << 50, 64), MAX_COLOURS),
        (level(1536, 64), 16),
    ];
    for (l1d, colours) in cases {
        let lab = lab(machine(1 << 18, Caches { l1d, ..Caches::UNKNOWN }), config(Colours::L1d));
        let space = mapped(&lab, 256);
        assert_eq!(lab.vm.zeros(0).1, colours, "{l1d:?}");
        assert_eq!(read(&lab, &space, at(255)), lab.vm.zeros(0).0.add(255 % colours));
        lab.check(&[&space]);
        lab.vm.exit(space);
    }
}

#[test]
fn b_04_small_memory_gives_fewer_frames_unless_a_number_was_said() {
    let l2 = way(512 * KIB);
    for (frames, colours) in [(4096, 4), (1 << 14, 16), (1 << 17, 128)] {
        let lab = lab(machine(frames, Caches { l2, ..Caches::UNKNOWN }), config(Colours::L2));
        lab.vm.exit(lab.vm.create().unwrap());
        assert_eq!(lab.vm.zeros(0).1, colours, "{frames} frames");
    }
    let lab = lab(machine(4096, Caches::UNKNOWN), config(Colours::Exactly(Order::new(7).unwrap())));
    lab.vm.exit(lab.vm.create().unwrap());
    assert_eq!(lab.vm.zeros(0).1, 128);
}

#[test]
fn b_05_zeros_are_read_only_uncounted_and_stay_zero_under_every_verb() {
    let lab = lab(machine(1 << 14, Caches::UNKNOWN), eight());
    let space = mapped(&lab, 64);
    let before = lab.check(&[&space]);
    for page in 0..64 {
        read(&lab, &space, at(page));
        let Page::Mapped { flags, zero, .. } = lab.vm.query(&space, at(page)) else {
            panic!("mapped")
        };
        assert!(zero && !flags.write && !flags.dirty);
    }
    assert_eq!(lab.vm.usage(&space).rss_pages, 0);
    assert_eq!(lab.vm.stats().get(Counter::AnonPages), 0);
    assert_eq!(lab.check(&[&space]), before, "no frame was taken");
    let child = lab.vm.fork(&space).unwrap();
    for (page, space) in (0..64).zip([&space, &child].into_iter().cycle()) {
        match page % 4 {
            0 => assert!(matches!(
                lab.vm.fault(space, at(page), Access::Write),
                Ok(Fault::Copied(_))
            )),
            1 => lab.vm.copy_in(space, at(page), &[7; 100]).unwrap(),
            2 => {
                lab.vm.protect(space, at(page), 4096, Rights::NONE).unwrap();
                lab.vm.protect(space, at(page), 4096, Rights::READ_WRITE).unwrap();
                lab.vm.copy_in(space, at(page), &[9; 4096]).unwrap();
            }
            _ => lab.vm.unmap(space, at(page), 4096).unwrap(),
        }
        assert_eq!(sum_of_zeros(&lab), 0, "after page {page}");
        assert!(frame(&lab, space, at(page)).is_none_or(|pfn| !lab.vm.is_zero(pfn)));
    }
    assert!(lab.vm.usage(&space).rss_pages + lab.vm.usage(&child).rss_pages > 0);
    lab.check(&[&space, &child]);
    lab.vm.exit(space);
    lab.vm.exit(child);
    lab.check(&[]);
    assert_eq!(
        (lab.vm.zeros(0).1, sum_of_zeros(&lab)),
        (8, 0),
        "zeros stay when the last space goes"
    );
}

/// There are no pins yet. What a pin of a zero frame must not do, no mapping, look, kernel read or
/// fork does either: leave a trace in the frame's record. When pins come they belong into this
/// loop.
#[test]
fn b_11_a_million_uses_of_a_zero_frame_leave_its_record_as_it_was() {
    let lab = lab(machine(1 << 14, Caches::UNKNOWN), eight());
    let space = mapped(&lab, 8);
    let words = |pfn: Pfn| {
        let record = lab.vm.frames().record(pfn);
        (record.use_(), record.flags(), record.words())
    };
    let (first, frames) = lab.vm.zeros(0);
    let before: Vec<_> = (0..frames).map(|i| words(first.add(i))).collect();
    let mut byte = [0];
    for i in 0..1_000_000u64 {
        let va = at(i % 8);
        lab.vm.copy_out(&space, va, &mut byte).unwrap();
        if i % 16 < 8 {
            lab.vm.advise(&space, va, 4096, Advice::DontNeed).unwrap();
        }
    }
    let children: Vec<_> = (0..100).map(|_| lab.vm.fork(&space).unwrap()).collect();
    let after: Vec<_> = (0..frames).map(|i| words(first.add(i))).collect();
    assert_eq!(before, after);
    children.into_iter().for_each(|child| lab.vm.exit(child));
    lab.vm.exit(space);
}

#[test]
fn each_node_with_cpus_has_zeros_of_its_own_and_reads_them() {
    let mut topology = Topology::flat(4, Pfn(512), 8192);
    topology.nodes = 3;
    topology.node[1] = NodeInfo { first: Pfn(1 << 15), frames: 8192 };
    topology.node[2] = NodeInfo { first: Pfn(1 << 14), frames: 8192 };
    topology.cpu_node[2..4].fill(1);
    let lab = lab(Cached::new(topology.clone(), Caches::UNKNOWN), eight());
    let space = mapped(&lab, 64);
    assert_eq!([0, 1, 2].map(|node| lab.vm.zeros(node).1), [8, 8, 0], "node 2 has no CPUs");
    for cpu in 0..4 {
        let (first, _) = lab.vm.zeros(topology.cpu_node[cpu] as usize);
        assert_eq!(topology.node_of(first), Some(topology.cpu_node[cpu] as usize));
        lab.vm.machine().run_on(cpu);
        for page in 0..8 {
            let va = at(cpu as u64 * 8 + page);
            assert_eq!(read(&lab, &space, va), first.add(page));
        }
    }
    let zeros: Vec<u64> = (0..1 << 17).filter(|&pfn| lab.vm.is_zero(Pfn(pfn))).collect();
    assert_eq!(zeros.len(), 16, "nothing between the blocks");
    lab.check(&[&space]);
    lab.vm.exit(space);
}

#[test]
fn a_node_without_room_borrows_one_frame_of_another() {
    let mut topology = Topology::flat(2, Pfn(512), 8192);
    topology.nodes = 2;
    topology.node[1] = NodeInfo { first: Pfn(1 << 15), frames: 1024 };
    topology.cpu_node[1] = 1;
    let lab = lab(Cached::new(topology, Caches::UNKNOWN), eight());
    let (m, want) =
        (lab.vm.machine(), Want { policy: NumaPolicy::Bind(1), index: 0, use_: Use::Zero });
    let mut taken = Vec::new();
    while let Ok(pfn) = lab.vm.frames().alloc(m, Order::BASE, &want) {
        taken.push(pfn);
    }
    let space = mapped(&lab, 16);
    assert_eq!([0, 1].map(|node| lab.vm.zeros(node).1), [8, 1]);
    m.run_on(1);
    assert!((0..16).all(|page| read(&lab, &space, at(page)) == lab.vm.zeros(1).0));
    m.run_on(0);
    taken.iter().for_each(|&pfn| lab.vm.frames().put(m, pfn, Order::BASE));
    lab.check(&[&space]);
    lab.vm.exit(space);
}

#[test]
fn zero_faults_are_counted_by_colour() {
    let lab = lab(machine(1 << 14, Caches::UNKNOWN), eight());
    let space = mapped(&lab, 20);
    (0..20).for_each(|page| _ = read(&lab, &space, at(page)));
    let counts: Vec<u64> = (0..10).map(|colour| lab.vm.zero_faults(colour)).collect();
    assert_eq!(counts, [3, 3, 3, 3, 2, 2, 2, 2, 0, 0]);
    assert_eq!(lab.vm.stats().get(Counter::FaultsZero), 20);
    assert_eq!(lab.vm.zero_faults(usize::MAX), 0);
    lab.vm.exit(space);
}

#[test]
fn an_empty_top_level_table_is_not_a_zero_page() {
    let lab = lab(machine(1 << 14, Caches::UNKNOWN), eight());
    let spaces: Vec<_> = (0..20).map(|_| lab.vm.create().unwrap()).collect();
    let (first, frames) = lab.vm.zeros(0);
    for i in 0..frames {
        assert_eq!(lab.vm.frames().record(first.add(i)).use_(), Use::Zero);
    }
    let audit = lab.vm.audit(&spaces.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!((audit.zero_frames, audit.table_frames), (8, 20), "each root is a frame of its own");
    spaces.into_iter().for_each(|space| lab.vm.exit(space));
}

#[test]
fn two_cpus_that_make_the_first_space_at_once_make_the_zeros_once() {
    for _ in 0..200 {
        let lab = lab(machine(1 << 13, Caches::UNKNOWN), eight());
        let start = std::sync::Barrier::new(2);
        let (lab, start) = (&lab, &start);
        let spaces: Vec<Space> = std::thread::scope(|scope| {
            let one = |cpu: usize| {
                move || {
                    lab.vm.machine().run_on(cpu);
                    start.wait();
                    let space = mapped(lab, 8);
                    (0..8).for_each(|page| {
                        assert_eq!(read(lab, &space, at(page)), lab.vm.zeros(0).0.add(page))
                    });
                    space
                }
            };
            let both = [0, 1].map(|cpu| scope.spawn(one(cpu)));
            both.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let audit = lab.vm.audit(&spaces.iter().collect::<Vec<_>>()).expect("sound");
        assert_eq!((audit.zero_frames, audit.other_frames), (8, 0), "no second block is left over");
        spaces.into_iter().for_each(|space| lab.vm.exit(space));
    }
}
