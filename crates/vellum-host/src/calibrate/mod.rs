//! Short measurements of this computer, for a machine file that describes it.
//!
//! Geometry comes from the kernel's description of it ([`topology`]) and from CPUID
//! ([`translation`]), times from measurements of some seconds. Each measurement is cut into pieces
//! shorter than a scheduler's turn, the fastest piece counts, and runs are repeated until two agree
//! to 5 % ([`Figure`]). What takes many pieces at once (a fork with its copies) is the fastest run.
//!
//! A CPU here is what the kernel calls one, a hardware thread.

mod chase;
mod clear;
mod clock;
mod figure;
mod kernel;
mod places;
pub mod topology;
pub mod translation;
mod window;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

pub use chase::pages as lines_of_pages;
pub use clear::LineTimes;
pub use figure::Figure;
pub use kernel::{HugeTimes, KernelTimes};
pub use places::{PageChase, PlaceTimes};
use topology::Topology;
use translation::Translation;

use crate::bench::linux::Area;
use crate::bench::measure::{alone, conditions};

/// Bytes of the areas that are chased through and cleared.
const AREA: u64 = 256 << 20;
/// The part that is cleared: small enough that a turn takes some 10 ms.
const CLEARED: usize = 32 << 20;

/// What was found out about this computer.
#[derive(Clone, Debug)]
pub struct Computer {
    /// CPUs, caches, nodes.
    pub topology: Topology,
    /// TLBs.
    pub translation: Translation,
    /// Cycles a second.
    pub clock_hz: u64,
    /// Loads from caches, from memory, and through page tables.
    pub places: PlaceTimes,
    /// Lines in a row.
    pub lines: LineTimes,
    /// The kernel's work.
    pub kernel: KernelTimes,
    /// Whether a hypervisor says that this is its guest.
    pub is_guest: bool,
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
        Unmeasured(format!("{} MiB of memory cannot be had ({e})", (2 * AREA) >> 20))
    }
}

/// Measures this computer: 600 MiB of memory and some seconds.
///
/// # Errors
/// The kernel does not describe the computer, or gives no memory.
pub fn measure() -> Result<Computer, Unmeasured> {
    let (start, load) = (Instant::now(), conditions::load());
    let topology = topology::read(Path::new("/")).map_err(Unmeasured)?;
    let translation = translation::read();
    let (clock_hz, kernel, places, lines) = alone(|| {
        let kernel = kernel::measure()?;
        let (huge, small) = (Area::new(AREA, true)?, Area::new(AREA, false)?);
        for (area, is_huge) in [(&huge, true), (&small, false)] {
            area.advise(is_huge);
            area.touch(chase::PAGE as u64, true);
        }
        let lines = clear::measure(&huge, CLEARED, 2 * topology.l2.size as usize);
        let places = places::measure(&topology, &huge, &small);
        Ok::<_, io::Error>((clock::hertz(), kernel, places, lines))
    })?;
    Ok(Computer {
        topology,
        translation,
        clock_hz,
        places,
        lines,
        kernel,
        is_guest: translation::is_guest(),
        load,
        took: start.elapsed(),
    })
}
