//! Looks of `zero.huge=auto` at accessed bits: the exchanges and the counting. What is decided by them, and why, is in
//! [`zero::look`](crate::zero).
//!
//! A look is three calls of [`Vm::reconsider_zeros`], each under the layout lock for as long as it visits the nodes above the lowest: once to
//! count, twice to exchange. A whole GiB that one shared table maps has no bits of its own for what is in it, so it gets a middle node of
//! its own first, 4 KiB for each GiB; the form that stays takes them back, if it is the table. Meanwhile faults go on: what they map is
//! of the form of the side that runs, and counts as visited, as it was.

use crate::addr::{Level, Va, VaRange};
use crate::entry::{Codec, Entry};
use crate::error::NoMemory;
use crate::machine::Machine;
use crate::space::SpaceRecord;
use crate::space::zero_auto::Into;
use crate::sync::Token;
use crate::sync::atomic::Ordering;
use crate::vm::Vm;
use crate::zero::auto::{Trial, Turn, Watch, ZeroForm, ZeroWhy};
use crate::zero::look::{Side, Visits};

/// Whole GiB found in one visit.
const AT_ONCE: usize = 16;

impl<M: Machine> Vm<M> {
    /// The next step of a look at accessed bits: what the last side visited is counted, and the next begins.
    pub(super) fn look_at_zeros(&self, space: &SpaceRecord, watch: &Watch, turn: Turn) {
        let m = &self.machine;
        let began = m.now();
        let all = (Va(0), self.user_end());
        match turn {
            Turn::Begin => {
                if self.unfold_zeros(space).is_err() || !self.uses_huge_zero(space) {
                    return watch.wait(m, Trial::looks_away);
                }
                self.exchange_zeros(space, all, Into::Look(ZeroForm::Table), false);
                watch.wait(m, |trial| trial.looks(Side::Table, began, m.now()));
            }
            Turn::Table => {
                let visits = self.visited_zeros(space);
                watch.wait(m, |trial| trial.table_was(visits, began));
                self.exchange_zeros(space, all, Into::Look(ZeroForm::Page), false);
                watch.wait(m, |trial| trial.looks(Side::Page, began, m.now()));
            }
            _ => {
                let visits = self.visited_zeros(space);
                let Some((form, why)) = watch.wait(m, |trial| trial.judge(visits, began)) else {
                    self.exchange_zeros(space, all, Into::Look(ZeroForm::Page), false);
                    return watch.wait(m, |trial| trial.looks(Side::Page, began, m.now()));
                };
                let exchanged = match form {
                    ZeroForm::Page => 0,
                    ZeroForm::Table => self.exchange_zeros(space, all, Into::Form(form), true),
                };
                self.count_choice(form, ZeroWhy::Visited);
                self.decided(space, all, (ZeroForm::Page, form), why, exchanged);
            }
        }
    }

    /// Mappings of 2 MiB of huge zeros, and those whose accessed bit is set.
    fn visited_zeros(&self, space: &SpaceRecord) -> Visits {
        let mut visits = Visits::default();
        self.each_zeros(space, Va(0), &mut |level, _, raw| {
            if level == Level::TWO {
                visits.of += 1;
                visits.visited += u64::from(M::Codec::is_accessed(raw, level));
            }
        });
        visits
    }

    /// Gives each GiB that one shared table maps a middle node of its own.
    fn unfold_zeros(&self, space: &SpaceRecord) -> Result<(), NoMemory> {
        let mut next = Va(0);
        loop {
            let (mut found, mut n) = ([Va(0); AT_ONCE], 0);
            self.each_zeros(space, next, &mut |level, va, _| {
                if level == Level::THREE && n < AT_ONCE {
                    (found[n], n) = (va, n + 1);
                }
            });
            let mut top = Token::top();
            let _layout = space.layout().lock(&self.machine, &mut top, space.name.load(Ordering::Relaxed));
            for &va in &found[..n] {
                // A boundary inside of it is what takes a node.
                let bytes = Level::TWO.entry_bytes();
                if let Ok(inside) = VaRange::new(Va(va.0 + bytes), bytes, self.user_end()) {
                    self.open(space, inside, false)?;
                }
                next = Va(va.0 + Level::THREE.entry_bytes());
            }
            if n < AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Every entry from `start` on that maps huge zeros which nobody executes: level, address, word. Takes the layout lock.
    fn each_zeros(&self, space: &SpaceRecord, start: Va, see: &mut impl FnMut(Level, Va, u64)) {
        let bytes = self.user_end().0 - start.0;
        let Ok(range) = VaRange::new(start, bytes, self.user_end()) else { return };
        let mut top = Token::top();
        let _layout = space.layout().lock(&self.machine, &mut top, space.name.load(Ordering::Relaxed));
        self.alter_large(space, range, &mut |_, level, _, va, raw| {
            match M::Codec::decode(raw, level) {
                Entry::ZeroTable(_) => see(level, va, raw),
                Entry::Leaf(pfn, flags) if !flags.exec && self.is_zero_leaf(pfn, level) => see(level, va, raw),
                _ => {}
            }
            true
        });
    }
}
