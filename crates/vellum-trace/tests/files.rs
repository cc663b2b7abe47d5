//! Files in a trace: each rule of the format, at the writer and at the reader.
mod common;

use common::{block_at, events, forged, read, version_1};
use vellum_trace::event::{Change, Event, Map};
use vellum_trace::{Call, Header, MapKind, Prot, TraceError, TraceWriter};

const MOST: u64 = 1 << 63;

/// A writer with thread 0 and the calls written one after the other.
fn write(changes: &[Change]) -> Result<Vec<u8>, TraceError> {
    let mut w = TraceWriter::new(Vec::new(), &Header::default(), 1)?;
    for e in &events(&[])[..2] {
        w.push(e)?;
    }
    for (order, change) in (0..).zip(changes) {
        w.push(&Event::Call(Box::new(Call { order, change: change.clone() })))?;
    }
    Ok(w.finish()?.1)
}

fn refused(changes: &[Change]) -> &'static str {
    match write(changes) {
        Err(TraceError::BadEvent { what }) => what,
        other => panic!("{other:?} of {changes:?}"),
    }
}

fn file(file: u32, bytes: u64) -> Change {
    Change::File { file, bytes, name: None }
}

fn named(name: &str) -> Change {
    Change::File { file: 0, bytes: 0, name: Some(name.into()) }
}

fn map(kind: MapKind, file: Option<u32>) -> Map {
    Map {
        mapping: 0,
        len: 8192,
        prot: Prot(3),
        kind,
        base: 0x10000,
        inside: None,
        file_offset: 4096,
        file,
        synthetic: false,
        moved: false,
        populate: false,
    }
}

#[test]
fn what_the_format_holds_at_its_limits_comes_back() {
    let long = "n".repeat(255);
    let all = [
        file(0, MOST),
        Change::File { file: 1, bytes: 0, name: Some(long) },
        Change::Map(map(MapKind::FileShared, Some(1))),
        Change::Map(Map { mapping: 1, ..map(MapKind::Image, Some(0)) }),
        Change::Map(Map { mapping: 2, inside: Some((1, 0)), ..map(MapKind::FilePrivate, Some(0)) }),
        Change::Map(Map { mapping: 3, ..map(MapKind::FilePrivate, None) }),
        Change::FileRead { file: 0, offset: MOST - 1, bytes: 1 },
        Change::FileWrite { file: 1, offset: 0, bytes: MOST },
        Change::FileSync { file: 1, offset: 0, bytes: u64::MAX },
        Change::FileSync { file: 1, offset: 4096, bytes: 4096 },
        Change::FileAdvise { file: 1, offset: MOST, bytes: u64::MAX, advice: 3 },
        Change::FileResize { file: 1, bytes: MOST },
        Change::Exit { code: 0 },
    ];
    let back = read(&write(&all).expect("legal")).expect("readable");
    let back: Vec<Change> = back
        .into_iter()
        .filter_map(|e| match e {
            Event::Call(c) => Some(c.change),
            _ => None,
        })
        .collect();
    assert_eq!(back, all);
}

#[test]
fn the_writer_refuses_what_breaks_a_rule() {
    let numbers = "file numbers must count from 0 to at most 65,535";
    assert_eq!(refused(&[file(1, 0)]), numbers);
    assert_eq!(refused(&[file(0, 0), file(0, 0)]), numbers);
    assert_eq!(refused(&[file(0, 0), file(2, 0)]), numbers);
    assert_eq!(refused(&[file(0, MOST + 1)]), "a file of more than 2^63 bytes");
    for bytes in [0, 256] {
        let what = refused(&[named(&"n".repeat(bytes))]);
        assert_eq!(what, "a file's name must have 1 to 255 bytes");
    }
    for name in ["/", "a/b", "a\0"] {
        assert_eq!(refused(&[named(name)]), "a file's name must hold neither '/' nor NUL");
    }
    let fork = |n| Change::Fork { child: Some(n) };
    let end = |n| Change::ChildEnd { child: n };
    for (calls, what) in [
        (&[fork(1)][..], "children must count from 0, with at most 65,536 at once"),
        (&[fork(0), end(0), fork(0)], "children must count from 0, with at most 65,536 at once"),
        (&[fork(0), end(1)], "a child ends that does not live"),
        (&[fork(0), end(0), end(0)], "a child ends that does not live"),
    ] {
        assert_eq!(refused(calls), what);
    }
    write(&[fork(0), fork(1), end(0), fork(2), end(2)]).expect("what happens");
    let unknown = "a file that has not appeared";
    let past = "a call reaches past 2^63 bytes of a file";
    for bytes in [0, 1] {
        let over = MOST - bytes + 1;
        for (file, offset, what) in [(1, 0, unknown), (0, over, past), (0, u64::MAX, past)] {
            let call = [
                Change::FileRead { file, offset, bytes },
                Change::FileWrite { file, offset, bytes },
                Change::FileSync { file, offset, bytes },
                Change::FileAdvise { file, offset, bytes, advice: 4 },
            ];
            for call in call {
                assert_eq!(refused(&[named("a"), call]), what);
            }
        }
    }
    // Only where it stands for the end of the file is this number no length.
    for call in [
        Change::FileRead { file: 0, offset: 0, bytes: u64::MAX },
        Change::FileWrite { file: 0, offset: 0, bytes: u64::MAX },
    ] {
        assert_eq!(refused(&[named("a"), call]), past);
    }
    assert_eq!(refused(&[Change::FileResize { file: 0, bytes: 0 }]), unknown);
    let resize = Change::FileResize { file: 0, bytes: MOST + 1 };
    assert_eq!(refused(&[named("a"), resize]), "a file of more than 2^63 bytes");
}

#[test]
fn a_mapping_names_a_file_that_is_known_and_only_if_it_has_one() {
    let private = map(MapKind::FilePrivate, Some(0));
    assert_eq!(refused(&[Change::Map(private.clone())]), "a file that has not appeared");
    for kind in MapKind::ALL {
        let list = [named("a"), Change::Map(map(kind, Some(0)))];
        if matches!(kind, MapKind::FilePrivate | MapKind::FileShared | MapKind::Image) {
            assert!(write(&list).is_ok(), "{kind:?}");
        } else {
            assert_eq!(refused(&list), "a mapping of no file names a file");
        }
    }
    let far = Map { file_offset: MOST - 8191, ..private };
    let what = "a mapping reaches past 2^63 bytes of its file";
    assert_eq!(refused(&[named("a"), Change::Map(far.clone())]), what);
    assert!(write(&[Change::Map(Map { file: None, ..far })]).is_ok(), "as format 1");
}

#[test]
fn there_are_at_most_65_536_files() {
    let mut all: Vec<Change> = (0..65_536).map(|n| file(n, 0)).collect();
    let bytes = write(&all).expect("legal");
    assert_eq!(read(&bytes).expect("readable").len(), 65_538);
    all.push(file(65_536, 0));
    assert_eq!(refused(&all), "file numbers must count from 0 to at most 65,535");
}

/// A block with thread 0 and calls as bytes.
fn block(calls: &[&[u8]]) -> Vec<u8> {
    let mut raw = (2 + calls.len() as u32).to_le_bytes().to_vec();
    raw.extend([17, 16]);
    raw.extend(calls.iter().map(|_| 19));
    raw.extend([0, 0]);
    raw.extend(calls.concat());
    raw
}

#[test]
fn the_reader_refuses_the_same_with_the_position_of_the_block() {
    let file_0: &[u8] = &[9, 0, 5, 1, b'a'];
    let huge: [u8; 10] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];
    let more = |head: &[u8], tail: &[u8]| [head, &huge, tail].concat();
    let numbers = "file numbers must count from 0 to at most 65,535";
    let unknown = "a file that has not appeared";
    let past = "a call reaches past 2^63 bytes of a file";
    let senseless = "a call that cannot be understood";
    let slash = "a file's name must hold neither '/' nor NUL";
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![9, 2, 5, 1, b'a'], numbers),
        (vec![9, 0, 5, 1, b'a'], numbers),
        (vec![9, 1, 5, 1, b'/'], slash),
        (vec![9, 1, 5, 2, b'a', 0], slash),
        (vec![9, 1, 5, 1, 0xff], senseless),
        (vec![9, 1, 5, 200, b'a'], senseless),
        // 2^63 itself is legal, one more is not.
        ([&[9, 1][..], &[0x81], &huge[1..], &[0]].concat(), "a file of more than 2^63 bytes"),
        (vec![10, 1, 0, 0], unknown),
        (vec![11, 1, 0, 0], unknown),
        (vec![12, 1, 0, 0], unknown),
        (vec![13, 1, 0], unknown),
        (vec![14, 1, 0, 0, 0], unknown),
        (more(&[10, 0], &[1]), past),
        (more(&[11, 0, 1], &[]), past),
        (more(&[12, 0, 1], &[]), past),
        (more(&[14, 0, 1], &[0]), past),
        (vec![18, 0, 0, 0], senseless),
        (vec![16, 1], "children must count from 0, with at most 65,536 at once"),
        (vec![17, 0], "a child ends that does not live"),
        (vec![10, 0, 1], senseless),
        // mapping, length, rights, what, base, file offset, flags, file
        (vec![0, 0, 0x80, 0x20, 3, 2, 0, 0, 16, 1], unknown),
        (vec![0, 0, 0x80, 0x20, 3, 0, 0, 0, 16, 0], "a mapping of no file names a file"),
        (vec![0, 0, 0x80, 0x20, 3, 2, 0, 0, 32, 0], senseless),
    ];
    for (bytes, expected) in cases {
        let trace = forged(&block(&[file_0, &bytes]), 4);
        match read(&trace) {
            Err(e @ TraceError::Corrupt { at, what }) => {
                assert_eq!((what, at), (expected, block_at(&trace) as u64), "{bytes:?}");
                let text = e.to_string();
                assert!(text.contains(&format!("near byte {at}")) && !text.contains('\n'));
            }
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
}

#[test]
fn format_1_is_read_and_has_no_files() {
    let old: &[u8] = &[0, 0, 0x80, 0x20, 3, 2, 0, 0, 0];
    let trace = version_1(forged(&block(&[old]), 3));
    // The block is taken, only the trailer is missing.
    assert!(matches!(read(&trace), Err(TraceError::Truncated { .. })));
    for new in [&[0, 0, 0x80, 0x20, 3, 2, 0, 0, 16, 0][..], &[9, 0, 5, 0], &[13, 0, 0]] {
        match read(&version_1(forged(&block(&[new]), 3))) {
            Err(TraceError::Corrupt { what, .. }) => {
                assert_eq!(what, "a call that cannot be understood");
            }
            other => panic!("{new:?}: {other:?}"),
        }
    }
}
