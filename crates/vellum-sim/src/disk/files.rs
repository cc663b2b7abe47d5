//! What the disk holds: for each page of a file what a frame held when it was written, and for one
//! that was never written a version of its own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::contents::{Contents, Saved};
use crate::machine::ram::{PAGE, Ram};

/// A page on the disk.
pub(crate) struct Stored {
    saved: Saved,
    /// Its real bytes, where they were in use.
    bytes: Option<Box<[u8; PAGE]>>,
}

/// Pages of all files, by the file's number and the page's.
#[derive(Default)]
pub(crate) struct Files {
    pages: BTreeMap<(u64, u64), Stored>,
    /// Sizes in bytes, where anybody said.
    sizes: BTreeMap<u64, u64>,
}

impl Files {
    /// A file has so many bytes on the disk, or fewer.
    pub(crate) fn cut(&mut self, file: u64, bytes: u64, contents: &mut Contents) {
        let size = self.sizes.entry(file).or_insert(bytes);
        *size = bytes.min(*size);
        let first = bytes.div_ceil(PAGE as u64);
        let mut rest = self.pages.split_off(&(file, first));
        self.pages.append(&mut rest.split_off(&(file + 1, 0)));
        let within = (bytes % PAGE as u64) as usize;
        if let Some(last) = self.pages.get_mut(&(file, bytes / PAGE as u64)).filter(|_| within > 0)
        {
            contents.cut_saved(&mut last.saved, within);
            if let Some(bytes) = &mut last.bytes {
                bytes[within..].fill(0);
            }
        }
    }

    /// Whether the disk has pages of a file from that one on.
    pub(crate) fn has(&self, (file, page): (u64, u64)) -> bool {
        let size = self.sizes.get(&file).copied().unwrap_or(u64::MAX);
        page < size.div_ceil(PAGE as u64)
    }

    /// A frame becomes what the disk holds of a page; says how many bytes that are.
    pub(crate) fn read(
        &mut self,
        page: (u64, u64),
        pfn: u64,
        (contents, ram): (&mut Contents, &Ram),
    ) -> u64 {
        if contents.has_bytes(pfn) {
            ram.zero(pfn);
        }
        contents.clear(pfn);
        if !self.has(page) {
            return 0;
        }
        let stored = match self.pages.entry(page) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => free.insert(Stored { saved: contents.fresh(), bytes: None }),
        };
        if let Some(bytes) = &stored.bytes {
            ram.write(pfn, 0, &bytes[..]);
        }
        contents.restore(pfn, &stored.saved, stored.bytes.is_some());
        PAGE as u64
    }

    /// What a frame holds, to be put on the disk.
    pub(crate) fn take(pfn: u64, (contents, ram): (&mut Contents, &Ram)) -> Stored {
        let bytes = contents.has_bytes(pfn).then(|| {
            let mut bytes = Box::new([0; PAGE]);
            ram.read(pfn, 0, &mut bytes[..]);
            bytes
        });
        Stored { saved: contents.save(pfn), bytes }
    }

    pub(crate) fn write(&mut self, page: (u64, u64), stored: Stored) {
        if let Some(size) = self.sizes.get_mut(&page.0) {
            *size = (*size).max((page.1 + 1) * PAGE as u64);
        }
        self.pages.insert(page, stored);
    }
}
