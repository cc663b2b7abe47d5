//! The callbacks that run for every block, line and access.
use crate::api::{
    Insn, MEM_RW, NO_REGS, PluginId, Tb, instruction_bytes, qemu_plugin_insn_haddr,
    qemu_plugin_insn_size, qemu_plugin_insn_vaddr, qemu_plugin_mem_is_store,
    qemu_plugin_mem_size_shift, qemu_plugin_register_vcpu_insn_exec_cb,
    qemu_plugin_register_vcpu_mem_cb, qemu_plugin_tb_get_insn, qemu_plugin_tb_n_insns,
};
use crate::flow::block::Follower;
use crate::flow::branch::Branch;
use crate::flow::{Effect, Uses};
use crate::ring::word;
use crate::{files, guest, order};
use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::sync::Mutex;
use vellum_trace::Flags;

/// What is known of a block.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Block {
    /// Its first line, ready-made.
    word: u64,
    /// Where it begins, and the address behind it.
    start: u64,
    after: u64,
    /// What the condition of its branch is made of.
    condition: u16,
    effect: Effect,
}

/// What entering a block means.
struct Entry {
    block: Block,
    branch: Branch,
}

/// Entries of all blocks. Generated code keeps pointing to them, so they live for ever; QEMU
/// translates code again when its buffer is full, and then finds the same ones.
static ENTRIES: Mutex<Option<HashMap<Block, &'static Entry>>> = Mutex::new(None);

fn entry(block: Block) -> &'static Entry {
    let mut entries = ENTRIES.lock().unwrap_or_else(|e| e.into_inner());
    let entries = entries.get_or_insert_default();
    if let Some(old) = entries.get(&block) {
        return old;
    }
    let branch = Branch::new(block.after, block.condition);
    let kept: &'static Entry = Box::leak(Box::new(Entry { block: block.clone(), branch }));
    entries.insert(block, kept);
    kept
}

/// A block is being translated: count the instructions of each of its lines now, so that at run
/// time a line costs one store of a ready-made word, and follow its registers, so that an access
/// costs one look at a mask.
pub extern "C" fn on_translate(_: PluginId, tb: *mut Tb) {
    // A forked child records nothing, and must not wait for locks that its parent's threads held.
    if order::detached() {
        return;
    }
    // SAFETY: tb is valid during this callback; the instructions it names are too.
    unsafe {
        let n = qemu_plugin_tb_n_insns(tb);
        if n == 0 {
            return;
        }
        let first = qemu_plugin_tb_get_insn(tb, 0);
        let base = guest::learn(qemu_plugin_insn_vaddr(first), qemu_plugin_insn_haddr(first));
        base.into_iter().for_each(files::images);
        let mut flow = Follower::new();
        let mut lines = Vec::new();
        let mut line = (first, qemu_plugin_insn_vaddr(first) / 64, 0u8);
        let start = qemu_plugin_insn_vaddr(first);
        let (mut last, mut after) = ((first, 0), start);
        for i in 0..n {
            let insn = qemu_plugin_tb_get_insn(tb, i);
            let at = qemu_plugin_insn_vaddr(insn);
            if at / 64 != line.1 {
                lines.push(line);
                line = (insn, at / 64, 0);
            }
            line.2 = line.2.saturating_add(1);
            let (bytes, len) = instruction_bytes(insn);
            let tag = tag(i, flow.step(&bytes[..len]));
            qemu_plugin_register_vcpu_mem_cb(
                insn,
                on_access,
                NO_REGS,
                MEM_RW,
                std::ptr::without_provenance_mut(tag),
            );
            after = at + qemu_plugin_insn_size(insn) as u64;
            last = (insn, (after - 1) / 64);
        }
        lines.push(line);
        if last.1 != line.1 {
            // The last instruction reaches into one more line.
            lines.push((last.0, last.1, 0));
        }
        let (_, at, insns) = lines[0];
        let (word, condition) = (word::fetch(at * 64, insns), flow.condition());
        let effect = flow.effect();
        let entry: *const Entry = entry(Block { word, start, after, condition, effect });
        qemu_plugin_register_vcpu_insn_exec_cb(first, on_block, NO_REGS, entry.cast_mut().cast());
        for (insn, line, insns) in &lines[1..] {
            on_line(*insn, *line, *insns);
        }
    }
}

/// # Safety
/// `insn` must belong to the block being translated.
unsafe fn on_line(insn: *mut Insn, line: u64, insns: u8) {
    let word = word::fetch(line * 64, insns) as usize;
    // SAFETY: passed on to our caller; the user data is a number in a pointer's clothes.
    unsafe {
        qemu_plugin_register_vcpu_insn_exec_cb(
            insn,
            on_fetch,
            NO_REGS,
            std::ptr::without_provenance_mut(word),
        );
    }
}

/// The instruction modifies memory.
const MODIFIES: usize = 1 << 9;
/// And does so in one piece.
const ATOMIC: usize = 1 << 10;

/// What an access needs at run time, in a pointer's clothes: from bit 0 the instruction's place in
/// its block (9 bits), two marks, from bit 16 the registers of its load address, from bit 32 those
/// of its store address.
fn tag(place: usize, uses: Uses) -> usize {
    let marks = if uses.modifies { MODIFIES } else { 0 } | if uses.atomic { ATOMIC } else { 0 };
    place & 511 | marks | usize::from(uses.loads) << 16 | usize::from(uses.stores) << 32
}

/// Whether an access goes into the trace as a store. QEMU reports an instruction that modifies
/// memory as a load and then a store, but a processor faults on it once, as a write: so the store
/// goes first and the load after it. An atomic one may be reported as one store only, so both of
/// its halves are stores.
#[inline(always)]
fn recorded_as_store(store: bool, tag: usize) -> bool {
    if tag & MODIFIES == 0 { store } else { !store || tag & ATOMIC != 0 }
}

extern "C" fn on_block(vcpu: c_uint, entry: *mut c_void) {
    // SAFETY: the entry was made for this callback and lives for ever.
    let entry: &'static Entry = unsafe { &*entry.cast::<Entry>() };
    let Some(ring) = order::ring(vcpu) else { return };
    // SAFETY: QEMU runs the callback on the CPU it names.
    unsafe {
        let Entry { block, branch } = entry;
        ring.carry().enter(block.start, &block.effect, branch);
        order::push_into(vcpu, ring, block.word);
    }
}

extern "C" fn on_fetch(vcpu: c_uint, word: *mut c_void) {
    // SAFETY: QEMU runs the callback on the CPU it names.
    unsafe { order::push(vcpu, word.addr() as u64) };
}

extern "C" fn on_access(vcpu: c_uint, info: u32, addr: u64, tag: *mut c_void) {
    let Some(ring) = order::ring(vcpu) else { return };
    // SAFETY: info is the value this callback was given; QEMU runs it on the CPU it names.
    unsafe {
        let shift = qemu_plugin_mem_size_shift(info);
        let store = qemu_plugin_mem_is_store(info);
        let registers = (tag.addr() >> if store { 32 } else { 16 }) as u16;
        let held_up = !store && ring.carry().is_held_up();
        let mut flags = match recorded_as_store(store, tag.addr()) {
            true => Flags::WRITE,
            false => Flags::READ,
        };
        if ring.carry().depends(registers) {
            flags = flags.with(Flags::DEPENDENT);
        }
        if held_up {
            flags = flags.with(Flags::DEPENDENT).with(Flags::MISPREDICTED);
        }
        order::push_into(vcpu, ring, word::access(addr, shift, tag.addr() as u64, flags));
    }
}
