//! A machine with files, and a directory for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::{
    Access, Attrs, Config, FaultError, Object, ObjectPart, Placement, Rights, Space, Va, X86_64,
};
use vellum_host::files::{FileVm, OpenMode, PagedFile};
use vellum_host::machine::{CpuGuard, Plan};

pub const PAGE: u64 = 4096;
/// Where files are mapped.
pub const AT: Va = Va(0x4000_0000);

pub type Host = FileVm<X86_64, true>;
pub type Cpu<'h> = CpuGuard<'h, X86_64, true>;

/// A directory that goes with the value.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("vellum-files-{}-{n}", std::process::id()));
        fs::create_dir(&path).expect("a directory for temporary files");
        TempDir(path)
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// A file of so many pages; each word says where it lies.
    pub fn file(&self, name: &str, pages: u64) -> PathBuf {
        let words = (0..pages * PAGE / 8).flat_map(|n| (n * 8).to_ne_bytes());
        fs::write(self.path(name), words.collect::<Vec<u8>>()).expect("room for a file");
        self.path(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A machine of so many CPUs and two I/O threads.
pub fn host(cpus: usize) -> Host {
    let plan = Plan { jitter: 2000, scribble: true, seed: 1, ..Plan::new(cpus, 64 << 20) };
    Host::new(plan, Config::default(), 2).expect("a machine")
}

pub fn open(host: &Host, path: &Path) -> PagedFile {
    host.open(path, OpenMode::ReadWrite).expect("a file")
}

/// A space that maps so many pages of an object at [`AT`], and is active on this CPU.
pub fn space(host: &Host, object: &Object, pages: u64) -> Space {
    let space = host.vm().create().expect("memory");
    let (attrs, part) = (Attrs::anonymous(Rights::READ_WRITE), ObjectPart { object, offset: 0 });
    let at = host.vm().map_object(&space, Placement::At(AT), pages * PAGE, attrs, part);
    assert_eq!(at, Ok(AT));
    host.vm().activate(&space);
    space
}

/// A program's load of the word at a byte of the mapping, with its faults.
pub fn load(host: &Host, cpu: &Cpu<'_>, space: &Space, at: u64) -> Result<u64, FaultError> {
    loop {
        match cpu.load(Va(AT.0 + at)) {
            Ok(value) => return Ok(value),
            Err(fault) => host.vm().fault(space, fault.va, fault.access)?,
        };
    }
}

/// A program's store, as [`load`].
pub fn store(
    host: &Host,
    cpu: &Cpu<'_>,
    space: &Space,
    (at, value): (u64, u64),
) -> Result<(), FaultError> {
    while let Err(fault) = cpu.store(Va(AT.0 + at), value) {
        debug_assert_eq!(fault.access, Access::Write);
        host.vm().fault(space, fault.va, fault.access)?;
    }
    Ok(())
}

/// The words of a file.
pub fn words(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).expect("the file");
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}
