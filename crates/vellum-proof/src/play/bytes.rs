//! Accesses of programs, and the kernel's copies.

use vellum::addr::{PAGE_SIZE, Va};
use vellum::entry::Codec;
use vellum::error::FaultError;
use vellum::space::{Access, Page};

use super::Play;
use crate::command::PageSpot;
use crate::small::{SAMPLES, samples};

/// Pages each CPU remembers.
const LAST: usize = 8;

/// A part of a copy, inside one page.
#[derive(Clone, Copy)]
struct Part {
    page: u64,
    /// Its first byte in the page.
    at: usize,
    /// Bytes.
    len: usize,
    /// Bytes of the copy before it.
    before: usize,
}

impl<C: Codec> Play<'_, C> {
    /// The space that a CPU runs; one that runs none is sent to `n` first.
    pub(super) fn running(&mut self, cpu: usize, n: usize) -> usize {
        let running = self.sides.iter().position(|side| Some(side.name) == self.runs[cpu]);
        running.unwrap_or_else(|| {
            self.switch(cpu, Some(n));
            n
        })
    }

    /// A program's access in the space `n`, which its CPU runs.
    pub(super) fn access(
        &mut self,
        cpu: usize,
        n: usize,
        page: u64,
        access: Access,
        sample: usize,
    ) {
        self.touch(n, page, access, sample);
        let name = self.sides[n].name;
        let last = &mut self.last[cpu];
        if last.len() == LAST {
            last.remove(0);
        }
        last.push((name, page));
    }

    /// Another access to a page this CPU accessed before: if it may be in a TLB at all, it is in
    /// this one.
    pub(super) fn again(&mut self, cpu: usize, ago: usize, access: Access) {
        let last = &self.last[cpu];
        let Some(&(name, page)) = last.get(last.len().wrapping_sub(1 + ago)) else { return };
        if let Some(n) = self.sides.iter().position(|side| side.name == name)
            && self.runs[cpu] == Some(name)
        {
            self.touch(n, page, access, ago);
        }
    }

    fn touch(&mut self, n: usize, page: u64, access: Access, sample: usize) {
        let sample = sample % SAMPLES.len();
        let va = Va((page << 12) + SAMPLES[sample] as u64);
        let cell = self.sides[n].pages.get(page);
        let stamp = self.stamp();
        // The first fault makes the page, a second one may make it writable or set marks; more is
        // no progress.
        for _ in 0..5 {
            let m = self.vm.machine();
            let tried = match access {
                Access::Read => m.load(va),
                Access::Exec => m.fetch(va),
                Access::Write => m.store(va, stamp).map(|()| stamp),
            };
            if let Ok(seen) = tried {
                let Some(mut cell) = cell.filter(|cell| cell.rights.allows(access)) else {
                    panic!("{access:?} of page {page:#x} went through, the model has {cell:?}");
                };
                let word = &mut cell.bytes[4 * sample..4 * sample + 4];
                if access == Access::Write {
                    word.copy_from_slice(&stamp);
                    self.sides[n].pages.set(page, Some(cell));
                } else {
                    self.outcome.compared += 1;
                    assert!(
                        *word == seen,
                        "{access:?} of page {page:#x} saw {seen:x?}, wanted {cell:x?}"
                    );
                }
                return;
            }
            self.outcome.faults += 1;
            if let Err(error) = self.vm.fault(&self.sides[n].space, va, access) {
                return self.refused(
                    cell,
                    access,
                    error,
                    &format_args!("of page {page:#x}").to_string(),
                );
            }
        }
        panic!("{access:?} of page {page:#x} faults for ever");
    }

    /// Bytes nobody wrote before.
    fn stamp(&mut self) -> [u8; 4] {
        self.stamp += 1;
        self.stamp.wrapping_mul(0x9e37_79b9).max(1).to_le_bytes()
    }

    /// Where a copy starts, and its parts.
    fn parts(&self, n: usize, spot: PageSpot, start: u16, bytes: u16) -> (Va, Vec<Part>) {
        let first = self.near(n, spot, true);
        let start = start as usize % PAGE_SIZE;
        let (mut parts, mut done, bytes) = (Vec::new(), 0, bytes as usize);
        while done < bytes {
            let at = start + done;
            let here = (PAGE_SIZE - at % PAGE_SIZE).min(bytes - done);
            let page = first + (at / PAGE_SIZE) as u64;
            parts.push(Part { page, at: at % PAGE_SIZE, len: here, before: done });
            done += here;
        }
        (Va((first << 12) + start as u64), parts)
    }

    /// The kernel writes, `forced` whatever the rights, as long as there are any.
    pub(super) fn copy_in(
        &mut self,
        n: usize,
        spot: PageSpot,
        start: u16,
        bytes: u16,
        forced: bool,
    ) {
        let (access, name) =
            if forced { (Access::Read, "by write_forced") } else { (Access::Write, "by copy_in") };
        let (va, parts) = self.parts(n, spot, start, bytes);
        let stamp = self.stamp();
        let buffer: Vec<u8> = (0..bytes as usize).map(|i| stamp[i % 4] ^ i as u8).collect();
        let space = &self.sides[n].space;
        let got = if forced {
            self.vm.write_forced(space, va, &buffer)
        } else {
            self.vm.copy_in(space, va, &buffer)
        };
        for &Part { page, at, len, before } in &parts {
            let cell = self.sides[n].pages.get(page);
            let Some(mut new) = cell.filter(|cell| cell.rights.allows(access)) else {
                let error = got.expect_err("the kernel wrote where the program may not");
                if error == FaultError::NoMemory && before > 0 {
                    break;
                }
                return self.refused(cell, access, error, name);
            };
            samples(at, len).for_each(|(i, n)| new.bytes[i] = buffer[before + n]);
            // Out of memory at some page, and nobody says which: pages before it are written, it
            // and those after are not.
            if let Err(error) = got
                && self.is_unwritten(n, page, new.bytes)
            {
                assert_eq!(
                    error,
                    FaultError::NoMemory,
                    "{name}: refused at page {page:#x}, {cell:?}"
                );
                return self.refused(cell, access, error, name);
            }
            self.sides[n].pages.set(page, Some(new));
        }
        if got.is_err() {
            // Every part may be written and no byte of the failing page exist: then the failure has
            // to be one for want of memory.
            assert_eq!(got, Err(FaultError::NoMemory), "{name}: failed where nothing is wrong");
            self.no_memory_or_exact(n, &parts);
        }
    }

    fn no_memory_or_exact(&mut self, n: usize, parts: &[Part]) {
        let exact = parts
            .iter()
            .any(|part| self.sides[n].pages.get(part.page).is_some_and(|cell| cell.exactly));
        if !exact {
            self.no_memory();
        }
    }

    fn is_unwritten(&self, n: usize, page: u64, new: crate::small::Contents) -> bool {
        let seen = self.vm.query(&self.sides[n].space, Va(page << 12));
        !matches!(seen, Page::Mapped { .. }) || self.contents(page, seen) != Some(new)
    }

    pub(super) fn copy_out(&mut self, n: usize, spot: PageSpot, start: u16, bytes: u16) {
        let (va, parts) = self.parts(n, spot, start, bytes);
        let mut buffer = vec![0; bytes as usize];
        let got = self.vm.copy_out(&self.sides[n].space, va, &mut buffer);
        for &Part { page, at, len, before } in &parts {
            let cell = self.sides[n].pages.get(page);
            let Some(known) = cell.filter(|cell| cell.rights.allows(Access::Read)) else {
                let error = got.expect_err("the kernel read where the program may not");
                if error == FaultError::NoMemory && before > 0 {
                    break;
                }
                return self.refused(cell, Access::Read, error, "by copy_out");
            };
            if got.is_ok() {
                self.outcome.compared += 1;
                let same = samples(at, len).all(|(i, n)| known.bytes[i] == buffer[before + n]);
                assert!(
                    same,
                    "copy_out of page {page:#x} from {at} has read {:x?}, wanted {known:x?}",
                    &buffer[before..][..len]
                );
            }
        }
        if got.is_err() {
            assert_eq!(got, Err(FaultError::NoMemory), "copy_out failed where nothing is wrong");
            self.no_memory_or_exact(n, &parts);
        }
    }

    pub(super) fn query(&mut self, n: usize, spot: PageSpot) {
        let page = self.page(n, spot);
        self.outcome.compared += 1;
        self.page_is(&self.sides[n], page);
    }
}
