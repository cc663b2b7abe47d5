//! Events to operation bytes and numbers.
use super::{Line, MAX_RANGE_LINES, Model, call, op};
use crate::LINE;
use crate::event::{Event, Flags};
use crate::frame::{MAX_EVENTS, MAX_RAW};
use crate::varint::{put, put_signed};

/// Room that any single event is sure to fit in; the longest is a file with its name.
const SLACK: usize = 512;

/// Collects one block.
pub(crate) struct Encoder {
    model: Model,
    ops: Vec<u8>,
    numbers: Vec<u8>,
    events: usize,
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        Encoder {
            model: Model::new(),
            ops: Vec::with_capacity(MAX_RAW),
            numbers: Vec::with_capacity(MAX_RAW),
            events: 0,
        }
    }

    /// Must the block be taken away before `more` events are pushed?
    #[inline(always)]
    pub(crate) fn full(&self, more: usize) -> bool {
        self.ops.len() + self.numbers.len() + SLACK > MAX_RAW || self.events + more > MAX_EVENTS
    }

    /// The block collected so far as raw bytes and its number of events; the collection starts
    /// afresh.
    pub(crate) fn take(&mut self, raw: &mut Vec<u8>) -> usize {
        raw.clear();
        raw.extend_from_slice(&(self.ops.len() as u32).to_le_bytes());
        raw.extend_from_slice(&self.ops);
        raw.extend_from_slice(&self.numbers);
        self.ops.clear();
        self.numbers.clear();
        std::mem::take(&mut self.events)
    }

    /// The last call, which nothing has followed, was none.
    pub(crate) fn take_back_call(&mut self) {
        self.model.calls -= 1;
    }

    /// Adds an event, or says which rule it breaks (then nothing was added).
    pub(crate) fn push(&mut self, event: &Event) -> Result<(), &'static str> {
        match event {
            Event::Access { mapping, size, flags, offset } => {
                self.current()?;
                if *size == 0
                    || *size > 64
                    || !self.model.inside(*mapping, *offset, u64::from(*size))
                {
                    return Err("an access outside its mapping, or not of 1 to 64 bytes");
                }
                self.access(*mapping, *offset, *size, *flags);
            }
            Event::Fetch { mapping, insns, offset } => {
                self.current()?;
                let is_line = offset.is_multiple_of(LINE) && *insns <= 64;
                if !is_line || !self.model.inside(*mapping, *offset, LINE) {
                    return Err("a fetch that is not a line of its mapping, or of more than 64 \
                                instructions");
                }
                self.fetch(*mapping, *offset, *insns);
            }
            Event::Switch { thread } => {
                self.model.switch(*thread)?;
                self.ops.push(op::SWITCH);
                put(&mut self.numbers, u64::from(*thread));
            }
            Event::ThreadStart { thread } => {
                self.model.start_thread(*thread)?;
                self.ops.push(op::START);
                put(&mut self.numbers, u64::from(*thread));
            }
            Event::ThreadEnd { thread } => {
                self.model.end_thread(*thread)?;
                self.ops.push(op::END);
                put(&mut self.numbers, u64::from(*thread));
            }
            Event::Skip { accesses, instructions } => {
                self.current()?;
                self.ops.push(op::SKIP);
                put(&mut self.numbers, u64::from(*accesses));
                put(&mut self.numbers, *instructions);
            }
            Event::Call(c) => {
                self.current()?;
                self.model.apply(c.order, &c.change)?;
                self.ops.push(op::CALL);
                call::encode(&mut self.numbers, &c.change);
            }
        }
        let is_counted = matches!(event, Event::Access { .. } | Event::Fetch { .. });
        self.events += usize::from(!is_counted);
        Ok(())
    }

    fn current(&self) -> Result<(), &'static str> {
        match self.model.current {
            Some(_) => Ok(()),
            None => Err("an event before any switch to a thread"),
        }
    }

    /// Adds an access that keeps the rules.
    #[inline(always)]
    pub(crate) fn access(&mut self, mapping: u32, offset: u64, size: u8, flags: Flags) {
        debug_assert!(self.model.current.is_some());
        debug_assert!(self.model.inside(mapping, offset, u64::from(size)) && size <= 64);
        let m = &mut self.model;
        let attr = u16::from(size) | u16::from(flags.bits()) << 8;
        let index = m.slot_index();
        let slot = m.slots[index];
        let near = m.lane.prev_mapping == mapping;
        let here = slot.mapping == mapping;
        let op = if slot.attr != attr || !(near || here) {
            op::FULL
        } else if here && offset == slot.offset.wrapping_add(slot.stride as u64) {
            op::STRIDE
        } else if near && offset == m.lane.prev_offset.wrapping_add(slot.near as u64) {
            op::NEAR
        } else if here && offset == slot.offset {
            op::AGAIN
        } else {
            let from_slot = (offset.wrapping_sub(slot.offset) as i64).unsigned_abs();
            let from_prev = (offset.wrapping_sub(m.lane.prev_offset) as i64).unsigned_abs();
            if here && (!near || from_slot <= from_prev) { op::FROM_SLOT } else { op::FROM_PREV }
        };
        self.ops.push(op);
        if op >= op::FROM_SLOT {
            let base = match op {
                op::FROM_SLOT => slot.offset,
                op::FROM_PREV => m.lane.prev_offset,
                _ => {
                    self.numbers.push(size);
                    self.numbers.push(flags.bits());
                    put(&mut self.numbers, u64::from(mapping));
                    m.last[mapping as usize]
                }
            };
            put_signed(&mut self.numbers, offset.wrapping_sub(base) as i64);
            m.last[mapping as usize] = offset;
        }
        m.learn(index, mapping, offset, attr);
        self.events += 1;
    }

    /// Adds an instruction line that keeps the rules.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, mapping: u32, offset: u64, insns: u8) {
        debug_assert!(self.model.current.is_some() && offset.is_multiple_of(LINE) && insns <= 64);
        debug_assert!(self.model.inside(mapping, offset, LINE));
        let m = &mut self.model;
        let line = Line { offset, mapping, insns: u32::from(insns) };
        let at = m.line_indices();
        if m.long[at.0] == line {
            self.ops.push(op::LINE_LONG);
        } else if m.short[at.1] == line {
            self.ops.push(op::LINE_SHORT);
        } else {
            if m.lane.line.mapping == mapping {
                self.ops.push(op::LINE_NEAR);
                let delta = (offset / LINE).wrapping_sub(m.lane.line.offset / LINE);
                put_signed(&mut self.numbers, delta as i64);
            } else {
                self.ops.push(op::LINE_FULL);
                put(&mut self.numbers, u64::from(mapping));
                put(&mut self.numbers, offset / LINE);
            }
            self.numbers.push(insns);
        }
        m.learn_line(at, line);
        self.events += 1;
    }

    /// Adds what the kernel read or wrote: `len` bytes, at most [`MAX_RANGE_LINES`] lines. Returns
    /// how many accesses it stands for.
    pub(crate) fn kernel(
        &mut self,
        mapping: u32,
        offset: u64,
        len: u64,
        write: bool,
    ) -> Result<usize, &'static str> {
        self.current()?;
        let lines = range_lines(offset, len);
        if len == 0 || lines > MAX_RANGE_LINES || !self.model.inside(mapping, offset, len) {
            return Err("a kernel range outside its mapping, empty or over 4096 lines");
        }
        self.ops.push(if write { op::KERNEL_WRITE } else { op::KERNEL_READ });
        put(&mut self.numbers, u64::from(mapping));
        put(&mut self.numbers, offset);
        put(&mut self.numbers, len);
        self.events += lines as usize;
        Ok(lines as usize)
    }
}

/// Lines that `len` bytes at `offset` reach into.
pub(crate) fn range_lines(offset: u64, len: u64) -> u64 {
    if len == 0 {
        return 0;
    }
    match offset.checked_add(len - 1) {
        Some(last) => last / LINE - offset / LINE + 1,
        None => u64::MAX,
    }
}
