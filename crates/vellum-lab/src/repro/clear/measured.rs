//! The workload on this computer: the library on a machine of its own memory, with the stores of
//! the published kernel and with those around the caches.

use std::time::Instant;

use vellum::addr::{Order, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::space::{Access, Attrs, LeafSize, Placement, Rights, Space};
use vellum_host::bench::measure::Samples;
use vellum_host::host_vm::HostVm;
use vellum_host::machine::Plan;
use vellum_host::stores::{Choice, Method};

use super::cases::{AROUND, BATCHES, BEFORE, Switches};
use super::touch::{TouchedByte, touch};
use crate::error::LabError;
use crate::interrupt;
use crate::repro::context::Context;
use crate::repro::page::{Page, Row, Table};

/// What is touched: far more than a cache holds.
const BYTES: u64 = 512 << 20;
/// Memory of each machine.
const MEMORY: u64 = BYTES + (64 << 20);
/// Times that each way is measured, after one that warms up.
const TURNS: usize = 9;
/// The ways, and what rows call them.
const WAYS: [(&str, Switches); 3] =
    [("page by page", BEFORE), ("extents", BATCHES), ("extents, bypassing", AROUND)];

/// What the kernel of this computer takes for a fault. Nobody takes one here: the library is
/// called.
const FAULT: [&str; 2] = ["costs.work.fault", "costs.work.large"];

/// The library on this computer, with one set of switches.
struct Way {
    host: HostVm<X86_64, false>,
    space: Space,
    rates: Samples,
}

impl Way {
    fn new(switches: Switches, clears: Choice) -> Result<Way, LabError> {
        let mut config = Config::default();
        for (name, value) in switches {
            config
                .set(name, value)
                .map_err(|_| LabError::failed(format_args!("{name}={value} is no switch")))?;
        }
        let plan = Plan { clears, ..Plan::new(1, MEMORY) };
        let host = HostVm::new(plan, config).map_err(LabError::failed)?;
        host.warm();
        let space = {
            let _cpu = host.vm().machine().bind(0);
            host.vm().create().map_err(LabError::failed)?
        };
        Ok(Way { host, space, rates: Samples::default() })
    }

    /// Maps and touches all once: GiB a second.
    fn turn(&self) -> Result<f64, LabError> {
        let (vm, space) = (self.host.vm(), &self.space);
        let _cpu = vm.machine().bind(0);
        let leaf = LeafSize::Exactly(Order::HUGE);
        let attrs = Attrs { leaf, ..Attrs::anonymous(Rights::READ_WRITE) };
        let began = Instant::now();
        let at = vm.map(space, Placement::Anywhere, BYTES, attrs).map_err(LabError::failed)?;
        for page in 0..BYTES / Order::HUGE.bytes() {
            let first = Va(at.0 + page * Order::HUGE.bytes());
            vm.fault(space, first, Access::Write).map_err(LabError::failed)?;
        }
        let rate = BYTES as f64 / f64::from(1 << 30) / began.elapsed().as_secs_f64();
        vm.unmap(space, at, BYTES).map_err(LabError::failed)?;
        Ok(rate)
    }
}

/// The first touch of pages of 2 MiB, by the stores of `clears` around the caches and by strings
/// through them.
pub(super) fn table(clears: Choice) -> Result<Table, LabError> {
    let strings = if Method::Strings.exists() { Method::Strings } else { clears.run };
    let clears = Choice { page: strings, run: strings, ..clears };
    let ways: Result<Vec<_>, LabError> =
        WAYS.iter().map(|(_, switches)| Way::new(switches, clears)).collect();
    let mut ways = ways?;
    for turn in 0..=TURNS {
        if turn > 1 && interrupt::requested() {
            break;
        }
        for way in &mut ways {
            let rate = way.turn()?;
            if turn > 0 {
                way.rates.add(rate);
            }
        }
    }
    let before = ways[0].rates.median();
    let rows = WAYS.iter().zip(&ways).skip(1).map(|((name, _), way)| Row {
        name: row_name(name),
        published: [None, None],
        ours: [Some(before), Some(way.rates.median())],
        spread: Some(way.rates.spread().max(ways[0].rates.spread())),
        provenance: None,
    });
    Ok(Table {
        title: "First touch of 512 MiB in pages of 2 MiB, GiB/s".into(),
        columns: [WAYS[0].0.into(), "extents".into()],
        rows: rows.collect(),
    })
}

fn row_name(way: &str) -> String {
    format!("2 MiB, {way}, GiB/s")
}

/// That table beside what a simulated machine makes of the same.
pub(super) fn twin(
    context: &Context<'_>,
    measured: &Page,
) -> Result<Result<Table, String>, LabError> {
    let mut machine = context.machine.clone();
    for constant in FAULT {
        machine = machine.with(constant, "0").map_err(LabError::failed)?;
    }
    let modelled = |switches| {
        touch(&machine, Order::HUGE, switches, BYTES, TouchedByte::First)
            .map(|figures| figures.gib_per_s)
    };
    let slow = modelled(BEFORE)?;
    let mut rows = Vec::new();
    for (way, switches) in &WAYS[1..] {
        let Some([Some(before), Some(after)]) = measured.ours(&row_name(way)) else {
            return Ok(Err(format!("`{}` was not measured", row_name(way))));
        };
        let fast = modelled(switches)?;
        if rows.is_empty() {
            rows.push((row_name(WAYS[0].0), [before, slow]));
        }
        rows.push((row_name(way), [after, fast]));
        rows.push((format!("2 MiB, {way} over page by page"), [after / before, fast / slow]));
    }
    Ok(Ok(Table::beside_model("First touch of pages of 2 MiB", rows)))
}
