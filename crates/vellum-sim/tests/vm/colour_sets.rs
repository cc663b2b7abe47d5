//! B-6 to B-8: what colours do to the sets of a cache. Judged on data accesses of the program
//! alone, walks counted apart.
//!
//! Frame numbers are fixed: real data lies in one 2 MiB page, so its frames follow each other, and
//! zeros in their block; which sets they share is decided by the offset the program chooses within
//! the large page, and each test goes through all of them.

use vellum::addr::{Order, Va};
use vellum::config::Config;
use vellum::space::{Access, Attrs, LeafSize, Placement, Rights};
use vellum::vm::Vm;
use vellum_sim::cache::Policy;
use vellum_sim::format::Arm;
use vellum_sim::{Kind, Meta, Options, Parts, Program, SimMachine, file};

const REAL: u64 = 0x4000_0000;
const ZERO: u64 = 0x8000_0000;

/// Misses of the program and walks, over some turns after the caches have settled.
#[derive(Clone, Copy, Debug)]
struct Misses {
    l1: f64,
    l2: f64,
    walks: u64,
}

/// ThunderX2 with this replacement in both private levels, and an L1D of that size and ways.
fn machine(policy: Policy, l1d: (u64, u32)) -> Parts {
    let mut parts = Parts::of(&file::preset("thunderx2").expect("a preset"), 1);
    parts.caches.l1d.policy = policy;
    parts.caches.l2.policy = policy;
    parts.caches.l1d.sets = l1d.0 / 64 / u64::from(l1d.1);
    parts.caches.l1d.ways = l1d.1;
    parts
}

/// Runs `turn` (given an access and the turn's number) 2000 times, and 4000 times more under count.
fn count(parts: &Parts, colours: &str, turn: impl Fn(&mut dyn FnMut(u64), u64)) -> Misses {
    let sim = SimMachine::<Arm>::build(parts, Options::default()).expect("it can be built");
    let meta =
        Meta::new(Vm::<SimMachine<Arm>>::layout(sim.topology())).expect("memory for metadata");
    let mut config = Config::default();
    [("thp", "never"), ("zero.colours", colours)]
        .iter()
        .for_each(|(k, v)| config.set(k, v).expect("a switch"));
    // SAFETY: the memory is zero, of the layout asked for, and outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.expect("a Vm");
    let turns = 4000;
    vm.machine()
        .solo(0, |cpu| {
            let space = vm.create().expect("memory");
            vm.activate(&space);
            let rw = Attrs::anonymous(Rights::READ_WRITE);
            let huge = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..rw };
            vm.map(&space, Placement::At(Va(REAL)), 2 << 20, huge).expect("a hole");
            vm.map(&space, Placement::At(Va(ZERO)), 64 * 4096, rw).expect("a hole");
            vm.fault(&space, Va(REAL), Access::Write).expect("a huge page");
            let mut p =
                Program::new(cpu, |va, _| vm.fault(&space, Va(va), Access::Read).map(|_| ()));
            let mut access = |va| assert!(p.access(va, 4, Kind::Load, false).is_ok());
            (0..2000).for_each(|n| turn(&mut access, n));
            let before = vm.machine().total();
            (2000..2000 + turns).for_each(|n| turn(&mut access, n));
            let counted = vm.machine().total().since(&before);
            let get = |name| counted.get(name).expect("a counter");
            let (l1, l2, walks) =
                (get("l1d_demand_miss"), get("l2_demand_miss"), get("walks_data"));
            vm.exit(space);
            Misses { l1: l1 as f64 / turns as f64, l2: l2 as f64 / turns as f64, walks }
        })
        .unwrap_or_else(|stop| panic!("{stop}"))
}

const L1: (u64, u32) = (32 << 10, 8);

/// Test 1: offset 0 of `n` frames that follow each other. Misses a read.
fn frames_in_a_row(policy: Policy, n: u64) -> f64 {
    let m =
        count(&machine(policy, L1), "1", |access, _| (0..n).for_each(|i| access(REAL + i * 4096)));
    assert_eq!(m.walks, 0);
    m.l1 / n as f64
}

#[test]
fn b_06_eight_frames_in_a_row_fit_and_nine_miss_always_under_lru_and_often_under_others() {
    for policy in [Policy::Lru, Policy::Plru, Policy::Random] {
        let eight = frames_in_a_row(policy, 8);
        // Random victims take some turns until all eight have found a way; the count begins long
        // after.
        assert!(eight * 8.0 * 4000.0 <= 8.0, "{policy:?}: {eight} a read at N = 8");
    }
    assert!(frames_in_a_row(Policy::Lru, 9) > 0.99);
    for policy in [Policy::Plru, Policy::Random] {
        let nine = frames_in_a_row(policy, 9);
        assert!((0.2..=1.0).contains(&nine), "{policy:?}: {nine}");
    }
}

/// Test 2: eight reads one way of L2 apart, `align` pages into the large page, then `zeros` reads
/// of the zero-backed area. With one zero read a turn it is the next page's, else the first pages'.
fn beside_zeros(policy: Policy, colours: &str, align: u64, zeros: u64) -> Misses {
    count(&machine(policy, L1), colours, |access, turn| {
        (0..8).for_each(|i| access(REAL + align * 4096 + i * (32 << 10)));
        match zeros {
            1 => access(ZERO + turn % 64 * 4096),
            n => (0..n).for_each(|i| access(ZERO + i * 4096)),
        }
    })
}

#[test]
fn b_07_one_zero_read_a_turn_colours_turn_one_bad_alignment_of_eight_into_an_eighth_everywhere() {
    let one: Vec<Misses> = (0..8).map(|align| beside_zeros(Policy::Lru, "1", align, 1)).collect();
    let eight: Vec<Misses> = (0..8).map(|align| beside_zeros(Policy::Lru, "8", align, 1)).collect();
    assert_eq!(one.iter().filter(|m| (m.l2 - 9.0).abs() < 0.01).count(), 1, "{one:?}");
    assert_eq!(one.iter().filter(|m| m.l2 < 0.01).count(), 7, "{one:?}");
    assert!(eight.iter().all(|m| (m.l2 - 1.125).abs() < 0.01), "{eight:?}");
    assert!(
        one.iter().chain(&eight).all(|m| (m.l1 - 9.0).abs() < 0.01),
        "L1 has one colour: {one:?} {eight:?}"
    );
    // The area has more pages than L1's TLB has entries beside the large page, so one walk a round
    // may remain.
    assert!(one.iter().chain(&eight).all(|m| m.walks <= 4000 / 64 + 64), "{one:?} {eight:?}");
}

#[test]
fn b_07_eight_zero_reads_a_turn_colours_lose_in_seven_alignments_of_eight() {
    for align in 0..8 {
        let (one, eight) =
            (beside_zeros(Policy::Lru, "1", align, 8), beside_zeros(Policy::Lru, "8", align, 8));
        assert!((eight.l2 - 9.0).abs() < 0.01, "alignment {align}: {eight:?}");
        assert!((one.l2 - 9.0).abs() < 0.01 || one.l2 < 0.01, "alignment {align}: {one:?}");
        assert!((one.l1 - 9.0).abs() < 0.01 && (eight.l1 - 16.0).abs() < 0.01, "{one:?} {eight:?}");
    }
}

#[test]
fn b_08_where_a_way_of_l1_is_four_pages_four_colours_lower_its_misses_in_the_worst_alignment() {
    let parts = machine(Policy::Lru, (64 << 10, 4));
    let run = |colours: &str, align: u64| {
        count(&parts, colours, |access, turn| {
            (0..4).for_each(|i| access(REAL + align * 4096 + i * (16 << 10)));
            access(ZERO + turn % 32 * 4096);
        })
    };
    let worst = |colours: &str| (0..4).map(|align| run(colours, align).l1).fold(0.0, f64::max);
    let mean = |colours: &str| (0..4).map(|align| run(colours, align).l1).sum::<f64>() / 4.0;
    assert!((worst("1") - 5.0).abs() < 0.01 && (worst("4") - 1.25).abs() < 0.01);
    // The switch left alone finds the four colours by itself.
    assert_eq!(worst("auto"), worst("4"));
    // And what it does not do.
    assert!((mean("1") - mean("4")).abs() < 0.01, "the mean is what it was");
}
