//! Folios, in which Linux's page cache keeps files: what a fault maps, and what it costs.

use crate::common::{R, RW, Script, Temporary, count, counters, vellum};
use vellum_trace::event::{Advice, Change, Map, MapKind};

type Counters = serde_json::Map<String, serde_json::Value>;

const PAGES: u64 = 2048;

/// A file that is written by calls of so many KiB; 0: it is only made so long.
fn written(kib: u64) -> (Script, u32) {
    let mut s = Script::new();
    let file = s.new_file(0);
    if kib == 0 {
        s.call(Change::FileResize { file, bytes: PAGES << 12 });
    }
    let mut offset = 0;
    while kib > 0 && offset < PAGES << 12 {
        let bytes = (kib << 10).min((PAGES << 12) - offset);
        s.call(Change::FileWrite { file, offset, bytes });
        offset += bytes;
    }
    (s, file)
}

/// The counters with `file.folios` off, and with a size of it.
fn both(s: &Script, folios: &str) -> [Counters; 2] {
    let trace = s.file(&format!("folios-{:?}.vt", std::thread::current().id()));
    let vs = format!("file.folios={folios}");
    let args = ["--machine", "tiny", "--vs", &vs];
    let columns = counters(&trace, &args);
    for c in &columns {
        let wrong = ["accesses_refused", "calls_refused", "frames_lost"].map(|n| count(c, n));
        assert_eq!(wrong, [0; 3]);
    }
    columns.try_into().expect("two columns")
}

fn faults(s: &Script, folios: &str) -> [i64; 2] {
    both(s, folios).map(|c| count(&c, "pgfault"))
}

/// Linux 6.18 on ext4 took as many as the second figures (2026-11-28), for 8 MiB.
#[test]
fn a_store_maps_what_one_call_wrote_and_a_load_at_least_64_kib() {
    for (kib, stores, loads) in [(4, 2048, 128), (64, 128, 128), (1024, 8, 8), (2048, 4, 4)] {
        let (mut s, file) = written(kib);
        let m = s.map_file(file, PAGES, MapKind::FileShared);
        s.touch(m, 0..PAGES);
        assert_eq!(faults(&s, "8M"), [2048, stores], "{kib} KiB, stores");
        let (mut s, file) = written(kib);
        let m = s.map_file(file, PAGES, MapKind::FilePrivate);
        s.read(m, 0..PAGES);
        assert_eq!(faults(&s, "8M"), [128, loads], "{kib} KiB, loads");
    }
}

#[test]
fn what_is_read_ahead_comes_in_longer_and_longer_folios() {
    let (mut s, file) = written(0);
    let m = s.map_file(file, PAGES, MapKind::FileShared);
    s.touch(m, 0..PAGES);
    // 512 pages by themselves, then in folios of 4, 16 and 64.
    assert_eq!(faults(&s, "2M"), [2048, 512 + 128 + 32 + 8]);
    assert_eq!(faults(&s, "4K"), [2048, 2048]);
}

/// A store to a page that loads have mapped, and a copy of a page, are of that page alone. So are
/// pages of a folio that lies in the mapping in part.
#[test]
fn one_page_is_mapped_where_a_folio_cannot_be() {
    let (mut s, file) = written(64);
    s.call(Change::FileSync { file, offset: 0, bytes: u64::MAX });
    let m = s.map_file(file, PAGES, MapKind::FileShared);
    s.read(m, 0..64).touch(m, 0..64);
    assert_eq!(faults(&s, "8M"), [4 + 64, 4 + 64], "mapped before");

    let (mut s, file) = written(64);
    let m = s.map_file(file, PAGES, MapKind::FilePrivate);
    s.touch(m, 0..64);
    assert_eq!(faults(&s, "8M"), [64, 64], "copies");

    let (mut s, file) = written(64);
    let m = s.map_file(file, 24, MapKind::FileShared);
    s.touch(m, 0..24);
    assert_eq!(faults(&s, "8M"), [24, 1 + 8], "a part of a folio");
}

/// What was there before the program began is taken to be kept page by page; what is gone from the
/// cache is read anew.
#[test]
fn folios_end_with_what_they_hold() {
    let mut s = Script::new();
    let file = s.new_file(64 << 12);
    let m = s.map_file(file, 64, MapKind::FileShared);
    s.touch(m, 0..64);
    assert_eq!(faults(&s, "8M"), [64, 64], "there before");

    let (mut s, file) = written(64);
    s.call(Change::FileResize { file, bytes: 0 });
    s.call(Change::FileResize { file, bytes: PAGES << 12 });
    let m = s.map_file(file, PAGES, MapKind::FileShared);
    s.touch(m, 0..64);
    assert_eq!(faults(&s, "8M"), [64, 64], "cut and made longer");
}

/// Advice on less than a page, and a write of more than any call writes.
#[test]
fn parts_of_a_file_may_be_shorter_than_a_page_and_not_longer_than_calls_write() {
    let (mut s, file) = written(64);
    for bytes in [0, 200] {
        s.call(Change::FileAdvise { file, offset: 100, bytes, advice: 4 });
    }
    let m = s.map_file(file, PAGES, MapKind::FileShared);
    s.touch(m, 0..64);
    assert_eq!(faults(&s, "8M"), [64, 4]);

    let mut s = Script::new();
    let file = s.new_file(0);
    s.call(Change::FileWrite { file, offset: 0, bytes: 1 << 62 });
    let trace = s.file("folios-long.vt");
    let args = ["run", "--machine", "tiny", "--set", "file.folios=8M", "--trace", trace.path()];
    let said = vellum(&args);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("a call writes 4611686018427387904 bytes"), "{}", said.err);
}

/// Where something else lies behind a part of the mapping, or nothing, its folio is not mapped as a
/// whole.
#[test]
fn a_fault_maps_nothing_that_lies_inside_the_mapping() {
    let inner = |s: &mut Script, outer, kind| {
        let (mapping, pages) = (outer + 1, 8);
        let inside = Some((outer, 8 * 4096));
        s.map_as(Map { inside, ..s.fresh(mapping, pages, kind) })
    };
    let (mut s, file) = written(64);
    let m = s.map_file(file, PAGES, MapKind::FileShared);
    let inside = inner(&mut s, m, MapKind::Anon);
    s.touch(m, 0..1).touch(inside, 0..8);
    assert_eq!(faults(&s, "8M"), [9, 9], "another mapping");

    for (what, change) in [
        ("the end", Change::Unmap { mapping: 0, offset: 8 * 4096, len: 8 * 4096 }),
        ("the beginning", Change::Unmap { mapping: 0, offset: 0, len: 2 * 4096 }),
        ("rights", Change::Protect { mapping: 0, offset: 4 * 4096, len: 4096, prot: R }),
    ] {
        let (mut s, file) = written(64);
        let m = s.map_file(file, PAGES, MapKind::FileShared);
        assert_eq!(m, 0);
        s.call(change).touch(m, 2..4).touch(m, 16..32);
        assert_eq!(faults(&s, "8M"), [18, 3], "{what}");
    }
}

/// Pages are dirty to which nobody wrote; they are written to the disk where memory runs out.
#[test]
fn what_folios_make_dirty_leaves_memory_as_what_is_clean() {
    let pages = 2 * PAGES;
    let (mut s, file) = (Script::new(), 0);
    assert_eq!(s.new_file(0), file);
    for n in 0..pages / 16 {
        s.call(Change::FileWrite { file, offset: n << 16, bytes: 1 << 16 });
    }
    s.call(Change::FileSync { file, offset: 0, bytes: u64::MAX });
    let m = s.map_file(file, pages, MapKind::FileShared);
    for n in 0..pages / 16 {
        s.touch(m, n * 16..n * 16 + 1);
    }
    let memory = s.anon(3 * pages);
    s.touch(memory, 0..3 * pages);
    let [off, on] = both(&s, "8M");
    assert!(count(&off, "nr_dirty") < 256 + 1, "{}", count(&off, "nr_dirty"));
    assert_eq!(count(&on, "pgfault"), count(&off, "pgfault"));
}

/// A folio is mapped and unmapped at the price of a page.
#[test]
fn a_folio_costs_as_a_page_does() {
    let tiny = vellum(&["machines", "tiny", "--toml"]).out;
    let prices = "map_file = { value = 100000, basis = \"guess\", source = \"a test\" }\n\
                  unmap_file = { value = 50000, basis = \"guess\", source = \"a test\" }\n";
    let machine = tiny.replace("[costs.work]\n", &format!("{prices}\n[costs.work]\n"));
    assert_ne!(tiny, machine);
    let machine = Temporary::with("folio-prices.toml", machine.as_bytes());
    let (mut s, file) = written(64);
    for _ in 0..2 {
        let m = s.map_file(file, PAGES, MapKind::FileShared);
        // From the middle of each folio on, and then the rest.
        for folio in 0..PAGES / 16 {
            s.touch(m, folio * 16 + 7..folio * 16 + 16).touch(m, folio * 16..folio * 16 + 7);
        }
        s.call(Change::Unmap { mapping: m, offset: 0, len: PAGES << 12 });
    }
    // The same frames as pages of another file that is kept page by page.
    s.call(Change::FileResize { file, bytes: 0 });
    let (other, advice) = (s.new_file(0), Advice::DontNeed);
    for page in 0..PAGES {
        s.call(Change::FileWrite { file: other, offset: page << 12, bytes: 4096 });
    }
    let m = s.map_file(other, PAGES, MapKind::FileShared);
    s.touch(m, 0..PAGES);
    s.call(Change::Advise { mapping: m, offset: 0, len: PAGES << 12, advice });
    let trace = s.file("folio-prices.vt");
    let args = ["run", "--trace", trace.path(), "--machine", machine.path(), "--json"];
    let vs = ["--as", "vellum", "--vs", "file.folios=8M"];
    let said = vellum(&[&args[..], &vs].concat());
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let price = |column: usize, name: &str| doc["variants"][column]["charges"][name].as_u64();
    // The page for which a table is made is in the table before that is linked, and so not seen.
    let (tables, folios) = (PAGES / 512, 2 * PAGES / 16);
    let pages = [(3 * PAGES - 3 * tables, 3 * PAGES), (folios + PAGES - tables, folios + PAGES)];
    for (column, (mapped, unmapped)) in pages.into_iter().enumerate() {
        assert_eq!(price(column, "costs.map_file"), Some(mapped * 100_000), "{column}");
        let twice = if column == 1 { 2 * tables } else { 0 };
        assert_eq!(
            price(column, "costs.unmap_file"),
            Some((unmapped + twice) * 50_000),
            "{column}"
        );
    }
}

/// The base has what the recorded host had, and says so if that is no size.
#[test]
fn the_base_maps_as_the_recorded_host_did() {
    let (mut s, file) = written(64);
    let m = s.map_file(file, 64, MapKind::FileShared);
    s.touch(m, 0..64);
    let base = |ahead: &str| {
        let mut s = s.clone();
        s.folio_ahead = ahead.to_owned();
        let trace = s.file("folio-base.vt");
        let run = |more: &[&str]| {
            let args = ["run", "--trace", trace.path(), "--machine", "tiny"];
            vellum(&[&args[..], more].concat()).out
        };
        let doc: serde_json::Value = serde_json::from_str(&run(&["--json"])).expect("JSON");
        let counters = doc["variants"][0]["counters"].as_object().expect("counters");
        (count(counters, "pgfault"), run(&[]))
    };
    assert_eq!(base("").0, 64);
    assert_eq!(base("128K").0, 4);
    let (faults, said) = base("3 apples");
    assert_eq!(faults, 64);
    let line = "note: the trace says `3 apples` of the recorded host's read_ahead_kb, which is no \
                value of it; Linux's own choice is taken, file.folios=off";
    assert!(said.lines().any(|l| l == line), "{said}");
}

/// A file that the trace does not name has no folios.
#[test]
fn a_file_without_a_name_is_mapped_by_pages() {
    let mut s = Script::new();
    let m = s.map(64, MapKind::FileShared, RW);
    s.read(m, 0..32).touch(m, 32..64);
    let [off, on] = faults(&s, "8M");
    assert!(off == on && off > 32, "{off}, {on}");
}
