//! An I/O thread: takes a request, waits for the system, answers.
//!
//! The thread is no CPU while it waits for the system. For the answer it is one for a moment, with
//! a number of its own and without a permit to run, as an interrupt would be: the CPUs that wait
//! for the page may have all the cores.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vellum::entry::Codec;
use vellum::machine::{CpuId, Machine, PageAnswer, PageRun};

use super::backing::Buffers;
use super::error::{FileError, FileOp};
use super::queue::{Queue, Request};
use crate::host_vm::HostVm;

/// Serves requests until the queue is closed and empty.
pub(super) fn serve<C: Codec, const WATCH: bool>(
    host: &HostVm<C, WATCH>,
    queue: &Queue,
    cpu: CpuId,
) {
    while let Some(request) = queue.take() {
        let (run, done) = match request {
            Request::Flush(flush, file) => {
                let done = file.flush();
                drop(file);
                flush.end(done);
                continue;
            }
            Request::Read(run, file) => {
                let (into, offset) = (buffers(host, &run), run.offset());
                let is_last = run.frames().len() == 1;
                let read = || file.read(into, offset, is_last);
                let done = unless_it_panics(FileOp::Read, offset, read);
                (run, done)
            }
            Request::Write(run, file) => {
                let (from, offset) = (buffers(host, &run), run.offset());
                let done = unless_it_panics(FileOp::Write, offset, || file.write(from, offset));
                (run, done)
            }
        };
        answer(host, cpu, (run, done.ok()));
    }
}

fn answer<C: Codec, const WATCH: bool>(
    host: &HostVm<C, WATCH>,
    cpu: CpuId,
    (run, done): (PageRun, Option<u64>),
) {
    let answer: PageAnswer = match done {
        Some(bytes) => run.done(bytes),
        None => run.failed(),
    };
    let _cpu = host.vm.machine().bind_device(cpu);
    host.vm.objects().answer(answer);
}

/// The bytes of a run that lie before the object's end.
fn buffers<C: Codec, const WATCH: bool>(host: &HostVm<C, WATCH>, run: &PageRun) -> Buffers {
    let machine = host.vm.machine();
    let pieces = run.parts().map(|part| (machine.direct(part.frame), part.len));
    // SAFETY: frames of the machine's memory, all of which this machine shows. The run keeps them
    // until it is answered. Those that are read into are the pager's alone.
    unsafe { Buffers::new(pieces) }
}

/// A backing that panics has failed: who waits for the page must hear of it.
fn unless_it_panics<R>(
    op: FileOp,
    offset: u64,
    body: impl FnOnce() -> Result<R, FileError>,
) -> Result<R, FileError> {
    let done = catch_unwind(AssertUnwindSafe(body));
    done.unwrap_or_else(|_| Err(FileError::of(op, &io::Error::other("a panic"), offset)))
}
