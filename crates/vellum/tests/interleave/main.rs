//! Verbs with an act of another CPU, or of another task, between any two of their steps.

mod flush;
mod huge_zero;
mod oom;
mod pool;
mod preempted;
mod progress;
mod tables;
