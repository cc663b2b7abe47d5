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
