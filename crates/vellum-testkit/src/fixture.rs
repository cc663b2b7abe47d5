//! A `Vm`, or the frame allocator alone, over a machine for tests, and a program's loads and
//! stores.

use super::ext::{FramesExt, MachineExt, VmExt};
use super::flat::{Arch, Flat, Meta, flat_with, set_cpu};
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::config::{Config, Thp, ZeroHuge};
use vellum::entry::{Flags, X86_64};
use vellum::error::{FaultError, NoMemory, SpaceError};
use vellum::machine::{CpuId, Machine, Use};
use vellum::space::{Access, Advice, Attrs, LeafSize, Page, Placement, Rights, Space, Usage};
use vellum::stats::Counter;
use vellum::unstable::{AllocRequest, FrameCounts, Frames};
use vellum::vm::{Object, ObjectPart, Vm};

pub const KIB4: u64 = 4096;
pub const MIB: u64 = 1 << 20;
pub const MIB2: u64 = 2 << 20;
pub const GIB: u64 = 1 << 30;
pub const AT: Va = Va(0x4000_0000);
pub const RW: Attrs = Attrs::anonymous(Rights::READ_WRITE);
/// Nothing is mapped below this.
pub const LOWEST: u64 = 64 << 10;
/// The address past what programs may map in a four-level x86_64 table.
pub const USER_END: u64 = (1 << 47) - KIB4;
/// As [`RW`], in pages of 2 MiB and no others.
pub const EXACTLY_HUGE: Attrs = Attrs { leaf: LeafSize::Exactly(Order::HUGE), ..RW };
pub const EXACTLY_GIANT: Attrs = Attrs { leaf: LeafSize::Exactly(Order::GIANT), ..RW };

/// Every way to map zeros where a huge page could be.
pub const ZERO_FORMS: [ZeroHuge; 4] =
    [ZeroHuge::Off, ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate];

/// Base pages only.
pub fn no_thp() -> Config {
    Config { thp: Thp::Never, ..Config::default() }
}

/// A read fault on a page of an object maps no other.
pub fn no_around() -> Config {
    Config { file_around: Order::BASE, ..Config::default() }
}

pub fn with_zeros(zero_huge: ZeroHuge) -> Config {
    Config { zero_huge, ..Config::default() }
}

/// Page `n` of what is mapped at [`AT`].
pub const fn page_at(n: u64) -> Va {
    Va(AT.0 + n * KIB4)
}

/// A `Vm` and the memory it was handed.
pub struct FixtureOn<M: Machine> {
    pub vm: Vm<M>,
    _meta: Meta,
}

/// A `Vm` over the flat machine.
pub type Fixture<C = X86_64> = FixtureOn<Flat<C>>;

/// Two CPUs of x86_64.
pub fn fixture(frames: u64, config: Config) -> Fixture {
    fixture_of::<X86_64>(2, frames, config)
}

pub fn fixture_of<C: Arch>(cpus: usize, frames: u64, config: Config) -> Fixture<C> {
    Fixture::new(flat_with(cpus, frames, C::RULES), config)
}

impl<M: Machine> FixtureOn<M> {
    /// This thread is CPU 0 of it.
    pub fn new(machine: M, config: Config) -> Self {
        set_cpu(0);
        let meta = Meta::new(Vm::<M>::layout(machine.topology()));
        // SAFETY: zeroed memory of that layout, kept as long as the value.
        let vm = unsafe { Vm::new(machine, config, meta.base()) }.expect("a machine that fits");
        FixtureOn { vm, _meta: meta }
    }

    pub fn m(&self) -> &M {
        self.vm.machine()
    }
    /// From here this thread is CPU `cpu`.
    pub fn run_on(&self, cpu: CpuId) {
        assert!(cpu < self.m().topology().cpus);
        set_cpu(cpu);
    }
    /// Does something as another CPU, and is CPU 0 afterwards.
    pub fn on_cpu<R>(&self, cpu: CpuId, act: impl FnOnce() -> R) -> R {
        self.run_on(cpu);
        let done = act();
        self.run_on(0);
        done
    }
    pub fn count(&self, counter: Counter) -> i64 {
        self.vm.stats().get(counter)
    }
    pub fn usage(&self, space: &Space) -> Usage {
        self.vm.usage(space)
    }

    /// Takes every block of an order that is to be had, as an embedder may.
    pub fn take_all(&self, order: Order) -> Vec<Pfn> {
        let want = AllocRequest::kernel(Use::Slab);
        std::iter::from_fn(|| self.vm.frames().alloc(self.m(), order, &want).ok()).collect()
    }
    /// The same, but for `left` of them.
    pub fn take_all_but(&self, left: usize, order: Order) -> Vec<Pfn> {
        let mut taken = self.take_all(order);
        self.give_back(taken.split_off(taken.len() - left), order);
        taken
    }
    /// Takes all frames but `left`, which are from all over, so that no block is whole.
    pub fn take_all_but_scattered(&self, left: u64) -> Vec<Pfn> {
        let mut taken = self.take_all(Order::BASE);
        for _ in 0..left {
            self.give_back([taken.swap_remove(taken.len() * 7 / 11)], Order::BASE);
        }
        taken
    }
    pub fn give_back(&self, frames: impl IntoIterator<Item = Pfn>, order: Order) {
        frames.into_iter().for_each(|pfn| self.vm.frames().put(self.m(), pfn, order));
    }

    /// Everything adds up, and no frame is lost. The frames nobody uses.
    pub fn check(&self, spaces: &[&Space]) -> u64 {
        let audit = self.vm.audit(spaces).expect("a valid state");
        assert_eq!(audit.other_frames, 0, "frames lost");
        audit.free_frames
    }
    /// Everything adds up with the spaces and, when they are gone, without.
    pub fn end(&self, spaces: impl IntoIterator<Item = Space>) {
        let spaces: Vec<Space> = spaces.into_iter().collect();
        self.check(&spaces.iter().collect::<Vec<_>>());
        spaces.into_iter().for_each(|space| self.vm.exit(space));
        self.check(&[]);
    }
    /// The same where the huge page of zeros may have been used, which the shrinker then frees.
    pub fn end_zeros(&self, spaces: impl IntoIterator<Item = Space>) {
        self.end(spaces);
        self.vm.shrink_zeros();
        self.check(&[]);
    }

    pub fn map(&self, space: &Space, at: Va, bytes: u64, attrs: Attrs) {
        assert_eq!(self.vm.map(space, Placement::At(at), bytes, attrs), Ok(at));
    }
    /// An object of so many bytes.
    pub fn object(&self, bytes: u64) -> Object {
        self.vm.objects().create(bytes).expect("memory")
    }
    /// Maps an object from its first byte on.
    pub fn map_object(&self, space: &Space, at: Va, bytes: u64, object: &Object) {
        let part = ObjectPart { object, offset: 0 };
        assert_eq!(self.vm.map_object(space, Placement::At(at), bytes, RW, part), Ok(at));
    }
    /// The same as a private view.
    pub fn map_private(&self, space: &Space, at: Va, bytes: u64, object: &Object) {
        let part = ObjectPart { object, offset: 0 };
        assert_eq!(self.vm.map_private(space, Placement::At(at), bytes, RW, part), Ok(at));
    }
    /// A new space with an object mapped, and nothing else.
    pub fn with_object(&self, at: Va, bytes: u64, object: &Object) -> Space {
        let space = self.vm.create().expect("memory");
        self.map_object(&space, at, bytes, object);
        space
    }
    /// A new space with that mapped.
    pub fn mapped(&self, at: Va, bytes: u64, attrs: Attrs) -> Space {
        let space = self.vm.create().expect("memory");
        self.map(&space, at, bytes, attrs);
        space
    }
    /// Has every page of a range there as if it had been written.
    pub fn populate(&self, space: &Space, at: Va, bytes: u64) -> Result<(), SpaceError> {
        self.vm.advise(space, at, bytes, Advice::Populate { write: true })
    }
    /// The leaf behind an address that has one.
    pub fn leaf(&self, space: &Space, va: Va) -> Leaf {
        match self.vm.query(space, va) {
            Page::Mapped { level, flags, zero, .. } => Leaf { level, flags, zero },
            page => panic!("{va:?}: {page:?}"),
        }
    }
    /// The frame behind an address, if there is one.
    pub fn frame_at(&self, space: &Space, va: Va) -> Option<Pfn> {
        match self.vm.query(space, va) {
            Page::Mapped { pfn, level, .. } | Page::Inaccessible { pfn, level } => {
                Some(pfn.add(va.page() & ((1 << (level.shift() - 12)) - 1)))
            }
            _ => None,
        }
    }
    /// The frame behind an address that has one.
    pub fn frame(&self, space: &Space, va: Va) -> Pfn {
        self.frame_at(space, va).unwrap_or_else(|| panic!("{va:?} has no frame"))
    }

    /// As a program would: faults until the access is given, then does it.
    pub fn poke(&self, space: &Space, va: Va, value: u64) -> Result<(), FaultError> {
        let pfn = self.reach(space, va, Access::Write)?;
        self.m().poke(pfn, va.offset(), &value.to_le_bytes());
        Ok(())
    }
    pub fn peek(&self, space: &Space, va: Va) -> Result<u64, FaultError> {
        let mut bytes = [0; 8];
        self.m().peek(self.reach(space, va, Access::Read)?, va.offset(), &mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }
    fn reach(&self, space: &Space, va: Va, access: Access) -> Result<Pfn, FaultError> {
        for _ in 0..4 {
            if let Page::Mapped { flags, .. } = self.vm.query(space, va)
                && (access == Access::Read || flags.write)
            {
                return Ok(self.frame(space, va));
            }
            self.vm.fault(space, va, access)?;
        }
        panic!("four faults without progress at {va:?}");
    }
    /// As the kernel would, safely beside other threads.
    pub fn kernel_peek(&self, space: &Space, va: Va) -> Result<u64, FaultError> {
        let mut bytes = [0; 8];
        self.vm.copy_out(space, va, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
    /// A new space with zeros mapped for a read at 1 GiB, in so many bytes of nothing else.
    pub fn zeros_read(&self, bytes: u64) -> Space {
        let space = self.mapped(Va(GIB), bytes, RW);
        assert_eq!(self.peek(&space, Va(GIB)), Ok(0));
        space
    }
    /// Every page of a range reads as zeros.
    pub fn reads_zeros(&self, space: &Space, start: u64, bytes: u64) {
        for va in (start..start + bytes).step_by(KIB4 as usize) {
            assert_eq!(self.peek(space, Va(va)), Ok(0), "at {va:#x}");
        }
    }
}

/// What a test asks of a leaf.
pub struct Leaf {
    pub level: Level,
    pub flags: Flags,
    pub zero: bool,
}

/// The frame allocator over a flat machine; the fields drop in this order.
pub struct FramesFixture {
    pub frames: Frames,
    pub m: Flat,
    _meta: Meta,
}

impl FramesFixture {
    pub fn new(m: Flat) -> FramesFixture {
        let meta = Meta::new(Frames::layout(m.topology()).expect("a topology that is sound"));
        // SAFETY: zeroed memory of that layout, kept beside the value.
        let frames = unsafe { Frames::new(m.topology(), meta.base()) }.expect("aligned memory");
        FramesFixture { frames, m, _meta: meta }
    }
    pub fn alloc(&self, o: u8) -> Result<Pfn, NoMemory> {
        self.frames.alloc(&self.m, order(o), &AllocRequest::kernel(Use::Table))
    }
    /// So many blocks, all of which are to be had.
    pub fn take(&self, blocks: usize, o: u8) -> Vec<Pfn> {
        (0..blocks).map(|_| self.alloc(o).expect("memory")).collect()
    }
    /// Every block of an order that is to be had.
    pub fn take_all(&self, o: u8) -> Vec<Pfn> {
        std::iter::from_fn(|| self.alloc(o).ok()).collect()
    }
    pub fn free(&self, pfn: Pfn, o: u8) {
        self.frames.put(&self.m, pfn, order(o));
    }
    pub fn free_all(&self, blocks: impl IntoIterator<Item = Pfn>, o: u8) {
        blocks.into_iter().for_each(|pfn| self.free(pfn, o));
    }
    /// Splits a block, which stays the test's.
    pub fn split(&self, pfn: Pfn, from: u8, to: u8) {
        self.frames.split_to(&self.m, pfn, order(from), order(to));
    }
    /// Everything recounted.
    pub fn counts(&self) -> FrameCounts {
        self.frames.audit(&self.m).unwrap_or_else(|e| panic!("{e}"))
    }
    /// Frames in use, after everything was recounted.
    pub fn used(&self) -> u64 {
        self.counts().used
    }
}

/// Runs `act` on a thread for each of `cpus`, which is that CPU, and waits for all of them.
pub fn on_cpus(cpus: impl IntoIterator<Item = CpuId>, act: impl Fn(CpuId) + Sync) {
    let act = &act;
    std::thread::scope(|scope| {
        for cpu in cpus {
            scope.spawn(move || {
                set_cpu(cpu);
                act(cpu);
            });
        }
    });
}

/// An enum whose variants a test goes through one by one: they are in `ALL`, too.
#[macro_export]
macro_rules! listed {
    ($(#[$of:meta])* enum $name:ident { $($(#[$about:meta])* $variant:ident,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum $name { $($(#[$about])* $variant,)* }

        impl $name {
            const ALL: &[$name] = &[$($name::$variant),*];
        }
    };
}

pub fn order(n: u8) -> Order {
    Order::new(n).expect("an order")
}
