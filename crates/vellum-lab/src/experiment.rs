//! One trace, one machine, several columns: each column is a replay of its own.
//!
//! Machines are values, so columns run side by side, two at a time: more would not be faster on
//! small hosts, and each keeps a machine in memory. Results come back in the order of the columns,
//! and a test checks that a column's counts do not depend on the others. Columns that run at one
//! time share one reader of the trace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use vellum_sim::file::Machine;
use vellum_trace::build::Window;
use vellum_trace::{Header, Totals, TraceReader, printable};

use crate::cli::{FileState, Layout, OracleMode};
use crate::error::LabError;
use crate::interrupt;
use crate::progress::Progress;
use crate::replay::events::{Feed, Source};
use crate::replay::{self, Finished};
use crate::report::Counters;
use crate::switches::Variant;

/// Replays running at one time.
const SIDE_BY_SIDE: usize = 2;

/// Accesses of a thread that a window has at least, if a replay is to tell it from a gap.
pub const WINDOW: u64 = replay::GAP as u64;

/// A trace file as far as its header and trailer tell.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Where it is.
    pub path: PathBuf,
    /// Who was recorded.
    pub header: Header,
    /// Sums over all events.
    pub totals: Totals,
    /// Does it end before its program did?
    pub partial: bool,
}

impl Trace {
    /// Reads header and trailer.
    pub fn open(path: &Path) -> Result<Trace, LabError> {
        let header = TraceReader::open(path).map_err(|e| at(path, e))?.header().clone();
        let sums = vellum_trace::read_totals(path).map_err(|e| at(path, e))?;
        let vellum_trace::Sums { totals, partial } = sums;
        Ok(Trace { path: path.to_owned(), header, totals, partial })
    }
    /// Accesses a replay simulates.
    pub fn accesses(&self) -> u64 {
        self.totals.accesses() + self.totals.kernel
    }
    /// The command that was recorded, by its last path component.
    pub fn program(&self) -> String {
        let first = self.header.command.first().map_or("an unnamed program", String::as_str);
        printable(first.rsplit('/').next().unwrap_or(first))
    }
    /// Accesses of a thread at the start of each of the recorder's windows that only make caches
    /// and TLBs warm: half of them, or as many as a last level of 64 MiB has lines
    /// (`docs/trace-format.md`).
    pub fn warm(&self) -> u64 {
        self.kept().map_or(0, |(w, threads)| (w.keep / 2).min(1 << 20) / threads)
    }
    /// Whether a thread's part of a window is too short for a replay to see it begin.
    pub fn windows_are_short(&self) -> bool {
        self.kept().is_some_and(|(w, threads)| w.period.is_some() && w.keep / threads < WINDOW)
    }
    /// The recorder's windows by accesses, and the threads that share each.
    fn kept(&self) -> Option<(Window, u64)> {
        Some((self.header.window.parse().ok()?, self.totals.threads.max(1)))
    }
    /// What the native run said, in our counters' words.
    pub fn native(&self) -> Option<Counters> {
        let n = self.header.native?;
        let mut c = Counters::new();
        c.count("minor_faults", n.minor_faults);
        c.count("major_faults", n.major_faults);
        c.count("peak_rss_bytes", n.peak_rss);
        c.count("user_us", n.user_us);
        c.count("system_us", n.system_us);
        c.count("wall_us", n.wall_us);
        c.count("thp_off", u64::from(n.thp_off));
        Some(c)
    }
}

/// A file that is missing or not what it has to be, with its name in front.
pub fn at(path: &Path, e: impl std::fmt::Display) -> LabError {
    LabError::usage(format_args!("{}: {e}", path.display()))
}

/// What to replay.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The machine.
    pub machine: &'a Machine,
    /// The machine of each column where a constant of it is swept; else none.
    pub swept: &'a [Machine],
    /// The columns; the first is the base.
    pub columns: &'a [Variant],
    /// CPUs to use; `None`: as many as threads, at most the machine's.
    pub cpus: Option<usize>,
    /// The machine's seed.
    pub seed: u64,
    /// Where mappings go.
    pub layout: Layout,
    /// Where files are.
    pub files: FileState,
    /// How hits are checked.
    pub oracle: OracleMode,
}

/// A column that was replayed, to its end or until Ctrl-C.
#[derive(Debug)]
pub struct Column<'a> {
    /// Its switches.
    pub variant: &'a Variant,
    /// Its replay.
    pub finished: Finished,
}

/// What came of an experiment.
#[derive(Debug)]
pub struct Replayed<'a> {
    /// The columns that were begun, in their order. Ctrl-C leaves the last ones incomplete.
    pub columns: Vec<Column<'a>>,
    /// Why a column failed, if one did: the others are here all the same.
    pub failed: Option<LabError>,
}

impl<'a> Replayed<'a> {
    /// The columns, or why one failed.
    pub fn all(self) -> Result<Vec<Column<'a>>, LabError> {
        self.failed.map_or(Ok(self.columns), Err)
    }
}

/// What the columns took together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// Accesses simulated.
    pub accesses: u64,
    /// TLB hits compared with the tables.
    pub checked: u64,
    /// Frames nobody could reach any more at the end.
    pub lost: i64,
    /// Host CPU time, each column's own added up: speed per core is accesses over this.
    pub took: Duration,
    /// Instruction lines fetched, page walks, page faults: what was simulated beside the accesses.
    pub beside: [i64; 3],
}

/// Accesses a second and core below which a run says what else it had to do.
const GOAL: f64 = 20e6;

impl Effort {
    /// Adds a column's.
    pub fn add(&mut self, f: &Finished) {
        self.accesses += f.accesses;
        self.checked += f.checked;
        self.lost += f.counters.get("frames_lost").unwrap_or(0);
        self.took += f.took;
        for (sum, name) in self.beside.iter_mut().zip(["fetches", "tlb_walks", "minor_faults"]) {
            *sum += f.counters.get(name).unwrap_or(0);
        }
    }
    /// The line at the end of every run, and one more where it was slow.
    pub fn line(&self) -> String {
        use crate::report::number::{grouped, scaled};
        let rate = self.accesses as f64 / self.took.as_secs_f64().max(1e-9);
        let [lines, walks, faults] = self.beside;
        let slow = if rate < GOAL {
            format!(
                "\n         beside {} accesses: {} instruction lines, {} walks, {} faults",
                scaled(self.accesses as i64),
                scaled(lines),
                scaled(walks),
                scaled(faults)
            )
        } else {
            String::new()
        };
        format!(
            "checked: {} TLB hits against the tables, 0 stale; {} frames lost; {} accesses/s a \
             core{slow}",
            grouped(self.checked as i64),
            grouped(self.lost),
            scaled(rate as i64)
        )
    }
}

/// CPUs an experiment uses.
pub fn cpus(wanted: Option<usize>, machine: &Machine, totals: &Totals) -> Result<usize, LabError> {
    let has = *machine.cpus as usize;
    match wanted {
        Some(0) => Err(LabError::usage("--cpus 0: take a number from 1 on")),
        Some(n) if n > has => Err(LabError::usage(format_args!(
            "--cpus {n}: the machine `{}` has {has}; take fewer",
            machine.name
        ))),
        Some(n) => Ok(n),
        None => Ok(usize::try_from(totals.threads).unwrap_or(usize::MAX).clamp(1, has)),
    }
}

impl<'a> Experiment<'a> {
    /// Runs all columns, once each was found to be possible. After Ctrl-C, and once a column has
    /// failed, columns not begun are missing from the answer.
    pub fn run(&self, progress: &Progress) -> Result<Replayed<'a>, LabError> {
        for (i, variant) in self.columns.iter().enumerate() {
            replay::check_config(self.machine(i), &variant.config, self.files)?;
            cpus(self.cpus, self.machine(i), &self.trace.totals)?;
        }
        let path = &self.trace.path;
        let side_by_side =
            SIDE_BY_SIDE.min(std::thread::available_parallelism().map_or(1, usize::from));
        let mut results = Vec::new();
        while results.len() < self.columns.len()
            && !interrupt::requested()
            && results.iter().all(Result::is_ok)
        {
            let first = results.len();
            let group = side_by_side.min(self.columns.len() - first);
            let feed = match TraceReader::open(path) {
                Ok(reader) => Feed::new(reader, group),
                Err(e) => {
                    results.push(Err(at(path, e)));
                    break;
                }
            };
            let column = |n: usize| self.column(first + n, feed.taker(n), progress);
            std::thread::scope(|scope| {
                let others: Vec<_> = (1..group).map(|n| scope.spawn(move || column(n))).collect();
                results.push(column(0));
                results.extend(others.into_iter().map(|other| {
                    other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }));
            });
        }
        let mut replayed = Replayed { columns: Vec::new(), failed: None };
        for (variant, result) in self.columns.iter().zip(results) {
            match result {
                Ok(finished) => replayed.columns.push(Column { variant, finished }),
                Err(e) => _ = replayed.failed.get_or_insert(e),
            }
        }
        Ok(replayed)
    }

    /// The machine of a column.
    pub fn machine(&self, column: usize) -> &'a Machine {
        self.swept.get(column).unwrap_or(self.machine)
    }

    fn column(
        &self,
        column: usize,
        mut source: impl Source,
        progress: &Progress,
    ) -> Result<Finished, LabError> {
        let machine = self.machine(column);
        let path = &self.trace.path;
        let options = replay::Options {
            cpus: cpus(self.cpus, machine, &self.trace.totals)?,
            seed: self.seed,
            layout: self.layout,
            files: self.files,
            oracle: self.oracle,
            config: self.columns[column].config,
            collapse: self.columns[column].collapse,
            folio_ahead: self.columns[column].folio_ahead,
            warm: self.trace.warm(),
        };
        replay::replay(&mut source, machine, &options, progress).map_err(|e| match e {
            LabError::Trace(m) | LabError::Usage(m) => at(path, m),
            LabError::Failed(m) => LabError::failed(format_args!("{}: {m}", path.display())),
            e => e,
        })
    }
}
