//! Interval lists that a verb exchanged for larger ones before it knew whether it would get
//! everything else.
//!
//! The old list is not thrown away before that is known, so a verb that fails puts it back and is
//! as if it had never asked. A range has two edges and each is in one node a level, so ten notes
//! are enough for five levels. Rejected: leaving the larger list where it is (nobody can tell, but
//! memory is held that the caller was just told there is too little of).

use crate::addr::Pfn;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::pagetable::node::IN_LIST;
use crate::sync::atomic::Ordering;
use crate::sync::touch;
use crate::vma::Regions;
use crate::vma::edit::Edit;

/// Two edges in each of the levels there can be.
const MOST: usize = 10;

/// What a node had: its first two interval words, and where its intervals stood.
#[derive(Clone, Copy)]
struct Note {
    node: Pfn,
    was: [u64; 2],
    listed: u64,
}

#[must_use = "exchanges are ended by `Regions::end_exchanges`"]
pub(crate) struct Undo {
    notes: [Note; MOST],
    len: usize,
}

impl Undo {
    #[inline]
    pub fn new() -> Undo {
        Undo { notes: [Note { node: Pfn(0), was: [0; 2], listed: 0 }; MOST], len: 0 }
    }

    /// Notes what a node had.
    pub(super) fn note(&mut self, node: Pfn, was: [u64; 2], listed: u64) {
        self.notes[self.len] = Note { node, was, listed };
        self.len += 1;
    }

    /// The notes, the last first.
    fn backwards(&self) -> impl Iterator<Item = Note> + '_ {
        self.notes[..self.len].iter().rev().copied()
    }
}

impl<M: Machine> Regions<M> {
    /// Ends the exchanges of lists that a verb has made: they stay and the old lists go, or the
    /// other way round. Under the mmap lock.
    pub fn end_exchanges(&self, undo: Undo, stay: bool, edit: &mut Edit<'_>) {
        // The last exchange first, should a node have had two.
        for Note { node, was, listed } in undo.backwards() {
            let node = self.node(node);
            let mut goes = (was[0], was[1], listed);
            if !stay {
                let _guard = node.lock(&self.machine, edit.token);
                // They say what they said in the larger list.
                let _write = node.sequence().write(&self.machine);
                touch(&self.machine, node.interval_word(0), true);
                let is = [0, 1].map(|i| node.interval_word(i).load(Ordering::Relaxed));
                goes = (is[0], is[1], node.state().listed());
                (0..2).for_each(|i| node.interval_word(i).store(was[i], Ordering::Relaxed));
                node.set_state(node.state().with_listed(listed));
            }
            if let (Some(list), IN_LIST) = (SlabRef::from_raw(goes.0), goes.2) {
                edit.deferred.list(self, list, (goes.1 >> 16) as usize);
            }
        }
    }

    /// Writes the handle of another list into one that no node names.
    pub fn chain_list(&self, list: SlabRef, next: Option<SlabRef>) {
        self.list_words(list, 0)[0].store(next.map_or(0, SlabRef::raw), Ordering::Relaxed);
    }

    /// The handle written there.
    pub fn next_list(&self, list: SlabRef) -> Option<SlabRef> {
        SlabRef::from_raw(self.list_words(list, 0)[0].load(Ordering::Relaxed))
    }
}
