//! Runs a verb with room for no allocation, for one, for two, and so on until it succeeds: each
//! failure leaves everything as it was, and the success is a success.

use std::fmt::Debug;

use vellum_testkit::prelude::*;

/// What a program could read around the places the tests use.
pub fn picture(fx: &Fixture, space: &Space) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    for base in
        [GIB - 8 * KIB4, GIB, GIB + 510 * KIB4, 2 * GIB, 3 * GIB - 8 * KIB4, 6 * GIB, 1 << 39]
    {
        for va in (base..base + 20 * KIB4).step_by(KIB4 as usize) {
            let contents = match fx.vm.query(space, Va(va)) {
                Page::Mapped { .. } => fx.peek(space, Va(va)).expect("a page that is there"),
                Page::Reserved { .. } => 0,
                Page::Unmapped | Page::Inaccessible { .. } | Page::Device { .. } => continue,
            };
            seen.push((va, contents));
        }
    }
    seen
}

/// 1 GiB reserved by one entry, 2 MiB with a huge page, some small mappings.
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

/// The switches that decide what a fault makes: base pages, huge pages, several colours of zeros,
/// each form of huge zeros.
pub fn configs() -> Vec<Config> {
    let colours = Colours::Exactly(order(2));
    let mut all = vec![no_thp(), Config::default(), Config { zero_colours: colours, ..no_thp() }];
    all.extend([ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate].map(with_zeros));
    all
}

/// What a verb says.
pub trait Outcome {
    /// Whether it succeeded. Anything but a lack of memory ends the test.
    fn succeeds(self) -> bool;
}

impl<T, E: From<NoMemory> + PartialEq + Debug> Outcome for Result<T, E> {
    fn succeeds(self) -> bool {
        self.map_err(|error| assert_eq!(error, E::from(NoMemory))).is_ok()
    }
}

/// Runs a verb with room for 0, 1, 2, ... frames until it has enough; says how many it took. One
/// that fails leaves every entry of every table, every frame in its use and every gauge as it was.
pub fn starve<R: Outcome>(config: Config, verb: impl Fn(&Fixture, &Space) -> R) -> u64 {
    starve_after(config, |_, _| None, |fx, spaces| verb(fx, &spaces[0]))
}

/// The same after something that was done with all the memory there is, and may have made another
/// space.
pub fn starve_after<R: Outcome>(
    config: Config,
    first: impl Fn(&Fixture, &Space) -> Option<Space>,
    verb: impl Fn(&Fixture, &[Space]) -> R,
) -> u64 {
    for room in 0..64 {
        let (fx, space) = furnished(config);
        let other = first(&fx, &space);
        let spaces: Vec<Space> = [space].into_iter().chain(other).collect();
        let all: Vec<&Space> = spaces.iter().collect();
        let read = || all.iter().map(|space| picture(&fx, space)).collect::<Vec<_>>();
        let (before, contents) = (fx.state(&all), read());
        let taken = fx.take_all_but_scattered(room);
        let done = verb(&fx, &spaces).succeeds();
        fx.give_back(taken, Order::BASE);
        if !done {
            assert_same(&before, &fx.state(&all), format_args!("failed with {room} frames"));
            assert_eq!(read(), contents, "failed with {room} frames");
        }
        fx.end(spaces);
        if done {
            return room;
        }
    }
    panic!("64 frames were not enough");
}

/// The same with each of [`configs`]: the verb takes so many frames at least.
pub fn starve_each<R: Outcome>(at_least: u64, verb: impl Fn(&Fixture, &Space) -> R) {
    for config in configs() {
        assert!(starve(config, &verb) >= at_least, "the verb was expected to need memory");
    }
}
