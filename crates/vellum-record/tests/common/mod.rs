//! Compiling a program, recording it, and checking that the trace could have happened.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use vellum_trace::event::{Change, Event};
use vellum_trace::record::{Options, RecordReport, Silent, record};
use vellum_trace::{Call, TraceReader};

/// A place for files of this test.
pub fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("vellum-record-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// Compiles a program of `tests/programs`.
pub fn compile(dir: &Path, name: &str) -> PathBuf {
    compile_with(dir, name, &[])
}

/// The same with more options of the compiler.
pub fn compile_with(dir: &Path, name: &str, more: &[&str]) -> PathBuf {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
        .with_extension("c");
    let out = dir.join(name);
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&out, &source])
        .args(more)
        .status()
        .expect("the C compiler `cc`");
    assert!(status.success());
    out
}

/// The plugin that cargo built for this test.
pub fn plugin() -> Option<PathBuf> {
    let exe = std::env::current_exe().expect("a test binary");
    let plugin =
        exe.ancestors().skip(1).map(|d| d.join("libvellum_record.so")).find(|p| p.is_file());
    Some(plugin.expect("the plugin, built by `cargo build -p vellum-record`"))
}

/// Records a command.
pub fn run(mut o: Options) -> (RecordReport, Vec<Event>) {
    o.plugin = plugin();
    let report = record(&o, &Silent).unwrap_or_else(|e| panic!("{e}"));
    let report = report.traces.into_iter().next().expect("a trace");
    let events = events(&o.out);
    (report, events)
}

/// All of a trace.
pub fn events(trace: &Path) -> Vec<Event> {
    let mut reader = TraceReader::open(trace).expect("a trace");
    let (mut all, mut block) = (Vec::new(), Vec::new());
    while reader.next_block(&mut block).expect("readable") {
        all.append(&mut block);
    }
    all
}

/// The recorded address space, as a naive map from page to (mapping, page of mapping).
#[derive(Default)]
pub struct Space {
    pages: BTreeMap<u64, (u32, u64)>,
    bases: Vec<u64>,
    heap: BTreeMap<u32, u64>,
}

impl Space {
    fn fill(&mut self, mapping: u32, from: u64, len: u64) {
        for p in from / 4096..(from + len) / 4096 {
            let at = self.bases[mapping as usize] / 4096 + p;
            self.pages.insert(at, (mapping, p));
        }
    }

    fn clear(&mut self, mapping: u32, offset: u64, len: u64) {
        for p in offset / 4096..(offset + len) / 4096 {
            let at = self.bases[mapping as usize] / 4096 + p;
            let was = self.pages.remove(&at);
            assert_eq!(was, Some((mapping, p)), "unmapping what is not there");
        }
    }

    /// Follows a call.
    pub fn call(&mut self, c: &Call) {
        match &c.change {
            Change::Map(m) => {
                assert_eq!(m.mapping as usize, self.bases.len());
                self.bases.push(m.base);
                if let Some((of, at)) = m.inside {
                    assert_eq!(self.bases[of as usize] + at, m.base, "inside at another distance");
                } else {
                    let free = m.base / 4096..(m.base + m.len) / 4096;
                    assert!(self.pages.range(free).next().is_none(), "mapped over something");
                }
                self.fill(m.mapping, 0, m.len);
            }
            Change::Unmap { mapping, offset, len } => self.clear(*mapping, *offset, *len),
            // The recorded layout has already given the old place to the new mapping if they
            // overlap.
            Change::Remap { old, offset, len, new } => {
                for p in offset / 4096..(offset + len) / 4096 {
                    let at = self.bases[*old as usize] / 4096 + p;
                    if self.pages.get(&at) != Some(&(*new, p - offset / 4096)) {
                        self.pages.remove(&at);
                    }
                }
            }
            Change::Brk { mapping, len } => {
                let old = self.heap.insert(*mapping, *len).unwrap_or(0);
                if *len > old {
                    self.fill(*mapping, old, len - old);
                } else {
                    self.clear(*mapping, *len, old - len);
                }
            }
            _ => {}
        }
    }

    /// Is this byte of this mapping visible?
    pub fn live(&self, mapping: u32, offset: u64) -> bool {
        let at = (self.bases[mapping as usize] + offset) / 4096;
        self.pages.get(&at) == Some(&(mapping, offset / 4096))
    }
}

/// Checks that every access and fetch hits memory that is mapped at that point.
pub fn check(events: &[Event]) -> Space {
    let mut space = Space::default();
    for (i, e) in events.iter().enumerate() {
        match e {
            Event::Call(c) => space.call(c),
            Event::Access { mapping, offset, .. } | Event::Fetch { mapping, offset, .. } => {
                assert!(space.live(*mapping, *offset), "event {i} hits unmapped memory: {e:?}");
            }
            _ => {}
        }
    }
    space
}
