//! Which CPU runs next.
//!
//! CPUs are coroutines of one OS thread. A turn ends only where the machine says so, and switching
//! costs nanoseconds. In timing mode, the CPU that is behind runs until its clock is a quantum past
//! the next one's, or until an interrupt is due. In hunting mode, the seed decides at every machine
//! call. The same seed gives the same order on any host.
//!
//! Rejected: threads, whose order is the host's; an event queue of closures, for which the library
//! would have to be a state machine.

mod earliest;
mod idle;
mod rng;
mod run;
mod turn;
mod wait;

pub use earliest::Earliest;
pub use rng::Rng;
pub use run::{Outcome, Run};
pub(crate) use wait::Wait;
