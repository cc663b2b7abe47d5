//! Files under the recorder: which they are, and what was read and written of them.
mod common;

use common::{check, compile, run, scratch};
use std::path::Path;
use vellum_trace::event::{Change, Event, Map, MapKind};
use vellum_trace::record::Options;

/// The calls of a recording.
struct Calls(Vec<Change>);

impl Calls {
    fn of(events: Vec<Event>) -> Calls {
        let change = |e| match e {
            Event::Call(c) => Some(c.change),
            _ => None,
        };
        Calls(events.into_iter().filter_map(change).collect())
    }

    /// Number and first size of the files of that name.
    fn named(&self, wanted: &str) -> Vec<(u32, u64)> {
        let known = self.0.iter().filter_map(|c| match c {
            Change::File { file, bytes, name } if name.as_deref() == Some(wanted) => {
                Some((*file, *bytes))
            }
            _ => None,
        });
        known.collect()
    }

    fn maps(&self, file: u32) -> Vec<&Map> {
        let maps = self.0.iter().filter_map(|c| match c {
            Change::Map(m) if m.file == Some(file) => Some(m),
            _ => None,
        });
        maps.collect()
    }

    /// What calls did to a file, in short.
    fn done(&self, wanted: u32) -> Vec<String> {
        let told = self.0.iter().filter_map(|c| {
            let (file, text) = match c {
                Change::FileRead { file, offset, bytes } => (file, format!("r {offset} {bytes}")),
                Change::FileWrite { file, offset, bytes } => (file, format!("w {offset} {bytes}")),
                Change::FileResize { file, bytes } => (file, format!("size {bytes}")),
                Change::FileSync { file, offset, bytes: u64::MAX } => {
                    (file, format!("sync {offset} end"))
                }
                Change::FileSync { file, offset, bytes } => {
                    (file, format!("sync {offset} {bytes}"))
                }
                Change::FileAdvise { file, offset, bytes: u64::MAX, advice } => {
                    (file, format!("advise {advice} {offset} end"))
                }
                Change::FileAdvise { file, offset, bytes, advice } => {
                    (file, format!("advise {advice} {offset} {bytes}"))
                }
                _ => return None,
            };
            (*file == wanted).then_some(text)
        });
        told.collect()
    }
}

fn options(dir: &Path, program: &Path) -> Options {
    let mut o = Options::new(vec![program.into(), dir.into()], dir.join("f.vt"));
    o.native = false;
    o
}

#[test]
fn calls_and_mappings_name_the_file_with_its_sizes_offsets_and_bytes() {
    let dir = scratch("files");
    let program = compile(&dir, "files");
    let (report, events) = run(options(&dir, &program));
    assert_eq!(report.exit_code, 0);
    check(&events);
    let calls = Calls::of(events);

    let data = calls.named("data.bin");
    assert_eq!(data.len(), 1, "three descriptors, one file");
    let (data, size) = data[0];
    assert_eq!(size, 0);
    let seen: Vec<_> = calls.maps(data).iter().map(|m| (m.kind, m.file_offset, m.len)).collect();
    let expected = [
        (MapKind::FileShared, 4096, 8192),
        (MapKind::FilePrivate, 0, 4096),
        (MapKind::FileShared, 4096, 65536),
    ];
    assert_eq!(seen, expected);
    assert!(calls.maps(data)[2].moved);
    let expected = [
        "w 0 10000",
        "w 20000 100",
        "r 0 300",
        "r 300 400",
        "r 9000 64",
        "r 700 150",
        "r 5000 150",
        "r 850 100",
        "w 10000 150",
        "w 12000 150",
        "sync 4096 8192",
        "sync 0 end",
        "sync 0 end",
        "sync 4096 100",
        "sync 8192 end",
        "advise 4 8192 4096",
        "advise 2 0 end",
        "advise 3 100 5000",
        "size 5000",
        "size 6000",
        "w 6000 10",
        "w 6010 20",
        "r 1000 500",
        "r 1500 200",
        "r 1700 64",
        "size 0",
    ];
    assert_eq!(calls.done(data), expected);

    let copies = calls.named("copy.bin");
    assert_eq!(copies.len(), 2, "a name that is used again is another file: {copies:?}");
    let expected = ["w 0 500", "w 4096 200", "w 500 64", "size 9000"];
    assert_eq!(calls.done(copies[0].0), expected);
    assert_eq!(calls.done(copies[1].0), ["w 0 7"]);

    let (memory, size) = calls.named("memfd:scratch")[0];
    assert_eq!(size, 0);
    assert_eq!(calls.done(memory), ["size 12288", "w 0 5"]);
    let maps = calls.maps(memory);
    assert_eq!((maps.len(), maps[0].kind, maps[0].len), (1, MapKind::FileShared, 12288));
    for other in ["zero", "status", "maps"] {
        assert_eq!(calls.named(other), [], "{other} is no file of the page cache");
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn images_and_libraries_are_files_that_their_mappings_share() {
    let dir = scratch("images");
    let program = compile(&dir, "files");
    let (_, events) = run(options(&dir, &program));
    let calls = Calls::of(events);
    let own = calls.named("files");
    let bytes = std::fs::metadata(&program).expect("the program").len();
    assert_eq!(own.iter().map(|f| f.1).collect::<Vec<_>>(), [bytes]);
    let parts = calls.maps(own[0].0);
    assert!(parts.len() >= 2, "an image has several parts: {parts:?}");
    assert!(parts.iter().all(|m| m.kind == MapKind::Image && m.synthetic));
    let library = calls.named("libc.so.6");
    assert_eq!(library.len(), 1);
    assert!(calls.maps(library[0].0).len() >= 3);
    // The loader reads a library's head before it maps the rest.
    assert!(calls.done(library[0].0)[0].starts_with("r 0 "), "{:?}", calls.done(library[0].0));
    // Every file mapping names its file, but for what reserves an image's place.
    for c in &calls.0 {
        if let Change::Map(m) = c {
            assert!(!m.kind.is_file() || m.file.is_some() || m.prot.0 == 0, "{m:?}");
        }
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn without_names_the_files_are_the_same() {
    let dir = scratch("names");
    let program = compile(&dir, "files");
    let mut o = options(&dir, &program);
    o.names = false;
    let (report, events) = run(o);
    assert_eq!(report.exit_code, 0);
    let calls = Calls::of(events);
    let mut files = 0;
    for c in &calls.0 {
        if let Change::File { name, .. } = c {
            assert_eq!(*name, None);
            files += 1;
        }
    }
    // The program, its interpreter, libc and what the loader looks up; data, two copies, a memfd.
    assert!((7..20).contains(&files), "{files}");
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn threads_that_share_descriptors_get_each_call_its_own_offset() {
    let dir = scratch("shared");
    let program = compile(&dir, "shared_files");
    let (report, events) = run(options(&dir, &program));
    assert_eq!(report.exit_code, 0);
    check(&events);
    let calls = Calls::of(events);
    let all = |what: &str| -> Vec<String> {
        let mut all: Vec<_> = (0..400).map(|i| format!("{what} {} 64", i * 64)).collect();
        all.sort();
        all
    };
    for (name, what, first) in [("in.bin", "r", 1), ("end.bin", "w", 0), ("far.bin", "w", 0)] {
        let mut done = calls.done(calls.named(name)[0].0).split_off(first);
        done.sort();
        assert_eq!(done, all(what), "{name}");
    }
    std::fs::remove_dir_all(dir).expect("removed");
}
