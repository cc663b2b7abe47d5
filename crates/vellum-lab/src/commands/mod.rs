//! One file for each subcommand.
//!
//! A command turns its arguments into calls of other modules and prints the answer on standard
//! output. Notes and progress go to standard error. Nothing here computes a figure.

pub mod bench;
pub mod calibrate;
pub mod machines;
mod output;
pub mod record;
pub mod repro;
pub mod run;
pub mod screen;
pub mod switches;
pub mod trace;

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
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Machines(args)) => machines::run(&args),
        Some(Command::Switches(args)) => switches::run(&args),
        Some(Command::Trace(command)) => trace::run(&command),
    }
}
