//! Devices: objects whose memory is not the library's.
//!
//! A device is a run of physical memory that firmware, a bus or another guest has: registers, a
//! frame buffer, a ring that is shared with a host. Its pages lie one after the other, so what is
//! at an index is arithmetic, and a leaf can be made anew at any time. Therefore nothing is kept of
//! its leaves: no record, no count, and no way from the memory to who maps it. Whoever takes a leaf
//! out of a table leaves a reserved entry behind, and the next fault finds the same memory in the
//! same cache mode. Rejected: records for such frames (the memory may lie anywhere), and leaves
//! that a verb moves (a second place that knows the cache mode).

use crate::addr::{Level, PAGE_SIZE, Pfn, Va};
use crate::entry::{CacheMode, Codec, Entry, Flags};
use crate::error::ObjectError;
use crate::machine::Machine;
use crate::object::ObjectLayer;
use crate::object::record::{Object, Source};
use crate::vma::region::Region;

/// Memory that is not the library's, for
/// [`Objects::create_device`](crate::vm::Objects::create_device).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceMemory {
    /// Its physical address, a multiple of 4096.
    pub address: u64,
    /// Its length, a multiple of 4096 and not 0.
    pub bytes: u64,
    /// What the caches do with accesses to it.
    pub cache: CacheMode,
    /// Whether a mapping may give the right to write.
    pub writable: bool,
}

impl<M: Machine> ObjectLayer<M> {
    /// `Objects::create_device`.
    pub fn create_device(&self, memory: DeviceMemory) -> Result<Object, ObjectError> {
        let DeviceMemory { address, bytes, cache, .. } = memory;
        let page = PAGE_SIZE as u64;
        let refuse_unless = |holds, error| if holds { Ok(()) } else { Err(error) };
        refuse_unless(bytes != 0 && (address | bytes) % page == 0, ObjectError::Unaligned)?;
        refuse_unless(M::Codec::has_cache_mode(cache), ObjectError::CacheMode)?;
        let end = address.checked_add(bytes).ok_or(ObjectError::Address)? / page;
        refuse_unless(end <= M::Codec::PFN_END, ObjectError::Address)?;
        let topology = self.machine.topology();
        let is_ours = topology.node[..topology.nodes]
            .iter()
            .any(|node| address / page < node.first.0 + node.frames && node.first.0 < end);
        refuse_unless(!is_ours, ObjectError::Owned)?;
        self.create_object(bytes, Source::Device(memory))
    }

    /// The leaf of a level that shows a device at an address, if the region maps one, and the
    /// device has all that such a leaf maps, as one aligned block. The region is seen inside an
    /// epoch, or under the mmap lock.
    pub fn device_leaf(
        &self,
        region: &Region,
        va: Va,
        level: Level,
        flags: Flags,
    ) -> Option<Entry> {
        let order = level.leaf_order().filter(|&order| order <= self.rules.max_leaf)?;
        let (object, index) = region.object_at(va)?;
        let record = self.object(object);
        let memory = record.device()?;
        let first = index.checked_sub(va.page() & (order.frames() - 1))?;
        let pfn = Pfn(memory.address / PAGE_SIZE as u64 + first);
        let fits = first + order.frames() <= record.pages() && pfn == pfn.align_down(order);
        fits.then_some(Entry::Device(pfn, flags, memory.cache))
    }
}
