//! Pages around a read fault, where a pager has to know of writes.

use super::*;

on_both!(clean_ones, pages_around_are_writable_only_while_they_are_dirty);

fn clean_ones<C: Arch>() {
    let f = paged::<C>(16 * KIB4);
    (0..8).for_each(|n| assert_eq!(f.word(n), Ok(n + 1)));
    let (_, done) = f.fx.vm.objects().write(&f.object, 5 * KIB4, &50u64.to_le_bytes());
    assert_eq!((done, f.dirty()), (Ok(()), 1));
    assert_eq!(f.peek(0), Ok(1));
    let is_writable = |n| f.fx.leaf(&f.space, page_at(n)).flags.write;
    assert_eq!((0..8).filter(|&n| is_writable(n)).collect::<Vec<_>>(), [5]);
    // A store to a clean one is a fault, and reaches the pager.
    f.poke(6, 60).expect("a page that is there");
    assert_eq!(f.dirty(), 2);
    assert_eq!(f.sync(), Ok(()));
    assert_eq!([5, 6].map(|n| f.disk().word(FILE, n)), [50, 60]);
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(whole_table, so_they_are_where_the_object_has_all_of_a_table);

fn whole_table<C: Arch>() {
    // With the 64 pages past it, as many as a table has; and one large node has the pages.
    let f = paged::<C>(448 * KIB4);
    (0..128).for_each(|n| assert_eq!(f.word(n), Ok(n + 1)));
    for page in [70, 79] {
        let (_, done) = f.fx.vm.objects().write(&f.object, page * KIB4, &900u64.to_le_bytes());
        assert_eq!(done, Ok(()));
    }
    assert_eq!((f.peek(100), f.peek(75)), (Ok(101), Ok(76)), "the first one makes the table");
    let is_mapped = |n: &u64| f.fx.frame_at(&f.space, page_at(*n)).is_some();
    assert!((64..80).all(|n| is_mapped(&n)));
    let is_writable = |n: &u64| f.fx.leaf(&f.space, page_at(*n)).flags.write;
    assert_eq!((64..80).filter(is_writable).collect::<Vec<_>>(), [70, 79]);
    assert_eq!([70, 71].map(|n| f.peek(n)), [Ok(900), Ok(72)]);
    f.fx.check(&[&f.space]);
    f.end([]);
}
