//! What a recording has to say when it is over.

use vellum_trace::record::{Ended, Program, RecordReport, Report};
use vellum_trace::{Totals, info};

use crate::cli::RecordArgs;
use crate::pasted;
use crate::report::number;
use crate::report::table::WIDTH;
use crate::text::wrapped;

/// In front of the list of programs.
const OTHERS: &str = "not recorded: ";
/// A blank at which no line is broken.
const TOGETHER: char = '\u{1f}';

/// So many names of other programs are told.
const NAMED: usize = 8;

/// All of it, what matters most first.
pub(super) fn lines(report: &Report, args: &RecordArgs) -> Vec<String> {
    let mut lines = Vec::new();
    for trace in &report.traces {
        lines.push(summary(trace));
        lines.extend(native(trace));
        lines.extend(notes(trace, report));
    }
    lines.extend(others(report, args));
    let how = match &report.ended {
        Ended::Asked => Some("on request"),
        Ended::Clock => Some("when its time was over"),
        _ => None,
    };
    lines.extend(how.map(|how| format!("note: the program was ended {how}; the trace is kept")));
    lines.extend(next(report));
    lines
}

/// `my.vt: 61.2 M accesses (12.1 M/s), 311 MiB touched, 1 thread, 512 calls; 21.3 MiB`
fn summary(trace: &RecordReport) -> String {
    let t = &trace.totals;
    let accesses = t.recorded_accesses();
    let rate = accesses as f64 / trace.elapsed.as_secs_f64().max(1e-9);
    format!(
        "{}: {} accesses ({}/s), {} touched, {} thread{}, {} calls; {}",
        shown(trace),
        number::scaled(accesses as i64),
        number::scaled(rate as i64),
        number::bytes(t.touched_pages as i64 * 4096),
        t.threads.max(1),
        if t.threads > 1 { "s" } else { "" },
        number::grouped(t.calls as i64),
        number::bytes(trace.bytes as i64),
    )
}

fn shown(trace: &RecordReport) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    trace.out.strip_prefix(here).unwrap_or(&trace.out).display().to_string()
}

fn native(trace: &RecordReport) -> Option<String> {
    let n = trace.native?;
    // What executes another program takes its peak with it.
    let peak = match n.peak_rss {
        0 => String::new(),
        peak => format!(", peak RSS {}", number::bytes(peak as i64)),
    };
    Some(format!(
        "natively: {} minor faults, {} major{peak}, {:.2} s user, {:.2} s system",
        number::grouped(n.minor_faults as i64),
        number::grouped(n.major_faults as i64),
        n.user_us as f64 / 1e6,
        n.system_us as f64 / 1e6,
    ))
}

fn notes(trace: &RecordReport, report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if trace.partial {
        lines.push(
            "note: the recording ended before the program; the trace goes to its last whole block"
                .into(),
        );
    }
    match trace.exit_code {
        0 => {}
        code if code > 128 => lines.push(format!(
            "note: signal {} ended the program; the trace is what it did until then",
            code - 128
        )),
        code => lines.push(format!("note: the recorded program exited with code {code}")),
    }
    lines.extend(other_programs(&trace.totals));
    let program = trace.program.and_then(|i| report.programs.get(i));
    if let Some(p) = program.filter(|p| p.children > 0 && report.followed) {
        lines.push(format!(
            "      {} of them ran no other program, and took {} minor faults of their own",
            p.children,
            number::grouped(p.child_faults as i64)
        ));
    }
    let small = info::too_small(&trace.totals, trace.native.as_ref());
    lines.extend(small.map(|why| format!("note: {}: {why}", shown(trace))));
    lines
}

/// The programs that ran beside the recorded one.
fn others(report: &Report, args: &RecordArgs) -> Vec<String> {
    let recorded: Vec<usize> = report.traces.iter().filter_map(|t| t.program).collect();
    let natively = !args.no_native;
    let mut rest: Vec<(usize, &Program)> =
        report.programs.iter().enumerate().filter(|(i, _)| !recorded.contains(i)).collect();
    if rest.is_empty() {
        return Vec::new();
    }
    if natively {
        rest.sort_by_key(|(i, p)| (std::cmp::Reverse(p.native.minor_faults), *i));
    }
    // One of each name, the one with the most faults, and how many more there are.
    let mut named: Vec<(String, Vec<(usize, &Program)>)> = Vec::new();
    for (i, program) in rest {
        match named.iter_mut().find(|(name, _)| *name == program.name()) {
            Some((_, same)) => same.push((i, program)),
            None => named.push((program.name(), vec![(i, program)])),
        }
    }
    let told = named.iter().take(NAMED).map(|(name, same)| {
        let (first, program) = same[0];
        let faults = number::grouped(program.native.minor_faults as i64);
        let faults = if natively { format!(" ({faults} faults)") } else { String::new() };
        let more = match same.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more of that name"),
        };
        format!("{} {name}{faults}{more}", first + 1).replace(' ', &TOGETHER.to_string())
    });
    let mut list = told.collect::<Vec<_>>().join(", ");
    if named.len() > NAMED {
        list += &format!(", {} more names", named.len() - NAMED);
    }
    list += "; --process N or NAME records another, --follow all";
    let lines = wrapped(&list, WIDTH - OTHERS.len()).into_iter().enumerate();
    let indented = lines.map(|(i, line)| {
        let begin = if i == 0 { OTHERS } else { "" };
        format!("{begin:<w$}{}", line.replace(TOGETHER, " "), w = OTHERS.len())
    });
    indented.collect()
}

/// The command that uses the trace, unless it has nothing to say: it is too small, or of a program
/// that only started others.
fn next(report: &Report) -> Option<String> {
    let is_useful = |t: &&RecordReport| {
        let is_chosen = report.followed && t.native.is_some();
        let starts_others = t.totals.execs > 0 || (t.totals.forks > 0 && !is_chosen);
        !starts_others && info::too_small(&t.totals, t.native.as_ref()).is_none()
    };
    let best = report.traces.iter().filter(is_useful).max_by_key(|t| t.totals.touched_pages)?;
    Some(format!(
        "next: {} run --trace {} --machine milan --vs thp=always",
        pasted::command(),
        pasted::path(&best.out)
    ))
}

/// What ran besides the program that was recorded, and is therefore missing.
pub(crate) fn other_programs(t: &Totals) -> Vec<String> {
    let mut lines = Vec::new();
    if t.forks > 0 {
        lines.push(format!(
            "note: the program made {} child process{}; only the program itself is recorded",
            t.forks,
            if t.forks > 1 { "es" } else { "" }
        ));
    }
    if t.execs > 0 {
        lines.push(
            "note: the program replaced itself by another (exec); the recording ends there: \
             record that program itself"
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use vellum_trace::NativeRun;

    #[test]
    fn the_other_programs_are_told_by_name_the_largest_first() {
        use clap::Parser;
        let program = |name: &str, minor_faults| Program {
            path: format!("/bin/{name}").into(),
            native: NativeRun { minor_faults, ..NativeRun::default() },
            ..Program::default()
        };
        let all = [("sh", 10), ("ls", 7), ("cat", 90), ("sh", 30), ("sh", 20)];
        let report = Report {
            traces: Vec::new(),
            programs: all.iter().map(|(name, faults)| program(name, *faults)).collect(),
            followed: true,
            ended: Ended::Itself,
        };
        let words = ["vellum", "record", "-o", "x.vt", "--", "true"];
        let Some(crate::cli::Command::Record(args)) = crate::cli::Cli::parse_from(words).command
        else {
            panic!("a recording");
        };
        let lines = others(&report, &args);
        assert_eq!(
            lines,
            [
                "not recorded: 3 cat (90 faults), 4 sh (30 faults) and 2 more of that name, \
                 2 ls (7 faults);",
                "              --process N or NAME records another, --follow all"
            ]
        );
    }

    #[test]
    fn the_next_command_is_offered_for_a_trace_that_has_something_to_say() {
        let report = |forks, execs, native: bool, followed| {
            let trace = RecordReport {
                out: "x.vt".into(),
                program: None,
                native: native.then(NativeRun::default),
                native_code: None,
                exit_code: 0,
                totals: Totals { touched_pages: 5000, forks, execs, ..Totals::default() },
                partial: false,
                bytes: 0,
                elapsed: Duration::ZERO,
            };
            Report { traces: vec![trace], programs: Vec::new(), followed, ended: Ended::Itself }
        };
        let offers = |forks, execs, native, followed| {
            next(&report(forks, execs, native, followed)).is_some()
        };
        assert!(offers(0, 0, true, true) && offers(0, 0, false, false));
        assert!(offers(3, 0, true, true), "it has the most faults, whatever it starts");
        assert!(!offers(3, 0, false, true), "nobody knows what its children did");
        assert!(!offers(3, 0, true, false), "nor here");
        assert!(!offers(0, 1, true, true), "it became another program");
        let mut small = report(0, 0, true, true);
        small.traces[0].totals.touched_pages = 100;
        assert_eq!(next(&small), None);
    }
}
