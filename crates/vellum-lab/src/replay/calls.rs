//! The program's memory calls as verbs of the library.
//!
//! A call replays as it *took effect*. So if a verb fails, the trace left something out, or our
//! placement differs from the recorded one. A new mapping that cannot be made ends the replay. Any
//! other failure is counted, and the replay goes on: a run of an hour should not end at an
//! `madvise` over a hole.

use vellum::addr::Va;
use vellum::error::SpaceError;
use vellum::space::{Advice as Wish, Attrs, HugeAdvice, Placement, Rights};
use vellum_sim::format::Format;
use vellum_trace::event::{Advice, Change, Map, MapKind, Prot};

use super::files;
use super::session::Session;
use crate::cli::Layout;
use crate::error::LabError;

/// Where a heap begins if we place it: far below what is placed top-down, with room to grow. Its
/// low bits are those of the recording, for they decide how much of it huge pages can cover.
const HEAP: u64 = 0x1000_0000_0000;
const HUGE: u64 = 2 << 20;
/// Linux's `fault_around_bytes`.
const AROUND: u64 = 64 << 10;

/// Does what a call did.
pub fn call<F: Format>(s: &Session<'_, '_, F>, change: &Change) -> Result<(), LabError> {
    // It may take pages away.
    s.look_at_memory();
    match change {
        Change::Map(m) if m.moved => {
            s.moving.borrow_mut().insert(m.mapping, m.clone());
            Ok(())
        }
        Change::Map(m) => map(s, m),
        Change::Unmap { mapping, offset, len } => {
            s.cut(*mapping, *offset, *len);
            on(s, *mapping, *offset, *len, |va, len| {
                let done = s.vm.unmap(s.space, va, len);
                done.inspect(|()| s.remapped(va.0, |r| r.unmap((va.0, va.0 + len))))
            })
        }
        Change::Protect { mapping, offset, len, prot } => {
            s.maps.borrow_mut().give(*mapping, *prot);
            s.cut(*mapping, *offset, *len);
            on(s, *mapping, *offset, *len, |va, len| {
                let rights = rights(*prot);
                let change = |attrs: &mut Attrs| attrs.rights = rights;
                let done = s.vm.protect(s.space, va, len, rights);
                done.inspect(|()| s.remapped(va.0, |r| r.change((va.0, va.0 + len), change)))
            })
        }
        Change::Remap { old, offset, len, new } => remap(s, *old, *offset, *len, *new),
        Change::Advise { mapping, offset, len, advice: Advice::Other(how @ (22 | 23)) } => {
            populate(s, *mapping, (*offset, len.next_multiple_of(4096)), *how == 23)
        }
        Change::Advise { mapping, offset, len, advice: Advice::Other(files::WILL_NEED) } => {
            s.will_need(*mapping, *offset, *len);
            Ok(())
        }
        Change::Advise { mapping, offset, len, advice } => match wish(*advice) {
            Some(wish) => on(s, *mapping, *offset, *len, |va, len| {
                let done = s.vm.advise(s.space, va, len, wish);
                let Some(thp) = huge_advice(wish) else { return done };
                let change = |attrs: &mut Attrs| attrs.thp = Some(thp);
                done.inspect(|()| s.remapped(va.0, |r| r.change((va.0, va.0 + len), change)))
            }),
            None => Ok(()),
        },
        Change::Brk { mapping, len } => brk(s, *mapping, *len),
        Change::Fork { child } => fork(s, *child),
        Change::ChildEnd { child } => {
            let space = s.children.borrow_mut().remove(child);
            space.into_iter().for_each(|space| s.vm.exit(space));
            s.resident.borrow_mut().child_ends(*child);
            Ok(())
        }
        // Another program begins with nothing mapped: the kernel frees what this one had.
        Change::Exit { .. } | Change::Exec => {
            s.ended();
            Ok(())
        }
        Change::Vfork => Ok(()),
        // Its object is made when it is first used.
        Change::File { .. } => Ok(()),
        Change::FileRead { file, offset, bytes } => s.file_read(*file, *offset, *bytes),
        Change::FileWrite { file, offset, bytes } => s.file_write(*file, *offset, *bytes),
        Change::FileResize { file, bytes } => s.file_resize(*file, *bytes),
        Change::FileSync { file, offset, bytes } => s.file_sync(*file, *offset, *bytes),
        Change::FileAdvise { file, offset, bytes, advice } => {
            s.file_advise(*file, (*offset, *bytes), *advice)
        }
    }
}

/// A child gets the program's pages, and has them until it ends: at once, if it has no number.
fn fork<F: Format>(s: &Session<'_, '_, F>, number: Option<u32>) -> Result<(), LabError> {
    s.resident.borrow_mut().fork_begins();
    let space = s.with_room(|| s.vm.fork(s.space)).map_err(|_| s.out_of_memory())?;
    let child = match number {
        Some(number) => {
            let pages = s.pages_of(&space);
            s.children.borrow_mut().insert(number, space);
            Some((number, pages))
        }
        None => {
            s.vm.exit(space);
            None
        }
    };
    s.resident.borrow_mut().fork_ends(child);
    s.look_at_memory();
    Ok(())
}

/// A verb on a part of a mapping.
fn on<F: Format>(
    s: &Session<'_, '_, F>,
    mapping: u32,
    offset: u64,
    len: u64,
    mut verb: impl FnMut(Va, u64) -> Result<(), SpaceError>,
) -> Result<(), LabError> {
    let base = s.maps.borrow().get(mapping).map(|p| p.base);
    let Some(va) = base.and_then(|b| b.checked_add(offset)) else {
        return Err(s.bad_trace(format_args!("a call on mapping {mapping}, which was never made")));
    };
    settle(s, s.with_room(|| verb(Va(va), len.next_multiple_of(4096))))
}

/// What becomes of a verb's refusal.
fn settle<F: Format>(
    s: &Session<'_, '_, F>,
    result: Result<(), SpaceError>,
) -> Result<(), LabError> {
    match result {
        Ok(()) => Ok(()),
        Err(SpaceError::NoMemory) => Err(s.out_of_memory()),
        Err(_) => {
            s.call_refused();
            Ok(())
        }
    }
}

fn map<F: Format>(s: &Session<'_, '_, F>, m: &Map) -> Result<(), LabError> {
    if m.len == 0 {
        s.maps.borrow_mut().place(m.mapping, heap_base(s, m), 0, m.prot);
        return Ok(());
    }
    let len = m.len.next_multiple_of(4096);
    m.inside.into_iter().for_each(|(old, offset)| s.cut(old, offset, len));
    let placement = match (m.inside, s.layout) {
        (Some((old, offset)), Layout::Placed) => {
            let base = s.maps.borrow().get(old).map(|p| p.base);
            let Some(va) = base.and_then(|b| b.checked_add(offset)) else {
                return Err(s.bad_trace(format_args!(
                    "mapping {} lies inside mapping {old}, which was never made",
                    m.mapping
                )));
            };
            Placement::Replace(Va(va))
        }
        (None, Layout::Placed) if m.kind == MapKind::Heap => Placement::At(Va(heap_base(s, m))),
        (None, Layout::Placed) => Placement::Anywhere,
        (_, Layout::Recorded) => Placement::Replace(Va(m.base)),
    };
    let make = |placement| match files::is_object(m.kind) {
        true => s.map_file(m, placement, len, attrs(m)),
        false => Ok(s.with_room(|| s.vm.map(s.space, placement, len, attrs(m)))),
    };
    let made = match make(placement)? {
        // Something the kernel keeps in its own half (the vsyscall page): anywhere will do.
        Err(SpaceError::Range(_)) if s.layout == Layout::Recorded => make(Placement::Anywhere)?,
        made => made,
    };
    let base = match made {
        Ok(va) => va.0,
        Err(SpaceError::NoMemory) => return Err(s.out_of_memory()),
        Err(e) => {
            return Err(s.bad_trace(format_args!(
                "mapping {} of {len} bytes cannot be made: {e}",
                m.mapping
            )));
        }
    };
    s.maps.borrow_mut().place(m.mapping, base, len, m.prot);
    s.remapped(base, |r| r.map((base, base + len), attrs(m), !files::is_object(m.kind)));
    if m.populate {
        let is_shared = matches!(m.kind, MapKind::FileShared | MapKind::AnonShared);
        populate(s, m.mapping, (0, len), m.prot.write() && !is_shared)?;
    }
    Ok(())
}

/// Makes a part of a mapping present, as far as its file goes. Linux takes a fault for each page,
/// or, where it maps pages of files that are there, for each block of its fault-around.
fn populate<F: Format>(
    s: &Session<'_, '_, F>,
    mapping: u32,
    (offset, len): (u64, u64),
    write: bool,
) -> Result<(), LabError> {
    let Some(place) = s.maps.borrow().get(mapping).copied() else { return Ok(()) };
    let (start, len) = (place.base + offset, s.within_file(mapping, offset, len));
    if len == 0 {
        return Ok(());
    }
    s.warm_part(mapping, offset, offset + len);
    let done = s.with_room(|| s.vm.advise(s.space, Va(start), len, Wish::Populate { write }));
    if done.is_ok() {
        s.remapped(start, |r| r.touch(start));
        let blocks = (start + len).div_ceil(AROUND) - start / AROUND;
        s.populated(if place.kind.is_file() && !write { blocks } else { len / 4096 });
    }
    s.look_at_memory();
    settle(s, done)
}

fn remap<F: Format>(
    s: &Session<'_, '_, F>,
    old: u32,
    offset: u64,
    len: u64,
    new: u32,
) -> Result<(), LabError> {
    s.cut(old, offset, len);
    let target = s.moving.borrow_mut().remove(&new);
    let from = s.maps.borrow().get(old).map(|p| p.base);
    let (Some(m), Some(base)) = (target, from) else {
        return Err(s.bad_trace(format_args!(
            "mapping {new} is to be filled by a move that the trace does not announce"
        )));
    };
    let (from, len, new_len) =
        (base + offset, len.next_multiple_of(4096), m.len.next_multiple_of(4096));
    let to = match s.layout {
        Layout::Recorded => Placement::Replace(Va(m.base)),
        Layout::Placed => match m.inside {
            Some((over, at)) => {
                Placement::Replace(Va(s.maps.borrow().get(over).map_or(0, |p| p.base) + at))
            }
            None => Placement::Anywhere,
        },
    };
    s.lengthen(&m, old, new_len)?;
    match s.with_room(|| s.vm.remap(s.space, Va(from), len, new_len, to)) {
        Ok(va) => {
            s.maps.borrow_mut().place(new, va.0, new_len, m.prot);
            s.remapped(va.0, |r| r.move_to((from, from + len), (va.0, va.0 + new_len)));
            Ok(())
        }
        Err(SpaceError::NoMemory) => Err(s.out_of_memory()),
        Err(e) => Err(s.bad_trace(format_args!("mapping {old} cannot be moved: {e}"))),
    }
}

fn brk<F: Format>(s: &Session<'_, '_, F>, mapping: u32, len: u64) -> Result<(), LabError> {
    let Some(place) = s.maps.borrow().get(mapping).copied() else {
        return Err(s.bad_trace(format_args!("a heap, mapping {mapping}, that was never made")));
    };
    let (now, len) = (place.len, len.next_multiple_of(4096));
    if len > now {
        let attrs = Attrs::anonymous(rights(place.made));
        let at = Placement::At(Va(place.base + now));
        if let Err(e) = s.with_room(|| s.vm.map(s.space, at, len - now, attrs)) {
            return match e {
                SpaceError::NoMemory => Err(s.out_of_memory()),
                e => Err(s.bad_trace(format_args!("the heap cannot grow to {len} bytes: {e}"))),
            };
        }
        s.remapped(place.base, |r| r.map((place.base + now, place.base + len), attrs, true));
    } else if len < now {
        let done = s.with_room(|| s.vm.unmap(s.space, Va(place.base + len), now - len));
        let gone = (place.base + len, place.base + now);
        settle(s, done.inspect(|()| s.remapped(gone.0, |r| r.unmap(gone))))?;
    }
    s.maps.borrow_mut().resize(mapping, len);
    Ok(())
}

fn heap_base<F: Format>(s: &Session<'_, '_, F>, m: &Map) -> u64 {
    match s.layout {
        Layout::Placed => HEAP + m.base % HUGE,
        Layout::Recorded => m.base,
    }
}

fn attrs(m: &Map) -> Attrs {
    let mut attrs = Attrs::anonymous(rights(m.prot));
    // A stack is too short for a huge page until it is deep.
    if m.kind == MapKind::Stack {
        attrs.thp = Some(HugeAdvice::NoHuge);
    }
    attrs
}

fn rights(prot: Prot) -> Rights {
    Rights { read: prot.read(), write: prot.write(), exec: prot.exec() }
}

/// Linux's advice as ours; `None` where it changes neither contents nor page sizes. `MADV_FREE`
/// drops pages only when memory runs short.
fn wish(advice: Advice) -> Option<Wish> {
    match advice {
        Advice::DontNeed => Some(Wish::DontNeed),
        Advice::HugePage => Some(Wish::Huge),
        Advice::NoHugePage => Some(Wish::NoHuge),
        Advice::Other(25) => Some(Wish::Collapse),
        Advice::Free | Advice::Other(_) => None,
    }
}

/// What an advice says of huge pages.
fn huge_advice(wish: Wish) -> Option<HugeAdvice> {
    match wish {
        Wish::Huge => Some(HugeAdvice::Huge),
        Wish::NoHuge => Some(HugeAdvice::NoHuge),
        _ => None,
    }
}
