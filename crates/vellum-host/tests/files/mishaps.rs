//! Files that others cut, append to or wait for, and backings that fail in rare ways.

use std::fs::{File, OpenOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vellum::FaultError;
use vellum_host::files::{Backing, Buffers, FileErrorKind, OpenMode};
use vellum_host::machine::Plan;

use super::backings::Faulty;
use super::common::*;

#[test]
fn a_file_opened_for_appending_is_refused() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, _cpu) = (dir.file("a", 4), host.vm().machine().bind(0));
    let appends = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    let error = host.adopt(appends).err().expect("its pages would be written at its end");
    assert_eq!(error.kind, FileErrorKind::Appends);
}

/// As a file whose `fdatasync` fails once: the system tells one caller, and the next one that all
/// is well. The first call returns after the second one has.
struct Once {
    file: File,
    begun: AtomicU64,
    ended: AtomicU64,
}

#[derive(Clone)]
struct TellsOnce(Arc<Once>);

fn wait_for(what: &AtomicU64, n: u64) {
    let began = Instant::now();
    while what.load(Ordering::SeqCst) < n && began.elapsed() < Duration::from_secs(2) {
        std::thread::yield_now();
    }
}

impl Backing for TellsOnce {
    fn size(&self) -> io::Result<u64> {
        self.0.file.size()
    }
    fn read(&self, into: &Buffers, offset: u64) -> io::Result<u64> {
        self.0.file.read(into, offset)
    }
    fn write(&self, from: &Buffers, offset: u64) -> io::Result<u64> {
        self.0.file.write(from, offset)
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.file.set_size(bytes)
    }
    fn flush(&self) -> io::Result<()> {
        match self.0.begun.fetch_add(1, Ordering::SeqCst) {
            // The system has noted that it told this caller; the thread loses its core.
            0 => {
                wait_for(&self.0.ended, 1);
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            _ => {
                self.0.ended.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }
}

#[test]
fn two_syncs_at_once_of_what_fdatasync_lost_both_say_so() {
    let (dir, host) = (TempDir::new(), host(2));
    let path = dir.file("a", 4);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let disk = TellsOnce(Arc::new(Once { file, begun, ended }));
    let files = {
        let _cpu = host.vm().machine().bind(0);
        let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
        let other = host.another(&file);
        [file, other]
    };
    let results = std::thread::scope(|s| {
        let (host, disk, files) = (&host, &disk, &files);
        let first = s.spawn(move || {
            let _cpu = host.vm().machine().bind(0);
            host.vm().objects().write(files[0].object(), 0, &[1]).1.unwrap();
            host.sync(&files[0])
        });
        let second = s.spawn(move || {
            wait_for(&disk.0.begun, 1);
            let _cpu = host.vm().machine().bind(1);
            host.sync(&files[1])
        });
        [first.join().unwrap(), second.join().unwrap()]
    });
    assert!(results[0].is_err(), "{results:?}");
    assert!(results[1].is_err(), "the page was written before it, and is lost: {results:?}");
}

#[test]
fn a_flush_that_panics_is_not_forgotten() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", 4), host.vm().machine().bind(0));
    let disk = Faulty::new(&path);
    let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
    let space = space(&host, file.object(), 4);
    store(&host, &cpu, &space, (0, 5)).unwrap();
    host.vm().objects().sync(file.object(), 0, u64::MAX).unwrap();
    disk.set_panics(true);
    assert!(host.sync(&file).is_err());
    disk.set_panics(false);
    assert!(host.sync(&file).is_err(), "what was lost is lost");
}

#[test]
fn a_cut_file_that_becomes_longer_shows_no_zeros_that_were_never_there() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", 8), host.vm().machine().bind(0));
    let file = open(&host, &path);
    let space = space(&host, file.object(), 16);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * PAGE).unwrap();
    assert_eq!(load(&host, &cpu, &space, 5 * PAGE), Err(FaultError::Io));
    let longer = host.set_len(&file, 12 * PAGE);
    let found = load(&host, &cpu, &space, 5 * PAGE);
    assert_ne!(found, Ok(0), "set_len: {longer:?}");
}

#[test]
fn a_pipe_is_no_file_and_nobody_waits_for_its_writer() {
    let dir = TempDir::new();
    let path = dir.path("pipe");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a name that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let (done, waits) = std::sync::mpsc::channel();
    let other = path.clone();
    std::thread::spawn(move || {
        let host = host(1);
        let _cpu = host.vm().machine().bind(0);
        done.send(host.open(&other, OpenMode::ReadOnly).map(drop).unwrap_err().kind).unwrap();
    });
    let kind = waits.recv_timeout(Duration::from_secs(3));
    // Lets the thread go.
    let _writer = OpenOptions::new().read(true).write(true).open(&path);
    assert_eq!(kind, Ok(FileErrorKind::NotAFile));
}

/// A file of which the first page cannot be written: a hole on a disk without room.
struct HoleAtTheBeginning(File);

impl Backing for HoleAtTheBeginning {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn read(&self, into: &Buffers, offset: u64) -> io::Result<u64> {
        self.0.read(into, offset)
    }
    fn write(&self, from: &Buffers, offset: u64) -> io::Result<u64> {
        match offset < PAGE {
            true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            false => self.0.write(from, offset),
        }
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_size(bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn pages_beside_one_that_cannot_be_written_are_written() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", 4), host.vm().machine().bind(0));
    let disk = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let file = host.adopt_backing(Box::new(HoleAtTheBeginning(disk))).unwrap();
    let space = space(&host, file.object(), 4);
    for page in 0..4 {
        store(&host, &cpu, &space, (page * PAGE, 70 + page)).unwrap();
    }
    for _ in 0..3 {
        assert!(host.sync(&file).is_err());
    }
    let found = words(&path);
    assert_eq!([found[512], found[1024], found[1536]], [71, 72, 73], "the others are written");
    assert_eq!(host.vm().objects().usage(file.object()).dirty_pages, 1);
}

#[test]
fn a_backing_that_panics_while_a_size_changes_leaves_its_cpu_as_it_was() {
    let (dir, plan) = (TempDir::new(), Plan { running: Some(1), ..Plan::new(2, 16 << 20) });
    let host = Host::new(plan, vellum::Config::default(), 1).unwrap();
    let (path, cpu) = (dir.file("a", 4), host.vm().machine().bind(0));
    let disk = Faulty::new(&path);
    let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
    disk.set_panics(true);
    let caught = catch_unwind(AssertUnwindSafe(|| host.set_len(&file, 8 * PAGE)));
    assert!(caught.is_err());
    disk.set_panics(false);
    std::thread::scope(|s| {
        let other = s.spawn(|| drop(host.vm().machine().bind(1)));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!other.is_finished(), "two CPUs run with one permit");
        assert_eq!(host.set_len(&file, 8 * PAGE), Ok(()));
        host.close(file);
        drop(cpu);
    });
}
