//! Without memory: what fails leaves a page that was read at most, and writing back takes none.

use super::*;

/// What is done, and whether there was memory for it.
type Act = (&'static str, fn(&Paged) -> bool);

#[test]
fn reading_and_writing_fail_at_each_allocation() {
    let f = paged::<X86_64>(600 * KIB4);
    let acts: [Act; 4] = [
        ("a read fault", |f| done(f.fx.vm.fault(&f.space, AT, Access::Read))),
        ("a write fault", |f| done(f.fx.vm.fault(&f.space, page_at(300), Access::Write))),
        ("read", |f| done(f.word(400))),
        ("write", |f| done(f.fx.vm.objects().write(&f.object, 500 * KIB4, &[1]).1)),
    ];
    for (what, act) in acts {
        let before = f.fx.vm.objects().usage(&f.object).pages;
        for left in 0.. {
            let taken = f.fx.take_all_but(left, Order::BASE);
            let is_done = act(&f);
            f.fx.vm.audit(&[&f.space]).unwrap_or_else(|e| panic!("{what}, {left} left: {e}"));
            // A page that was read may stay for the next one who asks.
            let pages = f.fx.vm.objects().usage(&f.object).pages;
            assert!((before..=before + 1).contains(&pages), "{what}, {left} left: {pages} pages");
            f.fx.give_back(taken, Order::BASE);
            if is_done {
                assert!(left > 0, "{what} takes no memory");
                break;
            }
        }
    }
    // Writing back, evicting and growing shorter take none at all.
    let taken = f.fx.take_all(Order::BASE);
    assert_eq!((f.dirty(), f.sync(), f.dirty()), (2, Ok(()), 0));
    assert_eq!(f.evict(), 4);
    f.fx.give_back(taken, Order::BASE);
    f.end([]);
}

/// Whether there was memory.
fn done<T, E: std::fmt::Display>(got: Result<T, E>) -> bool {
    got.map_err(|error| assert_eq!(error.to_string(), "out of physical memory")).is_ok()
}
