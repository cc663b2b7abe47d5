//! Where the traces that come with the project lie.

use std::path::{Path, PathBuf};

use crate::error::LabError;

/// Their folder, seen from the project's root.
pub const TRACES: &str = "traces";

/// The project's root: said by `./run`, else above the executable, else the working directory or
/// above it.
pub fn home() -> Result<PathBuf, LabError> {
    let from_run = std::env::var_os("VELLUM_HOME").map(PathBuf::from);
    let exe = std::env::current_exe().ok();
    let here = std::env::current_dir().ok();
    let above = |path: &Path| path.ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
    let executable = exe.iter().flat_map(|exe| above(exe).into_iter().skip(1));
    let working = here.iter().flat_map(|here| above(here));
    from_run
        .into_iter()
        .chain(executable)
        .chain(working)
        .find(|p| p.join(TRACES).is_dir())
        .ok_or_else(|| {
            LabError::usage(
                "the shipped traces are not found; start this through ./run, or replay a trace of \
                 your own: `vellum run --help`",
            )
        })
}

/// A shipped trace by its file's name.
pub fn trace(name: &str) -> Result<PathBuf, LabError> {
    Ok(home()?.join(TRACES).join(name))
}
