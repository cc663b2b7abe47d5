//! The library on the simulated machine, under its oracle.

mod clear;
mod colour_forbid;
mod colour_off;
mod colour_sets;
#[path = "../common/mod.rs"]
mod common;
mod determinism;
mod device_hunt;
mod file_hunt;
mod huge_zero_flush;
mod huge_zero_forms;
mod huge_zero_hunt;
mod hunt;
mod model;
mod runs;
mod two_pages_hunt;
