//! What a virtual CPU did, from its words and the scripts of its blocks.
use crate::flow::carry::Carry;
use crate::ring::word::{self, Word, unpack};
use crate::script::{Access, Block, Lines, Script};
use std::io::Write;
use vellum_trace::build::Builder;
use vellum_trace::{Flags, TraceError};

/// So many words ahead the builder is told what comes.
const AHEAD: usize = 12;

/// One virtual CPU.
pub struct Thread {
    /// Its number in the trace.
    pub number: u32,
    script: Option<&'static Script>,
    carry: Carry,
}

impl Thread {
    /// Nothing has run.
    pub fn new(number: u32) -> Thread {
        Thread { number, script: None, carry: Carry::new() }
    }

    /// These words are next.
    pub fn words<W: Write>(
        &mut self,
        words: &[u64],
        to: &mut Builder<W>,
    ) -> Result<(), TraceError> {
        let mut i = 0;
        while i < words.len() {
            let word = words[i];
            i += 1;
            if let Some(&soon) = words.get(i + AHEAD) {
                to.expect(soon & word::ADDR);
            }
            match unpack(word) {
                Word::Access { addr, shift, store, place } => {
                    let Some(block) = self.script.map(|s| &s.block) else { continue };
                    let Some(access) = block.accesses.get(usize::from(place)) else { continue };
                    let mut size = 1u8 << shift.min(6);
                    if access.both {
                        let flags = self.flags(access, false);
                        again(to, addr, size, flags)?;
                    }
                    let flags = self.flags(access, store);
                    // QEMU splits a vector access into 8-byte parts of one instruction.
                    while shift == 3
                        && size < 64
                        && !flags.mispredicted()
                        && words.get(i) == Some(&(word + u64::from(size)))
                    {
                        size += 8;
                        i += 1;
                    }
                    to.access(addr, size, flags)?;
                    if access.then != Lines::default() {
                        lines_behind(block, access.then, to)?;
                    }
                }
                Word::Enter { at } => {
                    let at: *const Script = std::ptr::with_exposed_provenance(at);
                    // SAFETY: the word was made of a script, and those live for ever.
                    let script: &'static Script = unsafe { &*at };
                    self.script = Some(script);
                    let block = &script.block;
                    self.carry.enter(block.start, &block.effect, &script.branch);
                    lines(block, block.first, to)?;
                }
                Word::Fetch { addr, insns } => to.fetch(addr, insns)?,
                Word::Kernel { addr, len, write } => to.kernel(addr, u64::from(len), write)?,
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn flags(&mut self, access: &Access, store: bool) -> Flags {
        let mut flags = match access.recorded_as_store(store) {
            true => Flags::WRITE,
            false => Flags::READ,
        };
        if self.carry.depends(if store { access.stores } else { access.loads }) {
            flags = flags.with(Flags::DEPENDENT);
        }
        if !store && self.carry.is_held_up() {
            flags = flags.with(Flags::DEPENDENT).with(Flags::MISPREDICTED);
        }
        flags
    }
}

/// An access, out of the way of the others.
#[inline(never)]
fn again<W: Write>(
    to: &mut Builder<W>,
    addr: u64,
    size: u8,
    flags: Flags,
) -> Result<(), TraceError> {
    to.access(addr, size, flags)
}

/// These lines run behind an access.
#[inline(never)]
fn lines_behind<W: Write>(
    block: &Block,
    which: Lines,
    to: &mut Builder<W>,
) -> Result<(), TraceError> {
    lines(block, which, to)
}

/// These lines of a block run.
#[inline(always)]
fn lines<W: Write>(block: &Block, which: Lines, to: &mut Builder<W>) -> Result<(), TraceError> {
    for line in &block.lines[usize::from(which.from)..usize::from(which.to)] {
        to.fetch(line.addr, line.insns)?;
    }
    Ok(())
}
