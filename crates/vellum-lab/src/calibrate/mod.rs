//! This computer as a machine file.
//!
//! [`vellum_host::calibrate`] measures loads, lines and the kernel's work. Here that becomes the
//! text of a machine file, which is read like any other and so passes the same checks. What can be
//! measured by itself (a latency, the time of a line) is written down as it is. The rest is what a
//! simulated run of the same loop leaves unexplained: the price of a fault is the measured time of
//! a first load less what the simulator has for its walk, its table and its entry (`solve.rs`).
//!
//! The text is kept in the user's cache folder, since a measurement takes some seconds and a table
//! is to say the same tomorrow (`kept.rs`).

mod calls;
mod kept;
mod loops;
mod solve;
mod text;
mod values;

pub use kept::{Host, host, keep, keep_truth, truth, write_whole};
pub use values::{CallPrices, Values};

use vellum_host::calibrate::Computer;
use vellum_sim::file::Machine;

use crate::error::LabError;

/// A calibration.
#[derive(Debug)]
pub struct Calibration {
    /// What was measured.
    pub computer: Computer,
    /// What followed from simulated runs.
    pub values: Values,
    /// The machine file.
    pub text: String,
}

/// Measures this computer, some seconds long.
pub fn calibrate() -> Result<Calibration, LabError> {
    let computer = vellum_host::calibrate::measure().map_err(|e| {
        LabError::failed(format_args!(
            "this computer cannot be measured: {}; take another machine (`vellum machines`) or \
             write a file (docs/machine-format.md)",
            e.0
        ))
    })?;
    let values = solve::solve(&computer)?;
    let text = text::write(&computer, &values);
    machine(&text)?;
    Ok(Calibration { computer, values, text })
}

/// The machine of a text.
pub fn machine(text: &str) -> Result<Machine, LabError> {
    Machine::parse("host", text).map_err(LabError::failed)
}
