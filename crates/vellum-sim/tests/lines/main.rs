//! What the library writes of its own memory while programs fault: every store to it is watched.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../common/mod.rs"]
mod common;
mod watch;

mod huge_zero_readers;
mod shared;
