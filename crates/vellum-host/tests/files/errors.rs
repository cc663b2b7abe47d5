//! Errors of a file that is open: what a fault says, what the file says, and what becomes of the
//! page.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use vellum::{FaultError, ObjectError};
use vellum_host::files::{FileErrorKind, FileOp, OpenMode};

use super::backings::{Faulty, Slow};
use super::common::*;

const PAGES: u64 = 8;

#[test]
fn a_full_disk_is_named_and_the_page_is_written_when_there_is_room() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let disk = Faulty::new(&path);
    let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
    let space = space(&host, file.object(), PAGES);
    disk.set_full(true);
    store(&host, &cpu, &space, (3 * PAGE, 77)).unwrap();
    for _ in 0..2 {
        let error = host.sync(&file).unwrap_err();
        assert_eq!((error.op, error.kind), (FileOp::Write, FileErrorKind::Full));
        assert_eq!((error.errno, error.offset), (Some(libc::ENOSPC), 3 * PAGE));
        assert_eq!(file.last_error(FileOp::Write), Some(error));
        assert_eq!(host.vm().objects().usage(file.object()).dirty_pages, 1);
        assert_eq!(load(&host, &cpu, &space, 3 * PAGE), Ok(77), "it is not lost");
    }
    disk.set_full(false);
    assert_eq!(host.sync(&file), Ok(()));
    assert_eq!(words(&path)[3 * 512], 77);
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_file_that_is_open_for_reading_only_is_not_written() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let file = host.open(&path, OpenMode::ReadOnly).unwrap();
    let space = space(&host, file.object(), PAGES);
    assert_eq!(host.sync(&file), Ok(()), "nothing is dirty");
    store(&host, &cpu, &space, (PAGE, 1)).unwrap();
    let error = host.sync(&file).unwrap_err();
    assert_eq!((error.kind, error.errno), (FileErrorKind::Denied, Some(libc::EBADF)));
    assert_eq!(words(&path)[512], PAGE);
    let error = host.set_len(&file, PAGE * 2 * PAGES).unwrap_err();
    assert_eq!((error.op, error.kind), (FileOp::SetLen, FileErrorKind::Denied));
    assert_eq!(host.vm().objects().usage(file.object()).bytes, PAGES * PAGE);
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_file_that_somebody_cuts_has_no_zeros_that_were_never_there() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let file = open(&host, &path);
    let space = space(&host, file.object(), PAGES);
    let other = OpenOptions::new().write(true).open(&path).unwrap();
    other.set_len(2 * PAGE + 100).unwrap();
    for at in [0, PAGE, PAGE + 4088] {
        assert_eq!(load(&host, &cpu, &space, at), Ok(at), "it is still there");
    }
    for (at, end) in [(2 * PAGE, 2 * PAGE + 100), (5 * PAGE, 5 * PAGE)] {
        assert_eq!(load(&host, &cpu, &space, at), Err(FaultError::Io));
        let mut bytes = [0; 8];
        let read = host.vm().objects().read(file.object(), at, &mut bytes);
        assert_eq!(read, (0, Err(ObjectError::Io)));
        let error = file.last_error(FileOp::Read).unwrap();
        assert_eq!((error.kind, error.errno), (FileErrorKind::Cut, None));
        assert_eq!(error.offset, end, "the first byte that is missing");
    }
    // Who knows the new length goes on with it.
    host.set_len(&file, 2 * PAGE + 100).unwrap();
    assert_eq!(load(&host, &cpu, &space, 2 * PAGE), Ok(2 * PAGE));
    assert_eq!(load(&host, &cpu, &space, 3 * PAGE), Err(FaultError::Beyond));
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_file_that_was_unlinked_stays_until_nobody_maps_it() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let file = open(&host, &path);
    let space = space(&host, file.object(), PAGES);
    fs::remove_file(&path).unwrap();
    assert_eq!(load(&host, &cpu, &space, 5 * PAGE), Ok(5 * PAGE));
    store(&host, &cpu, &space, (5 * PAGE, 1)).unwrap();
    assert_eq!(host.sync(&file), Ok(()));
    assert_eq!(host.vm().objects().evict(file.object(), 0, u64::MAX), 1);
    assert_eq!(load(&host, &cpu, &space, 5 * PAGE), Ok(1));
    // Given back while it is mapped: it is open until the mapping goes.
    host.close(file);
    assert_eq!(load(&host, &cpu, &space, 5 * PAGE + 8), Ok(5 * PAGE + 8));
    assert_eq!(load(&host, &cpu, &space, 0), Ok(0));
    assert_eq!(descriptors_of(&path), 1);
    host.vm().exit(space);
    // What was read ahead may still be on its way, and keeps the file until it is there.
    let given_up = Instant::now() + Duration::from_secs(60);
    while descriptors_of(&path) > 0 && Instant::now() < given_up {
        thread::yield_now();
    }
    assert_eq!(descriptors_of(&path), 0);
}

/// Descriptors of this process that are of a file, unlinked or not.
fn descriptors_of(path: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("a list of descriptors");
    let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with(&*path.to_string_lossy())).count()
}

#[test]
fn an_error_is_told_once_by_each_of_two_that_have_the_file() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let disk = Faulty::new(&path);
    let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
    let other = host.another(&file);
    let space = space(&host, file.object(), PAGES);
    store(&host, &cpu, &space, (3 * PAGE, 5)).unwrap();
    disk.fail_writes(libc::ENOSPC);
    let error = host.sync(&file).unwrap_err();
    assert_eq!((error.kind, error.offset), (FileErrorKind::Full, 3 * PAGE));
    disk.fail_writes(0);
    assert_eq!(host.sync(&file), Ok(()));
    assert_eq!((host.sync(&other), host.sync(&other)), (Err(error), Ok(())));
    host.vm().exit(space);
    host.close(file);
    host.close(other);
}

#[test]
fn a_failed_fdatasync_is_said_by_every_sync_until_the_file_is_opened_anew() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let disk = Faulty::new(&path);
    let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
    let space = space(&host, file.object(), PAGES);
    store(&host, &cpu, &space, (0, 5)).unwrap();
    disk.fail_flushes(libc::EIO);
    let error = host.sync(&file).unwrap_err();
    assert_eq!((error.op, error.errno), (FileOp::Flush, Some(libc::EIO)));
    disk.fail_flushes(0);
    assert_eq!(host.sync(&file), Err(error), "the system would say that all is well");
    assert_eq!(file.last_error(FileOp::Flush), Some(error));
    let anew = open(&host, &path);
    assert_eq!(host.sync(&anew), Ok(()));
    host.vm().exit(space);
    host.close(file);
    host.close(anew);
}

#[test]
fn a_page_of_several_that_cannot_be_read_fails_alone_and_is_read_later() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let disk = Faulty::new(&path);
    let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
    let space = space(&host, file.object(), PAGES);
    disk.fail_reads(libc::EIO);
    assert_eq!(load(&host, &cpu, &space, 0), Err(FaultError::Io));
    assert_eq!(disk.calls(), 2, "four pages, then one");
    let error = file.last_error(FileOp::Read).unwrap();
    assert_eq!((error.kind, error.errno), (FileErrorKind::Other, Some(libc::EIO)));
    // A backing that panics fails, and its thread goes on.
    disk.fail_reads(0);
    disk.set_panics(true);
    assert_eq!(load(&host, &cpu, &space, 0), Err(FaultError::Io));
    disk.set_panics(false);
    disk.set_interrupts();
    for page in 0..PAGES {
        assert_eq!(load(&host, &cpu, &space, page * PAGE), Ok(page * PAGE));
    }
    store(&host, &cpu, &space, (0, 9)).unwrap();
    assert_eq!(host.sync(&file), Ok(()));
    assert_eq!(words(&path)[0], 9);
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_call_that_does_a_part_is_repeated_for_the_rest() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", PAGES), host.vm().machine().bind(0));
    let file = host.adopt_backing(Box::new(Slow::new(&path))).unwrap();
    let space = space(&host, file.object(), PAGES);
    for at in (0..PAGES * PAGE).step_by(8) {
        assert_eq!(load(&host, &cpu, &space, at), Ok(at));
        store(&host, &cpu, &space, (at, at + 1)).unwrap();
    }
    assert_eq!(host.sync(&file), Ok(()));
    assert!((0..).step_by(8).zip(words(&path)).all(|(at, word)| word == at + 1));
    host.vm().exit(space);
    host.close(file);
}
