//! Memory of a device, which the library maps and does nothing else with.

use crate::common::*;
use crate::script;
use vellum::addr::{Order, Pfn};
use vellum::entry::{Busy, CacheMode, Entry};
use vellum::machine::{Machine, Use, Verb};
use vellum_sim::format::Format;
use vellum_sim::{Cpu, Options, Rule};
use vellum_testkit::ext::MachineExt;

/// The first frame of the device: behind the memory.
fn device<F: Format>(k: &Kernel<'_, F>) -> Pfn {
    Pfn(k.sim.topology().frames_end().next_multiple_of(512))
}

fn leaf<F: Format>(k: &Kernel<'_, F>, cache: CacheMode) -> Entry {
    Entry::Device(device(k), RW, cache)
}

fn with_device(options: Options) -> Options {
    Options { device_frames: 2048, ..options }
}

fn legal(s: &impl Script) {
    for (mmu, options) in ALL.into_iter().flat_map(|mmu| both().map(|o| (mmu, o))) {
        play(mmu, with_device(options), s).unwrap_or_else(|stop| panic!("{mmu:?}: {stop}"));
    }
}

fn stops_at(rule: Rule, s: &impl Script) {
    for (mmu, options) in ALL.into_iter().flat_map(|mmu| both().map(|o| (mmu, o))) {
        assert_eq!(broken(play(mmu, with_device(options), s)), Some(rule), "{mmu:?}");
    }
}

#[test]
fn devices_mapped_twice_writable_never_cleared_and_mapped_anew_are_legal() {
    legal(&script!(k, cpu, {
        k.set(A, leaf(k, CacheMode::Uncached));
        k.set(B, leaf(k, CacheMode::Uncached));
        assert!(store(cpu, A) && load(cpu, B) && store(cpu, B));
        k.verb(Verb::Unmap, || {
            for va in [A, B] {
                k.set(va, Entry::Busy(Busy::Nothing));
                k.flush(&[0, 1], k.page(va));
                k.set(va, Entry::Reserved);
            }
        });
        // In another cache mode once nobody maps it.
        k.set(A, leaf(k, CacheMode::WriteCombining));
        assert!(store(cpu, A));
        k.set_at(A + (8 << 21), 2, Entry::Device(device(k).add(512), RW, CacheMode::WriteThrough));
        assert!(store(cpu, A + (8 << 21) + 9 * 4096));
    }));
}

/// Frames behind the memory that entries map are looked at, too.
#[test]
fn devices_that_are_mapped_pass_the_audit() {
    legal(&script!(k, cpu, {
        k.load();
        k.set(A, leaf(k, CacheMode::Uncached));
        assert!(store(cpu, A));
        k.sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
    }));
}

#[test]
fn devices_given_freed_or_counted_stop() {
    for used in [Use::Data, Use::Object, Use::Free, Use::Pending, Use::Poisoned] {
        struct Becomes(Use);
        impl Script for Becomes {
            fn play<F: Format>(&self, k: &Kernel<'_, F>, _: &Cpu<'_, F>) {
                k.set(A, leaf(k, CacheMode::Uncached));
                k.sim.becomes(device(k), Order::BASE, self.0);
            }
        }
        stops_at(Rule::FrameState, &Becomes(used));
    }
}

#[test]
fn devices_cleared_copied_read_or_written_by_the_kernel_stop() {
    stops_at(Rule::Contract, &script!(k, _cpu, { k.sim.zero_out(device(k), 1) }));
    stops_at(
        Rule::Contract,
        &script!(k, _cpu, {
            // SAFETY: nothing is copied.
            unsafe { k.sim.copy(k.data(), device(k), 1) }
        }),
    );
    stops_at(
        Rule::Contract,
        &script!(k, _cpu, {
            // SAFETY: nothing is read.
            unsafe { k.sim.read(device(k), 0, &mut [0; 8]) }
        }),
    );
    stops_at(
        Rule::Contract,
        &script!(k, _cpu, {
            // SAFETY: nothing is written.
            unsafe { k.sim.write(device(k), 0, &[0; 8]) }
        }),
    );
}

#[test]
fn devices_unmapped_without_a_flush_stop() {
    stops_at(
        Rule::OpenObligation,
        &script!(k, cpu, {
            k.set(A, leaf(k, CacheMode::Uncached));
            assert!(store(cpu, A));
            k.verb(Verb::Unmap, || k.set(A, Entry::Reserved));
        }),
    );
}

#[test]
fn devices_in_two_cache_modes_at_once_and_memory_in_another_than_write_back_stop() {
    stops_at(
        Rule::MemoryType,
        &script!(k, _cpu, {
            k.set(A, leaf(k, CacheMode::Uncached));
            k.set(B, leaf(k, CacheMode::WriteBack));
        }),
    );
    // The mode is lost where only rights were to change.
    stops_at(
        Rule::MemoryType,
        &script!(k, _cpu, {
            k.set(A, leaf(k, CacheMode::Uncached));
            k.set(A, Entry::Device(device(k), RO, CacheMode::WriteBack));
        }),
    );
    stops_at(
        Rule::MemoryType,
        &script!(k, _cpu, {
            let pfn = k.data();
            k.set(A, Entry::Device(pfn, RW, CacheMode::Uncached));
        }),
    );
    legal(&script!(k, cpu, {
        k.set(A, leaf(k, CacheMode::Uncached));
        k.verb(Verb::Protect, || {
            k.set(A, Entry::Device(device(k), RO, CacheMode::Uncached));
            k.flush(&[0, 1], k.page(A));
        });
        assert!(load(cpu, A) && !store(cpu, A));
    }));
}

/// A device comes to another place in another mode, after a flush of the old one on those CPUs.
struct Elsewhere(&'static [usize]);

impl Script for Elsewhere {
    fn play<F: Format>(&self, k: &Kernel<'_, F>, cpu: &Cpu<'_, F>) {
        k.set(A, leaf(k, CacheMode::Uncached));
        assert!(store(cpu, A));
        cpu.script(1, |c| assert!(store(c, A)));
        k.verb(Verb::Unmap, || {
            k.set(A, Entry::Busy(Busy::Nothing));
            k.flush(self.0, k.page(A));
            k.set(B, leaf(k, CacheMode::WriteCombining));
            k.flush(&[0, 1], k.page(A));
        });
    }
}

#[test]
fn devices_in_another_mode_while_a_cpu_may_use_the_old_one_stop() {
    legal(&Elsewhere(&[0, 1]));
    // The CPU that does it flushes its own before its program goes on.
    legal(&Elsewhere(&[1]));
    stops_at(Rule::MemoryType, &Elsewhere(&[0]));
    stops_at(Rule::MemoryType, &Elsewhere(&[]));
}

#[test]
fn devices_end_where_the_machine_says() {
    stops_at(
        Rule::Malformed,
        &script!(k, _cpu, {
            k.set(A, Entry::Device(device(k).add(1 << 20), RW, CacheMode::Uncached));
        }),
    );
}
