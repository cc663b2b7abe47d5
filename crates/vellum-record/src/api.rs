//! The functions of QEMU's plugin interface that we use.
//!
//! The header is not packaged with qemu-user, so they are declared here. All but one (see
//! [`instruction_bytes`]) have kept their signatures from interface version 1 (QEMU 6, 7.2) to the
//! newest. They are found in the QEMU executable when it loads the plugin.
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

/// Names this plugin to QEMU.
pub type PluginId = u64;

/// A block of guest code being translated.
#[repr(C)]
pub struct Tb {
    _private: [u8; 0],
}

/// A guest instruction being translated.
#[repr(C)]
pub struct Insn {
    _private: [u8; 0],
}

/// What QEMU tells a plugin about itself.
#[repr(C)]
pub struct Info {
    /// Guest architecture.
    pub target_name: *const c_char,
    /// Oldest interface version served.
    pub min: c_int,
    /// Newest interface version served.
    pub cur: c_int,
    /// A whole machine rather than a process?
    pub system_emulation: bool,
}

/// Callback that does not look at guest registers.
pub const NO_REGS: c_int = 0;
/// Of an instruction that loads and stores, one of both: the load, says the interface; QEMU 7.2 has
/// the filter the wrong way round, and reports the store.
pub const MEM_ONCE: c_int = 1;
/// Loads and stores.
pub const MEM_RW: c_int = 3;

pub type OnVcpu = extern "C" fn(PluginId, c_uint);
pub type OnTb = extern "C" fn(PluginId, *mut Tb);
pub type OnExec = extern "C" fn(c_uint, *mut c_void);
pub type OnMem = extern "C" fn(c_uint, u32, u64, *mut c_void);
pub type OnSyscall = extern "C" fn(PluginId, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type OnSyscallRet = extern "C" fn(PluginId, c_uint, i64, i64);
pub type OnExit = extern "C" fn(PluginId, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: PluginId, cb: OnVcpu);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: PluginId, cb: OnVcpu);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, cb: OnTb);
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: OnExec,
        flags: c_int,
        udata: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: OnMem,
        flags: c_int,
        rw: c_int,
        udata: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, cb: OnSyscall);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: PluginId, cb: OnSyscallRet);
    pub fn qemu_plugin_register_atexit_cb(id: PluginId, cb: OnExit, udata: *mut c_void);
    pub fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Insn) -> *mut c_void;
    fn qemu_plugin_insn_data(insn: *const Insn, to: *mut u8, len: usize) -> usize;
    pub fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
}

/// Longest instruction of the guest, bytes.
pub const LONGEST: usize = 15;

/// Copies an instruction's bytes. Up to interface version 2 the function took only the instruction
/// and returned where its bytes are; from version 3 on it copies them and returns how many. Asked
/// as the newer one wants it, both answer right (an argument more is not looked at), and no address
/// is as small as a count.
///
/// # Safety
/// `insn` must belong to the block being translated.
pub unsafe fn instruction_bytes(insn: *const Insn) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    // SAFETY: our caller's promise; the buffer is as long as said, and an instruction found at an
    // address is as long as its size says.
    let len = unsafe {
        let len = qemu_plugin_insn_size(insn).min(LONGEST);
        let answer = qemu_plugin_insn_data(insn, bytes.as_mut_ptr(), len);
        if answer > LONGEST {
            let at: *const u8 = std::ptr::with_exposed_provenance(answer);
            std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), len);
        }
        len
    };
    (bytes, len)
}

/// The interface version we ask for. QEMU 9 raised its oldest version to 2, QEMU 7.2 knows no more
/// than 1; what we use is the same in both, so the constructor below picks the one that fits.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

extern "C" fn choose_version() {
    let newer = c"qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu";
    // SAFETY: dlsym only looks the name up; the name is a terminated string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, newer.as_ptr()) };
    if !found.is_null() {
        qemu_plugin_version.store(2, Ordering::Relaxed);
    }
}

#[used]
// SAFETY: .init_array holds pointers to functions without arguments, run once by the dynamic
// loader.
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;
