//! What the library is told of the caches.

use vellum::machine::{CacheLevel, Machine};
use vellum_sim::format::Arm;
use vellum_sim::{Options, SimMachine, file};

#[test]
fn the_library_learns_the_shape_of_each_data_cache_from_the_machine_file() {
    let file = file::preset("thunderx2").expect("a preset");
    let caches =
        SimMachine::<Arm>::new(&file, Options::default()).expect("it can be built").caches();
    assert_eq!(caches.l1d, CacheLevel { sets: 64, ways: 8, line: 64 });
    assert_eq!((caches.l2.way_bytes(), caches.l2.bytes()), (32 << 10, 256 << 10));
    assert_eq!(caches.llc.bytes(), 32 << 20);
}

#[test]
fn a_level_that_is_not_known_or_absurd_has_no_bytes_or_as_many_as_can_be_said() {
    assert_eq!(CacheLevel::UNKNOWN.bytes(), 0);
    assert_eq!(CacheLevel { sets: 64, ways: 8, line: 0 }.way_bytes(), 0);
    let absurd = CacheLevel { sets: u64::MAX, ways: u64::MAX, line: u64::MAX };
    assert_eq!((absurd.way_bytes(), absurd.bytes()), (u64::MAX, u64::MAX));
}
