//! A recorded program on a simulated machine.
//!
//! A trace holds the events of each thread in order, and the memory calls of all threads in one
//! order, the file's. Replay runs thread *t* on CPU *t* modulo the CPUs in use, each at the pace of
//! its own virtual clock. Threads drift apart from the recorded order as far as the simulated
//! machine makes them. Three rules keep that sound:
//!
//! 1. **Calls that give.** An access waits for every call on its mapping (map, grow, protect, ...)
//!    that is before it in the trace: the mapping is there, with its rights. Calls on one file wait
//!    for each other, a mapping of it for them, and an access past its end as well.
//! 2. **Calls that take.** A call that takes something away (unmap, a fixed map over older memory,
//!    removed rights, dropped contents, a shrinking heap, a move) waits until every event before it
//!    in the file, of any thread, is done: no access meets a mapping that is gone already.
//! 3. **First touches.** An access that faults waits for an earlier event of another thread that
//!    touches the page first (`events/first_touches.rs`).
//!
//! All wait for *earlier* events only, so the earliest event that is not done waits for nothing.
//! The reader always holds that event, although it stops [`events::LIMIT`] events ahead: no
//! deadlock. Rejected: replay in file order, which has no contention; a barrier at every call; rule
//! 2 for one mapping only, which costs two counter updates an access.

mod background;
mod calls;
mod collapse;
mod config_check;
mod counters;
mod cpu;
pub mod events;
mod files;
mod folios;
mod maps;
mod player;
mod resident;
mod room;
mod session;
mod written;

pub use collapse::CollapseScan;
pub use config_check::check_config;
pub use player::GAP;
pub use session::{Finished, Options, replay};
