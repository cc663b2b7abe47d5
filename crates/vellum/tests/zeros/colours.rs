//! Coloured frames of zeros: statements B-1 to B-5 and B-11.
//!
//! The flat machine knows no caches of its own, so the tests say what it has. B-6 to B-8 are about
//! misses and live with the simulator.

use vellum::unstable::MAX_COLOURS;
use vellum_testkit::prelude::*;

const KIB: u64 = 1024;

fn config(colours: Colours) -> Config {
    Config { thp: Thp::Never, zero_colours: colours, ..Config::default() }
}

fn eight() -> Config {
    config(Colours::Exactly(order(3)))
}

/// A level whose way has that many bytes.
fn way(bytes: u64) -> CacheLevel {
    CacheLevel { sets: bytes / 64, ways: 8, line: 64 }
}

fn with_caches(frames: u64, caches: Caches, config: Config) -> Fixture {
    Fixture::new(flat(2, frames).with_caches(caches), config)
}

fn mapped(fx: &Fixture, pages: u64) -> Space {
    fx.mapped(AT, pages * KIB4, RW)
}

fn read(fx: &Fixture, space: &Space, va: Va) -> Pfn {
    assert_eq!(fx.vm.fault(space, va, Access::Read), Ok(Fault::Zero));
    fx.frame_at(space, va).expect("it was mapped")
}

/// A checksum of all zeros.
fn sum_of_zeros(fx: &Fixture) -> u64 {
    let mut sum = 0;
    for node in 0..fx.m().topology().nodes {
        let (first, frames) = fx.vm.zeros(node);
        for i in 0..frames {
            let mut bytes = [0xff; 4096];
            fx.m().peek(first.add(i), 0, &mut bytes);
            sum = bytes.iter().fold(sum, |sum: u64, &b| sum.rotate_left(5) ^ u64::from(b));
        }
    }
    sum
}

#[test]
fn b_01_a_way_of_32_kib_gives_eight_frames_in_the_order_of_addresses() {
    let caches = Caches { l2: way(32 * KIB), ..Caches::UNKNOWN };
    let fx = with_caches(1 << 14, caches, config(Colours::L2));
    let space = mapped(&fx, 64);
    let (first, frames) = fx.vm.zeros(0);
    assert_eq!((frames, first.0 % 8), (8, 0), "aligned to its length");
    for page in 0..64 {
        let pfn = read(&fx, &space, page_at(page));
        assert_eq!(pfn, first.add(page & 7), "page {page}: mask 0x7000");
        assert_eq!(fx.vm.zero_frame(page_at(page)), Some(pfn));
    }
    for v in (0..0x8000).step_by(0x1000) {
        assert_eq!(fx.vm.zero_frame(Va(v)), fx.vm.zero_frame(Va(v + 0x8000)));
    }
    fx.end([space]);
}

#[test]
fn b_01_every_space_sees_the_same_frame_at_an_address_and_so_does_a_page_mapped_again() {
    let fx = fixture(1 << 14, eight());
    let (a, b) = (mapped(&fx, 16), mapped(&fx, 16));
    (0..16).for_each(|page| _ = read(&fx, &a, page_at(page)));
    let child = fx.vm.fork(&a).unwrap();
    for page in 0..16 {
        let pfn = fx.frame_at(&a, page_at(page));
        assert_eq!(Some(read(&fx, &b, page_at(page))), pfn);
        assert_eq!(fx.frame_at(&child, page_at(page)), pfn, "a fork copies the entry");
        fx.vm.advise(&b, page_at(page), 4096, Advice::DontNeed).unwrap();
        assert_eq!(Some(read(&fx, &b, page_at(page))), pfn);
    }
    fx.end([a, b, child]);
}

#[test]
fn b_01_a_page_that_moves_gets_the_colour_of_where_it_is() {
    let fx = fixture(1 << 14, eight());
    let space = mapped(&fx, 16);
    (0..16).for_each(|page| _ = read(&fx, &space, page_at(page)));
    fx.vm.remap(&space, page_at(0), 16 * 4096, 16 * 4096, Placement::At(page_at(101))).unwrap();
    for page in 101..117 {
        fx.vm.advise(&space, page_at(page), 4096, Advice::Populate { write: false }).unwrap();
        assert_eq!(fx.frame_at(&space, page_at(page)), fx.vm.zero_frame(page_at(page)));
    }
    fx.end([space]);
}

#[test]
fn b_02_exactly_the_eight_frames_are_zeros() {
    let fx = fixture(1 << 14, eight());
    let space = fx.vm.create().unwrap();
    let (first, frames) = fx.vm.zeros(0);
    assert_eq!(frames, 8);
    let all: Vec<u64> = (0..1 << 15).filter(|&pfn| fx.vm.is_zero(Pfn(pfn))).collect();
    assert_eq!(all, (first.0..first.0 + 8).collect::<Vec<_>>());
    for pfn in [0, first.0 - 1, first.0 + 8, u64::MAX, u64::MAX >> 1, (1 << 52) - 1, (1 << 36) - 1]
    {
        assert!(!fx.vm.is_zero(Pfn(pfn)), "{pfn:#x}");
    }
    fx.vm.exit(space);
}

#[test]
fn b_02_before_the_first_space_and_without_zero_pages_no_frame_is() {
    for zero_page in [true, false] {
        let fx = fixture(4096, Config { zero_page, ..eight() });
        assert!((0..8192).all(|pfn| !fx.vm.is_zero(Pfn(pfn))));
        assert_eq!((fx.vm.zeros(0).1, fx.vm.zero_frame(page_at(0))), (0, None));
        let space = mapped(&fx, 1);
        assert_eq!(fx.vm.zeros(0).1, if zero_page { 8 } else { 0 });
        let fault = fx.vm.fault(&space, page_at(0), Access::Read);
        assert_eq!(fault, Ok(if zero_page { Fault::Zero } else { Fault::Base }));
        fx.vm.exit(space);
    }
}

/// A machine with no more than `run` contiguous free frames anywhere, and what was allocated for
/// that.
fn fragmented(run: u64) -> (Fixture, Vec<Pfn>) {
    let fx = fixture(2048, eight());
    let all = fx.take_all(Order::BASE).into_iter();
    let (kept, back): (Vec<Pfn>, Vec<Pfn>) = all.partition(|pfn| run == 0 || pfn.0 & run != 0);
    fx.give_back(back, Order::BASE);
    (fx, kept)
}

#[test]
fn b_03_where_long_runs_are_not_to_be_had_a_shorter_one_does_and_the_system_works() {
    for (run, order) in [(4, 2), (2, 1), (1, 0)] {
        let (fx, taken) = fragmented(run);
        let space = mapped(&fx, 32);
        let (first, frames) = fx.vm.zeros(0);
        assert_eq!(frames, 1 << order, "runs of {run}");
        for page in 0..32 {
            assert_eq!(read(&fx, &space, page_at(page)), first.add(page % frames));
        }
        assert!(fx.vm.fault(&space, page_at(3), Access::Write).is_ok());
        assert_eq!(sum_of_zeros(&fx), 0);
        fx.give_back(taken, Order::BASE);
        fx.end([space]);
    }
}

#[test]
fn b_03_without_a_single_frame_there_is_no_space_and_nothing_is_lost() {
    let (fx, taken) = fragmented(0);
    assert_eq!(fx.vm.create().map(|space| fx.vm.exit(space)), Err(NoMemory));
    assert_eq!(fx.vm.create().map(|space| fx.vm.exit(space)), Err(NoMemory), "and again");
    assert_eq!(fx.vm.zeros(0).1, 0);
    fx.give_back(taken, Order::BASE);
    let space = mapped(&fx, 8);
    assert_eq!(fx.vm.zeros(0).1, 8, "with memory there are as many as wanted");
    fx.end([space]);
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
        let fx = with_caches(1 << 18, Caches { l1d, ..Caches::UNKNOWN }, config(Colours::L1d));
        let space = mapped(&fx, 256);
        assert_eq!(fx.vm.zeros(0).1, colours, "{l1d:?}");
        assert_eq!(read(&fx, &space, page_at(255)), fx.vm.zeros(0).0.add(255 % colours));
        fx.end([space]);
    }
}

#[test]
fn b_04_small_memory_gives_fewer_frames_unless_a_number_was_said() {
    let l2 = way(512 * KIB);
    let exactly = Colours::Exactly(order(7));
    for (frames, switch, colours) in [
        (4096, Colours::L2, 4),
        (1 << 14, Colours::L2, 16),
        (1 << 17, Colours::L2, 128),
        (4096, exactly, 128),
    ] {
        let fx = with_caches(frames, Caches { l2, ..Caches::UNKNOWN }, config(switch));
        fx.vm.exit(fx.vm.create().unwrap());
        assert_eq!(fx.vm.zeros(0).1, colours, "{frames} frames, {switch:?}");
    }
}

#[test]
fn b_05_zeros_are_read_only_uncounted_and_stay_zero_under_every_verb() {
    let fx = fixture(1 << 14, eight());
    let space = mapped(&fx, 64);
    let before = fx.check(&[&space]);
    for page in 0..64 {
        read(&fx, &space, page_at(page));
        let Leaf { flags, zero, .. } = fx.leaf(&space, page_at(page));
        assert!(zero && !flags.write && !flags.dirty);
    }
    assert_eq!(fx.usage(&space).rss_pages, 0);
    assert_eq!(fx.count(Counter::AnonPages), 0);
    assert_eq!(fx.check(&[&space]), before, "no frame was taken");
    let child = fx.vm.fork(&space).unwrap();
    for (page, space) in (0..64).zip([&space, &child].into_iter().cycle()) {
        match page % 4 {
            0 => {
                let fault = fx.vm.fault(space, page_at(page), Access::Write);
                assert!(matches!(fault, Ok(Fault::Copied(_))));
            }
            1 => fx.vm.copy_in(space, page_at(page), &[7; 100]).unwrap(),
            2 => {
                fx.vm.protect(space, page_at(page), 4096, Rights::NONE).unwrap();
                fx.vm.protect(space, page_at(page), 4096, Rights::READ_WRITE).unwrap();
                fx.vm.copy_in(space, page_at(page), &[9; 4096]).unwrap();
            }
            _ => fx.vm.unmap(space, page_at(page), 4096).unwrap(),
        }
        assert_eq!(sum_of_zeros(&fx), 0, "after page {page}");
        assert!(fx.frame_at(space, page_at(page)).is_none_or(|pfn| !fx.vm.is_zero(pfn)));
    }
    assert!(fx.usage(&space).rss_pages + fx.usage(&child).rss_pages > 0);
    fx.end([space, child]);
    // Zeros stay when the last space goes.
    assert_eq!((fx.vm.zeros(0).1, sum_of_zeros(&fx)), (8, 0));
}

/// No mapping, kernel read or fork leaves a trace in the record of a zero frame.
#[test]
fn b_11_a_million_uses_of_a_zero_frame_leave_its_record_as_it_was() {
    let fx = fixture(1 << 14, eight());
    let space = mapped(&fx, 8);
    let words = |pfn: Pfn| {
        let record = fx.vm.frames().record(pfn);
        (record.use_(), record.flags(), record.words())
    };
    let (first, frames) = fx.vm.zeros(0);
    let before: Vec<_> = (0..frames).map(|i| words(first.add(i))).collect();
    let mut byte = [0];
    for i in 0..1_000_000u64 {
        let va = page_at(i % 8);
        fx.vm.copy_out(&space, va, &mut byte).unwrap();
        if i % 16 < 8 {
            fx.vm.advise(&space, va, 4096, Advice::DontNeed).unwrap();
        }
    }
    let children: Vec<_> = (0..100).map(|_| fx.vm.fork(&space).unwrap()).collect();
    let after: Vec<_> = (0..frames).map(|i| words(first.add(i))).collect();
    assert_eq!(before, after);
    children.into_iter().for_each(|child| fx.vm.exit(child));
    fx.vm.exit(space);
}

#[test]
fn each_node_with_cpus_has_zeros_of_its_own_and_reads_them() {
    let mut topology = nodes(4, &[(512, 8192), (1 << 15, 8192), (1 << 14, 8192)]);
    topology.cpu_node[2..4].fill(1);
    let fx = Fixture::new(Flat::new(topology.clone(), MmuRules::X86_64), eight());
    let space = mapped(&fx, 64);
    assert_eq!([0, 1, 2].map(|node| fx.vm.zeros(node).1), [8, 8, 0], "node 2 has no CPUs");
    for cpu in 0..4 {
        let (first, _) = fx.vm.zeros(topology.cpu_node[cpu] as usize);
        assert_eq!(topology.node_of(first), Some(topology.cpu_node[cpu] as usize));
        fx.run_on(cpu);
        for page in 0..8 {
            let va = page_at(cpu as u64 * 8 + page);
            assert_eq!(read(&fx, &space, va), first.add(page));
        }
    }
    let zeros: Vec<u64> = (0..1 << 17).filter(|&pfn| fx.vm.is_zero(Pfn(pfn))).collect();
    assert_eq!(zeros.len(), 16, "nothing between the blocks");
    fx.end([space]);
}

#[test]
fn a_node_without_room_borrows_one_frame_of_another() {
    let mut topology = nodes(2, &[(512, 8192), (1 << 15, 1024)]);
    topology.cpu_node[1] = 1;
    let fx = Fixture::new(Flat::new(topology, MmuRules::X86_64), eight());
    let (m, want) =
        (fx.m(), AllocRequest { policy: NumaPolicy::Bind(1), ..AllocRequest::kernel(Use::Zero) });
    let mut taken = Vec::new();
    while let Ok(pfn) = fx.vm.frames().alloc(m, Order::BASE, &want) {
        taken.push(pfn);
    }
    let space = mapped(&fx, 16);
    assert_eq!([0, 1].map(|node| fx.vm.zeros(node).1), [8, 1]);
    m.run_on(1);
    assert!((0..16).all(|page| read(&fx, &space, page_at(page)) == fx.vm.zeros(1).0));
    m.run_on(0);
    fx.give_back(taken, Order::BASE);
    fx.end([space]);
}

#[test]
fn zero_faults_are_counted_by_colour() {
    let fx = fixture(1 << 14, eight());
    let space = mapped(&fx, 20);
    (0..20).for_each(|page| _ = read(&fx, &space, page_at(page)));
    let counts: Vec<u64> = (0..10).map(|colour| fx.vm.zero_faults(colour)).collect();
    assert_eq!(counts, [3, 3, 3, 3, 2, 2, 2, 2, 0, 0]);
    assert_eq!(fx.count(Counter::FaultsZero), 20);
    assert_eq!(fx.vm.zero_faults(usize::MAX), 0);
    fx.vm.exit(space);
}

#[test]
fn an_empty_top_level_table_is_not_a_zero_page() {
    let fx = fixture(1 << 14, eight());
    let spaces: Vec<_> = (0..20).map(|_| fx.vm.create().unwrap()).collect();
    let (first, frames) = fx.vm.zeros(0);
    for i in 0..frames {
        assert_eq!(fx.vm.frames().record(first.add(i)).use_(), Use::Zero);
    }
    let audit = fx.vm.audit(&spaces.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!((audit.zero_frames, audit.table_frames), (8, 20), "each root is a frame of its own");
    spaces.into_iter().for_each(|space| fx.vm.exit(space));
}
