//! Short measurements of this computer, for a machine file that describes it.
//!
//! Geometry comes from the kernel's description of it ([`topology`]) and from CPUID
//! ([`translation`]), times from measurements of some seconds. Each measurement is cut into pieces
//! shorter than a scheduler's turn, the fastest piece counts, and runs are repeated until two agree
//! to 5 % ([`Figure`]). What takes many pieces at once (a fork with its copies) is the fastest run.
//!
//! A CPU here is what the kernel calls one, a hardware thread.

mod branch;
mod chase;
mod clear;
mod clock;
mod figure;
mod first;
mod instruction;
mod kernel;
mod places;
mod row;
mod strides;
mod tables;
pub mod topology;
pub mod translation;
mod window;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

pub use chase::{CHAINS, pages as lines_of_pages};
pub use clear::{LineTimes, Paced};
pub use figure::Figure;
pub use first::FirstTimes;
pub use kernel::{CallTimes, FileTimes, HugeTimes, KernelTimes};
pub use places::{PageChase, PlaceTimes};
pub use tables::TableTimes;
use topology::Topology;
use translation::Translation;

use crate::bench::linux::Area;
use crate::bench::measure::{alone, conditions};

/// Bytes of the areas that are chased through.
const AREA: u64 = 256 << 20;
/// Bytes of the area that is cleared: what lies behind it, tables of a hypervisor among it, is more
/// than second levels hold.
const CLEARED: u64 = 2 * AREA;
/// What all measurements together need.
const NEEDED: u64 = 2 * AREA + (128 << 20);

/// What was found out about this computer.
#[derive(Clone, Debug)]
pub struct Computer {
    /// CPUs, caches, nodes.
    pub topology: Topology,
    /// TLBs.
    pub translation: Translation,
    /// Cycles a second.
    pub clock_hz: u64,
    /// An instruction when nothing misses; `None` on architectures without a measurement.
    pub instruction: Option<Figure>,
    /// A branch on a loaded value that was predicted wrongly, beside one that was not; `None` on
    /// architectures without a measurement.
    pub mispredict: Option<Figure>,
    /// Loads from caches, from memory, and through page tables.
    pub places: PlaceTimes,
    /// Lines in a row.
    pub lines: LineTimes,
    /// Walks, by the order of the lines of tables that they read.
    pub tables: TableTimes,
    /// The kernel's work.
    pub kernel: KernelTimes,
    /// Whether a hypervisor says that this is its guest; `None` where nobody can be asked.
    pub is_guest: Option<bool>,
    /// Load averages over one and five minutes when the measurement began.
    pub load: Option<[f64; 2]>,
    /// How long it took.
    pub took: Duration,
}

/// Why a computer could not be measured, in words that follow its name.
#[derive(Debug)]
pub struct Unmeasured(pub String);

impl From<io::Error> for Unmeasured {
    fn from(e: io::Error) -> Unmeasured {
        Unmeasured(format!("{} MiB of memory cannot be had ({e})", NEEDED >> 20))
    }
}

/// Measures this computer: 600 MiB of memory and some seconds.
///
/// # Errors
/// The kernel does not describe the computer, has pages of another size than 4 KiB, or gives no
/// memory.
pub fn measure() -> Result<Computer, Unmeasured> {
    let (start, load) = (Instant::now(), conditions::load());
    let page = rustix::param::page_size();
    if page != chase::PAGE {
        return Err(Unmeasured(format!("its kernel has pages of {page} bytes, and not of 4096")));
    }
    let free = conditions::available().unwrap_or(u64::MAX).min(conditions::left_to_group());
    if free < NEEDED {
        let (free, needed) = (free >> 20, NEEDED >> 20);
        return Err(Unmeasured(format!("{needed} MiB of memory are needed, and {free} are free")));
    }
    // On one core: where cores differ, so do their caches and TLBs.
    alone(|| {
        let topology = topology::read(Path::new("/")).map_err(Unmeasured)?;
        let translation = translation::read();
        // A core that was idle needs some time to come to its full clock.
        clock::hertz();
        let kernel = kernel::measure()?;
        let touched = |bytes, is_huge| {
            let area = Area::new(bytes, is_huge)?;
            area.advise(is_huge);
            area.touch(chase::PAGE as u64, true);
            Ok::<Area, io::Error>(area)
        };
        let lines = clear::measure(&topology, &touched(CLEARED, true)?);
        let (huge, small) = (touched(AREA, true)?, touched(AREA, false)?);
        let tables = tables::measure(&huge)?;
        let is_guest = translation::is_guest();
        let places = places::measure(&topology, is_guest, [&huge, &small]);
        Ok(Computer {
            topology,
            translation,
            clock_hz: clock::hertz(),
            instruction: instruction::mean(),
            mispredict: branch::mispredicted(),
            places,
            lines,
            tables,
            kernel,
            is_guest,
            load,
            took: start.elapsed(),
        })
    })
}
