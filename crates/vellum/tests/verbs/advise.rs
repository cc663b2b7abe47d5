//! Advise: contents are forgotten, huge pages wanted or not.

use vellum_testkit::prelude::*;

#[test]
fn dont_need_forgets_the_contents_and_gives_the_frames_back() {
    let fx = fixture(4096, Config::default());
    let space = fx.mapped(Va(GIB), 2 * MIB2, RW);
    let before = fx.check(&[&space]);
    fx.poke(&space, Va(GIB), 1).unwrap();
    fx.vm.advise(&space, Va(GIB), 2 * MIB2, Advice::DontNeed).unwrap();
    assert_eq!(fx.check(&[&space]), before);
    assert_eq!(fx.peek(&space, Va(GIB)), Ok(0));
    fx.poke(&space, Va(GIB), 1).unwrap();
    fx.vm.advise(&space, Va(GIB + KIB4), KIB4, Advice::DontNeed).unwrap();
    assert_eq!(fx.usage(&space).rss_pages, 511);
    // The rest goes, the table with it, and the next fault may be huge again.
    fx.vm.advise(&space, Va(GIB), MIB2, Advice::DontNeed).unwrap();
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Huge));
    fx.end([space]);
}

#[test]
fn huge_pages_come_as_the_switch_and_the_advice_say() {
    for (thp, advice, huge) in [
        (Thp::Never, Some(HugeAdvice::Huge), false),
        (Thp::Advise, None, false),
        (Thp::Advise, Some(HugeAdvice::Huge), true),
        (Thp::Always, None, true),
        (Thp::Always, Some(HugeAdvice::NoHuge), false),
    ] {
        let fx = fixture(4096, Config { thp, ..Config::default() });
        let space = fx.mapped(Va(GIB), 2 * MIB2, Attrs { thp: advice, ..RW });
        let want = if huge { Fault::Huge } else { Fault::Base };
        assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(want), "{thp:?} {advice:?}");
        // Never where the mapping does not cover 2 MiB.
        fx.map(&space, Va(3 * GIB + KIB4), MIB2, Attrs { thp: advice, ..RW });
        assert_eq!(fx.vm.fault(&space, Va(3 * GIB + KIB4), Access::Write), Ok(Fault::Base));
        fx.vm.exit(space);
    }
}
