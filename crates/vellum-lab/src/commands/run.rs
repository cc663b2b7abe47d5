//! `vellum run`: one trace on one machine, a column per variant.

use std::fmt::Write as _;

use serde_json::json;
use vellum_sim::file::{Basis, Machine};
use vellum_trace::Totals;

use super::machines;
use super::output::{print, print_json};
use crate::cli::{Choices, FileState, RunArgs};
use crate::error::LabError;
use crate::experiment::{Column, Effort, Experiment, Replayed, Trace, WINDOW, cpus};
use crate::interrupt;
use crate::progress::Progress;
use crate::replay::Finished;
use crate::report::{GROUPS, Interval, SCREEN, TIME, Time, doubts, json, number, table};
use crate::sweep::Sweep;
use crate::switches::{self, VELLUM, Variant};
use crate::text::wrapped;

/// A difference in faults beyond this deserves a flag: 5 %.
const FAULTS_OFF: f64 = 0.05;

/// A difference in time beyond this does: 25 %.
const TIME_OFF: f64 = 0.25;

/// What is charged by no constant: waiting for other CPUs and the disk.
const WAITING: &str = "waiting";

/// Counters of a replay that used huge pages.
const HUGE: [&str; 4] =
    ["thp_fault_alloc", "thp_zero_page_fault", "thp_collapse_alloc", "thp_file_mapped"];

/// Replays and prints.
pub fn run(args: &RunArgs) -> Result<(), LabError> {
    let machine = machines::find(&args.machine)?;
    let trace = Trace::open(&args.trace)?;
    let columns = switches::columns(args.choices, &trace.header, &args.set, &args.vs)?;
    let sweep = args.sweep.as_deref().map(|text| Sweep::new(text, &machine, &columns[0]));
    let (columns, swept) = match sweep.transpose()? {
        Some(sweep) => (sweep.columns, sweep.machines),
        None => (columns, Vec::new()),
    };
    let experiment = Experiment {
        trace: &trace,
        machine: &machine,
        swept: &swept,
        columns: &columns,
        cpus: args.cpus,
        seed: args.seed,
        layout: args.layout,
        files: args.files,
        oracle: args.oracle,
    };
    interrupt::install();
    let progress = Progress::new(trace.accesses() * columns.len() as u64, &trace.program());
    let replayed = experiment.run(&progress)?;
    drop(progress);
    // What was replayed is printed, whatever came of the rest.
    if !replayed.columns.is_empty() {
        if args.json {
            print_json(&document(args, &experiment, &replayed))?;
        } else {
            print(&page(args, &experiment, &replayed.columns)?)?;
        }
    }
    match replayed.failed {
        Some(e) => Err(e),
        None if replayed.columns.is_empty() => Err(LabError::Stopped),
        None => Ok(()),
    }
}

/// The answer as JSON.
fn document(
    args: &RunArgs,
    experiment: &Experiment<'_>,
    replayed: &Replayed<'_>,
) -> serde_json::Map<String, serde_json::Value> {
    let results = &replayed.columns;
    let intervals = intervals(experiment, results);
    let shown: Vec<json::Column<'_>> = results
        .iter()
        .zip(&intervals)
        .map(|(c, interval)| json::Column {
            variant: c.variant,
            counters: &c.finished.counters,
            charges: &c.finished.charges,
            interval: interval.as_ref(),
            complete: c.finished.complete,
        })
        .collect();
    let complete = results.len() == experiment.columns.len() && shown.iter().all(|c| c.complete);
    let native = experiment.trace.native();
    let machine = &experiment.machine.name;
    let mut doc = json::document(machine, args.seed, &shown, complete, native.as_ref());
    doc.insert("partial".to_owned(), experiment.trace.partial.into());
    if args.timing {
        let seconds: Vec<f64> = results.iter().map(|c| c.finished.took.as_secs_f64()).collect();
        let accesses: u64 = results.iter().map(|c| c.finished.accesses).sum();
        let timing = json!({ "cpu_seconds": seconds, "accesses": accesses });
        doc.insert("timing".to_owned(), timing);
    }
    doc
}

/// The answer as a table, with what has to be known beside it.
fn page(
    args: &RunArgs,
    experiment: &Experiment<'_>,
    results: &[Column<'_>],
) -> Result<String, LabError> {
    let Experiment { trace, machine, columns, .. } = *experiment;
    let mut effort = Effort::default();
    results.iter().for_each(|c| effort.add(&c.finished));
    let used = cpus(args.cpus, machine, &trace.totals)?;
    let mut out = format!(
        "{}: {} accesses, {} touched, {} thread{} | {}, {} CPU{}, seed {}\n\n",
        trace.program(),
        number::scaled(trace.accesses() as i64),
        number::bytes(trace.totals.touched_pages as i64 * 4096),
        trace.totals.threads.max(1),
        if trace.totals.threads > 1 { "s" } else { "" },
        machine.name,
        used,
        if used > 1 { "s" } else { "" },
        args.seed
    );
    let mut shown = table_columns(results);
    if results.first().is_some_and(|first| first.variant != &columns[0]) {
        // The base failed: there are no ratios to it.
        shown.iter_mut().for_each(|column| column.complete = false);
    }
    let intervals = intervals(experiment, results);
    let verdict = table::verdict(SCREEN, &shown, &intervals);
    if !verdict.is_empty() {
        out.push_str(&verdict);
        out.push('\n');
    }
    out.push_str(&table::full(GROUPS, &shown));
    out.push('\n');
    out.push_str(&legend(args.choices, columns));
    out.push_str(&doubtful(machine, results, &intervals));
    // A swept machine is not the one that ran the program.
    let here = if args.sweep.is_some() { &[] } else { results };
    let time = native_time(trace, machine, here);
    let damaged = match args.choices {
        Choices::Linux => switches::damaged(&trace.header),
        Choices::Vellum => Vec::new(),
    };
    for line in notes(trace, results, args.files).iter().chain(&time).chain(&damaged) {
        out.push_str(line);
        out.push('\n');
    }
    out.push_str(&effort.line());
    out.push('\n');
    Ok(out)
}

/// What the time of each column beside the base's may be, by the doubtful constants of the machine.
/// `None` for the base, where one was stopped, and where the columns are those of a sweep.
pub fn intervals(experiment: &Experiment<'_>, results: &[Column<'_>]) -> Vec<Option<Interval>> {
    let doubts = doubts(experiment.machine);
    let time = |column: &'_ Column<'_>| column.finished.counters.get(TIME).unwrap_or(0);
    let is_base = |column: &&Column<'_>| {
        experiment.swept.is_empty()
            && experiment.columns.first() == Some(column.variant)
            && column.finished.complete
    };
    let base = results.first().filter(is_base);
    let of = |column: &Column<'_>| {
        let base = base.filter(|base| !std::ptr::eq(*base, column) && column.finished.complete)?;
        let base = Time { total: time(base), charges: &base.finished.charges };
        let time = Time { total: time(column), charges: &column.finished.charges };
        Interval::of(time, base, &doubts)
    };
    results.iter().map(of).collect()
}

/// Which constant each ratio hangs on most, where one moves it by a percent or more.
fn doubtful(machine: &Machine, results: &[Column<'_>], intervals: &[Option<Interval>]) -> String {
    let mut out = String::new();
    for (column, interval) in results.iter().zip(intervals) {
        let most = interval.as_ref().and_then(|interval| interval.most.as_ref());
        let Some((key, [low, high])) = most.filter(|(_, [low, high])| high - low >= 0.01) else {
            continue;
        };
        let constant = machine.constants().into_iter().find(|row| row.key == *key);
        let (value, basis) = constant.map_or_else(Default::default, |row| {
            let basis = match (row.basis, row.spread) {
                (Basis::Guess, _) | (_, None) => "a guess: with half and twice of it".to_owned(),
                (_, Some(spread)) => {
                    format!("measured to {:.1} %: within that", spread.get() * 100.0)
                }
            };
            (row.value, basis)
        });
        let text = format!(
            "{}: how sure: the brackets above are what all uncertain constants of the machine \
             leave; the ratio of the totals hangs most on {key} = {}, {basis} it is {low:.2} to \
             {high:.2}",
            column.variant.name,
            // A machine of one node has a table of one time.
            value.trim_matches(['[', ']', '"'])
        );
        for line in wrapped(&text, table::WIDTH) {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

/// Switches that the line of the base names even where they are as in the library.
const ALWAYS_NAMED: [&str; 3] = ["thp", "zero.huge", "object.huge"];

/// Whose choices the base has, which switches are in force there, and in which the library's column
/// differs. The head of every other column names its own.
fn legend(choices: Choices, columns: &[Variant]) -> String {
    let (Some(base), Some(last)) = (columns.first(), columns.last()) else { return String::new() };
    let whose = match choices {
        Choices::Linux => "Linux's",
        Choices::Vellum => "this library's own",
    };
    let defaults = Variant::defaults();
    // What `--vs` asks for may be Linux's own value; then the base has another, the default even.
    let asked = columns[1..].iter().filter(|c| c.name != VELLUM);
    let named = base.named(|name, value| {
        ALWAYS_NAMED.contains(&name)
            || defaults.get(name) != value
            || asked.clone().any(|c| c.get(name) != value)
    });
    let mut lines = vec![format!("base: {whose} choices: {named}")];
    if last.name == VELLUM {
        let other = last.named(|name, value| base.get(name) != value);
        lines.push(format!("{VELLUM}: this library's own choices, as the base but {other}"));
    }
    let wrap = |line: &String| wrapped(line, table::WIDTH).join("\n") + "\n";
    lines.iter().map(wrap).collect()
}

/// Columns as tables want them.
pub fn table_columns<'a>(results: &'a [Column<'_>]) -> Vec<table::Column<'a>> {
    results
        .iter()
        .map(|c| table::Column {
            name: &c.variant.name,
            counters: &c.finished.counters,
            complete: c.finished.complete,
        })
        .collect()
}

/// What a reader has to know beside the figures: the native run, and what was left out.
pub fn notes(trace: &Trace, results: &[Column<'_>], files: FileState) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(native(trace, results, files));
    if trace.partial {
        notes.push(
            "note: the recording ended before the program did; the trace goes to its last whole \
             block"
                .to_owned(),
        );
    }
    notes.extend(super::record::other_programs(&trace.totals));
    let sum = |name: &str| {
        results.iter().map(|c| c.finished.counters.get(name).unwrap_or(0)).max().unwrap_or(0)
    };
    if trace.totals.skipped_accesses > 0 {
        notes.push(format!(
            "note: {} of {} accesses kept; misses and walks are of these, cycles estimated for all",
            number::scaled(trace.totals.accesses() as i64),
            number::scaled(trace.totals.recorded_accesses() as i64),
        ));
    }
    if trace.windows_are_short() {
        notes.push(format!(
            "note: windows of fewer than {} accesses a thread cannot be told from what is between \
             them: cycles of program and walks are those of its start; record with a longer KEEP",
            number::grouped(WINDOW as i64)
        ));
    }
    if sum("accesses_refused") > 0 {
        notes.push(format!(
            "note: {} accesses met memory that the trace does not give them, and were left out",
            number::grouped(sum("accesses_refused"))
        ));
    }
    if sum("calls_refused") > 0 {
        notes.push(format!(
            "note: {} memory calls could not be replayed as recorded",
            number::grouped(sum("calls_refused"))
        ));
    }
    if results.iter().any(|c| !c.finished.complete) {
        notes.push(
            "note: stopped by Ctrl-C; the figures are of the part that was replayed, without \
             ratios"
                .to_owned(),
        );
    }
    notes
}

/// The time of the native run beside that of a column without huge pages, where both are of this
/// computer: what is above 25 % off is said to be.
pub fn native_time(trace: &Trace, machine: &Machine, results: &[Column<'_>]) -> Vec<String> {
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_here = machine.name == "host" && trace.header.host_kernel == here.trim();
    let (Some(native), Some(column)) = (trace.header.native, results.iter().find(base_pages))
    else {
        return Vec::new();
    };
    if !is_here || !native.thp_off {
        return Vec::new();
    }
    let cycles = |name| column.finished.counters.get(name).unwrap_or(0) as f64;
    let seconds = |cycles: f64| cycles / *machine.clock_hz as f64;
    let own = ["estimate_program", "estimate_stlb", "estimate_walk"];
    let program = seconds(own.into_iter().map(cycles).sum());
    let all = seconds(cycles(TIME));
    let measured = [native.user_us, native.system_us].map(|us| us as f64 / 1e6);
    let took: f64 = measured.iter().sum();
    let off = all / took - 1.0;
    let mut lines = vec![format!(
        "time:  natively {took:.3} s of CPU ({:.3} of them the system's); modelled {all:.3} s \
         ({:.3}): {:+.0} %",
        measured[1],
        all - program,
        off * 100.0
    )];
    if off.abs() > TIME_OFF {
        let hangs = hangs_on(&column.finished, all * *machine.clock_hz as f64);
        lines.push(format!(
            "       that is more than {:.0} % off: take ratios of this program with care \
             (docs/truth.md){hangs}",
            TIME_OFF * 100.0
        ));
    }
    lines
}

/// The constant by which most of a time was charged.
fn hangs_on(finished: &Finished, cycles: f64) -> String {
    let most = finished.charges.iter().filter(|(key, _)| *key != WAITING).max_by_key(|c| c.1);
    most.filter(|(_, charged)| *charged > 0).map_or_else(String::new, |(key, charged)| {
        format!(
            "\n       most of it, {:.0} %, is charged by {key}",
            charged as f64 * 100.0 / cycles.max(1.0)
        )
    })
}

/// Whether a column came to its end and used no huge pages.
fn base_pages(column: &&Column<'_>) -> bool {
    let used = |name| column.finished.counters.get(name).unwrap_or(0);
    column.finished.complete && HUGE.iter().all(|name| used(name) == 0)
}

/// The native run, which has base pages alone, beside a column that used no others.
fn native(trace: &Trace, results: &[Column<'_>], files: FileState) -> Vec<String> {
    let Some(native) = trace.header.native else { return Vec::new() };
    let faults = native.minor_faults as i64;
    let Some(column) = results.iter().find(base_pages) else {
        let taken = number::grouped(faults);
        return vec![format!(
            "check: natively {taken} page faults with 4 KiB pages; to compare, replay with \
             thp=never"
        )];
    };
    let simulated = column.finished.counters.get("minor_faults").unwrap_or(0);
    if files == FileState::Cold {
        let major = column.finished.counters.get("pgmajfault").unwrap_or(0);
        return vec![format!(
            "check: natively {} page faults, {} of them waited for a disk; simulated, with cold \
             files, {} and {}",
            number::grouped(faults + native.major_faults as i64),
            number::grouped(native.major_faults as i64),
            number::grouped(simulated + major),
            number::grouped(major)
        )];
    }
    let huge = if native.thp_off { "" } else { " (with huge pages)" };
    let mut lines = vec![format!(
        "check: the same program run natively took {} page faults{huge}; simulated {} ({})",
        number::grouped(faults),
        number::grouped(simulated),
        number::percent_off(simulated, faults)
    )];
    if !trace.partial && (simulated - faults).abs() as f64 > FAULTS_OFF * faults as f64 {
        lines.push(format!("       {}", faults_off(&trace.totals, simulated < faults)));
    }
    lines
}

/// Why a replay may have other faults than the native run.
fn faults_off(totals: &Totals, fewer: bool) -> &'static str {
    if fewer && totals.forks > 0 {
        "that is more than 5 % off: a native run may count child processes, a replay never does"
    } else if totals.threads > 1 {
        "that is more than 5 % off: the recording or the replay misses something, or the threads' \
         own races do; record again to see"
    } else {
        "that is more than 5 % off: the recording or the replay misses something"
    }
}
