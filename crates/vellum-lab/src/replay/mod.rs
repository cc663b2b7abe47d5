//! A recorded program on a simulated machine.
//!
//! A trace says what each thread did in its own order, and numbers the memory calls of all threads
//! in one order (the file's). Replay runs thread *t* on CPU *t* modulo the CPUs in use, each at the
//! pace of its own virtual clock, so threads drift apart from the recorded interleaving exactly as
//! far as the simulated machine makes them. Three rules keep that sound:
//!
//! 1. **Giving calls gate.** While a call on a mapping (map, grow, protect, ...) is read but not
//!    yet done, accesses to this mapping that the
//!    file has *after* the call wait for it. So no access meets a mapping that is not there yet, or not yet writable.
//! 2. **Taking calls wait.** A call that takes something away (unmap, a fixed map over older
//!    memory, rights removed, contents dropped, a
//!    shrinking heap, a move) waits until every event the file has *before* it, of any thread, is done. So no access that the program made
//!    meets a mapping that is gone already.
//! 3. **First touches keep their order.** An access that faults waits for an earlier event of
//!    another thread that touches the page first
//!    (`touches.rs`): the locks that kept them in order are not in the trace, and who comes first decides the faults and the node.
//!
//! All wait for *earlier* events only, hence there is no deadlock: the earliest event not yet done
//! waits for nothing, its thread's CPU runs whichever of its threads is able to, and the reader
//! stops far ahead of nobody ([`feed::LIMIT`]) yet always holds that event. Rejected: replaying in
//! file order (no parallelism: contention and flush costs vanish), and a barrier at every call (an
//! allocator's growth in one thread would stop all others). Rule 2 could wait for the accesses to
//! that mapping only; it would cost two counter updates at every access, and taking calls are rare.
//!
//! What a replay leaves out: the order that futexes impose between threads, time asleep, the
//! program's own computation other than instruction counts, and every process but the first. A fork
//! is replayed as the parent sees it: its private pages become copy-on-write and the child is gone
//! at once.
//!
//! File mappings are replayed as anonymous memory with the faults of a file: a read fault brings in
//! the aligned 64 KiB around it (Linux's fault-around, its default of 16 pages), a first write to a
//! page of a private mapping faults by itself.

mod calls;
mod counters;
mod cpu;
pub mod feed;
mod fit;
mod maps;
mod player;
mod session;
mod touches;

pub use session::{Finished, Options, replay};
