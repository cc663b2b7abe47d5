//! `vellum run`: one trace on one machine, a column per variant.

use serde_json::json;
use vellum_sim::file::Machine;

use super::machines;
use super::output::{print, print_json};
use crate::cli::{Choices, FileState, RunArgs};
use crate::error::LabError;
use crate::experiment::{Column, Effort, Experiment, Trace, cpus};
use crate::interrupt;
use crate::progress::Progress;
use crate::report::{GROUPS, SCREEN, json, number, table};
use crate::switches::{self, VELLUM, Variant};

/// A difference in faults beyond this deserves a flag: 5 %.
const FAULTS_OFF: f64 = 0.05;

/// A difference in time beyond this does: 25 %.
const TIME_OFF: f64 = 0.25;

/// Counters of a replay that used huge pages.
const HUGE: [&str; 4] =
    ["thp_fault_alloc", "thp_zero_page_fault", "thp_collapse_alloc", "thp_file_mapped"];

/// Replays and prints.
pub fn run(args: &RunArgs) -> Result<(), LabError> {
    let machine = machines::find(&args.machine)?;
    let trace = Trace::open(&args.trace)?;
    let columns = switches::columns(args.choices, &trace.header, &args.set, &args.vs)?;
    let experiment = Experiment {
        trace: &trace,
        machine: &machine,
        columns: &columns,
        cpus: args.cpus,
        seed: args.seed,
        layout: args.layout,
        files: args.files,
        oracle: args.oracle,
    };
    interrupt::install();
    let progress = Progress::new(trace.accesses() * columns.len() as u64, &trace.program());
    let results = experiment.run(&progress)?;
    drop(progress);
    if results.is_empty() {
        return Err(LabError::failed("stopped before anything was replayed"));
    }
    let mut effort = Effort::default();
    results.iter().for_each(|c| effort.add(&c.finished));

    if args.json {
        let shown: Vec<json::Column<'_>> = results
            .iter()
            .map(|c| json::Column {
                variant: c.variant,
                counters: &c.finished.counters,
                complete: c.finished.complete,
            })
            .collect();
        let mut doc = json::document(&machine.name, args.seed, &shown, trace.native().as_ref());
        doc.insert("partial".to_owned(), trace.partial.into());
        if args.timing {
            let seconds: Vec<f64> = results.iter().map(|c| c.finished.took.as_secs_f64()).collect();
            doc.insert(
                "timing".to_owned(),
                json!({ "cpu_seconds": seconds, "accesses": effort.accesses }),
            );
        }
        return print_json(&doc);
    }

    let used = cpus(args.cpus, &machine, &trace.totals)?;
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
    let shown = table_columns(&results);
    let verdict = table::verdict(SCREEN, &shown);
    if !verdict.is_empty() {
        out.push_str(&verdict);
        out.push('\n');
    }
    out.push_str(&table::full(GROUPS, &shown));
    out.push('\n');
    if args.choices == Choices::Linux {
        out.push_str(&legend(&columns));
    }
    let time = native_time(&trace, &machine, &results);
    for line in notes(&trace, &results, args.files).iter().chain(&time) {
        out.push_str(line);
        out.push('\n');
    }
    out.push_str(&effort.line());
    out.push('\n');
    print(&out)
}

/// Whose choices the columns have.
fn legend(columns: &[Variant]) -> String {
    let (Some(base), Some(last)) = (columns.first(), columns.last()) else { return String::new() };
    let huge = ["thp", "zero.huge", "object.huge"].map(|name| format!("{name}={}", base.get(name)));
    let own = if last.name == VELLUM { "vellum: this library's own choices\n" } else { "" };
    format!("base: Linux's choices, with {}\n{own}", huge.join(", "))
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
            "note: {} of {} accesses kept; cycles of program and walks are estimated for the whole",
            number::scaled(trace.totals.accesses() as i64),
            number::scaled(trace.totals.recorded_accesses() as i64),
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
    let program = seconds(cycles("cycles_program") + cycles("cycles_walk"));
    let all = seconds(cycles("cycles_total"));
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
        lines.push(format!(
            "       that is more than {:.0} % off: take ratios of this program with care \
             (docs/truth.md)",
            TIME_OFF * 100.0
        ));
    }
    lines
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
        lines.push(
            if trace.totals.threads > 1 {
                "       that is more than 5 % off: the recording or the replay misses something, \
                 or the threads' own races do; record again to see"
            } else {
                "       that is more than 5 % off: the recording or the replay misses something"
            }
            .to_owned(),
        );
    }
    lines
}
