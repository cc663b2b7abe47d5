//! How commands print their answers.

use std::fmt::Display;
use std::io::{self, Write};

use crate::error::LabError;

/// Writes a line beside the answer. If nobody reads it any more, that is no reason to stop: what is
/// being recorded would be lost.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes text to standard output.
pub(super) fn print(text: &str) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(LabError::output)
}

/// Writes JSON to standard output, indented, with a final line break.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), LabError> {
    let mut text = serde_json::to_string_pretty(value).map_err(LabError::failed)?;
    text.push('\n');
    print(&text)
}
