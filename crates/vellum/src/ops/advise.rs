//! Advice: forget, huge pages or not, now, present.

use crate::addr::{Order, Va, VaRange};
use crate::error::SpaceError;
use crate::fault::Faults;
use crate::fault::populate::Populate;
use crate::machine::{Machine, Verb};
use crate::ops::collapse::Collapse;
use crate::ops::protect::Protect;
use crate::ops::unmap::Leftover;
use crate::ops::unmap::Unmap;
use crate::platform::over;
use crate::space::{Advice, Attrs, HugeAdvice, Space};
use crate::vma::edit::Edit;

pub(crate) struct Advise<'v, M: Machine>(pub &'v Faults<M>);

over!(Advise, Faults);

impl<M: Machine> Advise<'_, M> {
    /// `Vm::advise_part`.
    pub fn advise_part(
        self,
        space: &Space,
        start: Va,
        bytes: u64,
        advice: Advice,
    ) -> (u64, Result<(), SpaceError>) {
        let mut done = 0;
        let result = self.advise_noting(space, (start, bytes), advice, &mut done);
        (if result.is_ok() { bytes } else { done }, result)
    }

    fn advise_noting(
        self,
        space: &Space,
        (start, bytes): (Va, u64),
        advice: Advice,
        noted: &mut u64,
    ) -> Result<(), SpaceError> {
        let record = self.record_of(space);
        let range = || VaRange::new(start, bytes, self.user_end());
        let thp = match advice {
            Advice::Populate { write } => {
                let populate = || Populate(self.0).populate(record, range()?, write, noted);
                return self.verb(Verb::Advise, populate);
            }
            Advice::Collapse => {
                return self.verb(Verb::Advise, || self.collapse_all(space, range()?, noted));
            }
            Advice::Huge => Some(HugeAdvice::Huge),
            Advice::NoHuge => Some(HugeAdvice::NoHuge),
            Advice::DontNeed => None,
        };
        self.verb_with_memory(Verb::Advise, || {
            let range = range()?;
            let change = |attrs| Attrs { thp, ..attrs };
            self.edit(record, |edit| match thp {
                Some(_) => Protect(self.0).change_regions(edit, range, &change).map(drop),
                None => self.forget(edit, range),
            })
        })
    }

    /// What was there becomes reserved again.
    fn forget(self, edit: &mut Edit<'_>, range: VaRange) -> Result<(), SpaceError> {
        if !self.is_mapped(edit.space, range) {
            return Err(SpaceError::Unmapped);
        }
        if !Unmap(self.0).take_out_in_table(edit, range, Leftover::Reserved) {
            self.make_boundaries(edit.space, range, false)?;
            Unmap(self.0).take_out(edit, range, Leftover::Reserved);
        }
        Ok(())
    }

    /// Collapses each 2 MiB of the range. What one gives back is there for the next.
    fn collapse_all(self, space: &Space, range: VaRange, done: &mut u64) -> Result<(), SpaceError> {
        let space = self.record_of(space);
        if !self.with_mmap_lock(space, || self.is_mapped(space, range)) {
            return Err(SpaceError::Unmapped);
        }
        let huge = Order::HUGE.bytes();
        let mut va = range.start().0.next_multiple_of(huge);
        while va + huge <= range.end().0 {
            *done = va - range.start().0;
            Collapse(self.0).collapse_object(space, Va(va))?;
            self.with_memory(|| {
                self.in_hand(|| self.edit(space, |edit| Collapse(self.0).collapse(edit, Va(va))))
            })?;
            va += huge;
        }
        Ok(())
    }
}
