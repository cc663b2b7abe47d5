//! Clearing in extents: the first touch of 64 GiB in pages of 2 MiB and 1 GiB, page by page and in extents.
//!
//! The workload is that of `perf bench mem mmap -f demand -s 64GB`: a private mapping with leaves of one size, one byte read and written at
//! the start of each page, in ascending order; mapping and touching are timed, unmapping is not. The published runs do it five times; one
//! time is enough here, since each is like the others. The posting's kernel has string stores and nothing else, so the rows that
//! are compared with it do too (`clear.stores=cached`); what the library does beyond is a row without a published figure.

use vellum::addr::{Order, Va};
use vellum::config::Config;
use vellum::space::{Access, Attrs, LeafSize, Placement, Rights};
use vellum::vm::Vm;
use vellum_host::bench::clear as native;
use vellum_host::bench::measure::Effort;
use vellum_sim::file::Machine;
use vellum_sim::format::X86;
use vellum_sim::{Kind, Meta, Options, Parts, Program, SimMachine};

use super::basis::Rest;
use super::page::{Page, Row, Statement, Table};
use super::{Ask, Entry, basis, side};
use crate::error::LabError;
use crate::interrupt;

/// The experiment.
pub const ENTRY: Entry = Entry {
    name: "clear",
    about: "a large page is cleared as a few long runs, the neighbourhood of the fault last",
    machine: "milan",
    sim: run,
    host,
};

/// Bytes touched.
pub const FOOTPRINT: u64 = 64 << 30;

/// What a run of the workload came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Binary gigabytes a second, as the published tool prints them.
    pub gib_per_s: f64,
    /// Cycles for each line of the footprint.
    pub cycles_per_line: f64,
    /// First-level misses of the kernel for each line.
    pub misses_per_line: f64,
}

type Switches = &'static [(&'static str, &'static str)];

struct Case {
    name: &'static str,
    leaf: Order,
    after: Switches,
    published: [Option<f64>; 2],
    /// Where it is stated: the statement and its band, by throughput after over before.
    stated: Option<(&'static str, &'static str, [f64; 2])>,
    /// What it rests on.
    rests: &'static [&'static str],
}

/// The kernel before the posting.
const BEFORE: Switches = &[("clear.unit", "page"), ("clear.stores", "cached"), ("preempt", "voluntary")];
const BATCHES: Switches = &[("clear.batch", "8M"), ("clear.stores", "cached")];
const WHOLE: Switches = &[("preempt", "full"), ("clear.stores", "cached")];
const LONG: Switches = &[("clear.batch", "32M"), ("clear.stores", "cached")];
const AROUND: Switches = &[("clear.stores", "bypass")];

const HUGE: &[&str] = &["costs.clear_page_line", "costs.clear_extent_line", "costs.work.large"];
const GIANT: &[&str] = &["costs.clear_next_line", "costs.clear_extent_line"];
const ELIDED: &[&str] = &["costs.clear_next_line", "costs.clear_elided_line", "costs.elision_threshold"];
const PASSED: &[&str] = &["costs.clear_page_line", "costs.clear_elided_line", "costs.work.large"];

const MILAN: &[Case] = &[
    Case {
        name: "2 MiB, all models, GiB/s",
        leaf: Order::HUGE,
        after: BATCHES,
        published: [Some(11.82), Some(16.48)],
        stated: Some(("A-7", "2 MiB", [1.30, 1.45])),
        rests: HUGE,
    },
    Case {
        name: "1 GiB, asks, 8 MiB, GiB/s",
        leaf: Order::GIANT,
        after: BATCHES,
        published: [Some(17.14), Some(17.42)],
        stated: Some(("A-7", "1 GiB in batches of 8 MiB", [0.94, 1.06])),
        rests: GIANT,
    },
    Case {
        name: "1 GiB, preemptible, GiB/s",
        leaf: Order::GIANT,
        after: WHOLE,
        published: [Some(17.51), Some(43.23)],
        stated: Some(("A-7", "1 GiB, preemptible", [2.20, 2.60])),
        rests: ELIDED,
    },
    Case {
        name: "1 GiB, asks, 32 MiB, GiB/s",
        leaf: Order::GIANT,
        after: LONG,
        published: [None, None],
        stated: Some(("A-8", "1 GiB in batches of 32 MiB", [1.50, 4.0])),
        rests: ELIDED,
    },
    Case {
        name: "2 MiB, bypassing, GiB/s",
        leaf: Order::HUGE,
        after: AROUND,
        published: [None, None],
        stated: None,
        rests: PASSED,
    },
];

const ICELAKE: &[Case] = &[
    Case {
        name: "2 MiB, all models, GiB/s",
        leaf: Order::HUGE,
        after: BATCHES,
        published: [None, None],
        stated: Some(("A-14", "2 MiB; published: about 1.35", [1.25, 1.45])),
        rests: HUGE,
    },
    Case {
        name: "1 GiB, preemptible, GiB/s",
        leaf: Order::GIANT,
        after: WHOLE,
        published: [None, None],
        stated: Some(("A-14", "1 GiB; published: about 1.35", [1.25, 1.45])),
        rests: GIANT,
    },
    Case {
        name: "2 MiB, bypassing, GiB/s",
        leaf: Order::HUGE,
        after: AROUND,
        published: [None, None],
        stated: None,
        rests: PASSED,
    },
];

/// The experiment on a machine. Statements are about the two machines of the posting; on others the rows stand alone.
fn run(ask: &Ask<'_>) -> Result<Page, LabError> {
    let machine = ask.machine;
    let cases = if machine.name == "icelake-x" { ICELAKE } else { MILAN };
    let theirs = matches!(machine.name.as_str(), "milan" | "icelake-x");
    let mut runs = vec![(Order::HUGE, BEFORE), (Order::GIANT, BEFORE)];
    runs.extend(cases.iter().map(|c| (c.leaf, c.after)));
    let figures = side::by_side(&runs, |&(leaf, switches)| touch(machine, leaf, switches, FOOTPRINT))?;
    let old = |leaf| if leaf == Order::HUGE { figures[0] } else { figures[1] };
    let (mut rows, mut misses, mut statements) = (Vec::new(), Vec::new(), Vec::new());
    for (case, after) in cases.iter().zip(&figures[2..]) {
        let before = old(case.leaf);
        // A sixteenth of the footprint gives the same figure to a thousandth.
        let ratio = |m: &Machine| {
            let run = |switches| touch(m, case.leaf, switches, FOOTPRINT / 16);
            Ok(run(case.after)?.gib_per_s / run(BEFORE)?.gib_per_s)
        };
        let rest = basis::rest_swung(machine, case.rests, &ratio)?;
        // Guesses are swung for throughput, and shown there.
        let still = Rest { swings: Vec::new(), ..rest.clone() };
        let row = |name: String, published, ours: [f64; 2], rest: &Rest| Row {
            name,
            published,
            ours: ours.map(Some),
            spread: None,
            rest: Some(rest.clone()),
        };
        let published = if theirs { case.published } else { [None, None] };
        rows.push(row(case.name.into(), published, [before.gib_per_s, after.gib_per_s], &rest));
        misses.push(row(
            case.name.replace("GiB/s", "L1 misses"),
            [None, None],
            [before.misses_per_line, after.misses_per_line],
            &still,
        ));
        if let Some((id, what, band)) = case.stated.filter(|_| theirs) {
            let value = after.gib_per_s / before.gib_per_s;
            statements.push(Statement { id, what: format!("throughput, {what}"), value, band, rest: rest.clone() });
        }
    }
    let columns = || ["page by page".to_owned(), "extents".to_owned()];
    let missed = statements.iter().filter(|s| !s.ok()).count();
    Ok(Page {
        name: "clear",
        title: "Clearing in extents, at the first touch of 64 GiB".into(),
        on: format!("{}, one CPU, nothing random", machine.name),
        asked: vec!["What is it worth to clear a large page as a few long runs instead of 4 KiB at a time?".into()],
        run: vec![
            "One byte is read and written in each page of a fresh private mapping of 64 GiB, once (the published runs do it five times: \
             factor 5). The kernel of the posting has string stores alone, and so do these rows but for those called bypassing."
                .into(),
            "Lines cleared are counted and charged, not put through the caches one by one; a test compares the two ways on 128 MiB.".into(),
        ],
        tables: vec![
            Table { title: "Throughput".into(), columns: columns(), rows },
            Table { title: "First-level misses of the kernel for each line".into(), columns: columns(), rows: misses },
        ],
        out: vec![match missed {
            0 => "Every statement lies in its band.".to_owned(),
            n => format!("{n} of {} statements did not come out and are shown as they are.", statements.len()),
        }],
        statements,
        means: vec![
            "The old rows are what the machine file was set by, so that they agree with the published ones is no result; the new rows are. At \
             2 MiB the gain is the order of pages and the work per page; at 1 GiB it is the length of the stores alone, where the core \
             stops reading what it overwrites. Stores that bypass the caches need no such length."
                .into(),
        ],
        limits: vec![
            "1 GiB in batches of 8 MiB gains nothing, published or here: the batch is shorter than the last-level cache.".into(),
            "A program that reads the whole page at once finds what bypassed the caches in memory.".into(),
            "The model has no start-up cost of string stores apart, and no CPU's clock that falls under load.".into(),
        ],
        skipped: Vec::new(),
    })
}

/// On this computer: every way to clear that the processor has, beside the library's choice.
fn host() -> Result<Page, LabError> {
    let effort = Effort { stop: interrupt::requested, ..Effort::SHORT };
    let report = native::run(effort).map_err(LabError::failed)?;
    let rows = report.benchmarks.iter().map(|r| Row {
        name: format!("{}, ns a page", r.name.trim_start_matches("clear/")),
        published: [None, None],
        ours: [r.peers.get("strings").copied(), Some(r.ours)],
        spread: Some(r.spread),
        rest: None,
    });
    Ok(Page {
        name: "clear",
        title: "Clearing, on this computer".into(),
        on: "this computer".into(),
        asked: vec!["How fast does the library clear here, beside strings of stores, which kernels use?".into()],
        run: vec![
            "Every kind of stores is measured by length, the fastest are chosen, the library is measured with them."
                .into(),
        ],
        tables: vec![Table {
            title: "Nanoseconds for 4 KiB".into(),
            columns: ["rep stos".into(), "the library".into()],
            rows: rows.collect(),
        }],
        out: report.notes.clone(),
        means: native::explain(&report),
        limits: vec!["The faults of this computer's own kernel are not in these figures.".into()],
        ..Page::default()
    })
}

/// Touches `bytes` bytes on a machine with those switches.
pub fn touch(machine: &Machine, leaf: Order, switches: &[(&str, &str)], bytes: u64) -> Result<Figures, LabError> {
    let parts = Parts::of(machine, 1);
    let sim = SimMachine::<X86>::build(&parts, Options { count_clears: true, ..Options::default() })
        .map_err(LabError::usage)?;
    let mut config = Config::default();
    for (name, value) in switches {
        config.set(name, value).map_err(|_| LabError::failed(format_args!("switch {name}={value}")))?;
    }
    let meta = Meta::new(Vm::<SimMachine<X86>>::layout(sim.topology()))
        .ok_or_else(|| LabError::failed("no address space for the metadata"))?;
    // SAFETY: the memory is zero, of the layout asked for, and outlives the Vm.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.map_err(LabError::failed)?;
    let touched = vm.machine().solo(0, |cpu| {
        let space = vm.create().map_err(LabError::failed)?;
        vm.activate(&space);
        let start = cpu.now();
        let attrs = Attrs { leaf: LeafSize::Exactly(leaf), ..Attrs::anonymous(Rights::READ_WRITE) };
        let at = vm.map(&space, Placement::Anywhere, bytes, attrs).map_err(LabError::failed)?;
        let mut program = Program::new(cpu, |va, kind| {
            let access = if kind == Kind::Store { Access::Write } else { Access::Read };
            vm.fault(&space, Va(va), access).map(|_| ())
        });
        let mut page = at.0;
        while page < at.0 + bytes {
            program.load(page, 1, false).and_then(|_| program.store(page, 1, true)).map_err(LabError::failed)?;
            page += leaf.bytes();
        }
        let cycles = cpu.now() - start;
        let total = vm.machine().total();
        vm.exit(space);
        Ok::<_, LabError>((cycles, total.get("l1d_kernel_miss").unwrap_or(0)))
    });
    let (cycles, misses) = touched.map_err(LabError::failed)??;
    let lines = (bytes / 64) as f64;
    let seconds = cycles as f64 / parts.clock_hz as f64;
    Ok(Figures {
        gib_per_s: bytes as f64 / f64::from(1 << 30) / seconds,
        cycles_per_line: cycles as f64 / lines,
        misses_per_line: misses as f64 / lines,
    })
}
