//! The errors of the command: one line each, what is wrong and how to fix it.
//!
//! There are two kinds, for scripts: a mistake in the command line or in a user's file (exit code
//! 2), and a correct request that failed (exit code 1). Ctrl-C is neither (exit code 130). Library
//! errors become one of the two where they occur, with the file or switch in front. Rejected: an
//! error type with a variant for each cause. Nobody above this crate matches on it; it is only
//! printed.

use std::fmt;

use vellum_trace::printable;

/// Why the command stops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LabError {
    /// The command line, or a file written by hand, asks for something that does not exist. Exit
    /// code 2.
    Usage(String),
    /// A trace is not what it has to be; who knows its path puts that in front. Exit code 2.
    Trace(String),
    /// It was asked rightly and failed. Exit code 1.
    Failed(String),
    /// Ctrl-C ended it; what there was is printed. Exit code 130, as of a program that the signal
    /// ends.
    Stopped,
    /// Whoever reads our output went away (`vellum machines | head -1`). Exit code 0, no message.
    OutputClosed,
}

impl LabError {
    /// A usage error.
    pub fn usage(message: impl fmt::Display) -> LabError {
        LabError::Usage(one_line(&message.to_string()))
    }
    /// A trace that is not right.
    pub fn trace(message: impl fmt::Display) -> LabError {
        LabError::Trace(one_line(&message.to_string()))
    }
    /// A failure.
    pub fn failed(message: impl fmt::Display) -> LabError {
        LabError::Failed(one_line(&message.to_string()))
    }
    /// The exit code the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::Usage(_) | LabError::Trace(_) => 2,
            LabError::Failed(_) => 1,
            LabError::Stopped => 130,
            LabError::OutputClosed => 0,
        }
    }
    /// For errors of writing the answer.
    pub fn output(e: std::io::Error) -> LabError {
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            LabError::OutputClosed
        } else {
            LabError::failed(format_args!("writing the output: {e}"))
        }
    }
}

/// Messages of others (TOML errors draw a picture of the spot) folded into one line, and names in
/// them kept from writing on the terminal.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    printable(&lines.collect::<Vec<_>>().join(" "))
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Usage(m) | LabError::Trace(m) | LabError::Failed(m) => f.write_str(m),
            LabError::Stopped => f.write_str("stopped by Ctrl-C"),
            LabError::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

impl std::error::Error for LabError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        let e = LabError::usage("bad\n  |\n3 | x = \n  expected a value\n");
        assert_eq!(e.to_string(), "bad | 3 | x = expected a value");
        assert_eq!(e.exit_code(), 2);
    }
}
