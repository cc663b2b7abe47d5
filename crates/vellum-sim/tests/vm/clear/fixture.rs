//! What the tests of clearing share: the library on a simulated machine, and a program that touches
//! memory.

use vellum::addr::{Order, Va};
use vellum::config::Config;
use vellum::space::{Access, Attrs, LeafSize, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::format::{Format, X86};
use vellum_sim::{Kind, Meta, Options, Parts, SimMachine};
use vellum_testkit::ext::VmExt;

pub const MIB: u64 = 1 << 20;

/// The switches as they are set on a command line.
pub fn config(switches: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    switches.iter().for_each(|(name, value)| config.set(name, value).expect("a switch"));
    config
}

/// Runs `work` with the library on a machine of those parts; afterwards everything must add up.
pub fn with_vm<R>(
    parts: &Parts,
    options: Options,
    switches: &[(&str, &str)],
    work: impl FnOnce(&Vm<SimMachine<X86>>) -> R,
) -> R {
    let sim = SimMachine::<X86>::build(parts, options).expect("a machine that can be built");
    let meta =
        Meta::new(Vm::<SimMachine<X86>>::layout(sim.topology())).expect("memory for metadata");
    // SAFETY: the memory is zero, of the layout asked for, and outlives the Vm.
    let vm = unsafe { Vm::new(sim, config(switches), meta.start()) }.expect("a Vm");
    let result = work(&vm);
    vm.machine().audit(Some(0)).unwrap_or_else(|stop| panic!("{stop}"));
    let left = vm.audit(&[]).expect("everything adds up");
    assert_eq!((left.data_frames, left.table_frames), (0, 0), "{left:?}");
    result
}

/// The handler of a program's faults.
pub fn handler<'v, F: Format>(
    vm: &'v Vm<SimMachine<F>>,
    space: &'v Space,
) -> impl FnMut(u64, Kind) -> Result<(), String> + 'v {
    move |va, kind| {
        let access = match kind {
            Kind::Load => Access::Read,
            Kind::Store => Access::Write,
            Kind::Fetch => Access::Exec,
        };
        vm.fault(space, Va(va), access).map(|_| ()).map_err(|e| format!("{e} at {va:#x}"))
    }
}

/// Maps private memory with leaves of one size; `None` leaves it to the switch `thp`.
pub fn anonymous<F: Format>(
    vm: &Vm<SimMachine<F>>,
    space: &Space,
    bytes: u64,
    leaf: Option<Order>,
) -> u64 {
    let leaf = leaf.map_or(LeafSize::Policy, LeafSize::Exactly);
    let attrs = Attrs { leaf, ..Attrs::anonymous(Rights::READ_WRITE) };
    vm.map(space, Placement::Anywhere, bytes, attrs).expect("a hole").0
}
