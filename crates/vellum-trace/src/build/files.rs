//! Files: what a recorder learns from descriptors, kept until the trace needs it.
//!
//! A file is known by its identity. It gets a number, and its event, when a mapping or a call first
//! names it, so that files which a program only opens cost nothing. The size is followed as well: a
//! descriptor that tells another size than the calls so far explain gives a resize first.
use super::Builder;
use crate::TraceError;
use crate::codec::files::{MAX_FILES, MAX_NAME, MAX_SIZE};
use crate::event::Change;
use std::collections::HashMap;
use std::io::Write;

/// What tells a file from every other while both exist, and mostly afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FileId {
    /// Device, as in `st_dev`.
    pub device: u64,
    /// Inode number on it.
    pub inode: u64,
    /// Time of birth in nanoseconds, or 0: an inode number that is used again is another file.
    pub born: u64,
}

/// A file as a descriptor tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileState {
    /// Which file.
    pub id: FileId,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart {
    /// The file, as it was when the call returned.
    pub file: FileState,
    /// First byte.
    pub offset: u64,
    /// How many; `u64::MAX`: to the end.
    pub bytes: u64,
}

/// A successful call on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCall {
    /// `read` and its like.
    Read(FilePart),
    /// `write` and its like.
    Write(FilePart),
    /// `ftruncate` and its like.
    Resize(FileState),
    /// `fsync` and its like.
    Sync(FilePart),
    /// `posix_fadvise` with the number of its advice, or `readahead` as 3.
    Advise(FilePart, u32),
}

struct Known {
    /// In the trace, once that has told of the file.
    number: Option<u32>,
    bytes: u64,
    name: Option<String>,
}

/// All files that have been seen.
#[derive(Default)]
pub(super) struct Files {
    known: HashMap<FileId, Known>,
    next: u32,
}

impl Files {
    fn get(&mut self, file: FileState) -> &mut Known {
        let new = || Known { number: None, bytes: file.bytes, name: None };
        self.known.entry(file.id).or_insert_with(new)
    }
}

/// The last part of a path as the format takes it: no '/', no NUL, at most 255 bytes.
fn last_part(path: &str) -> Option<String> {
    let part = path.rsplit('/').next().unwrap_or_default();
    let mut out = String::new();
    for c in part.chars().filter(|c| *c != '\0') {
        if out.len() + c.len_utf8() > MAX_NAME {
            break;
        }
        out.push(c);
    }
    (!out.is_empty()).then_some(out)
}

impl<W: Write> Builder<W> {
    /// A descriptor tells of a file: it was opened, or is seen for the first time. `name` may be a
    /// path, of which only the last part is kept.
    ///
    /// # Errors
    /// As [`crate::TraceWriter::push`], here and below.
    pub fn file_seen(&mut self, file: FileState, name: Option<&str>) -> Result<(), TraceError> {
        let known = self.files.get(file);
        if known.name.is_none() {
            known.name = name.and_then(last_part);
        }
        if known.number.is_some() {
            return self.file_size(file);
        }
        known.bytes = file.bytes;
        Ok(())
    }

    /// The file's number; tells the trace of the file if need be. `None` when the format holds no
    /// more of them.
    pub(super) fn file_number(&mut self, file: FileState) -> Result<Option<u32>, TraceError> {
        let next = self.files.next;
        let known = self.files.get(file);
        if known.number.is_some() || next >= MAX_FILES || known.bytes > MAX_SIZE {
            return Ok(known.number);
        }
        known.number = Some(next);
        let change = Change::File { file: next, bytes: known.bytes, name: known.name.clone() };
        self.files.next += 1;
        self.call(change)?;
        Ok(Some(next))
    }

    /// The number of a new mapping's file, if the mapping lies within what a file can have.
    pub(super) fn mapped_file(
        &mut self,
        file: Option<FileState>,
        offset: u64,
        len: u64,
    ) -> Result<Option<u32>, TraceError> {
        match (file, offset.checked_add(len)) {
            (Some(file), Some(end)) if end <= MAX_SIZE => {
                let number = self.file_number(file)?;
                self.file_size(file)?;
                Ok(number)
            }
            _ => Ok(None),
        }
    }

    /// The file's size, if it is not what the calls so far have made it.
    fn file_size(&mut self, file: FileState) -> Result<(), TraceError> {
        let known = self.files.get(file);
        let (Some(number), true) = (known.number, known.bytes != file.bytes) else {
            return Ok(());
        };
        if file.bytes > MAX_SIZE {
            return Ok(());
        }
        known.bytes = file.bytes;
        self.call(Change::FileResize { file: number, bytes: file.bytes })
    }

    /// A call on a file returned. What the format cannot hold is left out.
    ///
    /// # Errors
    /// As [`Builder::file_seen`].
    pub fn file_call(&mut self, call: &FileCall) -> Result<(), TraceError> {
        match *call {
            FileCall::Read(part) | FileCall::Write(part) if part.bytes == u64::MAX => Ok(()),
            FileCall::Read(part) => {
                let Some(file) = self.part(part)? else { return Ok(()) };
                self.file_size(part.file)?;
                self.call(Change::FileRead { file, offset: part.offset, bytes: part.bytes })
            }
            FileCall::Write(part) => {
                let Some(file) = self.part(part)? else { return Ok(()) };
                self.call(Change::FileWrite { file, offset: part.offset, bytes: part.bytes })?;
                let known = self.files.get(part.file);
                known.bytes = known.bytes.max(part.offset + part.bytes);
                self.file_size(part.file)
            }
            FileCall::Resize(file) => {
                self.file_number(file)?;
                self.file_size(file)
            }
            FileCall::Sync(part) => {
                let Some(file) = self.part(part)? else { return Ok(()) };
                self.call(Change::FileSync { file, offset: part.offset, bytes: part.bytes })
            }
            FileCall::Advise(part, advice) => {
                let Some(file) = self.part(part)? else { return Ok(()) };
                let FilePart { offset, bytes, .. } = part;
                self.call(Change::FileAdvise { file, offset, bytes, advice })
            }
        }
    }

    /// The number of a part's file, if the part lies within what a file can have.
    fn part(&mut self, part: FilePart) -> Result<Option<u32>, TraceError> {
        let bytes = if part.bytes == u64::MAX { 0 } else { part.bytes };
        match part.offset.checked_add(bytes) {
            Some(end) if end <= MAX_SIZE => self.file_number(part.file),
            _ => Ok(None),
        }
    }

    /// `msync` returned, having waited for the pages. Only shared mappings of files have any.
    ///
    /// # Errors
    /// As [`Builder::file_seen`].
    pub fn msync(&mut self, addr: u64, len: u64) -> Result<(), TraceError> {
        let Some((start, end)) = super::calls::range(addr, len) else {
            return Ok(());
        };
        for p in self.layout.parts(start, end) {
            let shared = p.piece.kind == crate::MapKind::FileShared;
            let (Some(behind), true) = (self.behind.get(&p.piece.mapping), shared) else {
                continue;
            };
            let (Some(file), offset) = (behind.file, behind.offset + p.offset()) else { continue };
            self.call(Change::FileSync { file, offset, bytes: p.len })?;
        }
        Ok(())
    }
}
