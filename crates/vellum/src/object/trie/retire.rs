//! Nodes that have left their tree, until no reader can be in them.
//!
//! They wait in a list of the trie. Whoever gives the guard back and finds that the list has grown
//! long waits for the epochs once and frees all of it: no removal waits by itself.

use super::edit::Edit;
use super::node::Node;
use super::word::Word;
use crate::machine::Machine;
use crate::object::layer::ObjectLayer;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Above, Queue, TableLock, Token};

/// What dead nodes may weigh before they are freed: a small node weighs 1, a large one as many
/// small nodes as have its size.
pub(in super::super) const BATCH: u64 = 256;
const LARGE: u64 = 32;

impl<'e, M: Machine> Edit<'e, M> {
    /// Notes that a node has left the tree, or leaves it by the next store. Its slots stay as they
    /// are.
    pub fn retire(self, node: Node<'e>) {
        let header = self.objects.header(node);
        header.set_dead();
        header.set_chain(Word(self.trie.dead.load(Relaxed)));
        self.trie.dead.store(node.word.0, Relaxed);
        let weight = if node.word.is_large() { LARGE } else { 1 };
        self.trie.dead_weight.store(self.trie.dead_weight.load(Relaxed) + weight, Relaxed);
        self.trie.changes.store(self.trie.changes.load(Relaxed) + 1, Relaxed);
    }

    /// Takes the list, if it weighs that much.
    pub fn take_dead(self, at_least: u64) -> Word {
        if self.trie.dead_weight.load(Relaxed) < at_least {
            return Word::EMPTY;
        }
        let first = Word(self.trie.dead.load(Relaxed));
        self.trie.dead.store(0, Relaxed);
        self.trie.dead_weight.store(0, Relaxed);
        first
    }
}

impl<M: Machine> ObjectLayer<M> {
    /// Frees a list after one wait for the readers. The caller is in no epoch.
    #[inline]
    pub(in super::super) fn free_dead<H: Above<TableLock> + Above<Queue>>(
        &self,
        first: Word,
        token: &mut Token<H>,
    ) {
        if first.is_empty() {
            return;
        }
        self.epochs.synchronize(&self.machine, token);
        let mut next = first;
        while !next.is_empty() {
            let node = self.node(next);
            next = self.header(node).chain();
            self.free_node(node, token);
        }
    }
}
