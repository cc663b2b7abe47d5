//! A thread's hold on a CPU, and how a program's loads and stores reach memory through it.
//!
//! While a [`CpuGuard`] lives, its thread is bound to the CPU. [`CpuGuard::yield_core`] lets
//! another CPU have the core. [`CpuGuard::park`] does so while something runs that does not poll (a
//! barrier, a channel). Both may only be called between verbs: a parked CPU holds no lock of the
//! library. A CPU that waits inside of a verb, for a page or for another CPU, is parked, too.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use vellum::addr::{Pfn, Va};
use vellum::entry::Codec;
use vellum::machine::{Asid, CpuId, Scope, Use};

use super::bindings::{self, Binding};
use super::{Host, INACCESSIBLE, PREEMPT_OFF};
use crate::mmu::{Access, PageFault, Translation};

/// Binds its thread to a CPU.
pub struct CpuGuard<'m, C: Codec, const WATCH: bool> {
    host: &'m Host<C, WATCH>,
    cpu: CpuId,
    is_device: bool,
    /// The thread is the CPU: the guard may not move to another thread.
    stays: PhantomData<*mut ()>,
}

impl<C: Codec, const WATCH: bool> Host<C, WATCH> {
    /// Makes this thread CPU `cpu`, waiting for a core if need be.
    ///
    /// # Panics
    /// If another thread is that CPU, or it answers for a device, or this thread is a CPU of this
    /// machine already.
    pub fn bind(&self, cpu: CpuId) -> CpuGuard<'_, C, WATCH> {
        let is_device = (self.plan.cpus - self.devices..self.plan.cpus).contains(&cpu);
        assert!(!is_device, "CPU {cpu} answers for a device: no program runs on it");
        self.check_free(cpu);
        self.permits.acquire();
        self.bound(cpu, false)
    }

    /// The same for a thread that answers for a device, at once, whoever has the cores: others wait
    /// for what it answers. It may neither run programs nor wait for pages.
    pub(crate) fn bind_device(&self, cpu: CpuId) -> CpuGuard<'_, C, WATCH> {
        self.check_free(cpu);
        self.bound(cpu, true)
    }

    fn check_free(&self, cpu: CpuId) {
        assert!(cpu < self.plan.cpus, "this machine has no CPU {cpu}");
        if let Some(is) = bindings::find(self.id) {
            panic!("this thread is CPU {} of this machine already", is.cpu);
        }
        assert!(
            !self.cpus[cpu].taken.swap(true, Ordering::AcqRel),
            "CPU {cpu} is taken by another thread"
        );
    }

    fn bound(&self, cpu: CpuId, is_device: bool) -> CpuGuard<'_, C, WATCH> {
        bindings::put(Binding { machine: self.id, cpu, is_device, is_parked: false });
        let guard = CpuGuard { host: self, cpu, is_device, stays: PhantomData };
        self.mark_running(cpu);
        guard
    }

    fn mark_running(&self, cpu: CpuId) {
        let me = &self.cpus[cpu];
        let missed = me.state.fetch_and(!INACCESSIBLE, Ordering::AcqRel) & !INACCESSIBLE;
        if self.local(|l| std::mem::replace(&mut l.missed, missed) != missed) {
            self.drop_here(Scope::All);
        }
    }

    fn mark_parked(&self) {
        let cpu = self.bound_cpu();
        self.cpus[cpu].state.fetch_or(INACCESSIBLE, Ordering::AcqRel);
        // Who posted before it could see the bit may be waiting for this.
        self.serve(cpu);
    }

    /// Parks this thread's CPU while `f` runs, wherever the CPU serves flushes anyway. Meanwhile
    /// the thread is no CPU, so `f` can call nothing that needs one.
    pub(crate) fn parked<R>(&self, f: impl FnOnce() -> R) -> R {
        let _parked = Parked::new(self);
        f()
    }

    /// Lets another CPU have the core, if one waits for it.
    pub(super) fn give_core(&self) {
        if !bindings::bound(self.id).is_device && self.permits.is_wanted() {
            self.parked(|| ());
        }
    }
}

/// A parked CPU, until it is dropped, also by a panic. A device's thread has no core to give.
struct Parked<'m, C: Codec, const WATCH: bool> {
    host: &'m Host<C, WATCH>,
    binding: Binding,
}

impl<'m, C: Codec, const WATCH: bool> Parked<'m, C, WATCH> {
    fn new(host: &'m Host<C, WATCH>) -> Self {
        let binding = bindings::bound(host.id);
        host.mark_parked();
        bindings::put(Binding { is_parked: true, ..binding });
        if !binding.is_device {
            host.permits.release();
        }
        Parked { host, binding }
    }
}

impl<C: Codec, const WATCH: bool> Drop for Parked<'_, C, WATCH> {
    fn drop(&mut self) {
        if !self.binding.is_device {
            self.host.permits.acquire();
        }
        bindings::put(self.binding);
        self.host.mark_running(self.binding.cpu);
    }
}

impl<C: Codec, const WATCH: bool> CpuGuard<'_, C, WATCH> {
    /// The CPU's number.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Parks while `f` runs, which need not poll. Other CPUs may have the core. The thread is no
    /// CPU meanwhile.
    ///
    /// # Panics
    /// If a verb is under way, or the CPU is parked already; and what `f` calls, if it needs this
    /// CPU.
    pub fn park<R>(&self, f: impl FnOnce() -> R) -> R {
        between_verbs();
        self.host.parked(f)
    }

    /// Lets a waiting CPU have the core, if there is one.
    pub fn yield_core(&self) {
        if self.host.permits.is_wanted() {
            self.park(|| ());
        } else {
            self.host.poll();
        }
    }

    /// A program's load of the aligned 8 bytes that hold `va`.
    ///
    /// # Errors
    /// The fault to hand to `Vm::fault`; then try again.
    #[inline]
    pub fn load(&self, va: Va) -> Result<u64, PageFault> {
        let pfn = self.translate(va, Access::Read)?;
        Ok(self.host.data(pfn, va.offset()).load(Ordering::Relaxed))
    }

    /// A program's store to the aligned 8 bytes that hold `va`.
    ///
    /// # Errors
    /// As [`CpuGuard::load`].
    #[inline]
    pub fn store(&self, va: Va, value: u64) -> Result<(), PageFault> {
        let pfn = self.translate(va, Access::Write)?;
        self.host.data(pfn, va.offset()).store(value, Ordering::Relaxed);
        Ok(())
    }

    /// A program's fetch of the aligned 8 bytes that hold `va`.
    ///
    /// # Errors
    /// As [`CpuGuard::load`].
    pub fn fetch(&self, va: Va) -> Result<u64, PageFault> {
        let pfn = self.translate(va, Access::Exec)?;
        Ok(self.host.data(pfn, va.offset()).load(Ordering::Relaxed))
    }

    /// Translates as hardware does. Between this and the access that follows nothing polls, so no
    /// flush is acknowledged and the frame cannot go to another owner: the two are one instruction.
    #[inline]
    fn translate(&self, va: Va, access: Access) -> Result<Pfn, PageFault> {
        let host = self.host;
        host.poll();
        let rules = &host.plan.rules;
        let found = host.local(|l| {
            let Some(root) = l.root else {
                return Err(PageFault { va, access, present: false });
            };
            let context = if rules.asids == 0 { Asid(0) } else { root.asid };
            let root = vellum::machine::Root { asid: context, ..root };
            if let Some(t) = l.buffer.find(context, va) {
                match access {
                    Access::Read => return Ok(t),
                    Access::Write if t.write && t.dirty => return Ok(t),
                    Access::Exec if t.exec => return Ok(t),
                    // The first write through a clean translation walks, to set the bit.
                    Access::Write if t.write => {}
                    _ => {
                        if rules.fault_invalidates {
                            l.buffer.drop_scope(Scope::Page(context, va));
                            l.cache.drop_scope(Scope::Page(context, va));
                        }
                        return Err(PageFault { va, access, present: true });
                    }
                }
            }
            match l.cache.walk::<C>(host, rules, root, va, access) {
                Ok(t) => {
                    if WATCH && rules.break_before_make {
                        let other = l.buffer.conflict(&t);
                        assert!(
                            other.is_none(),
                            "CPU {} holds {other:?} and fills {t:?}: two sizes at once",
                            self.cpu
                        );
                    }
                    l.buffer.fill(t);
                    Ok(t)
                }
                Err(fault) => {
                    if rules.fault_invalidates {
                        l.buffer.drop_scope(Scope::Page(context, va));
                        l.cache.drop_scope(Scope::Page(context, va));
                    }
                    Err(fault)
                }
            }
        });
        let found = found?;
        let pfn = found.frame(va);
        if WATCH {
            self.check(pfn, va, access, &found);
        }
        Ok(pfn)
    }

    fn check(&self, pfn: Pfn, va: Va, access: Access, through: &Translation) {
        let is = self.host.watch.get(pfn);
        let legal = match is {
            Use::Data | Use::Object | Use::Pending => true,
            Use::Zero => access != Access::Write,
            _ => false,
        };
        assert!(
            legal,
            "CPU {}: {access:?} at {va:?} reached {pfn:?}, which is {is:?}, through {through:?}",
            self.cpu
        );
    }

    /// Every translation this CPU holds now.
    pub fn held(&self) -> Vec<Translation> {
        self.host.local(|l| l.buffer.held().collect())
    }
}

fn between_verbs() {
    if !std::thread::panicking() {
        assert!(PREEMPT_OFF.get() == 0, "a CPU may only be parked between verbs");
    }
}

impl<C: Codec, const WATCH: bool> Drop for CpuGuard<'_, C, WATCH> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.host.poison();
            PREEMPT_OFF.set(0);
        }
        between_verbs();
        self.host.mark_parked();
        bindings::remove(self.host.id);
        self.host.cpus[self.cpu].taken.store(false, Ordering::Release);
        if !self.is_device {
            self.host.permits.release();
        }
    }
}
