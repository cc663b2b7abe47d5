//! Another program in the place of one that has just been started.
use super::ptrace;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// `mov eax, 59; syscall; int3`: execve, and a stop if it fails.
const EXECVE: [u8; 8] = [0xb8, 59, 0, 0, 0, 0x0f, 0x05, 0xcc];

/// The kernel maps this much of a new stack below what it has filled (`setup_arg_pages`, 128 KiB);
/// we stay well inside.
const ROOM: usize = 120 << 10;

/// Makes a process at the stop of its exec execute another program as its first instruction.
/// `front` is the program and its first arguments; the process's own, but for the name of its
/// program, come behind them. Environment, directory, descriptors and signals stay as they are.
///
/// At that stop the registers of the new program are set and no instruction has run. The stack is
/// as the System V ABI says: number of arguments, their pointers, null, the environment's pointers.
pub(super) fn replace(pid: i32, front: &[CString]) -> io::Result<()> {
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut registers = ptrace::registers(pid)?;
    let mut count = [0; 8];
    memory.read_exact_at(&mut count, registers.rsp)?;
    let count = usize::try_from(u64::from_le_bytes(count)).unwrap_or(usize::MAX).min(ROOM);
    let mut behind = vec![0; count.saturating_sub(1) * 8];
    memory.read_exact_at(&mut behind, registers.rsp + 16)?;

    let pointers = (front.len() + 1) * 8 + behind.len();
    let text: usize = front.iter().map(|a| a.as_bytes_with_nul().len()).sum();
    if pointers + text > ROOM {
        return Err(io::ErrorKind::ArgumentListTooLong.into());
    }
    let at = (registers.rsp - 256 - (pointers + text) as u64) & !15;
    let (mut list, mut strings) = (Vec::<u8>::new(), Vec::<u8>::new());
    for arg in front {
        list.extend((at + (pointers + strings.len()) as u64).to_le_bytes());
        strings.extend(arg.as_bytes_with_nul());
    }
    list.extend(behind);
    list.extend([0; 8]);
    list.extend(strings);
    memory.write_all_at(&list, at)?;
    memory.write_all_at(&EXECVE, registers.rip)?;
    registers.rdi = at + pointers as u64;
    registers.rsi = at;
    registers.rdx = registers.rsp + 8 * (count as u64 + 2);
    ptrace::set_registers(pid, &registers)
}
