//! A refusal for want of memory, and what is in hand meanwhile.
//!
//! Who finds no memory gives back what it took, waits until all who had memory in hand are at their
//! end, and looks again: the page it wants may be there now, or a frame that was taken for nothing.
//! It is refused if twice in a row there was none and nobody gave any back in between, where a
//! verb that was refused counts as one that did. So of two that race for the last frame one is
//! refused only if both need one.

use crate::addr::{Order, Pfn};
use crate::error::NoMemory;
use crate::machine::{Machine, Verb};
use crate::sync::Token;
use crate::vm::Vm;

/// How often memory is looked for, at most. Each time but the first others gave some back, which
/// was not enough or a third took. Basis: a guess; who lives at the end of memory is not kept there.
const LOOKS: u32 = 4;

/// What a fault or a verb remembers between its looks for memory.
#[derive(Default)]
pub(crate) struct Refusal {
    /// How often memory had come back from others, all told, at the last refusal.
    returned: Option<u64>,
    /// How often this verb was refused, and counted as others are.
    own: u64,
    looks: u32,
}

impl<M: Machine> Vm<M> {
    /// Gives back a block that was taken and nobody saw. The caller is in an epoch, or its memory
    /// is in hand.
    #[cold]
    #[inline(never)]
    pub(crate) fn untake(&self, pfn: Pfn, order: Order) {
        self.frames.give_back(&self.machine, pfn, order);
        self.hands.gave_back(&self.machine);
    }

    /// After no memory was found: whether to look again, when nobody has in hand any more what
    /// might come back. The caller has nothing in hand itself, holds no lock and is in no epoch.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_again(&self, refusal: &mut Refusal) -> bool {
        let m = &self.machine;
        // In this order: what is taken inside an epoch may be kept past its end.
        self.epochs.synchronize(m, &mut Token::top());
        self.hands.wait(m, || self.let_others_run());
        let returned = self.hands.returned(m).wrapping_sub(refusal.own);
        refusal.looks += 1;
        refusal.looks < LOOKS && refusal.returned.replace(returned) != Some(returned)
    }

    /// Does what takes memory and gives it back if there is too little.
    #[inline(always)]
    pub(crate) fn in_hand<R, E: From<NoMemory> + PartialEq>(
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

    /// As [`verb`](Vm::verb), for one that takes memory.
    #[inline(always)]
    pub(crate) fn verb_with_memory<R, E: From<NoMemory> + PartialEq>(
        &self,
        verb: Verb,
        mut body: impl FnMut() -> Result<R, E>,
    ) -> Result<R, E> {
        self.verb(verb, || self.with_memory(|| self.in_hand(&mut body)))
    }

    /// Does what takes memory [`in_hand`](Vm::in_hand), and again while that may help. Whatever was
    /// refused changed nothing.
    #[inline(always)]
    pub(crate) fn with_memory<R, E: From<NoMemory> + PartialEq>(
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
        let mut refusal = Refusal { own: 1, ..Refusal::default() };
        while self.look_again(&mut refusal) {
            match verb() {
                Err(error) if error == E::from(NoMemory) => refusal.own += 1,
                done => return done,
            }
        }
        Err(E::from(NoMemory))
    }
}
