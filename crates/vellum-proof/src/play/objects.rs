//! What is done to objects themselves.
//!
//! The model of an object stays until no handle and no mapping of it is left, and no frame.

use std::collections::BTreeMap;

use vellum::addr::PAGE_SIZE;
use vellum::entry::Codec;
use vellum::error::ObjectError;
use vellum::space::ObjectUsage;
use vellum::{Object as Handle, ObjectPart};

use super::Play;
use super::bytes::{Piece, pieces};
use crate::command::{ByteSpot, OBJECTS};
use crate::model::object::Object;
use crate::model::{Cell, Page};
use crate::small::samples;

/// Bytes of an object that is made because a command names its slot.
const BYTES: [u64; OBJECTS] = [3 * 4096 + 1002, 150 * 4096 + 2047, 600 * 4096 - 5];
/// The largest object.
const MOST: u64 = u64::MAX << 12;
/// What a buffer holds before bytes are read.
const UNREAD: u8 = 0xa5;

/// Every object, by name, and those that have a handle.
#[derive(Default)]
pub(super) struct Objects {
    all: BTreeMap<u64, Object>,
    handles: [Option<(Handle, u64)>; OBJECTS],
    /// Objects made so far.
    made: u64,
}

/// What a mapping begins with: the slot of an object that has a handle, and a byte of it.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub slot: usize,
    pub offset: u64,
    /// Whether who writes gets a copy.
    pub private: bool,
}

impl Part {
    /// Whether so many bytes from there on are no part of any object.
    pub fn is_bad(self, bytes: u64) -> bool {
        let end = self.offset as u128 + bytes.next_multiple_of(4096) as u128;
        !self.offset.is_multiple_of(4096) || end > 1 << 64
    }
}

impl Objects {
    /// The object and the index behind a page, if it shows one of an object.
    pub fn of(&self, page: Page) -> Option<(&Object, u64)> {
        page.shows().map(|(name, index)| (&self.all[&name], index))
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, page: Page) -> Option<(&mut Object, u64)> {
        let (name, index) = page.shows()?;
        Some((self.all.get_mut(&name).expect("what is mapped is kept"), index))
    }

    fn handle(&self, slot: usize) -> &(Handle, u64) {
        self.handles[slot].as_ref().expect("a slot in use")
    }

    fn model(&self, slot: usize) -> &Object {
        &self.all[&self.handle(slot).1]
    }

    fn model_mut(&mut self, slot: usize) -> &mut Object {
        let name = self.handle(slot).1;
        self.all.get_mut(&name).expect("what has a handle is kept")
    }

    /// The part as the library takes it.
    pub fn part(&self, part: Part) -> ObjectPart<'_> {
        ObjectPart { object: &self.handle(part.slot).0, offset: part.offset }
    }

    /// The first page of a part.
    pub fn page(&self, part: Part) -> Page {
        let (name, index) = (self.handle(part.slot).1, part.offset / PAGE_SIZE as u64);
        if part.private { Page::View(name, index, None) } else { Page::Object(name, index) }
    }

    fn at(&self, slot: usize, spot: ByteSpot) -> u64 {
        match spot {
            ByteSpot::Byte(at) => at,
            ByteSpot::End(before) => self.model(slot).bytes().saturating_sub(before),
            ByteSpot::Past(after) => self.model(slot).bytes().saturating_add(after),
        }
    }
}

impl<C: Codec> Play<'_, C> {
    /// The slot of an object that has a handle; it is made if there is memory.
    pub(super) fn object(&mut self, slot: u8) -> Option<usize> {
        let slot = slot as usize % OBJECTS;
        if self.objects.handles[slot].is_some() {
            return Some(slot);
        }
        match self.vm.objects().create(BYTES[slot]) {
            Err(error) => {
                assert_eq!(error, ObjectError::NoMemory);
                self.no_memory();
                None
            }
            Ok(handle) => {
                self.objects.made += 1;
                let name = self.objects.made;
                self.objects.all.insert(name, Object::new(BYTES[slot]));
                self.objects.handles[slot] = Some((handle, name));
                self.usage_is(slot);
                Some(slot)
            }
        }
    }

    pub(super) fn read_object(&mut self, slot: u8, spot: ByteSpot, bytes: u32) {
        let Some(slot) = self.object(slot) else { return };
        let at = self.objects.at(slot, spot);
        self.outcome.compared += self.bytes_are(slot, at, bytes as usize);
        self.usage_is(slot);
    }

    pub(super) fn write_object(&mut self, slot: u8, spot: ByteSpot, bytes: u32) {
        let Some(slot) = self.object(slot) else { return };
        let (at, buffer) = (self.objects.at(slot, spot), self.stamps(bytes));
        let (done, got) = self.vm.objects().write(&self.objects.handle(slot).0, at, &buffer);
        let room = self.objects.model(slot).bytes().saturating_sub(at).min(bytes as u64) as usize;
        for Piece { page, at, len, before } in pieces(at, room) {
            let object = self.objects.model_mut(slot);
            if before >= done {
                assert_eq!((done, got), (before, Err(ObjectError::NoMemory)), "page {page:#x}");
                assert!(!object.has(page), "memory for page {page:#x}, which there is");
                return self.no_memory();
            }
            let mut contents = object.contents(page);
            samples(at, len).for_each(|(i, n)| contents[i] = buffer[before + n]);
            object.set(page, contents);
        }
        let wanted = if room < bytes as usize { Err(ObjectError::Beyond) } else { Ok(()) };
        assert_eq!((done, got), (room, wanted), "{bytes} bytes written from {at:#x} on");
        self.usage_is(slot);
    }

    pub(super) fn resize(&mut self, slot: u8, spot: ByteSpot) {
        let Some(slot) = self.object(slot) else { return };
        let bytes = self.objects.at(slot, spot);
        let got = self.vm.objects().resize(&self.objects.handle(slot).0, bytes);
        if bytes > MOST {
            assert_eq!(got, Err(ObjectError::Size), "an object of {bytes:#x} bytes");
        } else {
            assert_eq!(got, Ok(()), "an object of {bytes:#x} bytes");
            self.objects.model_mut(slot).resize(bytes);
        }
        self.usage_is(slot);
    }

    pub(super) fn punch(&mut self, slot: u8, spot: ByteSpot, bytes: u64) {
        let Some(slot) = self.object(slot) else { return };
        let at = self.objects.at(slot, spot);
        self.vm.objects().punch(&self.objects.handle(slot).0, at, bytes);
        self.objects.model_mut(slot).clear(at..at.saturating_add(bytes));
        self.usage_is(slot);
    }

    /// Gives a handle back, if there is one. What is mapped of the object stays.
    pub(super) fn discard(&mut self, slot: u8) {
        if let Some((handle, _)) = self.objects.handles[slot as usize % OBJECTS].take() {
            self.vm.objects().discard(handle);
        }
    }

    /// There was no memory for an access: of a page of an object nobody knows whether it was made.
    pub(super) fn doubt(&mut self, cell: Option<Cell>) {
        if let Some((object, index)) = cell.and_then(|cell| self.objects.of_mut(cell.page)) {
            object.doubt(index);
        }
    }

    /// Compares what a read without a mapping gives. Says how many pages of sixteen bytes that was.
    fn bytes_are(&self, slot: usize, at: u64, bytes: usize) -> u64 {
        let ((handle, name), object) = (self.objects.handle(slot), self.objects.model(slot));
        let mut buffer = vec![UNREAD; bytes];
        let there = self.vm.objects().read(handle, at, &mut buffer);
        let wanted = object.bytes().saturating_sub(at).min(bytes as u64);
        assert_eq!(there as u64, wanted, "bytes of object {name} from {at:#x} on");
        assert!(buffer[there..].iter().all(|&byte| byte == UNREAD), "bytes past an object's end");
        let pieces = pieces(at, there);
        for &Piece { page, at, len, before } in &pieces {
            let known = object.contents(page);
            assert!(
                samples(at, len).all(|(i, n)| known[i] == buffer[before + n]),
                "{len} bytes of page {page:#x} of object {name} from {at} on are {:x?}, \
                 wanted {known:x?}",
                &buffer[before..][..len]
            );
        }
        pieces.len() as u64
    }

    fn usage_is(&self, slot: usize) {
        let ((handle, name), object) = (self.objects.handle(slot), self.objects.model(slot));
        let ObjectUsage { bytes, pages } = self.vm.objects().usage(handle);
        assert_eq!(bytes, object.bytes(), "size of object {name}");
        assert!(
            object.count().contains(&pages),
            "object {name} has {pages} pages, wanted {:?}",
            object.count()
        );
    }

    /// Every page of every object that has a handle, read without a mapping. Says how many.
    pub(super) fn compare_objects(&self) -> u64 {
        let mut compared = 0;
        for slot in (0..OBJECTS).filter(|&slot| self.objects.handles[slot].is_some()) {
            let object = self.objects.model(slot);
            let last = object.bytes() / PAGE_SIZE as u64;
            for index in object.indices().chain([last]) {
                compared += self.bytes_are(slot, index * PAGE_SIZE as u64, PAGE_SIZE);
            }
            self.usage_is(slot);
        }
        compared
    }

    /// Objects have as many pages as there are frames of them, and one that nobody has any more has
    /// none.
    pub(super) fn count_objects(&mut self, frames: u64) {
        let Objects { all, handles, .. } = &mut self.objects;
        let sides = &self.sides;
        let is_kept = |name: u64| {
            handles.iter().flatten().any(|(_, kept)| *kept == name)
                || sides.iter().any(|side| side.pages.has_object(name))
        };
        all.retain(|name, _| is_kept(*name));
        let least: u64 = all.values().map(|object| *object.count().start()).sum();
        let most: u64 = all.values().map(|object| *object.count().end()).sum();
        assert!(
            (least..=most).contains(&frames),
            "{frames} frames of objects, wanted {least} to {most}"
        );
    }
}
