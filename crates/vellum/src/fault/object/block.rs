//! Blocks of 2 MiB of an object, for its faults (`object.huge`).
//!
//! A block is made where the region and the object have room for all of it, and is mapped as a
//! whole where address and offset agree and no table is in the way. Elsewhere entries of 4 KiB map
//! its pages: beside a hole that was unmapped, through a private view, or at another distance.

use crate::addr::{Level, Order, Pfn, Va};
use crate::clear::Extent;
use crate::clear::fresh_block::{BlockContents, NoBlock};
use crate::config::Thp;
use crate::entry::{Entry, Flags};
use crate::error::{FaultError, Stopped};
use crate::fault::object::page::{ObjectFault, entry_flags};
use crate::fault::{FaultRequest, Faults, Seen, Step};
use crate::frame::{AllocRequest, SlabRef};
use crate::machine::{Machine, Use};
use crate::object::{BLOCK_PAGES, FindPage, ObjectBlock, Present};
use crate::pagetable::unlinked::UnlinkedPath;
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::{Fault, HugeAdvice, LeafSize, SpaceRecord};
use crate::stats::Counter;
use crate::sync::EpochGuard;

pub(crate) struct BlockFault<'v, M: Machine>(pub &'v Faults<M>);

over!(BlockFault, Faults);

impl<M: Machine> BlockFault<'_, M> {
    /// Whether an entry of 2 MiB may stand where a reserved entry was seen, and show the block with
    /// the page of that index as a whole.
    pub fn fits(self, seen: &Seen<'_>, page: (SlabRef, u64)) -> bool {
        seen.spot.level > Level::ONE && self.may_fit(seen, page)
    }

    /// The same but for tables of 4 KiB entries that may be in the way.
    pub fn may_fit(self, seen: &Seen<'_>, (object, index): (SlabRef, u64)) -> bool {
        let attrs = seen.attrs;
        attrs.is_shared_view()
            && !attrs.is_device()
            && attrs.thp() != Some(HugeAdvice::NoHuge)
            && attrs.leaf() == LeafSize::Policy
            && self.rules.max_leaf >= Order::HUGE
            && (seen.va.page() ^ index).is_multiple_of(BLOCK_PAGES)
            && self.object(object).has_block(first_of(index))
    }

    /// Whether a block is wanted where the object has no page.
    pub fn wants(self, seen: &Seen<'_>, page: (SlabRef, u64)) -> bool {
        let is_wanted = match self.config.object_huge {
            Thp::Never => false,
            Thp::Advise => seen.attrs.thp() == Some(HugeAdvice::Huge),
            Thp::Always => true,
        };
        is_wanted && !seen.attrs.is_tracked_view() && self.fits(seen, page)
    }

    /// Maps a block that was found inside this epoch, by the frame of a page.
    pub fn map(self, seen: &Seen<'_>, pfn: Pfn, flags: Flags) -> Result<Step, FaultError> {
        let path = self.unlinked_path(seen.spot.at, seen.va, Level::TWO)?;
        Ok(self.plant_leaf(seen, pfn, flags, path))
    }

    fn plant_leaf(
        self,
        seen: &Seen<'_>,
        pfn: Pfn,
        flags: Flags,
        path: Option<UnlinkedPath<'_>>,
    ) -> Step {
        let first = Pfn(first_of(pfn.0));
        ObjectFrame(self.0).add_leaf(first);
        if !self.plant(seen, path, Entry::Shared(first, flags), true) {
            ObjectFrame(self.0).sub_leaf(first);
            return Step::Again;
        }
        self.count_here(Counter::ThpFileMapped, 1);
        Step::Done(Fault::Object)
    }

    /// Gives each frame of a block a record, by the frame of a page.
    pub fn cut(self, pfn: Pfn) {
        ObjectFrame(self.0).cut(Pfn(first_of(pfn.0)));
    }

    /// Makes a block where one is wanted, and maps it. The tables above it are taken first, so that
    /// a fault which finds no memory for them leaves none in the object.
    #[cold]
    pub fn make(
        self,
        seen: &Seen<'_>,
        ask: FaultRequest,
        (object, index): (SlabRef, u64),
        epoch: EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let (space, want) =
            (seen.space, AllocRequest { index, ..self.want_block(seen, Order::HUGE) });
        let _in_hand = self.hands.begin(&self.machine);
        let path = self.unlinked_path(seen.spot.at, ask.va, Level::TWO)?;
        // The attachment may go with the epoch, and the object with it.
        self.object(object).attachments.keep();
        drop(epoch);
        let step = match self.make_block((object, index), &want, ask.va) {
            Ok(true) => Ok(self.map_made(space, ask, (object, index), path)),
            made => {
                self.free_path(path);
                made.map(|_| Step::Smaller).map_err(FaultError::from)
            }
        };
        self.let_go_of(object);
        step
    }

    /// Maps the block that is there by now, below the tables if they are what is missing.
    fn map_made(
        self,
        space: &SpaceRecord,
        ask: FaultRequest,
        page: (SlabRef, u64),
        path: Option<UnlinkedPath<'_>>,
    ) -> Step {
        let epoch = self.epochs.enter(&self.machine);
        let path_to = (path.as_ref(), Level::TWO);
        let seen = ObjectFault(self.0).seen_again(space, ask, page, path_to);
        let seen = seen.filter(|seen| self.fits(seen, page));
        match (seen, FindPage(self.0).present(page.0, page.1, &epoch)) {
            (Some(seen), Present::Block(pfn)) => {
                self.plant_leaf(&seen, pfn, entry_flags(&seen, ask.access, false), path)
            }
            _ => {
                self.free_path(path);
                Step::Again
            }
        }
    }

    /// Puts a block of zeros around an index, which will be seen at `va` first. `false`: there is
    /// no free block, or the object has a page there, or ends there. The caller keeps the object,
    /// holds no lock and is in no epoch.
    ///
    /// # Errors
    /// [`Stopped`]; nothing changed.
    pub fn make_block(
        self,
        (object, index): (SlabRef, u64),
        want: &AllocRequest,
        va: Va,
    ) -> Result<bool, Stopped> {
        let base = first_of(index);
        if !ObjectBlock(self.0).has_room(object, base) {
            return Ok(false);
        }
        let _in_hand = self.hands.begin(&self.machine);
        let want = AllocRequest { use_: Use::Object, ..*want };
        let (first, contents) = match self.take_block(Order::HUGE, &want, false) {
            Ok(taken) => taken,
            Err(NoBlock::Stopped) => return Err(Stopped),
            Err(NoBlock::Memory) => {
                self.count(Counter::ThpFileFallback, 1);
                return Ok(false);
            }
        };
        if ObjectBlock(self.0).put_frozen(object, base, first).is_err() {
            self.untake(first, Order::HUGE);
            return Ok(false);
        }
        // As in `Reserved::fresh_block`. Who wants it meanwhile waits, and clears none of his own.
        if (contents == BlockContents::Old || self.machine.aliases())
            && let Err(stopped) = self.clear_block(&Extent::of_leaf(first, Order::HUGE, va))
        {
            self.free_pages(object, &[(first, base)]);
            return Err(stopped);
        }
        self.thaw(first);
        self.count(Counter::ThpFileAlloc, 1);
        Ok(true)
    }
}

/// The first page of a block, by the index or the frame of another.
fn first_of(page: u64) -> u64 {
    page & !(BLOCK_PAGES - 1)
}
