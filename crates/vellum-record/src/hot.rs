//! The callbacks that run for every block, line and access.
//!
//! Each costs the program more than its own time: a core that waits for memory looks ahead a few
//! hundred instructions, and ours are among them. So there are as few of them as possible, they
//! compute nothing, and all that is known beforehand is in the block's script. A block's first
//! access tells its beginning, where it is sure to come: if that faults, the block is told from
//! where the program goes on.
use crate::api::{
    Insn, MEM_ONCE, MEM_RW, NO_REGS, OnMem, PluginId, Tb, instruction_bytes,
    qemu_plugin_insn_haddr, qemu_plugin_insn_size, qemu_plugin_insn_vaddr,
    qemu_plugin_mem_is_store, qemu_plugin_mem_size_shift, qemu_plugin_register_vcpu_insn_exec_cb,
    qemu_plugin_register_vcpu_mem_cb, qemu_plugin_tb_get_insn, qemu_plugin_tb_n_insns,
};
use crate::flow::Report;
use crate::flow::block::Follower;
use crate::ring::word;
use crate::script::{self, Access, Block, Line, Lines, Script};
use crate::{files, guest, order};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

/// What has been told for certain where the translation stands.
#[derive(Clone, Copy)]
enum Told {
    /// That the block began, and nothing behind it.
    Begin,
    /// The access of the instruction at this place.
    Access(usize),
    /// Something that may not have happened.
    Unsure,
}

/// What is asked of QEMU for an access.
struct Request {
    insn: *mut Insn,
    on: OnMem,
    which: c_int,
    tag: u64,
}

/// A block on its way to a script.
#[derive(Default)]
struct Draft {
    lines: Vec<Line>,
    first: Lines,
    accesses: Vec<Access>,
    /// Lines that nothing else tells, by number, and the instruction that begins them.
    alone: Vec<(*mut Insn, usize)>,
}

impl Draft {
    /// The line at `addr` begins at `insn`. Its words are left out where what was told last is
    /// sure to be followed by it.
    fn line(&mut self, addr: u64, insn: *mut Insn, told: Told) {
        let n = self.lines.len() as u16;
        self.lines.push(Line { addr, insns: 0 });
        let with = match told {
            Told::Begin => &mut self.first,
            Told::Access(place) => &mut self.accesses[place].then,
            Told::Unsure => return self.alone.push((insn, n.into())),
        };
        if with.from == with.to {
            with.from = n;
        }
        with.to = n + 1;
    }
}

/// A block is being translated: write down what it will do.
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
        let begin = qemu_plugin_tb_get_insn(tb, 0);
        let start = qemu_plugin_insn_vaddr(begin);
        let base = guest::learn(start, qemu_plugin_insn_haddr(begin));
        base.into_iter().for_each(files::images);
        let (mut flow, mut draft, mut told) = (Follower::new(), Draft::default(), Told::Begin);
        let (mut line, mut after) = (None, start);
        let (mut requests, mut entering) = (Vec::new(), None);
        for place in 0..n {
            let insn = qemu_plugin_tb_get_insn(tb, place);
            let at = qemu_plugin_insn_vaddr(insn);
            if line != Some(at / 64) {
                line = Some(at / 64);
                draft.line(at / 64 * 64, insn, told);
            }
            if let Some(line) = draft.lines.last_mut() {
                line.insns = line.insns.saturating_add(1);
            }
            after = at + qemu_plugin_insn_size(insn) as u64;
            if place == n - 1 && (after - 1) / 64 != at / 64 {
                // It reaches into one more line.
                draft.line((after - 1) / 64 * 64, insn, told);
            }
            let (bytes, len) = instruction_bytes(insn);
            let uses = flow.step(&bytes[..len]);
            draft.accesses.push(Access::new(&uses));
            let plain =
                |which, shift, store| (Told::Access(place), on_plain as OnMem, which, shift, store);
            let (now, on, which, shift, store) = match uses.report {
                Report::Quiet => continue,
                Report::Open => (Told::Unsure, on_access as OnMem, MEM_RW, 0, false),
                Report::Load(shift) => plain(MEM_RW, shift, false),
                Report::Store(shift) => plain(MEM_RW, shift, true),
                Report::Modify(shift) => plain(MEM_ONCE, shift, true),
            };
            if matches!((told, now), (Told::Begin, Told::Access(_))) {
                entering = Some(requests.len());
            }
            told = now;
            requests.push(Request { insn, on, which, tag: word::tag(place, shift, store) });
        }
        let script = script::keep(Block {
            start,
            after,
            lines: draft.lines.into(),
            first: draft.first,
            accesses: draft.accesses.into(),
            tag: entering.map_or(0, |r: usize| requests[r].tag),
            condition: flow.condition(),
            effect: flow.effect(),
        });
        let pointer = std::ptr::from_ref(script).cast_mut().cast();
        if entering.is_none() {
            qemu_plugin_register_vcpu_insn_exec_cb(begin, on_block, NO_REGS, pointer);
        }
        for (insn, n) in draft.alone {
            let Line { addr, insns } = script.block.lines[n];
            let word = without_provenance_mut(word::fetch(addr, insns) as usize);
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_word, NO_REGS, word);
        }
        for (i, Request { insn, on, which, tag }) in requests.into_iter().enumerate() {
            let (on, data) = match entering == Some(i) {
                true => (on_first as OnMem, pointer),
                false => (on, without_provenance_mut(tag as usize)),
            };
            qemu_plugin_register_vcpu_mem_cb(insn, on, NO_REGS, which, data);
        }
    }
}

/// A block begins.
extern "C" fn on_block(vcpu: c_uint, script: *mut c_void) {
    // SAFETY: QEMU runs the callback on the CPU it names.
    unsafe { order::push(vcpu, [word::enter(script.expose_provenance())]) };
}

/// A word as it is.
extern "C" fn on_word(vcpu: c_uint, word: *mut c_void) {
    // SAFETY: QEMU runs the callback on the CPU it names.
    unsafe { order::push(vcpu, [word.addr() as u64]) };
}

/// An access of which only the address was not known, and before it the beginning of its block.
extern "C" fn on_first(vcpu: c_uint, _: u32, addr: u64, script: *mut c_void) {
    // SAFETY: the script was made for this callback and lives for ever; QEMU runs the callback on
    // the CPU it names.
    unsafe {
        let tag = (*script.cast::<Script>()).block.tag;
        let words = [word::enter(script.expose_provenance()), word::access(addr, tag)];
        order::push(vcpu, words);
    }
}

/// An access of which only the address was not known.
extern "C" fn on_plain(vcpu: c_uint, _: u32, addr: u64, tag: *mut c_void) {
    // SAFETY: QEMU runs the callback on the CPU it names.
    unsafe { order::push(vcpu, [word::access(addr, tag.addr() as u64)]) };
}

/// Any other access.
extern "C" fn on_access(vcpu: c_uint, info: u32, addr: u64, tag: *mut c_void) {
    // SAFETY: info is the value this callback was given; QEMU runs it on the CPU it names.
    unsafe {
        let store = u64::from(qemu_plugin_mem_is_store(info)) * word::STORE;
        let sized = word::sized(qemu_plugin_mem_size_shift(info));
        order::push(vcpu, [word::access(addr, tag.addr() as u64 | sized | store)]);
    }
}
