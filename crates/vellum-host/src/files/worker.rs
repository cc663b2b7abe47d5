//! An I/O thread: takes a request, waits for the system, answers.
//!
//! The thread is no CPU while it waits for the system. For the answer it is one for a moment, with
//! a number of its own and without a permit to run, as an interrupt would be: the CPUs that wait
//! for the page may have all the cores.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use vellum::entry::Codec;
use vellum::machine::{CpuId, Machine, PageAnswer, PageRun};

use super::backing::Buffers;
use super::error::{FileError, FileOp};
use super::queue::{Queue, Request};
use crate::host_vm::HostVm;

/// Tells those who wait when the thread ends by a panic: nobody answers them.
struct Served<'h, C: Codec, const WATCH: bool>(&'h HostVm<C, WATCH>, &'h Queue);

impl<C: Codec, const WATCH: bool> Drop for Served<'_, C, WATCH> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.vm.machine().poison();
            self.1.close();
        }
    }
}

/// Serves requests until the queue is closed and empty.
pub(super) fn serve<C: Codec, const WATCH: bool>(
    host: &HostVm<C, WATCH>,
    queue: &Queue,
    cpu: CpuId,
) {
    let _served = Served(host, queue);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{FileVm, OpenMode};
    use crate::machine::Plan;
    use vellum::X86_64;

    #[test]
    fn who_waits_for_a_page_hears_of_an_io_thread_that_died() {
        let path = std::env::temp_dir().join(format!("vellum-worker-{}", std::process::id()));
        std::fs::write(&path, [7; 4096]).unwrap();
        let (plan, config) = (Plan::new(1, 16 << 20), vellum::Config::default());
        let host = FileVm::<X86_64, true>::new(plan, config, 1).unwrap();
        // Its thread cannot become CPU 1, and panics.
        let _taken = host.vm.machine().bind_device(1);
        let waits = || {
            let _cpu = host.vm.machine().bind(0);
            let file = host.open(&path, OpenMode::ReadOnly).unwrap();
            let read = AssertUnwindSafe(|| host.vm.objects().read(file.object(), 0, &mut [0; 8]));
            let waited = catch_unwind(read);
            std::mem::forget(file);
            waited.is_err()
        };
        assert!(thread::scope(|s| s.spawn(waits).join().unwrap()), "it read what nobody answered");
        assert!(host.vm.machine().is_poisoned());
        std::fs::remove_file(&path).unwrap();
    }
}
