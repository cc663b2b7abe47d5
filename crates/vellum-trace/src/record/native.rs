//! The native run: which programs a command runs, and what each costs.
use super::process::{self, Live, Observer, Tracer};
use super::program::Program;
use super::watch::{Ended, Watch};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Looks on.
struct Nothing;

impl Observer for Nothing {
    fn started(&mut self, _: usize, _: &Program) -> io::Result<Option<Vec<CString>>> {
        Ok(None)
    }
    fn dying(&mut self, _: usize, _: i32) {}
}

/// The run's command, silent, with transparent huge pages off for all that it starts.
pub(super) fn silent(mut command: Command) -> Command {
    command.stdout(discarding()).stderr(discarding());
    // SAFETY: prctl is async-signal-safe and touches nothing of ours; the flag survives fork and
    // exec.
    unsafe {
        command.pre_exec(|| {
            // A kernel without huge pages refuses; then there is nothing to switch off.
            libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
            Ok(())
        });
    }
    command
}

/// Where output goes that nobody wants. Some programs know `/dev/null` and do less when they write
/// to it: `grep` stops at the first match, `tar` reads no file.
fn discarding() -> Stdio {
    File::options().write(true).open("/dev/zero").map_or_else(|_| Stdio::null(), Stdio::from)
}

/// Runs the command once. `Unsupported`: it cannot be followed, and did not run.
pub(super) fn run(command: Command, watch: &Watch<'_>) -> io::Result<(Vec<Program>, Ended)> {
    let ((programs, _), ended) = follow(silent(command), Nothing, watch)?;
    Ok((programs, ended))
}

/// Runs a command to the end of all its processes. Gives its programs and the observer back.
///
/// Who starts a process has to be the thread that follows it; this one watches.
pub(super) fn follow<O: Observer + Send>(
    command: Command,
    observer: O,
    watch: &Watch<'_>,
) -> io::Result<((Vec<Program>, O), Ended)> {
    let live = Live::default();
    let thp_off = watch.native;
    std::thread::scope(|scope| {
        let tracing = scope.spawn(|| {
            let first = process::start(command)?;
            let mut tracer = Tracer::new(observer, &live, thp_off);
            tracer.follow(first)?;
            Ok((tracer.programs, tracer.observer))
        });
        let ended = watch.until(|| tracing.is_finished(), &live);
        let result = tracing.join().map_err(|_| io::Error::other("following its processes"))?;
        result.map(|both| (both, ended))
    })
}
