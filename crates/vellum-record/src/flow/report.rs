//! Instructions whose accesses are known before they run.
//!
//! Of those the recorder asks QEMU for nothing but the address, once. The list holds what programs
//! are made of; what is not in it is taken as QEMU reports it.
use super::Report;
use super::block::{reads, writes};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpAccess, OpKind, UsedMemory};

/// Runs over its operands once, and each of up to 8 bytes is one access.
fn is_plain(m: Mnemonic) -> bool {
    use Mnemonic::*;
    let moves = matches!(m, Mov | Movzx | Movsx | Movsxd | Push | Pop | Call | Ret | Jmp | Leave);
    let sums = matches!(m, Add | Sub | Adc | Sbb | And | Or | Xor | Cmp | Test | Inc | Dec | Imul);
    let floats = matches!(m, Movd | Movq | Movss | Movsd | Addss | Addsd | Subss | Subsd);
    moves || sums || floats || matches!(m, Mulss | Mulsd | Divss | Divsd)
}

/// Goes on to the next instruction or by a branch, if it does not touch memory.
fn is_sure(i: &Instruction) -> bool {
    let goes_on = matches!(
        i.flow_control(),
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
    );
    use Mnemonic::*;
    let may_fault =
        matches!(i.mnemonic(), Div | Idiv | Wait | Wrfsbase | Wrgsbase | Xgetbv | Rdpmc | Rdpru);
    goes_on && !may_fault && !i.is_privileged() && !names_segment(i)
}

/// An operand of it is a segment register, which may be given what it must not have.
fn names_segment(i: &Instruction) -> bool {
    let is = |n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_segment_register();
    (0..i.op_count()).any(is)
}

/// What QEMU will say of an instruction.
pub fn report(i: &Instruction, memory: &[UsedMemory]) -> Report {
    let mut touched = memory.iter().filter(|m| reads(m.access()) || writes(m.access()));
    let Some(m) = touched.next() else {
        return if is_sure(i) { Report::Quiet } else { Report::Open };
    };
    let size = m.memory_size().size();
    if touched.next().is_some()
        || !is_plain(i.mnemonic())
        || !matches!(size, 1 | 2 | 4 | 8)
        || i.has_lock_prefix()
        || names_segment(i)
    {
        return Report::Open;
    }
    let shift = size.trailing_zeros() as u8;
    match m.access() {
        OpAccess::Read => Report::Load(shift),
        OpAccess::Write => Report::Store(shift),
        OpAccess::ReadWrite => Report::Modify(shift),
        _ => Report::Open,
    }
}
