//! Processes of a command, followed by ptrace.
mod ptrace;
mod replace;
mod start;
mod tracer;
mod usage;

pub(super) use start::start;
pub(super) use tracer::{Live, Observer, Tracer};
