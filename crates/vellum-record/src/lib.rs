//! The recorder: a plugin for QEMU's user mode that writes a vellum trace.
//!
//! `vellum record` runs `qemu-x86_64 -plugin libvellum_record.so,out=FILE[,meta=FILE]
//! [,window=S:K[:P]][,clock=A:K][,level=N][,names=off] PROGRAM`, after a native run; its figures
//! are in `meta`, behind a page that both sides map while the program runs.
//!
//! Callbacks (`hot`) tell which block begins and what addresses its accesses have. All else is in
//! the block's script; the background thread puts both together (`sink`). The order of events is
//! sound while guest threads run in parallel:
//!
//! * Each virtual CPU writes its events into its own ring (`ring`) with plain stores.
//! * Every memory call, thread start and end takes one lock (`order`), moves *all* rings into the
//!   stream, then appends itself. So an access that happened before a call on another CPU is in
//!   front of it, and no access to new memory is in front of the call that made it.
//! * Memory calls exclude each other from entry to return (`calls`), and so do calls on files:
//!   their order in the stream is the order in which they took effect.
//!
//! A forked child is not recorded (`order::detached`). `exec` ends the recording. Rejected: a lock
//! for each access, five times slower; time stamps and a merge, which need much memory.

mod api;
mod calls;
mod children;
mod descriptors;
mod exclude;
mod files;
mod flow;
mod guest;
mod hot;
mod kernel;
mod order;
mod ring;
mod script;
mod setup;
mod sink;
mod ticker;
