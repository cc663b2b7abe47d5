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
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use vellum_trace::printable;

use crate::commands::note;
use crate::error::LabError;

/// Runs the command line `args` (program name first) and gives the process's exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let cli = match cli::Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => return usage(&e, &args),
    };
    ended(commands::run(cli))
}

/// The error, named unless nobody reads the output any more, and the code to exit with.
fn ended(result: Result<(), LabError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if e != LabError::OutputClosed {
                note(format_args!("vellum: {e}"));
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
        return ended(e.print().and_then(|()| io::stdout().flush()).map_err(LabError::output));
    }
    if e.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let command = pasted::command();
        note(format_args!("vellum: a subcommand is missing; `{command} --help` shows examples"));
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
    let command = pasted::command();
    let tip = meant(args).map(|line| format!("; {}", line.replace("VELLUM", &command))).or(tip);
    let tip = tip.unwrap_or_default();
    // Control characters of arguments are gone: clap writes for a terminal.
    note(format_args!("vellum: {what}{tip}; `{command} --help` shows examples"));
    ExitCode::from(2)
}

/// What those mean who type a command for the first time, and leave something out.
fn meant(args: &[OsString]) -> Option<String> {
    let words: Vec<&str> = args.iter().skip(1).map(|a| a.to_str().unwrap_or_default()).collect();
    let has = |word: &str| words.iter().any(|w| *w == word || w.starts_with(&format!("{word}=")));
    let file = |from: usize| {
        let file = words.iter().skip(from).find(|w| w.ends_with(".vt"))?;
        Some(printable(&pasted::path(std::path::Path::new(file))))
    };
    let line = match *words.first()? {
        "record" if !has("--") => {
            "put -- before the program: VELLUM record -o FILE -- PROGRAM ARGS".to_owned()
        }
        "record" if !words.iter().any(|w| w.starts_with("-o") || w.starts_with("--output")) => {
            "say where the trace goes: VELLUM record -o my.vt -- PROGRAM ARGS".to_owned()
        }
        "run" if !has("--trace") => {
            let file = file(1).unwrap_or_else(|| "my.vt".to_owned());
            format!("name the trace and a machine: VELLUM run --trace {file} --machine milan")
        }
        "run" if !has("--machine") => {
            "name a machine, e.g. --machine milan; `VELLUM machines` lists them".to_owned()
        }
        "info" => format!("VELLUM trace info {}", file(1).unwrap_or_else(|| "my.vt".to_owned())),
        "trace" if words.get(1)?.ends_with(".vt") => format!("VELLUM trace info {}", file(1)?),
        first if first.ends_with(".vt") => {
            format!("VELLUM run --trace {} --machine milan", file(0)?)
        }
        _ => return None,
    };
    Some(line)
}
