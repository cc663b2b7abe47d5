//! The published experiments: pages, marks, statements, and what must be able to move them.

#[path = "../common/mod.rs"]
mod common;
mod experiment;

mod clear;
mod colour;
mod cursor;
mod heldout;
mod hugezero;
