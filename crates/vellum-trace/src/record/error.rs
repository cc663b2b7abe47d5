//! What can be wrong with a recording: one line each, with the mend.
use crate::TraceError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a recording failed.
#[derive(Debug)]
pub enum RecordError {
    /// No command was given.
    NoCommand,
    /// The program was not found.
    NoProgram(PathBuf),
    /// It is there, but not a file that may be executed.
    NotExecutable(PathBuf),
    /// What the program names to load or interpret it is not there.
    NoLoader {
        /// The program.
        program: PathBuf,
        /// What it names.
        loader: PathBuf,
    },
    /// The trace cannot be written there.
    Output {
        /// The name given.
        out: PathBuf,
        /// Why not, and the mend.
        why: &'static str,
    },
    /// The system lets no file be made there.
    Unwritable {
        /// The name given.
        out: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The trace is whole and cannot get its name.
    Unnamed {
        /// The name given.
        out: PathBuf,
        /// Where the trace is.
        there: PathBuf,
        /// The system's reason.
        source: io::Error,
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
    /// Somebody asked to stop ([`Listener::stopped`](super::Listener::stopped)) before the
    /// recording began; nothing was written.
    Interrupted,
    /// No program of the command has that number or name.
    NoSuchProcess {
        /// What was asked for.
        asked: String,
        /// The programs that ran.
        ran: Vec<String>,
    },
    /// The program ran natively, but not again.
    NotAgain(String),
    /// The system does not let us follow the programs that a program starts.
    CannotFollow,
    /// QEMU or its plugin stopped before anything was recorded.
    Stopped {
        /// Exit code of QEMU (128 + signal).
        code: i32,
        /// What is wrong with the file, if there is one.
        trace: Option<TraceError>,
        /// Why the recorder could not write.
        full: Option<io::Error>,
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
                let text = p.to_string_lossy();
                if text.contains('/') && !text.contains(char::is_whitespace) {
                    return write!(f, "{}: there is no such file", p.display());
                }
                write!(
                    f,
                    "`{}`: no such program on the search path; give its full path, or have a shell \
                     run the line: -- sh -c 'LINE'",
                    p.display()
                )
            }
            RecordError::NotExecutable(p) => {
                write!(
                    f,
                    "{}: not an executable file; make it one (chmod +x) or name the program itself",
                    p.display()
                )
            }
            RecordError::NoLoader { program, loader } => write!(
                f,
                "{}: it is run by {}, which is not there; install that, or record another build \
                 of the program",
                program.display(),
                loader.display()
            ),
            RecordError::Output { out, why } => write!(f, "{}: {why}", out.display()),
            RecordError::Unwritable { out, source } => write!(
                f,
                "{}: no file can be made there: {source}; give -o another name",
                out.display()
            ),
            RecordError::Unnamed { out, there, source } => write!(
                f,
                "{}: the trace cannot get that name: {source}; it is whole, under the name {}",
                out.display(),
                there.display()
            ),
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
                write!(f, "the recording had not begun, and nothing was written")
            }
            RecordError::NoSuchProcess { asked, ran } => write!(
                f,
                "--process {asked}: no such program ran; these did: {}; give a number or a name \
                 of them",
                ran.join(", ")
            ),
            RecordError::NotAgain(name) => write!(
                f,
                "{name} ran natively, but the second run of the command did not start it: record \
                 its own command, or this one with --no-native --process {name}"
            ),
            RecordError::CannotFollow => write!(
                f,
                "the system refuses ptrace, so the programs that a program starts cannot be told \
                 apart: leave out --process and --follow, and record the program's own command"
            ),
            RecordError::Stopped { full: Some(e), .. } => {
                write!(f, "the trace could not be written, nothing was kept: {e}")
            }
            RecordError::Stopped { code, trace: Some(e), .. } => write!(
                f,
                "the program ended (code {code}) before the recorder had written anything: {e}"
            ),
            RecordError::Stopped { code, .. } => write!(
                f,
                "qemu-x86_64 ended with code {code} before it recorded anything; run it with the \
                 program by hand to see why"
            ),
        }
    }
}

impl std::error::Error for RecordError {}

/// Puts what was being done in front of the system's reason.
pub(super) fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> RecordError {
    move |source| RecordError::Io { doing, source }
}
