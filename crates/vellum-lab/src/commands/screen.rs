//! `vellum` without a command: the shipped programs, each with one question, then the published
//! experiments, on one screen.
//!
//! Every figure is measured here and now. A section is a trace, a machine and three columns: Linux
//! as it was recorded, Linux with another setting, the library's own choices. Sections
//! run one after the other, columns side by side, and each is printed as soon as it is done, so
//! that Ctrl-C keeps the rest. The screen is done within a minute: a section that would take longer
//! than what is left, at the speed measured so far, is named with its command instead. Time is
//! reserved for what follows: a line or two of each experiment beside its published figures, short
//! measurements on this computer, and where these ideas did not help.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::machines;
use super::output::print;
use super::run::{intervals, notes, table_columns};
use crate::cli::{Choices, FileState, Layout, OracleMode};
use crate::error::LabError;
use crate::experiment::{Effort, Experiment, Trace};
use crate::progress::Progress;
use crate::report::{SCREEN, number, table};
use crate::repro::{Context, EXPERIMENTS, summary};
use crate::shipped::{self, TRACES};
use crate::text::wrapped;
use crate::{calibrate, interrupt, pasted, switches};

/// What the programs may take; the rest of the minute is the experiments'.
const BUDGET: Duration = Duration::from_secs(42);
const SEED: u64 = 1;

/// What a table shows, before the first.
const HOW_TO_READ: &str = "\
Each program was recorded once on Linux. A column is a replay of it on a simulated machine: first
with Linux's choices, then with one of them changed, last with those of this library, \"vellum\".
In brackets: the range that the machine's uncertain constants leave. thp=always: pages of 2 MiB.
";

/// One question about one program.
struct Section {
    trace: &'static str,
    title: &'static str,
    machine: &'static str,
    vs: &'static str,
}

const SECTIONS: &[Section] = &[
    Section {
        trace: "sqlite-join.vt",
        title: "A real program",
        machine: "milan",
        vs: "thp=always",
    },
    Section { trace: "sort.vt", title: "Threads", machine: "westmere-ex", vs: "thp=always" },
    Section {
        trace: "python-store.vt",
        title: "Slow memory, a node without CPUs",
        machine: "tiered",
        vs: "numa=bind:1",
    },
];

/// Shows the screen.
pub fn run() -> Result<(), LabError> {
    let began = Instant::now();
    shipped::home()?;
    interrupt::install();
    print(&head())?;

    let mut effort = Effort::default();
    let mut wall = Duration::ZERO;
    let mut left_out = Vec::new();
    let mut shown = 0;
    for section in SECTIONS {
        if interrupt::requested() {
            break;
        }
        let trace = Trace::open(&shipped::trace(section.trace)?)?;
        let vs = [section.vs.to_owned()];
        let columns = switches::columns(Choices::Linux, &trace.header, &[], &vs)?;
        let work = trace.accesses() * columns.len() as u64;
        let expected = match effort.accesses {
            0 => Duration::ZERO,
            done => wall.mul_f64(work as f64 / done as f64),
        };
        if began.elapsed() + expected > BUDGET {
            left_out.push(section);
            continue;
        }
        let machine = machines::find(section.machine)?;
        let experiment = Experiment {
            trace: &trace,
            machine: &machine,
            swept: &[],
            columns: &columns,
            cpus: None,
            seed: SEED,
            files: FileState::Warm,
            layout: Layout::Placed,
            oracle: OracleMode::Incremental,
        };
        let start = Instant::now();
        let progress = Progress::new(work, &trace.program());
        let results = experiment.run(&progress)?.all()?;
        drop(progress);
        wall += start.elapsed();
        if results.is_empty() {
            break;
        }
        results.iter().for_each(|c| effort.add(&c.finished));
        shown += 1;
        let mut out = title(shown, section, &trace, start.elapsed());
        let columns = table_columns(&results);
        out.push_str(&table::verdict(SCREEN, &columns, &intervals(&experiment, &results)));
        out.push_str(&table::section(SCREEN, &columns));
        for note in notes(&trace, &results, FileState::Warm) {
            let _ = writeln!(out, "   {note}");
        }
        out.push('\n');
        print(&out)?;
    }
    if !interrupt::requested() {
        experiments(shown + 1)?;
    }
    print(&foot(&effort, &left_out, &Pasted::here()?))
}

/// Parts 2 to 4: published experiments run again, short measures on this computer, and where the
/// ideas did not help.
fn experiments(first: usize) -> Result<(), LabError> {
    let start = Instant::now();
    let head = |nth: usize, title: &str, took: Duration| {
        let left = format!("{}. {title}", first + nth);
        let right = format!("{:>5.1} s", took.as_secs_f64());
        format!("{left}{right:>w$}\n", w = table::WIDTH.saturating_sub(left.chars().count()))
    };
    let mut summaries = Vec::new();
    for experiment in EXPERIMENTS {
        let machine = machines::find(experiment.machines[0])?;
        summaries
            .push((experiment, (experiment.summary)(&Context { machine: &machine, seed: SEED })?));
    }
    let mut out = head(
        0,
        "Published experiments, run again (vellum repro NAME has the page)",
        start.elapsed(),
    );
    out += &summary::heading("");
    for (experiment, said) in &summaries {
        let _ = writeln!(out, "   {} ({})", said.title, experiment.machines[0]);
        said.gains.iter().for_each(|row| out += &summary::line(row));
    }
    print(&(out + "\n"))?;
    if interrupt::requested() {
        return Ok(());
    }

    let start = Instant::now();
    let mut lines = String::new();
    for experiment in EXPERIMENTS {
        match (experiment.here)() {
            Ok(rows) => rows.iter().for_each(|row| lines += &summary::native(row)),
            Err(why) => {
                for line in
                    wrapped(&format!("{}: not measured, {why}", experiment.name), table::WIDTH - 3)
                {
                    let _ = writeln!(lines, "   {line}");
                }
            }
        }
    }
    print(
        &(head(1, "On this host, for real (vellum repro NAME --on host)", start.elapsed())
            + &lines
            + "\n"),
    )?;

    let mut out =
        format!("{}. Where these ideas did not help\n", first + 2) + &summary::heading("");
    summaries.iter().flat_map(|(_, said)| &said.losses).for_each(|row| out += &summary::line(row));
    out += "   p: predicted from sources that never saw the mechanism; f: on a fitted figure; g: \
            on a guess\n\n";
    print(&out)
}

fn head() -> String {
    let names: Vec<&str> = {
        let mut seen = Vec::new();
        for s in SECTIONS {
            if !seen.contains(&s.machine) {
                seen.push(s.machine);
            }
        }
        seen
    };
    let version = env!("CARGO_PKG_VERSION");
    let version = version.strip_suffix(".0").unwrap_or(version);
    let simulated = format!(" | simulated: {} | seed {SEED} | oracle on", names.join(", "));
    let room = table::WIDTH - "host: ".len() - simulated.chars().count();
    let truth = calibrate::truth().map_or(String::new(), |line| format!("{}\n", true_here(&line)));
    format!(
        "vellum {version}: what would another memory system do for your program?   \
         < 1 minute, Ctrl-C keeps results\n\
         host: {}{simulated}\n{truth}{HOW_TO_READ}\n",
        host(room)
    )
}

/// How true `--machine host` was, in a line of the screen.
fn true_here(line: &str) -> String {
    format!("--machine host: {line}").chars().take(table::WIDTH).collect()
}

/// `1. A real program: sqlite3, 61.2 M accesses, 311 MiB touched          milan   3.1 s`
fn title(number: usize, section: &Section, trace: &Trace, took: Duration) -> String {
    let left = format!(
        "{number}. {}: {}, {} accesses, {} touched",
        section.title,
        trace.program(),
        number::scaled(trace.accesses() as i64),
        number::bytes(trace.totals.touched_pages as i64 * 4096)
    );
    let right = format!("{}  {:>5.1} s", section.machine, took.as_secs_f64());
    format!(
        "{left}{right:>w$}\n",
        w = table::WIDTH.saturating_sub(left.chars().count()).max(right.len() + 2)
    )
}

/// What the commands of the last lines begin with.
struct Pasted {
    command: String,
    traces: String,
    /// Where cargo finds the project, if not here.
    manifest: String,
}

impl Pasted {
    fn here() -> Result<Pasted, LabError> {
        let home = shipped::home()?;
        let at_home = std::env::current_dir().is_ok_and(|here| here == home);
        let manifest = format!(" --manifest-path {}", pasted::path(&home.join("Cargo.toml")));
        Ok(Pasted {
            command: pasted::command(),
            traces: pasted::path(&home.join(TRACES)),
            manifest: if at_home { String::new() } else { manifest },
        })
    }
}

fn foot(effort: &Effort, left_out: &[&Section], pasted: &Pasted) -> String {
    let Pasted { command, traces, manifest } = pasted;
    let mut out = String::new();
    for s in left_out {
        let _ = writeln!(
            out,
            "left out for time:\n  {command} run --trace {traces}/{} --machine {} --vs {}",
            s.trace, s.machine, s.vs
        );
    }
    if effort.accesses > 0 {
        out.push_str(&effort.line());
        out.push('\n');
    }
    let _ = write!(
        out,
        "next: {command} record -o my.vt -- PROGRAM ARGS\n      \
         {command} run --trace my.vt --machine milan --vs thp=always\n      \
         cargo run{manifest} --example embed    put the library in your own kernel\n      \
         {command} --help    the rest\n"
    );
    out
}

/// The host in a few words, in so many columns.
pub(super) fn host(width: usize) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .and_then(|l| l.split_once(':'))
            .map(|(_, v)| v.trim().to_owned())
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name")
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
        .replace("(R)", "")
        .replace("(TM)", "");
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|v| v.split(' ').next().and_then(|n| n.parse::<i64>().ok()))
        .map_or(String::new(), |kib| format!(", {}", number::bytes(kib * 1024)));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let rest = format!(", {cpus} CPU{}{memory}", if cpus > 1 { "s" } else { "" });
    let cpu: String = cpu.chars().take(width.saturating_sub(rest.chars().count())).collect();
    format!("{}{rest}", cpu.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_the_screen_is_wider_than_the_page() {
        let trace = Trace {
            path: std::path::PathBuf::new(),
            header: vellum_trace::Header {
                command: vec!["a-program".to_owned()],
                ..Default::default()
            },
            totals: vellum_trace::Totals {
                loads: 6_120_000_000,
                skipped_accesses: 1_234_000_000_000,
                touched_pages: 999_999,
                ..Default::default()
            },
            partial: true,
        };
        let effort = Effort {
            accesses: 999_000_000,
            checked: 9_999_999_999,
            lost: 0,
            took: Duration::from_secs(55),
            beside: [999_000_000; 3],
        };
        let all: Vec<&Section> = SECTIONS.iter().collect();
        let pasted = Pasted {
            command: "./run".to_owned(),
            traces: TRACES.to_owned(),
            manifest: String::new(),
        };
        let mut text = head() + &foot(&effort, &all, &pasted);
        for (i, s) in SECTIONS.iter().enumerate() {
            text += &title(i + 1, s, &trace, Duration::from_secs(50));
            switches::columns(Choices::Linux, &trace.header, &[], &[s.vs.to_owned()]).unwrap();
            machines::find(s.machine).unwrap();
        }
        for note in notes(&trace, &[], FileState::Warm) {
            text += &format!("   {note}\n");
        }
        assert!(text.lines().all(|l| l.chars().count() <= table::WIDTH), "{text}");
        // Whatever the CPU is called.
        for width in [30, 40, 200] {
            assert!(host(width).chars().count() <= width, "{}", host(width));
        }
        assert!(host(30).len() <= host(200).len() && host(30).contains(" CPU"));
    }
}
