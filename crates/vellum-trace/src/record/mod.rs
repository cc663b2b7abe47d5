//! Recording a program: once natively for its figures, once under the recorder for its accesses.
//!
//! A command may run several programs: a shell its pipe, a driver its compiler, a script that picks
//! a version the version. Both runs follow all of them by ptrace. The native run says which there
//! are and what each costs; then one is chosen ([`Choice`]), and in the second run QEMU takes its
//! place when it is executed, with its arguments, environment, directory and descriptors. All
//! others run natively, so pipes stay as they are.
//!
//! The native run comes first, with transparent huge pages off for the processes, so that its count
//! of minor faults is one of 4 KiB pages and can be held against a simulation of `thp=never`. Its
//! output goes nowhere; a program with side effects has them twice. Standard input is given to both
//! runs: a file is rewound, a pipe is copied to a temporary file first.
//!
//! The trace is written beside its final name and renamed when its program is over, however that
//! ended: what a killed program leaves is a trace up to its last whole block.
mod error;
mod find;
mod input;
mod native;
mod output;
mod plain;
mod process;
mod program;
mod recording;
pub mod shared;
mod watch;

use crate::build::{Clock, Window};
use crate::header::{Header, NativeRun, Recorder};
use crate::totals::Totals;
use crate::{TraceError, read_totals};
pub use error::RecordError;
use input::Input;
pub use program::{Choice, Program};
use recording::{Recording, Tools, Trace};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
pub use watch::Ended;
use watch::{Recorders, Watch};

/// What to record and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// File to write.
    pub out: PathBuf,
    /// Which of the programs that the command starts.
    pub choice: Choice,
    /// Which accesses to keep; `None` keeps all.
    pub window: Option<Window>,
    /// When to keep accesses, by the clock; `None`: always.
    pub clock: Option<Clock>,
    /// End each run after this time.
    pub stop_after: Option<Duration>,
    /// The signal that ends a run.
    pub stop_signal: i32,
    /// zstd level, [`crate::LEVEL_FAST`] or [`crate::LEVEL_SMALL`].
    pub level: i32,
    /// Run natively first?
    pub native: bool,
    /// Keep the last part of each file's name?
    pub names: bool,
    /// Follow the programs that a program starts? Where the system refuses ptrace, nobody can.
    pub follow: bool,
    /// The recorder plugin, if not where [`record`] looks for it.
    pub plugin: Option<PathBuf>,
}

impl Options {
    /// Records `command` completely into `out`, after a native run.
    pub fn new(command: Vec<OsString>, out: impl Into<PathBuf>) -> Options {
        Options {
            command,
            out: out.into(),
            choice: Choice::Most,
            window: None,
            clock: None,
            stop_after: None,
            stop_signal: libc::SIGTERM,
            level: crate::LEVEL_FAST,
            native: true,
            names: true,
            follow: true,
            plugin: None,
        }
    }
}

/// Who is told of a recording while it goes on, and can end it. The methods are called from other
/// threads too.
pub trait Listener: Sync {
    /// Has somebody asked to stop?
    fn stopped(&self) -> bool {
        false
    }
    /// A line for whoever waits.
    fn say(&self, _line: &str) {}
    /// So many accesses have been recorded in so much time.
    fn progress(&self, _accesses: u64, _elapsed: Duration) {}
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Listener for Silent {}

/// What a recording gave.
#[derive(Debug)]
pub struct Report {
    /// The traces: one, or with [`Choice::All`] one of each program.
    pub traces: Vec<RecordReport>,
    /// The programs that ran, natively if there was a native run.
    pub programs: Vec<Program>,
    /// Could the programs that the command started be followed?
    pub followed: bool,
    /// Why the recorded run ended.
    pub ended: Ended,
}

/// What is known of one trace.
#[derive(Debug, Clone)]
pub struct RecordReport {
    /// Where it is.
    pub out: PathBuf,
    /// Its program is that one of [`Report::programs`].
    pub program: Option<usize>,
    /// Figures of the native run.
    pub native: Option<NativeRun>,
    /// Exit code of the native run (128 + signal if a signal ended it).
    pub native_code: Option<i32>,
    /// Exit code of the recorded program.
    pub exit_code: i32,
    /// Sums of the trace.
    pub totals: Totals,
    /// Does it end before its program did?
    pub partial: bool,
    /// Size of the trace, bytes.
    pub bytes: u64,
    /// Time under the recorder.
    pub elapsed: Duration,
}

fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> RecordError {
    move |source| RecordError::Io { doing, source }
}

fn code_of(status: std::process::ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn host_text(path: &str) -> String {
    std::fs::read_to_string(path).map(|s| s.trim().to_owned()).unwrap_or_default()
}

/// What is known of the host before anything runs.
fn header(options: &Options) -> Header {
    // SAFETY: sysconf has no preconditions.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let thp = |name: &str| host_text(&format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let window = options.window.map(|w| w.to_string());
    Header {
        recorder: Recorder::Qemu,
        arch: "x86_64".into(),
        page_size: u64::try_from(page_size).unwrap_or(0),
        host_kernel: host_text("/proc/sys/kernel/osrelease"),
        host_thp: thp("enabled"),
        host_thp_defrag: thp("defrag"),
        host_thp_zero_page: thp("use_zero_page"),
        host_thp_shmem: thp("shmem_enabled"),
        window: window.or(options.clock.map(|c| c.to_string())).unwrap_or_default(),
        ..Header::default()
    }
}

/// The exit code of a program, or, where it replaced itself, of the last one in its process.
fn last_code(programs: &[Program], index: usize) -> Option<i32> {
    let first = programs.get(index)?;
    programs[index..].iter().filter(|p| p.pid == first.pid).find(|p| !p.replaced)?.code
}

/// Runs the command natively, then under the recorder, and leaves a trace in `options.out`.
///
/// The plugin is looked for at `options.plugin`, in `VELLUM_RECORDER`, beside the running
/// executable and one directory up.
///
/// # Errors
/// [`RecordError`]; no file is left behind then.
pub fn record(options: &Options, listener: &dyn Listener) -> Result<Report, RecordError> {
    output::check_output(&options.out)?;
    let executable = find::command(&options.command)?;
    let qemu = find::in_path("qemu-x86_64").ok_or(RecordError::NoQemu)?;
    let qemu = std::path::absolute(qemu).map_err(io_error("looking for qemu-x86_64"))?;
    let plugin = find::plugin(options.plugin.as_deref()).ok_or(RecordError::NoPlugin)?;
    let recorders = Recorders::default();
    let header = header(options);
    let tools = Tools { options, listener, qemu, plugin, header, recorders: &recorders };
    let input = if options.native { Input::new()? } else { Input::Inherited };
    let command = || -> Result<Command, RecordError> {
        let mut c = Command::new(find::resolve(&options.command[0])?);
        c.arg0(&options.command[0]).args(&options.command[1..]).stdin(input.stdio()?);
        Ok(c)
    };
    let watch = |native| Watch { options, listener, recorders: &recorders, native };

    let mut followed = options.follow;
    let mut native = None;
    if options.native && followed {
        match native::run(command()?, &watch(true)) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => followed = false,
            result => native = Some(result.map_err(io_error("running the program"))?),
        }
    }
    if !followed {
        cannot_follow(options, listener)?;
    }
    if options.native && !followed {
        let (program, ended) = plain::native(&executable, input.stdio()?, &watch(true))
            .map_err(io_error("running the program"))?;
        native = Some((vec![program], ended));
    }
    if listener.stopped() || matches!(native, Some((_, Ended::Asked))) {
        return Err(RecordError::Interrupted);
    }
    let native = native.map(|(programs, _)| programs);
    let meant = match &native {
        Some(programs) => options.choice.of(programs)?,
        None => None,
    };
    if let (Some(programs), Some(meant)) = (&native, meant) {
        let program = &programs[meant];
        if !find::is_recordable(&program.path) {
            return Err(RecordError::WrongProgram(program.path.clone()));
        }
        if programs.len() > 1 {
            let (name, all) = (program.name(), programs.len());
            listener.say(&format!("recording {name}, number {} of {all} programs", meant + 1));
        }
    }

    let begin = Instant::now();
    let doing = "recording the program";
    let mut run = None;
    if followed {
        let recording = Recording::new(&tools, native.as_deref().map(|p| (p, meant)));
        match native::follow(command()?, recording, &watch(false)) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                cannot_follow(options, listener)?;
                followed = false;
            }
            result => {
                let ((programs, recording), ended) = result.map_err(io_error(doing))?;
                run = Some((programs, recording.traces, ended));
            }
        }
    }
    let (programs, traces, ended) = match run {
        Some(run) => run,
        None => {
            let before = native.as_ref().and_then(|p| p.first());
            let with = (input.stdio()?, &watch(false));
            let (program, trace, ended) =
                plain::record(&tools, before, &executable, with).map_err(io_error(doing))?;
            (vec![program], vec![trace], ended)
        }
    };
    if traces.is_empty() {
        let missing = native.as_ref().zip(meant).map(|(p, i)| p[i].name());
        return Err(match (missing, &options.choice) {
            (Some(name), _) => RecordError::NotAgain(name),
            (None, choice) => match choice.of(&programs) {
                Err(e) => e,
                Ok(_) => RecordError::Stopped { code: 0, trace: None, full: None },
            },
        });
    }
    let mut reports = Vec::new();
    for trace in traces {
        let native = native.as_deref();
        match finish(trace, &programs, native, begin.elapsed()) {
            Ok(report) => reports.push(report),
            // Of several, some may have ended before they touched anything.
            Err(_) if options.choice == Choice::All => {}
            Err(RecordError::Stopped { code, trace, .. }) => {
                let full = match ended {
                    Ended::Unwritable(e) => Some(e),
                    _ => None,
                };
                return Err(RecordError::Stopped { code, trace, full });
            }
            Err(e) => return Err(e),
        }
    }
    Ok(Report { traces: reports, programs: native.unwrap_or(programs), followed, ended })
}

/// Says what cannot be followed, or refuses what needs it.
fn cannot_follow(options: &Options, listener: &dyn Listener) -> Result<(), RecordError> {
    if options.choice != Choice::Most {
        return Err(RecordError::CannotFollow);
    }
    listener.say(&format!(
        "the system refuses ptrace: what this program starts cannot be followed; record such a \
         program by its own command: vellum record -o {} -- PROGRAM ARGS",
        options.out.display()
    ));
    Ok(())
}

/// Gives a trace its name and sums it up.
fn finish(
    trace: Trace,
    programs: &[Program],
    native: Option<&[Program]>,
    elapsed: Duration,
) -> Result<RecordReport, RecordError> {
    let exit_code = last_code(programs, trace.index).unwrap_or(0);
    let stopped =
        |trace: Option<TraceError>| RecordError::Stopped { code: exit_code, trace, full: None };
    if !trace.partial.0.exists() {
        return Err(stopped(None));
    }
    let sums = read_totals(&trace.partial.0).map_err(|e| stopped(Some(e)))?;
    let bytes = std::fs::metadata(&trace.partial.0).map_err(io_error("looking at the trace"))?;
    std::fs::rename(&trace.partial.0, &trace.out).map_err(io_error("naming the trace"))?;
    let natively = native.zip(trace.native);
    Ok(RecordReport {
        out: trace.out,
        program: if native.is_some() { trace.native } else { Some(trace.index) },
        native: natively.map(|(programs, i)| programs[i].native),
        native_code: natively.and_then(|(programs, i)| last_code(programs, i)),
        exit_code,
        totals: sums.totals,
        partial: sums.partial,
        bytes: bytes.len(),
        elapsed,
    })
}
