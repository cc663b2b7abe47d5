//! Every frame is in exactly one state, and only some changes of state are legal.
//!
//! The machine is told of each change ([`Hooks::frame`](vellum::machine::Hooks::frame)). A frame
//! may leave `Data` only if no entry maps it; it may leave `Data` or `Pending` for good only if
//! every obligation on it is closed; it may leave `Table` only if no hardware can reach the node.
//! The next owner finds the contents marked foreign until it clears or overwrites them.

use vellum::addr::{Order, Pfn};
use vellum::machine::Use;

use super::Rule;
use super::stop::Note;
use crate::format::Format;
use crate::machine::SimState;

/// Whether that is the number of a use of which programs may write.
pub(crate) fn is_data(n: u8) -> bool {
    n == Use::Data as u8 || n == Use::Object as u8
}

/// `Use` from its number.
pub(crate) fn use_of(n: u8) -> Use {
    [
        Use::Free,
        Use::Pending,
        Use::Table,
        Use::Slab,
        Use::Data,
        Use::Zero,
        Use::ZeroTable,
        Use::Poisoned,
        Use::Object,
    ][n as usize]
}

impl<F: Format> SimState<F> {
    /// The library says that a block changed its use.
    pub(crate) fn frame_event(&mut self, c: usize, first: Pfn, order: Order, to: Use) {
        let (first, count) = (first.0, order.frames());
        self.note(c, Note::Frame { first, frames: count, to });
        if first + count > self.ram.own() {
            return self.fail(
                c,
                Rule::FrameState,
                None,
                Some(first),
                format!("{count} frames from {first:#x} are past the end of memory, or a device's"),
            );
        }
        self.oracle.used = self.oracle.used.max(first + count);
        for pfn in first..first + count {
            let from = use_of(self.oracle.uses[pfn as usize]);
            let legal = match to {
                Use::Free => !matches!(from, Use::Free | Use::Poisoned),
                Use::Pending => matches!(from, Use::Data | Use::Table | Use::Slab),
                Use::Table | Use::Slab | Use::Data | Use::Object | Use::Zero | Use::ZeroTable => {
                    from == Use::Free
                }
                Use::Poisoned => matches!(from, Use::Data | Use::Object),
            };
            if !legal {
                let why = if from == to { "twice" } else { "out of turn" };
                return self.fail(
                    c,
                    Rule::FrameState,
                    None,
                    Some(pfn),
                    format!("a frame that is {from:?} becomes {to:?}: {why}"),
                );
            }
            if !matches!(from, Use::Free | Use::Slab) && !self.may_leave(c, pfn, from, to) {
                return;
            }
            self.oracle.uses[pfn as usize] = to as u8;
            self.oracle.in_use[from as usize] -= 1;
            self.oracle.in_use[to as usize] += 1;
            match to {
                Use::Free => self.contents.disown(pfn),
                Use::Table | Use::Slab | Use::ZeroTable => self.contents.use_bytes(pfn),
                _ => {}
            }
        }
        let peak = &mut self.oracle.peak[to as usize];
        *peak = (*peak).max(self.oracle.in_use[to as usize]);
    }

    /// Whether a frame in use may be given up; stops the run if not.
    fn may_leave(&mut self, c: usize, pfn: u64, from: Use, to: Use) -> bool {
        if self.oracle.frames[pfn as usize].maps > 0 {
            self.forget_unreachable(c);
        }
        let note = self.oracle.frames[pfn as usize];
        if note.maps > 0 {
            self.fail(
                c,
                Rule::FrameState,
                None,
                Some(pfn),
                format!("it becomes {to:?} while {} entries map it", note.maps),
            );
            return false;
        }
        if to == Use::Pending {
            return true;
        }
        if note.obligation != 0 {
            if let Some(open) = self.obligation_on(pfn) {
                let why = format!(
                    "it becomes {to:?} while CPUs {open:?} may still hold its old translation at \
                     {:#x}: the flush must come first",
                    note.page << 12
                );
                self.fail(c, Rule::OpenObligation, Some(note.page << 12), Some(pfn), why);
                return false;
            }
            self.oracle.frames[pfn as usize].obligation = 0;
            self.oracle.extra.retain(|e| e.pfn != pfn);
        }
        // A node that was pending may be linked yet, or be a root.
        let note = self.oracle.tables[pfn as usize];
        let was_table = from == Use::Table || note.cut != 0 || (note.level != 0 && note.root != 0);
        !was_table || self.table_may_go(c, pfn)
    }
}
