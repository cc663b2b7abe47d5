//! Making a space: a record, a root, an identifier for the TLBs.

use crate::error::NoMemory;
use crate::fault::Faults;
use crate::machine::{Act, Machine};
use crate::platform::over;
use crate::space::{MAX_SPACES, Space};
use crate::sync::Token;
use crate::sync::atomic::Ordering;
use crate::zero::make::MakeZeros;

pub(crate) struct Create<'v, M: Machine>(pub &'v Faults<M>);

over!(Create, Faults);

impl<M: Machine> Create<'_, M> {
    /// `Vm::create`.
    pub fn create(self) -> Result<Space, NoMemory> {
        self.with_memory(|| self.in_hand(|| self.make_space()))
    }

    pub(super) fn make_space(self) -> Result<Space, NoMemory> {
        let m = &self.machine;
        let mut top = Token::top();
        let handle = self.spaces.alloc(m, &self.frames, &mut top)?;
        // Asked when this one is counted: of those that come at once, no more go on than there is
        // room for.
        if self.spaces.objects() > MAX_SPACES {
            self.spaces.free(m, &self.frames, &mut top, handle);
            return Err(NoMemory);
        }
        let root = match self.make_node(self.top(), None, 0) {
            Ok(root) => root,
            Err(error) => {
                self.spaces.free(m, &self.frames, &mut top, handle);
                return Err(error);
            }
        };
        // The first space of all makes them; last, since they are everybody's once they are there.
        if let Err(error) = MakeZeros(self.0).make_zeros() {
            self.untake_node(root.pfn);
            self.spaces.free(m, &self.frames, &mut top, handle);
            return Err(error);
        }
        m.adopt_root(root.pfn);
        let space = self.handle(handle);
        let record = self.record_of(&space);
        record.root.store(root.pfn.0, Ordering::Relaxed);
        record.handle.store(handle.raw(), Ordering::Relaxed);
        record.asid.store(self.take_asid().0 as u64, Ordering::Release);
        Ok(space)
    }
}
