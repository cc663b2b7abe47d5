//! Taking a frame out of use that is suspected bad, and going on with a copy.
//!
//! What a kernel does when memory reports an error it could still correct, or a test asks for one.
//! The frame goes for good: it stays allocated, of a use of its own, so that no way of freeing
//! leads to it and no list of bad frames has to be asked when memory is given out. Every space that
//! maps the frame maps the copy afterwards (`fault/migrate.rs`). Zeros are refused, in whatever
//! form: everybody maps them.
//!
//! All memory is taken before the first leaf is split.
//!
//! A page of an object leaves every space first (`fault/object.rs`), and the object gets the copy.

use crate::addr::{Order, PAGE_SIZE, Pfn, Va};
use crate::entry::{Codec, Entry};
use crate::error::PoisonError;
use crate::fault::object::{Split, UnmapObject};
use crate::fault::{Faults, Migrate, Migrated, Seen};
use crate::frame::{AllocRequest, SlabRef};
use crate::machine::{Act, Machine, Use, Verb};
use crate::object::ObjectIo;
use crate::pagetable::transit::frame_of;
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::{Space, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{MmapLock, Token};
use crate::tlb::Flushed;

/// How an attempt ended that did not fail.
enum Poisoned {
    Done,
    Again,
    /// An object has the page.
    Object(PageOfObject),
    /// Somebody has it in hand. Its frame is kept.
    Taken(Pfn),
}

/// A page of an object, which the verb keeps.
struct PageOfObject {
    object: SlabRef,
    index: u64,
    frame: Pfn,
    want: AllocRequest,
}

pub(crate) struct Poison<'v, M: Machine>(pub &'v Faults<M>);

over!(Poison, Faults);

impl<'v, M: Machine> Poison<'v, M> {
    /// `Vm::poison`.
    pub fn poison(self, space: &Space, va: Va) -> Result<(), PoisonError> {
        self.verb(Verb::Poison, || {
            if va >= self.user_end() {
                return Err(PoisonError::NotMapped);
            }
            let va = va.align_down(PAGE_SIZE as u64);
            let record = self.record_of(space);
            loop {
                // With nothing in hand between two attempts.
                match self.with_memory(|| self.in_hand(|| self.attempt(record, va))) {
                    Ok(Poisoned::Done) => return Ok(()),
                    Ok(Poisoned::Taken(pfn)) => ObjectIo(self.0).wait_for_page(pfn),
                    // A fork or a copy of the page is under way, perhaps by a task of this CPU.
                    Ok(_) => {
                        self.machine.relax();
                        self.let_others_run();
                    }
                    Err(error) => {
                        if error == PoisonError::Zero {
                            self.count(Counter::PoisonSkippedZero, 1);
                        }
                        return Err(error);
                    }
                }
            }
        })
    }

    fn attempt(self, record: &SpaceRecord, va: Va) -> Result<Poisoned, PoisonError> {
        let done = {
            let mut top = Token::top();
            let mut mmap = record.mmap_lock().lock(&self.machine, &mut top, record.id());
            self.poison_page(record, va, mmap.token())
        };
        match done {
            Ok(Poisoned::Object(page)) => self.poison_of_object(&page, va),
            done => done,
        }
    }

    fn poison_page(
        self,
        space: &SpaceRecord,
        va: Va,
        token: &mut Token<MmapLock>,
    ) -> Result<Poisoned, PoisonError> {
        let seen = self.page_at(space, va)?;
        if let Entry::Shared(frame, _) = M::Codec::decode(seen.spot.raw, seen.spot.level)
            && let Some((object, index)) = seen.region.object_at(va)
        {
            // Waiting for other spaces needs the mmap lock given back.
            self.object(object).attachments.keep();
            let (want, pages) =
                (self.want(&seen), seen.spot.level.entry_bytes() / PAGE_SIZE as u64);
            let frame = frame.add(va.page() & (pages - 1));
            return Ok(Poisoned::Object(PageOfObject { object, index, frame, want }));
        }
        let new = self.frames.alloc(&self.machine, Order::BASE, &self.want(&seen))?;
        let done = Migrate(self.0).exchange_frame(&seen, new, token, |flushed, old| {
            self.keep_for_good(flushed, old);
        });
        if done != Ok(Migrated::Done) {
            self.untake(new, Order::BASE);
        }
        Ok(if done? == Migrated::Done { Poisoned::Done } else { Poisoned::Again })
    }

    /// The same of a page that an object has: it leaves every space and comes back as the copy, by
    /// a fault. Nothing is held.
    fn poison_of_object(self, page: &PageOfObject, va: Va) -> Result<Poisoned, PoisonError> {
        let PageOfObject { object, index, frame, ref want } = *page;
        let want = AllocRequest { use_: Use::Object, index, ..*want };
        let new = self.frames.alloc(&self.machine, Order::BASE, &want);
        // Nothing happens where there is no memory for either.
        let new = new.and_then(|new| {
            let split = Split(self.0).try_split(object, index);
            split.inspect_err(|_| self.untake(new, Order::BASE)).map(|_| new)
        });
        let done = new.map(|new| match ObjectIo(self.0).freeze_or_keep(object, index) {
            Some(Ok((old, _)))
                if old == frame && !ObjectFrame(self.0).is_block(&[(old, index)]) =>
            {
                UnmapObject(self.0).everywhere(object, &[(old, index)]);
                if self.config.alloc_zero {
                    self.clear_page(new, va);
                }
                self.machine.copy_frame(new, old);
                self.replace_frozen(object, index, new);
                self.take_from_use(old);
                // Who waits for the old page looks for the new one.
                self.machine.wake(old.0);
                Poisoned::Done
            }
            // Another page came there since the frame was seen, or none; or it is in somebody's
            // hand.
            other => {
                self.untake(new, Order::BASE);
                match other {
                    Some(Err(taken)) => Poisoned::Taken(taken),
                    other => {
                        other.into_iter().flatten().for_each(|page| self.thaw(page.0));
                        Poisoned::Again
                    }
                }
            }
        });
        self.let_go_of(object);
        Ok(done?)
    }

    /// What lies at `va`, if that is a page of data. Under the mmap lock.
    fn page_at(self, space: &'v SpaceRecord, va: Va) -> Result<Seen<'v>, PoisonError> {
        loop {
            let Some(seen) = self.0.seen(space, va) else { return Err(PoisonError::NotMapped) };
            let entry = M::Codec::decode(seen.spot.raw, seen.spot.level);
            match (entry, frame_of(entry)) {
                (Entry::Empty | Entry::Reserved, _) => {
                    return Err(PoisonError::NotMapped);
                }
                (Entry::ZeroTable(_), _) => return Err(PoisonError::Zero),
                (Entry::Device(..), _) => return Err(PoisonError::Device),
                (_, Some(pfn)) if self.is_zero(pfn) => {
                    // Or else what was read here went meanwhile, and then became the zeros.
                    if self.maps_zeros(&seen, pfn) {
                        return Err(PoisonError::Zero);
                    }
                }
                (_, Some(_)) => return Ok(seen),
                // A CPU has it in transit.
                (_, None) => self.machine.relax(),
            }
        }
    }

    /// Whether the entry that was seen maps zeros. The lock keeps it, and it keeps the frame.
    fn maps_zeros(self, seen: &Seen<'_>, pfn: Pfn) -> bool {
        let mut top = Token::top();
        let spot = &seen.spot;
        let _guard = spot.node.lock(&self.machine, &mut top);
        self.machine.entry(spot.node.pfn, spot.slot) == spot.raw && self.is_zero(pfn)
    }

    /// Leaves a frame allocated that no entry and no translation names any more.
    fn keep_for_good(self, _flushed: &Flushed, pfn: Pfn) {
        self.take_from_use(pfn);
    }

    fn take_from_use(self, pfn: Pfn) {
        self.frames.record(pfn).set_head(Use::Poisoned, Order::BASE);
        self.machine.becomes(pfn, Order::BASE, Use::Poisoned);
        self.count(Counter::FramesPoisoned, 1);
    }
}
