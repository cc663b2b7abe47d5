//! The file's length and the object's size.

use std::fs;

use vellum::FaultError;
use vellum_host::files::{FileErrorKind, FileOp, OpenMode};

use super::common::*;

fn size(host: &Host, file: &vellum_host::files::PagedFile) -> u64 {
    host.vm().objects().usage(file.object()).bytes
}

#[test]
fn a_sync_writes_no_byte_past_the_file_s_end() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.path("a"), host.vm().machine().bind(0));
    fs::write(&path, vec![7; 4096 + 100]).unwrap();
    let file = open(&host, &path);
    assert_eq!(size(&host, &file), 4096 + 100);
    let space = space(&host, file.object(), 4);
    assert_eq!(load(&host, &cpu, &space, PAGE + 104), Ok(0), "past the end is zero");
    store(&host, &cpu, &space, (PAGE + 104, 1)).unwrap();
    store(&host, &cpu, &space, (PAGE, 1)).unwrap();
    assert_eq!(load(&host, &cpu, &space, 2 * PAGE), Err(FaultError::Beyond));
    assert_eq!(host.sync(&file), Ok(()));
    assert_eq!(fs::metadata(&path).unwrap().len(), 4096 + 100);
    assert_eq!(words(&path)[512], 1);
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_file_that_becomes_shorter_and_longer_has_zeros_there() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", 8), host.vm().machine().bind(0));
    let file = open(&host, &path);
    let space = space(&host, file.object(), 16);
    for page in 0..8 {
        store(&host, &cpu, &space, (page * PAGE + 8, 1)).unwrap();
    }
    host.set_len(&file, 3 * PAGE + 16).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 * PAGE + 16);
    host.set_len(&file, 12 * PAGE).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 12 * PAGE);
    for (at, is) in [(8, 1), (3 * PAGE + 8, 1), (3 * PAGE + 16, 0), (7 * PAGE, 0), (11 * PAGE, 0)] {
        assert_eq!(load(&host, &cpu, &space, at), Ok(is), "byte {at}");
    }
    store(&host, &cpu, &space, (11 * PAGE, 5)).unwrap();
    assert_eq!(host.sync(&file), Ok(()));
    let found = words(&path);
    assert_eq!((found[11 * 512], found[3 * 512 + 1], found[3 * 512 + 2]), (5, 1, 0));
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_file_that_could_not_be_cut_shows_none_of_it_later() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", 8), host.vm().machine().bind(0));
    let file = host.open(&path, OpenMode::ReadOnly).unwrap();
    let space = space(&host, file.object(), 8);
    for _ in 0..2 {
        let error = host.set_len(&file, PAGE).unwrap_err();
        assert_eq!((error.op, error.kind), (FileOp::SetLen, FileErrorKind::Denied));
        assert_eq!(size(&host, &file), PAGE, "the object is as short as was asked for");
    }
    assert!(host.set_len(&file, 4 * PAGE).is_err(), "or what was cut would be seen again");
    assert_eq!(size(&host, &file), PAGE);
    assert_eq!(load(&host, &cpu, &space, 2 * PAGE), Err(FaultError::Beyond));
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_length_that_no_file_has_is_refused() {
    let (dir, host) = (TempDir::new(), host(1));
    let _cpu = host.vm().machine().bind(0);
    let file = open(&host, &dir.file("a", 1));
    assert!(host.set_len(&file, u64::MAX).is_err());
    assert!(host.set_len(&file, i64::MAX as u64).is_err());
    assert_eq!(size(&host, &file), PAGE);
    let seals = vellum::space::Seals { grow: true, shrink: true, write: false };
    host.vm().objects().seal(file.object(), seals).unwrap();
    for bytes in [0, 2 * PAGE] {
        let error = host.set_len(&file, bytes).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Object(vellum::ObjectError::Sealed));
    }
    assert_eq!(fs::metadata(dir.path("a")).unwrap().len(), PAGE);
    host.close(file);
}
