//! Linux's collapse in the background: what is collapsed, and when.

use std::ops::Range;

use crate::common::{R, RW, RX, Script, Temporary, count, counters, vellum};
use vellum_trace::Khugepaged;
use vellum_trace::event::{Advice, Change, Event, Map, MapKind};

/// Pages of a huge page.
const BLOCK: u64 = 512;

/// The machine `tiny`, of 1 GHz, with instructions of 16 us each: seconds are few events.
fn slow() -> Temporary {
    let tiny = vellum(&["machines", "tiny", "--toml"]).out;
    let slow = tiny.replace("\ninstruction = { value = 0.5,", "\ninstruction = { value = 16000,");
    assert_ne!(tiny, slow);
    let name = format!("slow-{:?}.toml", std::thread::current().id());
    Temporary::with(&name, slow.as_bytes())
}

type Counters = serde_json::Map<String, serde_json::Value>;

/// The counters of a run whose scan looks at 4096 pages, but for these switches.
fn run(script: &Script, set: &[&str]) -> Counters {
    let trace = script.file(&format!("collapse-{:?}.vt", std::thread::current().id()));
    let machine = slow();
    let mut args = vec!["--machine", machine.path()];
    if !set.iter().any(|switch| switch.starts_with("collapse.scan")) {
        args.extend(["--set", "collapse.scan=4096"]);
    }
    args.extend(set.iter().flat_map(|switch| ["--set", switch]));
    let c = counters(&trace, &args).remove(0);
    let wrong = ["accesses_refused", "calls_refused", "frames_lost"].map(|name| count(&c, name));
    assert_eq!(wrong, [0; 3]);
    c
}

fn collapsed(script: &Script, set: &[&str]) -> i64 {
    count(&run(script, set), "thp_collapse_alloc")
}

/// A program with code that it can run to pass time.
struct Program {
    script: Script,
    code: u32,
}

impl Program {
    fn new() -> Program {
        let mut script = Script::new();
        let code = script.map(1, MapKind::Image, RX);
        Program { script, code }
    }

    /// Computes for so many milliseconds: 64 instructions each, 1.024 ms.
    fn compute(&mut self, milliseconds: u64) -> &mut Program {
        for _ in 0..milliseconds {
            self.script.push(Event::Fetch { mapping: self.code, insns: 64, offset: 0 });
        }
        self
    }

    /// A heap that grows in pages, so that these are base pages with `thp=always`, too.
    fn grow(&mut self, heap: u32, pages: Range<u64>) -> &mut Program {
        for page in pages {
            self.script.call(Change::Brk { mapping: heap, len: (page + 1) * 4096 });
            self.script.touch(heap, page..page + 1);
        }
        self
    }

    fn heap(&mut self) -> u32 {
        let heap = Map { base: 0x1000_0000, ..self.script.fresh(1, 0, MapKind::Heap) };
        self.script.map_as(heap)
    }

    /// Memory in base pages with `thp=advise`: these pages of each block.
    fn pages(&mut self, blocks: &[Range<u64>]) -> u32 {
        let m = self.script.anon(blocks.len() as u64 * BLOCK);
        for (block, pages) in blocks.iter().enumerate() {
            let first = block as u64 * BLOCK;
            self.script.touch(m, first + pages.start..first + pages.end);
        }
        m
    }

    /// Huge pages are wanted for so many pages of a mapping, or are not.
    fn advise(&mut self, mapping: u32, pages: u64, advice: Advice) -> &mut Program {
        self.script.call(Change::Advise { mapping, offset: 0, len: pages * 4096, advice });
        self
    }

    /// The same pages, which may be collapsed then.
    fn advised(&mut self, blocks: &[Range<u64>]) -> u32 {
        let m = self.pages(blocks);
        self.advise(m, blocks.len() as u64 * BLOCK, Advice::HugePage);
        m
    }

    /// What is collapsed of it within so many milliseconds from here.
    fn collapsed_after(&self, milliseconds: u64, set: &[&str]) -> i64 {
        let mut later = Program { script: self.script.clone(), code: self.code };
        later.compute(milliseconds);
        collapsed(&later.script, set)
    }
}

#[test]
fn a_heap_that_grew_in_pages_gets_its_blocks_at_the_scans_and_not_before() {
    let mut p = Program::new();
    let heap = p.heap();
    p.grow(heap, 0..2 * BLOCK + 3);
    for (milliseconds, blocks) in [(9000, 0), (11_000, 2)] {
        assert_eq!(p.collapsed_after(milliseconds, &[]), blocks, "{milliseconds}");
    }
    // What comes after a scan waits for the next.
    p.compute(12_000).grow(heap, 2 * BLOCK + 3..3 * BLOCK);
    for (milliseconds, blocks) in [(6000, 2), (13_000, 3)] {
        assert_eq!(p.collapsed_after(milliseconds, &[]), blocks, "{milliseconds}");
    }
    p.compute(13_000).script.touch(heap, 0..3 * BLOCK);
    let [c, without] = ["4096", "off"].map(|n| run(&p.script, &[&format!("collapse.scan={n}")]));
    for name in ["pgfault", "rss_end_bytes", "accesses"] {
        assert_eq!(count(&c, name), count(&without, name), "{name}");
    }
    assert_eq!([count(&without, "thp_collapse_alloc"), count(&without, "huge_coverage")], [0, 0]);
    assert!(count(&c, "huge_coverage") > 9000 && count(&c, "cycles_elapsed") > 25_000_000_000);
    // The kernel has the copies, and the program fewer walks.
    let more = |name| count(&c, name) - count(&without, name);
    assert!(more("lines_copied") >= 3 * 512 * 64 && more("cycles_clear") > 0);
    assert!(more("tlb_walks") < 0, "{}", more("tlb_walks"));
}

/// With `thp=advise` the first scan comes at once.
#[test]
fn a_scan_looks_at_so_many_pages_and_the_next_goes_on_there() {
    let mut p = Program::new();
    p.advised(&[0..1, 0..1, 0..1, 0..1, 0..1]);
    for (scan, after) in [
        ("collapse.scan=1", [1, 2, 3, 4, 5, 5]),
        ("collapse.scan=513", [1, 2, 3, 4, 5, 5]),
        ("collapse.scan=1026", [2, 4, 5, 5, 5, 5]),
        ("collapse.scan=4096", [5; 6]),
    ] {
        let counted = [0, 1, 2, 3, 4, 5]
            .map(|later| p.collapsed_after(500 + later * 10_000, &["thp=advise", scan]));
        assert_eq!(counted, after, "{scan}");
    }
}

/// Zeros are missing, too.
#[test]
fn a_block_of_which_too_much_is_missing_stays_as_it_is() {
    let mut p = Program::new();
    let m = p.pages(&[0..512, 0..412, 100..101, 0..0, 0..0]);
    p.script.read(m, BLOCK + 412..2 * BLOCK).read(m, 4 * BLOCK..5 * BLOCK);
    p.advise(m, 5 * BLOCK, Advice::HugePage);
    for (most, blocks) in [(511, 3), (510, 2), (100, 2), (99, 1), (0, 1)] {
        let most = format!("collapse.none={most}");
        assert_eq!(p.collapsed_after(1000, &["thp=advise", &most]), blocks, "{most}");
    }
}

#[test]
fn what_may_have_no_huge_pages_is_left_alone() {
    let mut p = Program::new();
    let plain = p.pages(&[0..300, 0..300]);
    for kind in [MapKind::AnonShared, MapKind::FilePrivate] {
        let m = p.script.map(2 * BLOCK, kind, RW);
        p.script.touch(m, 0..2 * BLOCK);
        p.advise(m, 2 * BLOCK, Advice::HugePage);
    }
    // A change of mind, rights that part a block, a hole; two are left.
    let m = p.pages(&[0..300, 0..300, 0..300, 0..300, 0..1]);
    let (offset, len) = ((BLOCK + 400) * 4096, 4096);
    p.script.call(Change::Protect { mapping: m, offset, len, prot: R });
    p.script.call(Change::Unmap { mapping: m, offset: offset + BLOCK * 4096, len });
    p.advise(m, 2 * BLOCK, Advice::HugePage);
    p.script.call(Change::Advise {
        mapping: m,
        offset: 3 * BLOCK * 4096,
        len: 2 * BLOCK * 4096,
        advice: Advice::HugePage,
    });
    p.advise(m, BLOCK, Advice::NoHugePage);
    let after = |p: &Program, set: &[&str]| p.collapsed_after(12_000, set);
    assert_eq!(after(&p, &["thp=advise"]), 2);
    assert_eq!(after(&p, &["thp=never"]), 0);
    assert_eq!(after(&p, &["thp=advise", "collapse.scan=off"]), 0);
    p.advise(plain, 2 * BLOCK, Advice::HugePage);
    assert_eq!(after(&p, &["thp=advise"]), 4);
}

#[test]
fn what_a_child_shares_is_collapsed_when_it_is_the_programs_own_again() {
    let mut p = Program::new();
    let m = p.pages(&[0..300, 0..200, 0..200]);
    p.script.call(Change::Fork { child: Some(0) });
    // A page of two blocks is copied, and the program's own.
    p.script.touch(m, 0..1).touch(m, BLOCK..BLOCK + 1);
    p.advise(m, 3 * BLOCK, Advice::HugePage);
    assert_eq!(p.collapsed_after(1000, &["thp=advise"]), 1);
    p.script.call(Change::ChildEnd { child: 0 });
    assert_eq!(p.collapsed_after(12_000, &["thp=advise"]), 2);
    // Nothing of the third may be written until it was.
    p.script.touch(m, 2 * BLOCK..2 * BLOCK + 1);
    assert_eq!(p.collapsed_after(12_000, &["thp=advise"]), 3);
}

#[test]
fn time_that_the_recorder_left_out_passes_as_well() {
    let mut p = Program::new();
    let heap = p.heap();
    p.grow(heap, 0..2 * BLOCK).compute(100);
    // 16 us each.
    p.script.push(Event::Skip { accesses: 1, instructions: 500_000 });
    assert_eq!(p.collapsed_after(100, &[]), 0);
    p.script.push(Event::Skip { accesses: 1, instructions: 250_000 });
    assert_eq!(p.collapsed_after(100, &[]), 2);
}

#[test]
fn a_scan_that_finds_no_memory_comes_again_after_a_minute() {
    let mut p = Program::new();
    let m = p.pages(&[0..1, 0..1, 0..1]);
    // All but the last megabytes of the machine's 64 MiB.
    let rest = p.script.anon(31 * BLOCK);
    p.script.touch(rest, 0..31 * BLOCK);
    p.advise(m, 3 * BLOCK, Advice::HugePage).compute(1000);
    p.script.call(Change::Unmap { mapping: rest, offset: 0, len: 31 * BLOCK * 4096 });
    // It goes on behind the block that it had no memory for.
    for (milliseconds, blocks) in [(50_000, 0), (60_000, 2), (70_000, 3)] {
        assert_eq!(p.collapsed_after(milliseconds, &["thp=advise"]), blocks, "{milliseconds}");
    }
}

#[test]
fn threads_on_several_cpus_meet_the_scan_and_give_the_same_bytes_each_time() {
    let mut p = Program::new();
    let m = p.advised(&[0..512, 0..512, 0..512, 0..512]);
    p.script.push(Event::ThreadStart { thread: 1 });
    for round in 0..11_000 {
        for thread in 0..2 {
            p.script.switch(thread).touch(m, round % 2000..round % 2000 + 2);
            p.compute(1);
        }
    }
    let twice = [0, 1].map(|_| run(&p.script, &["thp=advise", "collapse.scan=1024"]));
    assert_eq!(twice[0], twice[1]);
    // Two at once, and two when both threads run.
    assert_eq!(count(&twice[0], "thp_collapse_alloc"), 4);
    assert!(count(&twice[0], "interrupts") > 0);
}

/// Linux's column scans and the library's does not; before the first scan this changes nothing.
#[test]
fn the_base_scans_as_linux_does() {
    let mut p = Program::new();
    let m = p.script.anon(4 * BLOCK);
    p.script.touch(m, 0..4 * BLOCK);
    let short = p.script.file("short.vt");
    let args = ["run", "--trace", short.path(), "--machine", "milan", "--json"];
    let variants = |more: &[&str]| {
        let said = vellum(&[&args[..], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        doc["variants"].as_array().expect("variants").clone()
    };
    let columns = variants(&["--vs", "collapse.scan=off"]);
    let scans: Vec<_> = columns.iter().map(|c| c["switches"]["collapse.scan"].clone()).collect();
    assert_eq!(scans, ["4096", "off", "off"]);
    assert_eq!(columns[0]["counters"], columns[1]["counters"]);
}

/// A program of three blocks that are collapsed one a scan, if a page may be missing.
#[test]
fn the_base_scans_as_the_recorded_host_did() {
    let mut p = Program::new();
    let m = p.script.anon(3 * BLOCK);
    for block in 0..3 {
        p.script.touch(m, block * BLOCK..(block + 1) * BLOCK - 1);
    }
    let (len, advice) = ((3 * BLOCK) << 12, Advice::HugePage);
    p.script.call(Change::Advise { mapping: m, offset: 0, len, advice });
    p.compute(5000);
    let machine = slow();
    let base = |scans: [&str; 3], more: &[&str]| {
        let mut script = p.script.clone();
        let [scan_sleep_millisecs, pages_to_scan, max_ptes_none] = scans.map(str::to_owned);
        script.khugepaged = Khugepaged { scan_sleep_millisecs, pages_to_scan, max_ptes_none };
        let trace = script.file("scans.vt");
        let args = ["run", "--trace", trace.path(), "--machine", machine.path()];
        let said = vellum(&[&args[..], &["--set", "thp=advise"], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.out
    };
    let collapsed = |scans| {
        let doc: serde_json::Value = serde_json::from_str(&base(scans, &["--json"])).expect("JSON");
        let counters = doc["variants"][0]["counters"].as_object().expect("counters");
        count(counters, "thp_collapse_alloc")
    };
    // At 0, 2 and 4 s; at once; once in 5 s; and none, if no page may be missing.
    assert_eq!(collapsed(["2000", "512", "511"]), 3);
    assert_eq!(collapsed(["", "", ""]), 3);
    assert_eq!(collapsed(["", "512", ""]), 1);
    assert_eq!(collapsed(["2000", "512", "0"]), 0);
    let said = base(["2000", "many", "511"], &[]);
    let line = "note: the trace says `many` of the recorded host's pages_to_scan, which is no \
                value of it; Linux's own choice is taken, collapse.scan=4096";
    assert!(said.lines().any(|l| l == line), "{said}");
    assert!(!base(["2000", "many", "511"], &["--as", "vellum"]).contains("note: the trace says"));
}
