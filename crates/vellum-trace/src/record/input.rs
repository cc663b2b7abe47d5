//! The same standard input for two runs.
use super::error::{RecordError, io_error};
use std::fs::File;
use std::io::{IsTerminal, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Standard input as something that can be given out more than once.
pub(super) enum Input {
    /// A terminal or a device: passed on as it is.
    Inherited,
    /// A file, and where it was when we began.
    File(File, u64),
}

impl Input {
    pub(super) fn new() -> Result<Input, RecordError> {
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
        let copying = "copying standard input for the second run";
        let name = std::env::temp_dir().join(format!("vellum-stdin-{}", std::process::id()));
        let mut copy = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&name)
            .map_err(io_error(copying))?;
        // Open but nameless: it goes away with us.
        std::fs::remove_file(&name).map_err(io_error(copying))?;
        std::io::copy(&mut file, &mut copy).map_err(io_error(copying))?;
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

/// A file from that byte on.
pub(super) fn at((path, position): &(PathBuf, u64)) -> std::io::Result<Stdio> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(*position))?;
    Ok(Stdio::from(file))
}
