//! The command line, as clap sees it.
//!
//! Names are those of `docs/`; nothing here computes. Values that need the library to be judged
//! (switches, machines, files) are taken as text and judged in `commands/`, so that every wrong
//! value is answered in the same one-line form.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::repro::EXPERIMENTS;

const ABOUT: &str = "What would another memory system do for your program?";

const EXAMPLES: &str = "\
Without a command: the shipped programs, one screen, under a minute.

Examples:
  vellum record -o my.vt -- PROGRAM ARGS                       record a program once
  vellum run --trace my.vt --machine milan --vs thp=always     4 KiB pages against 2 MiB pages
  vellum run --trace my.vt --machine tiered --vs numa=interleave --vs numa=bind:1
  vellum run --trace my.vt --machine my-machine.toml --json    figures for a script (docs/json.md)
  vellum trace info my.vt                                      memory touched, reuse, TLB pressure
  vellum bench                                                 \
how fast the library is on this computer
  vellum repro colour                                          a published experiment, run again
  vellum calibrate                                             measure this computer, as \
--machine host
  vellum machines                                              what can be simulated
  vellum switches                                              what can be switched

Exit code: 0 done, 1 it failed, 2 it was asked wrongly, 130 stopped by Ctrl-C.";

const RECORD_EXAMPLES: &str = "\
Programs that the command starts are followed, through scripts, pipes and drivers. The one that
takes the most page faults is recorded, the others run as ever. A program that crashes or is killed
leaves a trace up to there; so does Ctrl-C.

Examples:
  vellum record -o sort.vt -- sh -c 'seq 1 200000 | sort -R | tail -1'
  vellum record -o as.vt --process as -- gcc -c my.c           the assembler, not the compiler
  vellum record -o all.vt --follow -- make -B                  all-1.vt, all-2.vt, ...
  vellum record -o www.vt --no-native --stop-after 60s -- python3 -m http.server
  vellum record -o db.vt --after 10s --for 30s --stop INT --stop-after 45s -- my-server";

const RUN_EXAMPLES: &str = "\
The first column is the base: Linux's choices, with the huge pages of the host that was recorded.
Each --vs adds a column: the base with those switches changed, and its ratio to the base. The last
column has the library's own choices. With --as vellum the base has these.

A switch that only --vs names, always with the value that the base has, is at its plain value in the
base (never, off, local, 4), so that there is something to compare with: where the host gives huge
pages always, --vs thp=always shows thp=never against thp=always. Say --set to choose the base
yourself.

Examples:
  vellum run --trace my.vt --machine milan
  vellum run --trace my.vt --machine milan --vs thp=always
  vellum run --trace my.vt --machine westmere-ex --as vellum --set thp=never --vs tlb.batch=off
  vellum run --trace my.vt --machine milan --sweep llc.size=16M,32M,64M
  vellum run --trace my.vt --machine host --cpus 4 --seed 7 --json";

const BENCH_EXAMPLES: &str = "\
Benchmarks:
  frames        the frame allocator, two crates from the registry, a floor
  fault         page faults and what goes with them, the kernel under us
  clear         clearing by every way this processor has, and the library's choice
  space         map, protect, remap, fork, exit and unmap of whole mappings
  fragment      what is left of large pages after a long life
  growth        the same acts with 10 and 100 times as much memory and mappings
  threads       what a second thread in one space is worth
  objects       pages of objects, beside files and memfd of the kernel under us
  trie          what is at each page index, beside ordered maps and a hash table
  instructions  instructions of the hot paths, counted exactly (with valgrind)
  all           all of them, in two minutes; this is the default

Each row is a median, with the spread beside it (third minus first quartile, over the median).
Whether a row meets its target is said, not asserted: the exit code is 0 either way. --ceilings
asserts the ceilings of instruction counts, which are the same on every run.

Examples:
  vellum bench
  vellum bench frames --threads 1
  vellum bench fault growth --json";

const REPRO_EXAMPLES: &str = "\
Each gives one page: what was asked, what was run, published figures beside ours with their ratios,
what it means, and where it does not help. Marks: p predicted, f fitted, g rests on a guess.

Examples:
  vellum repro colour
  vellum repro colour --machine milan
  vellum repro colour --on host    measured, and beside it what --machine host says of the same
  vellum repro --json";

/// What there is to run again, as the experiments themselves say it.
fn repro_help() -> String {
    let lines = EXPERIMENTS.iter().map(|e| format!("  {:<13} {}\n", e.name, e.about));
    format!("Experiments:\n{}\n{REPRO_EXAMPLES}", lines.collect::<String>())
}

/// The whole command line.
#[derive(Parser, Debug)]
#[command(name = "vellum", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// What to do; nothing: the one screen.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a program natively once, then under the recorder, and write its trace
    #[command(after_help = RECORD_EXAMPLES)]
    Record(RecordArgs),
    /// Replay a trace on a simulated machine and print its counters
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Measure the library on this computer, beside its peers
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Run one row of `bench instructions`, for a counter to watch
    #[command(hide = true)]
    CountRow {
        /// The row's number
        row: usize,
    },
    /// Run published experiments again and set our figures beside theirs
    #[command(after_help = repro_help())]
    Repro(ReproArgs),
    /// List the machines that can be simulated
    Machines(MachinesArgs),
    /// Measure this computer: what `--machine host` is from then on
    Calibrate(CalibrateArgs),
    /// List the switches, their values, and what each trades
    Switches(SwitchesArgs),
    /// Look into a trace, or make one from another tool's output
    #[command(subcommand)]
    Trace(TraceCommand),
}

/// `vellum record`.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Of the programs that the command starts, record this one: its number in the order of their
    /// start, or its name [default: the one with the most page faults]
    #[arg(long, value_name = "N|NAME", conflicts_with = "follow")]
    pub process: Option<OsString>,
    /// Record all programs that the command starts, a trace each: FILE-1, FILE-2, ...
    #[arg(long)]
    pub follow: bool,
    /// Leave out SKIP accesses, then keep KEEP (of every PERIOD); suffixes k, M, G; first touches
    /// are always kept
    #[arg(long, value_name = "SKIP,KEEP[,PERIOD]", conflicts_with_all = ["after", "keep"])]
    pub window: Option<String>,
    /// Leave out accesses until this time has passed (250ms, 10s, 2m); first touches are always
    /// kept
    #[arg(long, value_name = "DURATION")]
    pub after: Option<String>,
    /// Keep accesses for so long; later, only first touches
    #[arg(long = "for", value_name = "DURATION")]
    pub keep: Option<String>,
    /// End each run after this time (5 and 5s are five seconds), and keep the trace: for services
    #[arg(long, value_name = "DURATION")]
    pub stop_after: Option<String>,
    /// The signal that ends a run, by name or number
    #[arg(long, value_name = "SIGNAL", default_value = "TERM")]
    pub stop: String,
    /// Skip the native run: the trace then has no native figures to compare with
    #[arg(long)]
    pub no_native: bool,
    /// Leave the names of files out of the trace; otherwise it has the last part of each path
    #[arg(long)]
    pub no_names: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD ARGS")]
    pub command: Vec<OsString>,
}

/// How replay chooses addresses.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// By the library's own placement policy
    #[default]
    Placed,
    /// The addresses of the recorded run
    Recorded,
}

/// Where the files of a trace are when the program begins.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileState {
    /// In memory: they were read before, which costs the program nothing
    #[default]
    Warm,
    /// On the machine's disk
    Cold,
}

/// Whose choices the base column has.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choices {
    /// Those of Linux, with the huge pages of the host that was recorded; the library's own are the
    /// last column
    #[default]
    Linux,
    /// The library's own
    Vellum,
}

/// How the oracle checks a TLB hit.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OracleMode {
    /// By one bit, which every store of an entry keeps right
    #[default]
    Incremental,
    /// By a full walk on each hit: slow, and must agree
    Walk,
}

/// `vellum run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The trace to replay
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// A machine by name (see `vellum machines`) or a machine file
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub machine: String,
    /// Whose choices the first column has
    #[arg(long = "as", value_enum, default_value_t)]
    pub choices: Choices,
    /// Set a switch for every column (see `vellum switches`)
    #[arg(long, value_name = "SWITCH=VALUE")]
    pub set: Vec<String>,
    /// Add a column: the base with these switches changed
    #[arg(long, value_name = "SWITCH=VALUE,...")]
    pub vs: Vec<String>,
    /// A column for each value of a constant of the machine file, the first as the base; all have
    /// the same switches (docs/machine-format.md)
    #[arg(long, value_name = "KEY=V1,V2,...", conflicts_with = "vs")]
    pub sweep: Option<String>,
    /// CPUs of the simulated machine to use; thread t runs on CPU t modulo N [default: as many as
    /// threads, at most the machine's]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpus: Option<usize>,
    /// Seed of everything that is random in the machine
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
    /// Where mappings go
    #[arg(long, value_enum, default_value_t)]
    pub layout: Layout,
    /// Where the program's files are when it begins
    #[arg(long, value_enum, default_value_t)]
    pub files: FileState,
    /// How TLB hits are checked
    #[arg(long, value_enum, default_value_t)]
    pub oracle: OracleMode,
    /// Print JSON instead of a table (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// With --json: add wall-clock figures, which differ from run to run
    #[arg(long, requires = "json")]
    pub timing: bool,
}

/// `vellum bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// What to measure: frames, fault, clear, space, fragment, growth, threads, objects, trie,
    /// instructions or all
    #[arg(value_name = "BENCHMARK")]
    pub benchmarks: Vec<String>,
    /// Print JSON instead of tables (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Measure next to nothing, to see whether it runs
    #[arg(long)]
    pub quick: bool,
    /// Numbers of threads for frames and fault, at most as many as cores [default: 1,2]
    #[arg(long, value_name = "N,...")]
    pub threads: Option<String>,
    /// Exit with 1 if an instruction count is above its ceiling
    #[arg(long)]
    pub ceilings: bool,
}

/// Where an experiment runs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RunOn {
    /// On a simulated machine
    #[default]
    Sim,
    /// On this computer, in real time
    Host,
}

/// `vellum repro`.
#[derive(Args, Debug)]
pub struct ReproArgs {
    /// Which experiments [default: all]
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// A simulated machine by name or file [default: the one an experiment was published for, or
    /// the likeliest]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub machine: Option<String>,
    /// Where to run
    #[arg(long, value_enum, default_value_t)]
    pub on: RunOn,
    /// Seed of everything that is random in the machine [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Print JSON instead of a page (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Print the page as it stands in docs/
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// `vellum machines`.
#[derive(Args, Debug)]
pub struct MachinesArgs {
    /// Show every constant of one machine with its basis and source
    #[arg(value_name = "NAME|FILE.toml")]
    pub machine: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the machine's file, to keep or to change
    #[arg(long, requires = "machine", conflicts_with = "json")]
    pub toml: bool,
}

/// `vellum calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Write the machine file there as well
    #[arg(short, long, value_name = "FILE.toml")]
    pub output: Option<PathBuf>,
}

/// `vellum switches`.
#[derive(Args, Debug)]
pub struct SwitchesArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the page docs/switches.md
    #[arg(long)]
    pub markdown: bool,
}

/// `vellum trace ...`.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Memory touched, reuse and TLB pressure of a trace
    Info {
        /// The trace
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Turn the output of `valgrind --tool=lackey --trace-mem=yes` into a trace
    ImportLackey {
        /// Lackey's text, `-` for standard input
        input: PathBuf,
        /// The trace to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}
