//! The cost of kernel work, and the account that it is charged to.

use vellum::addr::{Order, Pfn};
use vellum::machine::{Stores, Use, Verb, Work};

use super::SimState;
use crate::cache::{Agent, Kind, Level};
use crate::cpu::{Account, Moves, PRICES, Price};
use crate::format::{Format, Meaning};
use crate::memory::{Moved, Ticks};
use crate::oracle::{Bug, Note};

/// How a run is cleared.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// Time of a line, and the constant that has it.
    line: Ticks,
    price: Price,
    /// With non-temporal stores.
    elide: bool,
}

/// Lines in a frame.
const LINES: u64 = 64;

impl<F: Format> SimState<F> {
    /// A verb begins.
    pub(crate) fn begin(&mut self, c: usize, verb: Verb) {
        self.note(c, Note::Begin(verb));
        self.idle_rounds = 0;
        let cpu = &mut self.cpus[c];
        cpu.depth += 1;
        if cpu.depth == 1 {
            // Whatever the CPU did since ended the run of pages it cleared last.
            cpu.cleared_to = u64::MAX;
            (cpu.verb, cpu.lifted) = (Some(verb), None);
            cpu.switch(if verb == Verb::Fault { Account::Fault } else { Account::Call });
            cpu.core.serialize();
        }
    }

    /// A verb ends: what it promised is checked when the outermost one returns.
    pub(crate) fn end(&mut self, c: usize, verb: Verb) {
        self.note(c, Note::End(verb));
        let cpu = &mut self.cpus[c];
        if cpu.depth == 0 {
            return self.fail(
                c,
                crate::oracle::Rule::Contract,
                None,
                None,
                format!("{verb:?} ends and never began"),
            );
        }
        cpu.depth -= 1;
        if cpu.depth == 0 {
            cpu.verb = None;
            cpu.switch(Account::Program);
            cpu.forget_lines();
            self.verb_returns(c);
        }
    }

    /// Pieces of work were done.
    #[inline]
    pub(crate) fn work(&mut self, c: usize, work: Work, count: u64) {
        if work == Work::Call && self.cpus[c].moves != Moves::Nothing {
            return;
        }
        let cost = self.costs.work[work as usize] * count;
        self.cpus[c].work(work, cost);
    }

    /// A block becomes a program's, or leaves it.
    pub(crate) fn charge_frame(&mut self, c: usize, first: Pfn, order: Order, to: Use) {
        let was = self.oracle.uses.get(first.0 as usize).copied();
        self.disk.tails.forget(first, order);
        let (price, cost) = match (to, order) {
            (Use::Data, Order::BASE) => (Price::ChargePage, self.costs.charge_page),
            (Use::Object, Order::BASE) if was != Some(Use::Object as u8) => {
                (Price::AddFile, self.costs.add_file)
            }
            (_, Order::BASE) if was == Some(Use::Object as u8) => {
                (Price::DropFile, self.costs.drop_file)
            }
            _ if was != Some(Use::Data as u8) => return,
            (_, Order::BASE) => (Price::UnchargePage, self.costs.uncharge_page),
            (Use::Data, _) => return,
            (_, Order::HUGE) => (Price::UnchargeLarge, self.costs.uncharge_large),
            _ => return,
        };
        self.cpus[c].charge(price, cost);
    }

    /// An entry was stored, in a table of this level or in one that is in no tree (0). Where pages
    /// move, get other rights, or are a child's as well, a kernel counts nothing.
    #[inline]
    pub(crate) fn charge_entry(&mut self, c: usize, level: u8, old: u64, new: u64) {
        let (map, unmap) = (self.costs.map_file, self.costs.unmap_file);
        if (map, unmap) == (Ticks::ZERO, Ticks::ZERO) {
            return;
        }
        let [was, is] = [old, new].map(|raw| self.page_of_object(level, raw));
        let cpu = &mut self.cpus[c];
        if was == is || matches!(cpu.verb, Some(Verb::Remap | Verb::Protect)) {
            return;
        }
        match was {
            // It comes back with other rights, or a copy does.
            Some(_) if cpu.verb == Some(Verb::Fault) => cpu.lifted = was,
            Some(frame) if !self.disk.tails.has(frame) => cpu.charge(Price::UnmapFile, unmap),
            _ => {}
        }
        if let Some(frame) = is
            && cpu.verb != Some(Verb::Fork)
            && cpu.lifted.take() != is
            && self.disk.tails.map(&mut cpu.folio, frame)
        {
            cpu.charge(Price::MapFile, map);
        }
    }

    /// The base page of an object that an entry maps.
    fn page_of_object(&self, level: u8, raw: u64) -> Option<u64> {
        let is_large = || matches!(F::meaning(raw, 2), Meaning::Leaf(..));
        if level > 1 || level == 0 && is_large() {
            return None;
        }
        let Meaning::Leaf(frame, _) = F::meaning(raw, 1) else { return None };
        let used = self.oracle.uses.get((frame >> 12) as usize);
        (used == Some(&(Use::Object as u8))).then_some(frame)
    }

    /// How a run of that length is cleared, decided once for all of it; `None` if a planted bug
    /// leaves it out.
    pub(crate) fn clear_way(
        &mut self,
        c: usize,
        first: u64,
        frames: u64,
        stores: Stores,
    ) -> Option<Way> {
        if self.bug == Some(Bug::SkippedClear) {
            self.planted += 1;
            return None;
        }
        let costs = &self.costs;
        let follows = self.cpus[c].cleared_to == first;
        self.cpus[c].cleared_to = first + frames;
        let elide = stores == Stores::NonTemporal || frames << 12 >= costs.elision_threshold;
        let (price, line) = match (elide, frames, follows) {
            (true, ..) => (Price::ClearElided, costs.clear_line_elided),
            (false, 1, false) => (Price::ClearPage, costs.clear_line),
            (false, 1, true) => (Price::ClearNext, costs.clear_line_next),
            (false, ..) => (Price::ClearExtent, costs.clear_line_extent),
        };
        Some(Way { line, price, elide })
    }

    /// Data frames are filled with zeros.
    pub(crate) fn clear(&mut self, c: usize, first: u64, frames: u64, way: Way) {
        for pfn in first..first + frames {
            if self.contents.has_bytes(pfn) {
                self.ram.zero(pfn);
            }
            self.contents.clear(pfn);
        }
        self.forget_written();
        if self.cpus[c].beforehand {
            return;
        }
        let lines = frames * LINES;
        let cpu = &mut self.cpus[c];
        let before = cpu.switch(Account::Clear);
        cpu.counts.lines_cleared += lines;
        let now = cpu.core.now();
        let moved = if self.count_clears {
            self.caches.count_cold(c, Agent::Kernel, lines, way.elide)
        } else {
            self.caches.store_stream(c, Agent::Kernel, first * LINES, lines, way.elide)
        };
        let lines_moved = Moved { read: moved.fetched, written: moved.written_back };
        let node = self.cpus[c].node;
        let floor = self.memory.stream(now, node, first * LINES, lines_moved);
        let cpu = &mut self.cpus[c];
        let held = if way.elide { 0 } else { lines - moved.fetched };
        let hot = self.costs.clear_line_cached.filter(|hot| *hot < way.line);
        let hot_price = if hot.is_some() { Price::ClearCached } else { way.price };
        let hot = hot.unwrap_or(way.line);
        let (fetched, cached) = (way.line * (lines - held), hot * held);
        cpu.charge(way.price, fetched);
        cpu.charge(hot_price, cached);
        cpu.charge(Price::Bandwidth, floor.saturating_sub(fetched + cached));
        cpu.forget_lines();
        cpu.switch(before);
        self.forget_recalled();
    }

    /// Waits until non-temporal stores have arrived: the last of them is one latency away.
    pub(crate) fn settle(&mut self, c: usize) {
        let node = self.cpus[c].node;
        let latency = self.memory.distance(node, node);
        let cpu = &mut self.cpus[c];
        let before = cpu.switch(Account::Clear);
        cpu.charge(Price::Memory, latency);
        cpu.switch(before);
    }

    /// Data frames are copied.
    pub(crate) fn copy(&mut self, c: usize, to: u64, from: u64, frames: u64) {
        if self.bug == Some(Bug::SkippedCopy) {
            self.planted += 1;
            return;
        }
        let before = self.cpus[c].switch(Account::Clear);
        self.cpus[c].counts.lines_copied += frames * LINES;
        let (mut reads, mut stores) = (Moved::default(), Moved::default());
        for n in 0..frames {
            let (to, from) = (to + n, from + n);
            if self.contents.has_bytes(from) || self.contents.has_bytes(to) {
                self.ram.copy(to, from);
            }
            self.contents.copy(to, from);
            for line in from * LINES..(from + 1) * LINES {
                let served = self.caches.access(c, Agent::Kernel, line, Kind::Load);
                reads.read += u64::from(served.level == Level::Memory);
                if served.write_backs > 0 {
                    self.write_back(c);
                }
            }
            let moved = self.caches.store_stream(c, Agent::Kernel, to * LINES, LINES, false);
            stores.read += moved.fetched;
            stores.written += moved.written_back;
        }
        // Both begin now: the second waits for the first if they are of one node.
        let (now, node) = (self.cpus[c].core.now(), self.cpus[c].node);
        let floor = self.memory.stream(now, node, from * LINES, reads);
        let floor = floor.max(self.memory.stream(now, node, to * LINES, stores));
        self.forget_written();
        let time = self.costs.copy_line * (frames * LINES);
        let cpu = &mut self.cpus[c];
        cpu.charge(Price::Copy, time);
        cpu.charge(Price::Bandwidth, floor.saturating_sub(time));
        cpu.forget_lines();
        cpu.switch(before);
        self.forget_recalled();
    }

    /// The kernel reads or writes bytes of a frame for a program: its lines go through the caches,
    /// on the account of the verb. They are independent of each other, so their misses overlap as
    /// far as the core has fill buffers; the first is waited for, unless a call went on where
    /// one had ended, and a prefetcher with it.
    pub(crate) fn kernel_bytes(
        &mut self,
        c: usize,
        pfn: u64,
        offset: usize,
        length: usize,
        kind: Kind,
    ) {
        if length == 0 || self.cpus[c].beforehand {
            return;
        }
        let start = pfn * LINES * 64 + offset as u64;
        let end = start + length as u64;
        let lines = start / 64..=(end - 1) / 64;
        let (mut charges, mut buffers) = ([Ticks::ZERO; PRICES], 1);
        let moves = self.cpus[c].moves;
        let goes_on = moves != Moves::Nothing && self.cpus[c].goes_on(start..end);
        let is_ahead = goes_on && self.cpus[c].prefetcher.is_some();
        if moves == Moves::More || is_ahead {
            buffers = u64::from(self.cpus[c].core.fill_buffers());
        }
        let (copy, copies) = match moves {
            Moves::Nothing => (Price::Copy, self.costs.copy_line),
            Moves::First | Moves::More => match self.costs.file_line {
                // Half of it here, and half where it comes from or goes to.
                Some(line) => (Price::FileLine, Ticks(line.0 / 2)),
                None => (Price::Copy, self.costs.copy_line),
            },
        };
        for line in lines {
            let served = self.caches.access(c, Agent::Kernel, line, kind);
            let mut latency = self.caches.latency(served.level);
            if served.level == Level::Memory {
                let cpu = &self.cpus[c];
                latency += self.memory.read(cpu.core.now(), cpu.node, line);
            }
            let waits = Ticks(latency.0 / buffers);
            let bound = if waits > copies { Price::of_level(served.level) } else { copy };
            charges[bound as usize] += waits.max(copies);
            buffers = u64::from(self.cpus[c].core.fill_buffers());
            if served.write_backs > 0 {
                self.write_back(c);
            }
        }
        let cpu = &mut self.cpus[c];
        if moves == Moves::First {
            cpu.moves = Moves::More;
        }
        cpu.core.advance(charges.iter().copied().sum());
        cpu.sums().iter_mut().zip(charges).for_each(|(sum, time)| *sum += time);
        cpu.forget_lines();
        self.forget_recalled();
    }

    /// An inclusive last level may have taken lines from private caches: no CPU may go on believing
    /// that its last line is there.
    #[inline]
    pub(crate) fn forget_recalled(&mut self) {
        if self.caches.take_recalled() {
            for cpu in &mut self.cpus[..self.woken] {
                cpu.forget_lines();
            }
        }
    }

    /// Contents changed state behind the programs' backs: the next store on each CPU must note
    /// itself again.
    pub(crate) fn forget_written(&mut self) {
        for cpu in &mut self.cpus[..self.woken] {
            cpu.data.writable = false;
        }
    }
}
