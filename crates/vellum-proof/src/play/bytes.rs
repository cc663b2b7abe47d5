//! Accesses of programs, and the kernel's copies.

use vellum::addr::{PAGE_SIZE, Va};
use vellum::entry::Codec;
use vellum::space::Access;

use super::Play;
use crate::command::PageSpot;
use crate::model::Page;
use crate::small::{SAMPLES, samples};

/// Pages each CPU remembers.
const LAST: usize = 8;

/// A piece of a range of bytes, inside one page.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub page: u64,
    /// Its first byte in the page.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Bytes of the range before it.
    pub before: usize,
}

/// The pieces of so many bytes from a byte on.
pub(super) fn pieces(first: u64, bytes: usize) -> Vec<Piece> {
    let (mut pieces, mut before) = (Vec::new(), 0);
    while before < bytes {
        let from = first + before as u64;
        let (page, at) = (from / PAGE_SIZE as u64, from as usize % PAGE_SIZE);
        let len = (PAGE_SIZE - at).min(bytes - before);
        pieces.push(Piece { page, at, len, before });
        before += len;
    }
    pieces
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
                let mut bytes = self.found(cell, access).unwrap_or_else(|error| {
                    panic!("{access:?} of page {page:#x} went through, wanted {error:?}, {cell:?}")
                });
                let word = &mut bytes[4 * sample..4 * sample + 4];
                if access == Access::Write {
                    word.copy_from_slice(&stamp);
                } else {
                    self.outcome.compared += 1;
                    assert!(
                        *word == seen,
                        "{access:?} of page {page:#x} saw {seen:x?}, wanted {bytes:x?}, {cell:x?}"
                    );
                }
                return self.becomes(n, page, access, bytes);
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

    /// Likewise, so many.
    pub(super) fn stamps(&mut self, bytes: u32) -> Vec<u8> {
        let stamp = self.stamp();
        (0..bytes as usize).map(|i| stamp[i % 4] ^ i as u8).collect()
    }

    /// Where a copy starts, and its pieces.
    fn copied(&self, n: usize, spot: PageSpot, start: u16, bytes: u16) -> (Va, Vec<Piece>) {
        let start = (self.near(n, spot, true) << 12) + start as u64 % PAGE_SIZE as u64;
        (Va(start), pieces(start, bytes as usize))
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
        let name = if forced { "by write_forced" } else { "by copy_in" };
        let (va, pieces) = self.copied(n, spot, start, bytes);
        let buffer = self.stamps(bytes as u32);
        let space = &self.sides[n].space;
        let (done, got) = if forced {
            self.vm.write_forced_part(space, va, &buffer)
        } else {
            self.vm.copy_in_part(space, va, &buffer)
        };
        for Piece { page, at, len, before } in pieces {
            let cell = self.sides[n].pages.get(page);
            let own = cell.is_some_and(|cell| !matches!(cell.page, Page::Object(..)));
            let access = if forced && own { Access::Read } else { Access::Write };
            if before >= done {
                let error = got.expect_err("not all was written");
                return self.refused(cell, access, error, name);
            }
            let mut new = self.found(cell, access).unwrap_or_else(|error| {
                panic!("{name}: page {page:#x} was written, wanted {error:?}, {cell:?}")
            });
            samples(at, len).for_each(|(i, n)| new[i] = buffer[before + n]);
            self.becomes(n, page, Access::Write, new);
        }
        assert_eq!((done, got), (bytes as usize, Ok(())), "{name}: failed where nothing is wrong");
    }

    pub(super) fn copy_out(&mut self, n: usize, spot: PageSpot, start: u16, bytes: u16) {
        let (va, pieces) = self.copied(n, spot, start, bytes);
        let mut buffer = vec![0; bytes as usize];
        let (done, got) = self.vm.copy_out_part(&self.sides[n].space, va, &mut buffer);
        for Piece { page, at, len, before } in pieces {
            let cell = self.sides[n].pages.get(page);
            if before >= done {
                let error = got.expect_err("not all was read");
                return self.refused(cell, Access::Read, error, "by copy_out");
            }
            let known = self.found(cell, Access::Read).unwrap_or_else(|error| {
                panic!("copy_out: page {page:#x} was read, wanted {error:?}, {cell:?}")
            });
            self.outcome.compared += 1;
            let same = samples(at, len).all(|(i, n)| known[i] == buffer[before + n]);
            assert!(
                same,
                "copy_out of page {page:#x} from {at} has read {:x?}, wanted {known:x?}, {cell:x?}",
                &buffer[before..][..len]
            );
            self.becomes(n, page, Access::Read, known);
        }
        assert_eq!((done, got), (bytes as usize, Ok(())), "copy_out failed where nothing is wrong");
    }

    pub(super) fn query(&mut self, n: usize, spot: PageSpot) {
        let page = self.page(n, spot);
        self.outcome.compared += 1;
        self.page_is(&self.sides[n], page);
    }
}
