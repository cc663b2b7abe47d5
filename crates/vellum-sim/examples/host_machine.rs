//! Prints this host as a machine file.
//!
//! `cargo run --release -p vellum-sim --example host_machine > my.toml`

use std::process::ExitCode;

fn main() -> ExitCode {
    match vellum_sim::file::host_text() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
