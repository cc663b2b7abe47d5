//! Calls as bytes: a kind, then its numbers. They are rare, so nothing is predicted.
use crate::event::{Advice, Change, Map, MapKind, Prot};
use crate::varint::{Bytes, put, put_signed};

const MAP: u8 = 0;
const UNMAP: u8 = 1;
const PROTECT: u8 = 2;
const REMAP: u8 = 3;
const ADVISE: u8 = 4;
const BRK: u8 = 5;
const FORK: u8 = 6;
const EXEC: u8 = 7;
const EXIT: u8 = 8;

const FILE: u8 = 9;
const FILE_READ: u8 = 10;
const FILE_WRITE: u8 = 11;
const FILE_SYNC: u8 = 12;
const FILE_RESIZE: u8 = 13;
const FILE_ADVISE: u8 = 14;
const VFORK: u8 = 15;
const FORK_CHILD: u8 = 16;
const CHILD_END: u8 = 17;

const INSIDE: u8 = 1;
const SYNTHETIC: u8 = 2;
const MOVED: u8 = 4;
const POPULATE: u8 = 8;
const OF_FILE: u8 = 16;

fn kind_number(kind: MapKind) -> u8 {
    MapKind::ALL.iter().position(|k| *k == kind).unwrap_or(0) as u8
}

fn three(out: &mut Vec<u8>, number: u32, offset: u64, len: u64) {
    put(out, u64::from(number));
    put(out, offset);
    put(out, len);
}

pub(super) fn encode(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Map(m) => {
            out.push(MAP);
            put(out, u64::from(m.mapping));
            put(out, m.len);
            out.push(m.prot.0);
            out.push(kind_number(m.kind));
            put(out, m.base);
            put(out, m.file_offset);
            let mut flags = 0;
            for (bit, on) in [
                (INSIDE, m.inside.is_some()),
                (SYNTHETIC, m.synthetic),
                (MOVED, m.moved),
                (POPULATE, m.populate),
                (OF_FILE, m.file.is_some()),
            ] {
                if on {
                    flags |= bit;
                }
            }
            out.push(flags);
            if let Some((of, at)) = m.inside {
                put(out, u64::from(of));
                put(out, at);
            }
            if let Some(file) = m.file {
                put(out, u64::from(file));
            }
        }
        Change::Unmap { mapping, offset, len } => {
            out.push(UNMAP);
            three(out, *mapping, *offset, *len);
        }
        Change::Protect { mapping, offset, len, prot } => {
            out.push(PROTECT);
            three(out, *mapping, *offset, *len);
            out.push(prot.0);
        }
        Change::Remap { old, offset, len, new } => {
            out.push(REMAP);
            three(out, *old, *offset, *len);
            put(out, u64::from(*new));
        }
        Change::Advise { mapping, offset, len, advice } => {
            out.push(ADVISE);
            three(out, *mapping, *offset, *len);
            put(out, u64::from(advice.raw()));
        }
        Change::Brk { mapping, len } => {
            out.push(BRK);
            put(out, u64::from(*mapping));
            put(out, *len);
        }
        Change::Fork { child: None } => out.push(FORK),
        Change::Fork { child: Some(child) } => {
            out.push(FORK_CHILD);
            put(out, u64::from(*child));
        }
        Change::ChildEnd { child } => {
            out.push(CHILD_END);
            put(out, u64::from(*child));
        }
        Change::Vfork => out.push(VFORK),
        Change::Exec => out.push(EXEC),
        Change::Exit { code } => {
            out.push(EXIT);
            put_signed(out, i64::from(*code));
        }
        Change::File { file, bytes, name } => {
            out.push(FILE);
            put(out, u64::from(*file));
            put(out, *bytes);
            let name = name.as_deref().unwrap_or_default().as_bytes();
            out.push(name.len() as u8);
            out.extend_from_slice(name);
        }
        Change::FileRead { file, offset, bytes } => {
            out.push(FILE_READ);
            three(out, *file, *offset, *bytes);
        }
        Change::FileWrite { file, offset, bytes } => {
            out.push(FILE_WRITE);
            three(out, *file, *offset, *bytes);
        }
        Change::FileSync { file, offset, bytes } => {
            out.push(FILE_SYNC);
            three(out, *file, *offset, *bytes);
        }
        Change::FileResize { file, bytes } => {
            out.push(FILE_RESIZE);
            put(out, u64::from(*file));
            put(out, *bytes);
        }
        Change::FileAdvise { file, offset, bytes, advice } => {
            out.push(FILE_ADVISE);
            three(out, *file, *offset, *bytes);
            put(out, u64::from(*advice));
        }
    }
}

/// A call of a trace of format `version`. Version 1 has neither files nor mappings that name one.
pub(super) fn decode(b: &mut Bytes<'_>, version: u32) -> Option<Change> {
    Some(match b.byte()? {
        MAP => {
            let mapping = b.varint32()?;
            let len = b.varint()?;
            let prot = Prot(b.byte()?);
            let kind = *MapKind::ALL.get(usize::from(b.byte()?))?;
            let base = b.varint()?;
            let file_offset = b.varint()?;
            let flags = b.byte()?;
            let known = INSIDE | SYNTHETIC | MOVED | POPULATE;
            if flags & !(if version == 1 { known } else { known | OF_FILE }) != 0 {
                return None;
            }
            let inside =
                if flags & INSIDE != 0 { Some((b.varint32()?, b.varint()?)) } else { None };
            let file = if flags & OF_FILE != 0 { Some(b.varint32()?) } else { None };
            Change::Map(Map {
                mapping,
                len,
                prot,
                kind,
                base,
                inside,
                file_offset,
                file,
                synthetic: flags & SYNTHETIC != 0,
                moved: flags & MOVED != 0,
                populate: flags & POPULATE != 0,
            })
        }
        UNMAP => Change::Unmap { mapping: b.varint32()?, offset: b.varint()?, len: b.varint()? },
        PROTECT => Change::Protect {
            mapping: b.varint32()?,
            offset: b.varint()?,
            len: b.varint()?,
            prot: Prot(b.byte()?),
        },
        REMAP => Change::Remap {
            old: b.varint32()?,
            offset: b.varint()?,
            len: b.varint()?,
            new: b.varint32()?,
        },
        ADVISE => Change::Advise {
            mapping: b.varint32()?,
            offset: b.varint()?,
            len: b.varint()?,
            advice: Advice::from_raw(b.varint32()?),
        },
        BRK => Change::Brk { mapping: b.varint32()?, len: b.varint()? },
        FORK => Change::Fork { child: None },
        FORK_CHILD if version >= 2 => Change::Fork { child: Some(b.varint32()?) },
        CHILD_END if version >= 2 => Change::ChildEnd { child: b.varint32()? },
        VFORK if version >= 2 => Change::Vfork,
        EXEC => Change::Exec,
        EXIT => Change::Exit { code: i32::try_from(b.signed()?).ok()? },
        kind if version >= 2 => file_call(kind, b)?,
        _ => return None,
    })
}

fn file_call(kind: u8, b: &mut Bytes<'_>) -> Option<Change> {
    let file = match kind {
        FILE..=FILE_ADVISE => b.varint32()?,
        _ => return None,
    };
    match kind {
        FILE => {
            let bytes = b.varint()?;
            let n = usize::from(b.byte()?);
            let name = String::from_utf8(b.take(n)?.to_vec()).ok()?;
            return Some(Change::File { file, bytes, name: (n > 0).then_some(name) });
        }
        FILE_RESIZE => return Some(Change::FileResize { file, bytes: b.varint()? }),
        _ => {}
    }
    let (offset, bytes) = (b.varint()?, b.varint()?);
    Some(match kind {
        FILE_READ => Change::FileRead { file, offset, bytes },
        FILE_WRITE => Change::FileWrite { file, offset, bytes },
        FILE_SYNC => Change::FileSync { file, offset, bytes },
        _ => Change::FileAdvise { file, offset, bytes, advice: b.varint32()? },
    })
}
