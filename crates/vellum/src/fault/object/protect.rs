//! Taking the right to write to an object's pages from every space that maps them.
//!
//! The caller has the pages frozen, so no fault gives that right while the visits last, and no
//! entry counts them: what a visit misses has to be met by the next one. It misses an entry that
//! somebody has in hand, which is busy or detached then, and what a fork has copied into a space
//! that is not finished. What it finds without the right may have lost it a moment ago, before the
//! flush of whoever took it, so it is flushed as well.

use crate::addr::{ENTRIES, Level, PAGE_SHIFT, Pfn, Va};
use crate::entry::{Busy, Codec, Entry, Flags};
use crate::fault::Faults;
use crate::fault::object::unmap::MOST_WAIT;
use crate::frame::SlabRef;
use crate::machine::{Act, Machine};
use crate::object::ObjectPage;
use crate::pagetable::cursor::Place;
use crate::platform::over;
use crate::rmap::attachment::Attach;
use crate::space::SpaceRecord;
use crate::sync::Token;
use crate::sync::atomic::Ordering;
use crate::tlb::Receipt;

pub(crate) struct ProtectObject<'v, M: Machine>(pub &'v Faults<M>);

over!(ProtectObject, Faults);

impl<M: Machine> ProtectObject<'_, M> {
    /// Takes the right to write to frozen base pages of an object from every space. The caller
    /// keeps the object, holds no lock and is in no epoch.
    pub fn everywhere(self, object: SlabRef, pages: &[ObjectPage]) {
        let (mut wait, mut forks) = (1, None);
        loop {
            let mut missed = false;
            let visit = |space: &SpaceRecord, shift| missed |= self.protect(space, shift, pages);
            let unfinished = Attach(self.0).for_each_attachment(object, &mut Token::top(), visit);
            // One that begins later copies what was visited.
            let forks = *forks.get_or_insert_with(|| self.forks.load(Ordering::SeqCst));
            if !missed && unfinished > forks {
                return;
            }
            for _ in 0..wait {
                self.machine.relax();
                self.let_others_run();
            }
            wait = (2 * wait).min(MOST_WAIT);
        }
    }

    /// Takes it from one space, where it sees the object at that shift. Says whether somebody has
    /// an entry in hand.
    fn protect(self, space: &SpaceRecord, shift: u64, pages: &[ObjectPage]) -> bool {
        let _epoch = self.epochs.enter(&self.machine);
        let (end, mut receipt, mut missed) = (self.user_end().page(), Receipt::new(), false);
        let page = |page: &ObjectPage| page.1.wrapping_sub(shift);
        let table = |a: &ObjectPage| page(a) / ENTRIES as u64;
        for part in pages.chunk_by(|a, b| table(a) == table(b)) {
            let va = Va(page(&part[0]) << PAGE_SHIFT);
            if page(&part[0]) < end {
                let at = self.descend_entry(space, va);
                missed |= match at.level {
                    Level::ONE => self.protect_in(at, va, part, &mut receipt),
                    // Above a table that is on its way out, whose pages may yet be written.
                    _ => matches!(M::Codec::decode(at.raw, at.level), Entry::Detached(_)),
                };
            }
        }
        if !receipt.is_empty() {
            let _flushed = self.flush(space, receipt);
        }
        missed
    }

    /// Takes it from the entries of one table; the first page is seen at `va`.
    fn protect_in(
        self,
        at: Place<'_>,
        va: Va,
        pages: &[ObjectPage],
        receipt: &mut Receipt,
    ) -> bool {
        let (node, mut missed) = (at.node, false);
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        if node.state().dead() {
            return true;
        }
        for &(pfn, index) in pages {
            let slot = at.slot + (index - pages[0].1) as usize;
            let at = Place { slot, ..at };
            let read_only = |entry| match entry {
                Entry::Shared(of, flags) if of == pfn => {
                    let flags = Flags { write: false, dirty: false, ..flags };
                    Some(M::Codec::encode(Entry::Shared(pfn, flags), Level::ONE))
                }
                _ => None,
            };
            let old = self.exchange(at, read_only).and_then(Entry::flags);
            if old.is_some() {
                let after = (index - pages[0].1) << PAGE_SHIFT;
                receipt.leaf(Va(va.0 + after), Level::ONE);
            } else {
                let entry = M::Codec::decode(self.machine.entry(node.pfn, slot), Level::ONE);
                missed |= is_in_hand(entry, pfn);
            }
        }
        missed
    }
}

/// Whether an entry is busy that mapped a frame, and perhaps will again.
fn is_in_hand(entry: Entry, pfn: Pfn) -> bool {
    match entry {
        Entry::Busy(Busy::Shared(of) | Busy::Exchange(of) | Busy::Migrate(of)) => of == pfn,
        _ => false,
    }
}
