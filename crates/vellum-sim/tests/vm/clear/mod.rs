//! Clearing and copying on the simulated machine.

mod fixture;
mod machine;
mod snapshot;
