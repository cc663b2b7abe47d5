//! Faults that find no block of 2 MiB have another way: once it was in vain, they seldom take from
//! other CPUs what those keep. Whom nothing else will do for does so each time.

use vellum_testkit::prelude::*;

const FAULTS: u64 = 64;

/// Memory without a block of 2 MiB, and what is taken of it: in each block one frame, and every
/// second one.
fn fragmented(config: Config) -> (Fixture, Vec<Pfn>) {
    let fx = fixture_of::<X86_64>(8, 16384, config);
    let taken = fx.take_all(Order::BASE);
    let goes = |pfn: &Pfn| pfn.0 % 512 != 7 && pfn.0.is_multiple_of(2);
    let (back, kept): (Vec<Pfn>, Vec<Pfn>) = taken.into_iter().partition(goes);
    fx.give_back(back, Order::BASE);
    fx.vm.frames().drain(fx.m());
    (fx, kept)
}

/// How often `act` of CPU 0 took from the other CPUs what they keep.
fn drains(fx: &Fixture, times: u64, act: impl Fn(u64)) -> usize {
    let one = AllocRequest::kernel(Use::Slab);
    let cached = || fx.vm.frames().audit(fx.m()).expect("whole").cached;
    let drained = |&n: &u64| {
        for cpu in 1..8 {
            fx.on_cpu(cpu, || {
                let one = fx.vm.frames().alloc(fx.m(), Order::BASE, &one).expect("a frame");
                fx.give_back([one], Order::BASE);
            });
        }
        let before = cached();
        act(n);
        cached() + 300 < before
    };
    (0..times).filter(drained).count()
}

#[test]
fn reads_of_zeros_take_no_more_from_other_cpus_than_writes_do() {
    for access in [Access::Write, Access::Read] {
        let (fx, taken) = fragmented(with_zeros(ZeroHuge::Page));
        let space = fx.mapped(Va(GIB), FAULTS * MIB2, RW);
        let drained = drains(&fx, FAULTS, |n| {
            fx.vm.fault(&space, Va(GIB + n * MIB2), access).expect("a page");
        });
        assert!((1..10).contains(&drained), "{access:?}: {drained} of {FAULTS}");
        fx.give_back(taken, Order::BASE);
        fx.end([space]);
    }
}

#[test]
fn faults_of_objects_take_no_more_from_other_cpus_either() {
    let (fx, taken) = fragmented(Config { object_huge: Thp::Always, ..Config::default() });
    let object = fx.object(FAULTS * MIB2);
    let space = fx.vm.create().unwrap();
    let part = ObjectPart { object: &object, offset: 0 };
    fx.vm.map_object(&space, Placement::At(Va(GIB)), FAULTS * MIB2, RW, part).unwrap();
    let drained = drains(&fx, FAULTS, |n| fx.poke(&space, Va(GIB + n * MIB2), 1).unwrap());
    assert!((1..10).contains(&drained), "{drained} of {FAULTS}");
    assert_eq!(fx.count(Counter::ThpFileFallback) as u64, FAULTS);
    fx.give_back(taken, Order::BASE);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn pools_and_zeros_that_are_kept_take_what_other_cpus_keep_each_time() {
    let (fx, taken) = fragmented(with_zeros(ZeroHuge::Page));
    let drained = drains(&fx, FAULTS, |n| {
        let got = if n % 2 == 0 { fx.vm.keep_zeros() } else { fx.vm.pool(Order::HUGE, 1) };
        assert_eq!(got, Err(NoMemory));
    });
    assert_eq!(drained as u64, FAULTS);
    fx.give_back(taken, Order::BASE);
    assert_eq!(fx.vm.keep_zeros(), Ok(()));
    fx.check(&[]);
}
