//! Draining magazines: what CPUs keep for themselves goes back to the blocks.

use crate::frame::alloc::request::Contention;
use crate::frame::frames::Frames;
use crate::frame::view::NodeView;
use crate::machine::{Act, Machine, Work};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::touch;

impl NodeView<'_> {
    /// Drains every CPU's magazine of the node. Says whether there was anything in them, or whether
    /// it waited for anybody.
    pub fn drain<M: Machine>(self, m: &M, contention: &Contention) -> bool {
        let (mut any, sweepers) = (false, &self.frames.sweepers);
        touch(m, sweepers, false);
        while sweepers.load(Ordering::Acquire) != 0 {
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
            let _sweeper = Sweeper::enter(&self.sweepers, m);
            view.node().sweep(m, None, view.node().all_dirty(wait));
        }
        m.allow_preemption();
    }
}

/// Tells other CPUs that this one sweeps without holding a magazine, until it is dropped.
/// Preemption is off meanwhile, and the CPU waits for nobody but the holders of blocks.
struct Sweeper<'a, M: Machine> {
    sweepers: &'a AtomicU32,
    m: &'a M,
}

impl<'a, M: Machine> Sweeper<'a, M> {
    #[cold]
    fn enter(sweepers: &'a AtomicU32, m: &'a M) -> Sweeper<'a, M> {
        touch(m, sweepers, true);
        sweepers.fetch_add(1, Ordering::AcqRel);
        Sweeper { sweepers, m }
    }
}

impl<M: Machine> Drop for Sweeper<'_, M> {
    fn drop(&mut self) {
        touch(self.m, self.sweepers, true);
        self.sweepers.fetch_sub(1, Ordering::Release);
    }
}
