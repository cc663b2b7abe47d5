//! A refusal for want of memory, and what is in hand meanwhile.
//!
//! Who finds no memory gives back what it took and waits for its turn, so that nobody else looks
//! again meanwhile. Then it waits until all who had memory in hand are at their end, and looks
//! again: the page it wants may be there now, or a frame that was taken for nothing.
//! It is refused if twice in a row there was none, and nobody else put any to use or gave any back
//! from before the first wait until after the second. So of two that race for the last frame one is
//! refused only if both need one. Memory that goes round is followed so many times.

use crate::error::NoMemory;
use crate::machine::{Machine, Verb};
use crate::memory::Memory;
use crate::sync::{Hands, Stay, Token, Turn};

/// How often memory is looked for, at most. Each time but the first others used or freed some: the
/// page may be there, or a third took the frame. Basis: before; of the looks of two threads for
/// one frame, which one of them frees in a loop, one in four was in vain. Where all memory is in
/// use and changes hands all the time a refusal comes after so many waits.
const LOOKS: u32 = 64;

/// What a fault or a verb remembers between its looks for memory.
pub(crate) struct Refusal<'a, M: Machine> {
    /// From the first look again on: nobody else looks again.
    turn: Option<Turn<'a, M>>,
    /// How much memory others had put to use or freed, and how much they had given back in vain,
    /// when the last look began.
    last: Option<(Option<u64>, u64)>,
    /// What this fault or verb gave back in vain itself.
    own: u64,
    /// Where the attempt that is under way began, and what was given back there before.
    before: Option<(Stay, u64)>,
    looks: u32,
}

impl<M: Machine> Default for Refusal<'_, M> {
    fn default() -> Self {
        Refusal { turn: None, last: None, own: 0, before: None, looks: 0 }
    }
}

impl<M: Machine> Refusal<'_, M> {
    /// Lets others look for memory. What was seen is kept, so that the looks come to an end.
    pub fn end_turn(&mut self) {
        self.turn = None;
    }
}

impl<M: Machine> Memory<M> {
    /// After no memory was found: whether to look again, when nobody has in hand any more what
    /// might come back. The caller has nothing in hand itself, holds no lock and is in no epoch; no
    /// other refusal of its own is under way.
    #[cold]
    #[inline(never)]
    pub fn look_again<'a>(&'a self, refusal: &mut Refusal<'a, M>) -> bool {
        let m = &self.machine;
        // A task that was preempted takes what it gave back for another's, and looks again.
        let (here, untaken) = self.hands.untaken_here(m);
        if let Some((there, before)) = refusal.before
            && there == here
        {
            refusal.own = refusal.own.wrapping_add(untaken.wrapping_sub(before));
        }
        let now = || {
            let (turnover, untaken) = self.turnover();
            (turnover, untaken.wrapping_sub(refusal.own))
        };
        refusal.turn.get_or_insert_with(|| self.hands.turn(m, || self.let_others_run()));
        let before = now();
        // In this order: what is taken inside an epoch may be kept past its end.
        self.epochs.synchronize(m, &mut Token::top());
        self.hands.wait(m, || self.let_others_run());
        // Who had memory when the look before this one began was at his end before the attempt that
        // was in vain now. Who frees some that was of use when that was made is at his end, too.
        let now = now();
        let last = refusal.last.replace(before);
        refusal.before = Some(self.hands.untaken_here(m));
        refusal.looks += 1;
        (last != Some(now) || now.0.is_none()) && refusal.looks < LOOKS
    }

    /// How often frames were ever put to use or freed, as a number that grows by each, or `None`
    /// if they come and go so fast that it cannot be read; and what was given back in vain.
    fn turnover(&self) -> (Option<u64>, u64) {
        // First: where it is the same in two readings, nothing was given back in vain from the
        // first on until the second, and both leave out the same.
        let (untaken, frames) = self.hands.untaken(&self.machine);
        let all = self.frames.turnover(&self.machine);
        (all.map(|all| all.wrapping_sub(2 * frames)), untaken)
    }

    /// This stay of the task on its CPU, and how often frames were put to use or freed there.
    fn turnover_here(&self) -> (Stay, u64) {
        let m = &self.machine;
        m.preempt_off();
        let (here, untaken) = self.hands.untaken_here(m);
        let all = self.frames.turnover_of(here.cpu).wrapping_sub(2 * Hands::frames(untaken));
        // SAFETY: undoes the `preempt_off` above.
        unsafe { m.preempt_on() };
        (here, all)
    }

    /// Does what takes memory and gives it back if there is too little.
    #[inline(always)]
    pub fn in_hand<R, E: From<NoMemory> + PartialEq>(
        &self,
        take: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        let _in_hand = self.hands.begin(&self.machine);
        let done = take();
        if done.as_ref().is_err_and(|error| *error == E::from(NoMemory)) {
            // It may have had some of what it needed.
            self.hands.gave_back(&self.machine);
        }
        done
    }

    /// As [`verb`](crate::platform::Platform::verb), for one that takes memory.
    #[inline(always)]
    pub fn verb_with_memory<R, E: From<NoMemory> + PartialEq>(
        &self,
        verb: Verb,
        mut body: impl FnMut() -> Result<R, E>,
    ) -> Result<R, E> {
        // Not in a closure, which the compiler would not inline: 22 instructions of a map.
        self.begins(verb);
        let done = self.with_memory(|| self.in_hand(&mut body));
        self.ends(verb);
        done
    }

    /// Does what takes memory [`in_hand`](Memory::in_hand), and again while that may help. Whatever
    /// was refused changed nothing.
    #[inline(always)]
    pub fn with_memory<R, E: From<NoMemory> + PartialEq>(
        &self,
        mut verb: impl FnMut() -> Result<R, E>,
    ) -> Result<R, E> {
        match verb() {
            Err(error) if error == E::from(NoMemory) => self.verb_again(&mut verb),
            done => done,
        }
    }

    /// The attempts after the first.
    #[cold]
    #[inline(never)]
    fn verb_again<R, E>(&self, verb: &mut dyn FnMut() -> Result<R, E>) -> Result<R, E>
    where
        E: From<NoMemory> + PartialEq,
    {
        let mut refusal = Refusal::<M>::default();
        while self.look_again(&mut refusal) {
            let before = self.turnover_here();
            match verb() {
                Err(error) if error == E::from(NoMemory) => {}
                done => return done,
            }
            // What a fork takes apart again was of no use.
            let after = self.turnover_here();
            if after.0 == before.0 {
                self.hands.untook(&self.machine, after.1.saturating_sub(before.1) / 2);
            }
        }
        Err(E::from(NoMemory))
    }
}
