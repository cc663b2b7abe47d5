//! Statement D-7: while a flush that covers a mapping of the huge page of zeros is on its way, the
//! page stays.
//!
//! Another CPU has used the space and may hold a translation until the flush is over. The moment in
//! between is played here, once for each flush of each verb that takes a mapping away: a third CPU
//! asks the shrinker for the page, and reads it. With real TLBs, seeds and an oracle the same is in
//! the simulator's `huge_zero_flush.rs`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use vellum_testkit::prelude::*;

listed! {
    /// A verb that removes the mapping at 1 GiB, or a part of it.
    enum Verb {
        Unmap,
        UnmapPart,
        Forget,
        Protect,
        Remap,
        MapOver,
        Write,
        WriteShort,
        Force,
        Forbid,
        Exit,
    }
}

struct Mapped<C: Codec> {
    fx: Fixture<C>,
    space: RefCell<Option<Space>>,
}

impl<C: Codec> Mapped<C> {
    fn act(&self, verb: Verb) {
        let vm = &self.fx.vm;
        let at = Va(GIB);
        let Some(space) = self.space.take() else { return };
        match verb {
            Verb::Unmap => vm.unmap(&space, at, MIB2).expect("mapped"),
            Verb::UnmapPart => vm.unmap(&space, Va(GIB + 9 * KIB4), KIB4).expect("mapped"),
            Verb::Forget => vm.advise(&space, at, MIB2, Advice::DontNeed).expect("mapped"),
            Verb::Protect => vm.protect(&space, at, MIB2, Rights::NONE).expect("mapped"),
            Verb::Remap => {
                vm.remap(&space, at, MIB2, MIB2, Placement::At(Va(3 * GIB))).expect("mapped");
            }
            Verb::MapOver => _ = vm.map(&space, Placement::Replace(at), MIB2, RW).expect("memory"),
            Verb::Write => assert_eq!(vm.fault(&space, at, Access::Write), Ok(Fault::Huge)),
            Verb::WriteShort => {
                let taken = self.fx.take_all(Order::HUGE);
                assert!(matches!(vm.fault(&space, at, Access::Write), Ok(Fault::Copied(_))));
                self.fx.give_back(taken, Order::HUGE);
            }
            Verb::Force => vm.write_forced(&space, at, &[7]).expect("memory"),
            Verb::Forbid => vm.forbid_zeros(&space),
            Verb::Exit => return vm.exit(space),
        }
        self.space.replace(Some(space));
    }
}

/// Runs one verb while CPU 1 runs in the space or, if `gone`, has left it and may keep translations
/// by asid. Says how many flushes it took.
fn held<C: Arch>(rules: MmuRules, verb: Verb, gone: bool) -> u32 {
    let fx = Fixture::<C>::new(flat_with(3, 8192, rules), with_zeros(ZeroHuge::Page));
    let space = fx.mapped(Va(GIB), MIB2, RW);
    fx.run_on(1);
    fx.vm.activate(&space);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
    if gone {
        fx.vm.deactivate();
    }
    fx.run_on(0);
    let page = fx.vm.huge_zero().expect("it is mapped");
    let shared = Rc::new(Mapped { fx, space: RefCell::new(Some(space)) });
    let flushes = Rc::new(Cell::new(0));
    let during = {
        let (mapped, flushes) = (Rc::clone(&shared), Rc::clone(&flushes));
        move |_| {
            let vm = &mapped.fx.vm;
            vm.machine().run_on(2);
            flushes.set(flushes.get() + 1);
            // CPU 1 may still read the page.
            let freed = (vm.shrink_zeros(), vm.shrinkable_zeros());
            assert_eq!(freed, (0, 0), "{verb:?}: freed before its flush was over");
            assert_eq!(vm.huge_zero(), Some(page));
            assert_eq!(vm.frames().record(page).use_(), Use::Zero);
            let mut bytes = [1; 4096];
            vm.machine().peek(page.add(511), 0, &mut bytes);
            assert_eq!(bytes, [0; 4096]);
        }
    };
    during_flushes(during, || shared.act(verb));
    let mapped = Rc::into_inner(shared).expect("no flush is under way");
    let (fx, space) = (mapped.fx, mapped.space.into_inner());
    if let Some(space) = space {
        fx.check(&[&space]);
        assert_eq!(fx.vm.shrink_zeros(), 0, "{verb:?}: a space that used it holds it to its end");
        fx.run_on(1);
        fx.vm.deactivate();
        fx.vm.exit(space);
    }
    // After that the shrinker frees it, and the next read allocates a new one.
    assert_eq!((fx.vm.shrinkable_zeros(), fx.vm.shrink_zeros()), (512, 512), "{verb:?}");
    assert_eq!((fx.vm.huge_zero(), fx.count(Counter::ThpZeroRelease)), (None, 1));
    fx.check(&[]);
    let space = fx.mapped(Va(GIB), MIB2, RW);
    assert_eq!(fx.vm.fault(&space, Va(GIB), Access::Read), Ok(Fault::ZeroHuge));
    assert_eq!(fx.count(Counter::ThpZeroAlloc), 2);
    fx.end([space]);
    flushes.get()
}

#[test]
fn d_07_the_page_of_zeros_stays_until_the_flush_that_covers_it_whatever_verb_unmapped_it() {
    let asids = MmuRules { asids: 64, ..MmuRules::X86_64 };
    for &verb in Verb::ALL.iter().filter(|&&verb| verb != Verb::Exit) {
        for flushes in [
            held::<X86_64>(MmuRules::X86_64, verb, false),
            held::<X86_64>(asids, verb, false),
            held::<Aarch64>(MmuRules::AARCH64, verb, false),
        ] {
            assert!(flushes >= 1, "{verb:?}: CPU 1 runs in the space, and nobody told it");
        }
    }
}

#[test]
fn d_07_the_page_of_zeros_stays_while_the_last_flush_of_a_space_reaches_cpus_that_left_it() {
    // Where translations are kept by asid, the last CPU that left may hold them until the space
    // ends; elsewhere no CPU does.
    assert_eq!(held::<X86_64>(MmuRules::X86_64, Verb::Exit, true), 0);
    assert!(held::<X86_64>(MmuRules { asids: 64, ..MmuRules::X86_64 }, Verb::Exit, true) >= 1);
    assert!(held::<Aarch64>(MmuRules::AARCH64, Verb::Exit, true) >= 1);
}
