//! The worlds that are explored: frames alone, and spaces with the contents that their pages must
//! have.

use std::cell::{Cell, Ref, RefCell};

use vellum::addr::{Order, Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::error::FaultError;
use vellum::machine::{Machine, MmuRules, Use};
use vellum::space::{Access, Attrs, Placement, Rights, Space};
use vellum::unstable::AllocRequest;
use vellum::vm::Vm;
use vellum_host::memory::Memory;
use vellum_host::mmu::buffer::Shape;

use super::World;
use crate::small::{Plan, Small};

/// Where the pages lie: a table of their own.
pub const AT: Va = Va(0x4000_0000);
/// Bytes of 2 MiB.
pub const MIB2: u64 = 2 << 20;

/// A `Vm` with up to two spaces, blocks that CPUs hold, and words that CPUs stored.
pub struct Fixture {
    /// The subsystem.
    pub vm: Vm<Small<X86_64>>,
    _meta: Memory,
    space: Option<Space>,
    /// Spaces that CPUs made and did not end.
    more: RefCell<Vec<Space>>,
    /// Blocks held at the end are given back by the check, which looks that nobody has one twice.
    pub held: RefCell<Vec<(Pfn, Order)>>,
    /// What a word must hold at the end, when it can be read.
    pub wanted: Cell<Option<(Va, [u8; 4])>>,
    /// Where no CPU may store at the end.
    pub read_only: Cell<Option<Va>>,
    /// What one CPU tells another.
    pub told: Cell<bool>,
}

impl Fixture {
    /// A machine of that many CPUs and frames.
    ///
    /// # Panics
    /// If the system has no memory for it.
    pub fn new(cpus: usize, frames: u64, config: Config, rules: MmuRules) -> Fixture {
        let plan = Plan { cpus, nodes: 1, frames, rules, tlb: Shape::TINY };
        let machine = Small::new(plan).expect("memory of the system");
        let meta = Memory::new(Vm::<Small<X86_64>>::layout(machine.topology()).size(), false)
            .expect("memory");
        // SAFETY: zeroed memory of that layout and alignment, kept as long as the value.
        let vm = unsafe { Vm::new(machine, config, meta.base()) }.expect("a machine that fits");
        Fixture {
            vm,
            _meta: meta,
            space: None,
            more: RefCell::default(),
            held: RefCell::default(),
            wanted: Cell::new(None),
            read_only: Cell::new(None),
            told: Cell::new(false),
        }
    }

    /// One with a space in which `pages` pages at [`AT`] are mapped, and a word stored in the
    /// first.
    ///
    /// # Panics
    /// If memory runs out.
    pub fn with_space(cpus: usize, pages: u64, config: Config) -> Fixture {
        Fixture::with_rules(cpus, pages, config, MmuRules::X86_64)
    }

    /// Likewise, on an MMU with other rules.
    ///
    /// # Panics
    /// If memory runs out.
    pub fn with_rules(cpus: usize, pages: u64, config: Config, rules: MmuRules) -> Fixture {
        let mut fixture = Fixture::new(cpus, 2048, config, rules);
        fixture.enter(0);
        let space = fixture.vm.create().expect("memory");
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        fixture.vm.map(&space, Placement::At(AT), pages << 12, attrs).expect("a hole");
        fixture.space = Some(space);
        for cpu in (0..cpus).rev() {
            fixture.enter(cpu);
            fixture.vm.activate(fixture.space());
        }
        fixture.store(AT, 1).expect("memory");
        fixture
    }

    /// From here the thread is that CPU, outside of scripts.
    pub fn enter(&self, cpu: usize) {
        self.vm.machine().run_on(cpu);
    }

    /// The space.
    ///
    /// # Panics
    /// If it was made without one.
    pub fn space(&self) -> &Space {
        self.space.as_ref().expect("a world with a space")
    }

    /// Keeps a space until the check.
    pub fn keep(&self, space: Space) {
        self.more.borrow_mut().push(space);
    }

    /// The space kept last.
    ///
    /// # Panics
    /// If there is none.
    pub fn last(&self) -> Ref<'_, Space> {
        Ref::map(self.more.borrow(), |more| more.last().expect("a space that was kept"))
    }

    /// Ends the space kept last.
    pub fn end_last(&self) {
        let last = self.more.borrow_mut().pop();
        last.into_iter().for_each(|space| self.vm.exit(space));
    }

    fn four(value: u32) -> [u8; 4] {
        value.to_le_bytes()
    }

    fn served<T>(
        &self,
        va: Va,
        access: Access,
        tried: impl Fn() -> Option<T>,
    ) -> Result<T, FaultError> {
        for _ in 0..50 {
            if let Some(done) = tried() {
                return Ok(done);
            }
            self.vm.fault(self.space(), va, access)?;
        }
        panic!("{access:?} at {va:?} faults for ever");
    }

    /// A program's store on the CPU that runs, faults included.
    ///
    /// # Errors
    /// The library's refusal.
    pub fn store(&self, va: Va, value: u32) -> Result<(), FaultError> {
        self.served(va, Access::Write, || self.vm.machine().store(va, Self::four(value)).ok())
    }

    /// A program's load likewise.
    ///
    /// # Errors
    /// The library's refusal.
    pub fn load(&self, va: Va) -> Result<u32, FaultError> {
        self.served(va, Access::Read, || self.vm.machine().load(va).ok()).map(u32::from_le_bytes)
    }

    /// A store that must be seen at the end.
    pub fn store_to_stay(&self, va: Va, value: u32) {
        if self.store(va, value).is_ok() {
            self.wanted.set(Some((va, Self::four(value))));
        }
    }

    /// Takes a block, if there is one.
    pub fn take(&self, order: u8) {
        let order = Order::new(order).unwrap_or(Order::BASE);
        if let Ok(pfn) =
            self.vm.frames().alloc(self.vm.machine(), order, &AllocRequest::kernel(Use::Slab))
        {
            self.held.borrow_mut().push((pfn, order));
        }
    }

    /// Gives back the n-th block held, if there are so many.
    pub fn give(&self, n: usize) {
        let block = {
            let mut held = self.held.borrow_mut();
            (n < held.len()).then(|| held.remove(n))
        };
        if let Some((pfn, order)) = block {
            // SAFETY: taken by `take`, and mapped nowhere.
            unsafe { self.vm.frames().free(self.vm.machine(), pfn, order) };
        }
    }
}

impl World for Fixture {
    fn run_on(&self, cpu: usize, preempt_off: u32) -> u32 {
        self.vm.machine().change_to(cpu, preempt_off)
    }

    fn check(mut self) {
        if let Some((va, bytes)) = self.wanted.get() {
            let seen = self.load(va);
            assert!(
                seen == Ok(u32::from_le_bytes(bytes)),
                "{va:?} holds {seen:x?}, wanted {bytes:x?}"
            );
        }
        if let Some(va) = self.read_only.get() {
            for cpu in 0..self.vm.machine().topology().cpus {
                self.enter(cpu);
                self.vm.activate(self.space());
                let stored = self.store(va, 0xbad);
                assert!(
                    stored == Err(FaultError::Rights),
                    "CPU {cpu} stored at {va:?} with {stored:?}"
                );
            }
        }
        let held = self.held.take();
        let mut all = std::collections::BTreeSet::new();
        for &(pfn, order) in &held {
            (0..order.frames())
                .for_each(|i| assert!(all.insert(pfn.add(i)), "{:?} is had twice", pfn.add(i)));
        }
        let spaces: Vec<Space> = self.space.take().into_iter().chain(self.more.take()).collect();
        let m = self.vm.machine();
        // SAFETY: every CPU's script is at its end.
        let audit = unsafe { self.vm.validate(&spaces.iter().collect::<Vec<_>>()) }
            .unwrap_or_else(|e| panic!("validate: {e}"));
        assert_eq!(audit.other_frames, all.len() as u64, "frames in use that nobody has");
        for cpu in 0..m.topology().cpus {
            m.run_on(cpu);
            self.vm.deactivate();
        }
        // SAFETY: taken by `take`, and mapped nowhere.
        held.into_iter().for_each(|(pfn, order)| unsafe { self.vm.frames().free(m, pfn, order) });
        spaces.into_iter().for_each(|space| self.vm.exit(space));
        // SAFETY: as above.
        let audit =
            unsafe { self.vm.validate(&[]) }.unwrap_or_else(|e| panic!("validate at the end: {e}"));
        assert_eq!(audit.other_frames, 0, "frames in use that nobody has, at the end");
        for left in [Use::Data, Use::Object, Use::Table, Use::Pending] {
            assert_eq!(m.count(left), 0, "{left:?} frames remain when every space is gone");
        }
    }
}
