//! What a replay counts, on programs small enough to know the answer.

use crate::common::{R, RW, RX, Script, count, counters, shipped, vellum};
use vellum_trace::event::{Advice, Change, Event, Flags, Map, MapKind, Prot};

const NEVER: &[&str] = &["--machine", "tiny", "--set", "thp=never"];

fn one(script: &Script, name: &str, more: &[&str]) -> serde_json::Map<String, serde_json::Value> {
    counters(&script.file(name), more).remove(0)
}

#[test]
fn each_page_touched_is_one_fault_and_one_page_of_rss() {
    let mut s = Script::new();
    let m = s.anon(100);
    s.touch(m, 10..60).touch(m, 10..60);
    let c = one(&s, "pages.vt", NEVER);
    assert_eq!(
        [count(&c, "pgfault"), count(&c, "minor_faults"), count(&c, "accesses")],
        [50, 50, 100]
    );
    assert_eq!([count(&c, "rss_peak_bytes"), count(&c, "rss_end_bytes")], [50 * 4096; 2]);
    assert_eq!(
        [count(&c, "frames_lost"), count(&c, "accesses_refused"), count(&c, "calls_refused")],
        [0; 3]
    );
}

/// Code as well as data, by `record`, `run` and `trace info` alike.
#[test]
fn touched_is_the_same_memory_wherever_it_is_said() {
    let mut s = Script::new();
    let (data, code) = (s.anon(16), s.map(8, MapKind::Image, RX));
    s.touch(data, 0..8).touch(data, 0..8).load(data, 9 * 4096 - 4);
    for page in 0..5 {
        s.push(Event::Fetch { mapping: code, insns: 3, offset: page * 4096 });
    }
    let made = s.file("touched.vt");
    let pages = |path: &str| {
        let said = vellum(&["trace", "info", "--json", path]).out;
        let info: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        info["pages"].as_u64().expect("a number")
    };
    assert_eq!(pages(made.path()), 8 + 2 + 5);
    for name in ["python-store.vt", "sqlite-join.vt", "compile.vt"] {
        let file = shipped(name);
        let totals = vellum_trace::read_totals(&file).expect("a trace").totals;
        assert_eq!(pages(file.to_str().expect("a name of ours")), totals.touched_pages, "{name}");
    }
}

/// Whoever says nothing sees Linux first and the library last; each clears in its own way.
#[test]
fn a_run_begins_with_linux_and_ends_with_the_librarys_own_choices() {
    let mut s = Script::new();
    let m = s.anon(4 * 512);
    s.touch(m, 0..4 * 512);
    let file = s.file("as.vt");
    let args = ["run", "--trace", file.path(), "--machine", "milan", "--json"];
    let run = |more: &[&str]| {
        let said = vellum(&[&args[..], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        doc["variants"].as_array().expect("variants").clone()
    };
    let columns = run(&["--vs", "thp=always"]);
    let names: Vec<&str> = columns.iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(names, ["thp=never", "thp=always", "vellum"]);
    let switch =
        |name: &str| columns.iter().map(|c| c["switches"][name].clone()).collect::<Vec<_>>();
    assert_eq!(switch("cow.huge"), ["split", "split", "copy"]);
    assert_eq!(switch("clear.unit"), ["page", "page", "extent"]);
    let counted =
        |name: &str| columns.iter().map(|c| c["counters"][name].as_i64()).collect::<Vec<_>>();
    assert_eq!(counted("thp_fault_alloc"), [Some(0), Some(4), Some(4)]);
    // Four blocks cleared through the caches, and around them.
    let lines = counted("llc_misses_kernel");
    assert!(lines[1] > lines[2].map(|lines| 10 * lines), "{lines:?}");
    assert_eq!(run(&["--as", "vellum"]).len(), 1);
}

#[test]
fn huge_pages_take_fewer_faults_and_fewer_walks() {
    let mut s = Script::new();
    let m = s.anon(4 * 512);
    for _ in 0..3 {
        s.touch(m, 0..4 * 512);
    }
    let c = counters(&s.file("huge.vt"), &["--machine", "milan", "--vs", "thp=always"]);
    assert_eq!([count(&c[0], "pgfault"), count(&c[1], "pgfault")], [2048, 4]);
    assert!(count(&c[1], "tlb_walks") * 10 < count(&c[0], "tlb_walks"));
    assert_eq!([count(&c[0], "huge_coverage"), count(&c[1], "huge_coverage")], [0, 10_000]);
}

#[test]
fn memory_reads_are_told_apart_by_node_where_there_are_several() {
    let mut s = Script::new();
    let m = s.anon(512);
    s.touch(m, 0..512);
    let file = s.file("nodes.vt");
    let reads = |machine: &str, numa: &str| {
        let c = counters(&file, &["--machine", machine, "--cpus", "1", "--set", numa]).remove(0);
        ["memory_reads_local", "memory_reads_remote"].map(|n| c.get(n).and_then(|v| v.as_i64()))
    };
    let [Some(here), Some(there)] = reads("tiered", "numa=bind:0") else { panic!("two nodes") };
    let [_, Some(bound)] = reads("tiered", "numa=bind:1") else { panic!("two nodes") };
    assert!(here > 512 && there == 0 && bound > 512, "{here}, {there}; {bound}");
    assert_eq!(reads("milan", "numa=local"), [None, None]);
}

#[test]
fn a_read_and_then_a_write_of_a_page_are_two_faults_with_the_zero_page_and_one_without() {
    let mut s = Script::new();
    let m = s.anon(8);
    for p in 0..8 {
        s.load(m, p * 4096);
    }
    s.touch(m, 0..8);
    let c = counters(
        &s.file("zero.vt"),
        &["--machine", "tiny", "--set", "thp=never", "--vs", "zero.page=off"],
    );
    assert_eq!([count(&c[0], "pgfault"), count(&c[1], "pgfault")], [16, 8]);
}

#[test]
fn a_read_fault_on_a_file_brings_in_its_64_kib_and_a_write_fault_its_page() {
    let mut s = Script::new();
    let text = s.map(64, MapKind::Image, RX);
    for p in 0..64 {
        s.push(Event::Fetch { mapping: text, insns: 1, offset: p * 4096 });
    }
    let c = one(&s, "text.vt", NEVER);
    assert!(
        [4, 5].contains(&count(&c, "pgfault")),
        "64 pages are 4 windows, or 5 if the start is not aligned"
    );

    let mut s = Script::new();
    let data = s.map(16, MapKind::FilePrivate, RW);
    s.touch(data, 0..16);
    assert_eq!(count(&one(&s, "data.vt", NEVER), "pgfault"), 16);

    let mut s = Script::new();
    let data = s.map(16, MapKind::FilePrivate, RW);
    for p in 0..16 {
        s.load(data, p * 4096);
    }
    s.touch(data, 0..16);
    let faults = count(&one(&s, "read-data.vt", NEVER), "pgfault");
    assert!(
        [17, 18].contains(&faults),
        "a window or two, then each page by its first write: {faults}"
    );
}

#[test]
fn unmapped_pages_leave_and_come_back_as_new_ones() {
    let mut s = Script::new();
    let m = s.anon(64);
    s.touch(m, 0..64);
    s.call(Change::Advise { mapping: m, offset: 0, len: 32 * 4096, advice: Advice::DontNeed });
    s.touch(m, 0..64);
    s.call(Change::Unmap { mapping: m, offset: 0, len: 16 * 4096 });
    let c = one(&s, "dontneed.vt", NEVER);
    assert_eq!(
        [
            count(&c, "pgfault"),
            count(&c, "rss_end_bytes") / 4096,
            count(&c, "rss_peak_bytes") / 4096
        ],
        [96, 48, 64]
    );
}

#[test]
fn a_fixed_mapping_keeps_its_place_in_an_older_one() {
    let mut s = Script::new();
    let whole = s.map(32, MapKind::Anon, Prot::NONE);
    let inner = Map {
        mapping: 1,
        len: 8 * 4096,
        prot: RW,
        kind: MapKind::Anon,
        base: 0x7f00_0000_4000,
        inside: Some((whole, 4 * 4096)),
        file_offset: 0,
        file: None,
        synthetic: false,
        moved: false,
        populate: false,
    };
    let inner = s.map_as(inner);
    s.touch(inner, 0..8);
    for layout in ["placed", "recorded"] {
        let more = [NEVER, &["--layout", layout]].concat();
        assert_eq!(count(&one(&s, &format!("inside-{layout}.vt"), &more), "pgfault"), 8);
    }
}

#[test]
fn a_populated_mapping_takes_no_faults_of_the_program() {
    let mut s = Script::new();
    let m = Map {
        mapping: 0,
        len: 20 * 4096,
        prot: RW,
        kind: MapKind::Anon,
        base: 0x7f00_0000_0000,
        inside: None,
        file_offset: 0,
        file: None,
        synthetic: false,
        moved: false,
        populate: true,
    };
    let m = s.map_as(m);
    s.touch(m, 0..20);
    let c = one(&s, "populate.vt", NEVER);
    assert_eq!([count(&c, "populated_pages"), count(&c, "minor_faults")], [20, 20]);
}

#[test]
fn a_heap_grows_and_shrinks_in_place() {
    let mut s = Script::new();
    let heap = s.map(0, MapKind::Heap, RW);
    for pages in [4u64, 40, 80] {
        s.call(Change::Brk { mapping: heap, len: pages * 4096 }).touch(heap, 0..pages);
    }
    s.call(Change::Brk { mapping: heap, len: 10 * 4096 });
    for layout in ["placed", "recorded"] {
        let c = one(&s, &format!("heap-{layout}.vt"), &[NEVER, &["--layout", layout]].concat());
        assert_eq!([count(&c, "pgfault"), count(&c, "rss_end_bytes") / 4096], [80, 10], "{layout}");
    }
}

#[test]
fn a_moved_mapping_takes_its_pages_along() {
    let mut s = Script::new();
    let old = s.anon(16);
    s.touch(old, 0..16);
    let new = Map {
        mapping: 1,
        len: 64 * 4096,
        prot: RW,
        kind: MapKind::Anon,
        base: 0x7e00_0000_0000,
        inside: None,
        file_offset: 0,
        file: None,
        synthetic: false,
        moved: true,
        populate: false,
    };
    let new = s.map_as(new);
    s.call(Change::Remap { old, offset: 0, len: 16 * 4096, new }).touch(new, 0..64);
    for layout in ["placed", "recorded"] {
        let c = one(&s, &format!("remap-{layout}.vt"), &[NEVER, &["--layout", layout]].concat());
        assert_eq!([count(&c, "pgfault"), count(&c, "rss_end_bytes") / 4096], [64, 64], "{layout}");
    }
}

#[test]
fn after_a_fork_each_page_written_again_is_one_more_fault() {
    let mut s = Script::new();
    let m = s.anon(32);
    s.touch(m, 0..32).call(Change::Fork { child: None }).touch(m, 0..20);
    let c = one(&s, "fork.vt", NEVER);
    assert_eq!(
        [count(&c, "pgfault"), count(&c, "cow_reuse"), count(&c, "rss_end_bytes") / 4096],
        [52, 20, 32]
    );
    // Copied while a child has them, and its own afterwards; one that never ends is no matter.
    let mut s = Script::new();
    let m = s.anon(32);
    s.touch(m, 0..32).call(Change::Fork { child: Some(0) }).touch(m, 0..20);
    s.call(Change::ChildEnd { child: 0 }).touch(m, 20..32);
    s.call(Change::Fork { child: Some(1) }).touch(m, 0..5);
    let c = one(&s, "held.vt", NEVER);
    assert_eq!(
        [count(&c, "pgfault"), count(&c, "cow_copy"), count(&c, "cow_reuse")],
        [32 + 32 + 5, 25, 12]
    );
    let resident = ["rss_peak_bytes", "rss_end_bytes"].map(|n| count(&c, n) / 4096);
    assert_eq!(resident, [32; 2], "what only a child has is not the program's");
    let mut s = Script::new();
    let m = s.anon(32);
    s.touch(m, 0..32).call(Change::Vfork).touch(m, 0..20);
    let c = one(&s, "vfork.vt", NEVER);
    assert_eq!(
        [count(&c, "pgfault"), count(&c, "cow_reuse")],
        [32, 0],
        "the child had it as it was"
    );
}

#[test]
fn child_processes_explain_why_a_native_run_has_more_faults() {
    let said = |fork: bool, natively: u64| {
        let mut s = Script::new();
        let m = s.anon(32);
        s.touch(m, 0..32);
        if fork {
            s.call(Change::Fork { child: None });
        }
        s.native = Some(vellum_trace::NativeRun {
            minor_faults: natively,
            thp_off: true,
            ..Default::default()
        });
        let file = s.file("children.vt");
        vellum(&["run", "--trace", file.path(), "--machine", "tiny", "--set", "thp=never"]).out
    };
    let (children, wrong) = ("may count child processes", "misses something");
    for (fork, natively, is_explained) in [(true, 90, true), (true, 10, false), (false, 90, false)]
    {
        let out = said(fork, natively);
        assert_eq!([out.contains(children), out.contains(wrong)], [is_explained, !is_explained]);
    }
}

#[test]
fn what_the_kernel_writes_for_the_program_faults_like_the_program() {
    let mut s = Script::new();
    let m = s.anon(8);
    for line in 0..2 * 64 {
        s.push(Event::Access {
            mapping: m,
            size: 64,
            flags: Flags::WRITE.with(Flags::KERNEL),
            offset: line * 64,
        });
    }
    s.touch(m, 0..2);
    let c = one(&s, "kernel.vt", NEVER);
    assert_eq!([count(&c, "minor_faults"), count(&c, "rss_end_bytes") / 4096], [2, 2]);
}

#[test]
fn rights_taken_away_do_not_disturb_what_is_left() {
    let mut s = Script::new();
    let m = s.anon(16);
    s.touch(m, 0..16).call(Change::Protect { mapping: m, offset: 0, len: 8 * 4096, prot: R });
    for p in 0..8 {
        s.load(m, p * 4096);
    }
    s.touch(m, 8..16)
        .call(Change::Protect { mapping: m, offset: 0, len: 8 * 4096, prot: RW })
        .touch(m, 0..16);
    let c = one(&s, "protect.vt", NEVER);
    assert_eq!([count(&c, "accesses_refused"), count(&c, "rss_end_bytes") / 4096], [0, 16]);
}

#[test]
fn both_ways_of_the_oracle_see_the_same_machine() {
    // Shortcuts of the incremental way must be shortcuts in the simulator's time only, not in the
    // simulated machine's: dependent loads, second-level TLB hits, caches small enough that the
    // walker and an inclusive last level take lines away.
    let mut s = Script::new();
    let code = s.map(4, MapKind::Anon, RX);
    let data = s.anon(700);
    let mut at = 1u64;
    for i in 0..6000u64 {
        at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let offset = (at >> 33) % (700 * 512) * 8;
        let flags = if i % 3 == 0 { Flags::WRITE } else { Flags::READ };
        let flags = if i % 2 == 0 { flags.with(Flags::DEPENDENT) } else { flags };
        s.push(Event::Fetch { mapping: code, insns: 4, offset: i * 64 % (4 * 4096) });
        s.push(Event::Access { mapping: data, size: 8, flags, offset });
        s.load(data, (i / 8) % 700 * 4096 + i % 8 * 8);
    }
    for machine in ["tiny", "milan", "westmere-ex", "thunderx2"] {
        for thp in ["thp=never", "thp=always"] {
            let run = |way: &str| {
                one(
                    &s,
                    &format!("{way}-{machine}.vt"),
                    &["--machine", machine, "--set", thp, "--oracle", way],
                )
            };
            assert_eq!(run("incremental"), run("walk"), "{machine} {thp}");
        }
    }
}
