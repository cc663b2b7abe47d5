//! Vellum on bare x86_64.
//!
//! `boot/` starts the kernel, `arch/` is the processor, [`machine`] implements the library's trait,
//! [`fault`] passes page faults to the library, and [`tests`] checks all of it. Stable Rust only.
#![no_std]
#![no_main]

mod arch;
mod boot;
mod fault;
mod machine;
mod tests;

use core::panic::PanicInfo;

use vellum::addr::{PAGE_SIZE, Pfn};
use vellum::config::Config;
use vellum::error::InitError;
use vellum::machine::Machine;
use vellum::vm::Vm;

use arch::cpu;
use machine::Metal;

/// Exit values; the status of the virtual machine is twice that and one: 33, 35, 127.
const EXIT_PASSED: u8 = 0x10;
const EXIT_FAILED: u8 = 0x11;
const EXIT_PANIC: u8 = 0x3f;

#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    arch::serial::init();
    arch::traps::init();
    let Some(memory) = boot::memory(start_info) else {
        println!("not ok - the hypervisor says where memory is");
        cpu::exit(EXIT_FAILED)
    };
    println!(
        "# memory: {} MiB from {:?}, image {} KiB",
        memory.frames >> 8,
        memory.first,
        memory.image * 4
    );

    // SAFETY: what boot put in the user half is behind us; the frames are ours, the image's own
    // excepted, which `reserve` takes out.
    let metal = unsafe { Metal::new(memory.first, memory.frames) };
    let vm = match vm(metal, &memory) {
        Ok(vm) => vm,
        Err(why) => {
            println!("not ok - a Vm can be built: {why}");
            cpu::exit(EXIT_FAILED)
        }
    };
    cpu::exit(if tests::run(&vm) { EXIT_PASSED } else { EXIT_FAILED })
}

/// A `Vm` whose metadata lies right behind the image.
fn vm(metal: Metal, memory: &boot::Memory) -> Result<Vm<Metal>, InitError> {
    let layout = Vm::<Metal>::layout(metal.topology());
    let page = PAGE_SIZE as u64;
    let start =
        (memory.first.add(memory.image).addr()).next_multiple_of(page.max(layout.align() as u64));
    let taken = (start + layout.size() as u64).div_ceil(page) - memory.first.0;
    if taken >= memory.frames {
        return Err(InitError::NoMemory);
    }
    println!(
        "# metadata: {} KiB, {} bytes a frame",
        layout.size() >> 10,
        layout.size() as u64 / memory.frames
    );
    let meta = metal.direct(Pfn(start / page));
    // SAFETY: behind the image, inside memory, nobody's.
    unsafe { cpu::zero(meta.cast().as_ptr(), layout.size().div_ceil(8)) };
    // SAFETY: zeroed memory of that layout that stays the library's for ever, and is reserved
    // before anything is allocated.
    let mut vm = unsafe { Vm::new(metal, Config::default(), meta) }?;
    vm.reserve(memory.first, taken).expect("nothing is allocated yet");
    Ok(vm)
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    println!("not ok - {info}");
    cpu::exit(EXIT_PANIC)
}
