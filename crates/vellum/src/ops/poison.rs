//! Taking a frame out of use that is suspected bad, and going on with a copy.
//!
//! What a kernel does when memory reports an error it could still correct, or a test asks for one.
//! The frame goes for good: it stays allocated, of a use of its own, so that no way of freeing
//! leads to it and no list of bad frames has to be asked when memory is given out.
//!
//! Only a page that one entry maps can be exchanged. There is no map from frames to the entries
//! that name them, so of a page that a fork shares the others could not be told, and it is refused;
//! so are zeros, in whatever form, which everybody maps. Rejected: copying for the one space and
//! leaving the frame to the others (a frame that is bad and in use is what the verb promises there
//! will not be).
//!
//! Writers are kept out by the entry: it is absent (`Busy`) and flushed on every CPU before the
//! first byte is read, and names the copy when it is there again. The layout lock is held
//! throughout, so no fork can count a second mapping meanwhile, and large leaves come apart only
//! here. All memory is taken before the first leaf is cut.

use crate::addr::{Level, Order, PAGE_SIZE, Pfn, Va};
use crate::entry::{Codec, Entry};
use crate::error::PoisonError;
use crate::fault::Faults;
use crate::fault::Seen;
use crate::frame::Data;
use crate::machine::{Act, Event, Machine, Use, Verb};
use crate::pagetable::preallocated::Preallocated;
use crate::pagetable::transit::frame_of;
use crate::platform::over;
use crate::rmap::map_count::smaller;
use crate::space::{Space, SpaceRecord};
use crate::stats::Counter;
use crate::sync::Token;
use crate::tlb::{Flushed, Receipt};

pub(crate) struct Poison<'v, M: Machine>(pub &'v Faults<M>);

over!(Poison, Faults);

impl<'v, M: Machine> Poison<'v, M> {
    /// `Vm::poison`.
    pub fn poison(self, space: &Space, va: Va) -> Result<(), PoisonError> {
        self.verb_with_memory(Verb::Poison, || {
            if va >= self.user_end() {
                return Err(PoisonError::NotMapped);
            }
            let va = va.align_down(PAGE_SIZE as u64);
            let record = self.record_of(space);
            let mut top = Token::top();
            let _layout = record.layout().lock(&self.machine, &mut top, space.id());
            let done = self.poison_page(record, va);
            if done == Err(PoisonError::Zero) {
                self.count(Counter::PoisonSkippedZero, 1);
            }
            done
        })
    }

    fn poison_page(self, space: &SpaceRecord, va: Va) -> Result<(), PoisonError> {
        let m = &self.machine;
        let seen = self.page_of_its_own(space, va)?;
        let new = self.frames.alloc(m, Order::BASE, &self.want(&seen))?;
        let tables = Preallocated::new(self.0, (seen.spot.level.0 - Level::ONE.0) as usize);
        let done = tables.map_err(PoisonError::from).and_then(|mut tables| {
            let done = self.exchange_page(space, va, new, &mut tables);
            tables.free(self.0);
            done
        });
        done.inspect_err(|_| self.untake(new, Order::BASE))
    }

    /// What lies at `va`, if it is a page that this entry alone maps. Faults can come in between
    /// two looks, and copy what is shared. Under the layout lock.
    fn page_of_its_own(self, space: &'v SpaceRecord, va: Va) -> Result<Seen<'v>, PoisonError> {
        loop {
            let edits = space.edits();
            let spot = self.0.descend(space, va);
            let entry = M::Codec::decode(spot.raw, spot.level);
            match entry {
                Entry::Empty | Entry::Gone(_) | Entry::Reserved => {
                    return Err(PoisonError::NotMapped);
                }
                Entry::ZeroTable(_) => return Err(PoisonError::Zero),
                _ => {}
            }
            if let (Some(pfn), Some(order), Some(name)) =
                (frame_of(entry), spot.level.leaf_order(), spot.region)
            {
                if self.is_zero(pfn) {
                    return Err(PoisonError::Zero);
                }
                if !self.is_piece_mine(pfn, order, va) {
                    return Err(PoisonError::Shared);
                }
                let region = self.0.region(name);
                return Ok(Seen { space, va, edits, spot, region, attrs: region.packed() });
            }
            // Set aside by a fault.
            self.machine.relax();
        }
    }

    /// Whether nobody else maps the page at `va` of a leaf; of the leaf's other pages others may,
    /// where the block is cut.
    fn is_piece_mine(self, leaf: Pfn, order: Order, va: Va) -> bool {
        let (mut piece, mut size) = (leaf, order);
        while self.unit_of(piece) < size {
            size = smaller(size);
            piece = leaf.add(va.page() & (order.frames() - 1) & !(size.frames() - 1));
        }
        self.is_mine(piece, size)
    }

    /// Cuts the leaf down to the page, with tables that were taken for it, and puts a copy in `new`
    /// in the page's place. It fails after a cut only if a copy of the whole leaf began in between
    /// (`hold`), which shares every page of it.
    fn exchange_page(
        self,
        space: &SpaceRecord,
        va: Va,
        new: Pfn,
        tables: &mut Preallocated,
    ) -> Result<(), PoisonError> {
        let m = &self.machine;
        loop {
            let seen = self.page_of_its_own(space, va)?;
            let spot = &seen.spot;
            let level = spot.level;
            if level > Level::ONE {
                let frame = tables.take(self.0)?;
                if !self.split_leaf(space, spot.at, va, frame) {
                    tables.put(&self.machine, frame);
                }
                continue;
            }
            let Some(taken) = self.set_aside(spot.at) else { continue };
            let Some(old) = frame_of(taken) else { continue };
            let mut receipt = Receipt::new();
            receipt.leaf(va, level);
            let flushed = self.redeem(space, receipt);
            if self.config.alloc_zero {
                self.clear_page(new, va);
            }
            m.copy_frame(new, old);
            Data::init(
                self.frames.record(new),
                Order::BASE,
                space.owner(),
                seen.index(Order::BASE),
            );
            let entry = match taken {
                Entry::Leaf(_, flags) => Entry::Leaf(new, flags),
                _ => Entry::Parked(new),
            };
            self.put_back(spot.at, entry, 0);
            self.keep_for_good(&flushed, old);
            return Ok(());
        }
    }

    /// Leaves a frame allocated that no entry and no translation names any more.
    fn keep_for_good(self, _flushed: &Flushed, pfn: Pfn) {
        self.frames.record(pfn).set_head(Use::Poisoned, Order::BASE);
        self.machine.hook(Event::Frame { first: pfn, order: Order::BASE, to: Use::Poisoned });
        self.count(Counter::FramesPoisoned, 1);
    }
}
