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
mod folio;
mod input;
mod native;
mod options;
mod output;
mod plain;
mod process;
mod program;
mod recording;
mod session;
pub mod shared;
mod watch;

use crate::header::NativeRun;
use crate::totals::Totals;
use crate::{TraceError, read_totals};
pub use error::RecordError;
use error::io_error;
pub use options::{Listener, Options, Progress, Silent};
pub use program::{Choice, Program};
use recording::{Run, Trace};
use session::Session;
use std::path::PathBuf;
use std::time::{Duration, Instant};
pub use watch::Ended;
use watch::Recorders;

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
    let recorders = Recorders::default();
    let mut session = Session::new(options, listener, &recorders)?;
    let native = session.native()?;
    if listener.stopped() || matches!(native, Some((_, Ended::Asked))) {
        return Err(RecordError::Interrupted);
    }
    let native = native.map(|(programs, _)| programs);
    let meant = match &native {
        Some(programs) => meant(options, listener, programs)?,
        None => None,
    };
    let begin = Instant::now();
    let Run { programs, traces, ended } = session.record(native.as_deref(), meant)?;
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
            Err(RecordError::Stopped {
                trace: None | Some(TraceError::Truncated { .. }), ..
            }) if options.choice == Choice::All => {}
            Err(e) if options.choice == Choice::All => listener.say(&e.to_string()),
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
    if reports.is_empty() {
        let full = match ended {
            Ended::Unwritable(e) => Some(e),
            _ => None,
        };
        return Err(RecordError::Stopped { code: 0, trace: None, full });
    }
    let followed = session.followed;
    Ok(Report { traces: reports, programs: native.unwrap_or(programs), followed, ended })
}

/// Removes the files of a recording that nobody waits for any more: for whoever ends this process
/// while [`record`] is at work.
pub fn remove_unfinished(options: &Options) {
    output::remove_unfinished(&options.out, options.choice == Choice::All);
}

/// Which of the programs that ran natively is meant; `None`: all.
fn meant(
    options: &Options,
    listener: &dyn Listener,
    programs: &[Program],
) -> Result<Option<usize>, RecordError> {
    let meant = options.choice.of(programs)?;
    if let Some(meant) = meant {
        let program = &programs[meant];
        if !find::is_recordable(&program.path) {
            return Err(RecordError::WrongProgram(program.path.clone()));
        }
        if programs.len() > 1 {
            let (name, all) = (program.name(), programs.len());
            listener.say(&format!("recording {name}, number {} of {all} programs", meant + 1));
        }
    }
    Ok(meant)
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
    if let Err(source) = std::fs::rename(&trace.partial.0, &trace.out) {
        let there = trace.partial.keep();
        return Err(RecordError::Unnamed { out: trace.out, there, source });
    }
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
