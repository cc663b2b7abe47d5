//! A program: accesses that call the kernel's fault handler and are tried again.

use super::access::{PageFault, Seen};
use super::{Cpu, Kind};
use crate::format::Format;

/// Equal faults in a row that are accepted as long as each time something was written in the table
/// concerned.
const PATIENCE: u32 = 10_000;

/// A program on a CPU, with the handler of its page faults.
pub struct Program<'c, 'a, F: Format, H> {
    cpu: &'c Cpu<'a, F>,
    handler: H,
}

impl<'c, 'a, F: Format, H, E> Program<'c, 'a, F, H>
where
    H: FnMut(u64, Kind) -> Result<(), E>,
{
    /// A program whose faults go to `handler`: `Ok` means try again, `Err` is what the access
    /// returns.
    pub fn new(cpu: &'c Cpu<'a, F>, handler: H) -> Self {
        Program { cpu, handler }
    }

    /// The CPU.
    pub fn cpu(&self) -> &'c Cpu<'a, F> {
        self.cpu
    }

    /// Reads.
    #[inline]
    pub fn load(&mut self, va: u64, size: u32, dependent: bool) -> Result<Seen, E> {
        self.access(va, size, Kind::Load, dependent)
    }

    /// Writes.
    #[inline]
    pub fn store(&mut self, va: u64, size: u32, dependent: bool) -> Result<Seen, E> {
        self.access(va, size, Kind::Store, dependent)
    }

    /// Fetches an instruction line.
    #[inline]
    pub fn fetch(&mut self, va: u64) -> Result<Seen, E> {
        self.access(va, 1, Kind::Fetch, false)
    }

    /// Any access.
    #[inline]
    pub fn access(&mut self, va: u64, size: u32, kind: Kind, dependent: bool) -> Result<Seen, E> {
        match self.cpu.access(va, size, kind, dependent) {
            Ok(seen) => Ok(seen),
            Err(fault) => self.faulted(va, size, kind, dependent, fault),
        }
    }

    #[inline(never)]
    fn faulted(
        &mut self,
        va: u64,
        size: u32,
        kind: Kind,
        dependent: bool,
        mut fault: PageFault,
    ) -> Result<Seen, E> {
        let mut equal = 1;
        loop {
            (self.handler)(fault.va, fault.kind)?;
            match self.cpu.access(va, size, kind, dependent) {
                Ok(seen) => return Ok(seen),
                // An access over several pages may fault once in each.
                Err(next) if next.va != fault.va => (fault, equal) = (next, 1),
                Err(next) => {
                    equal += 1;
                    if next == fault || equal > PATIENCE {
                        self.cpu.no_progress(&next, equal);
                    }
                    fault = next;
                }
            }
        }
    }
}
