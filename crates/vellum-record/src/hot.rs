//! The callbacks that run for every block, line and access.
use crate::api::{
    Insn, MEM_RW, NO_REGS, PluginId, Tb, qemu_plugin_insn_haddr, qemu_plugin_insn_size, qemu_plugin_insn_vaddr,
    qemu_plugin_mem_is_store, qemu_plugin_mem_size_shift, qemu_plugin_register_vcpu_insn_exec_cb,
    qemu_plugin_register_vcpu_mem_cb, qemu_plugin_tb_get_insn, qemu_plugin_tb_n_insns,
};
use crate::{guest, order, ring};
use std::ffi::{c_uint, c_void};

/// A block is being translated: count the instructions of each of its lines now, so that at run time a
/// line costs one store of a ready-made word.
pub extern "C" fn on_translate(_: PluginId, tb: *mut Tb) {
    // SAFETY: tb is valid during this callback; the instructions it names are too.
    unsafe {
        let n = qemu_plugin_tb_n_insns(tb);
        if n == 0 {
            return;
        }
        let first = qemu_plugin_tb_get_insn(tb, 0);
        guest::learn(qemu_plugin_insn_vaddr(first), qemu_plugin_insn_haddr(first));
        let mut begin = first;
        let mut line = qemu_plugin_insn_vaddr(first) / 64;
        let mut count = 0u8;
        let mut last = (first, 0);
        for i in 0..n {
            let insn = qemu_plugin_tb_get_insn(tb, i);
            let at = qemu_plugin_insn_vaddr(insn);
            if at / 64 != line {
                on_line(begin, line, count);
                (begin, line, count) = (insn, at / 64, 0);
            }
            count = count.saturating_add(1);
            let tag = std::ptr::without_provenance_mut(i & 511);
            qemu_plugin_register_vcpu_mem_cb(insn, on_access, NO_REGS, MEM_RW, tag);
            last = (insn, (at + qemu_plugin_insn_size(insn) as u64 - 1) / 64);
        }
        on_line(begin, line, count);
        if last.1 != line {
            // The last instruction reaches into one more line.
            on_line(last.0, last.1, 0);
        }
    }
}

/// # Safety
/// `insn` must belong to the block being translated.
unsafe fn on_line(insn: *mut Insn, line: u64, insns: u8) {
    let word = ring::fetch(line * 64, insns) as usize;
    // SAFETY: passed on to our caller; the user data is a number in a pointer's clothes.
    unsafe {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, on_fetch, NO_REGS, std::ptr::without_provenance_mut(word));
    }
}

extern "C" fn on_fetch(vcpu: c_uint, word: *mut c_void) {
    // SAFETY: QEMU runs the callback on the CPU it names.
    unsafe { order::push(vcpu, word.addr() as u64) };
}

extern "C" fn on_access(vcpu: c_uint, info: u32, addr: u64, tag: *mut c_void) {
    // SAFETY: info is the value this callback was given; QEMU runs it on the CPU it names.
    unsafe {
        let shift = qemu_plugin_mem_size_shift(info);
        let store = qemu_plugin_mem_is_store(info);
        order::push(vcpu, ring::access(addr, shift, store, tag.addr() as u64));
    }
}
