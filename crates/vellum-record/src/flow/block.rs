//! A block's data flow, once, when it is translated.
//!
//! For every general register: which registers at the block's beginning its value was computed
//! from, and whether a load of this block is among its inputs. An instruction's outputs all depend
//! on all its inputs, which is exact for moves and arithmetic and too much only for exchanges. The
//! flags are an output, and an input of what is done on a condition: a conditional move waits for
//! its comparison, which a branch does not.
//!
//! A register that is stepped by a constant is an index or a pointer through an array. In the
//! blocks to come its value is known early, whatever it began with.
use super::report::report;
use super::{ALWAYS, Effect, Uses};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, UsedMemory,
};

/// What a register's value is made of.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Origin {
    /// Registers at the block's beginning.
    from: u16,
    /// A load in this block.
    loaded: bool,
}

impl Origin {
    fn and(self, other: Origin) -> Origin {
        Origin { from: self.from | other.from, loaded: self.loaded | other.loaded }
    }

    fn uses(self) -> u16 {
        self.from | if self.loaded { ALWAYS } else { 0 }
    }
}

const FIXED: Origin = Origin { from: 0, loaded: false };

/// Follows a block instruction by instruction.
pub struct Follower {
    origins: [Origin; 16],
    /// The flags.
    flags: Origin,
    /// Registers that were stepped by a constant.
    stepped: u16,
    /// What the condition of the last instruction is made of, if it is a branch on one.
    condition: u16,
    instructions: u32,
    factory: InstructionInfoFactory,
}

/// The number of a general register, whatever part of it is named.
fn number(r: Register) -> Option<usize> {
    r.is_gpr().then(|| r.full_register() as usize - Register::RAX as usize)
}

pub(super) fn reads(a: OpAccess) -> bool {
    matches!(a, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

pub(super) fn writes(a: OpAccess) -> bool {
    matches!(
        a,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// A place whose address is known long before: a slot of the stack frame, a global, a thread-local
/// variable.
fn fixed(m: &UsedMemory) -> bool {
    let slot = m.base() == Register::RBP && (m.displacement() as i64) < 0;
    m.index() == Register::None
        && (slot
            || matches!(m.base(), Register::None | Register::RSP | Register::RIP | Register::EIP))
}

fn names(i: &Instruction, r: Register) -> bool {
    (0..i.op_count())
        .any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).full_register() == r)
}

fn is_constant(kind: OpKind) -> bool {
    !matches!(kind, OpKind::Register | OpKind::Memory)
}

/// The register that an instruction steps by a constant, as a bit; 0 for other instructions.
fn stepped(i: &Instruction) -> u16 {
    let by_constant = match i.mnemonic() {
        Mnemonic::Inc | Mnemonic::Dec => true,
        Mnemonic::Add | Mnemonic::Sub => is_constant(i.op1_kind()),
        Mnemonic::Lea => {
            i.memory_index() == Register::None
                && i.memory_base().full_register() == i.op0_register().full_register()
        }
        _ => false,
    };
    match number(i.op0_register()) {
        Some(n) if by_constant && i.op0_kind() == OpKind::Register => 1 << n,
        _ => 0,
    }
}

impl Follower {
    /// At the beginning of a block.
    pub fn new() -> Follower {
        let mut origins = [FIXED; 16];
        for (n, o) in origins.iter_mut().enumerate() {
            o.from = 1 << n & !ALWAYS;
        }
        Follower {
            origins,
            flags: FIXED,
            stepped: 0,
            condition: 0,
            instructions: 0,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// The next instruction's bytes. What cannot be decoded depends on nothing, and nothing is
    /// known after it.
    pub fn step(&mut self, bytes: &[u8]) -> Uses {
        self.instructions += 1;
        let i = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        if i.is_invalid() {
            (self.origins, self.flags) = ([FIXED; 16], FIXED);
            return Uses::default();
        }
        let info = self.factory.info(&i);
        let origins = &mut self.origins;
        let mut uses = Uses::default();
        let (mut value, mut addresses) = (FIXED, 0u16);
        for m in info.used_memory() {
            let parts = [m.base(), m.index()].map(number).into_iter().flatten();
            let at = parts.clone().fold(FIXED, |all, n| all.and(origins[n]));
            let (read, written) = (reads(m.access()), writes(m.access()));
            if read || written {
                addresses |= parts.fold(0, |all, n| all | 1 << n);
            }
            if read {
                uses.loads |= at.uses();
                value.loaded |= !fixed(m);
            }
            if written {
                uses.stores |= at.uses();
            }
            uses.modifies |= matches!(m.access(), OpAccess::ReadWrite | OpAccess::ReadCondWrite);
        }
        uses.atomic = i.has_lock_prefix() || i.mnemonic() == Mnemonic::Xchg;
        uses.report = report(&i, info.used_memory());
        match i.mnemonic() {
            // The kernel's answer.
            Mnemonic::Syscall => origins[0] = FIXED,
            // The caller's frame pointer, out of the stack.
            Mnemonic::Leave => value = FIXED,
            _ => {}
        }
        for r in info.used_registers() {
            let Some(n) = number(r.register()) else { continue };
            // A register that only says where the operand lies is not part of the result.
            let only_address = addresses >> n & 1 != 0 && !names(&i, r.register().full_register());
            if reads(r.access()) && !only_address {
                value = value.and(origins[n]);
            }
        }
        if i.rflags_read() != 0 {
            value = value.and(self.flags);
        }
        if i.rflags_modified() != 0 {
            self.flags = value;
        }
        self.stepped |= stepped(&i);
        let branches = i.flow_control() == FlowControl::ConditionalBranch;
        self.condition = if branches { self.flags.uses() } else { 0 };
        let string = i.is_string_instruction();
        for r in info.used_registers() {
            let Some(n) = number(r.register()).filter(|_| writes(r.access())) else { continue };
            // String instructions step their addresses and counter; only LODS loads, into its
            // accumulator.
            if 1 << n == ALWAYS || string && (addresses >> n & 1 != 0 || n != 0) {
                continue;
            }
            let whole = r.register().size() >= 4
                && matches!(r.access(), OpAccess::Write | OpAccess::ReadWrite);
            origins[n] = if whole { value } else { value.and(origins[n]) };
        }
        uses
    }

    /// At the block's end: what the condition of its branch is made of; 0 if it has none, or one
    /// that no register decides.
    pub fn condition(&self) -> u16 {
        self.condition
    }

    /// At the block's end: what it did as a whole.
    pub fn effect(&self) -> Effect {
        let mut e = Effect { instructions: self.instructions, ..Effect::default() };
        let mut copies: Vec<(u16, u16)> = Vec::new();
        for (n, o) in self.origins.iter().enumerate() {
            let bit = 1 << n & !ALWAYS;
            if o.from == bit && !o.loaded {
                e.clear |= bit & self.stepped;
                continue;
            }
            e.clear |= bit;
            if o.loaded {
                e.set |= bit;
            } else if o.from != 0 {
                match copies.iter_mut().find(|(from, _)| *from == o.from) {
                    Some((_, to)) => *to |= bit,
                    None => copies.push((o.from, bit)),
                }
            }
        }
        e.copies = copies.into();
        e
    }
}
