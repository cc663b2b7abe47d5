//! The upper end of what programs may map. On x86_64 the last page of the user half stays empty: a
//! system call in its last bytes would return to an address that is not canonical. So the last slot
//! of a node on every level is reached by ranges and covered by none.

use vellum_testkit::prelude::*;

const FIVE: MmuRules = MmuRules { levels: 5, ..MmuRules::X86_64 };

/// The end of the user half, which is the end of a page table's reach.
const HALF: [(MmuRules, u64); 2] = [(MmuRules::X86_64, 1 << 47), (FIVE, 1 << 56)];

fn machine<C: Codec>(rules: MmuRules) -> Fixture<C> {
    Fixture::new(flat_with(1, 8192, rules), Config::default())
}

/// A machine for each end, with a space.
fn halves() -> [((Fixture, Space), u64); 2] {
    HALF.map(|(rules, half)| {
        let fx: Fixture = machine(rules);
        let space = fx.vm.create().unwrap();
        ((fx, space), half)
    })
}

/// Everything adds up with the space and, when it is gone, without.
fn ends<C: Codec>(fx: &Fixture<C>, space: Space) {
    fx.end([space]);
    let audit = fx.vm.audit(&[]).expect("a valid state");
    assert_eq!((audit.other_frames, audit.data_frames, audit.table_frames), (0, 0, 0));
}

#[test]
fn the_last_page_of_the_user_half_is_never_mapped_on_x86() {
    for ((fx, space), half) in halves() {
        let last = Va(half - KIB4);
        assert_eq!(fx.vm.user_end(), last);
        let past = SpaceError::Range(RangeError::OutOfSpace);
        let text = "the range ends past what programs may map of the address space";
        assert_eq!(past.to_string(), text);
        let any = Attrs { rights: Rights::ALL, ..RW };
        fx.map(&space, AT, KIB4, any);
        for bytes in [KIB4, 2 * KIB4, MIB2] {
            for to in [Placement::At(Va(half - bytes)), Placement::Replace(Va(half - bytes))] {
                assert_eq!(fx.vm.map(&space, to, bytes, any), Err(past));
                assert_eq!(fx.vm.remap(&space, AT, KIB4, bytes, to), Err(past));
            }
        }
        // Nor does a mapping grow into it.
        let below = Va(half - 2 * KIB4);
        assert_eq!(fx.vm.remap(&space, AT, KIB4, KIB4, Placement::At(below)), Ok(below));
        assert_eq!(fx.vm.remap(&space, below, KIB4, 2 * KIB4, Placement::At(below)), Err(past));
        assert_eq!(fx.vm.fault(&space, below, Access::Exec), Ok(Fault::Zero));
        for access in [Access::Read, Access::Write, Access::Exec] {
            assert_eq!(fx.vm.fault(&space, last, access), Err(FaultError::Unmapped));
        }
        assert_eq!(fx.vm.query(&space, last), Page::Unmapped);
        assert_eq!(fx.vm.copy_in(&space, Va(last.0 - 1), &[1, 2]), Err(FaultError::Unmapped));
        ends(&fx, space);
    }
}

#[test]
fn anywhere_fills_what_is_below_and_never_the_last_page() {
    for ((fx, space), half) in halves() {
        let mut below = half - KIB4;
        for pages in [1, 3, 511, 512 * 3, 1, 512] {
            let bytes = pages * KIB4;
            let want = if bytes >= MIB2 { (below - bytes) & !(MIB2 - 1) } else { below - bytes };
            // Small mappings take what a large one leaves above itself.
            below = if bytes >= MIB2 { below } else { want };
            let mapped = fx.vm.map(&space, Placement::Anywhere, bytes, RW);
            assert_eq!(mapped, Ok(Va(want)), "{pages} pages");
            fx.poke(&space, Va(want + bytes - 8), pages).unwrap();
            fx.check(&[&space]);
            if bytes >= MIB2 {
                fx.vm.unmap(&space, Va(want), bytes).unwrap();
            }
        }
        // The top becomes free and is the highest hole again, without the last page.
        fx.vm.unmap(&space, Va(0), half - KIB4).unwrap();
        for (bytes, attrs, below) in
            [(MIB2, EXACTLY_HUGE, 2 * MIB2), (KIB4, RW, 2 * KIB4), (MIB2 - 2 * KIB4, RW, MIB2)]
        {
            let mapped = fx.vm.map(&space, Placement::Anywhere, bytes, attrs);
            assert_eq!(mapped, Ok(Va(half - below)), "{bytes:#x}");
        }
        ends(&fx, space);
    }
}

#[test]
fn huge_pages_end_two_mib_before_the_half() {
    for ((fx, space), half) in halves() {
        let (top, next) = (Va(half - MIB2), Va(half - 2 * MIB2));
        let past = Err(SpaceError::Range(RangeError::OutOfSpace));
        assert_eq!(fx.vm.map(&space, Placement::At(top), MIB2, EXACTLY_HUGE), past);
        assert_eq!(fx.vm.map(&space, Placement::At(next), MIB2, EXACTLY_HUGE), Ok(next));
        fx.vm.unmap(&space, next, MIB2).unwrap();
        // One region to the end: the huge page below, base pages in the slot that is not whole.
        fx.map(&space, next, 2 * MIB2 - KIB4, RW);
        assert_eq!(fx.vm.fault(&space, top, Access::Write), Ok(Fault::Base));
        assert_eq!(fx.vm.fault(&space, Va(top.0 + 8 * KIB4), Access::Read), Ok(Fault::Zero));
        assert_eq!(fx.vm.fault(&space, next, Access::Write), Ok(Fault::Huge));
        fx.vm.advise(&space, next, 2 * MIB2 - KIB4, Advice::Populate { write: true }).unwrap();
        assert_eq!(fx.usage(&space).rss_pages, 1023);
        fx.vm.advise(&space, next, 2 * MIB2 - KIB4, Advice::Collapse).unwrap();
        assert_eq!(fx.usage(&space).huge_leaves, 1, "there is nothing to collapse in the other");
        let child = fx.vm.fork(&space).unwrap();
        fx.poke(&child, Va(half - KIB4 - 8), 7).unwrap();
        fx.poke(&child, next, 8).unwrap();
        assert_eq!(fx.peek(&space, Va(half - KIB4 - 8)), Ok(0));
        fx.check(&[&space, &child]);
        fx.vm.forbid_zeros(&child);
        fx.vm.protect(&child, next, 2 * MIB2 - KIB4, Rights::NONE).unwrap();
        fx.vm.exit(child);
        fx.vm.advise(&space, next, 2 * MIB2 - KIB4, Advice::DontNeed).unwrap();
        assert_eq!(fx.peek(&space, Va(half - KIB4 - 8)), Ok(0));
        fx.vm.forbid_zeros(&space);
        ends(&fx, space);
    }
}

#[test]
fn a_move_away_from_the_end_leaves_nothing_there() {
    for ((fx, space), half) in halves() {
        let (from, bytes) = (Va(half - 3 * MIB2), 3 * MIB2 - KIB4);
        fx.map(&space, from, bytes, RW);
        for page in [0, 512, 1024, 1534] {
            fx.poke(&space, Va(from.0 + page * KIB4), page + 1).unwrap();
        }
        assert_eq!(fx.vm.remap(&space, from, bytes, bytes, Placement::At(AT)), Ok(AT));
        for page in [0, 512, 1024, 1534] {
            assert_eq!(fx.peek(&space, page_at(page)), Ok(page + 1));
            assert_eq!(fx.vm.query(&space, Va(from.0 + page * KIB4)), Page::Unmapped);
        }
        fx.check(&[&space]);
        assert_eq!(fx.vm.remap(&space, AT, bytes, bytes, Placement::At(from)), Ok(from));
        assert_eq!(fx.peek(&space, Va(half - 2 * KIB4)), Ok(1535));
        ends(&fx, space);
    }
}

#[test]
fn aarch64_returns_from_its_last_page_like_from_any_other() {
    let fx: Fixture<Aarch64> = machine(MmuRules::AARCH64);
    let space = fx.vm.create().unwrap();
    let half = 1 << 48;
    assert_eq!(fx.vm.user_end(), Va(half));
    fx.map(&space, Va(half - KIB4), KIB4, Attrs { rights: Rights::ALL, ..RW });
    assert_eq!(fx.vm.fault(&space, Va(half - KIB4), Access::Exec), Ok(Fault::Zero));
    fx.map(&space, Va(half - 2 * MIB2), MIB2, EXACTLY_HUGE);
    assert_eq!(fx.vm.map(&space, Placement::Anywhere, KIB4, RW), Ok(Va(half - 2 * KIB4)));
    ends(&fx, space);
}
