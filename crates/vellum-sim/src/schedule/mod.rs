//! Who runs next.
//!
//! CPUs are coroutines of one OS thread: a turn ends only where the machine says so, and switching
//! costs nanoseconds. In timing mode the CPU that is behind runs until its clock passes the next
//! one's by the quantum, or until an interrupt is due. In hunting mode the seed decides at every
//! machine call. Nothing else does: the same seed gives the same order, on any host.
//!
//! Rejected: threads (their order is the host's), and an event queue of closures (the library would
//! have to be written as a state machine).

mod rng;
mod run;
mod turn;

pub use rng::Rng;
pub use run::{Outcome, Run};
