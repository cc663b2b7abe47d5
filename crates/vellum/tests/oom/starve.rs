//! Runs a verb with room for no allocation, for one, for two, and so on until it succeeds: each
//! failure leaves everything as it was, and the success is a success.

use vellum_testkit::prelude::*;

/// What a program could read around the places the tests use.
pub fn picture(fx: &Fixture, space: &Space) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    for base in
        [GIB - 8 * KIB4, GIB, GIB + 510 * KIB4, 2 * GIB, 3 * GIB - 8 * KIB4, 6 * GIB, 1 << 39]
    {
        for va in (base..base + 20 * KIB4).step_by(KIB4 as usize) {
            match fx.vm.query(space, Va(va)) {
                Page::Mapped { .. } => {
                    seen.push((va, fx.peek(space, Va(va)).expect("a page that is there")))
                }
                Page::Reserved { .. } => seen.push((va, 0)),
                Page::Unmapped | Page::Parked { .. } => {}
            }
        }
    }
    seen
}

/// A 1 GiB promise with a few pages, 2 MiB with a huge page, some small mappings.
pub fn furnished(config: Config) -> (Fixture, Space) {
    let fx = fixture(4096, config);
    let space = fx.mapped(Va(2 * GIB), GIB, RW);
    fx.map(&space, Va(GIB), MIB2, RW);
    fx.map(&space, Va(GIB - 4 * KIB4), 4 * KIB4, Attrs::anonymous(Rights::ALL));
    for va in [GIB - 2 * KIB4, GIB, GIB + 511 * KIB4] {
        fx.poke(&space, Va(va), va).expect("memory");
    }
    (fx, space)
}

/// Every frame there is, taken one by one.
pub fn take_all(fx: &Fixture) -> Vec<Pfn> {
    let take = Want { policy: NumaPolicy::Local, index: 0, use_: Use::Table };
    std::iter::from_fn(|| fx.vm.frames().alloc(fx.m(), Order::BASE, &take).ok()).collect()
}

pub fn give(fx: &Fixture, frames: impl IntoIterator<Item = Pfn>) {
    frames.into_iter().for_each(|pfn| fx.vm.frames().put(fx.m(), pfn, Order::BASE));
}

/// The switches that decide what a fault makes: base pages, huge pages, several colours of zeros,
/// each form of huge zeros.
pub fn configs() -> Vec<Config> {
    let with = |zero_huge| Config { zero_huge, ..Config::default() };
    let colours = Order::new(2).map_or(Colours::L1d, Colours::Exactly);
    let mut all = vec![no_thp(), Config::default(), Config { zero_colours: colours, ..no_thp() }];
    all.extend([ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate].map(with));
    all
}

/// Runs a verb with room for 0, 1, 2, ... frames until it has enough; says how many it took. One
/// that fails leaves every entry of every table, every frame in its use and every gauge as it was.
pub fn starve(config: Config, verb: impl Fn(&Fixture, &Space) -> Result<(), NoMemory>) -> u64 {
    starve_after(config, |_, _| None, |fx, space, _| verb(fx, space))
}

/// The same after something that was done with all the memory there is, and may have made another
/// space.
pub fn starve_after(
    config: Config,
    first: impl Fn(&Fixture, &Space) -> Option<Space>,
    verb: impl Fn(&Fixture, &Space, Option<&Space>) -> Result<(), NoMemory>,
) -> u64 {
    for room in 0..64 {
        let (fx, space) = furnished(config);
        let other = first(&fx, &space);
        let all: Vec<&Space> = [&space].into_iter().chain(&other).collect();
        let read = || all.iter().map(|space| picture(&fx, space)).collect::<Vec<_>>();
        let (before, contents) = (fx.state(&all), read());
        let mut taken = take_all(&fx);
        // Frames come back from all over, so that no block is whole.
        for _ in 0..room {
            let pfn = taken.swap_remove(taken.len() * 7 / 11);
            give(&fx, [pfn]);
        }
        let done = verb(&fx, &space, other.as_ref());
        give(&fx, taken);
        let after = fx.state(&all);
        if done.is_err() {
            assert!(before == after, "failed with {room} frames: {}", difference(&before, &after));
            assert_eq!(read(), contents, "failed with {room} frames");
        }
        assert_eq!(after.audit.other_frames, 0, "frames lost");
        drop(all);
        fx.vm.exit(space);
        other.into_iter().for_each(|other| fx.vm.exit(other));
        fx.check(&[]);
        if done.is_ok() {
            return room;
        }
    }
    panic!("64 frames were not enough");
}

pub fn memory<T>(done: Result<T, SpaceError>) -> Result<(), NoMemory> {
    match done {
        Ok(_) => Ok(()),
        Err(SpaceError::NoMemory) => Err(NoMemory),
        Err(error) => panic!("{error:?}"),
    }
}

pub fn each_thp(verb: impl Fn(&Fixture, &Space) -> Result<(), NoMemory>, at_least: u64) {
    for config in configs() {
        assert!(starve(config, &verb) >= at_least, "the verb was expected to need memory");
    }
}

pub fn fault(done: Result<impl Sized, FaultError>) -> Result<(), NoMemory> {
    done.map(drop).map_err(|error| assert_eq!(error, FaultError::NoMemory)).map_err(|()| NoMemory)
}
