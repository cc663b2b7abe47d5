//! Faults in regions that map a device.
//!
//! The memory is there, so a fault only stores a leaf, as large as address, offset and size allow.
//! What it maps is the device's for life, so a leaf of an old descent is as good as one of a new.

use crate::addr::{Level, Order};
use crate::entry::Flags;
use crate::error::FaultError;
use crate::fault::{FaultRequest, Faults, Seen, Step};
use crate::machine::Machine;
use crate::platform::over;
use crate::space::{Access, Fault, HugeAdvice, LeafSize, Rights};

pub(crate) struct DeviceFault<'v, M: Machine>(pub &'v Faults<M>);

over!(DeviceFault, Faults);

impl<M: Machine> DeviceFault<'_, M> {
    /// Serves a fault on a reserved entry.
    #[cold]
    #[inline(never)]
    pub fn serve(self, seen: &Seen<'_>, ask: FaultRequest) -> Result<Step, FaultError> {
        if ask.origin.touches_bytes() {
            return Err(FaultError::Device);
        }
        // A region on its way out has no object any more.
        let Some((object, index)) = seen.region.object_at(seen.va) else {
            return Ok(Step::Again);
        };
        if index >= self.object(object).pages() {
            return Err(FaultError::Beyond);
        }
        let Rights { write, exec, .. } = seen.attrs.rights();
        let dirty = ask.access == Access::Write;
        let flags = Flags { write, exec, accessed: true, dirty };
        let is_small = seen.attrs.thp() == Some(HugeAdvice::NoHuge)
            || seen.attrs.leaf() == LeafSize::Exactly(Order::BASE);
        let mut level = if is_small { Level::ONE } else { seen.spot.level };
        let leaf = loop {
            match self.device_leaf(seen.region, seen.va, level, flags) {
                Some(leaf) => break leaf,
                None if level == Level::ONE => return Ok(Step::Again),
                None => level = level.child(),
            }
        };
        let path = self.unlinked_path(seen.spot.at, seen.va, level)?;
        let done = self.plant(seen, path, leaf, false);
        if !done {
            return Ok(Step::Again);
        }
        self.count_fault(ask, self.counters_here());
        Ok(Step::Done(Fault::Object))
    }
}
