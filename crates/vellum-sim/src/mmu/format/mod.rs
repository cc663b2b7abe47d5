//! What hardware reads in an entry.
//!
//! Only what the processor's manual says is decoded: whether an entry is present, where it leads,
//! which rights it gives. The software kinds that the library keeps in absent entries are all the
//! same to hardware, and here.

mod arm;
mod x86;

pub use arm::Arm;
pub use x86::X86;

/// Rights and marks of a leaf, or the limits a table entry puts on everything below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Writes are allowed.
    pub write: bool,
    /// Fetches are allowed.
    pub exec: bool,
    /// User mode is allowed.
    pub user: bool,
    /// The accessed bit.
    pub accessed: bool,
    /// The dirty bit (or, where a format has "writable, clean", its opposite).
    pub dirty: bool,
}

/// An entry as hardware reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// Not present.
    Absent,
    /// The node at this physical address, and what it takes away from what is below.
    Table(u64, Rights),
    /// A block at this physical address.
    Leaf(u64, Rights),
    /// Present, with a bit set that the manual reserves. Hardware raises a fault that no kernel
    /// expects.
    Malformed,
}

/// One entry format, as its manual defines it.
pub trait Format: Copy + 'static {
    /// The library's codec for the same hardware; never called by the simulator.
    type Codec: vellum::entry::Codec;
    /// The name in machine files.
    const NAME: &'static str;
    /// Whether the accessed bit of table entries exists and is set by walks.
    const TABLES_ACCESSED: bool;
    /// Reads an entry of a node of `level` (1: entries map 4 KiB).
    fn meaning(raw: u64, level: u8) -> Meaning;
    /// The memory type that a leaf of a node of `level` chooses, by its number in the processor's
    /// table of them.
    fn memory_type(raw: u64, level: u8) -> u64;
    /// The entry with its accessed bit set.
    fn accessed(raw: u64) -> u64;
    /// The writable entry with its dirty mark set.
    fn dirty(raw: u64) -> u64;
    /// First address past the half that user roots translate.
    fn user_end(levels: u8) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum::addr::{Level, Pfn};
    use vellum::entry::{Busy, CacheMode, Codec, Entry, Flags};

    fn agrees<F: Format>() {
        for level in 1..=5u8 {
            for bits in 0..16u8 {
                let f = Flags {
                    write: bits & 1 != 0,
                    exec: bits & 2 != 0,
                    accessed: bits & 4 != 0,
                    dirty: bits & 9 == 9,
                };
                if level <= 3 {
                    let pfn = Pfn(0x40000 * 3);
                    let raw = F::Codec::encode(Entry::Leaf(pfn, f), Level(level));
                    match F::meaning(raw, level) {
                        Meaning::Leaf(at, r) => {
                            assert_eq!(at, pfn.addr());
                            let got = Flags {
                                write: r.write,
                                exec: r.exec,
                                accessed: r.accessed,
                                dirty: r.write && r.dirty,
                            };
                            assert_eq!(got, f, "level {level}");
                            assert!(r.user);
                        }
                        other => panic!("level {level}: {other:?}"),
                    }
                }
            }
            if level > 1 {
                let raw = F::Codec::encode(Entry::Table(Pfn(77)), Level(level));
                let Meaning::Table(at, rights) = F::meaning(raw, level) else {
                    panic!("{raw:#x} is no table");
                };
                assert_eq!(at, 77 << 12);
                assert!(rights.write && rights.exec && rights.user);
            }
            for absent in [
                Entry::Empty,
                Entry::Reserved,
                Entry::Inaccessible(Pfn(5)),
                Entry::Busy(Busy::Page(Pfn(5))),
                Entry::Busy(Busy::Exchange(Pfn(5))),
                Entry::Detached(Pfn(5)),
            ] {
                assert_eq!(
                    F::meaning(F::Codec::encode(absent, Level(level)), level),
                    Meaning::Absent
                );
            }
        }
        ends::<F>(4);
    }

    fn chooses<F: Format>(types: [u64; 4]) {
        use CacheMode::*;
        for level in 1..=3 {
            let pfn = Pfn(0x40000 * 3);
            let raw = F::Codec::encode(Entry::Leaf(pfn, Flags::default()), Level(level));
            assert_eq!(F::memory_type(raw, level), 0);
            let modes = [WriteBack, WriteThrough, Uncached, WriteCombining];
            for (cache, wanted) in modes.into_iter().zip(types) {
                let device = Entry::Device(pfn, Flags::default(), cache);
                let raw = F::Codec::encode(device, Level(level));
                assert_eq!(F::memory_type(raw, level), wanted, "{cache:?} at level {level}");
                let leaf =
                    matches!(F::meaning(raw, level), Meaning::Leaf(at, _) if at == pfn.addr());
                assert!(leaf, "{cache:?} at level {level}");
            }
        }
    }

    #[test]
    fn cache_modes_are_the_types_that_the_library_documents() {
        chooses::<X86>([0, 1, 3, 2]);
        chooses::<Arm>([0, 1, 3, 2]);
    }

    /// Hardware walks the whole user half; the library may leave its last page out.
    fn ends<F: Format>(levels: u8) {
        let (library, hardware) = (F::Codec::user_end(levels).0, F::user_end(levels));
        assert!(library == hardware || library == hardware - 4096, "{library:#x}, {hardware:#x}");
    }

    #[test]
    fn x86_entries_written_by_the_library_mean_to_hardware_what_the_library_meant() {
        agrees::<X86>();
        ends::<X86>(5);
    }

    #[test]
    fn arm_entries_written_by_the_library_mean_to_hardware_what_the_library_meant() {
        agrees::<Arm>();
    }

    #[test]
    fn setting_marks_changes_nothing_else() {
        let f = Flags { write: true, exec: true, accessed: false, dirty: false };
        fn check<F: Format>(f: Flags) {
            let raw = F::Codec::encode(Entry::Leaf(Pfn(9), f), Level::ONE);
            let with = F::dirty(F::accessed(raw));
            assert_eq!(
                F::Codec::decode(with, Level::ONE),
                Entry::Leaf(Pfn(9), Flags { accessed: true, dirty: true, ..f })
            );
        }
        check::<X86>(f);
        check::<Arm>(f);
    }
}
