//! The command `vellum`. Everything it does lives in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    vellum_lab::main(std::env::args_os())
}
