//! Poison: a frame that is suspected bad goes out of use for good, and the program goes on with a
//! copy; what cannot be exchanged is refused whole.

use std::rc::Rc;

use vellum_testkit::prelude::*;

const PAGE: Va = page_at(5);

/// A space with such leaves, each page of which holds its address.
fn written<C: Arch>(leaves: &Leaves) -> (Fixture<C>, Space) {
    let fx = fixture_of::<C>(2, 4096 + leaves.bytes / KIB4 * 2, leaves.config);
    let space = fx.mapped(AT, leaves.bytes, leaves.attrs);
    for va in places(leaves.bytes) {
        fx.poke(&space, va, va.0).unwrap();
    }
    (fx, space)
}

/// The pages that are looked at: all of the first 2 MiB, and one of each further.
fn places(bytes: u64) -> impl Iterator<Item = Va> {
    let rest = (MIB2..bytes).step_by(MIB2 as usize).map(|at| at + 77 * KIB4);
    (0..bytes.min(MIB2)).step_by(KIB4 as usize).chain(rest).map(|at| Va(AT.0 + at))
}

/// Ends the space; all memory but the poisoned frames can be allocated again.
fn ends_without<C: Codec>(fx: &Fixture<C>, space: Space, poisoned: &[Pfn]) {
    fx.end_zeros([space]);
    let free = fx.vm.audit(&[]).unwrap().free_frames;
    let mut taken = Vec::new();
    for cpu in [1, 0] {
        fx.run_on(cpu);
        taken.extend(fx.take_all(Order::BASE));
    }
    assert_eq!(taken.len() as u64, free, "all that is free was taken");
    for pfn in poisoned {
        assert!(!taken.contains(pfn), "{pfn:?} was given out again");
        assert_eq!(fx.vm.frames().record(*pfn).use_(), Use::Poisoned);
    }
    fx.give_back(taken, Order::BASE);
    assert_eq!(fx.vm.audit(&[]).unwrap().poisoned_frames, poisoned.len() as u64);
    assert_eq!(fx.count(Counter::FramesPoisoned), poisoned.len() as i64);
}

/// Leaves of one size.
struct Leaves {
    name: &'static str,
    bytes: u64,
    attrs: Attrs,
    config: Config,
    /// Leaves of 2 MiB once one page of theirs went.
    huge_leaves: u64,
}

fn sizes() -> [Leaves; 3] {
    let leaves = |name, bytes, attrs, config| Leaves { name, bytes, attrs, config, huge_leaves: 0 };
    [
        leaves("base", MIB2, RW, no_thp()),
        Leaves { huge_leaves: 1, ..leaves("huge", 2 * MIB2, RW, Config::default()) },
        Leaves { huge_leaves: 511, ..leaves("giant", GIB, EXACTLY_GIANT, Config::default()) },
    ]
}

fn contents_stay<C: Arch>() {
    for alloc_zero in [false, true] {
        // The allocator zeroes the page and no table, so one run with 1 GiB is enough.
        for leaves in sizes().into_iter().take(if alloc_zero { 2 } else { 3 }) {
            let config = Config { alloc_zero, ..leaves.config };
            let leaves = Leaves { config, ..leaves };
            let (name, (fx, space)) = (leaves.name, written::<C>(&leaves));
            let (old, usage) = (fx.frame(&space, PAGE), fx.usage(&space));
            assert_eq!(fx.vm.poison(&space, Va(PAGE.0 + 123)), Ok(()), "{name}");
            let new = fx.frame(&space, PAGE);
            assert_ne!(old, new, "{name}");
            let Leaf { level, flags, .. } = fx.leaf(&space, PAGE);
            assert_eq!((level, flags.write), (Level::ONE, true), "{name}");
            places(leaves.bytes)
                .for_each(|va| assert_eq!(fx.peek(&space, va), Ok(va.0), "{name} {va:?}"));
            // Only that page was exchanged; a large leaf was split no further than needed.
            assert_eq!(fx.frame(&space, Va(PAGE.0 + KIB4)), old.add(1), "{name}");
            let after = fx.usage(&space);
            assert_eq!(after.rss_pages, usage.rss_pages, "{name}");
            assert_eq!((after.huge_leaves, after.giant_leaves), (leaves.huge_leaves, 0), "{name}");
            // The copy can be poisoned like any page.
            fx.poke(&space, PAGE, 99).unwrap();
            assert_eq!(fx.vm.poison(&space, PAGE), Ok(()));
            assert_eq!(fx.peek(&space, PAGE), Ok(99));
            fx.check(&[&space]);
            ends_without(&fx, space, &[old, new]);
        }
    }
}

#[test]
fn a_poisoned_page_keeps_its_contents_and_its_frame_never_comes_back_on_x86_64() {
    contents_stay::<X86_64>();
}

#[test]
fn a_poisoned_page_keeps_its_contents_and_its_frame_never_comes_back_on_aarch64() {
    contents_stay::<Aarch64>();
}

/// The verb is refused for the first of all spaces, and nothing changes but a counter.
fn refused<C: Codec>(fx: &Fixture<C>, all: &[&Space], va: Va, why: PoisonError) {
    let (before, skipped) = (fx.state(all), fx.count(Counter::PoisonSkippedZero));
    assert_eq!(fx.vm.poison(all[0], va), Err(why), "{va:?}");
    assert_same(&before, &fx.state(all), format_args!("{va:?}, {why:?}"));
    let more = i64::from(why == PoisonError::Zero);
    assert_eq!(fx.count(Counter::PoisonSkippedZero), skipped + more);
}

fn zeros_and_holes<C: Arch>() {
    let middle = [(ZeroHuge::Table, GIB)];
    for (form, bytes) in ZERO_FORMS.map(|form| (form, MIB2)).into_iter().chain(middle) {
        let thp = if form == ZeroHuge::Off { Thp::Never } else { Thp::Always };
        let config = Config { zero_huge: form, thp, ..Config::default() };
        let fx = fixture_of::<C>(2, 8192, config);
        let space = fx.vm.create().unwrap();
        for va in [Va(0), AT, Va((1 << 47) - KIB4), Va(1 << 47), Va(u64::MAX)] {
            refused(&fx, &[&space], va, PoisonError::NotMapped);
        }
        fx.map(&space, AT, bytes, RW);
        refused(&fx, &[&space], AT, PoisonError::NotMapped);
        (0..3).for_each(|n| assert_eq!(fx.kernel_peek(&space, page_at(n)), Ok(0)));
        for n in 0..3 {
            refused(&fx, &[&space], page_at(n), PoisonError::Zero);
        }
        assert_eq!(fx.count(Counter::PoisonSkippedZero), 3, "{form:?}");
        ends_without(&fx, space, &[]);
    }
}

on_both!(zeros_and_holes, d_14_zeros_of_every_form_and_what_is_not_there_are_refused_and_counted);

/// Every space of the family maps the copy, at whatever address it sees the page.
fn shared<C: Arch>() {
    for leaves in sizes() {
        let (name, (fx, space)) = (leaves.name, written::<C>(&leaves));
        let old = fx.frame(&space, PAGE);
        let child = fx.vm.fork(&space).unwrap();
        let grandchild = fx.vm.fork(&child).unwrap();
        let bytes = leaves.bytes;
        let moved = fx.vm.remap(&child, AT, bytes, bytes, Placement::Anywhere).unwrap();
        let moved = Va(moved.0 + PAGE.0 - AT.0);
        let all = [(&space, PAGE), (&child, moved), (&grandchild, PAGE)];
        // A page that one of them may not access is exchanged, too.
        fx.vm.protect(&grandchild, PAGE, KIB4, Rights::NONE).unwrap();
        assert_eq!(fx.vm.poison(&child, moved), Ok(()), "{name}");
        let new = fx.frame(&space, PAGE);
        assert_ne!(new, old, "{name}");
        assert!(all.iter().all(|(space, va)| fx.frame(space, *va) == new), "{name}");
        fx.check(&[&space, &child, &grandchild]);
        fx.vm.protect(&grandchild, PAGE, KIB4, Rights::READ_WRITE).unwrap();
        assert!(all.iter().all(|(space, va)| fx.peek(space, *va) == Ok(PAGE.0)), "{name}");
        // They are as separate as before.
        fx.poke(&child, moved, 7).unwrap();
        let seen = all.map(|(space, va)| fx.peek(space, va).unwrap());
        assert_eq!(seen, [PAGE.0, 7, PAGE.0], "{name}");
        fx.check(&[&space, &child, &grandchild]);
        fx.vm.exit(grandchild);
        fx.vm.exit(child);
        // Without the child the parent may poison it, and its entry is read-only until a write.
        let next = Va(PAGE.0 + KIB4);
        assert_eq!(fx.frame(&space, next), old.add(1), "{name}");
        assert_eq!(fx.vm.poison(&space, next), Ok(()));
        assert!(!fx.leaf(&space, next).flags.write);
        fx.poke(&space, next, 3).unwrap();
        assert_eq!(fx.peek(&space, next), Ok(3));
        ends_without(&fx, space, &[old, old.add(1)]);
    }
}

on_both!(shared, a_page_that_others_map_is_exchanged_in_every_space);

#[test]
fn a_page_without_access_is_exchanged_too_and_is_there_when_access_comes_back() {
    for leaves in sizes() {
        let (name, (fx, space)) = (leaves.name, written::<X86_64>(&leaves));
        fx.vm.protect(&space, AT, leaves.bytes, Rights::NONE).unwrap();
        let old = fx.frame(&space, PAGE);
        assert_eq!(fx.vm.poison(&space, PAGE), Ok(()), "{name}");
        assert!(matches!(fx.vm.query(&space, PAGE), Page::Inaccessible { level: Level::ONE, .. }));
        assert!(fx.vm.fault(&space, PAGE, Access::Read).is_err());
        fx.vm.protect(&space, AT, leaves.bytes, Rights::READ).unwrap();
        places(leaves.bytes).for_each(|va| assert_eq!(fx.peek(&space, va), Ok(va.0), "{name}"));
        ends_without(&fx, space, &[old]);
    }
}

#[test]
fn each_allocation_that_fails_leaves_all_as_it_was_to_the_bit() {
    for (leaves, needs) in sizes().iter().zip([1, 2, 3]) {
        let takes = [starve::<X86_64>(leaves), starve::<Aarch64>(leaves)];
        assert_eq!(takes, [needs; 2], "{}: the page, and a table for each split", leaves.name);
    }
}

/// With room for 0, 1, 2, ... frames, until it is enough.
fn starve<C: Arch>(leaves: &Leaves) -> usize {
    let (fx, space) = written::<C>(leaves);
    for room in 0..8 {
        let before = fx.state(&[&space]);
        let old = fx.frame(&space, PAGE);
        let taken = fx.take_all_but(room, Order::BASE);
        let done = fx.vm.poison(&space, PAGE);
        fx.give_back(taken, Order::BASE);
        assert_eq!(fx.peek(&space, PAGE), Ok(PAGE.0));
        if done.is_ok() {
            ends_without(&fx, space, &[old]);
            return room;
        }
        assert_eq!(done, Err(PoisonError::NoMemory));
        assert_same(&before, &fx.state(&[&space]), format_args!("failed with {room} frames"));
    }
    panic!("8 frames were not enough");
}

/// While a flush is under way the entry is busy: no other CPU can write what the copy would miss.
fn writers_are_kept_out<C: Arch>() {
    for leaves in sizes() {
        let (name, (fx, space)) = (leaves.name, written::<C>(&leaves));
        let fx = Rc::new(fx);
        fx.on_cpu(1, || fx.vm.activate(&space));
        let (old, copied) = (fx.frame(&space, PAGE), fx.m().asked.copied_frames.get());
        let during = {
            let fx = Rc::clone(&fx);
            move |_| {
                assert_eq!(fx.m().asked.copied_frames.get(), copied, "copied too early");
                let entry = fx.entry_at(PAGE);
                assert!(matches!(entry, Entry::Busy(_)), "{entry:?}");
                // A store through a translation that is not flushed yet.
                fx.m().poke(old, 8, &[42]);
            }
        };
        during_flushes(during, || fx.vm.poison(&space, PAGE).unwrap());
        let fx = Rc::into_inner(fx).unwrap();
        assert_eq!(fx.peek(&space, Va(PAGE.0 + 8)), Ok(42), "{name}: a store is lost");
        assert_eq!(fx.peek(&space, PAGE), Ok(PAGE.0));
        fx.on_cpu(1, || fx.vm.deactivate());
        ends_without(&fx, space, &[old]);
    }
}

on_both!(
    writers_are_kept_out,
    a_store_through_a_translation_that_is_not_flushed_yet_is_in_the_copy
);
