//! The machine this program runs on, as a machine file.
//!
//! Geometry comes from the kernel's description of it (`topology.rs`) and from CPUID
//! (`translation.rs`), times from short measurements (`probe.rs`, three seconds at most). The
//! result is written as the text of a machine file and read like any other, so that it passes the
//! same checks and can be kept, edited and compared. What cannot be found out is a guess and says
//! so.
//!
//! A CPU here is what the kernel calls one, a hardware thread. Unlike every preset, this machine
//! differs a little from run to run: to get the same bytes out again, keep the text.

mod probe;
mod text;
mod topology;
mod translation;

use std::path::Path;
use std::sync::OnceLock;

use super::error::MachineError;
use super::spec::Machine;

/// The text of a machine file that describes this host. Measured once in a program's life.
pub fn host_text() -> Result<&'static str, MachineError> {
    static TEXT: OnceLock<Result<String, MachineError>> = OnceLock::new();
    let make = || {
        let topology =
            topology::read(Path::new("/")).map_err(|what| MachineError::Host { what })?;
        let times = probe::measure(&topology);
        Ok(text::write(&topology, &translation::read(), &times))
    };
    TEXT.get_or_init(make).as_deref().map_err(Clone::clone)
}

/// This host.
pub fn host() -> Result<Machine, MachineError> {
    Machine::parse("host", host_text()?)
}
