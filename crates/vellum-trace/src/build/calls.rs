//! Memory system calls, as they took effect, followed in the layout and written as events.
use super::touch::{READ, WRITTEN};
use super::{Behind, Builder, FileState};
use crate::event::{Advice, Change, Map, MapKind, Prot};
use crate::{PAGE, TraceError};
use std::io::Write;

/// The heap that `brk` moves.
pub(super) struct Heap {
    mapping: u32,
    base: u64,
    len: u64,
}

/// A successful `mmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapRequest {
    /// Address it returned.
    pub addr: u64,
    /// Length asked for, bytes.
    pub len: u64,
    /// Rights.
    pub prot: Prot,
    /// What stands behind it.
    pub kind: MapKind,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// The file, if the recorder could ask about it.
    pub file: Option<FileState>,
    /// `MAP_POPULATE` or `MAP_LOCKED`.
    pub populate: bool,
}

fn page_up(v: u64) -> Option<u64> {
    v.checked_add(PAGE - 1).map(|v| v / PAGE * PAGE)
}

/// The whole pages of a range of user addresses.
pub(super) fn range(addr: u64, len: u64) -> Option<(u64, u64)> {
    let end = page_up(addr.checked_add(len)?)?;
    (addr.is_multiple_of(PAGE) && len > 0 && end <= super::MAX_USER).then_some((addr, end))
}

impl<W: Write> Builder<W> {
    /// `mmap` returned. What was there before is gone.
    ///
    /// # Errors
    /// As [`crate::TraceWriter::push`], here and below. Ranges that are not whole pages of user
    /// memory are ignored: the kernel refused them too.
    pub fn mmap(&mut self, r: &MapRequest) -> Result<(), TraceError> {
        let Some((start, end)) = range(r.addr, r.len) else {
            return Ok(());
        };
        self.materialise(start, end)?;
        let file = self.mapped_file(r.file, r.file_offset, end - start)?;
        let inside = self.replace(start, end)?;
        self.add(Map {
            mapping: self.next_mapping,
            len: end - start,
            prot: r.prot,
            kind: r.kind,
            base: start,
            inside,
            file_offset: r.file_offset,
            file,
            synthetic: false,
            moved: false,
            populate: r.populate,
        })
    }

    /// Makes room for a mapping. If the room was one reservation's throughout, says where in it,
    /// and the new mapping's event implies that the old pages are gone; otherwise unmaps what is in
    /// the way.
    fn replace(&mut self, start: u64, end: u64) -> Result<Option<(u32, u64)>, TraceError> {
        let parts = self.layout.carve(start, end);
        self.invalidate();
        let Some(first) = parts.first() else {
            return Ok(None);
        };
        let root = first.piece.root;
        let covered: u64 = parts.iter().map(|p| p.len).sum();
        let heap = self.heap.as_ref().map(|h| h.mapping);
        if covered == end - start
            && parts.iter().all(|p| p.piece.root == root)
            && heap != Some(root.0)
        {
            return Ok(Some((root.0, start - root.1)));
        }
        for p in &parts {
            self.unmapped(p)?;
        }
        Ok(None)
    }

    fn unmapped(&mut self, p: &super::layout::Part) -> Result<(), TraceError> {
        self.touches.forget(p.piece.mapping, p.offset(), p.len, READ | WRITTEN);
        self.call(Change::Unmap { mapping: p.piece.mapping, offset: p.offset(), len: p.len })
    }

    /// `munmap` returned.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn munmap(&mut self, addr: u64, len: u64) -> Result<(), TraceError> {
        let Some((start, end)) = range(addr, len) else {
            return Ok(());
        };
        self.materialise(start, end)?;
        for p in self.layout.carve(start, end) {
            self.unmapped(&p)?;
        }
        self.invalidate();
        Ok(())
    }

    /// `mprotect` returned.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), TraceError> {
        let Some((start, end)) = range(addr, len) else {
            return Ok(());
        };
        self.materialise(start, end)?;
        for p in self.layout.protect(start, end, prot) {
            let (mapping, offset, len) = (p.piece.mapping, p.offset(), p.len);
            // Whoever gets write access back may have to fault for it once more.
            self.touches.forget(mapping, offset, len, WRITTEN);
            self.call(Change::Protect { mapping, offset, len, prot })?;
        }
        self.invalidate();
        Ok(())
    }

    /// `madvise` returned.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), TraceError> {
        let Some((start, end)) = range(addr, len) else {
            return Ok(());
        };
        self.materialise(start, end)?;
        for p in self.layout.parts(start, end) {
            let (mapping, offset, len) = (p.piece.mapping, p.offset(), p.len);
            if matches!(advice, Advice::DontNeed | Advice::Free) {
                self.touches.forget(mapping, offset, len, READ | WRITTEN);
            }
            self.call(Change::Advise { mapping, offset, len, advice })?;
        }
        self.invalidate();
        Ok(())
    }

    /// `mremap` returned `to`. With `keep` (`MREMAP_DONTUNMAP`) the old range stays mapped, but
    /// empty.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn mremap(
        &mut self,
        from: u64,
        old_len: u64,
        to: u64,
        new_len: u64,
        keep: bool,
    ) -> Result<(), TraceError> {
        let (Some((start, end)), Some((to, to_end))) = (range(from, old_len), range(to, new_len))
        else {
            return Ok(());
        };
        self.materialise(start, end)?;
        if to == start && to_end <= end {
            return if to_end < end { self.munmap(to_end, end - to_end) } else { Ok(()) };
        }
        let parts = self.layout.carve(start, end);
        let Some((first, rest)) = parts.split_first() else {
            return Ok(());
        };
        for p in rest {
            self.unmapped(p)?;
        }
        self.materialise(to, to_end)?;
        for p in self.layout.carve(to, to_end) {
            self.unmapped(&p)?;
        }
        let new = self.next_mapping;
        let Behind { file, offset } =
            self.behind.get(&first.piece.mapping).copied().unwrap_or_default();
        let file_offset = if first.piece.kind.is_file() { offset + first.offset() } else { 0 };
        let map = Map {
            mapping: new,
            len: to_end - to,
            prot: first.piece.prot,
            kind: first.piece.kind,
            base: to,
            inside: None,
            file_offset,
            file,
            synthetic: false,
            moved: true,
            populate: false,
        };
        self.add(map.clone())?;
        let len = first.len.min(to_end - to);
        self.call(Change::Remap { old: first.piece.mapping, offset: first.offset(), len, new })?;
        if keep {
            let root = first.piece.root;
            self.add(Map {
                mapping: self.next_mapping,
                len: first.len,
                base: first.start,
                inside: Some((root.0, first.start - root.1)),
                moved: false,
                ..map
            })?;
        } else if len < first.len {
            self.call(Change::Unmap {
                mapping: first.piece.mapping,
                offset: first.offset() + len,
                len: first.len - len,
            })?;
        }
        Ok(())
    }

    /// `brk` returned `end`.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn brk(&mut self, end: u64) -> Result<(), TraceError> {
        let Some(end) = page_up(end).filter(|e| *e <= super::MAX_USER) else {
            return Ok(());
        };
        let Some(heap) = &self.heap else {
            let (mapping, base) = (self.next_mapping, end);
            self.heap = Some(Heap { mapping, base, len: 0 });
            return self.add(Map {
                mapping,
                len: 0,
                prot: Prot(3),
                kind: MapKind::Heap,
                base,
                inside: None,
                file_offset: 0,
                file: None,
                synthetic: false,
                moved: false,
                populate: false,
            });
        };
        let (mapping, base, old) = (heap.mapping, heap.base, heap.len);
        let Some(len) = end.checked_sub(base).filter(|len| *len != old) else {
            return Ok(());
        };
        if len > old {
            self.materialise(base + old, end)?;
            for p in self.layout.carve(base + old, end) {
                self.unmapped(&p)?;
            }
            self.layout.insert(
                base + old,
                super::Piece {
                    end,
                    mapping,
                    base,
                    root: (mapping, base),
                    prot: Prot(3),
                    kind: MapKind::Heap,
                },
            );
        } else {
            self.layout.carve(end, base + old);
            self.touches.forget(mapping, len, old - len, READ | WRITTEN);
        }
        if let Some(heap) = &mut self.heap {
            heap.len = len;
        }
        self.invalidate();
        self.call(Change::Brk { mapping, len })
    }

    /// `fork` returned in the parent. Where it `is_followed`, the child's number comes back, for
    /// [`Builder::child_end`].
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn fork(&mut self, is_followed: bool) -> Result<Option<u32>, TraceError> {
        self.touches.forget_writes();
        self.invalidate();
        let child = is_followed.then_some(self.children);
        self.children += u32::from(is_followed);
        self.call(Change::Fork { child })?;
        Ok(child)
    }

    /// A forked child ended, or executed another program.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn child_end(&mut self, child: u32) -> Result<(), TraceError> {
        self.call(Change::ChildEnd { child })
    }

    /// The program made a child that uses its memory until it executes.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn vfork(&mut self) -> Result<(), TraceError> {
        self.call(Change::Vfork)
    }

    /// `execve` is about to succeed: the recorded program ends here.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn exec(&mut self) -> Result<(), TraceError> {
        // Before the mark, so that nothing of another thread is cut off with the call.
        self.settle_all()?;
        self.settle()?;
        self.before_exec = Some(self.writer.mark()?);
        self.call(Change::Exec)
    }

    /// It failed, so that the program goes on. Nothing was added since then; what was written is to
    /// be cut off from the byte on that this gives.
    pub fn no_exec(&mut self) -> Option<u64> {
        let mark = self.before_exec.take()?;
        self.calls -= 1;
        Some(self.writer.take_back_call(mark))
    }

    /// The program ended.
    ///
    /// # Errors
    /// As [`Builder::mmap`].
    pub fn exit(&mut self, code: i32) -> Result<(), TraceError> {
        self.call(Change::Exit { code })
    }
}
