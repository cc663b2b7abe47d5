//! One file per subcommand.
//!
//! A command turns its arguments into calls of other rooms and prints the answer on standard
//! output; notes and progress go to standard error. Nothing here computes a figure.

pub mod bench;
pub mod machines;
pub mod record;
pub mod repro;
pub mod run;
pub mod screen;
pub mod switches;
pub mod trace;

use std::io::{self, Write};

use crate::cli::{Cli, Command};
use crate::error::LabError;

/// Does what the command line asks.
pub fn run(cli: Cli) -> Result<(), LabError> {
    match cli.command {
        None => screen::run(),
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::CountRow { row }) => bench::count_row(row),
        Some(Command::Repro(args)) => repro::run(&args),
        Some(Command::Machines(args)) => machines::run(&args),
        Some(Command::Switches(args)) => switches::run(&args),
        Some(Command::Trace(command)) => trace::run(&command),
    }
}

/// Writes text to standard output.
fn print(text: &str) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(LabError::output)
}

/// Writes JSON to standard output, indented, with a final line break.
fn print_json(value: &impl serde::Serialize) -> Result<(), LabError> {
    let mut text = serde_json::to_string_pretty(value).map_err(LabError::failed)?;
    text.push('\n');
    print(&text)
}
