//! The background thread: from words to a file.
pub mod queue;
mod thread;

use queue::Receiver;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use thread::Thread;
use vellum_trace::build::{Builder, FileCall, FileState, MapRequest, Region};
use vellum_trace::record::shared::Shared;
use vellum_trace::{Advice, Prot, TraceError};

/// What arrives, in the order that counts.
pub enum Message {
    /// Events of a CPU.
    Words { vcpu: u32, words: Vec<u64> },
    /// A CPU begins.
    Start { vcpu: u32 },
    /// A CPU ends.
    End { vcpu: u32 },
    /// A call by a CPU.
    Call { vcpu: u32, call: RawCall },
    /// What was mapped before the first instruction, and the files that are among it.
    Regions(Vec<Region>, Vec<Seen>),
    /// Bring the file to a proper end now, and say so; what follows is thrown away until `Resume`.
    Checkpoint(Sender<()>),
    /// It goes on after all.
    Resume,
    /// Keep all accesses from here on, or only first touches.
    Keep(bool),
    /// Write what there is, so that it survives this process.
    Flush,
    /// A forked child, by its key, has the program's memory no more.
    ChildEnd(c_int),
    /// The program is over; say so when the file is complete.
    Finish { code: i32, done: Sender<()> },
}

/// A call in terms of recorded addresses.
pub enum RawCall {
    Map(MapRequest),
    Unmap(u64, u64),
    Protect(u64, u64, Prot),
    Remap {
        from: u64,
        old_len: u64,
        to: u64,
        new_len: u64,
        keep: bool,
    },
    Advise(u64, u64, Advice),
    Brk(u64),
    /// With the key of the child, if it is followed.
    Fork(Option<c_int>),
    Vfork,
    Exec,
    FileSeen(Seen),
    File(FileCall),
    /// An `msync` that waited.
    Msync(u64, u64),
}

/// A file, and its name when it is told for the first time.
pub struct Seen {
    pub file: FileState,
    pub name: Option<String>,
}

/// The file is complete.
static OVER: AtomicBool = AtomicBool::new(false);
/// So long may the last bytes take.
const LAST: Duration = Duration::from_secs(3);

/// Waits until the file is complete.
pub fn wait_for_end() {
    let begin = Instant::now();
    while !OVER.load(Ordering::Acquire) && begin.elapsed() < LAST {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The receiving end.
pub struct Sink {
    builder: Builder<File>,
    threads: BTreeMap<u32, Thread>,
    current: Option<u32>,
    /// Numbers of the children that are followed, by their keys.
    children: BTreeMap<c_int, u32>,
    /// Position of a trailer that has been written early.
    frozen: Option<u64>,
    /// What came since then: it counts if the program goes on.
    held: Vec<Message>,
    failed: bool,
    shared: Option<Arc<Shared>>,
}

impl Sink {
    pub fn new(builder: Builder<File>, shared: Option<Arc<Shared>>) -> Sink {
        let (threads, children) = (BTreeMap::new(), BTreeMap::new());
        Sink {
            builder,
            threads,
            children,
            current: None,
            frozen: None,
            held: Vec::new(),
            failed: false,
            shared,
        }
    }

    /// Works until the program ends.
    pub fn run(mut self, from: &Receiver<Message>) {
        while !from.receive().into_iter().any(|message| self.is_last(message)) {}
    }

    /// Does what a message says. Is the program over?
    fn is_last(&mut self, message: Message) -> bool {
        let last = matches!(message, Message::Finish { .. });
        let mut answer = None;
        if let Err(e) = self.take(message, &mut answer)
            && !self.failed
        {
            self.failed = true;
            self.complain(&e);
        }
        if let Some(shared) = &self.shared {
            shared.count(self.builder.totals().recorded_accesses(), self.builder.written());
        }
        if let Some(done) = answer {
            let _ = done.send(());
        }
        if last {
            self.shared.iter().for_each(|shared| shared.finished());
            OVER.store(true, Ordering::Release);
        }
        last
    }

    /// Whoever started us ends the program; on our own we can only say that it goes on.
    fn complain(&self, e: &TraceError) {
        match (&self.shared, e) {
            (Some(shared), TraceError::Io { source, .. }) => shared.fail(source),
            (Some(shared), e) => {
                eprintln!("vellum recorder: {e}");
                shared.fail(&std::io::ErrorKind::InvalidData.into());
            }
            (None, e) => eprintln!(
                "vellum recorder: {e}; the program continues, the trace will be incomplete"
            ),
        }
    }

    fn take(
        &mut self,
        message: Message,
        answer: &mut Option<Sender<()>>,
    ) -> Result<(), TraceError> {
        match &message {
            Message::Checkpoint(done) | Message::Finish { done, .. } => {
                *answer = Some(done.clone())
            }
            _ => {}
        }
        if self.failed {
            return Ok(());
        }
        if self.frozen.is_some() {
            match message {
                Message::Resume => return self.resume(),
                // The trace has its end.
                Message::Finish { .. } => self.held.clear(),
                message => self.held.push(message),
            }
            return Ok(());
        }
        match message {
            Message::Words { vcpu, words } => {
                self.switch(vcpu)?;
                match self.threads.get_mut(&vcpu) {
                    Some(thread) => thread.words(&words, &mut self.builder),
                    None => Ok(()),
                }
            }
            Message::Start { vcpu } => {
                let thread = Thread::new(self.builder.start_thread()?);
                self.threads.insert(vcpu, thread);
                Ok(())
            }
            Message::End { vcpu } => match self.threads.remove(&vcpu) {
                Some(thread) => {
                    self.current = None;
                    self.builder.end_thread(thread.number)
                }
                None => Ok(()),
            },
            Message::Call { vcpu, call } => {
                self.switch(vcpu)?;
                self.call(&call)
            }
            Message::Regions(regions, files) => {
                self.builder.set_regions(regions);
                files.iter().try_for_each(|s| self.builder.file_seen(s.file, s.name.as_deref()))
            }
            Message::Checkpoint(_) => self.checkpoint(),
            Message::Resume => Ok(()),
            Message::Keep(all) => {
                self.builder.keep(all);
                Ok(())
            }
            Message::Flush => self.builder.flush(),
            Message::ChildEnd(key) => self.child_end(key),
            Message::Finish { code, .. } => {
                if let Some(vcpu) = self.threads.keys().next().copied() {
                    self.switch(vcpu)?;
                    self.builder.exit(code)?;
                }
                self.checkpoint()
            }
        }
    }

    fn switch(&mut self, vcpu: u32) -> Result<(), TraceError> {
        if self.current != Some(vcpu)
            && let Some(thread) = self.threads.get(&vcpu)
        {
            self.current = Some(vcpu);
            self.builder.switch(thread.number)?;
        }
        Ok(())
    }

    fn child_end(&mut self, key: c_int) -> Result<(), TraceError> {
        let Some(child) = self.children.remove(&key) else { return Ok(()) };
        if self.current.is_none()
            && let Some(vcpu) = self.threads.keys().next().copied()
        {
            self.switch(vcpu)?;
        }
        self.builder.child_end(child)
    }

    fn call(&mut self, call: &RawCall) -> Result<(), TraceError> {
        let b = &mut self.builder;
        match *call {
            RawCall::Map(ref r) => b.mmap(r),
            RawCall::Unmap(addr, len) => b.munmap(addr, len),
            RawCall::Protect(addr, len, prot) => b.mprotect(addr, len, prot),
            RawCall::Remap { from, old_len, to, new_len, keep } => {
                b.mremap(from, old_len, to, new_len, keep)
            }
            RawCall::Advise(addr, len, advice) => b.madvise(addr, len, advice),
            RawCall::Brk(end) => b.brk(end),
            RawCall::Fork(key) => {
                let child = b.fork(key.is_some())?;
                self.children.extend(key.zip(child));
                Ok(())
            }
            RawCall::Vfork => b.vfork(),
            RawCall::Exec => b.exec(),
            RawCall::FileSeen(ref s) => b.file_seen(s.file, s.name.as_deref()),
            RawCall::File(ref call) => b.file_call(call),
            RawCall::Msync(addr, len) => b.msync(addr, len),
        }
    }

    fn checkpoint(&mut self) -> Result<(), TraceError> {
        let trailer = self.builder.checkpoint()?;
        let io = |source| TraceError::Io { doing: "writing the trace", source };
        let file = self.builder.get_mut();
        let at = file.stream_position().map_err(io)?;
        file.write_all(&trailer).map_err(io)?;
        self.frozen = Some(at);
        Ok(())
    }

    fn resume(&mut self) -> Result<(), TraceError> {
        let Some(trailer) = self.frozen.take() else {
            return Ok(());
        };
        let at = self.builder.no_exec().unwrap_or(trailer);
        let io = |source| TraceError::Io { doing: "writing the trace", source };
        let file = self.builder.get_mut();
        file.set_len(at).map_err(io)?;
        file.seek(SeekFrom::Start(at)).map_err(io)?;
        let held = std::mem::take(&mut self.held);
        held.into_iter().try_for_each(|message| self.take(message, &mut None))
    }
}
