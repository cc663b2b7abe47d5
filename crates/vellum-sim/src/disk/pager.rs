//! The machine's side of pagers: every file is on the machine's disk.

use vellum::machine::{Machine, PageAnswer, PageRun};

use super::{Files, Request};
use crate::cpu::{Account, FolioMapping, Moves, Price};
use crate::format::Format;
use crate::machine::ram::PAGE;
use crate::machine::{SimMachine, SimState};
use crate::memory::Ticks;
use crate::oracle::Rule;

/// Most rounds of waiting that a request takes in hunting mode.
const ROUNDS: u64 = 40;

impl<F: Format> SimState<F> {
    /// A run of pages is to be read or written: answered at once where that takes no time.
    pub(crate) fn begin_io(&mut self, c: usize, run: PageRun, writes: bool) -> Option<PageAnswer> {
        self.disk.requests += 1;
        let number = self.disk.requests;
        let fails = self.disk.fails != 0 && self.rng.below(self.disk.fails) == 0;
        let now = self.cpus[c].core.now();
        let pages = run.frames().len() as u64;
        let due = match &mut self.disk.line {
            _ if self.cpus[c].beforehand => now,
            // The disk has nothing of it: a file that became longer, in memory only so far.
            _ if !writes && !self.disk.files.has((run.pager(), run.offset() >> 12)) => now,
            _ if self.hunting => now + self.costs.pause * self.rng.below(ROUNDS),
            Some(line) => {
                let cpu = line.times.cpu;
                self.cpus[c].charge(Price::Disk, cpu);
                line.begin(now + cpu, pages, writes)
            }
            None => now,
        };
        let request = Request { due, number, run, writes, fails };
        if due <= now {
            return Some(self.done_with(c, request));
        }
        self.disk.under_way.push(request);
        None
    }

    /// A run that the disk is done with.
    pub(crate) fn end_io(&mut self, c: usize) -> Option<PageAnswer> {
        let now = self.cpus[c].core.now();
        let request = self.disk.take_due(now)?;
        self.idle_rounds = 0;
        Some(self.done_with(c, request))
    }

    /// Moves the pages of a run, all at the moment at which it is done. Those that the disk does
    /// not have read as zeros; the library clears them and pays for it.
    fn done_with(&mut self, c: usize, Request { run, writes, fails, .. }: Request) -> PageAnswer {
        if fails {
            return run.failed();
        }
        let mut moved = 0;
        for part in run.parts() {
            let (page, pfn) = ((run.pager(), part.offset >> 12), part.frame.0);
            let memory = (&mut self.contents, &self.ram);
            if writes && memory.0.is_foreign(pfn) {
                let why = "a page is written to the disk that nobody filled".into();
                self.fail(c, Rule::Dirty, None, Some(pfn), why);
            } else if writes {
                self.disk.files.write(page, Files::take(pfn, memory));
                moved += PAGE as u64;
            } else {
                moved += self.disk.files.read(page, pfn, memory);
            }
        }
        self.forget_written();
        run.done(moved)
    }
}

impl<F: Format> SimMachine<F> {
    /// Waits for all requests that are under way, and answers them: nobody waits for what was read
    /// ahead.
    pub fn finish_io(&self, answer: impl Fn(PageAnswer)) {
        while self.state.with(|s| s.disk.next_due().is_some()) {
            match self.page_answer() {
                Some(done) => answer(done),
                None => self.wait(0, &|| true),
            }
        }
    }

    /// A file has no more than so many bytes on the disk: what it has past them goes. A file of
    /// which this was never said has any page that is asked for.
    pub fn cut_file(&self, pager: u64, bytes: u64) {
        self.state.with(|s| s.disk.files.cut(pager, bytes, &mut s.contents));
    }

    /// Runs `act` as if it had been done before the run: afterwards the clock, the accounts and the
    /// counts of this CPU are what they were. The disk answers at once, the kernel's copies pass no
    /// cache. What is in memory stays.
    pub fn beforehand<R>(&self, act: impl FnOnce() -> R) -> R {
        let c = self.current.get();
        let before = self.state.with(|s| {
            let cpu = &mut s.cpus[c];
            cpu.beforehand = true;
            let until = core::mem::replace(&mut cpu.until, Ticks::MAX);
            let accounts = (cpu.spent, cpu.account, cpu.marked);
            (cpu.core.clone(), cpu.counts, (accounts, cpu.charges), until)
        });
        let result = act();
        self.state.with(|s| {
            let cpu = &mut s.cpus[c];
            cpu.beforehand = false;
            (cpu.core, cpu.counts) = (before.0, before.1);
            let (accounts, charges) = before.2;
            (cpu.spent, cpu.account, cpu.marked) = accounts;
            (cpu.charges, cpu.until) = (charges, before.3);
            cpu.forget_lines();
        });
        result
    }

    /// Runs `act`, in which this CPU maps pages of files in folios of so many. The first page that
    /// is mapped of each costs what a page does, the others nothing; unmapping costs the same.
    pub fn in_folios<R>(&self, pages: u64, act: impl FnOnce() -> R) -> R {
        let c = self.current.get();
        let set = |to| self.state.with(|s: &mut SimState<F>| s.cpus[c].folio = to);
        set(FolioMapping { pages, mapped: 0 });
        let result = act();
        set(FolioMapping::default());
        result
    }

    /// Whether system calls that move bytes have a price of their own, and each is told by
    /// [`Cpu::syscall`](crate::Cpu::syscall).
    pub fn prices_file_calls(&self) -> bool {
        self.state.with(|s| s.costs.file_call.is_some())
    }

    /// Runs `act`, in which this CPU moves bytes for a system call that was told: where such calls
    /// have a price, verbs of the library in it are no calls.
    pub fn in_file_call<R>(&self, act: impl FnOnce() -> R) -> R {
        let (c, priced) = (self.current.get(), self.prices_file_calls());
        let set = |to| self.state.with(|s| s.cpus[c].moves = to);
        if priced {
            set(Moves::First);
        }
        let result = act();
        set(Moves::Nothing);
        result
    }

    /// Runs `act` as [`in_file_call`](Self::in_file_call) does, for a call that writes to a file.
    /// `grows`: that gives the file pages.
    pub fn in_file_write<R>(&self, grows: bool, act: impl FnOnce() -> R) -> R {
        let c = self.current.get();
        if self.prices_file_calls() {
            self.state.with(|s| {
                let cpu = &mut s.cpus[c];
                let before = cpu.switch(Account::Call);
                cpu.charge(Price::WriteCall, s.costs.write_call);
                if grows {
                    cpu.charge(Price::GrowCall, s.costs.grow_call);
                }
                cpu.switch(before);
            });
        }
        self.in_file_call(act)
    }
}
