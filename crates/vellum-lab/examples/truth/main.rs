//! How true the lab's predictions are on this computer: small programs, measured and predicted.
//!
//! `scripts/truth` builds and starts it. Each program of `scripts/truth-programs` runs natively
//! with huge pages never and always, in pairs. It is recorded once, and the recording is replayed
//! on fresh calibrations of this host. No calibration uses any of the programs.

mod cases;
mod native;
mod predict;
mod report;
mod statistics;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Map, Value};
use vellum_lab::shipped;
use vellum_sim::file::Machine;

use cases::{CASES, Case};
use native::Times;
use predict::Modelled;
use report::{Row, Setting};

/// Measures how true the lab's predictions of huge pages are on this computer
#[derive(Parser, Debug)]
#[command(name = "scripts/truth")]
struct Args {
    /// Pairs of native runs for each program, at least 6
    #[arg(long, default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u64).range(statistics::FEWEST as u64..=999))]
    pairs: u64,
    /// Calibrations to replay on
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    calibrations: u64,
    /// Replay on this machine in place of calibrations
    #[arg(long, value_name = "NAME|FILE.toml")]
    machine: Option<String>,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Keep recordings, measured times and calibrations there, and use recordings that are there
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Measure nothing: use the times, and the calibrations as far as there are any, in the folder
    /// of --keep
    #[arg(long, requires = "keep")]
    replay_only: bool,
    /// Write docs/truth.md
    #[arg(long)]
    page: bool,
    /// End with code 1 if a goal is missed
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(met) if met || !args.check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("truth: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The folder for recordings; it goes away with the value unless it was asked for.
struct Folder {
    path: PathBuf,
    kept: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn folder(keep: Option<&Path>) -> Result<Folder, String> {
    let ours = std::env::temp_dir().join(format!("vellum-truth-{}", std::process::id()));
    let path = keep.map_or(ours, Path::to_owned);
    std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Folder { path, kept: keep.is_some() })
}

/// Does everything; whether all goals are met.
fn run(args: &Args) -> Result<bool, String> {
    if args.page && (!args.only.is_empty() || args.machine.is_some()) {
        return Err("--page writes down a whole run: leave out --only and --machine".to_owned());
    }
    native::check()?;
    let chosen = chosen(&args.only)?;
    let root = shipped::home().map_err(|e| e.to_string())?;
    let work = folder(args.keep.as_deref())?;
    vellum_lab::interrupt::install();

    let (times, machines) = measured(args, &chosen, &root, &work.path)?;
    let mut rows = Vec::new();
    for (case, times) in chosen.iter().zip(&times) {
        said(format_args!("{}: replaying", case.name))?;
        let row = row(case, times, &trace(&work.path, case), &machines)?;
        said(format_args!(
            "{}: measured {:.3}, predicted {:.3}",
            case.name, row.measured.value, row.predicted.value
        ))?;
        rows.push(row);
    }

    let goals = report::goals(&rows);
    println!("{}\n{}", report::table(&rows), report::summary(&goals));
    let misses = report::misses(&rows);
    if !misses.is_empty() {
        println!("what misses:\n{misses}");
    }
    let pairs = times.iter().map(|t| t.never.len()).min().unwrap_or(0);
    let setting = setting(args, pairs);
    if args.only.is_empty() && args.machine.is_none() {
        // For the first screen; without a cache folder it says nothing of this.
        let _ = vellum_lab::calibrate::keep_truth(&report::line(&rows, &setting.day));
    }
    if args.page {
        let page = root.join("docs/truth.md");
        std::fs::write(&page, report::page(&rows, &setting))
            .map_err(|e| format!("{}: {e}", page.display()))?;
    }
    Ok(goals.iter().all(|g| g.met))
}

/// Says what is done next, unless Ctrl-C was pressed.
fn said(what: std::fmt::Arguments<'_>) -> Result<(), String> {
    if vellum_lab::interrupt::requested() {
        return Err("stopped".to_owned());
    }
    eprintln!("truth: {what}");
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<Case>, String> {
    if let Some(unknown) = only.iter().find(|name| CASES.iter().all(|c| c.name != **name)) {
        let names: Vec<&str> = CASES.iter().map(|c| c.name).collect();
        return Err(format!("there is no program `{unknown}`; there are {}", names.join(", ")));
    }
    let wanted = |c: &&Case| only.is_empty() || only.iter().any(|name| name == c.name);
    Ok(CASES.iter().filter(wanted).copied().collect())
}

fn trace(work: &Path, case: &Case) -> PathBuf {
    work.join(case.name).with_extension("vt")
}

/// The native times, the machines to replay on, and a recording of each program where there is none
/// yet. The first calibration comes before the programs, the last after them, and others between
/// them: a computer that others use too is not the same all the time.
fn measured(
    args: &Args,
    chosen: &[Case],
    root: &Path,
    work: &Path,
) -> Result<(Vec<Times>, Vec<Machine>), String> {
    let file = work.join("measured.json");
    let mut known: Map<String, Value> = match std::fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?,
        Err(_) => Map::new(),
    };
    let (mut all, mut machines) = (Vec::new(), Vec::new());
    for (n, case) in chosen.iter().enumerate() {
        while due(args, machines.len(), chosen.len()).is_some_and(|at| at <= n) {
            machines.push(calibrated(args, machines.len(), work)?);
        }
        let program = cases::compile(root, case.program, work)?;
        if !args.replay_only {
            said(format_args!("{}: {} pairs of native runs", case.name, args.pairs))?;
            let times = native::pairs(&program, case, args.pairs as usize)?;
            known.insert(case.name.to_owned(), times.to_json());
            std::fs::write(&file, Value::Object(known.clone()).to_string())
                .map_err(|e| format!("{}: {e}", file.display()))?;
        }
        let times = known.get(case.name).and_then(Times::from_json);
        all.push(times.ok_or_else(|| {
            format!(
                "{} has no times of {}; measure without --replay-only",
                file.display(),
                case.name
            )
        })?);
        let trace = trace(work, case);
        if !trace.exists() {
            said(format_args!("{}: recording", case.name))?;
            predict::recorded(&program, case, &trace)?;
        }
    }
    if let Some(name) = &args.machine {
        return Ok((all, vec![predict::machine(name)?]));
    }
    while due(args, machines.len(), chosen.len()).is_some() {
        machines.push(calibrated(args, machines.len(), work)?);
    }
    Ok((all, machines))
}

/// Before which program the next calibration is made, after `made` of them.
fn due(args: &Args, made: usize, programs: usize) -> Option<usize> {
    let all = args.calibrations as usize;
    let wanted = args.machine.is_none() && made < all;
    wanted.then(|| (made * programs).checked_div(all - 1).unwrap_or(0))
}

fn calibrated(args: &Args, made: usize, work: &Path) -> Result<Machine, String> {
    let file = work.join(format!("calibration-{}.toml", made + 1));
    if args.replay_only && file.exists() {
        return Machine::load(&file).map_err(|e| e.to_string());
    }
    said(format_args!("calibration {} of {}", made + 1, args.calibrations))?;
    predict::calibrated(&file)
}

fn row(case: &Case, times: &Times, trace: &Path, machines: &[Machine]) -> Result<Row, String> {
    let modelled: Vec<Modelled> =
        machines.iter().map(|m| predict::replayed(trace, m)).collect::<Result<_, _>>()?;
    let of = |pick: fn(&Modelled) -> f64| modelled.iter().map(pick).collect::<Vec<f64>>();
    Ok(Row {
        case: *case,
        measured: times.ratio(),
        predicted: statistics::of_range(&of(|m| m.always / m.never)),
        native: Modelled {
            never: statistics::median(&times.never),
            always: statistics::median(&times.always),
        },
        modelled: Modelled {
            never: statistics::median(&of(|m| m.never)),
            always: statistics::median(&of(|m| m.always)),
        },
    })
}

/// Where and when this is.
fn setting(args: &Args, pairs: usize) -> Setting {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|l| l.starts_with(key)).and_then(|l| l.split_once(':'));
        line.map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cpu = read("/proc/cpuinfo");
    // What follows the number is the builder's own.
    let release = read("/proc/sys/kernel/osrelease");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let virtual_machine = if native::returns_free_memory() {
        ", a virtual machine that gives free memory back to its host"
    } else if cpu.contains(" hypervisor") {
        ", a virtual machine"
    } else {
        ""
    };
    let day = std::process::Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    Setting {
        computer: format!(
            "{} (model {}), {cpus} CPUs{virtual_machine}, {} of memory, Linux {}",
            field(&cpu, "model name"),
            field(&cpu, "model\t"),
            field(&read("/proc/meminfo"), "MemTotal"),
            release.split('-').next().unwrap_or_default().trim(),
        ),
        day: day.map_or_else(
            |_| "an unknown day".to_owned(),
            |o| String::from_utf8_lossy(&o.stdout).trim().to_owned(),
        ),
        pairs,
        machine: match &args.machine {
            Some(name) => format!("the machine `{name}`"),
            None => format!("{} fresh calibrations of this computer", args.calibrations),
        },
    }
}
