//! Running the command, and making small traces for it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vellum_trace::event::{Call, Change, Event, Flags, Map, MapKind, Prot};
use vellum_trace::{Header, Khugepaged, LEVEL_FAST, NativeRun, Recorder, TraceWriter};

/// What the command said and how it ended.
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

/// Runs `vellum` with these arguments.
pub fn vellum(args: &[&str]) -> Said {
    run(Command::new(env!("CARGO_BIN_EXE_vellum")).args(args))
}

/// The same with `host` kept in a folder of its own.
pub fn with_cache(cache: &Path, args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    run(command.args(args).env("XDG_CACHE_HOME", cache))
}

fn run(command: &mut Command) -> Said {
    let output: Output = command.output().expect("the command is built beside its tests");
    Said {
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

/// A file of this test process that goes away with the value.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new(name: &str) -> Temporary {
        Temporary(std::env::temp_dir().join(format!("vellum-lab-{}-{name}", std::process::id())))
    }
    pub fn with(name: &str, bytes: &[u8]) -> Temporary {
        let t = Temporary::new(name);
        std::fs::write(&t.0, bytes).expect("the temporary folder takes files");
        t
    }
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a name of our own")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A trace that comes with the project.
pub fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name)
}

/// A program written event by event.
#[derive(Clone)]
pub struct Script {
    events: Vec<Event>,
    order: u64,
    mappings: u32,
    files: u32,
    pub native: Option<NativeRun>,
    /// The kernel it was recorded on.
    pub kernel: String,
    /// Its collapse in the background.
    pub khugepaged: Khugepaged,
    pub folio_ahead: String,
    /// The recorder's windows.
    pub window: String,
    pub command: String,
}

impl Script {
    pub fn new() -> Script {
        Script {
            events: vec![Event::ThreadStart { thread: 0 }, Event::Switch { thread: 0 }],
            order: 0,
            mappings: 0,
            files: 0,
            native: None,
            kernel: String::new(),
            khugepaged: Khugepaged::default(),
            folio_ahead: String::new(),
            window: String::new(),
            command: "made".to_owned(),
        }
    }
    pub fn push(&mut self, event: Event) -> &mut Self {
        self.events.push(event);
        self
    }
    pub fn call(&mut self, change: Change) -> &mut Self {
        let order = self.order;
        self.order += 1;
        self.push(Event::Call(Box::new(Call { order, change })))
    }
    /// A new mapping; its number.
    pub fn map(&mut self, pages: u64, kind: MapKind, prot: Prot) -> u32 {
        let map = self.fresh(self.mappings, pages, kind);
        self.map_as(Map { prot, ..map })
    }
    /// A readable and writable mapping of that number.
    pub fn fresh(&self, mapping: u32, pages: u64, kind: MapKind) -> Map {
        Map {
            mapping,
            len: pages * 4096,
            prot: RW,
            kind,
            base: 0x7f00_0000_0000 + (u64::from(mapping) << 32),
            inside: None,
            file_offset: 0,
            file: None,
            synthetic: false,
            moved: false,
            populate: false,
        }
    }
    pub fn map_as(&mut self, map: Map) -> u32 {
        self.mappings = self.mappings.max(map.mapping + 1);
        let mapping = map.mapping;
        self.call(Change::Map(map));
        mapping
    }
    /// A new file of so many bytes; its number.
    pub fn new_file(&mut self, bytes: u64) -> u32 {
        let file = self.files;
        self.files += 1;
        self.call(Change::File { file, bytes, name: None });
        file
    }
    /// A mapping of a named file from its beginning on; its number.
    pub fn map_file(&mut self, file: u32, pages: u64, kind: MapKind) -> u32 {
        let mapping = self.mappings;
        self.map_as(Map { file: Some(file), ..self.fresh(mapping, pages, kind) })
    }
    pub fn anon(&mut self, pages: u64) -> u32 {
        self.map(pages, MapKind::Anon, RW)
    }
    pub fn switch(&mut self, thread: u32) -> &mut Self {
        self.push(Event::Switch { thread })
    }
    pub fn load(&mut self, mapping: u32, offset: u64) -> &mut Self {
        self.push(Event::Access { mapping, size: 8, flags: Flags::READ, offset })
    }
    pub fn store(&mut self, mapping: u32, offset: u64) -> &mut Self {
        self.push(Event::Access { mapping, size: 8, flags: Flags::WRITE, offset })
    }
    /// One load a page.
    pub fn read(&mut self, mapping: u32, pages: std::ops::Range<u64>) -> &mut Self {
        for p in pages {
            self.load(mapping, p * 4096);
        }
        self
    }
    /// One store a page.
    pub fn touch(&mut self, mapping: u32, pages: std::ops::Range<u64>) -> &mut Self {
        for p in pages {
            self.store(mapping, p * 4096 + 8);
        }
        self
    }
    pub fn bytes(&self) -> Vec<u8> {
        let header = Header {
            command: vec![self.command.clone()],
            recorder: Recorder::Made,
            arch: "x86_64".to_owned(),
            page_size: 4096,
            native: self.native,
            host_kernel: self.kernel.clone(),
            host_khugepaged: self.khugepaged.clone(),
            host_folio_ahead: self.folio_ahead.clone(),
            window: self.window.clone(),
            ..Header::default()
        };
        let mut w =
            TraceWriter::new(Vec::new(), &header, LEVEL_FAST).expect("memory takes everything");
        for e in &self.events {
            w.push(e).expect("a rightful event");
        }
        w.finish().expect("memory takes everything").1
    }
    pub fn file(&self, name: &str) -> Temporary {
        Temporary::with(name, &self.bytes())
    }
}

pub const RW: Prot = Prot(3);
pub const R: Prot = Prot(1);
pub const RX: Prot = Prot(5);

/// A run's JSON: the counters of its columns, which begin with the library's own choices.
pub fn counters(
    trace: &Temporary,
    more: &[&str],
) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let args: Vec<&str> = ["run", "--as", "vellum", "--trace", trace.path(), "--json"]
        .iter()
        .chain(more)
        .copied()
        .collect();
    let said = vellum(&args);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    doc["variants"]
        .as_array()
        .expect("variants")
        .iter()
        .map(|v| v["counters"].as_object().expect("counters").clone())
        .collect()
}

/// One counter.
pub fn count(counters: &serde_json::Map<String, serde_json::Value>, name: &str) -> i64 {
    counters
        .get(name)
        .and_then(serde_json::Value::as_i64)
        .unwrap_or_else(|| panic!("no counter `{name}`"))
}
