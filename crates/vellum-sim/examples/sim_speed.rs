//! Simulated accesses per second of host time, through the whole path: TLBs, three cache levels,
//! oracle, library underneath.
//!
//! Two figures. *Mix* stands for a real program: a loop over a few hot pages and a stream, with one
//! access in 16 anywhere in 256 MiB. *Random* is uniform over 1 GiB. Both on `milan` with 4 KiB
//! pages, oracle incremental, one host core.
//!
//! `cargo run --release --example sim_speed`

use vellum::addr::Va;
use vellum::config::{Config, Thp};
use vellum::space::{Access, Attrs, Placement, Rights, Space};
use vellum::vm::Vm;
use vellum_sim::format::X86;
use vellum_sim::schedule::Rng;
use vellum_sim::{Kind, Meta, Options, Program, SimMachine, file};

/// Seconds this thread has been on a CPU: others share the host while this is measured.
fn seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).map_or(0.0, |ns| ns / 1e9)
}

const GIB: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "milan".into());
    let thp =
        if std::env::args().nth(2).as_deref() == Some("thp") { Thp::Always } else { Thp::Never };
    let machine = file::preset(&name)?;
    let sim = SimMachine::<X86>::new(&machine, Options::default())?;
    let meta = Meta::new(Vm::<SimMachine<X86>>::layout(sim.topology()))
        .ok_or("no address space for metadata")?;
    let config = Config { thp, ..Config::default() };
    // SAFETY: zeroed memory of the layout asked for; declared before the Vm, so it outlives it.
    let vm = unsafe { Vm::new(sim, config, meta.start()) }.map_err(|e| format!("{e:?}"))?;
    let sim = vm.machine();
    let space = sim.solo(0, |_| vm.create())?.map_err(|e| e.to_string())?;
    let at = sim.solo(0, |_| {
        vm.activate(&space);
        vm.map(&space, Placement::Anywhere, GIB, Attrs::anonymous(Rights::READ_WRITE))
    })?;
    let at = at.map_err(|e| e.to_string())?.0;
    let bench = Bench { vm: &vm, space: &space, at };
    bench.phase("touch", GIB >> 12, 1, |n, _| (n * 4096, Kind::Store));
    bench.phase("mix", 60_000_000, 7, {
        let mut hot = 0;
        move |n, rng| {
            let kind = if n % 4 == 3 { Kind::Store } else { Kind::Load };
            let offset = match n % 16 {
                0 => {
                    hot = rng.below(GIB / 4) & !7;
                    hot
                }
                1..=6 => GIB / 2 + n * 2 % (GIB / 4),
                _ => hot & !63 | (n * 8) & 63,
            };
            (offset, kind)
        }
    });
    bench.phase("random", 12_000_000, 9, |n, rng| {
        (rng.below(GIB) & !7, if n % 4 == 3 { Kind::Store } else { Kind::Load })
    });
    let audit = sim.audit(None).map_or_else(|stop| stop.to_string(), |()| "sound".into());
    println!("checked {} hits; audit: {audit}", sim.checked());
    sim.solo(0, |_| vm.exit(space))?;
    Ok(())
}

struct Bench<'a> {
    vm: &'a Vm<SimMachine<X86>>,
    space: &'a Space,
    at: u64,
}

impl Bench<'_> {
    fn phase(
        &self,
        what: &str,
        accesses: u64,
        seed: u64,
        mut next: impl FnMut(u64, &mut Rng) -> (u64, Kind),
    ) {
        let sim = self.vm.machine();
        let (started, before) = (seconds(), sim.total());
        let stop = sim.solo(0, |cpu| {
            let mut p = Program::new(cpu, |va, kind| {
                let access = if kind == Kind::Store { Access::Write } else { Access::Read };
                self.vm.fault(self.space, Va(va), access).map(|_| ())
            });
            let mut rng = Rng::new(seed);
            for n in 0..accesses {
                let (offset, kind) = next(n, &mut rng);
                p.access(self.at + offset % GIB, 8, kind, false).expect("mapped");
            }
        });
        if let Err(stop) = stop {
            eprintln!("{stop}");
        }
        let seconds = seconds() - started;
        let d = sim.total().since(&before);
        let get = |n| d.get(n).unwrap_or(0);
        println!(
            "{what:>8}: {:6.1} M accesses/s of CPU time   ({accesses} accesses, {} walks, {} L1 \
             misses, {} faults, {} cycles)",
            accesses as f64 / seconds / 1e6,
            get("walks_data"),
            get("l1d_demand_miss"),
            get("page_faults"),
            get("cycles")
        );
    }
}
