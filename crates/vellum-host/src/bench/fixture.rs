//! What every benchmark of spaces needs: a machine with warm memory, mappings, and faults in a row.

use std::io;

use vellum::addr::{PAGE_SIZE, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::space::{Access, Attrs, HugeAdvice, Placement, Rights, Space};
use vellum::vm::Vm;

use crate::host_vm::HostVm;
use crate::machine::{Host, Plan};

/// The machine that watches nothing.
pub type Bare = Host<X86_64, false>;

/// A subsystem on it, and what both live in.
pub type BareVm = HostVm<X86_64, false>;

/// Bytes of a base page.
pub const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes of a huge page.
pub const HUGE: u64 = 2 << 20;

/// A subsystem on warm memory. `moves_bytes`: see [`Plan::moves_bytes`].
///
/// # Errors
/// The machine could not be built.
pub fn boot(cpus: usize, bytes: u64, moves_bytes: bool) -> io::Result<BareVm> {
    let host = HostVm::new(Plan { moves_bytes, ..Plan::new(cpus, bytes) }, Config::default())?;
    // Or the host's own first touches would be most of what is measured: 200 us for each 2 MiB of
    // memory or records.
    host.warm();
    Ok(host)
}

/// Memory of a machine on which 10 GiB can be mapped.
pub const LARGE: u64 = 12 << 30;

/// A machine of [`LARGE`] bytes that moves none of them, on a computer that need not have as many:
/// data frames are never touched on it, so only its records are warm, and a table node costs a
/// first touch of the host when it is used for the first time, once for 512 pages. `None` where
/// even the records would be too much.
///
/// # Errors
/// The machine could not be built.
pub fn boot_large() -> io::Result<Option<BareVm>> {
    if super::measure::conditions::available().is_none_or(|free| free < 2 << 30) {
        return Ok(None);
    }
    let plan = Plan { moves_bytes: false, huge: false, ..Plan::new(1, LARGE) };
    let host = HostVm::new(plan, Config::default())?;
    host.metadata().warm();
    Ok(Some(host))
}

/// What a report says about the memory under it.
pub fn memory_note(host: &BareVm) -> String {
    let (memory, metadata) = (host.vm.machine().memory(), host.metadata());
    let all = (memory.bytes() + metadata.bytes()) as u64;
    match memory.huge_bytes().zip(metadata.huge_bytes()) {
        Some((a, b)) => {
            format!(
                "{} of {} MiB of memory and records on huge pages of the host",
                (a + b) >> 20,
                all >> 20
            )
        }
        None => {
            format!("the host does not tell whether {} MiB of memory are on huge pages", all >> 20)
        }
    }
}

/// Where a thread works: GiBs apart, so that no table node below the third level is shared.
pub fn area(cpu: usize) -> Va {
    Va((64 + 16 * cpu as u64) << 30)
}

/// A mapping that asks for huge pages, or asks for none.
pub fn attrs(huge: bool) -> Attrs {
    let thp = Some(if huge { HugeAdvice::Huge } else { HugeAdvice::NoHuge });
    Attrs { thp, ..Attrs::anonymous(Rights::READ_WRITE) }
}

/// The pages of a range.
#[derive(Clone, Copy)]
pub struct Pages {
    at: Va,
    bytes: u64,
    step: u64,
}

impl Pages {
    /// Huge pages or base pages.
    pub fn new(at: Va, bytes: u64, huge: bool) -> Pages {
        Pages { at, bytes, step: if huge { HUGE } else { PAGE } }
    }
}

/// Calls `fault` for every page.
pub fn fault_all(vm: &Vm<Bare>, space: &Space, pages: Pages, access: Access) {
    let mut va = pages.at.0;
    while va < pages.at.0 + pages.bytes {
        vm.fault(space, Va(va), access).expect("a mapped page and memory enough");
        va += pages.step;
    }
}

/// Maps a range that is empty.
pub fn map(vm: &Vm<Bare>, space: &Space, at: Va, bytes: u64, huge: bool) {
    vm.map(space, Placement::At(at), bytes, attrs(huge)).expect("an empty range");
}

/// Unmaps what was mapped whole.
pub fn unmap(vm: &Vm<Bare>, space: &Space, at: Va, bytes: u64) {
    vm.unmap(space, at, bytes).expect("a whole mapping");
}
