//! Who reads and writes the pages of objects for the machine.

use vellum::machine::{PageAnswer, PageRun};

/// What [`Machine::page_in`](vellum::Machine::page_in) and its counterpart ask. It answers at once,
/// or keeps the run and answers later through `Objects::answer`.
pub trait Pager: Send + Sync {
    /// Reads a run.
    fn page_in(&self, run: PageRun) -> Option<PageAnswer>;
    /// Writes a run.
    fn page_out(&self, run: PageRun) -> Option<PageAnswer>;
    /// The object is gone.
    fn object_gone(&self, pager: u64) {
        let _ = pager;
    }
}
