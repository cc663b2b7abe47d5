//! What the threads have done to the shared ranges, recorded outside of the space, and what another
//! thread may therefore find.
//!
//! A record is written before and after each operation, never atomically with it. So each rule
//! names two instants: what ended before a look began must be visible, and what began after the
//! look ended must not be. The rules are at [`Look`].
//!
//! All loads and stores of records are sequentially consistent. A store to the space is between two
//! of them, so it cannot pass either.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use vellum::error::FaultError;
use vellum::space::{Access, Rights};

use super::arena::{Arena, Kind};
use super::history::History;

/// A thread's word of a slot.
#[derive(Debug, Default)]
struct Cell {
    /// The last store begun.
    started: AtomicU64,
    /// The last store done.
    published: AtomicU64,
    /// Wipes begun when that store began, if all were over; otherwise [`NEVER`].
    before: AtomicU64,
    /// Wipes begun when it was done.
    after: AtomicU64,
    /// The latest store that any thread saw there.
    seen: AtomicU64,
    /// Stores up to this one are gone: the slot was emptied while all threads waited.
    floor: AtomicU64,
}

/// No number of wipes.
const NEVER: u64 = u64::MAX;

/// A slot.
#[derive(Debug)]
struct Page {
    /// Wipes begun, and ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The latest wipe that is over and took effect, by its number among those begun.
    wiped: AtomicU64,
    rights: AtomicU64,
}

/// What all slots may hold.
#[derive(Debug)]
pub struct ExpectedState {
    writers: usize,
    cells: Box<[Cell]>,
    pages: Box<[Page]>,
    /// Where a moved range is: twice the moves, one more while one is under way. Even moves: at its
    /// first place.
    places: Box<[AtomicU64]>,
    /// The order of each thread's stores.
    pub history: History,
}

/// A change of rights that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    rights: u64,
    /// Its number, if it began alone.
    alone: Option<u64>,
}

/// Rights as bits: read, write, execute. Any right gives reading.
fn bits(rights: Rights) -> u64 {
    u64::from(!rights.is_none()) | u64::from(rights.write) << 1 | u64::from(rights.exec) << 2
}

fn bit(access: Access) -> u64 {
    match access {
        Access::Read => 1,
        Access::Write => 2,
        Access::Exec => 4,
    }
}

/// A slot's rights, packed in one word.
#[derive(Clone, Copy)]
struct RightsWord {
    /// Rights that the slot has for certain.
    must: u64,
    /// Rights that the slot may have.
    may: u64,
    /// Changes under way.
    open: u64,
    /// Changes begun.
    begun: u64,
}

impl RightsWord {
    fn of(word: u64) -> RightsWord {
        RightsWord { must: word & 7, may: word >> 3 & 7, open: word >> 6 & 1023, begun: word >> 16 }
    }

    fn pack(self) -> u64 {
        self.must | self.may << 3 | self.open << 6 | self.begun << 16
    }
}

/// The expected state of a word, read before the word.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    slot: usize,
    writer: usize,
    kind: Kind,
    extent: usize,
    /// Of a range that moves: whether the look is at its other place.
    other: bool,
    /// A store published, and what it said of wipes if nothing changed while that was read.
    published: u64,
    wipes: Option<(u64, u64)>,
    /// Nothing older than this may be found if the range keeps its stores.
    least: u64,
    ended: u64,
    wiped: u64,
    rights: u64,
    place: u64,
}

impl ExpectedState {
    /// All mapped, readable and writable, at its first place, zero.
    pub fn new(arena: &Arena, writers: usize) -> ExpectedState {
        let page = |_| Page {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            wiped: AtomicU64::new(0),
            rights: AtomicU64::new(RightsWord { must: 3, may: 3, open: 0, begun: 0 }.pack()),
        };
        ExpectedState {
            writers,
            cells: (0..arena.slots() * writers).map(|_| Cell::default()).collect(),
            pages: (0..arena.slots()).map(page).collect(),
            places: arena.extents.iter().map(|_| AtomicU64::new(0)).collect(),
            history: History::new(writers),
        }
    }

    /// How many threads store.
    pub fn writers(&self) -> usize {
        self.writers
    }

    fn cell(&self, slot: usize, writer: usize) -> &Cell {
        &self.cells[slot * self.writers + writer]
    }

    /// A thread is about to store; what to hand to [`ExpectedState::stored`].
    pub fn store(&self, slot: usize, writer: usize, count: u64) -> (u64, u64) {
        self.history.begin(writer, count, slot);
        let cell = self.cell(slot, writer);
        let old = cell.started.swap(count, SeqCst);
        let page = &self.pages[slot];
        let ended = page.ended.load(SeqCst);
        let begun = page.begun.load(SeqCst);
        (if ended == begun { begun } else { NEVER }, old)
    }

    /// The thread has stored, or its store was refused.
    pub fn stored(
        &self,
        slot: usize,
        writer: usize,
        count: u64,
        (before, old): (u64, u64),
        done: bool,
    ) {
        let cell = self.cell(slot, writer);
        if !done {
            self.history.void(writer, count);
            cell.started.store(old, SeqCst);
            return;
        }
        cell.before.store(before, SeqCst);
        cell.after.store(self.pages[slot].begun.load(SeqCst), SeqCst);
        cell.published.store(count, SeqCst);
        self.history.done(writer, count);
    }

    /// A wipe of a slot begins; its number.
    pub fn wipe(&self, slot: usize) -> u64 {
        self.pages[slot].begun.fetch_add(1, SeqCst) + 1
    }

    /// A wipe ends, and took effect or not.
    pub fn wipe_over(&self, slot: usize, number: u64, done: bool) {
        let page = &self.pages[slot];
        if done {
            page.wiped.fetch_max(number, SeqCst);
        }
        page.ended.fetch_add(1, SeqCst);
    }

    /// Whether no other wipe of the slot began since this one did, or was under way then.
    pub fn is_only(&self, slot: usize, number: u64) -> bool {
        let page = &self.pages[slot];
        page.ended.load(SeqCst) == number - 1 && page.begun.load(SeqCst) == number
    }

    /// A slot's rights are about to become these.
    pub fn grant(&self, slot: usize, rights: Rights) -> Grant {
        let rights = bits(rights);
        let change = |word| {
            let RightsWord { must, may, open, begun } = RightsWord::of(word);
            let (must, may) = (must & rights, may | rights);
            Some(RightsWord { must, may, open: open + 1, begun: begun + 1 }.pack())
        };
        let old = self.pages[slot].rights.fetch_update(SeqCst, SeqCst, change).unwrap_or(0);
        let RightsWord { open, begun, .. } = RightsWord::of(old);
        Grant { rights, alone: (open == 0).then_some(begun + 1) }
    }

    /// The change of rights ended, and took effect or not.
    pub fn granted(&self, slot: usize, grant: Grant, done: bool) {
        let change = |word| {
            let RightsWord { must, may, open, begun } = RightsWord::of(word);
            // Of several changes at once, the last one is unknown.
            let known = done && grant.alone == Some(begun);
            let (must, may) = if known { (grant.rights, grant.rights) } else { (must, may) };
            Some(RightsWord { must, may, open: open - 1, begun }.pack())
        };
        let _ = self.pages[slot].rights.fetch_update(SeqCst, SeqCst, change);
    }

    /// Takes the right to move a range; whether it is at its other place.
    pub fn move_begins(&self, extent: usize) -> Option<bool> {
        let at = self.places[extent].load(SeqCst);
        let free =
            at & 1 == 0 && self.places[extent].compare_exchange(at, at + 1, SeqCst, SeqCst).is_ok();
        free.then_some(at & 2 != 0)
    }

    /// The move ended, and took effect or not.
    pub fn move_ends(&self, extent: usize, done: bool) {
        // A move that failed counts as two.
        self.places[extent].fetch_add(if done { 1 } else { 3 }, SeqCst);
    }

    /// Whether a range is at its other place, as far as is known.
    pub fn is_away(&self, extent: usize) -> bool {
        self.places[extent].load(SeqCst) & 2 != 0
    }

    /// Before a look at a thread's word of a slot.
    pub fn look(&self, arena: &Arena, slot: usize, writer: usize, other: bool) -> Look {
        let (cell, page) = (self.cell(slot, writer), &self.pages[slot]);
        let started = cell.started.load(SeqCst);
        let published = cell.published.load(SeqCst);
        let wipes = (cell.before.load(SeqCst), cell.after.load(SeqCst));
        let still = started == published && cell.started.load(SeqCst) == started;
        let extent = arena.number(slot);
        Look {
            slot,
            writer,
            kind: arena.extent(slot).kind,
            extent,
            other,
            published,
            wipes: still.then_some(wipes),
            least: published.max(cell.seen.load(SeqCst)),
            ended: page.ended.load(SeqCst),
            wiped: page.wiped.load(SeqCst),
            rights: page.rights.load(SeqCst),
            place: self.places[extent].load(SeqCst),
        }
    }

    /// The last store that has begun.
    pub fn started(&self, slot: usize, writer: usize) -> u64 {
        self.cell(slot, writer).started.load(SeqCst)
    }

    /// A store that is done, of a range that keeps its stores.
    pub fn published(&self, slot: usize, writer: usize) -> u64 {
        self.cell(slot, writer).published.load(SeqCst)
    }

    /// A slot was emptied while all threads waited.
    pub fn drop_slot(&self, slot: usize) {
        for writer in 0..self.writers {
            let cell = self.cell(slot, writer);
            cell.floor.fetch_max(cell.started.load(SeqCst), SeqCst);
            cell.published.store(0, SeqCst);
            cell.started.store(0, SeqCst);
            cell.before.store(NEVER, SeqCst);
            cell.seen.store(0, SeqCst);
        }
    }

    /// The last of a thread's stores that can no longer be in a slot, with all before it.
    pub fn floor(&self, slot: usize, writer: usize) -> u64 {
        self.cell(slot, writer).floor.load(SeqCst)
    }

    /// Whether a look at a word may have found its thread's store number `count`; 0 is zeros.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn may_be(&self, look: &Look, count: u64) -> Result<(), String> {
        let (cell, page) = (self.cell(look.slot, look.writer), &self.pages[look.slot]);
        let (begun, started) = (page.begun.load(SeqCst), cell.started.load(SeqCst));
        let say = |what: &str| {
            Err(format!(
                "{what}: store {count} was found, {look:x?}, {cell:x?}, {begun} wipes begun"
            ))
        };
        if count > started {
            return say("a store that had not begun");
        }
        if look.kind != Kind::Wiped {
            cell.seen.fetch_max(count, SeqCst);
            return if count < look.least {
                say("a store is lost, or one that was seen is not seen by a later look")
            } else if count != 0 && count <= cell.floor.load(SeqCst) {
                say("contents came back that were dropped")
            } else {
                Ok(())
            };
        }
        if let Some((before, after)) = look.wipes {
            if before == begun && count < look.published {
                return say("a store is lost though no wipe has begun since before it");
            }
            if count != 0 && count <= look.published && look.wiped > after {
                return say("a store is still there after a wipe that began when it was done");
            }
        }
        if look.ended == begun && count != 0 && count < look.published {
            return say("an old store is found beside no wipe");
        }
        Ok(())
    }

    /// Whether an access may have ended so, `look` being from before it.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn may_end(
        &self,
        look: &Look,
        access: Access,
        got: Result<(), FaultError>,
    ) -> Result<(), String> {
        let page = &self.pages[look.slot];
        let (begun, rights, place) = (
            page.begun.load(SeqCst),
            page.rights.load(SeqCst),
            self.places[look.extent].load(SeqCst),
        );
        let say = |what: &str| Err(format!("{what}: {access:?} gave {got:?}, {look:x?}"));
        // Both words count what begins, so that equal ones mean that nothing began or ended.
        let RightsWord { must, may, .. } = RightsWord::of(look.rights);
        let known = look.rights == rights;
        let here = look.place == place && place & 1 == 0 && (place & 2 != 0) == look.other;
        let elsewhere = look.place == place && place & 1 == 0 && (place & 2 != 0) != look.other;
        match got {
            Ok(()) if look.kind == Kind::Moved && elsewhere => say("the range is not here"),
            Ok(()) if known && may & bit(access) == 0 => say("nobody has given that right"),
            Ok(()) | Err(FaultError::NoMemory) => Ok(()),
            Err(FaultError::Rights) if known && must & bit(access) != 0 => {
                say("the right was there all the time")
            }
            Err(FaultError::Rights) => Ok(()),
            Err(FaultError::Unmapped) => match look.kind {
                Kind::Wiped if look.ended != begun => Ok(()),
                Kind::Moved if !here => Ok(()),
                _ => say("it was mapped all the time"),
            },
            Err(FaultError::Stopped) => say("nobody stops anything here"),
            Err(FaultError::Beyond | FaultError::Io | FaultError::Device) => {
                say("no object is mapped here")
            }
        }
    }

    /// A slot's rights, where they are known and nothing changes them: read, write, execute.
    pub fn known_rights(&self, look: &Look) -> Option<[bool; 3]> {
        let RightsWord { must, may, .. } = RightsWord::of(look.rights);
        let same = must == may && self.pages[look.slot].rights.load(SeqCst) == look.rights;
        same.then_some([1, 2, 4].map(|b| must & b != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Rights = Rights::READ_WRITE;

    fn slot_of(arena: &Arena, kind: Kind) -> usize {
        arena.extents.iter().find(|e| e.kind == kind).map_or(0, |e| e.slot)
    }

    #[test]
    fn what_was_stored_must_show_and_what_was_not_begun_must_not() {
        let arena = Arena::new();
        let expected = ExpectedState::new(&arena, 2);
        let slot = slot_of(&arena, Kind::Kept);
        let token = expected.store(slot, 1, 5);
        let during = expected.look(&arena, slot, 1, false);
        assert_eq!([0, 5].map(|n| expected.may_be(&during, n).is_ok()), [true; 2]);
        expected.stored(slot, 1, 5, token, true);
        let look = expected.look(&arena, slot, 1, false);
        assert_eq!(
            [0, 4, 5, 6].map(|n| expected.may_be(&look, n).is_ok()),
            [false, false, true, false]
        );
        // What one thread has seen, no other may miss later.
        let token = expected.store(slot, 1, 9);
        let early = expected.look(&arena, slot, 1, false);
        assert!(expected.may_be(&early, 9).is_ok() && expected.may_be(&early, 5).is_ok());
        let late = expected.look(&arena, slot, 1, false);
        assert!(expected.may_be(&late, 5).is_err());
        expected.stored(slot, 1, 9, token, true);
        expected.drop_slot(slot);
        let look = expected.look(&arena, slot, 1, false);
        assert!(expected.may_be(&look, 0).is_ok() && expected.may_be(&look, 9).is_err());
    }

    #[test]
    fn a_wipe_may_take_a_store_and_must_take_what_was_done_before_it() {
        let arena = Arena::new();
        let expected = ExpectedState::new(&arena, 1);
        let slot = slot_of(&arena, Kind::Wiped);
        let token = expected.store(slot, 0, 3);
        expected.stored(slot, 0, 3, token, true);
        let look = expected.look(&arena, slot, 0, false);
        assert_eq!([0, 3].map(|n| expected.may_be(&look, n).is_ok()), [false, true]);
        let wipe = expected.wipe(slot);
        assert!(expected.is_only(slot, wipe));
        assert_eq!([0, 3].map(|n| expected.may_be(&look, n).is_ok()), [true, true]);
        let denied =
            |look| expected.may_end(&look, Access::Read, Err(FaultError::Unmapped)).is_ok();
        assert!(denied(expected.look(&arena, slot, 0, false)));
        expected.wipe_over(slot, wipe, true);
        let look = expected.look(&arena, slot, 0, false);
        assert_eq!([0, 3].map(|n| expected.may_be(&look, n).is_ok()), [true, false]);
        assert!(!denied(look));
    }

    #[test]
    fn rights_are_known_when_a_change_was_alone() {
        let arena = Arena::new();
        let expected = ExpectedState::new(&arena, 1);
        let slot = slot_of(&arena, Kind::Rights);
        let store = |got| {
            expected.may_end(&expected.look(&arena, slot, 0, false), Access::Write, got).is_ok()
        };
        let denied = Err(FaultError::Rights);
        assert!(store(Ok(())) && !store(denied));
        let one = expected.grant(slot, Rights::READ);
        assert!(store(Ok(())) && store(denied));
        expected.granted(slot, one, true);
        assert!(!store(Ok(())) && store(denied));
        let (one, two) = (expected.grant(slot, RW), expected.grant(slot, Rights::READ));
        expected.granted(slot, two, true);
        expected.granted(slot, one, true);
        assert!(store(Ok(())) && store(denied));
        let one = expected.grant(slot, RW);
        expected.granted(slot, one, true);
        assert!(store(Ok(())) && !store(denied));
    }

    #[test]
    fn a_range_is_at_one_of_two_places() {
        let arena = Arena::new();
        let expected = ExpectedState::new(&arena, 1);
        let slot = slot_of(&arena, Kind::Moved);
        let extent = arena.number(slot);
        let fits = |other, got| {
            expected.may_end(&expected.look(&arena, slot, 0, other), Access::Read, got).is_ok()
        };
        let gone = Err(FaultError::Unmapped);
        let all = || [fits(false, Ok(())), fits(false, gone), fits(true, Ok(())), fits(true, gone)];
        assert_eq!(all(), [true, false, false, true]);
        assert_eq!(expected.move_begins(extent), Some(false));
        assert_eq!((all(), expected.move_begins(extent)), ([true; 4], None));
        expected.move_ends(extent, true);
        assert_eq!(all(), [false, true, true, false]);
        assert_eq!(expected.move_begins(extent), Some(true));
        expected.move_ends(extent, false);
        assert_eq!(all(), [false, true, true, false]);
    }
}
