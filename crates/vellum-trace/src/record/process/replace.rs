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
const ROOM: u64 = 120 << 10;

/// Makes a process at the stop of its exec execute another program as its first instruction.
/// `front` is the program and its first arguments; the process's own, but for the name of its
/// program, come behind them. Environment, directory, descriptors and signals stay as they are.
///
/// At that stop the registers of the new program are set and no instruction has run. The stack is
/// as the System V ABI says: number of arguments, their pointers, null, the environment's pointers.
///
/// If it crashes it leaves no core: that would be QEMU's, and large.
pub(super) fn replace(pid: i32, front: &[CString]) -> io::Result<()> {
    without_core(pid);
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut registers = ptrace::registers(pid)?;
    let mut count = [0; 8];
    memory.read_exact_at(&mut count, registers.rsp)?;
    let count = u64::from_le_bytes(count);
    // The program's own arguments, null and the environment stay where they are: ours go right in
    // front of them, over the number of arguments and the program's own name.
    let own = registers.rsp + 8 + 8 * count.min(1);
    let list = own.saturating_sub(8 * front.len() as u64);
    let text: Vec<u8> = front.iter().flat_map(|a| a.as_bytes_with_nul()).copied().collect();
    let strings = list.saturating_sub(text.len() as u64) & !15;
    if own - strings > ROOM {
        return Err(io::ErrorKind::ArgumentListTooLong.into());
    }
    let mut pointers = Vec::<u8>::new();
    let mut at = strings;
    for arg in front {
        pointers.extend(at.to_le_bytes());
        at += arg.as_bytes_with_nul().len() as u64;
    }
    memory.write_all_at(&text, strings)?;
    memory.write_all_at(&pointers, list)?;
    memory.write_all_at(&EXECVE, registers.rip)?;
    registers.rdx = registers.rsp + 8 * (count + 2);
    registers.rdi = strings;
    registers.rsi = list;
    ptrace::set_registers(pid, &registers)
}

/// Lowers the size of a core that the process may leave to none. It may raise that again.
fn without_core(pid: i32) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let (core, none) = (libc::RLIMIT_CORE, std::ptr::null_mut());
    // SAFETY: both values are live; where the system refuses, a core may be left.
    unsafe {
        if libc::prlimit(pid, core, std::ptr::null(), &mut limit) == 0 {
            limit.rlim_cur = 0;
            libc::prlimit(pid, core, &limit, none);
        }
    }
}
