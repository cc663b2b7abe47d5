//! The data caches of this computer.
//!
//! Linux reports them for every architecture in `/sys/devices/system/cpu/cpu0/cache`. Without
//! `/sys`, an x86_64 processor is asked with `cpuid`. Elsewhere nothing is known, and the library
//! gets no geometry. The answer is read once, since tests build thousands of machines.
//!
//! The caches of CPU 0 stand for those of all CPUs. Where cores differ, colours spread less than
//! they could, and a run may be stored past a cache that would have held it; no byte is wrong.

use std::path::Path;
use std::sync::OnceLock;

use vellum::machine::{CacheLevel, Caches};

/// The caches here.
pub fn here() -> Caches {
    static HERE: OnceLock<Caches> = OnceLock::new();
    *HERE.get_or_init(|| {
        let told = told(Path::new("/sys/devices/system/cpu/cpu0/cache"));
        if told == Caches::UNKNOWN { asked() } else { told }
    })
}

/// What the system tells below that directory.
fn told(cache: &Path) -> Caches {
    let dirs = (0..16).map(|index| cache.join(format!("index{index}")));
    Caches::of_levels(dirs.take_while(|dir| dir.is_dir()).filter_map(|dir| {
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        if text("type")?.trim() == "Instruction" {
            return None;
        }
        // Some firmware leaves parts out: a level with a hole is a level nobody knows.
        let (sets, ways) = (number("number_of_sets")?, number("ways_of_associativity")?);
        let level = CacheLevel { sets, ways, line: number("coherency_line_size")? };
        Some((number("level")?.try_into().ok()?, level))
    }))
}

#[cfg(target_arch = "x86_64")]
fn asked() -> Caches {
    use std::arch::x86_64::__cpuid_count;
    vellum::machine::cpuid::caches(|leaf, subleaf| {
        let r = __cpuid_count(leaf, subleaf);
        [r.eax, r.ebx, r.ecx, r.edx]
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn asked() -> Caches {
    Caches::UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, index: usize, facts: &[(&str, &str)]) {
        let dir = dir.join(format!("index{index}"));
        std::fs::create_dir_all(&dir).expect("a directory");
        facts.iter().for_each(|(name, text)| {
            std::fs::write(dir.join(name), format!("{text}\n")).expect("a file")
        });
    }

    fn level(
        kind: &'static str,
        depth: &'static str,
        sets: &'static str,
        ways: &'static str,
    ) -> [(&'static str, &'static str); 5] {
        let line = ("coherency_line_size", "64");
        [
            ("type", kind),
            ("level", depth),
            ("number_of_sets", sets),
            ("ways_of_associativity", ways),
            line,
        ]
    }

    #[test]
    fn levels_are_read_as_the_system_tells_them_and_one_with_a_hole_is_unknown() {
        let dir = std::env::temp_dir().join(format!("vellum-caches-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        assert_eq!(told(&dir), Caches::UNKNOWN, "no such directory");
        write(&dir, 0, &level("Data", "1", "256", "4"));
        write(&dir, 1, &level("Instruction", "1", "64", "16"));
        write(&dir, 2, &level("Unified", "2", "1024", "8"));
        write(&dir, 3, &level("Unified", "3", "32768", "16"));
        let l = |sets, ways| CacheLevel { sets, ways, line: 64 };
        assert_eq!(told(&dir), Caches { l1d: l(256, 4), l2: l(1024, 8), llc: l(32768, 16) });
        // A guest on Arm: no sets, no ways.
        std::fs::remove_file(dir.join("index2/number_of_sets")).expect("it was there");
        assert_eq!(
            told(&dir),
            Caches { l1d: l(256, 4), l2: CacheLevel::UNKNOWN, llc: l(32768, 16) }
        );
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn the_system_and_the_processor_agree_where_both_speak() {
        let (told, asked) = (told(Path::new("/sys/devices/system/cpu/cpu0/cache")), asked());
        for (a, b) in [(told.l1d, asked.l1d), (told.l2, asked.l2), (told.llc, asked.llc)] {
            assert!(
                a == b || a == CacheLevel::UNKNOWN || b == CacheLevel::UNKNOWN,
                "{told:?}, {asked:?}"
            );
        }
    }
}
