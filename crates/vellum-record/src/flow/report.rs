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
    let may_fault = matches!(i.mnemonic(), Mnemonic::Div | Mnemonic::Idiv | Mnemonic::Wait);
    goes_on && !may_fault && !i.is_privileged()
}

/// What QEMU will say of an instruction.
pub fn report(i: &Instruction, memory: &[UsedMemory]) -> Report {
    let mut touched = memory.iter().filter(|m| reads(m.access()) || writes(m.access()));
    let Some(m) = touched.next() else {
        return if is_sure(i) { Report::Quiet } else { Report::Open };
    };
    let size = m.memory_size().size();
    let named = |n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_segment_register();
    if touched.next().is_some()
        || !is_plain(i.mnemonic())
        || !matches!(size, 1 | 2 | 4 | 8)
        || i.has_lock_prefix()
        || (0..i.op_count()).any(named)
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
