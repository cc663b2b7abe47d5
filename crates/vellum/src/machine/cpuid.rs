//! The caches of an x86_64 processor, as its identification registers describe them.
//!
//! For kernels that have nothing else: a boot on metal, a unikernel. The registers come in as
//! numbers and the answer goes out as a value, so this is compiled and tested everywhere and asks
//! no processor by itself. Two leaves describe caches in one format. AMD's is asked first where it
//! is announced: hypervisors fill in the other one for AMD's processors too, with caches of some
//! other processor.
//!
//! Whatever does not look like a cache is left unknown. What does is believed, however large: who
//! uses a geometry bounds it.

use super::{CacheLevel, Caches};

/// The leaf of Intel and others.
const DETERMINISTIC: u32 = 4;
/// AMD's, announced by a bit of leaf 0x80000001.
const TOPOLOGY: u32 = 0x8000_001d;
const TOPOLOGY_BIT: u32 = 1 << 22;
/// No processor describes more caches than this; a hypervisor that never says "no more" is not
/// listened to for longer.
const MOST: u32 = 16;

/// The caches that `cpuid(leaf, subleaf)`, which gives `eax`, `ebx`, `ecx` and `edx`, describes.
/// The last level is the outermost one beyond the second, or the second if there is no other.
///
/// ```
/// # #[cfg(target_arch = "x86_64")] {
/// use core::arch::x86_64::__cpuid_count;
/// let caches = vellum::machine::cpuid::caches(|leaf, subleaf| {
///     let r = __cpuid_count(leaf, subleaf);
///     [r.eax, r.ebx, r.ecx, r.edx]
/// });
/// assert!(caches.l1d.line == 0 || caches.l1d.bytes() >= 4096);
/// # }
/// ```
pub fn caches(mut cpuid: impl FnMut(u32, u32) -> [u32; 4]) -> Caches {
    let mut has = |leaf: u32| {
        let most = cpuid(leaf & 0x8000_0000, 0)[0];
        // A processor without extended leaves answers with something else altogether.
        most & 0x8000_0000 == leaf & 0x8000_0000 && most >= leaf
    };
    let (extended, plain) = (has(TOPOLOGY), has(DETERMINISTIC));
    if extended && cpuid(0x8000_0001, 0)[2] & TOPOLOGY_BIT != 0 {
        let found = described(|n| cpuid(TOPOLOGY, n));
        if found != Caches::UNKNOWN {
            return found;
        }
    }
    if plain { described(|n| cpuid(DETERMINISTIC, n)) } else { Caches::UNKNOWN }
}

fn described(subleaf: impl FnMut(u32) -> [u32; 4]) -> Caches {
    let described = (0..MOST).map(subleaf).take_while(|[eax, ..]| eax & 31 != 0);
    // 1: data, 2: instructions, 3: both.
    let data = described.filter(|[eax, ..]| matches!(eax & 31, 1 | 3));
    Caches::of_levels(data.map(|[eax, ebx, ecx, _]| {
        let (ways, parts, line) = (
            u64::from(ebx >> 22) + 1,
            u64::from(ebx >> 12 & 0x3ff) + 1,
            u64::from(ebx & 0xfff) + 1,
        );
        (eax >> 5 & 7, CacheLevel { sets: (u64::from(ecx) + 1) * parts, ways, line })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subleaf.
    fn cache(kind: u32, level: u32, ways: u32, sets: u32) -> [u32; 4] {
        [kind | level << 5 | 1 << 8, (ways - 1) << 22 | 63, sets - 1, 0]
    }

    fn level(sets: u64, ways: u64) -> CacheLevel {
        CacheLevel { sets, ways, line: 64 }
    }

    /// A processor with these caches in each of the leaves; `extended` are announced.
    fn processor(
        plain: &[[u32; 4]],
        extended: Option<&[[u32; 4]]>,
        leaf: u32,
        subleaf: u32,
    ) -> [u32; 4] {
        let at = |all: &[[u32; 4]]| all.get(subleaf as usize).copied().unwrap_or_default();
        match leaf {
            0 => [13, 0, 0, 0],
            0x8000_0000 => [0x8000_0021, 0, 0, 0],
            0x8000_0001 => [0, 0, if extended.is_some() { TOPOLOGY_BIT } else { 0 }, 0],
            DETERMINISTIC => at(plain),
            TOPOLOGY => extended.map(at).unwrap_or_default(),
            _ => [0; 4],
        }
    }

    const ICE_LAKE: [[u32; 4]; 4] = [
        [0x121, 11 << 22 | 63, 63, 0],
        [0x122, 7 << 22 | 63, 63, 0],
        [0x143, 19 << 22 | 63, 1023, 0],
        [0x163, 11 << 22 | 63, 65535, 4],
    ];

    #[test]
    fn a_processor_of_intel_describes_its_data_caches() {
        let found = caches(|l, s| processor(&ICE_LAKE, None, l, s));
        assert_eq!(
            found,
            Caches { l1d: level(64, 12), l2: level(1024, 20), llc: level(65536, 12) }
        );
        assert_eq!((found.l1d.bytes(), found.l2.bytes()), (48 << 10, 1280 << 10));
    }

    #[test]
    fn amds_own_description_goes_before_what_a_hypervisor_made_up() {
        let zen =
            [cache(1, 1, 8, 64), cache(2, 1, 8, 64), cache(3, 2, 8, 1024), cache(3, 3, 16, 32768)];
        let found = caches(|l, s| processor(&ICE_LAKE, Some(&zen), l, s));
        assert_eq!(found, Caches { l1d: level(64, 8), l2: level(1024, 8), llc: level(32768, 16) });
        let silent = caches(|l, s| processor(&ICE_LAKE, Some(&[]), l, s));
        assert_eq!(silent.l1d, level(64, 12), "announced and empty: the other leaf");
    }

    #[test]
    fn where_there_is_no_third_level_the_second_is_the_last() {
        let two = [cache(1, 1, 6, 64), cache(3, 2, 16, 2048)];
        let found = caches(|l, s| processor(&two, None, l, s));
        assert_eq!((found.l2, found.llc), (level(2048, 16), level(2048, 16)));
    }

    #[test]
    fn a_processor_that_describes_nothing_is_unknown() {
        assert_eq!(caches(|_, _| [0; 4]), Caches::UNKNOWN);
        assert_eq!(
            caches(|l, _| [if l == 0 { 2 } else { 7 }, 0, 0, 0]),
            Caches::UNKNOWN,
            "too old for either leaf"
        );
        assert_eq!(caches(|l, s| processor(&[], None, l, s)), Caches::UNKNOWN);
    }

    #[test]
    fn a_description_without_end_is_read_so_far() {
        let mut asked = 0;
        let absurd = caches(|l, s| {
            asked += 1;
            if l == DETERMINISTIC { [u32::MAX; 4] } else { processor(&[], None, l, s) }
        });
        assert!(asked < 2 * MOST, "{asked}");
        assert_eq!(absurd, Caches::UNKNOWN, "31 is no kind of cache");
    }
}
