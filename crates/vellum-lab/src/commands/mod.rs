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

pub use output::note;

use crate::cli::{Cli, Command};
use crate::error::LabError;
use crate::interrupt;

/// Does what the command line asks.
pub fn run(cli: Cli) -> Result<(), LabError> {
    match cli.command {
        None => to_the_end(screen::run()),
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Run(args)) => to_the_end(run::run(&args)),
        Some(Command::Bench(args)) => to_the_end(bench::run(&args)),
        Some(Command::CountRow { row }) => bench::count_row(row),
        Some(Command::Repro(args)) => to_the_end(repro::run(&args)),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Machines(args)) => machines::run(&args),
        Some(Command::Switches(args)) => switches::run(&args),
        Some(Command::Trace(command)) => trace::run(&command),
    }
}

/// What was printed is a part of the answer after Ctrl-C.
fn to_the_end(done: Result<(), LabError>) -> Result<(), LabError> {
    done.and_then(|()| if interrupt::requested() { Err(LabError::Stopped) } else { Ok(()) })
}
