//! Invalidation: locally, on other CPUs by interrupt, everywhere by broadcast.
//!
//! An invalidation happens at one moment of its CPU's life. It drops its scope from TLBs and walk
//! caches, ends the walks in that scope, and closes obligations. Long ranges drop their whole
//! context, as Linux does past 33 pages, except under walk checking, where dropping more than was
//! asked for would hide mistakes. What is *closed* is always only what was asked for.

use vellum::machine::{CpuMask, Scope};

use super::{SimMachine, SimState};
use crate::cpu::{Account, Price, Request};
use crate::format::Format;
use crate::memory::Ticks;
use crate::oracle::{Bug, Note};

/// Pages up to which a range is invalidated page by page: `tlb_single_page_flush_ceiling` of Linux
/// on x86.
const CEILING: u64 = 33;

impl<F: Format> SimState<F> {
    /// One CPU drops what a scope names, and pays for it on the flush account.
    pub(crate) fn invalidate(&mut self, c: usize, scope: Scope) {
        self.note(c, Note::Flush(scope));
        let costs = &self.costs;
        let cpu = &mut self.cpus[c];
        let before = cpu.switch(Account::Flush);
        let deaf = self.bug == Some(Bug::DeafTlb);
        match scope {
            Scope::Page(ctx, va) => {
                cpu.charge(Price::FlushPage, costs.flush_page);
                cpu.counts.flush_page += 1;
                if !deaf {
                    cpu.drop_pages(ctx.0, va.0 & !4095, 4096);
                }
            }
            Scope::Range(ctx, range, level) => {
                let pages = range.bytes().div_ceil(level.entry_bytes());
                if pages <= CEILING {
                    cpu.charge(Price::FlushPage, costs.flush_page * pages);
                } else {
                    cpu.charge(Price::FlushContext, costs.flush_context);
                }
                cpu.counts.flush_range += 1;
                if deaf {
                } else if pages <= CEILING || self.walk_check {
                    cpu.drop_pages(ctx.0, range.start().0, range.bytes());
                } else {
                    cpu.drop_context(ctx.0);
                }
            }
            Scope::Space(ctx) => {
                cpu.charge(Price::FlushContext, costs.flush_context);
                cpu.counts.flush_space += 1;
                if !deaf {
                    cpu.drop_context(ctx.0);
                }
            }
            Scope::All => {
                cpu.charge(Price::FlushFull, costs.flush_full);
                cpu.counts.flush_all += 1;
                if !deaf {
                    cpu.drop_everything();
                }
            }
        }
        self.planted += u64::from(deaf);
        self.cpus[c].forget();
        self.cpus[c].switch(before);
        self.end_walks(c, Some(scope));
        self.close(c, scope);
    }

    /// Serves the requests of a CPU that are due; all of them where time does not count.
    pub(crate) fn serve(&mut self, c: usize, regardless: bool) {
        let mut n = 0;
        while n < self.cpus[c].requests.len() {
            let due = self.cpus[c].requests[n].due;
            if !regardless && !self.hunting && due > self.cpus[c].core.now() {
                n += 1;
                continue;
            }
            let request = self.cpus[c].requests.remove(n);
            self.serve_one(c, request);
        }
    }

    fn serve_one(&mut self, c: usize, request: Request) {
        self.idle_rounds = 0;
        let (handle, ack) = (self.costs.interrupt_handle, self.costs.interrupt_ack);
        let cpu = &mut self.cpus[c];
        let before = cpu.switch(Account::Idle);
        if !self.hunting {
            cpu.wait_until(request.due);
        }
        cpu.switch(Account::Flush);
        cpu.core.serialize();
        cpu.charge(Price::InterruptHandle, handle);
        cpu.counts.ipi_received += 1;
        cpu.forget_lines();
        self.invalidate(c, request.scope);
        self.cpus[c].switch(before);
        let done = self.cpus[c].core.now() + ack;
        let from = &mut self.cpus[request.from];
        from.acks_missing -= 1;
        from.acked_at = from.acked_at.max(done);
    }

    /// Asks for a flush on other CPUs; true if the sender has to wait.
    fn ask(&mut self, c: usize, targets: &CpuMask, scope: Scope) -> bool {
        let others = targets.iter().filter(|&t| t != c).count();
        self.note(c, Note::Ask { targets: others, scope });
        self.idle_rounds = 0;
        let here = targets.contains(c);
        if self.bug == Some(Bug::SkippedRemoteFlush) {
            self.planted += others as u64;
            if here {
                self.invalidate(c, scope);
            }
            return false;
        }
        if self.mmu.broadcast && others > 0 {
            let before = self.cpus[c].switch(Account::Flush);
            let others = self.costs.broadcast_per_cpu * (self.cpus.len() as u64 - 1);
            self.cpus[c].charge(Price::Broadcast, self.costs.broadcast_base);
            self.cpus[c].charge(Price::BroadcastPerCpu, others);
            self.cpus[c].counts.broadcasts += 1;
            self.cpus[c].switch(before);
            for t in 0..self.cpus.len() {
                self.hear(t, scope);
            }
            return false;
        }
        let before = self.cpus[c].switch(Account::Flush);
        for t in targets.iter().filter(|&t| t != c) {
            let (send, deliver) = (self.costs.interrupt_send, self.costs.interrupt_deliver);
            let cpu = &mut self.cpus[c];
            cpu.charge(Price::InterruptSend, send);
            cpu.counts.ipi_sent += 1;
            cpu.acks_missing += 1;
            let request = Request { scope, from: c, due: cpu.core.now() + deliver };
            if self.cpus[t].running && !self.cpus[t].aside {
                self.cpus[t].requests.push(request);
            } else {
                self.serve_one(t, request);
            }
        }
        self.cpus[c].switch(before);
        if here {
            self.invalidate(c, scope);
        }
        self.cpus[c].acks_missing > 0 || self.cpus[c].acked_at > self.cpus[c].core.now()
    }

    /// A broadcast reaches a CPU: it takes none of its program's time.
    fn hear(&mut self, t: usize, scope: Scope) {
        let zero = self.costs.free_flushes();
        let costs = core::mem::replace(&mut self.costs, zero);
        self.invalidate(t, scope);
        self.costs = costs;
    }

    /// The sender's wait is over: its clock stands at the last acknowledgement.
    fn acked(&mut self, c: usize) -> bool {
        let cpu = &mut self.cpus[c];
        if cpu.acks_missing > 0 {
            return false;
        }
        let at = core::mem::replace(&mut cpu.acked_at, Ticks::ZERO);
        let before = cpu.switch(Account::Flush);
        cpu.wait_until(at);
        cpu.switch(before);
        true
    }
}

impl<F: Format> SimMachine<F> {
    pub(crate) fn flush_others(&self, cpus: &CpuMask, scope: Scope) {
        if self.act(|s, c| s.ask(c, cpus, scope)) {
            while !self.act(|s, c| s.acked(c)) {
                self.pause(Account::Flush);
            }
        }
    }
}
