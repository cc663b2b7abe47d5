//! The command, as it is called.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod calibrate;
mod collapse;
mod control;
mod documents;
mod door;
mod files;
mod lost;
mod mistakes;
mod record;
mod replay;
mod threads;
mod time;
