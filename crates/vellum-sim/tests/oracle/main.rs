//! The law of `docs/oracle.md`, line by line: each legal case passes, its illegal neighbour stops
//! the run.

#[path = "../common/mod.rs"]
mod common;

mod devices;
mod exchanges;
mod frames;
mod tables;
mod translations;
mod zeros;
