//! Draining magazines: what CPUs keep for themselves goes back to the blocks.

use crate::frame::alloc::request::Contention;
use crate::frame::frames::Frames;
use crate::frame::view::NodeView;
use crate::machine::{Act, Machine, Work};
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::touch;

impl NodeView<'_> {
    /// Drains every CPU's magazine of the node. Says whether there was anything in them, or whether
    /// it waited for anybody.
    pub fn drain<M: Machine>(self, m: &M, contention: &Contention) -> bool {
        let (mut any, unheld) = (false, &self.frames.unheld);
        touch(m, unheld, false);
        // What an allocation saw of blocks comes before the look at who is at them.
        fence(Ordering::SeqCst);
        while unheld.load(Ordering::Acquire) != 0 {
            if !contention.wait.get() {
                contention.passed_over.set(true);
                break;
            }
            any = true;
            m.relax();
        }
        for magazine in self.magazines() {
            if !magazine.is_used() && !magazine.is_held() {
                continue;
            }
            let wait = contention.wait.get();
            match if wait { Some(magazine.hold_waiting(m)) } else { magazine.hold(m) } {
                Some(held) => {
                    self.node().drain_magazine(m, &held);
                    any = true;
                }
                None => contention.passed_over.set(true),
            }
        }
        if any {
            m.work(Work::Refill, 1);
        }
        any
    }
}

impl Frames {
    /// Gives back to the blocks what CPUs keep for themselves, so that large blocks can be had of
    /// it. Skips a magazine that is in use at that moment.
    pub fn drain<M: Machine>(&self, m: &M) {
        self.drain_all(m, false);
    }

    /// The same; with `wait` it waits for the holders of magazines and blocks.
    pub(crate) fn drain_all<M: Machine>(&self, m: &M, wait: bool) {
        let contention = Contention::default();
        contention.wait.set(wait);
        m.preempt_off();
        for at in 0..self.nodes {
            let view = self.view(at);
            view.drain(m, &contention);
            let _unheld = Unheld::enter(self, m);
            view.node().sweep(m, None, view.node().all_dirty(wait));
        }
        m.allow_preemption();
    }
}

/// Tells other CPUs that this one is at the blocks without holding a magazine, until it is dropped:
/// what it has between two states there, nobody else finds. Preemption is off meanwhile, and the
/// CPU waits for nobody but the holders of blocks.
pub struct Unheld<'a, M: Machine> {
    cpus: &'a AtomicU32,
    m: &'a M,
}

impl<'a, M: Machine> Unheld<'a, M> {
    #[cold]
    #[inline(never)]
    pub fn enter(frames: &'a Frames, m: &'a M) -> Unheld<'a, M> {
        let cpus = &frames.unheld;
        touch(m, cpus, true);
        cpus.fetch_add(1, Ordering::AcqRel);
        Unheld { cpus, m }
    }
}

impl<M: Machine> Drop for Unheld<'_, M> {
    fn drop(&mut self) {
        touch(self.m, self.cpus, true);
        self.cpus.fetch_sub(1, Ordering::Release);
    }
}
