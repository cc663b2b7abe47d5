//! Files that misbehave.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use vellum_host::files::{Backing, Buffers};

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("a file")
}

/// A real file whose calls fail with a number of the system's while one is set, and that goes
/// through a gate.
#[derive(Clone)]
pub struct Faulty(Arc<State>);

struct State {
    file: File,
    full: File,
    read: AtomicI32,
    write: AtomicI32,
    flush: AtomicI32,
    is_full: AtomicBool,
    panics: AtomicBool,
    interrupts: AtomicBool,
    calls: AtomicU64,
    gate: Mutex<bool>,
    moved: Condvar,
}

impl Faulty {
    pub fn new(path: &Path) -> Faulty {
        Faulty(Arc::new(State {
            file: both(path),
            full: both(Path::new("/dev/full")),
            read: AtomicI32::new(0),
            write: AtomicI32::new(0),
            flush: AtomicI32::new(0),
            is_full: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            interrupts: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            gate: Mutex::new(true),
            moved: Condvar::new(),
        }))
    }
    pub fn fail_reads(&self, errno: i32) {
        self.0.read.store(errno, Ordering::SeqCst);
    }
    pub fn fail_writes(&self, errno: i32) {
        self.0.write.store(errno, Ordering::SeqCst);
    }
    pub fn fail_flushes(&self, errno: i32) {
        self.0.flush.store(errno, Ordering::SeqCst);
    }
    /// Writes go to `/dev/full`, so that the system itself says that there is no room.
    pub fn set_full(&self, is_full: bool) {
        self.0.is_full.store(is_full, Ordering::SeqCst);
    }
    pub fn set_panics(&self, panics: bool) {
        self.0.panics.store(panics, Ordering::SeqCst);
    }
    /// Every other call is interrupted.
    pub fn set_interrupts(&self) {
        self.0.interrupts.store(true, Ordering::SeqCst);
    }
    /// Reads wait while the gate is closed.
    pub fn set_gate(&self, is_open: bool) {
        *self.0.gate.lock().unwrap() = is_open;
        self.0.moved.notify_all();
    }
    /// Reads and writes that have begun.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }
    pub fn wait_for_calls(&self, calls: u64) {
        while self.calls() < calls {
            std::thread::yield_now();
        }
    }
    fn begin(&self, errno: &AtomicI32) -> io::Result<()> {
        let calls = self.0.calls.fetch_add(1, Ordering::SeqCst);
        assert!(!self.0.panics.load(Ordering::SeqCst), "a backing that panics, as the test wants");
        if self.0.interrupts.load(Ordering::SeqCst) && calls.is_multiple_of(2) {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        match errno.load(Ordering::SeqCst) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Backing for Faulty {
    fn size(&self) -> io::Result<u64> {
        self.0.file.size()
    }
    fn read(&self, into: &Buffers, offset: u64) -> io::Result<u64> {
        let begun = self.begin(&self.0.read);
        let mut gate = self.0.gate.lock().unwrap();
        while !*gate {
            gate = self.0.moved.wait(gate).unwrap();
        }
        drop(gate);
        begun?;
        self.0.file.read(into, offset)
    }
    fn write(&self, from: &Buffers, offset: u64) -> io::Result<u64> {
        self.begin(&self.0.write)?;
        match self.0.is_full.load(Ordering::SeqCst) {
            true => self.0.full.write(from, offset),
            false => self.0.file.write(from, offset),
        }
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        assert!(!self.0.panics.load(Ordering::SeqCst), "a backing that panics, as the test wants");
        self.0.file.set_size(bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.begin(&self.0.flush)?;
        self.0.file.flush()
    }
}

/// A real file that gives and takes few bytes at once.
pub struct Slow(pub File);

impl Slow {
    pub fn new(path: &Path) -> Slow {
        Slow(both(path))
    }
}

impl Backing for Slow {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn read(&self, into: &Buffers, offset: u64) -> io::Result<u64> {
        self.0.read(&into.clone().up_to(1000), offset)
    }
    fn write(&self, from: &Buffers, offset: u64) -> io::Result<u64> {
        self.0.write(&from.clone().up_to(1000), offset)
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_size(bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
