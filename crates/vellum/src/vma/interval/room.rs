//! Room for a node's intervals.

use crate::error::NoMemory;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::sync::atomic::Ordering;
use crate::sync::{MmapLock, Token, touch};
use crate::vma::edit::Edit;
use crate::vma::interval::Intervals;
use crate::vma::interval::pairs::{Pairs, list_class};
use crate::vma::interval::undo::Undo;

impl<M: Machine> Intervals<'_, M> {
    /// Makes sure that `extra` pairs more would fit; what it exchanged for that is noted. Under the
    /// mmap lock.
    pub fn room(
        &self,
        extra: usize,
        token: &mut Token<MmapLock>,
        undo: &mut Undo,
    ) -> Result<(), NoMemory> {
        let pairs = self.pairs();
        let need = pairs.len + extra;
        if need <= pairs.capacity() {
            return Ok(());
        }
        let (r, m) = (self.regions, &self.regions.machine);
        let class = list_class(need);
        let mut guard = self.node.lock(m, token);
        let list = r.lists[class].alloc(m, &r.frames, guard.token())?;
        self.move_to(list, class, undo);
        Ok(())
    }

    /// Moves the pairs to an empty list of that class, which has room for them; they say what
    /// they said. Under the node's lock.
    pub fn move_to(&self, list: SlabRef, class: usize, undo: &mut Undo) {
        let (node, m) = (self.node, &self.regions.machine);
        let pairs = self.pairs();
        let words = self.regions.list_words(list, class as u64);
        for (i, word) in words.iter().enumerate().take(pairs.len) {
            word.store(pairs.get(i).0, Ordering::Relaxed);
        }
        let was = [0, 1].map(|i| node.interval_word(i).load(Ordering::Relaxed));
        undo.note(node.pfn, was, node.state().listed());
        let _write = node.sequence().write(m);
        touch(m, node.interval_word(0), true);
        node.interval_word(0).store(list.raw(), Ordering::Relaxed);
        Pairs { node, list: Some((words, class as u64)), len: pairs.len }.publish();
    }

    /// As [`room`](Intervals::room) where nothing can fail afterwards.
    #[cold]
    pub(super) fn grow(&self, extra: usize, edit: &mut Edit<'_>) -> Result<(), NoMemory> {
        let mut undo = Undo::new();
        self.room(extra, edit.token, &mut undo)?;
        self.regions.end_exchanges(undo, true, edit);
        Ok(())
    }
}
