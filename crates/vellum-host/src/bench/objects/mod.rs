//! `vellum bench objects`: pages of objects, beside files and shared memory of the kernel under us.
//!
//! A *file* is here an object whose pager answers at once, with every page present, beside a file
//! of the system that is in its page cache. *Shared memory* is an object without a pager, beside a
//! `memfd`. As in [`fault`](super::fault), a figure of Linux has the trap or system call, ours has
//! not.
//!
//! A read fault maps the pages around it, 64 KiB of them on both sides (`file.around`, and
//! `fault_around_bytes` of Linux): those are no faults any more, and the figure is per page all the
//! same. `MADV_RANDOM` does not stop Linux from that, so a note says how many faults there were.
//! What maps one page at a time on both sides is the write fault on a page of shared memory that is
//! there. Blocks of 2 MiB have rows of their own, in `blocks.rs`.

mod blocks;
mod linux;
mod linux_blocks;
mod threads;

use std::io;
use std::sync::Arc;

use vellum::addr::Order;
use vellum::config::Config;
use vellum::machine::{PageAnswer, PageRun};
use vellum::space::{Access, Placement, Space};
use vellum::vm::{Object, ObjectPart};

use super::fixture::{BareVm, PAGE, Pages, area, attrs, fault_all, memory_note, unmap};
use super::measure::table::Table;
use super::measure::{Effort, Timed, alone, timed};
use super::{Report, linux::NAME};
use crate::machine::Plan;
use crate::machine::pager::Pager;

/// Pages that Linux maps around a fault, too.
const AROUND: u64 = 64 << 10;

/// A pager whose pages are whatever the frames hold.
struct Nothing;

impl Pager for Nothing {
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        let bytes = run.bytes();
        Some(run.done(bytes))
    }
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        self.page_in(run)
    }
}

/// A machine with warm memory; `around` says whether a read fault maps the pages around.
fn boot(cpus: usize, around: bool) -> io::Result<BareVm> {
    let usual = Config::default();
    let file_around = if around { usual.file_around } else { Order::BASE };
    let host = BareVm::new(Plan::new(cpus, 512 << 20), Config { file_around, ..usual })?;
    host.vm.machine().set_pager(Arc::new(Nothing));
    host.warm();
    Ok(host)
}

/// What is measured: acts on one machine.
struct Turn<'a> {
    host: &'a BareVm,
    space: &'a Space,
    file: &'a Object,
    bytes: u64,
}

impl Turn<'_> {
    fn map(&self, object: &Object) {
        let at = Placement::At(area(0));
        let part = ObjectPart { object, offset: 0 };
        let done = self.host.vm.map_object(self.space, at, self.bytes, attrs(false), part);
        done.expect("an empty range and memory enough");
    }
    fn unmap(&self) {
        unmap(&self.host.vm, self.space, area(0), self.bytes);
    }
    fn fault(&self, access: Access) {
        fault_all(&self.host.vm, self.space, Pages::new(area(0), self.bytes, false), access);
    }

    /// A read fault on each page of the file, or one for each block that comes with it.
    fn read_file(&self, around: bool) -> Timed {
        let vm = &self.host.vm;
        self.map(self.file);
        let step = if around { AROUND } else { PAGE };
        let took = timed(self.bytes / PAGE, || {
            for at in (0..self.bytes).step_by(step as usize) {
                let va = vellum::addr::Va(area(0).0 + at);
                vm.fault(self.space, va, Access::Read).expect("a page that is present");
            }
        });
        self.unmap();
        took
    }

    /// The kernel's copy of each page of the file.
    fn copy_file(&self) -> Timed {
        let (objects, mut page) = (self.host.vm.objects(), vec![0; PAGE as usize]);
        timed(self.bytes / PAGE, || {
            for at in (0..self.bytes).step_by(PAGE as usize) {
                let read = objects.read(self.file, at, &mut page);
                assert_eq!(read, (page.len(), Ok(())));
                std::hint::black_box(&page);
            }
        })
    }

    /// Shared memory: a page made by a write fault, the same mapped once more, and cut off.
    fn shared(&self) -> [(&'static str, Timed); 3] {
        let (objects, pages) = (self.host.vm.objects(), self.bytes / PAGE);
        let object = objects.create(self.bytes).expect("memory for an object");
        self.map(&object);
        let make = timed(pages, || self.fault(Access::Write));
        self.unmap();
        self.map(&object);
        let again = timed(pages, || self.fault(Access::Write));
        self.unmap();
        let cut = timed(pages, || objects.resize(&object, 0).expect("no seal"));
        objects.discard(object);
        [(MAKE, make), (PRESENT, again), (CUT, cut)]
    }
}

const READ: &str = "objects/file-read-fault";
const READ_ALONE: &str = "objects/file-read-fault, no around";
const COPY: &str = "objects/file-read-4k";
const MAKE: &str = "objects/shared-write-fault, made";
const PRESENT: &str = "objects/shared-write-fault, there";
const CUT: &str = "objects/truncate-page";

/// All repetitions of what one thread does.
fn one_thread(effort: Effort, table: &mut Table, notes: &mut Vec<String>) -> io::Result<()> {
    let bytes = (64 << 20) / effort.shrink;
    let hosts = [boot(1, true)?, boot(1, false)?];
    notes.push(memory_note(&hosts[0]));
    let theirs = linux::CachedFile::new(bytes)?;
    let mut random = 0;
    let set_up = |host: &BareVm| {
        let _cpu = host.vm.machine().bind(0);
        let space = host.vm.create().map_err(io::Error::other)?;
        let file = host.vm.objects().create_paged(bytes, 1).map_err(io::Error::other)?;
        let mut all = vec![0; bytes as usize];
        assert_eq!(host.vm.objects().read(&file, 0, &mut all), (all.len(), Ok(())));
        Ok::<_, io::Error>((space, file))
    };
    let sets = [set_up(&hosts[0])?, set_up(&hosts[1])?];
    for repetition in 0..=effort.repetitions {
        if repetition > 1 && (effort.stop)() {
            break;
        }
        for (around, host) in [(true, 0), (false, 1)] {
            let (space, file) = &sets[host];
            let turn = Turn { host: &hosts[host], space, file, bytes };
            let found = alone(|| {
                let _cpu = turn.host.vm.machine().bind(0);
                turn.host.vm.activate(space);
                let read = turn.read_file(around);
                let rest = (!around).then(|| (turn.copy_file(), turn.shared()));
                turn.host.vm.deactivate();
                (read, rest)
            });
            let linux = alone(|| linux::turn(&theirs, around))?;
            if repetition == 0 {
                continue;
            }
            let name = if around { READ } else { READ_ALONE };
            table.add_timed(name, 1, "ns", found.0);
            table.peer(name, 1, NAME, linux.read.each);
            random = linux.read.host_faults;
            let Some((copy, shared)) = found.1 else { continue };
            table.add_timed(COPY, 1, "ns", copy);
            table.peer(COPY, 1, NAME, linux.copy);
            for ((name, ours), theirs) in shared.into_iter().zip(linux.shared) {
                table.add_timed(name, 1, "ns", ours);
                table.peer(name, 1, NAME, theirs);
            }
        }
    }
    notes.push(format!(
        "with MADV_RANDOM Linux served {random} faults for {} pages; its file lies in {}",
        bytes / PAGE,
        std::env::temp_dir().display()
    ));
    for (host, (space, file)) in hosts.iter().zip(sets) {
        let _cpu = host.vm.machine().bind(0);
        host.vm.exit(space);
        host.vm.objects().discard(file);
    }
    Ok(())
}

/// Faults on pages and blocks of objects, copies, truncation, and what a second thread is worth.
///
/// # Errors
/// The machine could not be built, or the system refuses a file.
pub fn run(effort: Effort) -> io::Result<Report> {
    let (mut table, mut notes) = (Table::default(), Vec::new());
    one_thread(effort, &mut table, &mut notes)?;
    blocks::run(effort, &mut table, &mut notes)?;
    let mut report = Report { notes, ..table.report() };
    let two = threads::run(effort)?;
    report.benchmarks.extend(two.benchmarks);
    report.notes.extend(two.notes);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_one_thread_stands_beside_linux() {
        let (mut table, mut notes) = (Table::default(), Vec::new());
        one_thread(Effort::QUICK, &mut table, &mut notes).unwrap();
        let rows = table.report().benchmarks;
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, [READ, READ_ALONE, COPY, MAKE, PRESENT, CUT]);
        assert!(rows.iter().all(|row| row.ours > 0.0 && row.peers[NAME] > 0.0), "{rows:?}");
    }
}
