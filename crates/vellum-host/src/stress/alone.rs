//! An object of one thread alone, from first to last: mapped into a space that others work in,
//! written, read, made shorter and longer, and gone. What it must hold is known exactly. A fork by
//! another thread may keep its mapping, and so the object, for longer. Or a device, which nobody
//! accesses: the machine has no memory there.

use vellum::addr::Va;
use vellum::entry::{CacheMode, Codec};
use vellum::error::{FaultError, ObjectError, SpaceError};

use vellum::space::{Access, Advice, Attrs, HugeAdvice, Page, Placement, Rights, Seals, Space};
use vellum::vm::{DeviceMemory, Object, ObjectPart, Vm};

use super::ops::Op;
use crate::machine::Host;

const PAGE: u64 = 4096;
/// Pages of the object.
const PAGES: u64 = 24;
/// The page that the mapping begins with.
const FROM: u64 = 4;
/// Bytes of the mapping: longer than the object, and than any hole among the ranges of a test.
const BYTES: u64 = 16 << 20;
/// Bytes of the object with a block.
const BLOCK: u64 = 2 << 20;
/// Pages of the object that are written.
const WRITTEN: [u64; 4] = [4, 5, 9, 23];

/// Why a step ended.
enum Trouble {
    NoMemory,
    Wrong(String),
}

impl From<FaultError> for Trouble {
    fn from(error: FaultError) -> Trouble {
        match error {
            FaultError::NoMemory => Trouble::NoMemory,
            error => Trouble::Wrong(format!("an access to an object gave {error:?}")),
        }
    }
}

impl From<ObjectError> for Trouble {
    fn from(error: ObjectError) -> Trouble {
        match error {
            ObjectError::NoMemory => Trouble::NoMemory,
            error => Trouble::Wrong(format!("a verb on an object gave {error:?}")),
        }
    }
}

/// Makes such an object and does what `op` is for. `access` is a program's access in the space,
/// faults included. Says whether there was memory for all of it.
///
/// # Errors
/// What is wrong.
pub fn play<C: Codec>(
    vm: &Vm<Host<C, true>>,
    space: &Space,
    op: Op,
    access: impl FnMut(Va, Access, u64) -> Result<u64, FaultError>,
) -> Result<bool, String> {
    if op == Op::MapDevice {
        return play_device(vm, space);
    }
    let Ok(object) = vm.objects().create(PAGES * PAGE) else { return Ok(false) };
    let attrs = Attrs { thp: Some(HugeAdvice::NoHuge), ..Attrs::anonymous(Rights::READ_WRITE) };
    let part = ObjectPart { object: &object, offset: FROM * PAGE };
    let at = match vm.map_object(space, Placement::Anywhere, BYTES, attrs, part) {
        Ok(at) => at,
        Err(SpaceError::NoMemory) => {
            vm.objects().discard(object);
            return Ok(false);
        }
        Err(error) => return Err(format!("mapping an object gave {error:?}")),
    };
    let mut own = Own { vm, object, at, access };
    let done = own.fill().and_then(|()| match op {
        Op::MapPrivate => own.copies(space, attrs),
        op => own.act(op),
    });
    let Own { object, mut access, .. } = own;
    let (held, last) = if op == Op::MapObject && done.is_ok() {
        // The mapping keeps it.
        vm.objects().discard(object);
        (None, access(word_at(at, FROM), Access::Read, 0))
    } else {
        (Some(object), Ok(stamp(FROM)))
    };
    let unmapped = vm.unmap(space, at, BYTES);
    held.into_iter().for_each(|object| vm.objects().discard(object));
    unmapped.map_err(|error| format!("unmapping an object gave {error:?}"))?;
    match done {
        Err(Trouble::Wrong(what)) => Err(what),
        Err(Trouble::NoMemory) => Ok(false),
        Ok(()) if last == Ok(stamp(FROM)) => Ok(true),
        Ok(()) => Err(format!("an object that its mapping keeps gave {last:x?}")),
    }
}

/// Makes a device, maps all of it, takes rights and gives them back, and looks what is mapped. Says
/// whether there was memory for that.
fn play_device<C: Codec>(vm: &Vm<Host<C, true>>, space: &Space) -> Result<bool, String> {
    // Part of the mapping is a leaf of 2 MiB.
    const MEMORY: DeviceMemory = DeviceMemory {
        address: 1 << 46,
        bytes: (2 << 20) + 3 * PAGE,
        cache: CacheMode::Uncached,
        writable: true,
    };
    // SAFETY: nobody accesses it.
    let Ok(device) = (unsafe { vm.objects().create_device(MEMORY) }) else { return Ok(false) };
    let (attrs, part) =
        (Attrs::anonymous(Rights::READ_WRITE), ObjectPart { object: &device, offset: 0 });
    let mapped = vm.map_object(space, Placement::Anywhere, MEMORY.bytes, attrs, part);
    let done = mapped.and_then(|at| {
        let inside = |page: u64, pages: u64| (Va(at.0 + page * PAGE), pages * PAGE);
        let ((one, bytes), (all, length)) = (inside(5, 2), inside(0, MEMORY.bytes / PAGE));
        let populate = || vm.advise(space, all, length, Advice::Populate { write: true });
        let done = populate().and_then(|()| {
            vm.protect(space, one, bytes, Rights::NONE)?;
            vm.protect(space, one, bytes, Rights::READ_WRITE)?;
            populate()
        });
        let shows = |page: u64| match vm.query(space, inside(page, 1).0) {
            Page::Device { pfn, level, cache, flags, .. } => {
                let within = inside(page, 1).0.page() & ((1 << (level.shift() - 12)) - 1);
                let there = pfn.0 + within == MEMORY.address / PAGE + page;
                there && cache == MEMORY.cache && flags.write
            }
            _ => false,
        };
        let right = done.is_err() || [0, 5, 6, 511, 512, 514].into_iter().all(shows);
        vm.unmap(space, all, length)?;
        done.map(|()| right)
    });
    vm.objects().discard(device);
    match done {
        Ok(true) => Ok(true),
        Ok(false) => Err("a device is not what is mapped".into()),
        Err(SpaceError::NoMemory) => Ok(false),
        Err(error) => Err(format!("mapping a device gave {error:?}")),
    }
}

/// Where the word of a page is mapped.
fn word_at(at: Va, page: u64) -> Va {
    Va(at.0 + (page - FROM) * PAGE + page * 8)
}

fn stamp(page: u64) -> u64 {
    0x00ab_0000 + page
}

/// The object, mapped.
struct Own<'v, C: Codec, A> {
    vm: &'v Vm<Host<C, true>>,
    object: Object,
    at: Va,
    access: A,
}

impl<C: Codec, A: FnMut(Va, Access, u64) -> Result<u64, FaultError>> Own<'_, C, A> {
    fn va(&self, page: u64) -> Va {
        word_at(self.at, page)
    }

    /// Stores to some pages, and finds them in the object.
    fn fill(&mut self) -> Result<(), Trouble> {
        for page in WRITTEN {
            let va = self.va(page);
            (self.access)(va, Access::Write, stamp(page))?;
        }
        self.all_are(|_| true)
    }

    fn act(&mut self, op: Op) -> Result<(), Trouble> {
        let objects = self.vm.objects();
        match op {
            Op::WriteObject => {
                let value = 77u64.to_ne_bytes();
                objects.write(&self.object, 9 * PAGE + 72, &value).1?;
                self.is(9, 77)?;
                objects.write(&self.object, 9 * PAGE + 72, &stamp(9).to_ne_bytes()).1?;
            }
            Op::Resize => {
                // Page 9 is cut before its word.
                objects.resize(&self.object, 9 * PAGE + 64)?;
                self.is_past(10)?;
                self.is_past(23)?;
                self.is(9, 0)?;
                objects.resize(&self.object, PAGES * PAGE)?;
                return self.all_are(|page| page < 9);
            }
            Op::Punch => {
                objects.punch(&self.object, 5 * PAGE + 40, 4 * PAGE + 40)?;
                return self.all_are(|page| page == 4 || page == 23);
            }
            Op::Seal => {
                objects.seal(&self.object, Seals { shrink: true, ..Seals::default() })?;
                self.is_sealed(9 * PAGE + 64)?;
                objects.resize(&self.object, (PAGES + 1) * PAGE)?;
                objects.seal(&self.object, Seals { grow: true, ..Seals::default() })?;
                self.is_sealed((PAGES + 2) * PAGE)?;
                self.is_sealed(0)?;
                self.is_past(PAGES + 1)?;
                return self.all_are(|_| true);
            }
            Op::Block => {
                objects.resize(&self.object, BLOCK)?;
                let is_made = objects.collapse(&self.object, FROM * PAGE);
                let is_block = objects.usage(&self.object).huge_pages == 1;
                if is_made.is_ok_and(|is_made| is_made != is_block) {
                    return Err(Trouble::Wrong(format!("a block: {is_block}, and {is_made:?}")));
                }
                self.all_are(|_| true)?;
                objects.split(&self.object, FROM * PAGE)?;
                objects.resize(&self.object, PAGES * PAGE)?;
            }
            Op::Seek => self.extents_are(&[4, 6, 9, 10, 23, 24])?,
            _ => {}
        }
        self.is_past(PAGES)?;
        self.all_are(|_| true)
    }

    /// What is written through a private view stays there, and the object as it is.
    fn copies(&mut self, space: &Space, attrs: Attrs) -> Result<(), Trouble> {
        let (vm, part) = (self.vm, ObjectPart { object: &self.object, offset: FROM * PAGE });
        let view = match vm.map_private(space, Placement::Anywhere, BYTES, attrs, part) {
            Ok(view) => view,
            Err(SpaceError::NoMemory) => return Err(Trouble::NoMemory),
            Err(error) => return Err(Trouble::Wrong(format!("a private view gave {error:?}"))),
        };
        let shared = std::mem::replace(&mut self.at, view);
        let mut seen = self.all_are(|_| true);
        for (page, word) in [(9, 78), (12, 79)] {
            let va = self.va(page);
            seen = seen.and_then(|()| Ok((self.access)(va, Access::Write, word).map(drop)?));
        }
        seen = seen.and_then(|()| self.is(9, 78)).and_then(|()| self.is(12, 79));
        // Page 9 is cut before its word, and page 12 wholly; the copies stay.
        vm.objects().resize(&self.object, 9 * PAGE + 64)?;
        seen = seen.and_then(|()| self.is(9, 78)).and_then(|()| self.is(12, 79));
        seen = seen.and_then(|()| self.is(5, stamp(5))).and_then(|()| self.is_past(23));
        self.at = shared;
        seen = seen.and_then(|()| self.is(9, 0)).and_then(|()| self.is_past(12));
        match vm.unmap(space, view, BYTES) {
            Ok(()) => seen,
            Err(error) => Err(Trouble::Wrong(format!("unmapping a private view gave {error:?}"))),
        }
    }

    fn is_sealed(&self, bytes: u64) -> Result<(), Trouble> {
        match self.vm.objects().resize(&self.object, bytes) {
            Err(ObjectError::Sealed) => Ok(()),
            got => Err(Trouble::Wrong(format!("{bytes:#x} bytes of a sealed object: {got:?}"))),
        }
    }

    /// Whether the object has pages exactly in those runs: first, end, first, end.
    fn extents_are(&self, wanted: &[u64]) -> Result<(), Trouble> {
        let (objects, object) = (self.vm.objects(), &self.object);
        let (mut at, mut found) = (Some(0), Vec::new());
        while let Some(first) = at.and_then(|at| objects.next_data(object, at)) {
            // From within the run.
            at = objects.next_hole(object, first + 1);
            found.extend([first, at.unwrap_or(u64::MAX)].map(|byte| byte / PAGE));
        }
        match found == wanted {
            true => Ok(()),
            false => Err(Trouble::Wrong(format!("an object has {found:?}, wanted {wanted:?}"))),
        }
    }

    /// Whether the pages that were written still have their words, or have zeros.
    fn all_are(&mut self, kept: impl Fn(u64) -> bool) -> Result<(), Trouble> {
        for page in WRITTEN {
            let wanted = if kept(page) { stamp(page) } else { 0 };
            self.is(page, wanted)?;
            let mut value = [0xaa; 8];
            let (there, done) =
                self.vm.objects().read(&self.object, page * PAGE + page * 8, &mut value);
            done?;
            if (there, u64::from_ne_bytes(value)) != (8, wanted) {
                let what = format!("page {page} of an object reads {value:x?}, wanted {wanted:#x}");
                return Err(Trouble::Wrong(what));
            }
        }
        Ok(())
    }

    fn is(&mut self, page: u64, wanted: u64) -> Result<(), Trouble> {
        let va = self.va(page);
        match (self.access)(va, Access::Read, 0)? {
            word if word == wanted => Ok(()),
            word => Err(Trouble::Wrong(format!(
                "page {page} of an object has {word:#x} at {va:?}, wanted {wanted:#x}"
            ))),
        }
    }

    fn is_past(&mut self, page: u64) -> Result<(), Trouble> {
        let va = self.va(page);
        match (self.access)(va, Access::Read, 0) {
            Err(FaultError::Beyond) => Ok(()),
            Err(FaultError::NoMemory) => Err(Trouble::NoMemory),
            got => Err(Trouble::Wrong(format!("{va:?}, past an object's end, gave {got:x?}"))),
        }
    }
}
