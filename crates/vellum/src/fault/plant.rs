//! Linking what a fault has prepared.

use crate::entry::Entry;
use crate::fault::{Faults, Seen};
use crate::machine::Machine;
use crate::pagetable::unlinked::UnlinkedPath;
use crate::sync::Token;

impl<M: Machine> Faults<M> {
    /// Puts an entry where a reserved entry was seen, below the tables of the path if there are
    /// any; `false`, and the path is freed, if that entry is not there any more. What is no `page`
    /// is a device's, or zeros, which the space must still take.
    pub fn plant(
        &self,
        seen: &Seen<'_>,
        path: Option<UnlinkedPath<'_>>,
        entry: Entry,
        page: bool,
    ) -> bool {
        let m = &self.machine;
        let spot = &seen.spot;
        let resident = u64::from(page);
        if let Some(path) = &path {
            path.write_last(&self.machine, seen.va, entry);
            path.last.set_state(path.last.state().with_resident(resident));
        }
        let mut top = Token::top();
        let guard = spot.node.lock(m, &mut top);
        let is_zeros = !page && !matches!(entry, Entry::Device(..));
        // A copy is of a moment before, at which a fork since has not found it.
        let is_late = seen.attrs.is_private_view() && !seen.space.is_unedited(seen.edits);
        if !self.still(seen) || is_late || is_zeros && !seen.space.takes_zeros() {
            drop(guard);
            self.free_path(path);
            return false;
        }
        match &path {
            Some(path) => path.link(m, spot.at),
            None => {
                self.write_entry(spot.node.pfn, spot.slot, spot.level, entry);
                spot.node.add_resident(resident);
            }
        }
        true
    }
}
