//! What a replay counts, on programs small enough to know the answer.

use crate::common::{R, RW, RX, Script, Temporary, count, counters, shipped, vellum};
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

#[test]
fn the_kinds_of_cycles_add_up_to_the_total() {
    let mut s = Script::new();
    let m = s.anon(300);
    s.touch(m, 0..300)
        .call(Change::Unmap { mapping: m, offset: 0, len: 100 * 4096 })
        .touch(m, 100..300);
    for machine in ["tiny", "milan", "thunderx2"] {
        for c in counters(
            &s.file(&format!("sum-{machine}.vt")),
            &["--machine", machine, "--vs", "thp=always"],
        ) {
            let kinds = ["program", "stlb", "walk", "fault", "clear", "flush", "calls"];
            let sum: i64 = kinds.iter().map(|k| count(&c, &format!("cycles_{k}"))).sum();
            assert_eq!(sum, count(&c, "cycles_total"), "{machine}");
            assert!(count(&c, "cycles_total") > 0 && count(&c, "cycles_clear") > 0);
        }
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

/// The total is an estimate of the whole program; beside it stands no figure of a part.
#[test]
fn a_trace_in_windows_says_nothing_of_elapsed_time() {
    let elapsed = |skip: bool| {
        let mut s = Script::new();
        let m = s.anon(64);
        s.touch(m, 0..32);
        if skip {
            s.push(Event::Skip { accesses: 1000, instructions: 5000 });
        }
        s.touch(m, 32..64);
        let c = one(&s, "windows.vt", NEVER);
        assert_eq!(count(&c, "accesses_skipped"), 1000 * i64::from(skip));
        assert!(count(&c, "estimate_total") > 0);
        ["cycles_elapsed", "cycles_idle", "cycles_io"].map(|name| c.contains_key(name))
    };
    assert_eq!([elapsed(false), elapsed(true)], [[true; 3], [false; 3]]);
}

/// A program that works on one thousand pages after the other. Each window begins on pages that no
/// TLB holds, which is not how the program met them.
#[test]
fn the_first_half_of_a_window_makes_tlbs_warm_and_stands_for_nothing() {
    const PAGES: u64 = 1000;
    const STRETCH: u64 = 40_000;
    let recorded = |kept: u64, window: &str| {
        let mut s = Script::new();
        let m = s.anon(8 * PAGES);
        for page in 0..8 * PAGES {
            // First touches between windows.
            if kept < STRETCH / 2 {
                s.push(Event::Skip { accesses: 1, instructions: 1 });
            }
            s.touch(m, page..page + 1);
        }
        let (mut draw, mut skipped) = (1u64, 0);
        for n in 0..16 * STRETCH {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if n % (STRETCH / 2) >= kept {
                skipped += 1;
                continue;
            }
            if skipped > 0 {
                s.push(Event::Skip { accesses: skipped, instructions: u64::from(skipped) });
                skipped = 0;
            }
            s.load(m, (n / STRETCH % 8 * PAGES + (draw >> 33) % PAGES) * 4096);
        }
        s.window = window.to_owned();
        one(&s, &format!("warm-{kept}.vt"), &["--machine", "milan", "--set", "thp=never"])
    };
    let walks = |c| count(&c, "estimate_walk") as f64;
    let whole = walks(recorded(STRETCH / 2, ""));
    // A trace that names no window is one of which nobody knows where they begin.
    let [cold, warm] = ["", "8000,2000,20000"].map(|window| walks(recorded(2000, window)));
    let off = |estimate: f64| (estimate / whole - 1.0).abs();
    assert!(off(warm) < 0.7 * off(cold), "{whole}: cold {cold}, warm {warm}");
}

/// Kernel work is in a trace as a whole, and the program's is scaled up: so are their charges.
#[test]
fn charges_add_up_to_the_time_also_where_windows_left_something_out() {
    let mut s = Script::new();
    let m = s.anon(4000);
    for round in 0..4 {
        s.push(Event::Skip { accesses: 30_000, instructions: 60_000 });
        for n in 0..2000 {
            let offset = (n * 37 % 1000 + round * 1000) * 4096 + n % 64 * 64;
            s.load(m, offset);
            let flags = Flags::WRITE.with(Flags::KERNEL);
            s.push(Event::Access { mapping: m, size: 64, flags, offset });
        }
    }
    s.window = "30000,2000,32000".to_owned();
    let trace = s.file("sum.vt");
    let said = vellum(&["run", "--trace", trace.path(), "--machine", "milan", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    for column in doc["variants"].as_array().expect("columns") {
        let charges = column["charges"].as_object().expect("charges");
        let sum: f64 = charges.values().filter_map(serde_json::Value::as_f64).sum();
        let whole = column["counters"]["estimate_total"].as_f64().expect("a time");
        let waiting = column["counters"]["cycles_idle"].as_f64().unwrap_or(0.0);
        assert!((sum / (whole + waiting) - 1.0).abs() < 0.01, "{sum} of {whole}: {column}");
    }
    // A warm file is read before the run, and nobody is charged for that.
    let mut warm = Script::new();
    let file = warm.map(256, MapKind::FilePrivate, RW);
    warm.read(file, 0..256);
    let trace = warm.file("warm.vt");
    let said = vellum(&["run", "--trace", trace.path(), "--machine", "milan", "--json"]);
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let column = &doc["variants"][0];
    let charges = column["charges"].as_object().expect("charges");
    let sum: i64 = charges.values().filter_map(serde_json::Value::as_i64).sum();
    let spent =
        ["cycles_total", "cycles_idle", "cycles_io"].map(|n| column["counters"][n].as_i64());
    let spent: i64 = spent.into_iter().flatten().sum();
    assert!((sum - spent).abs() <= 2 * charges.len() as i64, "{sum} of {spent}, to roundings");
    // Windows that a replay cannot see are said to be such.
    s.window = "30000,900,32000".to_owned();
    let trace = s.file("short.vt");
    let said = vellum(&["run", "--trace", trace.path(), "--machine", "milan"]);
    assert!(said.out.contains("windows of fewer than 1,000 accesses a thread"), "{}", said.out);
}

/// What a replay says of a constant is what another replay with another constant finds.
#[test]
fn charges_tell_what_a_run_on_a_machine_of_other_constants_takes() {
    let mut s = Script::new();
    let m = s.anon(20_000);
    s.touch(m, 0..20_000);
    let mut draw = 1u64;
    for n in 0..60_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (draw >> 33) % 20_000 * 4096 + (draw >> 20) % 64 * 64;
        let flags = if n % 2 == 0 { Flags::READ } else { Flags::READ.with(Flags::DEPENDENT) };
        s.push(Event::Access { mapping: m, size: 8, flags, offset });
    }
    let trace = s.file("charges.vt");
    // Eight loads, each of the address that the last one had, in each of the lines of 256 KiB.
    let mut s = Script::new();
    let m = s.anon(64);
    s.touch(m, 0..64);
    for n in 0..80_000 {
        let flags = Flags::READ.with(Flags::DEPENDENT);
        s.push(Event::Access { mapping: m, size: 8, flags, offset: n / 8 % 4096 * 64 + n % 8 * 8 });
    }
    let chain = s.file("chain.vt");
    let milan = vellum_sim::file::preset_text("milan").expect("a preset");
    let run = |trace: &Temporary, text: &str| {
        let file = Temporary::with("charges.toml", text.as_bytes());
        let args = ["run", "--trace", trace.path(), "--machine", file.path(), "--json"];
        let said = vellum(&[&args[..], &["--as", "vellum", "--set", "thp=never"]].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        doc["variants"][0].clone()
    };
    let time = |run: &serde_json::Value| run["counters"]["estimate_total"].as_f64().unwrap();
    for (trace, key, from, to) in [
        (&trace, "memory.latency", "\"120 ns\"", "\"144 ns\""),
        (&trace, "costs.work.fault", "value = 1050", "value = 1260"),
        (&trace, "costs.clear_page_line", "value = 10.64", "value = 12.768"),
        (&chain, "l1d.latency", "latency = { value = 4,", "latency = { value = 4.8,"),
    ] {
        let base = run(trace, milan);
        assert!(milan.contains(from), "{key}");
        let charged = base["charges"][key].as_f64().unwrap_or_else(|| panic!("{key} in {base}"));
        let more = time(&run(trace, &milan.replace(from, to))) - time(&base);
        assert!(more > 0.002 * time(&base), "{key} matters");
        let off = (0.2 * charged / more - 1.0).abs();
        // Where all line-fill buffers are in use, a wait is charged to the access that ends first.
        assert!(off < 0.3, "{key}: {charged} charged, {more} for a fifth more");
    }
}

/// Each takes the time of the machine file, on a machine that has one and on no other.
#[test]
fn branches_predicted_wrongly_take_their_time() {
    let mut s = Script::new();
    let m = s.anon(1);
    s.touch(m, 0..1);
    for n in 0..10_000u32 {
        let flags = if n % 10 == 0 { Flags::READ.with(Flags::MISPREDICTED) } else { Flags::READ };
        s.push(Event::Access { mapping: m, size: 8, flags, offset: 0 });
    }
    let trace = s.file("branches.vt");
    let milan = vellum_sim::file::preset_text("milan").expect("a preset");
    let core = "[core]\nmispredict = { value = 16, basis = \"guess\", source = \"this test\" }";
    let with = Temporary::with("branches.toml", milan.replace("[core]", core).as_bytes());
    let charges = |machine: &str| {
        let args = ["run", "--trace", trace.path(), "--machine", machine, "--json"];
        let said = vellum(&[&args[..], &["--cpus", "1"]].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        let of = |what: &str, key: &str| doc["variants"][0][what][key].as_u64().unwrap_or(0);
        [of("charges", "core.mispredict"), of("counters", "estimate_total")]
    };
    let ([none, without], [some, with]) = (charges("milan"), charges(with.path()));
    assert_eq!([none, some], [0, 16 * 1000]);
    assert_eq!(with - without, 16 * 1000);
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

/// The same bytes are copied, by 2 MiB or by 4 KiB: a long copy is no slower than its parts.
#[test]
fn a_huge_page_copied_as_a_whole_takes_what_its_pages_take() {
    let mut s = Script::new();
    let m = s.anon(4 * 512);
    s.touch(m, 0..4 * 512).call(Change::Fork { child: Some(0) }).touch(m, 0..4 * 512);
    let huge = ["--machine", "milan", "--cpus", "1", "--set", "thp=always"];
    let by = |how: &str| {
        let c = counters(&s.file(&format!("{how}.vt")), &[&huge[..], &["--set", how]].concat());
        let copied = ["lines_copied", "cycles_clear"].map(|name| count(&c[0], name));
        (copied[0], copied[1])
    };
    let (whole, parts) = (by("cow.huge=copy"), by("cow.huge=split"));
    assert_eq!([whole.0, parts.0], [4 * 512 * 64; 2]);
    assert!(whole.1 * 10 <= parts.1 * 11, "{whole:?} {parts:?}");
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
    assert_eq!(count(&c, "rss_end_bytes") / 4096, 32);
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
