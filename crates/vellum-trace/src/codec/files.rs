//! Rules of files that reader and writer share.
use crate::event::{Change, Map};

/// Most files in one trace. A reader keeps nothing of a file, a replay an object.
pub(crate) const MAX_FILES: u32 = 1 << 16;
/// Where a file ends at the latest: one byte more than Linux's `loff_t` can name.
pub(crate) const MAX_SIZE: u64 = 1 << 63;
/// Most bytes of a name, as Linux's `NAME_MAX`.
pub(crate) const MAX_NAME: usize = 255;

const UNKNOWN: &str = "a file that has not appeared";

/// The files that have appeared so far.
#[derive(Default)]
pub(super) struct Files {
    known: u32,
}

impl Files {
    fn known(&self, file: u32) -> Result<(), &'static str> {
        if file < self.known { Ok(()) } else { Err(UNKNOWN) }
    }

    /// Checks the file that a mapping names, if it does.
    pub(super) fn names(&self, map: &Map) -> Result<(), &'static str> {
        let Some(file) = map.file else { return Ok(()) };
        if !map.kind.is_file() {
            return Err("a mapping of no file names a file");
        }
        if map.file_offset.checked_add(map.len).is_none_or(|end| end > MAX_SIZE) {
            return Err("a mapping reaches past 2^63 bytes of its file");
        }
        self.known(file)
    }

    /// Checks a call on a file and takes note of it. Other calls are none of our business.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), &'static str> {
        match change {
            Change::File { file, bytes, name } => {
                if *file != self.known || self.known >= MAX_FILES {
                    return Err("file numbers must count from 0 to at most 65,535");
                }
                size(*bytes)?;
                if let Some(name) = name {
                    check_name(name)?;
                }
                self.known += 1;
                Ok(())
            }
            Change::FileRead { file, offset, bytes }
            | Change::FileWrite { file, offset, bytes } => {
                self.known(*file)?;
                range(*offset, *bytes)
            }
            Change::FileSync { file, offset, bytes }
            | Change::FileAdvise { file, offset, bytes, .. } => {
                self.known(*file)?;
                let bytes = if *bytes == u64::MAX { 0 } else { *bytes };
                range(*offset, bytes)
            }
            Change::FileResize { file, bytes } => {
                self.known(*file)?;
                size(*bytes)
            }
            _ => Ok(()),
        }
    }
}

fn size(bytes: u64) -> Result<(), &'static str> {
    if bytes <= MAX_SIZE { Ok(()) } else { Err("a file of more than 2^63 bytes") }
}

fn range(offset: u64, bytes: u64) -> Result<(), &'static str> {
    match offset.checked_add(bytes) {
        Some(end) if end <= MAX_SIZE => Ok(()),
        _ => Err("a call reaches past 2^63 bytes of a file"),
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err("a file's name must have 1 to 255 bytes");
    }
    if name.contains(['/', '\0']) {
        return Err("a file's name must hold neither '/' nor NUL");
    }
    Ok(())
}
