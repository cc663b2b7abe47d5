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

const INSIDE: u8 = 1;
const SYNTHETIC: u8 = 2;
const MOVED: u8 = 4;
const POPULATE: u8 = 8;

fn kind_number(kind: MapKind) -> u8 {
    MapKind::ALL.iter().position(|k| *k == kind).unwrap_or(0) as u8
}

fn three(out: &mut Vec<u8>, mapping: u32, offset: u64, len: u64) {
    put(out, u64::from(mapping));
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
        Change::Fork => out.push(FORK),
        Change::Exec => out.push(EXEC),
        Change::Exit { code } => {
            out.push(EXIT);
            put_signed(out, i64::from(*code));
        }
    }
}

pub(super) fn decode(b: &mut Bytes<'_>) -> Option<Change> {
    Some(match b.byte()? {
        MAP => {
            let mapping = b.varint32()?;
            let len = b.varint()?;
            let prot = Prot(b.byte()?);
            let kind = *MapKind::ALL.get(usize::from(b.byte()?))?;
            let base = b.varint()?;
            let file_offset = b.varint()?;
            let flags = b.byte()?;
            if flags & !(INSIDE | SYNTHETIC | MOVED | POPULATE) != 0 {
                return None;
            }
            let inside =
                if flags & INSIDE != 0 { Some((b.varint32()?, b.varint()?)) } else { None };
            Change::Map(Map {
                mapping,
                len,
                prot,
                kind,
                base,
                inside,
                file_offset,
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
        FORK => Change::Fork,
        EXEC => Change::Exec,
        EXIT => Change::Exit { code: i32::try_from(b.signed()?).ok()? },
        _ => return None,
    })
}
