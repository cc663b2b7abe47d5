//! The simulated machine without the library: its parts, its files, its clock.

#[path = "../common/mod.rs"]
mod common;

mod caches;
mod files;
mod first;
mod nested;
mod optional;
mod prefetch;
mod time;
