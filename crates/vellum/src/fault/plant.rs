//! Linking what a fault has prepared.

use crate::entry::Entry;
use crate::fault::{Faults, Seen};
use crate::machine::{Event, Machine, Work};
use crate::pagetable::unlinked::Chain;
use crate::sync::Token;

impl<M: Machine> Faults<M> {
    /// Puts an entry where a promise was seen, below the tables of the chain if there are any;
    /// `false`, and the chain is freed, if the promise is not there any more. What is no `page` is
    /// zeros, which the space must still take.
    pub(crate) fn plant(
        &self,
        seen: &Seen<'_>,
        chain: Option<Chain<'_>>,
        entry: Entry,
        page: bool,
    ) -> bool {
        let m = &self.machine;
        let spot = &seen.spot;
        let resident = u64::from(page);
        if let Some(chain) = &chain {
            self.write_last(chain, seen.va, entry);
            chain.last.set_state(chain.last.state().with_resident(resident));
        }
        let mut top = Token::top();
        let guard = spot.node.lock(m, &mut top);
        if !self.still(seen) || !page && !seen.space.takes_zeros() {
            drop(guard);
            self.free_chain(chain);
            return false;
        }
        match &chain {
            Some(chain) => {
                self.store(spot.node.pfn, spot.slot, spot.level, Entry::Table(chain.first.pfn))
            }
            None => {
                self.store(spot.node.pfn, spot.slot, spot.level, entry);
                spot.node.add_resident(resident);
            }
        }
        m.hook(Event::Work(Work::Entry, 1 + chain.map_or(0, |chain| chain.nodes)));
        true
    }
}
