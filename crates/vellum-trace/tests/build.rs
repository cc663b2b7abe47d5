//! Files as a recorder tells of them.
mod common;

use common::read;
use vellum_trace::build::{Builder, FileCall, FileId, FilePart, FileState, MapRequest, Region};
use vellum_trace::event::{Change, Event, Flags};
use vellum_trace::{Header, Map, MapKind, Prot, TraceError, TraceWriter};

type Build = Builder<Vec<u8>>;

/// What a recording of one thread makes.
fn changes(record: impl FnOnce(&mut Build) -> Result<(), TraceError>) -> Vec<Change> {
    let writer = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
    let mut b = Builder::new(writer, None);
    b.start_thread().expect("legal");
    record(&mut b).expect("nothing that the format refuses");
    assert!(b.validate());
    let (_, bytes) = b.finish().expect("memory");
    let change = |e| match e {
        Event::Call(c) => Some(c.change),
        _ => None,
    };
    read(&bytes).expect("readable").into_iter().filter_map(change).collect()
}

fn file(inode: u64, bytes: u64) -> FileState {
    FileState { id: FileId { device: 1, inode, born: 0 }, bytes }
}

fn part(file: FileState, offset: u64, bytes: u64) -> FilePart {
    FilePart { file, offset, bytes }
}

fn request(file: FileState) -> MapRequest {
    MapRequest {
        addr: 0x10_0000,
        len: 0x8000,
        prot: Prot(3),
        kind: MapKind::FileShared,
        file_offset: 0x3000,
        file: Some(file),
        populate: false,
    }
}

fn maps(list: &[Change]) -> Vec<&Map> {
    let maps = list.iter().filter_map(|c| match c {
        Change::Map(m) => Some(m),
        _ => None,
    });
    maps.collect()
}

#[test]
fn a_file_appears_when_it_is_used_and_only_once() {
    let list = changes(|b| {
        b.file_seen(file(1, 10), Some("/a/never used"))?;
        b.file_seen(file(2, 100), Some("/a/b/used"))?;
        b.file_call(&FileCall::Read(part(file(2, 100), 5, 6)))?;
        b.file_call(&FileCall::Write(part(file(3, 7), 0, 7)))?;
        b.file_call(&FileCall::Read(part(file(2, 100), 11, 6)))
    });
    let expected = [
        Change::File { file: 0, bytes: 100, name: Some("used".into()) },
        Change::FileRead { file: 0, offset: 5, bytes: 6 },
        Change::File { file: 1, bytes: 7, name: None },
        Change::FileWrite { file: 1, offset: 0, bytes: 7 },
        Change::FileRead { file: 0, offset: 11, bytes: 6 },
    ];
    assert_eq!(list, expected);
}

#[test]
fn a_size_that_no_call_explains_is_a_resize() {
    let list = changes(|b| {
        b.file_seen(file(1, 100), None)?;
        b.file_call(&FileCall::Write(part(file(1, 150), 90, 60)))?;
        b.file_call(&FileCall::Write(part(file(1, 150), 0, 10)))?;
        // Somebody else has written.
        b.file_call(&FileCall::Write(part(file(1, 900), 150, 50)))?;
        b.file_call(&FileCall::Read(part(file(1, 950), 0, 1)))?;
        b.file_call(&FileCall::Resize(file(1, 950)))?;
        b.file_call(&FileCall::Resize(file(1, 20)))?;
        // Opened with O_TRUNC.
        b.file_seen(file(1, 0), None)
    });
    let resize = |bytes| Change::FileResize { file: 0, bytes };
    let write = |offset, bytes| Change::FileWrite { file: 0, offset, bytes };
    let expected = [
        Change::File { file: 0, bytes: 100, name: None },
        write(90, 60),
        write(0, 10),
        write(150, 50),
        resize(900),
        resize(950),
        Change::FileRead { file: 0, offset: 0, bytes: 1 },
        resize(20),
        resize(0),
    ];
    assert_eq!(list, expected);
}

#[test]
fn an_inode_number_used_again_is_another_file() {
    let list = changes(|b| {
        for born in [1, 2, 1] {
            let mut f = file(9, 0);
            f.id.born = born;
            b.file_call(&FileCall::Sync(part(f, 0, u64::MAX)))?;
        }
        Ok(())
    });
    let sync = |c: &Change| if let Change::FileSync { file, .. } = c { Some(*file) } else { None };
    assert_eq!(list.iter().filter_map(sync).collect::<Vec<_>>(), [0, 1, 0]);
}

#[test]
fn a_name_is_the_last_part_and_fits_the_format() {
    let long = format!("/x/{}\u{e9}", "n".repeat(254));
    let names = [
        ("/usr/lib/libc.so.6", Some("libc.so.6")),
        ("plain", Some("plain")),
        ("a\0b", Some("ab")),
        (&long, Some(&long[3..257])),
        ("/ends/", None),
        ("", None),
    ];
    for (path, kept) in names {
        let list = changes(|b| {
            b.file_seen(file(1, 0), Some(path))?;
            b.file_call(&FileCall::Resize(file(1, 0)))
        });
        let expected = Change::File { file: 0, bytes: 0, name: kept.map(str::to_owned) };
        assert_eq!(list, [expected], "{path}");
    }
}

#[test]
fn a_moved_mapping_keeps_file_and_offset_and_msync_finds_them() {
    let f = file(4, 0x10_0000);
    let list = changes(|b| {
        b.mmap(&request(f))?;
        b.mremap(0x10_2000, 0x2000, 0x40_0000, 0x6000, true)?;
        b.msync(0x40_1000, 0x1000)?;
        b.msync(0x10_0000, 0x3000)?;
        // Memory without a file, and a file's private pages, are synced nowhere.
        let private = MapRequest { addr: 0x60_0000, kind: MapKind::FilePrivate, ..request(f) };
        b.mmap(&private)?;
        b.msync(0x60_0000, 0x1000)
    });
    let seen: Vec<_> = maps(&list).iter().map(|m| (m.base, m.file, m.file_offset)).collect();
    let expected = [
        (0x10_0000, Some(0), 0x3000),
        (0x40_0000, Some(0), 0x5000),
        (0x10_2000, Some(0), 0x5000),
        (0x60_0000, Some(0), 0x3000),
    ];
    assert_eq!(seen, expected);
    let synced = list.iter().filter_map(|c| match c {
        Change::FileSync { file: 0, offset, bytes } => Some((*offset, *bytes)),
        _ => None,
    });
    let expected = [(0x6000, 0x1000), (0x3000, 0x2000), (0x5000, 0x1000)];
    assert_eq!(synced.collect::<Vec<_>>(), expected);
}

#[test]
fn an_image_of_several_parts_is_one_file() {
    let region = |start, len, file_offset, kind, file| Region {
        start,
        end: start + len,
        prot: Prot(1),
        kind,
        file_offset,
        file,
        group: 1,
    };
    let f = Some(file(5, 0x9000));
    let list = changes(|b| {
        b.set_regions(vec![
            region(0x40_0000, 0x1000, 0, MapKind::Image, f),
            region(0x40_1000, 0x2000, 0x1000, MapKind::Image, f),
            region(0x40_3000, 0x1000, 0, MapKind::ImageBss, None),
        ]);
        b.file_seen(file(5, 0x9000), Some("/bin/program"))?;
        b.fetch(0x40_1000, 3)
    });
    assert_eq!(list.iter().filter(|c| matches!(c, Change::File { .. })).count(), 1);
    let seen: Vec<_> = maps(&list).iter().map(|m| (m.kind, m.file, m.file_offset)).collect();
    let expected = [
        (MapKind::Image, None, 0),
        (MapKind::Image, Some(0), 0),
        (MapKind::Image, Some(0), 0x1000),
        (MapKind::ImageBss, None, 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_the_format_cannot_hold_is_left_out_and_the_recording_goes_on() {
    const MOST: u64 = 1 << 63;
    let f = file(6, 10);
    let list = changes(|b| {
        b.file_call(&FileCall::Advise(part(f, MOST + 1, u64::MAX), 1))?;
        b.file_call(&FileCall::Read(part(f, 1, MOST)))?;
        b.file_call(&FileCall::Write(part(f, 0, u64::MAX)))?;
        b.file_call(&FileCall::Resize(file(7, MOST + 1)))?;
        b.mmap(&MapRequest { file_offset: MOST, ..request(f) })?;
        b.file_call(&FileCall::Advise(part(f, MOST, u64::MAX), 1))
    });
    let seen: Vec<_> = maps(&list).iter().map(|m| m.file).collect();
    assert_eq!(seen, [None]);
    assert_eq!(list.len(), 3, "the mapping, the file and the last advice: {list:?}");
}

#[test]
fn past_the_last_number_files_are_left_out() {
    let list = changes(|b| {
        for inode in 0..65_537 {
            b.file_call(&FileCall::Read(part(file(inode, 1), 0, 1)))?;
        }
        b.mmap(&request(file(65_536, 1)))?;
        b.file_call(&FileCall::Read(part(file(0, 1), 0, 1)))
    });
    assert_eq!(list.len(), 2 * 65_536 + 2);
    assert_eq!(maps(&list)[0].file, None);
}

fn anonymous(addr: u64, len: u64) -> MapRequest {
    let kind = MapKind::Anon;
    MapRequest { addr, len, prot: Prot(3), kind, file_offset: 0, file: None, populate: false }
}

/// The kernel has made one mapping of it again by then.
#[test]
fn a_mapping_whose_rights_went_and_came_back_is_moved_as_a_whole() {
    let list = changes(|b| {
        b.mmap(&anonymous(0x10_0000, 0x8000))?;
        for prot in [Prot::READ, Prot(3)] {
            b.mprotect(0x10_2000, 0x2000, prot)?;
        }
        // A part of what was cut, and over its end.
        b.mprotect(0x10_5000, 0x3000, Prot::NONE)?;
        b.mprotect(0x10_6000, 0x2000, Prot(3))?;
        b.mprotect(0x10_5000, 0x1000, Prot(3))?;
        b.mremap(0x10_0000, 0x8000, 0x40_0000, 0x1_0000, false)
    });
    let moved = Change::Remap { old: 0, offset: 0, len: 0x8000, new: 1 };
    assert_eq!(list.last(), Some(&moved), "{list:?}");
    assert!(!list.iter().any(|c| matches!(c, Change::Unmap { .. })), "{list:?}");
}

#[test]
fn an_access_over_the_edge_of_a_page_is_left_out_by_a_window_like_any_other() {
    let window = "1M,1".parse().expect("a window");
    let writer = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
    let mut b = Builder::new(writer, Some(window));
    b.start_thread().expect("legal");
    for addr in [0x10_0000, 0x10_2000] {
        b.mmap(&anonymous(addr, 0x2000)).expect("legal");
    }
    // First touches, then over an edge inside of a mapping, and over that of two.
    let pages = (0..4).map(|page| 0x10_0000 + page * 4096);
    let edges = [0x10_0ffc, 0x10_1ffc].repeat(10);
    for addr in pages.chain(edges) {
        b.access(addr, 8, Flags::READ).expect("legal");
    }
    let (totals, bytes) = b.finish().expect("memory");
    assert_eq!((totals.loads, totals.skipped_accesses), (4, 20));
    let skips = read(&bytes).expect("readable");
    let skips = skips.iter().filter(|e| matches!(e, Event::Skip { .. })).count();
    assert_eq!(skips, 1, "nothing was kept in between");
}

#[test]
fn an_exec_in_vain_takes_nothing_from_other_threads() {
    let writer = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
    let mut b = Builder::new(writer, None);
    for _ in 0..2 {
        b.start_thread().expect("legal");
    }
    b.mmap(&anonymous(0x10_0000, 0x4000)).expect("legal");
    b.access(0x10_0000, 8, Flags::READ).expect("legal");
    b.switch(1).expect("started");
    b.access(0x10_1000, 8, Flags::READ).expect("legal");
    b.keep(false);
    b.access(0x10_1000, 8, Flags::READ).expect("legal");
    b.switch(0).expect("started");
    b.exec().expect("legal");
    b.checkpoint().expect("memory");
    let at = b.no_exec().expect("an exec");
    b.get_mut().truncate(at as usize);
    b.keep(true);
    b.switch(1).expect("started");
    b.access(0x10_1008, 8, Flags::READ).expect("legal");
    let (totals, bytes) = b.finish().expect("memory");
    let (mut current, mut last) = (0, None);
    for event in read(&bytes).expect("readable") {
        match event {
            Event::Switch { thread } => current = thread,
            Event::Access { offset, .. } => last = Some((current, offset)),
            _ => {}
        }
    }
    assert_eq!((last, totals.skipped_accesses), (Some((1, 0x1008)), 1));
}
