//! Files in a replay: what is shared, what is read from the disk, what is written.

mod calls;
mod folios;

use crate::common::{R, RW, Script, count, counters, vellum};
use vellum_trace::event::{Advice, Change, Event, Map, MapKind};

type Counts = serde_json::Map<String, serde_json::Value>;

const ALL: u64 = u64::MAX;

fn run(script: &Script, name: &str, more: &[&str]) -> Counts {
    let args = [&["--machine", "tiny", "--set", "thp=never"], more].concat();
    let counts = counters(&script.file(name), &args).remove(0);
    let bad = ["accesses_refused", "calls_refused", "frames_lost"].map(|n| count(&counts, n));
    assert_eq!(bad, [0; 3], "{name}");
    counts
}

fn reads(pages: u64) -> Script {
    let mut s = Script::new();
    let m = s.map(pages, MapKind::FileShared, R);
    s.read(m, 0..pages);
    s
}

#[test]
fn a_warm_file_is_in_memory_and_a_cold_one_is_waited_for() {
    let s = reads(64);
    let warm = run(&s, "warm.vt", &[]);
    let named = ["pgmajfault", "pgpgin", "readahead_pages", "cycles_io"];
    assert_eq!(named.map(|n| count(&warm, n)), [0; 4]);
    assert_eq!(count(&warm, "file_cache_bytes"), 64 * 4096);
    assert_eq!([count(&warm, "rss_peak_bytes"), count(&warm, "rss_end_bytes")], [64 * 4096; 2]);

    let cold = run(&s, "cold.vt", &["--files", "cold"]);
    assert_eq!(count(&cold, "pgpgin"), 64 * 4, "each page once");
    // The first page is waited for; 3, 8, 16, 32 and the rest are read while others are used.
    assert_eq!([count(&cold, "pgmajfault"), count(&cold, "readahead_pages")], [1, 63]);
    assert_eq!(count(&cold, "readahead_unused"), 0);
    assert_eq!(count(&cold, "minor_faults"), count(&cold, "pgfault") - 1);
    assert!(count(&cold, "cycles_io") > 2000, "a latency of the disk");
    assert!(count(&cold, "cycles_elapsed") > count(&warm, "cycles_elapsed") + 2000);

    let alone = run(&s, "alone.vt", &["--files", "cold", "--set", "file.readahead=off"]);
    assert_eq!([count(&alone, "pgmajfault"), count(&alone, "readahead_pages")], [64, 0]);
    assert!(count(&alone, "cycles_io") > 2 * count(&cold, "cycles_io"));
}

/// As Linux's RSS counts: each mapping of a page.
#[test]
fn the_peak_is_at_least_the_end_where_a_page_is_mapped_more_than_once() {
    for (kind, prot) in [
        (MapKind::FileShared, RW),
        (MapKind::FilePrivate, RW),
        (MapKind::FileShared, R),
        (MapKind::FilePrivate, R),
    ] {
        let mut s = Script::new();
        let file = s.new_file(64 * 4096);
        for _ in 0..4 {
            let m = s.map_file(file, 64, kind);
            if prot == R {
                s.call(Change::Protect { mapping: m, offset: 0, len: 64 * 4096, prot });
            }
            s.read(m, 0..64);
        }
        let columns =
            counters(&s.file("mapped-often.vt"), &["--machine", "tiny", "--vs", "thp=never"]);
        for c in &columns {
            let [peak, end] = ["rss_peak_bytes", "rss_end_bytes"].map(|n| count(c, n));
            assert_eq!([peak, end], [4 * 64 * 4096; 2], "{kind:?}, {prot:?}");
        }
    }
}

/// Each page of the file is in two mappings when something takes them away: a call on the mappings,
/// a shorter file, a move.
#[test]
fn the_peak_is_what_was_mapped_before_something_took_it_away() {
    let len = 64 * 4096;
    type Take = fn(&mut Script, u32, u32);
    let takes: [(&str, Take, i64); 5] = [
        (
            "unmap",
            |s, _, mapping| {
                s.call(Change::Unmap { mapping, offset: 0, len: 64 << 12 });
            },
            0,
        ),
        (
            "dontneed",
            |s, _, mapping| {
                let advice = Advice::DontNeed;
                s.call(Change::Advise { mapping, offset: 0, len: 64 << 12, advice });
            },
            0,
        ),
        (
            "resize",
            |s, file, _| {
                s.call(Change::FileResize { file, bytes: 8 << 12 });
            },
            8,
        ),
        (
            "evict",
            |s, file, _| {
                s.call(Change::FileAdvise { file, offset: 0, bytes: ALL, advice: 4 });
            },
            0,
        ),
        (
            "move",
            |s, file, old| {
                // The mappings are those of number 1 and 2.
                let new = old + 2;
                let map = s.fresh(new, 64, MapKind::FileShared);
                s.map_as(Map { moved: true, file: Some(file), ..map });
                s.call(Change::Remap { old, offset: 0, len: 64 << 12, new });
            },
            64,
        ),
    ];
    for (name, take, left) in takes {
        for forked in [false, true] {
            let mut s = Script::new();
            let own = s.anon(20);
            s.touch(own, 0..20);
            let file = s.new_file(len);
            let maps = [0; 2].map(|_| s.map_file(file, 64, MapKind::FileShared));
            for m in maps {
                s.read(m, 0..64);
            }
            if forked {
                s.call(Change::Fork { child: Some(0) }).touch(own, 0..20);
            }
            maps.iter().for_each(|&m| take(&mut s, file, m));
            s.touch(own, 0..20);
            let c = run(&s, &format!("taken-{name}.vt"), &[]);
            let [peak, end] = ["rss_peak_bytes", "rss_end_bytes"].map(|n| count(&c, n) / 4096);
            assert_eq!([peak, end], [20 + 2 * 64, 20 + 2 * left], "{name}, forked: {forked}");
        }
    }
}

/// The kernel read those pages from the disk over whatever they held.
#[test]
fn nothing_clears_pages_of_files() {
    let cleared =
        |c: &Counts| ["lines_cleared", "lines_copied", "cycles_clear"].map(|n| count(c, n));
    // What a program costs that touches nothing: the zero page.
    let mut idle = Script::new();
    idle.anon(1);
    let nothing = cleared(&run(&idle, "idle.vt", &[]));
    for kind in [MapKind::FileShared, MapKind::FilePrivate, MapKind::Image] {
        let mut named = Script::new();
        let file = named.new_file(64 * 4096);
        let m = named.map_file(file, 64, kind);
        named.read(m, 0..64);
        let mut unnamed = Script::new();
        let m = unnamed.map(64, kind, R);
        unnamed.read(m, 0..64);
        for (script, files) in [(&named, "warm"), (&named, "cold"), (&unnamed, "warm")] {
            let c = run(script, "clear.vt", &["--files", files]);
            assert!(count(&c, "pgfault") > 0);
            assert_eq!(cleared(&c), nothing, "{kind:?}, {files}");
        }
    }
}

#[test]
fn advice_says_what_a_cold_file_is_read_for() {
    let advised = |advice, of_mapping: bool| {
        let mut s = Script::new();
        let file = s.new_file(64 * 4096);
        let m = s.map_file(file, 64, MapKind::FileShared);
        s.call(match of_mapping {
            true => Change::Advise {
                mapping: m,
                offset: 0,
                len: 64 * 4096,
                advice: Advice::from_raw(advice),
            },
            false => Change::FileAdvise { file, offset: 0, bytes: ALL, advice },
        });
        s.read(m, 0..16);
        let alone = ["--files", "cold", "--set", "file.around=off"];
        let c = run(&s, "advised.vt", &alone);
        ["pgmajfault", "readahead_pages", "readahead_unused"].map(|n| count(&c, n))
    };
    // No advice: 3, 8, 16 and 32 pages ahead, of which most were not used yet.
    assert_eq!(advised(0, false), [1, 59, 44]);
    assert_eq!(advised(1, false), [16, 0, 0], "random");
    assert_eq!(advised(2, false), [1, 63, 48], "in order");
    for of_mapping in [false, true] {
        assert_eq!(advised(3, of_mapping), [0, 64, 48], "will be needed");
    }
}

#[test]
fn mappings_of_one_file_show_the_same_pages_and_those_of_two_do_not() {
    let mut s = Script::new();
    let file = s.new_file(16 * 4096);
    let (a, b) =
        (s.map_file(file, 16, MapKind::FileShared), s.map_file(file, 16, MapKind::FileShared));
    s.touch(a, 0..16).touch(b, 0..16);
    let c = run(&s, "one.vt", &[]);
    assert_eq!([count(&c, "file_cache_bytes"), count(&c, "rss_end_bytes")], [16 * 4096, 32 * 4096]);
    assert_eq!([count(&c, "nr_dirty"), count(&c, "cow_copy")], [16, 0]);

    let mut s = Script::new();
    let (a, b) = (s.new_file(16 * 4096), s.new_file(16 * 4096));
    let (a, b) = (s.map_file(a, 16, MapKind::FilePrivate), s.map_file(b, 16, MapKind::FilePrivate));
    s.touch(a, 0..16).touch(b, 0..16);
    let c = run(&s, "two.vt", &[]);
    assert_eq!([count(&c, "file_cache_bytes"), count(&c, "rss_end_bytes")], [32 * 4096; 2]);
    assert_eq!([count(&c, "nr_dirty"), count(&c, "cow_copy")], [0, 32]);
}

#[test]
fn what_a_program_writes_to_a_file_is_read_through_a_mapping_and_synced_to_the_disk() {
    let mut s = Script::new();
    let file = s.new_file(0);
    s.call(Change::FileWrite { file, offset: 0, bytes: 10_000 });
    s.call(Change::FileSync { file, offset: 0, bytes: ALL });
    let m = s.map_file(file, 3, MapKind::FileShared);
    s.read(m, 0..3);
    for files in ["warm", "cold"] {
        let c = run(&s, "write.vt", &["--files", files]);
        assert_eq!([count(&c, "pgpgin"), count(&c, "pgpgout"), count(&c, "nr_dirty")], [0, 10, 0]);
        assert_eq!(count(&c, "pgmajfault"), 0, "it was never on the disk alone");
    }
}

#[test]
fn a_file_that_was_dropped_from_memory_is_read_from_the_disk_and_one_that_is_cut_is_not() {
    let mut s = Script::new();
    let file = s.new_file(8 * 4096);
    s.call(Change::FileRead { file, offset: 0, bytes: 8 * 4096 });
    s.call(Change::FileAdvise { file, offset: 0, bytes: ALL, advice: 4 });
    s.call(Change::FileRead { file, offset: 0, bytes: 8 * 4096 });
    let c = run(&s, "dropped.vt", &[]);
    assert_eq!([count(&c, "pgpgin"), count(&c, "file_cache_bytes")], [32, 8 * 4096]);

    let mut s = Script::new();
    let file = s.new_file(8 * 4096);
    s.call(Change::FileResize { file, bytes: 0 });
    s.call(Change::FileResize { file, bytes: 8 * 4096 });
    s.call(Change::FileRead { file, offset: 0, bytes: 8 * 4096 });
    let c = run(&s, "cut.vt", &["--files", "cold"]);
    assert_eq!(count(&c, "cycles_io"), 0);
}

#[test]
fn an_access_waits_for_the_call_of_another_thread_that_makes_its_file_longer() {
    let mut s = Script::new();
    let file = s.new_file(4096);
    let m = s.map_file(file, 4, MapKind::FileShared);
    s.push(Event::ThreadStart { thread: 1 }).switch(1);
    // So long that thread 0 is ahead of it.
    let own = s.map(64, MapKind::Anon, RW);
    s.touch(own, 0..64);
    s.call(Change::FileWrite { file, offset: 4096, bytes: 3 * 4096 });
    s.switch(0);
    s.read(m, 0..4);
    let c = run(&s, "longer.vt", &["--cpus", "2"]);
    assert_eq!(count(&c, "accesses"), 68);
}

#[test]
fn only_what_is_used_of_a_warm_file_is_in_memory() {
    let mut s = Script::new();
    let file = s.new_file(1 << 40);
    let m = s.map_file(file, 1 << 28, MapKind::FileShared);
    s.load(m, 0).load(m, 1 << 39);
    s.call(Change::FileRead { file, offset: 1 << 38, bytes: 4096 });
    let c = run(&s, "sparse.vt", &[]);
    assert!(count(&c, "file_cache_bytes") < 2 << 20);
    assert_eq!([count(&c, "pgmajfault"), count(&c, "pgpgin"), count(&c, "cycles_io")], [0; 3]);
}

#[test]
fn what_a_program_wrote_and_dropped_is_not_warm() {
    let mut s = Script::new();
    let file = s.new_file(0);
    s.call(Change::FileWrite { file, offset: 0, bytes: 8 * 4096 });
    s.call(Change::FileSync { file, offset: 0, bytes: ALL });
    s.call(Change::FileAdvise { file, offset: 0, bytes: ALL, advice: 4 });
    s.call(Change::FileRead { file, offset: 0, bytes: 8 * 4096 });
    let c = run(&s, "wrote.vt", &[]);
    assert_eq!([count(&c, "pgpgout"), count(&c, "pgpgin")], [32; 2]);
}

#[test]
fn a_memfd_is_on_no_disk() {
    let mut s = Script::new();
    let name = Some("memfd:m".to_owned());
    s.call(Change::File { file: 0, bytes: 64 * 4096, name });
    let m = s.map_file(0, 64, MapKind::FileShared);
    s.touch(m, 0..64);
    s.call(Change::FileSync { file: 0, offset: 0, bytes: ALL });
    s.call(Change::FileAdvise { file: 0, offset: 0, bytes: ALL, advice: 4 });
    s.read(m, 0..64);
    let c = run(&s, "memfd.vt", &["--files", "cold"]);
    let named = ["cycles_io", "pgpgin", "pgpgout", "nr_file_pages"];
    assert_eq!(named.map(|n| count(&c, n)), [0; 4]);
    assert_eq!([count(&c, "nr_shmem"), count(&c, "pgfault")], [64; 2]);
}

#[test]
fn a_populated_file_takes_a_fault_for_each_64_kib_that_it_has() {
    let mut s = Script::new();
    let file = s.new_file(32 * 4096);
    let base = 0x7f00_0000_0000;
    for (mapping, kind) in [(0, MapKind::FileShared), (1, MapKind::FilePrivate)] {
        let whole = s.fresh(mapping, 64, kind);
        let base = base + (u64::from(mapping) << 32);
        s.map_as(Map { file: Some(file), populate: true, base, ..whole });
    }
    s.read(0, 0..32).read(1, 0..32);
    let c = run(&s, "populate.vt", &["--layout", "recorded"]);
    assert_eq!([count(&c, "populated_pages"), count(&c, "pgfault")], [2 + 32, 0]);
}

#[test]
fn files_give_way_when_memory_runs_out() {
    let mut s = Script::new();
    // Of 64 MiB, the machine's tables and metadata apart.
    let file = s.new_file(48 << 20);
    s.call(Change::FileRead { file, offset: 0, bytes: 48 << 20 });
    let m = s.anon(6 << 10);
    s.touch(m, 0..6 << 10);
    s.call(Change::FileRead { file, offset: 0, bytes: 48 << 20 });
    let c = run(&s, "full.vt", &[]);
    assert_eq!(count(&c, "rss_end_bytes"), 24 << 20);
    assert!(count(&c, "pgpgin") > 40 << 10, "what went is read again");
}

/// A file longer than memory, and what a program has beside it.
#[test]
fn what_is_written_goes_to_the_disk_when_memory_runs_out() {
    let mut s = Script::new();
    let m = s.anon(6 << 10);
    s.touch(m, 0..6 << 10);
    let file = s.new_file(0);
    for n in 0..96 {
        s.call(Change::FileWrite { file, offset: n << 20, bytes: 1 << 20 });
    }
    s.call(Change::FileRead { file, offset: 0, bytes: 96 << 20 });
    let c = run(&s, "written.vt", &[]);
    assert!(count(&c, "pgpgout") > 60 << 10, "{}", count(&c, "pgpgout"));
    assert!(count(&c, "pgpgin") > 60 << 10, "what went is read again");
}

/// Memory is full of what was written, whoever wants some next.
#[test]
fn files_give_way_to_calls_as_well() {
    let full = |pages: u64| {
        let mut s = Script::new();
        let m = s.anon(4 << 10);
        s.touch(m, 0..4 << 10);
        let file = s.new_file(0);
        for n in 0..pages {
            s.call(Change::FileWrite { file, offset: n << 12, bytes: 4096 });
        }
        s
    };
    let mut populates = full(11_000);
    let new = populates.fresh(1, 4 << 10, MapKind::Anon);
    populates.map_as(Map { populate: true, ..new });
    assert_eq!(count(&run(&populates, "populates.vt", &[]), "populated_pages"), 4 << 10);
    // Where the frame that is lacking is one of a few.
    for pages in (12_230..12_252).step_by(3) {
        let mut forks = full(pages);
        forks.call(Change::Fork { child: Some(0) });
        assert_eq!(count(&run(&forks, "forks.vt", &[]), "rss_end_bytes"), 16 << 20, "{pages}");
    }
}

#[test]
fn a_machine_without_a_disk_has_no_cold_files() {
    let s = reads(1);
    let trace = s.file("no-disk.vt");
    let args = ["run", "--trace", trace.path(), "--machine", "thunderx2"];
    let said = vellum(&[&args[..], &["--files", "cold"]].concat());
    assert_eq!(said.code, Some(2));
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(said.err.contains("`thunderx2` has no disk"), "{}", said.err);
    assert_eq!(vellum(&args).code, Some(0), "warm ones it has");
}

#[test]
fn shipped_programs_fault_and_reside_as_they_did_natively() {
    for name in ["sqlite-join.vt", "sort.vt", "python-store.vt", "compile.vt"] {
        let path = format!("{}/../../traces/{name}", env!("CARGO_MANIFEST_DIR"));
        let args = ["run", "--trace", &path, "--machine", "milan", "--set", "thp=never", "--json"];
        let said = vellum(&args);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        let counts = doc["variants"][0]["counters"].as_object().expect("counters");
        for (ours, theirs, percent) in
            [("minor_faults", "minor_faults", 1), ("rss_peak_bytes", "peak_rss_bytes", 5)]
        {
            let (ours, theirs) = (count(counts, ours), doc["native"][theirs].as_i64().unwrap());
            let off = (ours - theirs).abs() * 100;
            assert!(off <= percent * theirs, "{name}, {ours}: natively {theirs}");
        }
        assert_eq!(count(counts, "pgmajfault"), 0, "{name}: its files were in memory");
        assert!(count(counts, "file_cache_bytes") > 0);
    }
}

/// Where memory ends between a page of a file and the table for it, the page is not read and
/// evicted in turn for ever: each of these runs ends, the longer ones without memory.
#[test]
fn memory_that_ends_between_a_page_and_its_table_ends_the_run() {
    let ends = |pages: u64| {
        let mut s = Script::new();
        let file = s.new_file(64 << 20);
        let m = s.map_file(file, 16_384, MapKind::FilePrivate);
        let memory = s.anon(pages);
        s.touch(memory, 0..pages).store(m, 5 << 12).store(m, 700 << 12).store(m, 2000 << 12);
        let trace = s.file("between.vt");
        let args = ["run", "--trace", trace.path(), "--machine", "tiny", "--set", "thp=never"];
        vellum(&[&args[..], &["--as", "vellum", "--files", "cold"]].concat()).code
    };
    let codes: Vec<_> = (16_328..16_346).map(ends).collect();
    assert!(codes.iter().all(|code| matches!(code, Some(0 | 2))), "{codes:?}");
    assert!(codes.first() != codes.last(), "memory ends among them: {codes:?}");
}
