//! The command `vellum`: record a program once, replay the recording on simulated machines, read
//! the difference in a table.
//!
//! | room | what is in it |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`commands`] | one file per subcommand, and the screen shown without one |
//! | [`mod@calibrate`] | this computer as a machine file |
//! | [`experiment`] | columns side by side |
//! | [`switches`] | `--set` and `--vs`: the columns of a table |
//! | [`sweep`] | `--sweep`: a column for each value of a machine's constant |
//! | [`replay`] | a trace driven through the library on a simulated machine |
//! | [`repro`] | published experiments, run again |
//! | [`shipped`] | where the shipped traces lie |
//! | [`report`] | counters as tables and JSON |
//! | [`pasted`] | commands as the person can paste them |
//!
//! It is a library so that tests reach every part; the binary only calls [`main`].

pub mod calibrate;
pub mod cli;
pub mod commands;
pub mod error;
pub mod experiment;
pub mod interrupt;
pub mod pasted;
pub mod progress;
pub mod replay;
pub mod report;
pub mod repro;
pub mod shipped;
pub mod sweep;
pub mod switches;
pub mod text;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::error::LabError;

/// Runs the command line `args` (program name first) and gives the process's exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let cli = match cli::Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => return usage(&e, &args),
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if e != LabError::OutputClosed {
                eprintln!("vellum: {e}");
            }
            ExitCode::from(e.exit_code())
        }
    }
}

/// Help and version go out as they are; a mistake becomes one line.
fn usage(e: &clap::Error, args: &[OsString]) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    if matches!(e.kind(), DisplayHelp | DisplayVersion) {
        return if e.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if e.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        eprintln!("vellum: a subcommand is missing; `vellum --help` shows examples");
        return ExitCode::from(2);
    }
    // Clap's first paragraph says what is wrong; tips and the usage picture follow in others.
    let text = e.to_string();
    let paragraphs: Vec<&str> = text.split("\n\n").collect();
    let what = paragraphs[0]
        .trim_start_matches("error: ")
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ");
    let tip = paragraphs
        .iter()
        .find_map(|p| p.trim().strip_prefix("tip: "))
        .map(|t| format!("; {}", t.trim()));
    let records = args.get(1).is_some_and(|a| a == "record");
    let tip = if records && args.iter().all(|a| a != "--") {
        Some("; put -- before the program: vellum record -o FILE -- PROGRAM ARGS".to_owned())
    } else {
        tip
    };
    // Control characters of arguments are gone: clap writes for a terminal.
    eprintln!("vellum: {what}{}; `vellum --help` shows examples", tip.unwrap_or_default());
    ExitCode::from(2)
}
