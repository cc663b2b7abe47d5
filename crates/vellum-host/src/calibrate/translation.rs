//! TLB sizes and paging features, from CPUID where there is one.
//!
//! AMD tells its TLBs in leaves 8000_0005, 8000_0006 and 8000_0019, Intel in leaf 18. Where neither
//! answers (other architectures, some virtual machines) sizes of a usual core are assumed and
//! marked as guesses.

/// One bank: page sizes, entries, ways.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BankGuess {
    /// Page sizes it holds.
    pub sizes: Vec<&'static str>,
    /// Entries.
    pub entries: u32,
    /// Ways; as many as entries where any entry may be anywhere.
    pub ways: u32,
}

/// What is known of translation on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Translation {
    /// First level, instructions.
    pub l1i: Vec<BankGuess>,
    /// First level, data.
    pub l1d: Vec<BankGuess>,
    /// Second level.
    pub l2: Vec<BankGuess>,
    /// Where the sizes are from; `None` if they are assumed.
    pub source: Option<&'static str>,
    /// Whether 1 GiB pages exist.
    pub gigantic: bool,
    /// Contexts the TLBs tell apart; 0 where they have no numbers.
    pub contexts: u32,
}

/// Whether a hypervisor says that this is its guest.
#[cfg(target_arch = "x86_64")]
pub fn is_guest() -> Option<bool> {
    raw_cpuid::CpuId::new().get_feature_info().map(|f| f.has_hypervisor())
}

/// Whether a hypervisor says that this is its guest; elsewhere nobody asks.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_guest() -> Option<bool> {
    None
}

fn bank(sizes: &[&'static str], entries: u32, ways: u32) -> BankGuess {
    // A number of ways that does not divide the entries is taken as fully associative.
    let ways = if ways > 0 && entries.is_multiple_of(ways) { ways } else { entries };
    BankGuess { sizes: sizes.to_vec(), entries, ways }
}

fn assumed() -> Translation {
    Translation {
        l1i: vec![bank(&["4K"], 64, 8), bank(&["2M"], 16, 16)],
        l1d: vec![bank(&["4K"], 64, 4), bank(&["2M"], 32, 4), bank(&["1G"], 4, 4)],
        l2: vec![bank(&["4K", "2M"], 1536, 12), bank(&["1G"], 16, 4)],
        source: None,
        gigantic: true,
        contexts: 4095,
    }
}

/// Sizes of a usual core.
#[cfg(not(target_arch = "x86_64"))]
pub fn read() -> Translation {
    assumed()
}

/// Asks CPUID; what it does not tell is assumed.
#[cfg(target_arch = "x86_64")]
pub fn read() -> Translation {
    let cpuid = raw_cpuid::CpuId::new();
    let pcid = cpuid.get_feature_info().is_some_and(|f| f.has_pcid());
    let gigantic =
        cpuid.get_extended_processor_and_feature_identifiers().is_some_and(|f| f.has_1gib_pages());
    let sizes = amd(&cpuid).or_else(|| intel(&cpuid)).unwrap_or_else(assumed);
    Translation { contexts: if pcid { 4095 } else { 0 }, gigantic, ..sizes }
}

#[cfg(target_arch = "x86_64")]
fn amd<R: raw_cpuid::CpuIdReader>(cpuid: &raw_cpuid::CpuId<R>) -> Option<Translation> {
    let (first, second) =
        (cpuid.get_l1_cache_and_tlb_info()?, cpuid.get_l2_l3_cache_and_tlb_info()?);
    let ways = |a: raw_cpuid::Associativity, entries: u32| match a {
        raw_cpuid::Associativity::FullyAssociative => entries,
        raw_cpuid::Associativity::DirectMapped => 1,
        raw_cpuid::Associativity::NWay(n) => u32::from(n),
        _ => entries.min(8),
    };
    // Where small and large pages have equal arrays, they share one (Zen).
    let level = |small: u32, small_ways, large: u32, large_ways| {
        let (small_ways, large_ways) = (ways(small_ways, small), ways(large_ways, large));
        let banks = if (small, small_ways) == (large, large_ways) {
            vec![bank(&["4K", "2M"], small, small_ways)]
        } else {
            vec![bank(&["4K"], small, small_ways), bank(&["2M"], large, large_ways)]
        };
        banks.into_iter().filter(|b| b.entries > 0).collect::<Vec<_>>()
    };
    let l1d = level(
        u32::from(first.dtlb_4k_size()),
        first.dtlb_4k_associativity(),
        u32::from(first.dtlb_2m_4m_size()),
        first.dtlb_2m_4m_associativity(),
    );
    let l1i = level(
        u32::from(first.itlb_4k_size()),
        first.itlb_4k_associativity(),
        u32::from(first.itlb_2m_4m_size()),
        first.itlb_2m_4m_associativity(),
    );
    // Sizes of Zen 5 do not fit the leaf's twelve bits: they are in units of 32, which leaf
    // 8000_0021 says where a hypervisor does not hide it, and the family (1A) where it does.
    let last = raw_cpuid::cpuid!(0x8000_0000u32).eax;
    let told = last >= 0x8000_0021 && raw_cpuid::cpuid!(0x8000_0021u32).eax >> 14 & 1 == 1;
    let in_units = told || cpuid.get_feature_info().is_some_and(|f| f.family_id() >= 0x1a);
    let unit = if in_units { 32 } else { 1 };
    let l2 = level(
        unit * u32::from(second.dtlb_4k_size()),
        second.dtlb_4k_associativity(),
        unit * u32::from(second.dtlb_2m_4m_size()),
        second.dtlb_2m_4m_associativity(),
    );
    let small = |banks: &[BankGuess]| banks.first().is_some_and(|b| b.sizes.contains(&"4K"));
    (small(&l1d) && small(&l1i)).then(|| Translation {
        l1i,
        l1d,
        l2,
        source: Some("CPUID leaves 8000_0005 and 8000_0006"),
        ..assumed()
    })
}

#[cfg(target_arch = "x86_64")]
fn intel<R: raw_cpuid::CpuIdReader>(cpuid: &raw_cpuid::CpuId<R>) -> Option<Translation> {
    use raw_cpuid::DatType as Kind;
    let mut found = Translation {
        l1i: vec![],
        l1d: vec![],
        l2: vec![],
        source: Some("CPUID leaf 18"),
        ..assumed()
    };
    for info in cpuid.get_deterministic_address_translation_info()? {
        let held = [
            ("4K", info.has_4k_entries()),
            ("2M", info.has_2mb_entries() || info.has_4mb_entries()),
            ("1G", info.has_1gb_entries()),
        ];
        let (ways, sets) = (u32::from(info.ways()), info.sets());
        let level = match (info.cache_type(), info.cache_level()) {
            (Kind::InstructionTLB, 1) => &mut found.l1i,
            (Kind::DataTLB | Kind::LoadOnly, 1) => &mut found.l1d,
            (Kind::UnifiedTLB | Kind::DataTLB, 2) => &mut found.l2,
            _ => continue,
        };
        let new = |s: &&'static str| !level.iter().any(|b| b.sizes.contains(s));
        let sizes: Vec<_> =
            held.iter().filter(|(_, has)| *has).map(|(s, _)| *s).filter(new).collect();
        if let Some(entries) =
            ways.checked_mul(sets).filter(|&e| (1..=1 << 15).contains(&e) && !sizes.is_empty())
        {
            level.push(bank(&sizes, entries, ways));
        }
    }
    let small = |banks: &[BankGuess]| banks.iter().any(|b| b.sizes.contains(&"4K"));
    (small(&found.l1d) && small(&found.l1i)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_first_level_for_small_pages() {
        let t = read();
        for banks in [&t.l1i, &t.l1d] {
            assert!(banks.iter().any(|b| b.sizes.contains(&"4K")), "{t:?}");
        }
        for b in t.l1i.iter().chain(&t.l1d).chain(&t.l2) {
            assert!(b.entries > 0 && b.entries.is_multiple_of(b.ways), "{b:?}");
        }
    }
}
