//! What a simulated run of a measured loop leaves unexplained.
//!
//! Each price is in one loop and in those after it alone, so that one pass decides all: walks first,
//! which every loop has; then a fault that clears nothing; then what a page costs beside it; and so
//! on. A price that comes out below nothing is nothing, and the loop is then predicted too slow.

use vellum_host::calibrate::{Computer, Figure};
use vellum_sim::file::Machine;

use super::loops::{Loop, nanoseconds};
use super::values::Values;
use super::{machine, text};
use crate::error::LabError;

/// All of them.
pub fn solve(computer: &Computer) -> Result<Values, LabError> {
    let mut values = Values { copy_line: computer.lines.copied.ns, ..Values::default() };
    walks(computer, &mut values)?;
    let kernel = &computer.kernel;
    let mut price = |of: Loop, measured: Figure, acts: f64, put: fn(&mut Values) -> &mut f64| {
        let simulated = nanoseconds(&at(computer, &values)?, of)?;
        let value = put(&mut values);
        *value = (*value + (measured.ns - simulated) / acts).max(0.0);
        Ok::<(), LabError>(())
    };
    price(Loop::Map, kernel.map, 2.0, |v| &mut v.region)?;
    price(Loop::ZeroRead, kernel.zero_read, 1.0, |v| &mut v.fault)?;
    price(Loop::Touch, kernel.touch, 1.0, |v| &mut v.charge_page)?;
    price(Loop::Unmap, kernel.unmap, 1.0, |v| &mut v.uncharge_page)?;
    price(Loop::Copy, kernel.copy, 64.0, |v| &mut v.copy_line)?;
    if let Some(huge) = &kernel.huge {
        price(Loop::HugeZeroRead, huge.zero_read, 1.0, |v| &mut v.large)?;
        price(Loop::HugeTouch, huge.touch, 1.0, |v| &mut v.charge_huge)?;
    }
    Ok(values)
}

/// The machine as far as it is known.
fn at(computer: &Computer, values: &Values) -> Result<Machine, LabError> {
    machine(&text::write(computer, values))
}

/// Chooses the page size of the hypervisor's tables, and what a walk takes beside its reads, by
/// which chases through page tables are explained best.
fn walks(computer: &Computer, values: &mut Values) -> Result<(), LabError> {
    let mut best = f64::INFINITY;
    let tables: &[_] =
        if computer.is_guest { &[None, Some("1G"), Some("2M"), Some("4K")] } else { &[None] };
    for &nested in tables {
        let tried = Values { nested, walk_start: 0.0, ..*values };
        let bare = chases(computer, &tried)?;
        // The median of what is missing where every step walks.
        let mut missing: Vec<f64> = bare.iter().map(|(measured, sim)| measured - sim).collect();
        missing.sort_by(f64::total_cmp);
        let start = missing[missing.len() / 2].max(0.0);
        let off = |(measured, sim): &(f64, f64)| ((sim + start) / measured).ln().powi(2);
        let error = (bare.iter().map(off).sum::<f64>() / bare.len() as f64).sqrt();
        if error < best {
            best = error;
            *values = Values { walk_start: start, walks_off: error, ..tried };
        }
    }
    Ok(())
}

/// Steps of the chases that no TLB holds: measured and simulated.
fn chases(computer: &Computer, values: &Values) -> Result<Vec<(f64, f64)>, LabError> {
    let machine = at(computer, values)?;
    let mut pairs = Vec::new();
    for chase in computer.places.chases.iter().filter(|c| c.pages >= 4096) {
        for (huge, measured) in [(false, chase.small), (true, chase.huge)] {
            pairs.push((measured.ns, nanoseconds(&machine, Loop::Chase(chase.pages, huge))?));
        }
    }
    Ok(pairs)
}
