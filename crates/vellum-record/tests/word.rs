//! Events as words, without QEMU.
#[path = "../src/ring/word.rs"]
mod word;

use word::{KERNEL_MAX, Word, access, enter, fetch, kernel, sized, tag, unpack};

#[test]
fn a_word_says_what_was_put_into_it() {
    let (addr, shift, place) = (0x7fff_dead_beef, 5, 511);
    for store in [false, true] {
        let want = Word::Access { addr, shift, store, place };
        assert_eq!(unpack(access(addr, tag(place.into(), shift, store))), want);
        let late = tag(place.into(), 0, store) | sized(shift.into());
        assert_eq!(unpack(access(addr, late)), want);
    }
    assert_eq!(unpack(enter(0x7fff_1234_5678)), Word::Enter { at: 0x7fff_1234_5678 });
    assert_eq!(unpack(fetch(0x1000, 99)), Word::Fetch { addr: 0x1000, insns: 99 });
    let kernel = unpack(kernel(0x1000, KERNEL_MAX, true));
    assert_eq!(kernel, Word::Kernel { addr: 0x1000, len: 8192, write: true });
}
