//! The recorder: a plugin for QEMU's user mode that writes a vellum trace.
//!
//! Run as `qemu-x86_64 -plugin libvellum_record.so,out=FILE[,meta=FILE][,window=S:K[:P]][,level=N]
//! PROGRAM`. `vellum record` does that, after a native run whose figures it passes in `meta` (an
//! encoded trace header).
//!
//! How the order of events is kept sound while guest threads run in parallel:
//!
//! * Each virtual CPU writes its events into a ring of its own (`ring`); publishing one is a plain
//!   store.
//! * Every memory call, thread start and end takes one lock (`order`), empties *all* rings into the
//!   stream, then appends itself. So an access that happened before a call on another CPU, in the
//!   sense of the memory model, is in front of it: whoever made the call had seen an effect of code
//!   that ran after the ring's store. And an access to new memory cannot be in front of the call
//!   that made it: its thread learned the address after that call had returned.
//! * Memory calls exclude each other from entry to return (`calls`), so their order in the stream
//!   is the order in which they took effect, and each is written when its result is known.
//! * What is not ordered by cause and effect (a true race of an access with an unmap) may come out
//!   either way, as it may on hardware.
//!
//! Whether an access's address was loaded a moment ago is found out in `flow`, from the code and
//! not from values.
//!
//! Rejected: a lock an access (five times slower); time stamps and a merge afterwards (needs memory
//! for everything that waits for a slow thread); stopping all CPUs at each call (QEMU offers no
//! such service to plugins).
//!
//! A forked child keeps running without being recorded: it never touches the file, because every
//! path that would compares process ids first. `exec` ends the recording cleanly. No callback lets
//! a panic out: an `extern "C"` function aborts instead.

mod api;
mod calls;
mod flow;
mod guest;
mod hot;
mod kernel;
mod order;
mod ring;
mod setup;
mod sink;
