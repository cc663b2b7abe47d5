//! Operation bytes and numbers back to events.
//!
//! Nothing in the bytes is trusted: operations, numbers, mappings, threads and the announced number
//! of events are all checked, and the number of events bounds what one block can make us allocate.
use super::encode::range_lines;
use super::{Line, MAX_RANGE_LINES, Model, call, op};
use crate::LINE;
use crate::event::{Call, Event, Flags};
use crate::totals::Totals;
use crate::varint::Bytes;

/// Decodes block after block.
pub(crate) struct Decoder {
    model: Model,
    version: u32,
    sums: Sums,
}

/// What the last block held: accesses by the bits for stores and for the kernel, and fetches.
#[derive(Clone, Copy, Default)]
struct Sums {
    accesses: [u64; 4],
    fetches: u64,
    instructions: u64,
}

/// Where events go, and the positions of those that are neither accesses nor fetches.
pub(crate) struct Decoded<'a> {
    pub(crate) events: &'a mut Vec<Event>,
    pub(crate) others: &'a mut Vec<u32>,
}

const SHORT: &str = "a number is missing or too long";

impl Decoder {
    /// For the blocks of a trace of format `version`.
    pub(crate) fn new(version: u32) -> Decoder {
        Decoder { model: Model::new(), version, sums: Sums::default() }
    }

    /// Decodes a raw block that must hold exactly `events` events, appending to `out`.
    pub(crate) fn block(
        &mut self,
        raw: &[u8],
        events: usize,
        to: &mut Decoded<'_>,
    ) -> Result<(), &'static str> {
        self.sums = Sums::default();
        let out = &mut *to.events;
        let mut b = Bytes::new(raw);
        let head = b.take(4).ok_or(SHORT)?;
        let n = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let ops = b.take(n).ok_or("more operations than bytes")?;
        let target = out.len() + events;
        out.reserve(events);
        for &code in ops {
            if out.len() >= target {
                return Err("more events than announced");
            }
            match code {
                op::STRIDE..=op::FULL => {
                    let event = self.access(code, &mut b)?;
                    out.push(event);
                }
                op::LINE_LONG..=op::LINE_FULL => {
                    let event = self.fetch(code, &mut b)?;
                    out.push(event);
                }
                op::KERNEL_READ | op::KERNEL_WRITE => {
                    let room = target - out.len();
                    self.kernel(code == op::KERNEL_WRITE, &mut b, room, out)?;
                }
                _ => {
                    let event = self.rare(code, &mut b)?;
                    to.others.push(out.len() as u32);
                    out.push(event);
                }
            }
        }
        if out.len() != target {
            return Err("fewer events than announced");
        }
        if !b.is_empty() {
            return Err("numbers left over");
        }
        Ok(())
    }

    /// Adds what the last block held, but for the `others`.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        let Sums { accesses: [loads, stores, ..], fetches, instructions } = self.sums;
        totals.loads += loads;
        totals.stores += stores;
        totals.kernel += self.sums.accesses[2] + self.sums.accesses[3];
        totals.fetches += fetches;
        totals.instructions += instructions;
    }

    #[inline(always)]
    fn access(&mut self, code: u8, b: &mut Bytes<'_>) -> Result<Event, &'static str> {
        let m = &mut self.model;
        if m.current.is_none() {
            return Err("an access before any switch to a thread");
        }
        let index = m.slot_index();
        let slot = m.slots[index];
        let mut attr = slot.attr;
        let (mapping, offset) = match code {
            op::STRIDE => (slot.mapping, slot.offset.wrapping_add(slot.stride as u64)),
            op::NEAR => (m.lane.prev_mapping, m.lane.prev_offset.wrapping_add(slot.near as u64)),
            op::AGAIN => (slot.mapping, slot.offset),
            _ => {
                let (mapping, base) = match code {
                    op::FROM_SLOT => (slot.mapping, slot.offset),
                    op::FROM_PREV => (m.lane.prev_mapping, m.lane.prev_offset),
                    _ => {
                        let size = b.byte().ok_or(SHORT)?;
                        let flags = b.byte().ok_or(SHORT)?;
                        attr = u16::from(size) | u16::from(flags) << 8;
                        let mapping = b.varint32().ok_or(SHORT)?;
                        let base = m.last.get(mapping as usize);
                        (mapping, *base.ok_or("an access to no mapping")?)
                    }
                };
                let offset = base.wrapping_add(b.signed().ok_or(SHORT)? as u64);
                if let Some(last) = m.last.get_mut(mapping as usize) {
                    *last = offset;
                }
                (mapping, offset)
            }
        };
        let size = attr as u8;
        let flags = Flags::from_bits((attr >> 8) as u8).ok_or("unknown access flags")?;
        // One comparison refuses 0 as well as sizes over 64.
        if size.wrapping_sub(1) > 63 || !m.inside(mapping, offset, u64::from(size)) {
            return Err("an access outside its mapping");
        }
        m.learn(index, mapping, offset, attr);
        self.sums.accesses[usize::from(attr >> 8 & 3)] += 1;
        Ok(Event::Access { mapping, size, flags, offset })
    }

    #[inline(always)]
    fn fetch(&mut self, code: u8, b: &mut Bytes<'_>) -> Result<Event, &'static str> {
        let m = &mut self.model;
        if m.current.is_none() {
            return Err("a fetch before any switch to a thread");
        }
        let at = m.line_indices();
        let line = match code {
            op::LINE_LONG => m.long[at.0],
            op::LINE_SHORT => m.short[at.1],
            _ => {
                let (mapping, number) = if code == op::LINE_NEAR {
                    let delta = b.signed().ok_or(SHORT)? as u64;
                    let line = m.lane.line;
                    (line.mapping, (line.offset / LINE).wrapping_add(delta))
                } else {
                    (b.varint32().ok_or(SHORT)?, b.varint().ok_or(SHORT)?)
                };
                Line {
                    mapping,
                    offset: number.checked_mul(LINE).ok_or("a line beyond all addresses")?,
                    insns: u32::from(b.byte().ok_or(SHORT)?),
                }
            }
        };
        if line.insns > 64 || !m.inside(line.mapping, line.offset, LINE) {
            return Err("a fetch outside its mapping");
        }
        m.learn_line(at, line);
        self.sums.fetches += 1;
        self.sums.instructions += u64::from(line.insns);
        Ok(Event::Fetch { mapping: line.mapping, insns: line.insns as u8, offset: line.offset })
    }

    fn kernel(
        &mut self,
        write: bool,
        b: &mut Bytes<'_>,
        room: usize,
        out: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        if self.model.current.is_none() {
            return Err("a kernel access before any switch to a thread");
        }
        let mapping = b.varint32().ok_or(SHORT)?;
        let mut at = b.varint().ok_or(SHORT)?;
        let len = b.varint().ok_or(SHORT)?;
        let lines = range_lines(at, len);
        if len == 0
            || lines > MAX_RANGE_LINES.min(room as u64)
            || !self.model.inside(mapping, at, len)
        {
            return Err("a kernel range outside its mapping or its block");
        }
        let flags = if write { Flags::KERNEL.with(Flags::WRITE) } else { Flags::KERNEL };
        let end = at + len;
        self.sums.accesses[2] += lines;
        while at < end {
            let next = (at / LINE + 1) * LINE;
            let size = (next.min(end) - at) as u8;
            out.push(Event::Access { mapping, size, flags, offset: at });
            at = next;
        }
        Ok(())
    }

    #[cold]
    fn rare(&mut self, code: u8, b: &mut Bytes<'_>) -> Result<Event, &'static str> {
        let m = &mut self.model;
        Ok(match code {
            op::SWITCH => {
                let thread = b.varint32().ok_or(SHORT)?;
                m.switch(thread)?;
                Event::Switch { thread }
            }
            op::START => {
                let thread = b.varint32().ok_or(SHORT)?;
                m.start_thread(thread)?;
                Event::ThreadStart { thread }
            }
            op::END => {
                let thread = b.varint32().ok_or(SHORT)?;
                m.end_thread(thread)?;
                Event::ThreadEnd { thread }
            }
            op::SKIP => {
                let accesses = b.varint32().ok_or(SHORT)?;
                let instructions = b.varint().ok_or(SHORT)?;
                Event::Skip { accesses, instructions }
            }
            op::CALL => {
                if m.current.is_none() {
                    return Err("a call before any switch to a thread");
                }
                let order = m.calls;
                let change =
                    call::decode(b, self.version).ok_or("a call that cannot be understood")?;
                m.apply(order, &change)?;
                Event::Call(Box::new(Call { order, change }))
            }
            _ => return Err("an unknown operation"),
        })
    }
}
