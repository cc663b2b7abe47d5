//! Tries and cursors.

mod ends;
mod exchange;
mod model;
mod oom;
mod shape;
mod tokens;
mod visits;
