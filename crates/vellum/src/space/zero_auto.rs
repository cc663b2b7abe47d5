//! `zero.huge=auto` in a space: what a read maps, and exchanging what was mapped before it was known.
//!
//! What is decided, and how, is in [`zero::auto`](crate::zero::auto). What it is decided by hangs off the space's record, made at the space's
//! first such fault; where there is no memory for it, reads map the page.
//!
//! A decision exchanges what the space has mapped otherwise, since what was read first is often what is read most. That is done by the
//! fault that decided, after it has served itself, under the layout lock: one visit to the nodes above the lowest to make the entries
//! absent, one flush, one visit to put the others in. Meanwhile entries are `Moving`, which nobody writes who does not hold that
//! lock. Rejected: exchanging each when it faults again, which it never does.

use crate::addr::{Level, Order, Va, VaRange};
use crate::config::ZeroHuge;
use crate::entry::{Codec, Entry, Flags};
use crate::error::{FaultError, Invalid};
use crate::frame::SlabRef;
use crate::machine::{Act, Event, Machine, Verb, Work};
use crate::space::fault::{Seen, Step};
use crate::space::{Fault, Space, SpaceRecord, Trash};
use crate::stats::Counter;
use crate::sync::atomic::Ordering;
use crate::sync::{EpochGuard, Token, Top, touch};
use crate::tlb::Receipt;
use crate::vm::Vm;
use crate::zero::auto::{Turn, Verdict, Watch, ZeroChoice, ZeroForm, ZeroWhy};
use crate::zero::decided::{ZeroDecision, ZeroReason};

/// Reconsidering may take that part of the time: beside a 32nd, which a decision must win, it is half.
const PART: u64 = 64;
/// What a fault takes outside of the library, trap and return, is taken to be a microsecond; in cycles where the clock's rate is not known.
const TRAP: u64 = 4096;

/// What mappings of huge zeros are exchanged for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    Form(ZeroForm),
    /// The same, of 2 MiB, their accessed bits clear.
    Look(ZeroForm),
    /// The promise they stood for.
    Promise,
}

impl<M: Machine> Vm<M> {
    /// What `zero.huge=auto` maps where untouched memory of a space is read, and why. Any lock may be held; with other
    /// settings of the switch it says nothing.
    pub fn zero_choice(&self, space: &Space) -> ZeroChoice {
        self.watch_of(self.record_of(space)).map_or(ZeroChoice::default(), |watch| watch.peek().choice())
    }

    /// Lets a space's memory be looked at again with `zero.huge=auto`: huge zeros go back to the promise they stood for, and first faults show
    /// whether the program is still what it was; or, where reads are scattered, accessed bits are compared, over this call and the
    /// next ones. For a kernel to call every millisecond or so, as from a timer's slow path, and to go on calling; it does
    /// nothing, and says `false`, until what it cost the last time, faults included, is less than a 64th of the time that went by.
    /// Takes the layout lock if it does something.
    pub fn reconsider_zeros(&self, space: &Space) -> bool {
        let record = self.record_of(space);
        let Some(watch) = self.watch_of(record) else { return false };
        let m = &self.machine;
        let trap = match m.cycles_per_us() {
            0 => TRAP,
            cycles => cycles,
        };
        let able = M::Codec::TABLES_ACCESSED && self.rules.hardware_ad;
        let turn = watch.with(|trial| trial.turn(m.now(), trap, PART, able)).unwrap_or(Turn::Wait);
        if turn == Turn::Wait {
            return false;
        }
        self.verb(Verb::Advise, || match turn {
            Turn::Forget => self.forget_zeros(record, watch, trap),
            _ => self.look_at_zeros(record, watch, turn),
        });
        true
    }

    fn forget_zeros(&self, space: &SpaceRecord, watch: &Watch, trap: u64) {
        let m = &self.machine;
        let began = m.now();
        let was = watch.peek();
        let (cost, ran) = was.bill(began, trap);
        let all = (Va(0), self.user_end());
        let exchanged = self.exchange_zeros(space, all, Into::Promise, false);
        watch.wait(m, |trial| trial.forget(began, m.now()));
        self.count(Counter::ZeroAutoForget, 1);
        self.decided(space, all, (was.form(), ZeroForm::Page), ZeroReason::Again { cost, ran }, exchanged);
    }

    /// Serves a read of huge zeros as the space's trial has it; `program` is not set where a verb wants the page, which says nothing.
    #[cold]
    pub(crate) fn read_zeros_auto(
        &self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        program: bool,
    ) -> Result<Step, FaultError> {
        let (m, space, va) = (&self.machine, seen.space, seen.va);
        // The shared tables let nobody execute.
        if seen.attrs.rights().exec {
            return self.read_zeros_as(ZeroHuge::Page, seen, epoch);
        }
        let began = m.now();
        let Some(watch) = self.watch_of(space).or_else(|| self.make_watch(space)) else {
            return self.read_zeros_as(ZeroHuge::Page, seen, epoch);
        };
        touch(m, watch.word(), true);
        let cpu = m.cpu();
        let timed = program && watch.with(|trial| trial.begins(cpu, began)) == Some(true);
        let trial = watch.peek();
        let by_table = trial.form() == ZeroForm::Table && (seen.spot.level == Level::TWO || trial.sure());
        let form = if by_table { ZeroHuge::Table } else { ZeroHuge::Page };
        let step = self.read_zeros_as(form, seen, epoch);
        let slot = va.0 >> Level::TWO.shift();
        touch(m, watch.word(), true);
        if !timed || m.cpu() != cpu {
            if program && matches!(step, Ok(Step::Done(_))) {
                watch.with(|trial| trial.saw(slot));
            }
            return step;
        }
        let verdict = watch.with(|trial| {
            trial.ends(began, m.now());
            match step {
                Ok(Step::Done(fault)) => trial.mapped(slot, fault != Fault::ZeroTable(Level::THREE)),
                _ => Verdict::Go,
            }
        });
        let (to, fold, why) = match verdict {
            None | Some(Verdict::Go) => return step,
            Some(Verdict::Fold(why)) => (Some(ZeroForm::Table), true, why),
            Some(Verdict::Anew(why)) => (None, false, why),
            Some(Verdict::Decided(form, sure, why)) => {
                self.count_choice(form, watch.peek().choice().why);
                (Some(form), sure && form == ZeroForm::Table, why)
            }
        };
        let now = watch.peek();
        let (first, end) = now.slots();
        let region = (Va(first << Level::TWO.shift()), Va(end << Level::TWO.shift()));
        let exchanged = to.map_or(0, |form| self.exchange_zeros(space, region, Into::Form(form), fold));
        self.decided(space, region, (trial.form(), now.form()), why, exchanged);
        touch(m, watch.word(), true);
        watch.with(|trial| trial.ends(m.now(), m.now()));
        step
    }

    /// Keeps a decision for whoever asks.
    pub(super) fn decided(
        &self,
        space: &SpaceRecord,
        region: (Va, Va),
        (from, to): (ZeroForm, ZeroForm),
        why: ZeroReason,
        exchanged: u64,
    ) {
        let (at, space) = (self.machine.now(), space.name.load(Ordering::Relaxed));
        self.keep_zero_decision(&ZeroDecision { at, space, region, from, to, why, exchanged, lost: 0 });
    }

    pub(super) fn count_choice(&self, form: ZeroForm, why: ZeroWhy) {
        let counter = if form == ZeroForm::Table { Counter::ZeroAutoTable } else { Counter::ZeroAutoPage };
        self.count(counter, 1);
        self.count(Counter::ZeroAutoScattered, i64::from(why == ZeroWhy::Scattered));
    }

    fn watch_of<'a>(&'a self, space: &'a SpaceRecord) -> Option<&'a Watch> {
        let name = SlabRef::from_raw(space.watch.load(Ordering::Acquire))?;
        // SAFETY: objects of this slab are `Watch`es (zero is one); this one is freed with the space's record, which is borrowed.
        Some(unsafe { name.ptr(&self.machine).cast::<Watch>().as_ref() })
    }

    fn make_watch<'a>(&'a self, space: &'a SpaceRecord) -> Option<&'a Watch> {
        let m = &self.machine;
        let mut top = Token::top();
        let name = self.watches.alloc(m, &self.frames, &mut top).ok()?;
        touch(m, &space.watch, true);
        if space.watch.compare_exchange(0, name.raw(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.watches.free(m, &self.frames, &mut top, name);
        }
        self.watch_of(space)
    }

    /// A space is at its end, and nobody is in it.
    pub(crate) fn drop_watch(&self, space: &SpaceRecord, top: &mut Token<Top>) {
        if let Some(name) = SlabRef::from_raw(space.watch.swap(0, Ordering::AcqRel)) {
            self.watches.free(&self.machine, &self.frames, top, name);
        }
    }

    /// What is kept of a space's trial is in bounds.
    pub(crate) fn check_watch(&self, space: &SpaceRecord) -> Result<(), Invalid> {
        self.watch_of(space).map_or(Ok(()), |watch| watch.peek().validate())
    }

    /// Exchanges every mapping of huge zeros between two addresses, then folds if asked to; says how many mappings of 2 MiB that were. Where
    /// it needs memory and there is none, nothing is. No lock is held.
    pub(super) fn exchange_zeros(&self, space: &SpaceRecord, (start, end): (Va, Va), into: Into, fold: bool) -> u64 {
        let Ok(range) = VaRange::new(start, end.0.saturating_sub(start.0), self.user_end()) else { return 0 };
        let mut top = Token::top();
        let mut trash = Trash::default();
        let moved = {
            let mut layout = space.layout().lock(&self.machine, &mut top, space.name.load(Ordering::Relaxed));
            let moved = self.exchange_all(space, range, into);
            if fold {
                self.fold_zeros(space, range, layout.token(), &mut trash);
            }
            moved
        };
        self.empty_trash(trash, &mut top);
        moved
    }

    /// The exchange itself, under the layout lock.
    fn exchange_all(&self, space: &SpaceRecord, range: VaRange, into: Into) -> u64 {
        let m = &self.machine;
        let new = match into {
            Into::Promise => Entry::Reserved,
            Into::Form(ZeroForm::Table) | Into::Look(ZeroForm::Table) => match self.zero_table(Level::TWO) {
                Ok(table) => Entry::ZeroTable(table),
                Err(_) => return 0,
            },
            // Whoever compared has used the page.
            Into::Form(ZeroForm::Page) | Into::Look(ZeroForm::Page) => {
                match self.huge_zero().filter(|_| self.uses_huge_zero(space)) {
                    Some(page) => Entry::Leaf(page, Flags { accessed: true, ..Flags::default() }),
                    None => return 0,
                }
            }
        };
        let word = |level| match into {
            Into::Look(_) => M::Codec::unaccessed(M::Codec::encode(new, level), level),
            _ => M::Codec::encode(new, level),
        };
        let mut receipt = Receipt::new();
        let mut moved = 0;
        self.alter_large(space, range, &mut |node, level, slot, va, mut raw| {
            // Once more for each mark hardware sets meanwhile.
            loop {
                let old = match M::Codec::decode(raw, level) {
                    Entry::Leaf(pfn, flags) if self.is_zero_leaf(pfn, level) => match into {
                        Into::Form(ZeroForm::Table) => !flags.exec,
                        Into::Form(ZeroForm::Page) => false,
                        Into::Look(_) => !flags.exec,
                        Into::Promise => true,
                    },
                    Entry::ZeroTable(_) => match into {
                        Into::Form(ZeroForm::Table) => false,
                        Into::Form(ZeroForm::Page) | Into::Look(_) => level == Level::TWO,
                        Into::Promise => true,
                    },
                    Entry::Busy(_) => return false,
                    _ => return true,
                };
                if !old {
                    return true;
                }
                match m.swap_entry(node.pfn, slot, raw, M::Codec::encode(Entry::Moving(node.pfn), level)) {
                    Ok(()) => break,
                    Err(now) => raw = now,
                }
            }
            m.hook(Event::Work(Work::Entry, 1));
            receipt.span(va, level.entry_bytes());
            moved += level.entry_bytes() / Order::HUGE.bytes();
            true
        });
        if receipt.is_empty() {
            return 0;
        }
        let _flushed = self.redeem(space, receipt);
        self.alter_large(space, range, &mut |node, level, slot, _, raw| {
            if raw == M::Codec::encode(Entry::Moving(node.pfn), level) {
                m.set_entry(node.pfn, slot, word(level));
                m.hook(Event::Work(Work::Entry, 1));
            }
            true
        });
        self.count(Counter::ZeroAutoMoved, moved as i64);
        moved
    }
}
