//! Events to bytes and back: what both directions must agree on.
//!
//! Programs repeat themselves. Both sides keep the same predictors, and an event that a predictor
//! knows costs one operation byte, of which zstd then makes almost nothing:
//!
//! * *Which line runs next* is asked of a table under the last four lines, then of one under the
//!   last line.
//! * *What an instruction touches* is asked of a slot under (thread, current line, how many
//!   accesses since the line was entered): the same stride as last time, the same distance from the
//!   access just before (fields of a node that itself moved at random), or the same address again.
//!
//! What no predictor knows is written as a difference. Operation bytes and numbers go to separate
//! halves of a block, because each compresses better without the other.
//!
//! Rejected: a table under instruction addresses (lackey and QEMU give lines cheaply, single
//! addresses at the price of a callback each); a context-mixing coder (a quarter smaller, ten times
//! slower than a simulator can wait for).
//!
//! The model also keeps what is needed to refuse nonsense on both sides: lengths of mappings, live
//! threads, files.
mod call;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod files;

use crate::PAGE;
use crate::event::{Change, MapKind};
use files::Files;
use std::collections::{BTreeMap, BTreeSet};

/// Most mappings in one trace: 8 bytes each of reader memory.
const MAX_MAPPINGS: usize = 1 << 22;
/// Most threads alive at once: about 100 bytes each of reader memory.
const MAX_LIVE: usize = 1 << 16;
const MAX_CHILDREN: usize = 1 << 16;
/// User addresses have 47 bits on x86_64 (Intel SDM vol. 1, 3.3.7.1); 56 bits leave room for 5
/// levels.
const MAX_ADDRESS: u64 = 1 << 56;
/// Most lines that one kernel range operation may stand for.
pub(crate) const MAX_RANGE_LINES: u64 = 4096;

const TABLE_BITS: u32 = 15;
const TABLE: usize = 1 << TABLE_BITS;
const GOLD: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX: u64 = 0xD6E8_FEB8_6659_FD93;

/// Operation bytes.
pub(crate) mod op {
    pub(crate) const STRIDE: u8 = 0;
    pub(crate) const NEAR: u8 = 1;
    pub(crate) const AGAIN: u8 = 2;
    pub(crate) const FROM_SLOT: u8 = 3;
    pub(crate) const FROM_PREV: u8 = 4;
    pub(crate) const FULL: u8 = 5;
    pub(crate) const LINE_LONG: u8 = 8;
    pub(crate) const LINE_SHORT: u8 = 9;
    pub(crate) const LINE_NEAR: u8 = 10;
    pub(crate) const LINE_FULL: u8 = 11;
    pub(crate) const SWITCH: u8 = 16;
    pub(crate) const START: u8 = 17;
    pub(crate) const END: u8 = 18;
    pub(crate) const CALL: u8 = 19;
    pub(crate) const SKIP: u8 = 20;
    pub(crate) const KERNEL_READ: u8 = 21;
    pub(crate) const KERNEL_WRITE: u8 = 22;
}

/// What one (thread, line, ordinal) did last time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    pub(crate) offset: u64,
    pub(crate) mapping: u32,
    pub(crate) stride: i32,
    pub(crate) near: i32,
    /// Size in the low byte, flags in the high one.
    pub(crate) attr: u16,
}

/// An instruction line and how many instructions ran in it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) offset: u64,
    pub(crate) mapping: u32,
    pub(crate) insns: u32,
}

/// What is remembered of one thread.
#[derive(Clone, Copy, Default)]
struct Lane {
    prev_offset: u64,
    prev_mapping: u32,
    key: u64,
    line: Line,
    line_key: u64,
    history: u64,
    seed: u64,
}

/// The state that writer and reader keep in step.
pub(crate) struct Model {
    slots: Box<[Slot; TABLE]>,
    long: Box<[Line; TABLE]>,
    short: Box<[Line; TABLE]>,
    lane: Lane,
    current: Option<u32>,
    others: BTreeMap<u32, Lane>,
    next_thread: u32,
    lens: Vec<u64>,
    last: Vec<u64>,
    calls: u64,
    files: Files,
    /// Children so far that have a number.
    forked: u32,
    /// Those of them that live.
    children: BTreeSet<u32>,
}

fn fits(v: i64) -> Option<i32> {
    i32::try_from(v).ok()
}

/// The place of a key in a table.
#[inline(always)]
fn place(key: u64) -> usize {
    (key.wrapping_mul(MIX) >> (64 - TABLE_BITS)) as usize
}

/// A table of nothing. Its length is in its type, so that no index made for it is checked again.
pub(crate) fn table<T: Copy + Default, const N: usize>() -> Box<[T; N]> {
    let Ok(table) = vec![T::default(); N].try_into() else { unreachable!("N of them") };
    table
}

impl Model {
    pub(crate) fn new() -> Model {
        Model {
            slots: table(),
            long: table(),
            short: table(),
            lane: Lane::default(),
            current: None,
            others: BTreeMap::new(),
            next_thread: 0,
            lens: Vec::new(),
            last: Vec::new(),
            calls: 0,
            files: Files::default(),
            forked: 0,
            children: BTreeSet::new(),
        }
    }

    /// The slot that the next access of the current thread will be held against.
    #[inline(always)]
    pub(crate) fn slot_index(&mut self) -> usize {
        self.lane.key = self.lane.key.wrapping_add(GOLD);
        place(self.lane.key)
    }

    /// Learns an access.
    #[inline(always)]
    fn learn(&mut self, index: usize, mapping: u32, offset: u64, attr: u16) {
        let slot = &mut self.slots[index];
        slot.stride = if slot.mapping == mapping {
            fits(offset.wrapping_sub(slot.offset) as i64).unwrap_or(0)
        } else {
            0
        };
        if self.lane.prev_mapping == mapping
            && let Some(d) = fits(offset.wrapping_sub(self.lane.prev_offset) as i64)
        {
            slot.near = d;
        }
        slot.offset = offset;
        slot.mapping = mapping;
        slot.attr = attr;
        self.lane.prev_offset = offset;
        self.lane.prev_mapping = mapping;
        self.expect_slot();
    }

    /// Brings the slot of the next access near, if the same line makes it.
    #[inline(always)]
    fn expect_slot(&self) {
        let key = self.lane.key.wrapping_add(GOLD);
        std::hint::black_box(self.slots[place(key)].attr);
    }

    /// Where the next line is looked for: (four lines of history, one line).
    #[inline(always)]
    fn line_indices(&self) -> (usize, usize) {
        (place(self.lane.history), (self.lane.line_key >> (64 - TABLE_BITS)) as usize)
    }

    /// Learns a line.
    #[inline(always)]
    fn learn_line(&mut self, (long, short): (usize, usize), line: Line) {
        self.long[long] = line;
        self.short[short] = line;
        let id = (line.offset ^ (u64::from(line.mapping) << 40) ^ u64::from(line.insns))
            .wrapping_mul(GOLD);
        self.lane.line = line;
        self.lane.line_key = id;
        self.lane.history = (self.lane.history << 16) ^ (id >> 48);
        self.lane.key = id ^ self.lane.seed;
        self.expect_slot();
        // The next line comes after this one's accesses.
        std::hint::black_box(self.long[place(self.lane.history)].insns);
    }

    /// Does `offset .. offset + size` lie in the mapping?
    #[inline(always)]
    fn inside(&self, mapping: u32, offset: u64, size: u64) -> bool {
        match self.lens.get(mapping as usize) {
            Some(len) => offset.checked_add(size).is_some_and(|end| end <= *len),
            None => false,
        }
    }

    fn start_thread(&mut self, thread: u32) -> Result<(), &'static str> {
        if thread != self.next_thread {
            return Err("thread numbers must count from 0");
        }
        if self.others.len() >= MAX_LIVE {
            return Err("more than 65,536 threads at once");
        }
        self.next_thread += 1;
        let lane = Lane { seed: u64::from(thread).wrapping_mul(MIX), ..Lane::default() };
        self.others.insert(thread, lane);
        Ok(())
    }

    fn end_thread(&mut self, thread: u32) -> Result<(), &'static str> {
        if self.current == Some(thread) {
            self.current = None;
            return Ok(());
        }
        match self.others.remove(&thread) {
            Some(_) => Ok(()),
            None => Err("a thread ends that is not alive"),
        }
    }

    fn switch(&mut self, thread: u32) -> Result<(), &'static str> {
        if self.current == Some(thread) {
            return Ok(());
        }
        let Some(lane) = self.others.remove(&thread) else {
            return Err("a switch to a thread that is not alive");
        };
        if let Some(old) = self.current.replace(thread) {
            self.others.insert(old, self.lane);
        }
        self.lane = lane;
        Ok(())
    }

    /// Checks a call against the mappings known so far and takes note of it.
    fn apply(&mut self, order: u64, change: &Change) -> Result<(), &'static str> {
        if order != self.calls {
            return Err("calls must be numbered from 0 without gaps");
        }
        let part = |mapping: u32, offset: u64, len: u64| {
            if self.inside(mapping, offset, len) {
                Ok(())
            } else {
                Err("a call names a part outside its mapping")
            }
        };
        match change {
            Change::Map(m) => {
                if m.mapping as usize != self.lens.len() || self.lens.len() >= MAX_MAPPINGS {
                    return Err("mapping numbers must count from 0 to at most 4,194,304");
                }
                if m.len % PAGE != 0 || (m.len == 0 && m.kind != MapKind::Heap) {
                    return Err("a mapping's length must be a multiple of 4096 bytes");
                }
                if m.base.checked_add(m.len).is_none_or(|end| end > MAX_ADDRESS) {
                    return Err("a mapping lies outside the address space");
                }
                self.files.names(m)?;
                if let Some((of, at)) = m.inside {
                    part(of, at, m.len)?;
                }
                self.lens.push(m.len);
                self.last.push(0);
            }
            Change::Unmap { mapping, offset, len }
            | Change::Protect { mapping, offset, len, .. }
            | Change::Advise { mapping, offset, len, .. } => part(*mapping, *offset, *len)?,
            Change::Remap { old, offset, len, new } => {
                part(*old, *offset, *len)?;
                part(*new, 0, *len)?;
            }
            Change::Brk { mapping, len } => {
                if *len > MAX_ADDRESS {
                    return Err("a heap longer than the address space");
                }
                match self.lens.get_mut(*mapping as usize) {
                    Some(slot) => *slot = *len,
                    None => return Err("a heap that was never mapped"),
                }
            }
            Change::Fork { child: Some(child) } => {
                if *child != self.forked || self.children.len() >= MAX_CHILDREN {
                    return Err("children must count from 0, with at most 65,536 at once");
                }
                self.forked += 1;
                self.children.insert(*child);
            }
            Change::ChildEnd { child } => {
                if !self.children.remove(child) {
                    return Err("a child ends that does not live");
                }
            }
            Change::Fork { child: None } | Change::Vfork | Change::Exec | Change::Exit { .. } => {}
            change => self.files.apply(change)?,
        }
        self.calls += 1;
        Ok(())
    }
}
