//! The files of a trace: an object with a pager for each.
//!
//! Format 2 says which file a mapping shows. Where it does not, and in format 1, all that lies
//! inside one reservation is taken for one file, as long as it has to be: a loader maps a library
//! as a whole and then its parts over it. Shared anonymous memory is an object without a pager.
//!
//! A *warm* file was read before the program began, as far as it went then: what is used of it is
//! in memory without any cost. A *cold* one is on the machine's disk. When memory runs out, all
//! pages of files go that are not dirty; what is wanted again is read from the disk. A memfd is
//! memory.

use std::cell::RefMut;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use vellum::addr::Va;
use vellum::error::{ObjectError, SpaceError};
use vellum::machine::Use;
use vellum::space::{Access, Advice, Attrs, Page, Placement};
use vellum::stats::Counter;
use vellum::vm::{Object, ObjectPart, ReadPattern, Vm};
use vellum_sim::SimMachine;
use vellum_sim::format::Format;
use vellum_trace::event::{Map, MapKind};

use super::folios::Folios;
use super::maps::{FileStart, Place};
use super::room::MOST_EVICTIONS;
use super::session::Session;
use super::written::Written;
use crate::cli::FileState;
use crate::error::LabError;
use crate::interrupt;

/// Bytes that are read or written at once.
const PIECE: usize = 128 << 10;
/// Bytes on both sides of a fault that it may map: more than any `file.around`.
const AROUND: u64 = 256 << 10;
/// The share of the machine's memory that warm files leave free, as a divisor.
const LEFT_FREE: u64 = 8;
/// Bytes that one call writes at most (write(2), notes).
const MOST_WRITTEN: u64 = 0x7fff_f000;
/// `POSIX_FADV_NORMAL`, `RANDOM`, `SEQUENTIAL`, `WILLNEED`, `DONTNEED`; those of `madvise` have the
/// same numbers.
const NORMAL: u32 = 0;
const RANDOM: u32 = 1;
const SEQUENTIAL: u32 = 2;
pub const WILL_NEED: u32 = 3;
const DONT_NEED: u32 = 4;
const PAGE: u64 = 4096;
/// What one table of entries maps.
const TABLE: u64 = 2 << 20;
/// Pagers from here on are those of mappings whose file the trace does not name.
const UNNAMED: u64 = 1 << 32;

/// Which object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// The file of that number.
    File(u32),
    /// What that mapping and those inside it show.
    Mapping(u32),
}

impl Key {
    fn pager(self) -> u64 {
        match self {
            Key::File(file) => u64::from(file),
            Key::Mapping(mapping) => UNNAMED + u64::from(mapping),
        }
    }
}

/// What a mapping shows from its beginning on.
#[derive(Clone, Copy, Debug)]
struct Shown {
    key: Key,
    offset: u64,
}

/// The objects that a replay has made.
#[derive(Debug, Default)]
pub struct Files {
    pub objects: BTreeMap<Key, Rc<Object>>,
    /// What each mapping shows.
    of: BTreeMap<u32, Shown>,
    /// For each piece of a file the byte up to which it was read before the program began, or is
    /// not to be.
    warm: BTreeMap<(Key, u64), u64>,
    /// How much of a file was in memory before the program began, where that is less than all.
    limits: BTreeMap<Key, u64>,
    /// How Linux would keep them.
    pub folios: BTreeMap<u32, Folios>,
    /// Which pages they have.
    written: BTreeMap<u32, Written>,
    /// Where a mapping was cut, by its number and offset: something else may lie behind it.
    cuts: BTreeSet<(u32, u64)>,
    /// What was read before the program began, which is none of its own.
    pub before: Before,
}

/// The part of a mapping that shows a folio.
#[derive(Clone, Copy, Debug)]
pub struct FolioPart {
    start: Va,
    bytes: u64,
    /// It is mapped for writing.
    write: bool,
}

impl FolioPart {
    /// Pages of it.
    pub fn pages(self) -> u64 {
        self.bytes / PAGE
    }
}

/// Counts of what was done before the program began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    counts: [i64; 4],
}

impl Before {
    /// The counters that are corrected by it.
    pub const COUNTERS: [Counter; 4] = [
        Counter::PageIn,
        Counter::ReadaheadPages,
        Counter::ReadaheadUnused,
        Counter::ObjectNodeVisits,
    ];

    /// How much of a counter was counted then.
    pub fn of(&self, counter: Counter) -> i64 {
        Self::COUNTERS.iter().zip(self.counts).find(|(c, _)| **c == counter).map_or(0, |(_, n)| n)
    }
}

/// Whether a mapping of that kind shows an object.
pub fn is_object(kind: MapKind) -> bool {
    kind.is_file() || kind == MapKind::AnonShared
}

impl<F: Format> Session<'_, '_, F> {
    /// Maps what a file has.
    pub(super) fn map_file(
        &self,
        m: &Map,
        placement: Placement,
        len: u64,
        attrs: Attrs,
    ) -> Result<Result<Va, SpaceError>, LabError> {
        let key = self.key_of(m);
        let offset = m.file_offset & !4095;
        let end = offset.saturating_add(len);
        let object =
            self.object(key, if m.kind == MapKind::AnonShared { Some(len) } else { None })?;
        if let Key::Mapping(_) = key {
            self.reach(&object, end)?;
        }
        let part = || ObjectPart { object: &object, offset };
        Ok(self.with_room(|| match m.kind {
            MapKind::FileShared | MapKind::AnonShared => {
                self.vm.map_object(self.space, placement, len, attrs, part())
            }
            _ => self.vm.map_private(self.space, placement, len, attrs, part()),
        }))
    }

    /// A mapping of a file becomes longer by a move. Where no file is named it goes on.
    pub(super) fn lengthen(&self, m: &Map, old: u32, len: u64) -> Result<(), LabError> {
        let shown = self.files.borrow().of.get(&old).copied();
        let Some(Shown { key, .. }) = shown else { return Ok(()) };
        let offset = m.file_offset & !4095;
        self.files.borrow_mut().of.insert(m.mapping, Shown { key, offset });
        if let Key::Mapping(_) = key {
            self.reach(&*self.object(key, None)?, offset.saturating_add(len))?;
        }
        Ok(())
    }

    fn key_of(&self, m: &Map) -> Key {
        let mut files = self.files.borrow_mut();
        let outer = m.inside.and_then(|(old, _)| Some(files.of.get(&old)?.key));
        let key = match (m.file, outer) {
            (Some(file), _) => Key::File(file),
            (None, Some(Key::Mapping(outer))) if m.kind.is_file() => Key::Mapping(outer),
            (None, _) => Key::Mapping(m.mapping),
        };
        files.of.insert(m.mapping, Shown { key, offset: m.file_offset & !4095 });
        key
    }

    /// The object of a file; it is made if there is none. `anonymous`: of so many bytes, without a
    /// pager.
    fn object(&self, key: Key, anonymous: Option<u64>) -> Result<Rc<Object>, LabError> {
        if let Some(object) = self.files.borrow().objects.get(&key) {
            return Ok(object.clone());
        }
        let objects = self.vm.objects();
        let made = self.with_room(|| match (anonymous, key) {
            (Some(bytes), _) => objects.create(bytes),
            (None, Key::File(file)) => {
                let FileStart { bytes, is_memory } = self.maps.borrow().file(file);
                if is_memory {
                    self.files.borrow_mut().limits.insert(key, 0);
                    objects.create(bytes)
                } else {
                    self.vm.machine().cut_file(key.pager(), bytes);
                    objects.create_paged(bytes, key.pager())
                }
            }
            (None, Key::Mapping(_)) => objects.create_paged(0, key.pager()),
        });
        let made = made.map_err(|_| self.out_of_memory())?;
        // Another CPU may have been here meanwhile.
        let there = self.files.borrow().objects.get(&key).cloned();
        if let Some(there) = there {
            objects.discard(made);
            return Ok(there);
        }
        let made = Rc::new(made);
        self.files.borrow_mut().objects.insert(key, made.clone());
        Ok(made)
    }

    /// The object is at least so long.
    fn reach(&self, object: &Object, end: u64) -> Result<(), LabError> {
        let objects = self.vm.objects();
        if objects.usage(object).bytes < end {
            self.with_room(|| objects.resize(object, end)).map_err(|e| self.bad_file(e))?;
        }
        Ok(())
    }

    /// A program is about to fault on a mapping: what the fault may map was read before, if that is
    /// a warm file.
    pub(super) fn warm_around(&self, mapping: u32, offset: u64) {
        self.warm_part(mapping, offset.saturating_sub(AROUND), offset.saturating_add(AROUND));
    }

    /// The same for all of a part of a mapping.
    pub(super) fn warm_part(&self, mapping: u32, from: u64, to: u64) {
        let files = self.files.borrow();
        let Some(&Shown { key, offset }) = files.of.get(&mapping) else { return };
        let Some(object) = files.objects.get(&key).cloned() else { return };
        drop(files);
        self.warm(key, &object, (offset.saturating_add(from), offset.saturating_add(to)));
    }

    /// How much of a part of a mapping its file has, in whole pages; all of it where none is named.
    pub(super) fn within_file(&self, mapping: u32, from: u64, len: u64) -> u64 {
        let files = self.files.borrow();
        let Some(&Shown { key, offset }) = files.of.get(&mapping) else { return len };
        let Some(object) = files.objects.get(&key).cloned() else { return len };
        drop(files);
        let end = self.vm.objects().usage(&object).bytes.next_multiple_of(4096);
        len.min(end.saturating_sub(offset.saturating_add(from)))
    }

    /// Bytes of a file that were in memory before the program began.
    fn limit(&self, key: Key) -> u64 {
        let least = self.files.borrow().limits.get(&key).copied().unwrap_or(u64::MAX);
        match key {
            Key::File(file) => least.min(self.maps.borrow().file(file).bytes),
            Key::Mapping(_) => least,
        }
    }

    /// A part of a file was read before the program began, in whole pieces.
    fn warm(&self, key: Key, object: &Object, (from, to): (u64, u64)) {
        if self.file_state != FileState::Warm {
            return;
        }
        let end = self.vm.objects().usage(object).bytes.min(self.limit(key));
        let pieces = from / PIECE as u64..to.min(end).div_ceil(PIECE as u64);
        let piece = |n: u64| {
            let done = self.files.borrow().warm.get(&(key, n)).copied().unwrap_or(0);
            (n * PIECE as u64).max(done)..end.min((n + 1) * PIECE as u64)
        };
        if pieces.clone().all(|n| piece(n).is_empty()) {
            return;
        }
        let machine = self.vm.machine();
        let before = self.vm.stats();
        machine.beforehand(|| {
            let mut buffer = vec![0; PIECE];
            for n in pieces {
                let part = piece(n);
                // Where there is little memory for it, it is read when it is wanted.
                if machine.frames_in(Use::Free) < self.frames / LEFT_FREE {
                    break;
                }
                if !part.is_empty() {
                    self.files.borrow_mut().warm.insert((key, n), part.end);
                    let bytes = &mut buffer[..(part.end - part.start) as usize];
                    let _ = self.vm.objects().read(object, part.start, bytes);
                }
            }
        });
        let after = self.vm.stats();
        let mut files = self.files.borrow_mut();
        for (count, counter) in files.before.counts.iter_mut().zip(Before::COUNTERS) {
            *count += after.get(counter) - before.get(counter);
        }
    }

    /// A part of a file leaves memory: what of it was not used so far is not in memory either.
    fn chill(&self, key: Key, from: u64, to: u64) {
        let mut files = self.files.borrow_mut();
        let pieces = from / PIECE as u64..to.div_ceil(PIECE as u64);
        if pieces.end - pieces.start < 1 << 12 {
            files.warm.extend(pieces.map(|piece| ((key, piece), u64::MAX)));
        } else {
            let limit = files.limits.entry(key).or_insert(from);
            *limit = from.min(*limit);
        }
    }

    /// The pages that a file has.
    fn written(&self, file: u32) -> RefMut<'_, Written> {
        let FileStart { bytes, .. } = self.maps.borrow().file(file);
        RefMut::map(self.files.borrow_mut(), |files| {
            files.written.entry(file).or_insert_with(|| Written::new(bytes.div_ceil(PAGE)))
        })
    }

    /// How Linux would keep a file, if its faults map folios: of those that the trace names, and
    /// that a disk has.
    fn folios(&self, file: u32) -> Option<RefMut<'_, Folios>> {
        let FileStart { bytes, is_memory } = self.maps.borrow().file(file);
        if self.folio_ahead == 0 || is_memory {
            return None;
        }
        let before = if self.file_state == FileState::Warm { bytes } else { 0 };
        Some(RefMut::map(self.files.borrow_mut(), |files| {
            files.folios.entry(file).or_insert_with(|| Folios::new(before.div_ceil(PAGE)))
        }))
    }

    /// The program is about to fault at an address of a mapping: the part of the mapping that Linux
    /// maps with the page, if that is more.
    pub(super) fn folio(
        &self,
        (mapping, offset): (u32, u64),
        va: Va,
        access: Access,
    ) -> Option<FolioPart> {
        let Place { base, len, kind, .. } = *self.maps.borrow().get(mapping)?;
        let write = access == Access::Write;
        if self.folio_ahead == 0 || !kind.is_file() || write && kind != MapKind::FileShared {
            return None;
        }
        let Shown { key: Key::File(file), offset: from } = *self.files.borrow().of.get(&mapping)?
        else {
            return None;
        };
        let object = self.files.borrow().objects.get(&Key::File(file)).cloned()?;
        let end = self.vm.objects().usage(&object).bytes.div_ceil(PAGE);
        let page = from.saturating_add(offset) / PAGE;
        let is_mapped =
            || matches!(self.vm.query(self.space, va), Page::Mapped { .. } | Page::Unmapped);
        if page >= end || self.vm.machine().beforehand(is_mapped) {
            return None;
        }
        let folio = self.folios(file)?.fault(page, end, self.folio_ahead)?;
        let start = (va.0 & !(PAGE - 1)).checked_sub((page - folio.start) * PAGE)?;
        let end = start.checked_add((folio.end - folio.start) * PAGE)?;
        let fits = base <= start && end <= base.saturating_add(len.next_multiple_of(PAGE));
        let one_table = start / TABLE == (end - 1) / TABLE;
        let cut = || {
            let inside = (mapping, start - base + 1)..(mapping, end - base);
            self.files.borrow().cuts.range(inside).next().is_some()
        };
        let fits = fits && !cut();
        (fits && one_table).then_some(FolioPart { start: Va(start), bytes: end - start, write })
    }

    /// A part of a mapping is not as the rest any more.
    pub(super) fn cut(&self, mapping: u32, offset: u64, len: u64) {
        if self.folio_ahead > 0 {
            let ends = [offset, offset.saturating_add(len).next_multiple_of(PAGE)];
            self.files.borrow_mut().cuts.extend(ends.map(|end| (mapping, end)));
        }
    }

    /// A fault was served: maps the rest of its folio.
    pub(super) fn map_folio(&self, part: FolioPart) {
        let FolioPart { start, bytes, write } = part;
        // What cannot be mapped is mapped by a fault of its own.
        let _ = self.vm.advise(self.space, start, bytes, Advice::Populate { write });
        self.look_at_memory();
    }

    /// `read` by the program, from the file's pages. What it writes to the program's memory is told
    /// by events of its own.
    pub(super) fn file_read(&self, file: u32, offset: u64, bytes: u64) -> Result<(), LabError> {
        let (key, end) = (Key::File(file), offset.saturating_add(bytes));
        let object = self.vm.machine().in_file_call(|| self.object(key, None))?;
        self.warm(key, &object, (offset, end));
        self.vm.machine().in_file_call(|| self.read_object(&object, offset, end))
    }

    fn read_object(&self, object: &Object, offset: u64, end: u64) -> Result<(), LabError> {
        let mut buffer = vec![0; PIECE.min((end - offset) as usize)];
        let (mut at, mut lacking) = (offset, 0);
        while at < end && !interrupt::requested() {
            let piece = PIECE.min((end - at) as usize);
            let (read, result) = self.vm.objects().read(object, at, &mut buffer[..piece]);
            at += read as u64;
            lacking = if read == 0 { lacking + 1 } else { 0 };
            match result {
                Err(ObjectError::NoMemory) if lacking < MOST_EVICTIONS && self.makes_room() => {}
                Err(e) => return Err(self.bad_file(e)),
                Ok(()) if read == 0 => break,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// `write` by the program.
    pub(super) fn file_write(&self, file: u32, offset: u64, bytes: u64) -> Result<(), LabError> {
        if bytes > MOST_WRITTEN {
            return Err(self.bad_trace(format_args!(
                "a call writes {bytes} bytes to file {file}, and Linux at most {MOST_WRITTEN}"
            )));
        }
        let (key, end) = (Key::File(file), offset.saturating_add(bytes));
        let object = self.vm.machine().in_file_call(|| self.object(key, None))?;
        self.warm(key, &object, (offset, end));
        if let Some(mut folios) = self.folios(file) {
            folios.write(offset, bytes);
        }
        let pages = offset / PAGE..end.div_ceil(PAGE);
        let grows = bytes > 0 && self.written(file).write(pages);
        self.vm.machine().in_file_write(grows, || {
            self.reach(&object, end)?;
            self.write_object(&object, offset, end)
        })
    }

    fn write_object(&self, object: &Object, offset: u64, end: u64) -> Result<(), LabError> {
        let buffer = vec![0; PIECE.min((end - offset) as usize)];
        let (mut at, mut lacking) = (offset, 0);
        while at < end && !interrupt::requested() {
            let piece = PIECE.min((end - at) as usize);
            let (written, result) = self.vm.objects().write(object, at, &buffer[..piece]);
            at += written as u64;
            lacking = if written == 0 { lacking + 1 } else { 0 };
            match result {
                Err(ObjectError::NoMemory) if lacking < MOST_EVICTIONS && self.makes_room() => {}
                result => result.map_err(|e| self.bad_file(e))?,
            }
        }
        Ok(())
    }

    /// `ftruncate` by the program.
    pub(super) fn file_resize(&self, file: u32, bytes: u64) -> Result<(), LabError> {
        let object = self.object(Key::File(file), None)?;
        self.with_room(|| self.vm.objects().resize(&object, bytes))
            .map_err(|e| self.bad_file(e))?;
        self.written(file).cut(bytes.div_ceil(PAGE));
        self.recount_children();
        self.vm.machine().cut_file(u64::from(file), bytes);
        if let Some(mut folios) = self.folios(file) {
            folios.forget(bytes.div_ceil(PAGE)..u64::MAX);
        }
        let mut files = self.files.borrow_mut();
        let limit = files.limits.entry(Key::File(file)).or_insert(bytes);
        *limit = bytes.min(*limit);
        Ok(())
    }

    /// `fsync` by the program.
    pub(super) fn file_sync(&self, file: u32, offset: u64, bytes: u64) -> Result<(), LabError> {
        let object = self.object(Key::File(file), None)?;
        self.with_room(|| self.vm.objects().sync(&object, offset, bytes))
            .map_err(|e| self.bad_file(e))
    }

    /// `posix_fadvise` by the program; what is not needed any more is evicted. Linux keeps a
    /// pattern for each opening of the file, and this for the file.
    pub(super) fn file_advise(
        &self,
        file: u32,
        (offset, bytes): (u64, u64),
        advice: u32,
    ) -> Result<(), LabError> {
        let key = Key::File(file);
        let (object, objects) = (self.object(key, None)?, self.vm.objects());
        let end = offset.saturating_add(bytes);
        match advice {
            NORMAL => objects.advise(&object, ReadPattern::Normal),
            RANDOM => objects.advise(&object, ReadPattern::Random),
            SEQUENTIAL => objects.advise(&object, ReadPattern::Sequential),
            WILL_NEED => {
                self.warm(key, &object, (offset, end));
                objects.will_need(&object, offset, bytes);
            }
            DONT_NEED => {
                objects.evict(&object, offset, bytes);
                self.recount_children();
                self.chill(key, offset, end);
                if let Some(mut folios) = self.folios(file) {
                    folios.forget(offset.div_ceil(PAGE)..end / PAGE);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// `madvise` by the program: it will need a part of a mapping.
    pub(super) fn will_need(&self, mapping: u32, from: u64, len: u64) {
        self.warm_part(mapping, from, from.saturating_add(len));
        let files = self.files.borrow();
        let Some(&Shown { key, offset }) = files.of.get(&mapping) else { return };
        let Some(object) = files.objects.get(&key).cloned() else { return };
        drop(files);
        self.vm.objects().will_need(&object, offset.saturating_add(from), len);
    }

    fn bad_file(&self, error: ObjectError) -> LabError {
        match error {
            ObjectError::NoMemory => self.out_of_memory(),
            e => self.bad_trace(format_args!("a file of the trace: {e}")),
        }
    }

    /// The program is over: what the disk has in hand is answered, at no cost to it.
    pub(super) fn finish_files(vm: &Vm<SimMachine<F>>) {
        let machine = vm.machine();
        machine.beforehand(|| machine.finish_io(|done| vm.objects().answer(done)));
    }

    /// The program is over, and no space maps a file any more.
    pub(super) fn close_files(files: Files, vm: &Vm<SimMachine<F>>) {
        for object in files.objects.into_values().filter_map(Rc::into_inner) {
            vm.objects().discard(object);
        }
    }
}
