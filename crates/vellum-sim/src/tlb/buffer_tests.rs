//! Behaviours of a TLB.

use super::*;

fn bank(entries: u32, ways: u32, sizes: &[PageSize]) -> BankShape {
    BankShape { entries, ways, sizes: sizes.to_vec() }
}

fn shape<const BANKS: usize>(banks: [BankShape; BANKS], fracture: bool) -> TlbShape {
    TlbShape { banks: banks.into(), fracture }
}

fn separate() -> Tlb {
    Tlb::new(&shape(
        [bank(8, 4, &[PageSize::K4]), bank(4, 4, &[PageSize::M2]), bank(2, 2, &[PageSize::G1])],
        false,
    ))
}

fn entry(va: u64, size: PageSize, ctx: u16) -> Entry {
    let va = size.base(va);
    Entry {
        va,
        frame: va + (1 << 40),
        source: va >> 9,
        ctx,
        size,
        leaf: size,
        flags: Flags::USER,
        ..BLANK
    }
}

fn put(tlb: &mut Tlb, va: u64, size: PageSize, ctx: u16) {
    assert!(tlb.insert(entry(va, size, ctx), va));
    tlb.validate().expect("consistent");
}

#[test]
fn an_entry_translates_its_whole_page_and_nothing_else() {
    for size in PageSize::ALL {
        let mut tlb = separate();
        let base = 5 * size.bytes();
        put(&mut tlb, base + 123, size, 1);
        let last = base + size.bytes() - 1;
        assert_eq!(tlb.lookup(1, last).expect("held").translate(last), last + (1 << 40));
        assert!(tlb.lookup(1, base - 1).is_none() && tlb.lookup(1, last + 1).is_none());
        assert!(tlb.lookup(2, base).is_none(), "another context");
    }
}

#[test]
fn where_a_page_was_found_is_not_where_it_is_for_ever() {
    let huge = 0x4000_0000;
    let mut tlb = separate();
    // As a CPU does.
    let frame = |tlb: &mut Tlb, ctx, va| {
        let again = tlb.lookup_again(ctx, va).map(|e| (e.size, e.translate(va)));
        again.or_else(|| tlb.lookup(ctx, va).map(|e| (e.size, e.translate(va))))
    };
    put(&mut tlb, huge, PageSize::G1, 1);
    assert_eq!(frame(&mut tlb, 1, huge + 5), Some((PageSize::G1, huge + 5 + (1 << 40))));
    // A smaller page over the same address is found before it.
    for size in [PageSize::M2, PageSize::K4] {
        assert!(tlb.insert(entry(huge, size, 1), huge));
        assert_eq!(frame(&mut tlb, 1, huge + 5), Some((size, huge + 5 + (1 << 40))));
    }
    // Another page with the same low bits, and the same page in another context.
    let far = huge + ((FOUND as u64) << 12);
    assert_eq!(frame(&mut tlb, 1, far).map(|f| f.0), Some(PageSize::M2));
    assert_eq!(frame(&mut tlb, 2, huge), None);
    let other = Entry { frame: 1 << 41, ..entry(huge, PageSize::K4, 2) };
    assert!(tlb.insert(other, huge));
    assert_eq!(frame(&mut tlb, 2, huge), Some((PageSize::K4, 1 << 41)));
    assert_eq!(frame(&mut tlb, 1, huge), Some((PageSize::K4, huge + (1 << 40))));
    // A page that comes again, to the slot that it had, over a smaller one.
    let mut tlb = separate();
    put(&mut tlb, huge, PageSize::G1, 1);
    assert_eq!(frame(&mut tlb, 1, huge).map(|f| f.0), Some(PageSize::G1));
    tlb.invalidate_page(Some(1), huge, false);
    put(&mut tlb, huge, PageSize::M2, 1);
    assert!(tlb.insert(entry(huge, PageSize::G1, 1), huge + (2 << 20)));
    assert_eq!(frame(&mut tlb, 1, huge).map(|f| f.0), Some(PageSize::M2));
    // One more that takes its slot: the least recent of its set leaves.
    let mut tlb = separate();
    put(&mut tlb, 0, PageSize::K4, 1);
    assert!(tlb.lookup(1, 0).is_some());
    for page in 1..=4u64 {
        put(&mut tlb, page << 13, PageSize::K4, 1);
    }
    assert_eq!(frame(&mut tlb, 1, 0), None);
}

#[test]
fn page_sizes_with_their_own_banks_do_not_push_each_other_out() {
    let mut tlb = separate();
    put(&mut tlb, 0x4000_0000, PageSize::M2, 1);
    for page in 0..100 {
        put(&mut tlb, page << 12, PageSize::K4, 1);
    }
    assert!(tlb.lookup(1, 0x4000_0000).is_some());
    assert_eq!(tlb.live(), 9);
}

#[test]
fn page_sizes_that_share_a_bank_compete_for_it() {
    let mut tlb = Tlb::new(&shape([bank(64, 64, &PageSize::ALL)], false));
    put(&mut tlb, 0x4000_0000, PageSize::M2, 1);
    for page in 0..64 {
        put(&mut tlb, page << 12, PageSize::K4, 1);
    }
    assert!(tlb.lookup(1, 0x4000_0000).is_none());
    assert!(tlb.lookup(1, 0).is_some());
    assert_eq!(tlb.live(), 64);
}

#[test]
fn the_least_recently_used_entry_of_a_set_leaves() {
    let mut tlb = Tlb::new(&shape([bank(2, 2, &[PageSize::K4])], false));
    put(&mut tlb, 0x1000, PageSize::K4, 1);
    put(&mut tlb, 0x2000, PageSize::K4, 1);
    assert!(tlb.lookup(1, 0x1000).is_some());
    put(&mut tlb, 0x3000, PageSize::K4, 1);
    assert!(tlb.lookup(1, 0x1000).is_some() && tlb.lookup(1, 0x2000).is_none());
}

#[test]
fn a_size_without_a_bank_is_not_held_unless_it_may_be_cut() {
    let mut tlb = Tlb::new(&shape([bank(16, 4, &[PageSize::K4])], false));
    assert!(!tlb.insert(entry(0, PageSize::M2, 1), 0));
    let mut tlb =
        Tlb::new(&shape([bank(16, 4, &[PageSize::K4]), bank(8, 8, &[PageSize::M2])], true));
    let va = (7 << 30) + (5 << 21) + 77;
    assert!(tlb.insert(entry(va, PageSize::G1, 1), va));
    let held = *tlb.lookup(1, va).expect("held");
    assert_eq!(
        (held.size, held.leaf, held.va),
        (PageSize::M2, PageSize::G1, (7 << 30) + (5 << 21))
    );
    assert_eq!(held.translate(va), va + (1 << 40));
    assert!(tlb.lookup(1, va + (1 << 21)).is_none(), "only the piece that was used");
    tlb.validate().expect("consistent");
}

#[test]
fn invalidating_one_address_drops_all_pieces_of_its_page() {
    let mut tlb =
        Tlb::new(&shape([bank(16, 4, &[PageSize::K4]), bank(8, 8, &[PageSize::M2])], true));
    for piece in 0..4u64 {
        let va = (7 << 30) + (piece << 21);
        tlb.insert(entry(va, PageSize::G1, 1), va);
    }
    put(&mut tlb, 1 << 30, PageSize::M2, 1);
    assert_eq!(tlb.mark_stale(7 << 30, (7 << 30) >> 9), 4);
    assert_eq!(tlb.invalidate_page(Some(1), (7 << 30) + 5, false), 4);
    assert_eq!(tlb.live(), 1);
    tlb.validate().expect("consistent");
}

#[test]
fn inserting_again_replaces_the_entry() {
    let mut tlb = separate();
    put(&mut tlb, 0x5000, PageSize::K4, 1);
    let mut upgraded = entry(0x5000, PageSize::K4, 1);
    upgraded.flags |= Flags::WRITE;
    tlb.insert(upgraded, 0x5000);
    assert_eq!(tlb.live(), 1);
    assert!(tlb.probe(1, 0x5000).expect("held").flags.contains(Flags::WRITE));
    tlb.validate().expect("consistent");
}

#[test]
fn a_global_entry_matches_every_context_and_survives_what_spares_globals() {
    let mut tlb = separate();
    let mut global = entry(0x9000, PageSize::K4, 1);
    global.flags |= Flags::GLOBAL;
    tlb.insert(global, 0x9000);
    put(&mut tlb, 0xa000, PageSize::K4, 1);
    assert!(tlb.lookup(1, 0x9000).is_some() && tlb.lookup(77, 0x9000).is_some());
    assert_eq!(tlb.invalidate_page(Some(1), 0x9000, false), 0);
    assert_eq!(tlb.invalidate_context(1), 1);
    assert_eq!(tlb.invalidate_all(false), 0);
    assert_eq!(tlb.invalidate_page(Some(1), 0x9000, true), 1);
    assert_eq!(tlb.live(), 0);
    tlb.validate().expect("consistent");
}

#[test]
fn invalidation_reaches_exactly_the_page_range_or_context_asked_for() {
    let fill = || {
        let mut tlb =
            Tlb::new(&shape([bank(256, 4, &[PageSize::K4]), bank(16, 4, &[PageSize::M2])], false));
        for page in 0..64 {
            put(&mut tlb, page << 12, PageSize::K4, 1 + (page & 1) as u16);
        }
        put(&mut tlb, 1 << 21, PageSize::M2, 1);
        tlb
    };
    assert_eq!(fill().invalidate_page(Some(1), 4 << 12, false), 1);
    assert_eq!(fill().invalidate_page(Some(2), 4 << 12, false), 0);
    assert_eq!(fill().invalidate_page(None, 4 << 12, false), 1);
    assert_eq!(fill().invalidate_range(Some(1), 3 << 12, 5 << 12, false), 2);
    assert_eq!(fill().invalidate_range(None, 3 << 12, 5 << 12, false), 5);
    assert_eq!(fill().invalidate_range(None, 0, 1 << 22, false), 65);
    assert_eq!(fill().invalidate_range(None, (1 << 21) + 4096, 1, false), 1);
    assert_eq!(fill().invalidate_range(None, 0, 0, false), 0);
    assert_eq!(fill().invalidate_range(None, 0, u64::MAX, false), 65);
    assert_eq!(fill().invalidate_context(1), 33);
    assert_eq!(fill().invalidate_all(true), 65);
    let mut tlb = fill();
    tlb.invalidate_range(Some(2), 0, 1 << 30, false);
    tlb.validate().expect("consistent");
    assert!(tlb.iter().all(|e| e.ctx == 1));
}

#[test]
fn a_translation_is_dropped_alone_where_its_page_is_held_in_pieces() {
    let held = || {
        let mut tlb = Tlb::new(&shape([bank(64, 4, &[PageSize::K4])], true));
        for page in 0..8 {
            tlb.insert(entry(0, PageSize::M2, 1), page << 12);
        }
        tlb.insert(entry(0, PageSize::M2, 2), 3 << 12);
        tlb
    };
    let mut tlb = held();
    tlb.drop_translation(1, 3 << 12);
    tlb.validate().expect("consistent");
    assert_eq!(tlb.live(), 8);
    assert!(tlb.probe(1, 3 << 12).is_none() && tlb.probe(1, 4 << 12).is_some());
    assert!(tlb.probe(2, 3 << 12).is_some(), "another context's");
    let mut tlb = held();
    assert_eq!(tlb.invalidate_page(Some(1), 3 << 12, false), 8, "a flush drops all of the page");
}

#[test]
fn a_change_of_a_leaf_marks_its_entries_in_every_context_and_no_others() {
    let mut tlb = separate();
    put(&mut tlb, 0x5000, PageSize::K4, 1);
    put(&mut tlb, 0x5000, PageSize::K4, 2);
    put(&mut tlb, 0x6000, PageSize::K4, 1);
    assert_eq!(tlb.mark_stale(0x5000, 0x5000 >> 9), 2);
    assert_eq!(tlb.mark_stale(0x5000, 0xdead), 0, "read from another entry");
    assert!(
        tlb.lookup(1, 0x5000).expect("held").stale && tlb.lookup(2, 0x5000).expect("held").stale
    );
    assert!(!tlb.lookup(1, 0x6000).expect("held").stale);
    assert_eq!(tlb.mark_stale_range(0, 1 << 21, |e| e.ctx == 1), 2);
}

#[test]
fn two_sizes_over_one_address_are_found_by_validation() {
    let mut tlb = separate();
    tlb.insert(entry(0x20_0000, PageSize::M2, 1), 0x20_0000);
    tlb.insert(entry(0x20_3000, PageSize::K4, 2), 0x20_3000);
    tlb.validate().expect("different contexts");
    tlb.insert(entry(0x20_3000, PageSize::K4, 1), 0x20_3000);
    assert!(tlb.validate().is_err());
    let mut tlb = separate();
    let mut global = entry(0x20_0000, PageSize::M2, 1);
    global.flags |= Flags::GLOBAL;
    tlb.insert(global, 0x20_0000);
    tlb.insert(entry(0x20_3000, PageSize::K4, 2), 0x20_3000);
    assert!(tlb.validate().is_err());
}
