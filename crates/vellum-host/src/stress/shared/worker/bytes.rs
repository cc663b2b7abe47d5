//! Loads, stores and the kernel's copies of words that everybody has.

use vellum::addr::Va;
use vellum::entry::Codec;
use vellum::error::FaultError;
use vellum::space::{Access, Page};

use super::Worker;
use crate::stress::shared::arena::address;
use crate::stress::shared::word::{count, word};

/// Who loads or stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessOrigin {
    /// The program, on this CPU.
    Program(Access),
    /// `copy_in` and `copy_out`.
    Kernel,
    /// `write_forced`.
    Force,
}

impl<C: Codec> Worker<'_, C> {
    /// Looks at some words, usually of slots that lie together.
    pub(super) fn look(&mut self, by: AccessOrigin) {
        let first = self.slot();
        let slots = if self.rng.once_in(6) { 12 } else { 1 };
        for slot in (first..first + slots).take_while(|&slot| slot < self.shared.arena.slots()) {
            let writer = self.rng.below(self.shared.expected.writers() as u64) as usize;
            self.look_at(slot, writer, by);
        }
    }

    /// Looks at words of one slot again and again, as who waits for another thread does.
    pub(super) fn look_around(&mut self) {
        let slot = self.slot();
        for _ in 0..4 {
            for writer in 0..self.shared.expected.writers() {
                self.look_at(slot, writer, AccessOrigin::Program(Access::Read));
            }
        }
    }

    /// Looks at every word.
    pub fn look_at_all(&mut self) {
        for slot in 0..self.shared.arena.slots() {
            for writer in 0..self.shared.expected.writers() {
                self.look_at(slot, writer, AccessOrigin::Program(Access::Read));
            }
        }
    }

    fn look_at(&mut self, slot: usize, writer: usize, by: AccessOrigin) {
        let (shared, other) = (self.shared, self.other(slot));
        let va = address(shared.arena.extent(slot).page(slot, other), writer, slot);
        if by != AccessOrigin::Kernel {
            self.home();
        }
        let look = shared.expected.look(&shared.arena, slot, writer, other);
        let (access, got) = match by {
            AccessOrigin::Program(access) => (access, self.access(&shared.space, va, access, 0)),
            _ => {
                let mut bytes = [0xaa; 8];
                let got = shared.vm.copy_out(&shared.space, va, &mut bytes);
                (Access::Read, got.map(|()| u64::from_ne_bytes(bytes)))
            }
        };
        let ended = shared.expected.may_end(&look, access, got.map(|_| ()));
        ended.unwrap_or_else(|what| self.fail_at(va, &what));
        match got {
            Ok(value) => {
                self.outcome.looks += 1;
                let Some(count) = count(value, writer, slot) else {
                    self.fail_at(
                        va,
                        &format!("{value:#x} is no word of thread {writer} in slot {slot}"),
                    )
                };
                shared.expected.may_be(&look, count).unwrap_or_else(|what| self.fail_at(va, &what));
            }
            Err(FaultError::NoMemory) => self.refused(),
            Err(_) => self.outcome.denied += 1,
        }
    }

    /// Stores to some slots in turn.
    pub(super) fn store(&mut self, by: AccessOrigin) {
        let first = self.slot();
        let (slots, step) = match self.rng.below(4) {
            0 => (16, 1),
            1 => (16, 1 + self.rng.below(20) as usize),
            _ => (1, 1),
        };
        for n in 0..slots {
            self.store_to((first + n * step) % self.shared.arena.slots(), by);
        }
    }

    fn store_to(&mut self, slot: usize, by: AccessOrigin) {
        let (shared, me, other) = (self.shared, self.me, self.other(slot));
        let va = address(shared.arena.extent(slot).page(slot, other), me, slot);
        if by != AccessOrigin::Kernel && by != AccessOrigin::Force {
            self.home();
        }
        self.count += 1;
        let (n, value) = (self.count, word(me, slot, self.count));
        let look = shared.expected.look(&shared.arena, slot, me, other);
        let token = shared.expected.store(slot, me, n);
        // To be forced takes any right at all.
        let access = if by == AccessOrigin::Force { Access::Read } else { Access::Write };
        let got = match by {
            AccessOrigin::Program(_) => {
                self.access(&shared.space, va, Access::Write, value).map(|_| ())
            }
            AccessOrigin::Kernel => shared.vm.copy_in(&shared.space, va, &value.to_ne_bytes()),
            AccessOrigin::Force => shared.vm.write_forced(&shared.space, va, &value.to_ne_bytes()),
        };
        shared.expected.stored(slot, me, n, token, got.is_ok());
        shared.expected.may_end(&look, access, got).unwrap_or_else(|what| self.fail_at(va, &what));
        match got {
            Ok(()) => self.outcome.stores += 1,
            Err(FaultError::NoMemory) => self.refused(),
            Err(_) => self.outcome.denied += 1,
        }
    }

    /// Asks what lies in a slot.
    pub(super) fn query(&mut self) {
        let (shared, slot) = (self.shared, self.slot());
        let other = self.other(slot);
        let va = Va(shared.arena.extent(slot).page(slot, other) << 12);
        let look = shared.expected.look(&shared.arena, slot, self.me, other);
        let seen = shared.vm.query(&shared.space, va);
        let rights = match seen {
            Page::Unmapped => {
                let ended = shared.expected.may_end(&look, Access::Read, Err(FaultError::Unmapped));
                return ended.unwrap_or_else(|what| self.fail_at(va, &what));
            }
            Page::Reserved { rights }
            | Page::Mapped { rights, .. }
            | Page::Device { rights, .. } => [!rights.is_none(), rights.write, rights.exec],
            Page::Inaccessible { .. } => [false; 3],
        };
        if let Some(known) = shared.expected.known_rights(&look)
            && known != rights
        {
            self.fail_at(va, &format!("query says {seen:?}, the rights are {known:?}"));
        }
    }

    pub(super) fn fail_at(&self, va: Va, what: &str) -> ! {
        let seen = self.shared.vm.query(&self.shared.space, va);
        self.fail(format!("{va:?}: {what}; the library says {seen:?}"))
    }
}
