//! What a `Vm` does with its tries.

use super::cursor::TrieGuard;
use super::layer::ObjectLayer;
use super::trie::edit::{Edit, Spot};
use super::trie::supply::Supply;
use super::trie::word::{TrieEntry, Word};
use super::trie::{NodeReserve, Trie, TrieReader};
use crate::machine::Machine;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Above, EpochGuard, Object, Token};

/// The tries of a `Vm`.
pub struct Tries<'v, M: Machine>(&'v ObjectLayer<M>);

impl<M: Machine> Clone for Tries<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Tries<'_, M> {}

impl<'v, M: Machine> Tries<'v, M> {
    pub(crate) fn new(objects: &'v ObjectLayer<M>) -> Self {
        Tries(objects)
    }

    /// An empty trie. It needs no memory until it has two entries.
    pub fn create(self) -> Trie {
        Trie::new(self.0.id(), self.0.next_name.fetch_add(1, Relaxed))
    }

    /// A trie of this `Vm`.
    fn own(self, trie: &Trie) -> &Trie {
        assert!(trie.vm == self.0.id(), "a trie of another Vm");
        trie
    }

    /// Takes the guard of a trie. The caller is in no epoch.
    ///
    /// # Panics
    /// If the trie is another `Vm`'s.
    #[inline]
    pub fn lock<'t, H: Above<Object>>(
        self,
        trie: &'t Trie,
        token: &'t mut Token<H>,
    ) -> TrieGuard<'t, M>
    where
        'v: 't,
    {
        TrieGuard::new(self.own(trie), self.0, token)
    }

    /// As `lock`, inside an epoch; `None` if somebody has the guard, or somebody has to free what
    /// has left the trie.
    #[inline]
    pub(super) fn try_lock_inside<'t, H: Above<Object>>(
        self,
        trie: &'t Trie,
        token: &'t mut Token<H>,
        _epoch: &'t EpochGuard<'_, M>,
    ) -> Option<TrieGuard<'t, M>>
    where
        'v: 't,
    {
        TrieGuard::try_inside(trie, self.0, token)
    }

    /// Enters an epoch to read a trie without its guard.
    ///
    /// # Panics
    /// If the trie is another `Vm`'s.
    #[inline]
    pub fn read<'t>(self, trie: &'t Trie) -> TrieReader<'t, M>
    where
        'v: 't,
    {
        TrieReader::new(self.own(trie), self.0)
    }

    /// An empty reserve of nodes.
    pub fn reserve(self) -> NodeReserve<'v, M> {
        NodeReserve::new(self.0)
    }

    /// Ends a trie: tells of each entry that is left, and frees all nodes, after one wait for the
    /// readers of other tries. The caller is in no epoch and holds no guard.
    ///
    /// # Panics
    /// If the trie is another `Vm`'s.
    pub fn destroy(self, trie: Trie, each: impl FnMut(u64, TrieEntry)) {
        self.clear(&trie, each);
    }

    /// The same of a trie that nobody else uses any more.
    pub(super) fn clear(self, trie: &Trie, mut each: impl FnMut(u64, TrieEntry)) {
        let edit = Edit { objects: self.0, trie: self.own(trie) };
        let mut token = Token::top();
        let root = edit.load(Spot::ROOT);
        let mut tell = |index: u64, word: Word| each(index, word.entry());
        if root.is_leaf() {
            tell(root.low(), root);
        } else if root.is_node() {
            edit.detach(Spot::ROOT, &mut Supply::Now(self.0, &mut token), &mut tell);
        }
        self.0.free_dead(edit.take_dead(1), &mut token);
    }
}
