//! What each benchmark compares, in words, and what its figures mean.
//!
//! The words before the figures are fixed; those after are computed from them, since nobody knows
//! beforehand how a stranger's computer will do.

use vellum_host::bench::{Report, Row};

use crate::report::number;

/// A benchmark as the command knows it.
pub struct Section {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What is compared.
    pub compares: &'static str,
    /// Seconds it takes in a run of all, about.
    pub seconds: u64,
}

/// All benchmarks, in the order in which they run.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "frames",
        title: "Frames: taking and giving back physical memory",
        compares: "The frame allocator beside two crates of the registry, each behind the \
                   cheapest lock there is, and beside a floor that is no allocator at all: per \
                   CPU an array of numbers behind one swap and one store. Nanoseconds per \
                   operation, 4 GiB of frames.",
        seconds: 30,
    },
    Section {
        name: "fault",
        title: "Faults: a page at first touch, and its way back",
        compares: "The library as a trap handler calls it, with clearing and without. The floor \
                   is clearing (or copying) alone. Linux is the kernel under us doing the same \
                   for a program: its figures contain the trap, real page tables and accounting, \
                   ours do not. Nanoseconds per page.",
        seconds: 6,
    },
    Section {
        name: "clear",
        title: "Clearing: every way this processor has, and the library's choice",
        compares: "The library on a machine calibrated a moment ago, beside the fastest of each \
                   kind of stores: strings page by page or run by run, plain ones of any width, \
                   and those around the caches (with instructions that zero a line). Nanoseconds \
                   per 4 KiB, the median of the repetitions. Nobody waits for a run. A run that is \
                   used was cleared for a fault at its first page: half of it is read, and then \
                   what was in use before.",
        seconds: 12,
    },
    Section {
        name: "space",
        title: "Verbs: whole mappings at once",
        compares: "Map, protect, move, fork, exit and unmap of mappings with every page touched, \
                   on a machine that moves no bytes. Linux includes the system call and flushes \
                   of a real TLB. Microseconds per call.",
        seconds: 4,
    },
    Section {
        name: "fragment",
        title: "Fragmentation: what is left of large pages after a long life",
        compares: "Blocks of 4 KiB to 2 MiB come and go at random while half, or nine tenths, of \
                   memory is in use: all orders with alike many frames, /alike with alike many \
                   blocks, /singles 90 % single frames, 9 % of 32 KiB, 1 % of 2 MiB. At 100 \
                   moments as many 2 MiB blocks are taken as there are. Their share of the free \
                   memory: more is better.",
        seconds: 20,
    },
    Section {
        name: "growth",
        title: "Growth: ten and a hundred times as much",
        compares: "The same acts on more memory, among more mappings, on larger machines; nothing \
                   is cleared. A cost per page or per call that stays is a design that scales. \
                   Each figure stands beside its ratio to the smallest size. A page's record is a \
                   cache line: 1 GiB of pages has 16 MiB of them, and runs at the speed of the \
                   outer caches.",
        seconds: 8,
    },
    Section {
        name: "threads",
        title: "Threads: what a second one is worth",
        compares: "One thread faults in a space, then two side by side in parts of the same \
                   space; the ratio of their throughputs. 2 is the most there can be. The floor \
                   is two threads that share nothing: what the cores allow. Of pairs of runs in \
                   turn the best shows the design, the median what this computer made of it. The \
                   last row is two threads in one space against two on a machine each: a lock \
                   around what they share makes it a half.",
        seconds: 4,
    },
    Section {
        name: "objects",
        title: "Objects: pages that spaces share, and pages of files",
        compares: "Faults on pages of objects, the kernel's copies and truncation, beside files in \
                   Linux's page cache and memfd; blocks of 2 MiB beside its huge pages. Both map \
                   64 KiB around a read fault. The floor is clearing, or copying, alone. Linux's \
                   figures contain the trap or system call, ours do not. Nanoseconds per page, \
                   microseconds per block or 512 pages; the last rows are throughputs of two \
                   threads over one.",
        seconds: 7,
    },
    Section {
        name: "trie",
        title: "Tries: what is at each page index of an object",
        compares: "The trie beside an ordered map of the standard library, crates of the registry \
                   and a hash table; the floor is a plain array. Each lookup also reads a word of \
                   the page's record. Many operations are inside one guard or epoch. Nanoseconds \
                   per page, 32 Ki and 1 Mi of them, and bytes of nodes an entry.",
        seconds: 25,
    },
    Section {
        name: "instructions",
        title: "Instructions: counted, not timed",
        compares: "Instructions per operation on a machine whose methods cost next to nothing, \
                   clearing left out. The same on every run and every computer, so these have \
                   ceilings that bind.",
        seconds: 4,
    },
];

fn find<'a>(report: &'a Report, name: &str, threads: usize) -> Option<&'a Row> {
    report.benchmarks.iter().find(|r| r.name == name && r.threads == threads)
}

/// `1` as `one thread`, others as `N threads`.
fn by(threads: usize) -> String {
    if threads == 1 { "one thread".to_owned() } else { format!("{threads} threads") }
}

/// What the figures of a benchmark mean, as sentences.
pub fn reading(name: &str, report: &Report) -> Vec<String> {
    match name {
        "frames" => frames(report),
        "fault" => fault(report),
        "clear" => vellum_host::bench::clear::explain(report),
        "space" | "objects" => beside_linux(report).into_iter().collect(),
        "fragment" => fragment(report),
        "growth" => growth(report),
        "threads" => scaling_verdict(report),
        _ => Vec::new(),
    }
}

fn frames(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    for hot in report.benchmarks.iter().filter(|r| r.name == "frames/hot-pair") {
        if let Some(bare) = find(report, "frames/two-swaps-two-stores", hot.threads) {
            said.push(format!(
                "By {}, two swaps and two stores alone take {} ns, and the hot pair {} ns: {} ns \
                 for all the rest of taking and giving back.",
                by(hot.threads),
                number::figure(bare.ours),
                number::figure(hot.ours),
                number::figure(hot.ours - bare.ours),
            ));
        }
    }
    said
}

fn fault(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    if let (Some(all), Some(bare)) =
        (find(report, "fault/4k-write", 1), find(report, "fault/4k-write/bare", 1))
    {
        said.push(format!(
            "A first write to a page takes {} ns, {} ns without clearing: the library is {:.0} % \
             of its own fault.",
            number::figure(all.ours),
            number::figure(bare.ours),
            bare.ours / all.ours * 100.0
        ));
    }
    said.extend(beside_linux(report));
    said
}

/// How many rows are below those of the kernel under us, and which are not.
fn beside_linux(report: &Report) -> Option<String> {
    let ratios: Vec<(f64, &Row)> = report
        .benchmarks
        .iter()
        // Of throughputs more is better, and they are no times.
        .filter(|r| r.unit != "x")
        .filter_map(|r| Some((r.ours / r.peers.get("linux")?, r)))
        .collect();
    let above: Vec<String> = ratios
        .iter()
        .filter(|(ratio, _)| *ratio >= 1.0)
        .map(|(ratio, row)| {
            let by = if row.threads > 1 {
                format!(" by {} threads", row.threads)
            } else {
                String::new()
            };
            format!("{}{by} ({ratio:.2} times as long)", row.name)
        })
        .collect();
    if ratios.is_empty() {
        return None;
    }
    let but =
        if above.is_empty() { String::new() } else { format!(", not so {}", above.join(", ")) };
    Some(format!(
        "{} of {} rows take less time than Linux{but}. The trap or system call in its figures is \
         not in ours.",
        ratios.len() - above.len(),
        ratios.len()
    ))
}

fn fragment(report: &Report) -> Vec<String> {
    let row = find(report, "frames/metadata", 1);
    row.into_iter()
        .map(|r| {
            format!(
                "All metadata, records included, takes {:.1} bytes a frame: {:.2} % of the memory \
                 managed.",
                r.ours,
                r.ours / 40.96
            )
        })
        .collect()
}

fn growth(report: &Report) -> Vec<String> {
    let mut worst: Option<(f64, &str)> = None;
    for row in &report.benchmarks {
        let axis = |name: &str| name.rsplit_once('-').map(|(a, _)| a.to_owned());
        let first = report.benchmarks.iter().find(|r| axis(&r.name) == axis(&row.name));
        if let Some(over) =
            first.map(|f| row.ours / f.ours).filter(|o| worst.is_none_or(|(w, _)| *o > w))
        {
            worst = Some((over, &row.name));
        }
    }
    worst
        .map(|(over, name)| {
            let name = name.trim_start_matches("growth/").replace('/', ", ");
            format!(
                "The steepest of all rows is \"{name}\" with {over:.2} times its smallest size."
            )
        })
        .into_iter()
        .collect()
}

fn scaling_verdict(report: &Report) -> Vec<String> {
    let best = find(report, "threads/fault-4k", 2);
    let floor = best.and_then(|r| r.floor).filter(|f| *f < 1.7).map(|f| {
        format!(
            "Two threads that share nothing did only {f:.2} times the work of one: these cores \
             were no two cores just now."
        )
    });
    best.into_iter()
        .map(|r| {
            let linux = r
                .peers
                .get("linux")
                .map_or(String::new(), |l| format!("; Linux's did {l:.2} times"));
            let clears = find(report, "threads/clear-4k", 2).map_or(String::new(), |r| {
                format!("; with only the clearing of the same frames {:.2} times", r.ours)
            });
            format!(
                "Two threads did {:.2} times the work of one, clearing included{clears}{linux}.",
                r.ours
            )
        })
        .chain(floor)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, threads: usize, ours: f64, peers: &[(&'static str, f64)]) -> Row {
        let peers = peers.iter().copied().collect();
        Row { name: name.to_owned(), threads, unit: "ns", ours, floor: None, peers, spread: 0.0 }
    }

    fn report(benchmarks: Vec<Row>) -> Report {
        Report { benchmarks, notes: Vec::new() }
    }

    #[test]
    fn what_is_said_follows_the_figures() {
        let faults = report(vec![
            row("fault/4k-write", 1, 200.0, &[("linux", 400.0)]),
            row("fault/4k-write/bare", 1, 30.0, &[]),
            row("unmap/4k-page", 1, 90.0, &[("linux", 60.0)]),
        ]);
        let said = reading("fault", &faults).join(" ");
        assert!(said.contains("200 ns, 30.0 ns without") && said.contains("15 %"), "{said}");
        assert!(
            said.contains(
                "1 of 2 rows take less time than Linux, not so unmap/4k-page (1.50 times"
            ),
            "{said}"
        );
        let hot = report(vec![
            row("frames/hot-pair", 2, 12.0, &[]),
            row("frames/two-swaps-two-stores", 2, 9.5, &[]),
        ]);
        assert!(
            reading("frames", &hot)[0].contains("By 2 threads")
                && reading("frames", &hot)[0].contains("2.50 ns for")
        );
    }

    #[test]
    fn nothing_is_said_of_what_was_not_measured() {
        for section in SECTIONS {
            assert_eq!(
                reading(section.name, &Report::default()),
                Vec::<String>::new(),
                "{}",
                section.name
            );
        }
    }
}
