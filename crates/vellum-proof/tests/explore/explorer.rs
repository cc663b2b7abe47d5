//! What the tests of the explorer share. The limits keep a build machine's run short;
//! `VELLUM_EXPLORE=deep` takes one preemption more and no limit.
#![allow(dead_code)]

use std::rc::Rc;

use vellum::addr::Va;
use vellum::config::{Config, Thp};
use vellum::space::{Attrs, Placement, Rights};
use vellum_proof::explore::worlds::{AT, Fixture};
use vellum_proof::explore::{Script, explore};

pub fn check(name: &str, make: &dyn Fn() -> Fixture, scripts: &[Script<Fixture>], most: usize) {
    let deep = std::env::var("VELLUM_EXPLORE").is_ok_and(|v| v == "deep");
    let (most, limit) = if deep { (most + 1, u64::MAX) } else { (most, 6000) };
    // Who starts is who is interrupted, with one preemption; so each may start once.
    let mut turned = scripts.to_vec();
    turned.rotate_left(1);
    let schedules: u64 = [scripts, &turned]
        .into_iter()
        .map(|scripts| {
            let done = explore(make, scripts, most, limit);
            println!("{name}: {done:?}");
            done.schedules
        })
        .sum();
    assert!(
        schedules > 2 || std::env::var("VELLUM_SCHEDULE").is_ok(),
        "nothing was interleaved: {schedules}"
    );
}

pub fn script(act: impl Fn(&Fixture) + 'static) -> Script<Fixture> {
    Rc::new(act)
}

/// Every schedule of one preemption of both scripts, each on either CPU.
pub fn both(
    make: &dyn Fn() -> Fixture,
    a: impl Fn(&Fixture) + 'static,
    b: impl Fn(&Fixture) + 'static,
) {
    let (a, b) = (script(a), script(b));
    for scripts in [[a.clone(), b.clone()], [b, a]] {
        let done = explore(make, &scripts, 1, u64::MAX);
        println!("{done:?}");
        assert!(done.schedules > 2);
    }
}

pub fn base() -> Config {
    Config { thp: Thp::Never, ..Config::default() }
}

/// A page whose neighbour has a word in it, so the table is there.
pub const NEXT: Va = Va(AT.0 + 4096);

/// Four pages in a table: few stops, so that all schedules of two preemptions are run.
pub fn few(cpus: usize) -> impl Fn() -> Fixture {
    move || Fixture::with_space(cpus, 4, base())
}

/// A full table of base pages.
pub fn small(cpus: usize) -> impl Fn() -> Fixture {
    move || Fixture::with_space(cpus, 512, base())
}

/// The same mapped in two parts, so that the table says by itself whose its slots are.
pub fn grown(cpus: usize) -> impl Fn() -> Fixture {
    move || {
        let fixture = Fixture::with_space(cpus, 4, base());
        let rest = Va(AT.0 + 4 * 4096);
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let map = fixture.vm.map(fixture.space(), Placement::At(rest), 508 * 4096, attrs);
        assert_eq!(map, Ok(rest));
        fixture
    }
}

/// A huge page.
pub fn huge(cpus: usize) -> impl Fn() -> Fixture {
    move || Fixture::with_space(cpus, 512, Config::default())
}
