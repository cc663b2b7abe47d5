//! What the verbs of a space do to pages that an object has.

use vellum_testkit::prelude::*;

struct Written<C: Arch> {
    fx: Fixture<C>,
    object: Object,
    space: Space,
}

/// A space that maps such an object, in which each page has its number.
fn written<C: Arch>(pages: u64) -> Written<C> {
    let fx = fixture_of::<C>(2, 4096, Config::default());
    let object = fx.object(pages * KIB4);
    let space = fx.with_object(AT, pages * KIB4, &object);
    (0..pages).for_each(|n| fx.poke(&space, page_at(n), n + 1).unwrap());
    Written { fx, object, space }
}

fn word<C: Arch>(fx: &Fixture<C>, object: &Object, page: u64) -> u64 {
    let mut bytes = [0; 8];
    fx.vm.objects().read(object, page * KIB4, &mut bytes).1.unwrap();
    u64::from_le_bytes(bytes)
}

fn ends<C: Arch>(fx: Fixture<C>, object: Object, spaces: impl IntoIterator<Item = Space>) {
    fx.vm.objects().discard(object);
    fx.end(spaces);
    assert_eq!((fx.count(Counter::ShmemPages), fx.count(Counter::Mapped)), (0, 0));
}

on_both!(unmapped_is_kept, what_is_unmapped_or_forgotten_is_still_in_the_object);

fn unmapped_is_kept<C: Arch>() {
    let Written { fx, object, space } = written::<C>(600);
    let frame = fx.frame(&space, page_at(3));
    assert_eq!(fx.vm.advise(&space, AT, 600 * KIB4, Advice::DontNeed), Ok(()));
    assert_eq!(fx.usage(&space).rss_pages, 0);
    assert_eq!(fx.count(Counter::Mapped), 0);
    assert_eq!(fx.peek(&space, page_at(3)), Ok(4));
    assert_eq!(fx.frame(&space, page_at(3)), frame);
    fx.check(&[&space]);
    assert_eq!(fx.vm.unmap(&space, page_at(3), KIB4), Ok(()));
    assert_eq!(fx.peek(&space, page_at(3)), Err(FaultError::Unmapped));
    assert_eq!(word(&fx, &object, 3), 4);
    assert_eq!(fx.vm.unmap(&space, AT, 600 * KIB4), Ok(()));
    assert_eq!(word(&fx, &object, 599), 600);
    fx.check(&[&space]);
    ends(fx, object, [space]);
}

on_both!(protected, protect_takes_rights_and_gives_them_back);

fn protected<C: Arch>() {
    let Written { fx, object, space } = written::<C>(600);
    let protect = |from, pages, rights| fx.vm.protect(&space, page_at(from), pages * KIB4, rights);
    for (from, pages) in [(0, 600), (3, 1), (500, 50)] {
        assert_eq!(protect(from, pages, Rights::READ), Ok(()));
        assert_eq!(fx.peek(&space, page_at(from)), Ok(from + 1));
        assert_eq!(fx.poke(&space, page_at(from), 1), Err(FaultError::Rights));
        fx.check(&[&space]);
        // Nobody may write there, so a forced write does not, either: others would see it.
        let forced = fx.vm.write_forced(&space, page_at(from), &[1; 8]);
        assert_eq!(forced, Err(FaultError::Rights));
        // The page is another's, too, and writable at once all the same.
        assert_eq!(protect(from, pages, Rights::READ_WRITE), Ok(()));
        assert!(fx.leaf(&space, page_at(from)).flags.write);
        fx.check(&[&space]);
        assert_eq!(protect(from, pages, Rights::NONE), Ok(()));
        assert_eq!(fx.peek(&space, page_at(from)), Err(FaultError::Rights));
        assert_eq!(fx.frame_at(&space, page_at(from)), None, "the object has it");
        fx.check(&[&space]);
        assert_eq!(protect(from, pages, Rights::READ_EXEC), Ok(()));
        assert_eq!(fx.peek(&space, page_at(from)), Ok(from + 1));
        assert!(fx.leaf(&space, page_at(from)).flags.exec);
        assert_eq!(protect(from, pages, Rights::READ_WRITE), Ok(()));
        fx.poke(&space, page_at(from), from + 1).unwrap();
        assert_eq!(fx.vm.write_forced(&space, page_at(from), &(from + 1).to_le_bytes()), Ok(()));
        fx.check(&[&space]);
    }
    (0..600).for_each(|n| assert_eq!(word(&fx, &object, n), n + 1));
    ends(fx, object, [space]);
}

on_both!(forked, a_fork_shares_what_both_write);

fn forked<C: Arch>() {
    let Written { fx, object, space } = written::<C>(600);
    // Private memory beside it is copied as ever.
    fx.map(&space, Va(GIB * 2), KIB4, RW);
    fx.poke(&space, Va(GIB * 2), 1).unwrap();
    let child = fx.vm.fork(&space).unwrap();
    assert!(fx.leaf(&child, page_at(0)).flags.write, "no copy is to come");
    fx.check(&[&space, &child]);
    fx.poke(&child, page_at(0), 77).unwrap();
    fx.poke(&child, Va(GIB * 2), 2).unwrap();
    assert_eq!(fx.peek(&space, page_at(0)), Ok(77));
    assert_eq!(fx.peek(&space, Va(GIB * 2)), Ok(1));
    assert_eq!(fx.frame(&space, page_at(599)), fx.frame(&child, page_at(599)));
    assert_eq!(fx.count(Counter::CowCopies), 1);
    // The parent goes first; its child's child still maps what the object loses.
    let grandchild = fx.vm.fork(&child).unwrap();
    fx.vm.exit(space);
    fx.check(&[&child, &grandchild]);
    assert_eq!(fx.vm.objects().resize(&object, KIB4), Ok(()));
    for space in [&child, &grandchild] {
        assert_eq!(fx.peek(space, page_at(1)), Err(FaultError::Beyond));
        assert_eq!(fx.peek(space, page_at(0)), Ok(77));
    }
    fx.check(&[&child, &grandchild]);
    ends(fx, object, [grandchild, child]);
}

on_both!(remapped, remap_moves_the_pages_and_the_objects_reach_with_them);

fn remapped<C: Arch>() {
    let Written { fx, object, space } = written::<C>(600);
    // Beside private memory, which moves along.
    fx.map(&space, page_at(600), 8 * KIB4, RW);
    fx.poke(&space, page_at(601), 1).unwrap();
    let mut at = AT;
    for to in [Va(GIB * 3 + 5 * KIB4), Va(GIB * 4), Va(GIB * 5 + MIB2 - KIB4)] {
        let from = core::mem::replace(&mut at, to);
        let frame = fx.frame(&space, Va(from.0 + 7 * KIB4));
        let faults = fx.count(Counter::Faults);
        assert_eq!(fx.vm.remap(&space, from, 608 * KIB4, 608 * KIB4, Placement::At(to)), Ok(to));
        assert_eq!(fx.frame(&space, Va(to.0 + 7 * KIB4)), frame);
        (0..600).for_each(|n| assert_eq!(fx.peek(&space, Va(to.0 + n * KIB4)), Ok(n + 1)));
        assert_eq!(fx.peek(&space, Va(to.0 + 601 * KIB4)), Ok(1));
        assert_eq!(fx.count(Counter::Faults), faults, "the pages came along");
        fx.poke(&space, Va(to.0 + 9 * KIB4), 10).unwrap();
        fx.check(&[&space]);
    }
    // A few pages, inside one table; longer, past the object's end; shorter.
    let few = Va(GIB * 7);
    assert_eq!(fx.vm.remap(&space, at, 3 * KIB4, 3 * KIB4, Placement::At(few)), Ok(few));
    assert_eq!(fx.peek(&space, Va(few.0 + KIB4)), Ok(2));
    assert_eq!(fx.vm.remap(&space, few, 3 * KIB4, 700 * KIB4, Placement::Anywhere), Ok(few));
    assert_eq!(fx.peek(&space, Va(few.0 + 599 * KIB4)), Ok(600));
    assert_eq!(fx.peek(&space, Va(few.0 + 600 * KIB4)), Err(FaultError::Beyond));
    fx.check(&[&space]);
    assert_eq!(fx.vm.remap(&space, few, 700 * KIB4, KIB4, Placement::Anywhere), Ok(few));
    // What the object loses both places lose.
    fx.vm.objects().punch(&object, 0, 600 * KIB4).unwrap();
    assert_eq!(fx.peek(&space, few), Ok(0));
    assert_eq!(fx.peek(&space, Va(at.0 + 3 * KIB4)), Ok(0));
    fx.check(&[&space]);
    ends(fx, object, [space]);
}

on_both!(poisoned, poison_exchanges_the_page_of_an_object_for_all_that_map_it);

fn poisoned<C: Arch>() {
    let Written { fx, object, space } = written::<C>(8);
    let child = fx.vm.fork(&space).unwrap();
    let other = fx.with_object(Va(GIB * 2), 8 * KIB4, &object);
    assert_eq!(fx.peek(&other, Va(GIB * 2 + 3 * KIB4)), Ok(4));
    let old = fx.frame(&space, page_at(3));
    assert_eq!(fx.vm.poison(&child, page_at(3)), Ok(()));
    for (space, va) in
        [(&space, page_at(3)), (&child, page_at(3)), (&other, Va(GIB * 2 + 3 * KIB4))]
    {
        assert_eq!(fx.peek(space, va), Ok(4));
        assert_ne!(fx.frame(space, va), old);
    }
    assert_eq!(fx.frame(&space, page_at(3)), fx.frame(&other, Va(GIB * 2 + 3 * KIB4)));
    assert_eq!(fx.vm.frames().record(old).use_(), Use::Poisoned);
    // Nothing was made there yet.
    fx.vm.objects().punch(&object, 3 * KIB4, KIB4).unwrap();
    assert_eq!(fx.vm.poison(&child, page_at(3)), Err(PoisonError::NotMapped));
    fx.check(&[&space, &child, &other]);
    ends(fx, object, [space, child, other]);
}

/// Two nodes of which each has half of the memory, in turn.
fn interleaved() -> Fixture {
    let config = Config { numa: NumaPolicy::Interleave, ..no_around() };
    let machine = Flat::new(nodes(1, &[(512, 8192), (512 + 8192, 8192)]), MmuRules::X86_64);
    Fixture::new(machine, config)
}

/// Two spaces that see an object at an odd distance touch every other page of it each.
#[test]
fn pages_of_an_object_take_nodes_in_turn_by_their_index_in_it() {
    let (fx, pages) = (interleaved(), 1024);
    let object = fx.object(pages * KIB4);
    let even = fx.with_object(AT, pages * KIB4, &object);
    let odd = fx.vm.create().unwrap();
    let part = ObjectPart { object: &object, offset: KIB4 };
    fx.vm.map_object(&odd, Placement::At(AT), (pages - 1) * KIB4, RW, part).unwrap();
    let node = |space, va| fx.m().topology().node_of(fx.frame(space, va)).unwrap() as u64;
    // The first of each table is made with its table.
    for page in (0..16).chain(512..528) {
        let odd_page = page % 2 == 1;
        let (space, first) = if odd_page { (&odd, 1) } else { (&even, 0) };
        let va = page_at(page - first);
        fx.poke(space, va, page).unwrap();
        assert_eq!(node(space, va), page % 2, "a fault on page {page}");
        // Where the copy of a bad page comes from.
        fx.vm.poison(space, va).unwrap();
        assert_eq!(fx.peek(space, va), Ok(page));
        assert_eq!(node(space, va), page % 2, "the copy of page {page}");
    }
    for page in 16..20 {
        fx.vm.objects().write(&object, page * KIB4, &[1]).1.unwrap();
        assert_eq!(fx.peek(&even, page_at(page)), Ok(1));
        assert_eq!(node(&even, page_at(page)), page % 2, "a write of page {page}");
    }
    ends(fx, object, [even, odd]);
}

/// The same of blocks, at a distance of a block.
#[test]
fn blocks_of_an_object_take_nodes_in_turn_by_their_index_in_it() {
    let fx = interleaved();
    let object = fx.object(4 * MIB2);
    let attrs = Attrs { thp: Some(HugeAdvice::Huge), ..RW };
    let spaces = [0, MIB2].map(|offset| {
        let (space, part) = (fx.vm.create().unwrap(), ObjectPart { object: &object, offset });
        fx.vm.map_object(&space, Placement::At(AT), 3 * MIB2, attrs, part).unwrap();
        space
    });
    for block in 0..4 {
        let first = block % 2;
        let (space, va) = (&spaces[first as usize], page_at(512 * (block - first)));
        fx.poke(space, va, block).unwrap();
        let node = fx.m().topology().node_of(fx.frame(space, va));
        assert_eq!((fx.leaf(space, va).level, node), (Level::TWO, Some(first as usize)));
    }
    ends(fx, object, spaces);
}
