//! The verbs of a space.

mod edges;
mod exact_weave;
mod first;
mod memory;
mod misuse;
mod pages;
mod place;
mod poison;
mod pool;
mod preempted;
mod progress;
mod threads;
