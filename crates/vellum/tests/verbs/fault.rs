//! Faults: what a page becomes when a program, or the kernel for it, first touches it.

use vellum_testkit::prelude::*;

#[test]
fn a_page_that_the_kernel_writes_is_dirty() {
    let fx = fixture(4096, Config { zero_page: false, ..no_thp() });
    let space = fx.mapped(AT, KIB4, RW);
    assert_eq!(fx.vm.fault(&space, AT, Access::Read), Ok(Fault::Base));
    let marks = || {
        let flags = fx.leaf(&space, AT).flags;
        (flags.write, flags.dirty)
    };
    assert_eq!(marks(), (true, false));
    fx.vm.copy_in(&space, AT, &[1]).unwrap();
    assert_eq!(marks(), (true, true));
    fx.vm.exit(space);
}

#[test]
fn without_a_huge_block_a_fault_falls_back_and_says_so() {
    let fx = fixture(1024, Config::default());
    let space = fx.mapped(Va(GIB), 4 * MIB2, RW);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Ok(Fault::Huge));
    assert_eq!(fx.vm.fault(&space, Va(GIB + MIB2), Access::Write), Ok(Fault::Base));
    assert_eq!(fx.count(Counter::ThpFaultFallback), 1);
    fx.map(&space, Va(4 * GIB), MIB2, EXACTLY_HUGE);
    assert_eq!(fx.vm.fault(&space, Va(4 * GIB), Access::Write), Err(FaultError::NoMemory));
    fx.end([space]);
}

#[test]
fn d_10_touching_a_read_mapping_by_software_marks_sets_accessed_and_never_dirty() {
    let rules = MmuRules { hardware_ad: false, ..MmuRules::AARCH64 };
    for form in ZERO_FORMS {
        let thp = if form == ZeroHuge::Off { Thp::Never } else { Thp::Always };
        let config = Config { zero_huge: form, thp, ..Config::default() };
        let fx = Fixture::<Aarch64>::new(flat_with(2, 4096, rules), config);
        let space = fx.mapped(Va(GIB), MIB2, Attrs::anonymous(Rights::READ));
        fx.peek(&space, Va(GIB)).unwrap();
        for access in [Access::Read, Access::Write, Access::Read] {
            let expect =
                if access == Access::Write { Err(FaultError::Rights) } else { Ok(Fault::Spurious) };
            assert_eq!(fx.vm.fault(&space, Va(GIB), access), expect, "{form:?}");
            let Leaf { flags, zero, .. } = fx.leaf(&space, Va(GIB));
            assert!(zero && flags.accessed && !flags.dirty && !flags.write);
        }
        fx.end([space]);
    }
}

#[test]
fn a_fault_that_is_refused_a_table_looks_twice_whether_its_block_is_of_a_pool_or_not() {
    for pooled in [0, 1] {
        let fx = fixture(4096, no_thp());
        let space = fx.vm.create().expect("memory");
        // Reserved one level above, so that the page takes a table.
        fx.map(&space, Va(GIB), GIB, EXACTLY_HUGE);
        fx.vm.pool(Order::HUGE, pooled).expect("memory");
        let mut blocks = fx.take_all(Order::HUGE);
        let frames = fx.take_all(Order::BASE);
        if pooled == 0 {
            fx.give_back(blocks.split_off(blocks.len() - 1), Order::HUGE);
        }
        let cleared = || fx.m().asked.cleared_frames.get();
        let before = cleared();
        assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Write), Err(FaultError::NoMemory));
        assert_eq!((cleared() - before) / 512, 2, "{pooled} in the pool");
        fx.give_back(frames, Order::BASE);
        fx.give_back(blocks, Order::HUGE);
        fx.vm.pool(Order::HUGE, 0).expect("it is given back");
        fx.end([space]);
    }
}
