//! What is done to objects themselves.
//!
//! The model of an object stays until no handle and no mapping of it is left, and no frame.

use std::collections::BTreeMap;
use std::ops::Range;

use vellum::addr::PAGE_SIZE;
use vellum::config::Thp;
use vellum::entry::Codec;
use vellum::error::ObjectError;
use vellum::space::{Access, KeptPage, ObjectUsage, Rights, Seals};
use vellum::{Object as Handle, ObjectPart, ReadPattern};

use super::Play;
use super::bytes::{Piece, pieces};
use crate::command::{ByteSpot, OBJECTS};
use crate::model::object::Object;
use crate::model::{Cell, Page};
use crate::small::disk::cut;
use crate::small::{Contents, samples};

/// Bytes of an object that is made because a command names its slot.
const BYTES: [u64; OBJECTS] = [
    3 * 4096 + 1002,
    150 * 4096 + 2047,
    600 * 4096 - 5,
    530 * 4096 + 1003,
    540 * 4096 + 3,
    90 * 4096,
];
/// The slot of an object that has a pager.
const PAGED: usize = 3;
/// That of one of which writes are logged.
const LOGGED: usize = 4;
/// That of memory of the kernel's own.
pub(super) const KERNEL: usize = 5;
/// Bytes of zeros that are written at once, at most: what memory in plenty is enough for.
const MOST_ZEROS: u64 = 1 << 20;
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

    pub fn handle(&self, slot: usize) -> &(Handle, u64) {
        self.handles[slot].as_ref().expect("a slot in use")
    }

    pub fn model(&self, slot: usize) -> &Object {
        &self.all[&self.handle(slot).1]
    }

    pub fn model_mut(&mut self, slot: usize) -> &mut Object {
        let name = self.handle(slot).1;
        self.all.get_mut(&name).expect("what has a handle is kept")
    }

    /// Whether a mapping of a part may not have those rights.
    pub fn is_sealed(&self, part: Part, rights: Rights) -> bool {
        rights.write && !part.private && self.model(part.slot).seals().write
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

    pub fn at(&self, slot: usize, spot: ByteSpot) -> u64 {
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
        let name = self.objects.made + 1;
        let made = match slot {
            PAGED => self.vm.objects().create_paged(BYTES[slot], name),
            LOGGED => self.vm.objects().create_logged(BYTES[slot]),
            KERNEL => self.vm.objects().create_kernel(BYTES[slot]),
            _ => self.vm.objects().create(BYTES[slot]),
        };
        match made {
            Err(error) => {
                assert_eq!(error, ObjectError::NoMemory);
                self.no_memory();
                None
            }
            Ok(handle) => {
                self.objects.made = name;
                let model = match slot {
                    PAGED => self.file(name, BYTES[slot]),
                    LOGGED => Object::logged(BYTES[slot]),
                    KERNEL => Object::new(BYTES[slot]),
                    _ if self.vm.config().object_huge != Thp::Never => {
                        Object::of_blocks(BYTES[slot])
                    }
                    _ => Object::new(BYTES[slot]),
                };
                self.objects.all.insert(name, model);
                self.objects.handles[slot] = Some((handle, name));
                self.usage_is(slot);
                Some(slot)
            }
        }
    }

    /// Puts contents where the pager of that number finds them: more than the object has.
    fn file(&self, name: u64, bytes: u64) -> Object {
        let pages = bytes.div_ceil(PAGE_SIZE as u64) + 2;
        let ahead = self.vm.config().file_readahead > 1;
        let page = |index: u64| {
            let byte = |n: usize| (name * 31 + index * 7 + n as u64) as u8 | 1;
            let mut page = Contents::default();
            page.iter_mut().enumerate().for_each(|(n, at)| *at = byte(n));
            // Of a page that may be read before the object grows, the rest is zero then.
            if index == bytes / PAGE_SIZE as u64 {
                cut(&mut page, index, bytes);
            }
            page
        };
        let mut disk = self.vm.machine().disk.borrow_mut();
        (0..pages).for_each(|index| disk.put(name, index, page(index)));
        Object::paged(bytes, (0..pages).map(page), ahead)
    }

    /// Whether pagers fail to read, and to write.
    pub(super) fn fails(&self) -> (bool, bool) {
        let disk = self.vm.machine().disk.borrow();
        (disk.fails_reads, disk.fails_writes)
    }

    pub(super) fn fail(&mut self, reads: bool, writes: bool) {
        let mut disk = self.vm.machine().disk.borrow_mut();
        (disk.fails_reads, disk.fails_writes) = (reads, writes);
    }

    /// The pages from the one of a byte on, of so many bytes.
    fn span(at: u64, bytes: u64) -> Range<u64> {
        at / PAGE_SIZE as u64..at.saturating_add(bytes).div_ceil(PAGE_SIZE as u64)
    }

    pub(super) fn sync(&mut self, slot: u8, spot: ByteSpot, bytes: u64) {
        let Some(slot) = self.object(slot) else { return };
        let (at, (_, fails)) = (self.objects.at(slot, spot), self.fails());
        let got = self.vm.objects().sync(&self.objects.handle(slot).0, at, bytes);
        let (may, must) = self.objects.model_mut(slot).sync(Self::span(at, bytes), fails);
        match got {
            Ok(()) => assert!(!must, "what cannot be written was"),
            error => assert!(may && error == Err(ObjectError::Io), "sync gave {error:?}"),
        }
        self.usage_is(slot);
    }

    pub(super) fn evict(&mut self, slot: u8, spot: ByteSpot, bytes: u64) {
        let Some(slot) = self.object(slot) else { return };
        let at = self.objects.at(slot, spot);
        self.vm.objects().evict(&self.objects.handle(slot).0, at, bytes);
        self.objects.model_mut(slot).evict(Self::span(at, bytes));
        self.usage_is(slot);
    }

    pub(super) fn write_back(&mut self, slot: u8, spot: ByteSpot, bytes: u64) {
        let Some(slot) = self.object(slot) else { return };
        let (at, (_, fails)) = (self.objects.at(slot, spot), self.fails());
        self.vm.objects().write_back(&self.objects.handle(slot).0, at, bytes);
        self.objects.model_mut(slot).write_back(Self::span(at, bytes), fails);
        self.usage_is(slot);
    }

    pub(super) fn pattern(&mut self, slot: u8, pattern: ReadPattern) {
        if let Some(slot) = self.object(slot) {
            self.vm.objects().advise(&self.objects.handle(slot).0, pattern);
        }
    }

    pub(super) fn will_need(&mut self, slot: u8, spot: ByteSpot, bytes: u64) {
        let Some(slot) = self.object(slot) else { return };
        let at = self.objects.at(slot, spot);
        self.vm.objects().will_need(&self.objects.handle(slot).0, at, bytes);
        let object = self.objects.model_mut(slot);
        if object.is_paged() {
            for index in Self::span(at, bytes).filter(|_| bytes != 0) {
                if object.reaches(index) {
                    object.doubt(index);
                }
            }
        }
        self.usage_is(slot);
    }

    pub(super) fn invalidate(&mut self, slot: u8, spot: ByteSpot, bytes: u64) {
        let Some(slot) = self.object(slot) else { return };
        let (at, mut kept) = (self.objects.at(slot, spot), [KeptPage::default(); 20]);
        let handle = &self.objects.handle(slot).0;
        let (_, count) = self.vm.objects().invalidate(handle, (at, bytes), &mut kept);
        let object = self.objects.model_mut(slot);
        if bytes != 0 {
            object.evict(Self::span(at, bytes));
        }
        for page in &kept[..count] {
            let index = page.offset / PAGE_SIZE as u64;
            assert!(!page.busy && object.may_have(index), "{page:?} is kept");
            assert!(page.dirty || !object.is_paged(), "{page:?} is clean and is kept");
            assert!(!page.dirty || *object.dirty().end() > 0, "{page:?} is dirty");
        }
        self.usage_is(slot);
    }

    /// Takes pages, compares what they are, writes to each, and gives them back.
    pub(super) fn harvest(&mut self, slot: u8, spot: ByteSpot, room: u8) {
        let Some(slot) = self.object(slot) else { return };
        let (at, mut pages) = (self.objects.at(slot, spot), vec![0; room.into()]);
        let got = self.vm.objects().harvest(&self.objects.handle(slot).0, at, &mut pages);
        if slot != LOGGED {
            assert_eq!(got, Err(ObjectError::NotLogged));
            return;
        }
        let count = got.expect("a logged object");
        let told: Vec<u64> = pages[..count].iter().map(|at| at / PAGE_SIZE as u64).collect();
        let first = at / PAGE_SIZE as u64;
        let end = match told.last() {
            _ if count < pages.len() => u64::MAX,
            Some(last) => last + 1,
            None => first,
        };
        assert!(self.objects.model_mut(slot).harvest(first..end, &told), "{told:?} are told");
        self.usage_is(slot);
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
        if self.objects.model(slot).seals().write && room != 0 {
            return assert_eq!((done, got), (0, Err(ObjectError::Sealed)));
        }
        for Piece { page, at, len, before } in pieces(at, room) {
            let (fails, _) = self.fails();
            let object = self.objects.model_mut(slot);
            if before >= done {
                assert_eq!(done, before, "page {page:#x}");
                assert!(!object.has(page), "page {page:#x} is there, and {got:?}");
                return match got {
                    Err(ObjectError::Io) if fails && object.is_paged() => {}
                    got => {
                        assert_eq!(got, Err(ObjectError::NoMemory), "page {page:#x}");
                        self.no_memory();
                    }
                };
            }
            assert!(!(fails && object.is_to_be_read(page)), "page {page:#x} cannot be read");
            let mut contents = object.contents(page);
            samples(at, len).for_each(|(i, n)| contents[i] = buffer[before + n]);
            object.set(page, contents);
            object.note_write(page);
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
        } else if self.objects.model(slot).is_sealed(bytes) {
            assert_eq!(got, Err(ObjectError::Sealed), "a sealed object of {bytes:#x} bytes");
        } else {
            assert_eq!(got, Ok(()), "an object of {bytes:#x} bytes");
            // Who makes a file shorter does so here, too.
            let name = self.objects.handle(slot).1;
            if bytes < self.objects.model(slot).bytes() {
                self.vm.machine().disk.borrow_mut().truncate(name, bytes);
            }
            self.objects.model_mut(slot).resize(bytes);
        }
        self.usage_is(slot);
    }

    pub(super) fn punch(&mut self, slot: u8, spot: ByteSpot, bytes: u64) {
        let Some(slot) = self.object(slot) else { return };
        let at = self.objects.at(slot, spot);
        let stays = self.objects.model(slot).notes_writes();
        let end = at.saturating_add(bytes).min(self.objects.model(slot).bytes());
        let many = end.saturating_sub(at) > MOST_ZEROS;
        if stays && (many || self.scarce || self.fails().0) {
            // There may be no memory for all the zeros, and how far it came nobody would know.
            return;
        }
        let done = self.vm.objects().punch(&self.objects.handle(slot).0, at, bytes);
        if self.objects.model(slot).seals().write {
            return assert_eq!(done, Err(ObjectError::Sealed));
        }
        assert_eq!(done, Ok(()), "a hole");
        let range = at..at.saturating_add(bytes);
        match stays {
            true => self.objects.model_mut(slot).write_zeros(range),
            false => self.objects.model_mut(slot).clear(range),
        }
        self.usage_is(slot);
    }

    pub(super) fn block(&mut self, slot: u8, spot: ByteSpot, joins: bool) {
        let Some(slot) = self.object(slot) else { return };
        let (at, (fails, _)) = (self.objects.at(slot, spot), self.fails());
        let (objects, handle) = (self.vm.objects(), &self.objects.handle(slot).0);
        let got = match joins {
            true => objects.collapse(handle, at),
            false => objects.split(handle, at).map(|()| false),
        };
        let object = self.objects.model_mut(slot);
        match got {
            Ok(is_block) if slot == KERNEL => assert!(!is_block, "its frames stay"),
            Ok(is_block) if joins => {
                let may_be = object.collapse(at / PAGE_SIZE as u64, is_block);
                assert!(may_be, "no block at {at:#x}");
            }
            Ok(_) => {}
            Err(error) => {
                object.may_have_blocks();
                match error {
                    ObjectError::Io if fails && object.is_paged() => {}
                    // A huge page may be missing where base pages are left.
                    error => assert_eq!(error, ObjectError::NoMemory, "a block at {at:#x}"),
                }
            }
        }
        self.usage_is(slot);
    }

    pub(super) fn seal(&mut self, slot: u8, seals: Seals) {
        let Some(slot) = self.object(slot) else { return };
        let (handle, name) = self.objects.handle(slot);
        let got = self.vm.objects().seal(handle, seals);
        if seals.write && self.sides.iter().any(|side| side.pages.writes_object(*name)) {
            assert_eq!(got, Err(ObjectError::Busy), "a seal of what programs may write");
        } else {
            assert_eq!(got, Ok(()), "{seals:?}");
            self.objects.model_mut(slot).seal(seals);
        }
        self.usage_is(slot);
    }

    pub(super) fn seek(&mut self, slot: u8, spot: ByteSpot) {
        let Some(slot) = self.object(slot) else { return };
        let at = self.objects.at(slot, spot);
        let ((handle, name), object) = (self.objects.handle(slot), self.objects.model(slot));
        let data = self.vm.objects().next_data(handle, at);
        assert!(object.may_be_data(at, data), "data of object {name} from {at:#x} on: {data:x?}");
        let hole = self.vm.objects().next_hole(handle, at);
        assert!(object.may_be_hole(at, hole), "hole of object {name} from {at:#x} on: {hole:x?}");
        self.usage_is(slot);
    }

    /// Gives a handle back, if there is one. What is mapped of the object stays.
    pub(super) fn discard(&mut self, slot: u8) {
        if let Some((handle, _)) = self.objects.handles[slot as usize % OBJECTS].take() {
            self.vm.objects().discard(handle);
        }
    }

    /// There was no memory for an access: of a page of an object nobody knows whether it was made.
    pub(super) fn doubt(&mut self, cell: Option<Cell>, access: Access) {
        if let Some((object, index)) = cell.and_then(|cell| self.objects.of_mut(cell.page)) {
            object.doubt(index);
            if access == Access::Write {
                object.doubt_write(index);
            }
        }
    }

    /// Compares what a read without a mapping gives. Says how many pages of sixteen bytes that was.
    fn bytes_are(&mut self, slot: usize, at: u64, bytes: usize) -> u64 {
        let ((handle, name), object) = (self.objects.handle(slot), self.objects.model(slot));
        let (name, mut buffer) = (*name, vec![UNREAD; bytes]);
        let (there, done) = self.vm.objects().read(handle, at, &mut buffer);
        let wanted = object.bytes().saturating_sub(at).min(bytes as u64);
        assert!(buffer[there..].iter().all(|&byte| byte == UNREAD), "bytes past an object's end");
        let (pieces, (fails, _)) = (pieces(at, wanted as usize), self.fails());
        for &Piece { page, at, len, before } in &pieces {
            let object = self.objects.model_mut(slot);
            if before >= there {
                assert_eq!(there, before, "page {page:#x} of object {name}");
                assert!(object.is_paged() && !object.has(page), "{done:?} of page {page:#x}");
                match done {
                    Err(ObjectError::Io) => assert!(fails, "page {page:#x} can be read"),
                    done => {
                        assert_eq!(done, Err(ObjectError::NoMemory), "page {page:#x}");
                        self.no_memory();
                    }
                }
                return before as u64 / PAGE_SIZE as u64;
            }
            assert!(!(fails && object.is_to_be_read(page)), "page {page:#x} cannot be read");
            let known = object.contents(page);
            if object.is_paged() {
                object.set(page, known);
            }
            assert!(
                samples(at, len).all(|(i, n)| known[i] == buffer[before + n]),
                "{len} bytes of page {page:#x} of object {name} from {at} on are {:x?}, \
                 wanted {known:x?}",
                &buffer[before..][..len]
            );
        }
        assert_eq!((there as u64, done), (wanted, Ok(())), "object {name} from {at:#x} on");
        pieces.len() as u64
    }

    pub(super) fn usage_is(&self, slot: usize) {
        let ((handle, name), object) = (self.objects.handle(slot), self.objects.model(slot));
        let ObjectUsage { bytes, pages, huge_pages, dirty_pages, seals } =
            self.vm.objects().usage(handle);
        assert!(huge_pages * 512 <= pages, "{huge_pages} blocks of object {name} of {pages} pages");
        assert_eq!(bytes, object.bytes(), "size of object {name}");
        assert_eq!(seals, object.seals(), "seals of object {name}");
        assert!(
            object.dirty().contains(&dirty_pages),
            "object {name} has {dirty_pages} dirty pages, wanted {:?}",
            object.dirty()
        );
        assert!(
            object.count().contains(&pages),
            "object {name} has {pages} pages, wanted {:?}",
            object.count()
        );
    }

    /// Every page of every object that has a handle, read without a mapping; what pagers have.
    /// Says how many.
    pub(super) fn compare_objects(&mut self) -> u64 {
        let mut compared = 0;
        for slot in 0..OBJECTS {
            if self.objects.handles[slot].is_none() {
                continue;
            }
            let object = self.objects.model(slot);
            let last = (!object.is_paged()).then_some(object.bytes() / PAGE_SIZE as u64);
            let indices: Vec<u64> = object.indices().chain(last).collect();
            for index in indices {
                compared += self.bytes_are(slot, index * PAGE_SIZE as u64, PAGE_SIZE);
            }
            self.usage_is(slot);
        }
        let disk = self.vm.machine().disk.borrow();
        for (&name, object) in &self.objects.all {
            assert!(object.is_on(&disk, name), "what the pager of object {name} has");
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
