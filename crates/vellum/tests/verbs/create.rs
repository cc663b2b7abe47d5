//! Spaces are created, run by CPUs, and end.

use vellum_testkit::prelude::*;

#[test]
fn a_space_that_did_nothing_gives_everything_back() {
    let fx = fixture(4096, Config::default());
    let first = fx.vm.create().unwrap();
    fx.vm.exit(first);
    let before = fx.check(&[]);
    let space = fx.vm.create().unwrap();
    fx.end([space]);
    assert_eq!(fx.check(&[]), before);
}

#[test]
fn identifiers_run_out_and_spaces_still_work() {
    let rules = MmuRules { asids: 4, ..MmuRules::X86_64 };
    let fx: Fixture = Fixture::new(flat_with(1, 4096, rules), no_thp());
    let spaces: Vec<Space> = (0..6).map(|_| fx.vm.create().unwrap()).collect();
    for space in &spaces {
        fx.vm.activate(space);
        fx.map(space, AT, KIB4, RW);
        fx.poke(space, AT, 1).unwrap();
    }
    fx.vm.deactivate();
    fx.end(spaces);
}
