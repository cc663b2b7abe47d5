//! Events as words, without QEMU.
#[path = "../src/ring/word.rs"]
mod word;

use vellum_trace::Flags;
use word::{KERNEL_MAX, Word, access, fetch, kernel, unpack};

#[test]
fn a_word_says_what_was_put_into_it() {
    let marks = [Flags::READ, Flags::WRITE, Flags::DEPENDENT, Flags::MISPREDICTED];
    for n in 0..16 {
        let flags = (0..4).filter(|i| n >> i & 1 != 0).map(|i| marks[i]);
        let flags = flags.fold(Flags::READ, Flags::with);
        let (addr, shift, tag) = (0x7fff_dead_beef, 5, 511);
        let word = unpack(access(addr, u32::from(shift), u64::from(tag), flags));
        assert!(word == Word::Access { addr, shift, tag, flags }, "{flags:?}");
    }
    assert!(unpack(fetch(0x1000, 99)) == Word::Fetch { addr: 0x1000, insns: 99 });
    let kernel = unpack(kernel(0x1000, KERNEL_MAX, true));
    assert!(kernel == Word::Kernel { addr: 0x1000, len: 8192, write: true });
}
