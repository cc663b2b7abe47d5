//! The lowest layer: the machine below, the switches, and the counters of the CPUs.
//!
//! Each layer is a struct that owns the one below and dereferences to it; what a layer does are its
//! methods. So a layer can call those below and cannot name one above. In order, from the top:
//! `Vm`, the verbs (`ops`), `Faults`, `ObjectLayer`, `Regions` (`vma`), `PageTables`, `Rmap`,
//! `Zero`, `Clear`, `Tlb`, `Memory`, `Platform`.

use core::ops::Range;
use core::ptr::NonNull;

use crate::addr::{ENTRIES, Level, Order, Pfn, Va};
use crate::config::{Config, Preemption};
use crate::entry::{Codec, Entry};
use crate::machine::{Act, Machine, MmuRules, Verb, Work};
use crate::space::{SlabRef, Space, SpaceRecord};
use crate::stats::{Counter, CpuCounters};
use crate::sync::atomic::{AtomicU32, Ordering};

/// Lets a layer be used as the one below it.
macro_rules! above {
    ($layer:ident, $below:ident: $type:ident) => {
        impl<M: crate::machine::Machine> core::ops::Deref for $layer<M> {
            type Target = $type<M>;

            #[inline(always)]
            fn deref(&self) -> &$type<M> {
                &self.$below
            }
        }

        impl<M: crate::machine::Machine> core::ops::DerefMut for $layer<M> {
            fn deref_mut(&mut self) -> &mut $type<M> {
                &mut self.$below
            }
        }
    };
}
pub(crate) use above;

/// Lets a part of a layer's work, or a verb, be a type of its own that uses the layer `below`. It
/// is a reference, and passed by value.
macro_rules! over {
    ($part:ident, $below:ident) => {
        impl<M: crate::machine::Machine> Clone for $part<'_, M> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<M: crate::machine::Machine> Copy for $part<'_, M> {}

        impl<M: crate::machine::Machine> core::ops::Deref for $part<'_, M> {
            type Target = $below<M>;

            #[inline(always)]
            fn deref(&self) -> &$below<M> {
                self.0
            }
        }
    };
}
pub(crate) use over;

/// A machine with the switches in force.
pub(crate) struct Platform<M: Machine> {
    pub machine: M,
    pub config: Config,
    pub rules: MmuRules,
    /// Levels of every table.
    pub levels: u8,
    /// First address past what programs may map.
    end: Va,
    /// Where the metadata lies, which no other living `Vm` has: what spaces say whose they are.
    id: usize,
    pub cpus: usize,
    counters: NonNull<CpuCounters>,
    /// Attempts under way that hold an mmap lock: while there are any, clearing and copying have
    /// no scheduling points.
    pub holding: AtomicU32,
}

impl<M: Machine> Platform<M> {
    /// # Safety
    /// `counters` names one zero block per CPU that is the value's alone.
    pub unsafe fn new(
        machine: M,
        config: Config,
        id: usize,
        counters: NonNull<CpuCounters>,
    ) -> Platform<M> {
        let rules = machine.rules();
        let cpus = machine.topology().cpus;
        let end = M::Codec::user_end(rules.levels);
        let holding = AtomicU32::new(0);
        Platform { machine, config, levels: rules.levels, rules, end, id, cpus, counters, holding }
    }

    /// First address past what programs may map.
    #[inline]
    pub fn user_end(&self) -> Va {
        self.end
    }

    /// Level of the roots.
    #[inline]
    pub fn top(&self) -> Level {
        Level(self.levels)
    }

    /// Slots of a node that are the library's: all of them, but in a root that the machine prepared
    /// only the user half.
    #[inline]
    pub fn slots(&self, level: Level) -> usize {
        // The last one may reach past the end.
        ((self.user_end().0 + level.entry_bytes() - 1) >> level.shift()).min(ENTRIES as u64)
            as usize
    }

    /// A number that no other living `Vm` has.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The handle of a record that was just made.
    pub fn handle(&self, handle: SlabRef) -> Space {
        Space::new(handle, self.id, handle.ptr(&self.machine).cast())
    }

    /// A space's record. There is no other way from the handle to it.
    ///
    /// # Panics
    /// If the space is another `Vm`'s.
    #[inline(always)]
    pub fn record_of<'s>(&'s self, space: &'s Space) -> &'s SpaceRecord {
        // SAFETY: this is the `Vm` of that id, and still there, for no living one has the same
        // metadata.
        unsafe { space.record(self.id) }
    }

    pub fn counters(&self) -> &[CpuCounters] {
        // SAFETY: one per CPU, as `new` was promised; zero is a valid block and they are atomics.
        unsafe { core::slice::from_raw_parts(self.counters.as_ptr(), self.cpus) }
    }

    /// This CPU's counters; preemption is off already.
    #[inline]
    pub fn counters_here(&self) -> &CpuCounters {
        &self.counters()[self.machine.cpu()]
    }

    /// Adds to this CPU's counter; preemption is off already.
    #[inline(always)]
    pub fn count_here(&self, counter: Counter, n: i64) {
        self.counters_here().add(counter, n);
    }

    /// Adds to this CPU's counter.
    #[inline]
    pub fn count(&self, counter: Counter, n: i64) {
        self.machine.preempt_off();
        self.count_here(counter, n);
        self.machine.allow_preemption();
    }

    /// Counts base pages (or 2 MiB pages) that a space maps, or maps no longer.
    #[inline]
    pub fn count_pages(&self, order: Order, n: i64) {
        if order == Order::BASE {
            self.count(Counter::AnonPages, n);
        } else {
            self.count(Counter::AnonHuge, n << (order.get() - Order::HUGE.get()));
        }
    }

    /// Counts what entries map of objects, in pages of 4 KiB, and of how many of those pages an
    /// entry is the only one.
    #[inline]
    pub fn count_object(&self, entries: i64, pages: i64) {
        self.machine.preempt_off();
        self.count_object_here(entries, pages);
        self.machine.allow_preemption();
    }

    /// The same; preemption is off already.
    #[inline(always)]
    pub fn count_object_here(&self, entries: i64, pages: i64) {
        let counters = self.counters_here();
        counters.add(Counter::ObjectRss, entries);
        counters.add(Counter::Mapped, pages);
    }

    /// Counts a fault that was served by a fresh page of 2 MiB or more; preemption is off already.
    pub fn count_large(&self, order: Order) {
        self.machine.work(Work::Large, 1);
        self.count_here(Counter::AnonHuge, 1 << (order.get() - Order::HUGE.get()));
        if order == Order::HUGE {
            self.count_here(Counter::ThpFaultAlloc, 1);
        }
    }

    /// Runs a verb between the machine's two events.
    #[inline(always)]
    pub fn verb<R>(&self, verb: Verb, body: impl FnOnce() -> R) -> R {
        self.begins(verb);
        let result = body();
        self.ends(verb);
        result
    }

    #[inline(always)]
    pub fn begins(&self, verb: Verb) {
        self.machine.begin(verb);
        self.machine.work(if verb == Verb::Fault { Work::Fault } else { Work::Call }, 1);
    }

    #[inline(always)]
    pub fn ends(&self, verb: Verb) {
        self.machine.end(verb);
    }

    #[inline]
    pub fn load(&self, table: Pfn, slot: usize, level: Level) -> Entry {
        M::Codec::decode(self.machine.entry(table, slot), level)
    }

    /// The entry of a slot on the way down. Reports a visit to its node.
    #[inline(always)]
    pub fn visit_entry(&self, table: Pfn, slot: usize) -> u64 {
        self.machine.work(Work::Descend, 1);
        self.machine.entry(table, slot)
    }

    /// The slots from `first` to `end`, which the caller is about to look at. Reports the scan.
    #[inline(always)]
    pub fn scanned(&self, first: usize, end: usize) -> Range<usize> {
        self.machine.work(Work::Scan, (end - first) as u64);
        first..end
    }

    /// Writes an entry and reports nothing: the caller reports many entries at once, or none.
    #[inline]
    pub fn store(&self, table: Pfn, slot: usize, level: Level, entry: Entry) {
        self.machine.set_entry(table, slot, M::Codec::encode(entry, level));
    }

    /// Writes an entry and reports that.
    #[inline(always)]
    pub fn write_entry(&self, table: Pfn, slot: usize, level: Level, entry: Entry) {
        self.store(table, slot, level, entry);
        self.machine.work(Work::Entry, 1);
    }

    /// Exchanges an entry if it still is `old`, and reports that; otherwise says what it is.
    #[inline(always)]
    pub fn replace_entry(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.machine.swap_entry(table, slot, old, new)?;
        self.machine.work(Work::Entry, 1);
        Ok(())
    }

    /// A scheduling point, unless an attempt under an mmap lock is under way.
    #[inline]
    pub fn give_turn(&self) {
        if self.holding.load(Ordering::Relaxed) == 0 {
            self.machine.sched_point();
        }
    }

    /// What a wait for other tasks does that may stand on this very CPU.
    pub fn let_others_run(&self) {
        if self.asks() {
            self.give_turn();
        }
    }

    /// Whether kernel code is rescheduled only where it asks, at this moment.
    #[inline]
    pub fn asks(&self) -> bool {
        let model = self.machine.preemption().unwrap_or(self.config.preempt);
        matches!(model, Preemption::None | Preemption::Voluntary)
    }
}
