//! Pages of a file that a kernel keeps in one piece, a folio: it counts them as one where it maps
//! them, and where it unmaps them.
//!
//! The library has no folios. Whoever replays a kernel that has them says when pages are mapped so;
//! the machine remembers which they are until they are no page of a file any more.

use std::collections::HashSet;

use vellum::addr::{Order, Pfn};

use crate::cpu::FolioMapping;

/// Addresses of frames that are counted with another one of their folio.
#[derive(Default)]
pub(crate) struct Tails(HashSet<u64>);

impl Tails {
    /// Whether a page is unmapped with another one.
    pub(crate) fn has(&self, frame: u64) -> bool {
        !self.0.is_empty() && self.0.contains(&frame)
    }

    /// A page is mapped. Whether it counts: by itself it does, wherever else its folio is mapped.
    pub(crate) fn map(&mut self, cpu: &mut FolioMapping, frame: u64) -> bool {
        if cpu.pages == 0 {
            return true;
        }
        let counts = cpu.mapped.is_multiple_of(cpu.pages);
        cpu.mapped += 1;
        if counts {
            self.0.remove(&frame)
        } else {
            self.0.insert(frame)
        };
        counts
    }

    /// A block is used for something else.
    pub(crate) fn forget(&mut self, first: Pfn, order: Order) {
        if !self.0.is_empty() {
            (first.0..first.0 + order.frames()).for_each(|pfn| {
                self.0.remove(&(pfn << 12));
            });
        }
    }
}
