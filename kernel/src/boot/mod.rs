//! What the hypervisor passes at the start, and the memory that we choose from it.
//!
//! PVH needs one note in the image and one structure in memory. Rejected: multiboot, which refuses
//! 64-bit images; a boot loader, which needs a disk. The layout of both is Xen's public
//! `arch-x86/hvm/start_info.h`.

use core::arch::global_asm;

use vellum::addr::{PAGE_SIZE, Pfn};

use crate::arch::PHYSMAP;

global_asm!(include_str!("entry.s"), options(att_syntax));

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;
/// The boot page tables map this much.
const MAPPED: u64 = 4 << 30;
const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// `hvm_start_info`, version 1.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

/// `hvm_memmap_table_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryMapEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

/// Frames to manage: the largest run of memory under 4 GiB, and how many at its start the image
/// takes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub first: Pfn,
    pub frames: u64,
    pub image: u64,
}

fn physical<T>(address: u64) -> *const T {
    (PHYSMAP + address) as *const T
}

/// Reads the start info at that physical address. `None` if it is not one, or the image lies in no
/// memory.
pub fn memory(start_info: u64) -> Option<Memory> {
    unsafe extern "C" {
        static image_end: u8;
    }
    let image_frames_end = (&raw const image_end as u64 - KERNEL_BASE).div_ceil(PAGE_SIZE as u64);
    // SAFETY: the hypervisor put the structure below 4 GiB, where the physmap reaches, and nothing
    // has been written yet.
    let info = unsafe { &*physical::<StartInfo>(start_info) };
    if info.magic != MAGIC || info.version < 1 {
        return None;
    }
    let mut best: Option<Memory> = None;
    for i in 0..info.memory_map_entries as usize {
        // SAFETY: as above; the map has that many entries.
        let e = unsafe { physical::<MemoryMapEntry>(info.memory_map).add(i).read() };
        let end = (e.address + e.size).min(MAPPED) / PAGE_SIZE as u64;
        let first = e.address.div_ceil(PAGE_SIZE as u64);
        if e.kind == RAM && first < end && best.is_none_or(|b| b.frames < end - first) {
            let image = if (first..end).contains(&(image_frames_end - 1)) {
                image_frames_end - first
            } else {
                0
            };
            best = Some(Memory { first: Pfn(first), frames: end - first, image });
        }
    }
    best.filter(|b| b.image > 0)
}
