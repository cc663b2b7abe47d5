//! What every entry format must do, and words checked by hand against the manuals.

use proptest::prelude::*;
use vellum::addr::{Level, Pfn, Va};
use vellum::entry::{Aarch64, Busy, CacheMode, Codec, Entry, Flags, NoZeroTables, X86_64};

fn flags() -> impl Strategy<Value = Flags> {
    any::<[bool; 4]>().prop_map(|[write, exec, accessed, dirty]| Flags {
        write,
        exec,
        accessed,
        // A clean leaf that is not writable is the only kind there is.
        dirty: dirty && write,
    })
}

const CACHE_MODES: [CacheMode; 4] =
    [CacheMode::WriteBack, CacheMode::WriteThrough, CacheMode::Uncached, CacheMode::WriteCombining];

/// Any entry that is legal in a node of some level: leaves up to 1 GiB, tables above level 1,
/// blocks aligned to their size.
fn entry() -> impl Strategy<Value = (Entry, Level)> {
    (1u8..=5, 0u64..1 << 36, flags(), 0usize..=17).prop_map(|(level, frame, flags, kind)| {
        let leaf_level = Level(level.min(3));
        let block =
            Pfn(frame).align_down(leaf_level.leaf_order().expect("levels 1 to 3 have leaves"));
        match kind {
            0 => (Entry::Empty, Level(level)),
            1 => (Entry::Reserved, Level(level)),
            2 => (Entry::Table(Pfn(frame)), Level(level.max(2))),
            3 => (Entry::Leaf(block, flags), leaf_level),
            4 => (Entry::Inaccessible(block), leaf_level),
            5 => (Entry::Busy(Busy::Page(block)), leaf_level),
            8 => (Entry::Busy(Busy::Exchange(block)), leaf_level),
            10 => (Entry::Busy(Busy::Migrate(block)), leaf_level),
            11 => (Entry::Busy(Busy::Nothing), Level(level)),
            12 => (Entry::Shared(Pfn(frame), flags), Level::ONE),
            13 => (Entry::Busy(Busy::Shared(block)), leaf_level),
            14..18 => (Entry::Device(block, flags, CACHE_MODES[kind - 14]), leaf_level),
            9 => (Entry::Busy(Busy::ExchangeNothing), Level(level)),
            7 => (Entry::ZeroTable(Pfn(frame)), Level(level.clamp(2, 3))),
            _ => (Entry::Detached(Pfn(frame)), Level(level.max(2))),
        }
    })
}

fn round_trip<C: Codec>(entry: Entry, level: Level) {
    let raw = C::encode(entry, level);
    assert_eq!(C::decode(raw, level), entry, "{raw:#x} at {level:?}");
    assert_eq!(raw == 0, entry == Entry::Empty, "only an empty entry is all zeros");
    // Bit 0 is "present" to the walker of both formats.
    let present = entry.flags().is_some() || matches!(entry, Entry::Table(_) | Entry::ZeroTable(_));
    assert_eq!(raw & 1 == 1, present);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn x86_64_reads_back_what_it_wrote((entry, level) in entry()) {
        round_trip::<X86_64>(entry, level);
    }

    #[test]
    fn aarch64_reads_back_what_it_wrote((entry, level) in entry()) {
        round_trip::<Aarch64>(entry, level);
    }

    #[test]
    fn a_format_without_tables_of_zeros_is_the_same_otherwise((entry, level) in entry()) {
        prop_assume!(!matches!(entry, Entry::ZeroTable(_)));
        round_trip::<NoZeroTables<X86_64>>(entry, level);
        assert_eq!(NoZeroTables::<X86_64>::encode(entry, level), X86_64::encode(entry, level));
    }

    #[test]
    fn any_word_decodes_without_a_panic(raw: u64, level in 1u8..=5) {
        X86_64::decode(raw, Level(level));
        Aarch64::decode(raw, Level(level));
    }

    #[test]
    fn x86_64_absent_frames_point_above_memory(frame in 0u64..1 << 30) {
        // What a processor that speculates past "present" would read must lie above any machine's
        // memory.
        let frame = Pfn(frame);
        let absent = [
            Entry::Inaccessible,
            |p| Entry::Busy(Busy::Page(p)),
            |p| Entry::Busy(Busy::Shared(p)),
            |p| Entry::Busy(Busy::Exchange(p)),
            |p| Entry::Busy(Busy::Migrate(p)),
            Entry::Detached,
        ];
        for e in absent.map(|kind| kind(frame)) {
            let speculated = X86_64::encode(e, Level::TWO) & 0x000f_ffff_ffff_f000;
            prop_assert!(speculated >= 1 << 51, "{speculated:#x}");
        }
    }
}

const RW: Flags = Flags { write: true, exec: false, accessed: true, dirty: true };
const RO: Flags = Flags { write: false, exec: false, accessed: true, dirty: false };

/// Each entry is that word in a node of the level.
fn words_match<C: Codec>(words: &[((Entry, u8), u64)]) {
    for &((entry, level), word) in words {
        let raw = C::encode(entry, Level(level));
        assert_eq!(raw, word, "{entry:?}: {raw:#x} and not {word:#x}");
    }
}

#[test]
fn x86_64_words_match_the_manual() {
    let page = Pfn(0x1234_5678);
    words_match::<X86_64>(&[
        ((Entry::Leaf(page, RW), 1), 0x8000_0123_4567_8067),
        ((Entry::Leaf(page, RO), 1), 0x8000_0123_4567_8025),
        // Bit 7 marks a 2 MiB leaf.
        ((Entry::Leaf(Pfn(0x200), RW), 2), 0x8000_0000_0020_00e7),
        ((Entry::Table(page), 4), 0x0000_0123_4567_8027),
        // No execute (63), one of the ignored bits (9), accessed (5), user (2), present (0); not
        // writable.
        ((Entry::ZeroTable(page), 3), 0x8000_0123_4567_8225),
    ]);
    let exec = X86_64::encode(Entry::Leaf(page, Flags { exec: true, ..RO }), Level::ONE);
    assert_eq!(exec >> 63, 0, "bit 63 clear: may be fetched");
}

#[test]
fn aarch64_words_match_the_manual() {
    let page = Pfn(0x1234_5678);
    words_match::<Aarch64>(&[
        // DBM (51), UXN (54), PXN (53), not global (11), access flag (10), inner shareable (9:8),
        // user (6), page (1), valid (0).
        ((Entry::Leaf(page, RW), 1), 0x0068_0123_4567_8f43),
        // Writable and clean: AP[2] (bit 7) stays set until hardware clears it.
        ((Entry::Leaf(page, Flags { dirty: false, ..RW }), 1), 0x0068_0123_4567_8fc3),
        ((Entry::Leaf(page, RO), 1), 0x0060_0123_4567_8fc3),
        ((Entry::Table(page), 4), 0x0000_0123_4567_8003),
        // APTable read-only (62), UXNTable (60), PXNTable (59), one of the bits left to software
        // (55), table (1), valid (0).
        ((Entry::ZeroTable(page), 3), 0x5880_0123_4567_8003),
    ]);
    let block = Aarch64::encode(Entry::Leaf(Pfn(0x200), RW), Level::TWO);
    assert_eq!(block & 3, 1, "a block has bit 1 clear");
}

/// Leaves of devices but for the bits of such a leaf in another use.
fn cache_bits_are<C: Codec>(device: u64, level: u8, bits: [u64; 4]) {
    let frame = Pfn(0x4000_0000);
    let leaf = C::encode(Entry::Leaf(frame, RW), Level(level)) | device;
    for (cache, bits) in CACHE_MODES.into_iter().zip(bits) {
        assert!(C::has_cache_mode(cache));
        let raw = C::encode(Entry::Device(frame, RW, cache), Level(level));
        assert_eq!(raw, leaf | bits, "{cache:?} at level {level}");
    }
}

#[test]
fn cache_modes_name_the_memory_types_that_the_formats_say() {
    for level in 1..=3 {
        // PWT (3), PCD (4); ours: 11.
        cache_bits_are::<X86_64>(1 << 11, level, [0, 1 << 3, 3 << 3, 1 << 4]);
        // AttrIndx (4:2); ours: 57.
        cache_bits_are::<Aarch64>(1 << 57, level, [0, 1 << 2, 3 << 2, 2 << 2]);
    }
}

#[test]
fn the_walkers_dirty_update_reads_as_dirty() {
    let clean = X86_64::encode(Entry::Leaf(Pfn(7), Flags { dirty: false, ..RW }), Level::ONE);
    assert_eq!(X86_64::decode(clean | 1 << 6, Level::ONE), Entry::Leaf(Pfn(7), RW));
    let clean = Aarch64::encode(Entry::Leaf(Pfn(7), Flags { dirty: false, ..RW }), Level::ONE);
    assert_eq!(Aarch64::decode(clean & !(1 << 7), Level::ONE), Entry::Leaf(Pfn(7), RW));
}

#[test]
fn the_user_half_ends_where_the_formats_say() {
    // Without the last page, behind which addresses are not canonical.
    assert_eq!(X86_64::user_end(4), Va(0x0000_7fff_ffff_f000));
    assert_eq!(X86_64::user_end(5), Va(0x00ff_ffff_ffff_f000));
    assert_eq!(Aarch64::user_end(4), Va(0x0001_0000_0000_0000));
}

fn frame_bits<C: Codec>() {
    for level in [Level::ONE, Level::TWO, Level(3)] {
        let leaf = |pfn: u64, n: u32| {
            let bit = |i: u32| n >> i & 1 == 1;
            let flags =
                Flags { write: bit(0), exec: bit(1), accessed: bit(2), dirty: bit(0) && bit(3) };
            C::encode(Entry::Leaf(Pfn(pfn << 18), flags), level)
        };
        for n in 0..16 {
            for pfn in [0, 1, 5, (1 << 18) - 1] {
                let (frame, others) = (leaf(pfn, n) & C::FRAME, leaf(pfn, n) & !C::FRAME);
                assert_eq!(frame, pfn << 18 << 12, "the frame's bits say its address");
                assert_eq!(others, leaf(0, n) & !C::FRAME, "the others do not depend on it");
                assert_ne!(others, 0, "a leaf is not all frame");
            }
        }
    }
}

#[test]
fn leaves_of_equal_flags_differ_in_their_frames_bits_alone() {
    frame_bits::<X86_64>();
    frame_bits::<Aarch64>();
}

#[test]
fn the_accessed_bit_is_cleared_and_seen_where_entries_have_one_and_nothing_else_changes() {
    for level in [Level::TWO, Level::THREE] {
        let shared = Entry::ZeroTable(Pfn(9));
        let raw = X86_64::encode(shared, level);
        let cleared = X86_64::unaccessed(raw, level);
        assert!(X86_64::is_accessed(raw, level) && !X86_64::is_accessed(cleared, level));
        // Bit 5, as walks set it.
        assert_eq!((X86_64::decode(cleared, level), cleared | 1 << 5), (shared, raw));
        // Descriptors of tables have none: nothing to clear, and used as far as anybody knows.
        let raw = Aarch64::encode(shared, level);
        assert!(Aarch64::is_accessed(raw, level) && Aarch64::unaccessed(raw, level) == raw);
    }
    fn leaf_bit<C: Codec>(bit: u32) {
        let [old, used] = [false, true].map(|accessed| {
            let leaf = Entry::Leaf(Pfn(0x200), Flags { accessed, ..RO });
            C::encode(leaf, Level::TWO)
        });
        assert_eq!((C::unaccessed(used, Level::TWO), old | 1 << bit), (old, used));
        assert!(!C::is_accessed(old, Level::TWO) && C::is_accessed(used, Level::TWO));
    }
    leaf_bit::<X86_64>(5);
    leaf_bit::<Aarch64>(10);
}
