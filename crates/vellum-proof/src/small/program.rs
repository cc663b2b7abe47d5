//! What a program does on the small machine: loads, stores and fetches through its CPU's TLB.

use vellum::addr::{Pfn, Va};
use vellum::entry::Codec;
use vellum::machine::{Asid, Root, Scope, Use};
use vellum_host::mmu::{Access, PageFault, Translation};

use crate::explore::footprint::{Touch, note};
use crate::explore::{tale, touch};

use super::{DEVICE, Small, samples};

impl<C: Codec> Small<C> {
    /// A load of four bytes.
    ///
    /// # Errors
    /// The fault to hand to `Vm::fault`; then try again.
    pub fn load(&self, va: Va) -> Result<[u8; 4], PageFault> {
        self.translate(va, Access::Read).map(|pfn| self.four(pfn, va))
    }

    /// A fetch of four bytes.
    ///
    /// # Errors
    /// As [`Small::load`].
    pub fn fetch(&self, va: Va) -> Result<[u8; 4], PageFault> {
        self.translate(va, Access::Exec).map(|pfn| self.four(pfn, va))
    }

    /// A store of four bytes.
    ///
    /// # Errors
    /// As [`Small::load`].
    pub fn store(&self, va: Va, bytes: [u8; 4]) -> Result<(), PageFault> {
        let pfn = self.translate(va, Access::Write)?;
        let mut page = self.reached(pfn).get();
        samples(va.offset(), 4).for_each(|(i, at)| page[i] = bytes[at]);
        self.reached(pfn).set(page);
        Ok(())
    }

    fn four(&self, pfn: Pfn, va: Va) -> [u8; 4] {
        let (page, mut bytes) = (self.reached(pfn).get(), [0; 4]);
        samples(va.offset(), 4).for_each(|(i, at)| bytes[at] = page[i]);
        bytes
    }

    fn translate(&self, va: Va, access: Access) -> Result<Pfn, PageFault> {
        touch(Touch::program());
        note(Touch::tlb(self.cpu.get(), false));
        let rules = &self.plan.rules;
        let mut core = self.cores[self.cpu.get()].borrow_mut();
        let core = &mut *core;
        let Some(root) = core.root else { return Err(PageFault { va, access, present: false }) };
        let context = if rules.asids == 0 { Asid(0) } else { root.asid };
        let found = match core.buffer.find(context, va) {
            Some(t) if gives(&t, access) => Ok(t),
            // The first write through a clean translation walks, to set the bit.
            Some(t) if access != Access::Write || !t.write => {
                Err(PageFault { va, access, present: true })
            }
            _ => core
                .cache
                .walk::<C>(self, rules, Root { asid: context, ..root }, va, access)
                .inspect(|t| {
                    let other = core.buffer.conflict(t).filter(|_| rules.break_before_make);
                    assert!(
                        other.is_none(),
                        "CPU {} holds {other:?} and fills {t:?}: two sizes at once",
                        self.cpu.get()
                    );
                    core.buffer.fill(*t);
                }),
        };
        let found = found.inspect_err(|_| {
            if rules.fault_invalidates {
                core.buffer.drop_scope(Scope::Page(context, va));
                core.cache.drop_scope(Scope::Page(context, va));
            }
        })?;
        let pfn = found.frame(va);
        note(Touch::page(pfn.0, access == Access::Write));
        tale::tell(self.cpu.get(), || format!("{access:?} {:x} in {:x}", va.0, pfn.0));
        if pfn >= DEVICE {
            return Ok(pfn);
        }
        let is = self.uses[self.index(pfn)].get();
        let data = is == Use::Data as u8 || is == Use::Object as u8;
        let legal = data || is == Use::Zero as u8 && access != Access::Write;
        assert!(
            legal,
            "CPU {}: {access:?} at {va:?} reached {pfn:?}, of use {is}, by {found:?}",
            self.cpu.get()
        );
        Ok(pfn)
    }
}

fn gives(t: &Translation, access: Access) -> bool {
    match access {
        Access::Read => true,
        Access::Write => t.write && t.dirty,
        Access::Exec => t.exec,
    }
}
