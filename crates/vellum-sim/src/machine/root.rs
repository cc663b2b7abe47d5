//! Loading a root.
//!
//! Without contexts (ASIDs), a load invalidates everything. With contexts, entries of other
//! contexts stay, and are unused until their context is loaded again. For each CPU, the oracle
//! keeps the trees whose translations it may still hold, and detects two mistakes here: loading a
//! context that still belongs to another tree, and loading one that missed an invalidation, without
//! a flush. The first marks the entries; the second is reported when a program runs on the context.

use vellum::machine::{Root, Scope};

use super::SimState;
use crate::cpu::{CachedRoot, Price};
use crate::format::Format;
use crate::oracle::{Note, Rule};

impl<F: Format> SimState<F> {
    /// CPU `c` runs on `root` from here.
    pub(crate) fn load_root(&mut self, c: usize, root: Option<Root>) {
        self.note(c, Note::Root(root.map(|r| r.table.0)));
        let cost = self.costs.root_load;
        let cpu = &mut self.cpus[c];
        cpu.core.serialize();
        cpu.charge(Price::RootLoad, cost);
        cpu.counts.root_loads += 1;
        cpu.forget();
        self.end_walks(c, None);
        let index = root.map(|r| self.root_index(c, r.table.0));
        if let (Some(left), true) = (self.cpus[c].root, self.mmu.contexts != 0)
            && index != Some(left)
        {
            self.falls_asleep(c, left);
        }
        self.cpus[c].root = None;
        if self.mmu.contexts == 0 {
            self.cpus[c].drop_everything();
            self.close(c, Scope::All);
        }
        let (Some(root), Some(index)) = (root, index) else {
            self.cpus[c].suspect = false;
            return;
        };
        let ctx = root.asid.0;
        if self.mmu.contexts == 0 && ctx != 0 || self.mmu.contexts != 0 && ctx > self.mmu.contexts {
            return self.fail(
                c,
                Rule::Contract,
                None,
                Some(root.table.0),
                format!("context {ctx} on a machine of {} contexts", self.mmu.contexts),
            );
        }
        if self.mmu.contexts != 0 && root.flush {
            let cost = self.costs.flush_context;
            let cpu = &mut self.cpus[c];
            cpu.charge(Price::FlushContext, cost);
            cpu.drop_context(ctx);
            self.close(c, Scope::Space(root.asid));
        }
        let strangers = self.cpus[c].roots.iter().any(|r| r.ctx == ctx && r.root != index);
        if strangers {
            for tlb in self.cpus[c].tlbs() {
                tlb.for_each_mut(|e| e.stale |= e.ctx == ctx && e.tag != index);
            }
            self.cpus[c].walk_cache.for_each_mut(|e| e.stale |= e.ctx == ctx && e.tag != index);
        }
        let suspect = self.wakes(c, index);
        let cpu = &mut self.cpus[c];
        (cpu.root, cpu.ctx, cpu.suspect) = (Some(index), ctx, suspect);
        if !cpu.roots.iter().any(|r| r.root == index && r.ctx == ctx) {
            cpu.roots.push(CachedRoot { root: index, ctx, missed: false });
        }
        self.woken = self.woken.max(c + 1);
        self.oracle.roots[index as usize].cpus.insert(c);
    }
}
