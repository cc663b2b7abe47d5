//! Requests on their way to the I/O threads.
//!
//! A CPU puts a run here and goes on; an I/O thread takes it. With several threads the answers come
//! in any order. Once the queue is closed, requests in it are served to the end, and new ones fail
//! at once: pages that are read again from inside an answer, for example.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use vellum::machine::{PageAnswer, PageRun};

use super::error::FileError;
use super::open::OpenFile;
use crate::machine::pager::Pager;

/// What an I/O thread is to do.
pub(super) enum Request {
    Read(PageRun, Arc<OpenFile>),
    Write(PageRun, Arc<OpenFile>),
    Flush(Arc<Flush>, Arc<OpenFile>),
}

/// How bringing a file to the disk ended. It does not hold the file: the I/O thread drops that
/// first, so a file that is closed after its sync is not kept open by that sync.
#[derive(Default)]
pub(super) struct Flush {
    result: Mutex<Option<Result<(), FileError>>>,
    told: Condvar,
}

impl Flush {
    pub fn end(&self, result: Result<(), FileError>) {
        *lock(&self.result) = Some(result);
        self.told.notify_all();
    }
    fn wait(&self) -> Result<(), FileError> {
        let mut result = lock(&self.result);
        loop {
            match *result {
                Some(result) => return result,
                None => result = self.told.wait(result).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    is_closed: bool,
}

/// The queue, and the files by their pagers' numbers.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    come: Condvar,
    files: RwLock<HashMap<u64, Arc<OpenFile>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    pub fn add_file(&self, pager: u64, file: Arc<OpenFile>) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).insert(pager, file);
    }
    fn file(&self, run: &PageRun) -> Option<Arc<OpenFile>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&run.pager()).cloned()
    }

    /// Puts a request in; gives it back if the queue is closed.
    fn put(&self, request: Request) -> Option<Request> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_closed {
            return Some(request);
        }
        waiting.requests.push_back(request);
        drop(waiting);
        self.come.notify_one();
        None
    }

    /// The next request; `None` when the queue is closed and empty.
    pub fn take(&self) -> Option<Request> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(request) = waiting.requests.pop_front() {
                return Some(request);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.come.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn close(&self) {
        lock(&self.waiting).is_closed = true;
        self.come.notify_all();
    }

    /// Has a file brought to the disk and waits for it, which the caller does parked.
    pub fn flush(&self, file: Arc<OpenFile>) -> Result<(), FileError> {
        let flush = Arc::new(Flush::default());
        match self.put(Request::Flush(flush.clone(), file)) {
            // Nobody takes requests any more: by this thread then.
            Some(Request::Flush(_, file)) => file.flush(),
            _ => flush.wait(),
        }
    }
}

/// The answer to a run that nobody serves.
fn refused(request: Option<Request>) -> Option<PageAnswer> {
    match request {
        Some(Request::Read(run, _) | Request::Write(run, _)) => Some(run.failed()),
        _ => None,
    }
}

impl Pager for Queue {
    fn page_in(&self, run: PageRun) -> Option<PageAnswer> {
        match self.file(&run) {
            Some(file) => refused(self.put(Request::Read(run, file))),
            None => Some(run.failed()),
        }
    }
    fn page_out(&self, run: PageRun) -> Option<PageAnswer> {
        match self.file(&run) {
            Some(file) => refused(self.put(Request::Write(run, file))),
            None => Some(run.failed()),
        }
    }
    fn object_gone(&self, pager: u64) {
        let gone = self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&pager);
        // Outside of the lock: the system closes the file.
        drop(gone);
    }
}
