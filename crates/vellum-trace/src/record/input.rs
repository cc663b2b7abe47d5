//! The same standard input for two runs.
use super::error::{RecordError, io_error};
use super::options::Listener;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const COPYING: &str = "copying standard input for the second run";
/// How long a pipe may take without a word.
const SILENT: Duration = Duration::from_secs(2);

/// Standard input as something that can be given out more than once.
pub(super) enum Input {
    /// A terminal or a device: passed on as it is.
    Inherited,
    /// A file, and where it was when we began.
    File(File, u64),
}

impl Input {
    pub(super) fn new(listener: &dyn Listener) -> Result<Input, RecordError> {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return Ok(Input::Inherited);
        }
        let fd =
            stdin.as_fd().try_clone_to_owned().map_err(io_error("looking at standard input"))?;
        let mut file = File::from(fd);
        let meta = file.metadata().map_err(io_error("looking at standard input"))?;
        if meta.is_file() {
            let at = file.stream_position().map_err(io_error("looking at standard input"))?;
            return Ok(Input::File(file, at));
        }
        use std::os::unix::fs::FileTypeExt;
        if !meta.file_type().is_fifo() {
            return Ok(Input::Inherited);
        }
        let name = std::env::temp_dir().join(format!("vellum-stdin-{}", std::process::id()));
        let mut copy = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&name)
            .map_err(io_error(COPYING))?;
        // Open but nameless: it goes away with us.
        std::fs::remove_file(&name).map_err(io_error(COPYING))?;
        drain(&mut file, &mut copy, listener)?;
        Ok(Input::File(copy, 0))
    }

    /// Is it the file of that name, as `/proc` has it?
    pub(super) fn is(&self, path: &Path) -> bool {
        let Input::File(file, _) = self else { return false };
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        link.is_ok_and(|ours| ours == path)
    }

    /// Standard input for the next run.
    pub(super) fn stdio(&self) -> Result<Stdio, RecordError> {
        match self {
            Input::Inherited => Ok(Stdio::inherit()),
            Input::File(file, at) => {
                let mut again = file.try_clone().map_err(io_error("rewinding standard input"))?;
                again.seek(SeekFrom::Start(*at)).map_err(io_error("rewinding standard input"))?;
                Ok(Stdio::from(again))
            }
        }
    }
}

/// Copies a pipe up to its end, which may never come.
fn drain(from: &mut File, to: &mut File, listener: &dyn Listener) -> Result<(), RecordError> {
    let (begin, mut told) = (Instant::now(), false);
    let mut some = vec![0; 1 << 16];
    loop {
        if listener.stopped() {
            return Err(RecordError::Interrupted);
        }
        if !told && begin.elapsed() > SILENT {
            told = true;
            listener.say(
                "standard input is read to its end first, for both runs; if nothing is to come, \
                 record with < /dev/null, or in one run by --no-native",
            );
        }
        let mut state = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live element.
        if unsafe { libc::poll(&mut state, 1, 50) } <= 0 {
            continue;
        }
        match from.read(&mut some) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&some[..n]).map_err(io_error(COPYING))?,
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(e) => return Err(io_error(COPYING)(e)),
        }
    }
}

/// A file from that byte on.
pub(super) fn at((path, position): &(PathBuf, u64)) -> std::io::Result<Stdio> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(*position))?;
    Ok(Stdio::from(file))
}
