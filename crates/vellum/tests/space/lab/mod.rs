//! What the tests of spaces share: a `Vm` over the flat machine, and a program's loads and stores.
#![allow(dead_code)]

pub mod state;

use crate::flat::{Flat, FrameHands, MachineHands, Meta, VmHands};
use vellum::addr::{Order, Pfn, Va};
use vellum::config::{Config, Thp};
use vellum::entry::{Codec, X86_64};
use vellum::error::FaultError;
use vellum::machine::{Machine, MmuRules, Topology, Use};
use vellum::space::{Access, Attrs, Page, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::unstable::Want;
use vellum::vm::Vm;

pub const KIB4: u64 = 4096;
pub const MIB2: u64 = 2 << 20;
pub const GIB: u64 = 1 << 30;
pub const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);
pub const AT: Va = Va(0x4000_0000);

/// A `Vm` over a flat machine and the memory it was handed.
pub struct Lab<C: Codec = X86_64> {
    pub vm: Vm<Flat<C>>,
    _meta: Meta,
}

pub fn lab(frames: u64, config: Config) -> Lab {
    lab_on(Flat::new(Topology::flat(2, Pfn(512), frames), MmuRules::X86_64), config)
}

pub fn lab_on<C: Codec>(machine: Flat<C>, config: Config) -> Lab<C> {
    let meta = Meta::new(Vm::<Flat<C>>::layout(machine.topology()));
    // SAFETY: zeroed memory of that layout, kept as long as the value.
    let vm = unsafe { Vm::new(machine, config, meta.base()) }.expect("a machine that fits");
    Lab { vm, _meta: meta }
}

pub fn never() -> Config {
    Config { thp: Thp::Never, ..Config::default() }
}

impl<C: Codec> Lab<C> {
    pub fn count(&self, counter: Counter) -> i64 {
        self.vm.stats().get(counter)
    }
    /// Takes every block of an order that is to be had, as an embedder may.
    pub fn hog(&self, order: Order) -> Vec<Pfn> {
        let want = Want::kernel(Use::Slab);
        std::iter::from_fn(|| self.vm.frames().alloc(self.vm.machine(), order, &want).ok())
            .collect()
    }
    pub fn give_back(&self, frames: Vec<Pfn>, order: Order) {
        frames.into_iter().for_each(|pfn| self.vm.frames().put(self.vm.machine(), pfn, order));
    }
    pub fn free(&self, spaces: &[&Space]) -> u64 {
        let audit = self.vm.audit(spaces).expect("a valid state");
        assert_eq!(audit.other_frames, 0, "frames lost");
        audit.free_frames
    }
    pub fn check(&self, spaces: &[&Space]) {
        self.free(spaces);
    }
    pub fn map(&self, space: &Space, at: Va, bytes: u64, attrs: Attrs) {
        assert_eq!(self.vm.map(space, Placement::At(at), bytes, attrs), Ok(at));
    }
    /// As a program would: faults until the access is given, then does it.
    pub fn poke(&self, space: &Space, va: Va, value: u64) -> Result<(), FaultError> {
        for _ in 0..4 {
            if let Page::Mapped { pfn, level, flags, .. } = self.vm.query(space, va)
                && flags.write
            {
                let pfn = pfn.add(va.page() & ((1 << (level.shift() - 12)) - 1));
                self.vm.machine().poke(pfn, va.offset(), &value.to_le_bytes());
                return Ok(());
            }
            self.vm.fault(space, va, Access::Write)?;
        }
        panic!("four faults without progress at {va:?}");
    }
    pub fn peek(&self, space: &Space, va: Va) -> Result<u64, FaultError> {
        for _ in 0..4 {
            if let Page::Mapped { pfn, level, .. } = self.vm.query(space, va) {
                let pfn = pfn.add(va.page() & ((1 << (level.shift() - 12)) - 1));
                let mut bytes = [0; 8];
                self.vm.machine().peek(pfn, va.offset(), &mut bytes);
                return Ok(u64::from_le_bytes(bytes));
            }
            self.vm.fault(space, va, Access::Read)?;
        }
        panic!("four faults without progress at {va:?}");
    }
    /// As the kernel would, safely beside other threads.
    pub fn kernel_peek(&self, space: &Space, va: Va) -> Result<u64, FaultError> {
        let mut bytes = [0; 8];
        self.vm.copy_out(space, va, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
