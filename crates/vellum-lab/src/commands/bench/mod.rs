//! `vellum bench`: the library on this computer, beside its peers.
//!
//! Each benchmark is a section: what is compared, the table, the conditions, the targets that were
//! met, and what it means. A section is printed as soon as it is done, so that Ctrl-C keeps the
//! rest. The end lists every row that is behind its best peer. Targets are judged, not asserted: a
//! shared computer misses some because of its load, and a benchmark that fails for that teaches
//! people to ignore it. Counts of instructions can be asserted with `--ceilings`.

mod sections;

use std::fmt::Write as _;
use std::io;
use std::process::Command;
use std::time::Instant;

use serde::Serialize;
use vellum_host::bench::behind::{Behind, behind};
use vellum_host::bench::measure::Effort;
use vellum_host::bench::{
    Report, Row, clear, fault, frames, frames::fragment, growth, instructions, measure::conditions,
    objects, scaling, space, targets, trie,
};

use self::sections::{SECTIONS, Section, reading};
use super::output::{print, print_json};
use super::screen;
use crate::cli::BenchArgs;
use crate::error::LabError;
use crate::progress::Progress;
use crate::report::{behind as ahead_of_us, bench as tables};
use crate::{interrupt, text};

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    benchmarks: &'a [Row],
    behind: &'a [Behind],
}

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<(), LabError> {
    let sections = chosen(&args.benchmarks)?;
    let threads = threads(args.threads.as_deref())?;
    let all = sections.len() == SECTIONS.len();
    let effort = match (args.quick, all) {
        (true, _) => Effort::QUICK,
        (false, true) => Effort::SHORT,
        (false, false) => Effort::FULL,
    };
    let effort = Effort { stop: interrupt::requested, ..effort };
    interrupt::install();
    let began = Instant::now();
    if !args.json {
        print(&head(&sections, effort, &threads))?;
    }
    let progress = Progress::new(sections.iter().map(|s| s.seconds).sum(), "measuring");
    let mut whole = Report::default();
    let mut judged = Vec::new();
    for (i, section) in sections.iter().enumerate() {
        if interrupt::requested() {
            break;
        }
        progress.say(section.name);
        let report = measure(section.name, effort, &threads)
            .map_err(|e| LabError::failed(format_args!("bench {}: {e}", section.name)))?;
        progress.add(section.seconds);
        let verdicts = targets::judge(section.name, &report);
        if !args.json {
            progress.suspend(|| print(&body(i + 1, section, &report, &verdicts)))?;
        }
        judged.extend(verdicts);
        whole.benchmarks.extend(report.benchmarks);
    }
    drop(progress);
    let behind = behind(&whole.benchmarks);
    if args.json {
        print_json(&Printed { benchmarks: &whole.benchmarks, behind: &behind })?;
    } else {
        print(&ahead_of_us::list(&whole.benchmarks, &behind))?;
        print(&foot(&judged, began.elapsed().as_secs_f64()))?;
    }
    if args.ceilings && !interrupt::requested() { within_ceilings(&whole) } else { Ok(()) }
}

/// One row of the instruction counts, for callgrind to watch.
pub fn count_row(row: usize) -> Result<(), LabError> {
    let operations = instructions::count::once(row).map_err(LabError::usage)?;
    print(&format!("operations: {operations}\n"))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Section>, LabError> {
    let known = || SECTIONS.iter().map(|s| s.name).chain(["all"]);
    for name in names {
        if !known().any(|k| k == name) {
            return Err(LabError::usage(format_args!(
                "there is no benchmark `{name}`{}; there are {}",
                text::nearest(name, known())
                    .map(|n| format!(" (did you mean `{n}`?)"))
                    .unwrap_or_default(),
                known().collect::<Vec<_>>().join(", "),
            )));
        }
    }
    let all = names.is_empty() || names.iter().any(|n| n == "all");
    Ok(SECTIONS.iter().filter(|s| all || names.iter().any(|n| n == s.name)).collect())
}

/// `1,2`: each from 1 to the number of cores.
fn threads(list: Option<&str>) -> Result<Vec<usize>, LabError> {
    let cores = conditions::cores();
    let Some(list) = list else {
        return Ok(if cores > 1 { vec![1, 2] } else { vec![1] });
    };
    let mut counts = Vec::new();
    for word in list.split(',') {
        let n = word.trim().parse().ok().filter(|&n: &usize| n > 0).ok_or_else(|| {
            LabError::usage(format_args!(
                "--threads takes numbers from 1 on, as in 1,2; `{word}` is none"
            ))
        })?;
        if n > cores.min(vellum_host::machine::MAX_HOST_CPUS) {
            return Err(LabError::usage(format_args!(
                "--threads {n}: this computer has {cores} core{}, and more threads would measure \
                 its scheduler",
                if cores == 1 { "" } else { "s" }
            )));
        }
        if !counts.contains(&n) {
            counts.push(n);
        }
    }
    counts.sort_unstable();
    Ok(counts)
}

fn measure(name: &str, effort: Effort, threads: &[usize]) -> io::Result<Report> {
    match name {
        "frames" => frames::run(effort, threads),
        "fault" => fault::run(effort, threads),
        "clear" => clear::run(effort),
        "space" => space::run(effort),
        "fragment" => fragment::run(effort),
        "growth" => growth::run(effort),
        "threads" => scaling::run(effort),
        "objects" => objects::run(effort),
        "trie" => trie::run(effort),
        _ => instructions::run(effort, &|row| {
            let mut again = Command::new(std::env::current_exe()?);
            again.args(["count-row", &row.to_string()]);
            Ok(again)
        }),
    }
}

fn load() -> String {
    conditions::load().map_or("load average unknown".to_owned(), |[one, five]| {
        format!("load average {one:.2} (1 minute), {five:.2} (5 minutes)")
    })
}

fn head(sections: &[&Section], effort: Effort, threads: &[usize]) -> String {
    let seconds: u64 = sections.iter().map(|s| s.seconds).sum();
    let counts = threads.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let how = if effort.shrink > 1 {
        "quick: a look whether it runs; the figures mean nothing".to_owned()
    } else if effort.repetitions == Effort::SHORT.repetitions {
        format!("about {seconds} s, Ctrl-C keeps results")
    } else {
        format!("{} repetitions, Ctrl-C keeps results", effort.repetitions)
    };
    let mut out = format!(
        "vellum bench: the library on this computer, beside its peers\n{how}\nhost: {} | threads \
         {counts}\n{} at the start\n",
        screen::host(60),
        load()
    );
    if cfg!(debug_assertions) {
        out.push_str("built with debug assertions: slower than what it would be\n");
    }
    out.push_str(
        "figures are medians; spread is third minus first quartile; ratio is ours over theirs\n\n",
    );
    out
}

fn body(number: usize, section: &Section, report: &Report, judged: &[targets::Judged]) -> String {
    let mut out = format!("{number}. {}   (bench {})\n", section.title, section.name);
    out.push_str(&tables::paragraph(section.compares));
    out.push_str(&match section.name {
        "growth" => tables::growth(report),
        "trie" => tables::trie(report),
        _ => tables::table(report),
    });
    for note in &report.notes {
        out.push_str(&tables::paragraph(&format!("note: {note}")));
    }
    out.push_str(&tables::verdicts(judged));
    for sentence in reading(section.name, report) {
        out.push_str(&tables::paragraph(&sentence));
    }
    out.push('\n');
    out
}

fn foot(judged: &[targets::Judged], seconds: f64) -> String {
    let met = judged.iter().filter(|j| j.is_met()).count();
    let mut out = String::new();
    if !judged.is_empty() {
        let _ = writeln!(out, "{met} of {} targets met by all their rows", judged.len());
    }
    let _ = writeln!(out, "{} at the end; took {seconds:.0} s", load());
    out
}

/// Fails if a count is above its ceiling, or if there is none to be held against one.
fn within_ceilings(report: &Report) -> Result<(), LabError> {
    let judged = targets::judge("instructions", report);
    if judged.is_empty() {
        return Err(LabError::failed(
            "--ceilings: no instructions were counted; that takes `bench instructions`, and \
             valgrind",
        ));
    }
    let high: Vec<String> = judged
        .iter()
        .filter(|j| !j.is_met())
        .flat_map(|j| j.verdicts.iter().map(|v| format!("{} ({})", j.says, v.value)))
        .collect();
    if high.is_empty() {
        return Ok(());
    }
    Err(LabError::failed(format_args!("above a ceiling of instructions: {}", high.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fixed_line_is_wider_than_the_page() {
        let all: Vec<&Section> = SECTIONS.iter().collect();
        let mut text = head(&all, Effort::SHORT, &[1, 2])
            + &head(&all, Effort::QUICK, &[1])
            + &foot(&[], 90.0);
        for (i, s) in SECTIONS.iter().enumerate() {
            text += &body(i + 1, s, &Report::default(), &[]);
        }
        assert!(text.lines().all(|l| l.chars().count() <= crate::report::table::WIDTH), "{text}");
    }

    #[test]
    fn a_name_beside_all_is_looked_at_as_well() {
        let count =
            |names: &[&str]| chosen(&names.iter().map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(count(&["frames", "all"]).map(|s| s.len()), Ok(SECTIONS.len()));
        assert_eq!(count(&["frames", "clear", "frames"]).map(|s| s.len()), Ok(2));
        assert!(count(&["all", "farmes"]).is_err_and(|e| e.to_string().contains("`frames`?")));
    }

    /// A gate that holds nothing is no gate.
    #[test]
    fn ceilings_without_a_count_are_an_error() {
        let e = within_ceilings(&Report::default()).expect_err("nothing was counted").to_string();
        assert!(e.contains("no instructions were counted"), "{e}");
    }

    #[test]
    fn a_run_of_all_is_promised_in_two_minutes() {
        assert!(SECTIONS.iter().map(|s| s.seconds).sum::<u64>() <= 120);
    }

    #[test]
    fn numbers_of_threads_are_sorted_and_not_doubled() {
        assert_eq!(threads(Some("1,1")).unwrap(), [1]);
        assert!(
            threads(Some("0")).is_err()
                && threads(Some("")).is_err()
                && threads(Some("1;2")).is_err()
        );
        assert!(threads(Some("4096")).is_err());
    }
}
