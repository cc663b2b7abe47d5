//! Recording a program: once natively for its figures, once under the recorder for its accesses.
//!
//! The native run comes first, with transparent huge pages off for the process, so that its count
//! of minor faults is one of 4 KiB pages and can be held against a simulation of `thp=never`. Its
//! output goes nowhere; a program with side effects has them twice. Standard input is given to both
//! runs: a file is rewound, a pipe is copied to a temporary file first.
//!
//! The trace is written beside its final name and renamed when it is complete, so an interrupted
//! recording leaves no file that looks like a trace.
mod find;
mod input;
mod native;

use crate::build::Window;
use crate::header::{Header, NativeRun, Recorder};
use crate::totals::Totals;
use crate::{TraceError, read_totals};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The recorded program's processor: everything QEMU can do, except that copying and clearing with
/// string instructions is not called fast. Libraries would choose it, and QEMU performs it byte by
/// byte, an access and a line each, which no processor does.
const CPU: &str = "max,-erms,-fsrm";

/// What to record and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// File to write.
    pub out: PathBuf,
    /// Which accesses to keep; `None` keeps all.
    pub window: Option<Window>,
    /// zstd level, [`crate::LEVEL_FAST`] or [`crate::LEVEL_SMALL`].
    pub level: i32,
    /// Run natively first?
    pub native: bool,
    /// Keep the last part of each file's name?
    pub names: bool,
    /// The recorder plugin, if not where [`record`] looks for it.
    pub plugin: Option<PathBuf>,
    /// Asked between the two runs: has somebody asked to stop?
    pub stopped: fn() -> bool,
}

impl Options {
    /// Records `command` completely into `out`, after a native run.
    pub fn new(command: Vec<OsString>, out: impl Into<PathBuf>) -> Options {
        Options {
            command,
            out: out.into(),
            window: None,
            level: crate::LEVEL_FAST,
            native: true,
            names: true,
            plugin: None,
            stopped: || false,
        }
    }
}

/// What a recording gave.
#[derive(Debug, Clone)]
pub struct RecordReport {
    /// Figures of the native run.
    pub native: Option<NativeRun>,
    /// Exit code of the native run (128 + signal if a signal ended it).
    pub native_code: Option<i32>,
    /// Exit code of the recorded program.
    pub exit_code: i32,
    /// Sums of the trace.
    pub totals: Totals,
    /// Size of the trace, bytes.
    pub bytes: u64,
    /// Time under the recorder.
    pub elapsed: Duration,
}

/// Why a recording failed.
#[derive(Debug)]
pub enum RecordError {
    /// No command was given.
    NoCommand,
    /// The program was not found.
    NoProgram(PathBuf),
    /// It is there, but not a file that may be executed.
    NotExecutable(PathBuf),
    /// The trace cannot be written there.
    Output {
        /// The name given.
        out: PathBuf,
        /// Why not, and the mend.
        why: &'static str,
    },
    /// The program is not an x86_64 executable or a script for one.
    WrongProgram(PathBuf),
    /// qemu-x86_64 is not installed.
    NoQemu,
    /// The plugin is in none of the places where it is looked for.
    NoPlugin,
    /// Something the system refused.
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody asked to stop ([`Options::stopped`]); nothing was written.
    Interrupted,
    /// QEMU or its plugin stopped before the program's end.
    Stopped {
        /// Exit code of QEMU (128 + signal).
        code: i32,
        /// What is wrong with the file, if there is one.
        trace: Option<TraceError>,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::NoCommand => {
                write!(
                    f,
                    "nothing to record; give a command after `--`, e.g. `vellum record -o ls.vt \
                     -- ls -R /usr`"
                )
            }
            RecordError::NoProgram(p) => {
                write!(f, "{}: no such program on the search path; give its full path", p.display())
            }
            RecordError::NotExecutable(p) => {
                write!(
                    f,
                    "{}: not an executable file; make it one (chmod +x) or name the program itself",
                    p.display()
                )
            }
            RecordError::Output { out, why } => write!(f, "{}: {why}", out.display()),
            RecordError::WrongProgram(p) => write!(
                f,
                "{}: neither an x86_64 executable nor a script for one; record the executable it \
                 starts",
                p.display()
            ),
            RecordError::NoQemu => {
                write!(f, "qemu-x86_64 is missing; install it with `apt install qemu-user`")
            }
            RecordError::NoPlugin => write!(
                f,
                "libvellum_record.so is not beside this program; build it with `cargo build \
                 --release -p vellum-record` or name it in VELLUM_RECORDER"
            ),
            RecordError::Io { doing, source } => write!(f, "{doing}: {source}"),
            RecordError::Interrupted => {
                write!(f, "interrupted before the recording began; nothing was written")
            }
            RecordError::Stopped { code, .. } if *code > 128 => write!(
                f,
                "signal {} ended the program under the recorder, and a trace is whole only when \
                 its program exits: nothing was kept; record a run that exits by itself",
                code - 128
            ),
            RecordError::Stopped { code, trace: Some(e) } => {
                write!(
                    f,
                    "the recorded program ended abruptly (code {code}) and left no whole trace: {e}"
                )
            }
            RecordError::Stopped { code, trace: None } => write!(
                f,
                "qemu-x86_64 ended with code {code} before it recorded anything; run it with the \
                 program by hand to see why"
            ),
        }
    }
}

impl std::error::Error for RecordError {}

fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> RecordError {
    move |source| RecordError::Io { doing, source }
}

/// Removes a file when the recording is over, however it ended.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may have been renamed away; then there is nothing to do.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn beside(out: &Path, ending: &str) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A path inside QEMU's option syntax, where a comma is written twice.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// Whether a trace can get that name in the end. Asked before the program runs; a device or a
/// directory is never replaced.
fn check_output(out: &Path) -> Result<(), RecordError> {
    let refuse = |why| Err(RecordError::Output { out: out.to_owned(), why });
    match std::fs::symlink_metadata(out) {
        Ok(m) if !m.is_file() => {
            return refuse(
                "there is something that is no regular file; give -o a name to write to",
            );
        }
        _ => {}
    }
    let dir = out.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if out.file_name().is_none() || !dir.is_dir() {
        return refuse("its directory does not exist; make it first, or give -o another name");
    }
    Ok(())
}

fn code_of(status: std::process::ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn host_text(path: &str) -> String {
    std::fs::read_to_string(path).map(|s| s.trim().to_owned()).unwrap_or_default()
}

/// Runs the command natively, then under the recorder, and leaves a complete trace in
/// `options.out`.
///
/// The plugin is looked for at `options.plugin`, in `VELLUM_RECORDER`, beside the running
/// executable and one directory up.
///
/// # Errors
/// [`RecordError`]; no file is left behind then.
pub fn record(options: &Options) -> Result<RecordReport, RecordError> {
    check_output(&options.out)?;
    let command = find::command(&options.command)?;
    let qemu = find::in_path("qemu-x86_64").ok_or(RecordError::NoQemu)?;
    let plugin = find::plugin(options.plugin.as_deref()).ok_or(RecordError::NoPlugin)?;
    let input = input::Input::new()?;

    let mut native = None;
    if options.native {
        native = Some(native::run(&command, input.stdio()?)?);
    }
    if (options.stopped)() {
        return Err(RecordError::Interrupted);
    }
    // SAFETY: sysconf has no preconditions.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let thp = |name: &str| host_text(&format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let header = Header {
        command: options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        recorder: Recorder::Qemu,
        arch: "x86_64".into(),
        page_size: u64::try_from(page_size).unwrap_or(0),
        host_kernel: host_text("/proc/sys/kernel/osrelease"),
        host_thp: thp("enabled"),
        host_thp_defrag: thp("defrag"),
        host_thp_zero_page: thp("use_zero_page"),
        host_thp_shmem: thp("shmem_enabled"),
        window: options.window.map(|w| w.to_string()).unwrap_or_default(),
        native: native.as_ref().map(|n| n.0),
    };
    let partial = Temporary(beside(&options.out, ".partial"));
    let meta = Temporary(beside(&options.out, ".meta"));
    std::fs::write(&meta.0, header.encode()).map_err(io_error("writing beside the trace"))?;

    let mut arg = format!(
        "{},out={},meta={},level={}",
        escaped(&plugin),
        escaped(&partial.0),
        escaped(&meta.0),
        options.level
    );
    if let Some(w) = options.window {
        arg += &format!(",window={}", w.to_string().replace(',', ":"));
    }
    if !options.names {
        arg += ",names=off";
    }
    let begin = Instant::now();
    let status = Command::new(qemu)
        .args(["-cpu", CPU, "-plugin"])
        .arg(arg)
        .args(&command)
        .stdin(input.stdio()?)
        .status()
        .map_err(io_error("starting qemu-x86_64"))?;
    let elapsed = begin.elapsed();
    let exit_code = code_of(status);

    if !partial.0.exists() {
        return Err(RecordError::Stopped { code: exit_code, trace: None });
    }
    let totals = read_totals(&partial.0)
        .map_err(|e| RecordError::Stopped { code: exit_code, trace: Some(e) })?;
    let bytes = std::fs::metadata(&partial.0).map_err(io_error("looking at the trace"))?.len();
    std::fs::rename(&partial.0, &options.out).map_err(io_error("naming the trace"))?;
    Ok(RecordReport {
        native: native.as_ref().map(|n| n.0),
        native_code: native.map(|n| n.1),
        exit_code,
        totals,
        bytes,
        elapsed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_directories_and_places_that_are_not_there_are_refused_before_anything_runs() {
        for out in ["/dev/null", "/tmp", "/no/such/directory/x.vt", ".."] {
            let options = Options::new(vec!["/bin/true".into()], out);
            assert!(matches!(record(&options), Err(RecordError::Output { .. })), "{out}");
        }
        assert!(!Path::new("/dev/null").is_file());
    }
}
