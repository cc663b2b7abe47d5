//! Objects: pages that two spaces map, zeros at first or with a file behind them, and a device.

use core::sync::atomic::Ordering;

use vellum::addr::{Level, Pfn, Va};
use vellum::entry::{CacheMode, Entry};
use vellum::error::{FaultError, ObjectError};
use vellum::machine::Machine;
use vellum::space::{Attrs, HugeAdvice, Placement, Rights, Space};
use vellum::vm::{DeviceMemory, ObjectPart, Vm};

use super::{AT, Failed, GIB, Outcome, PAGE, Walked, ensure, failed, faults, recount, walk};
use crate::arch::user::{load, store};
use crate::fault::{self, BEYOND, RIGHTS, UNMAPPED};
use crate::machine::{FILE, Metal, on_disk};

pub fn shared(vm: &Vm<Metal>, space: &Space) -> Outcome {
    const THERE: u64 = AT + GIB + 5 * PAGE;
    let objects = vm.objects();
    let Ok(object) = objects.create(4 * PAGE) else { return Err(failed!("an object")) };
    let Ok(other) = vm.create() else { return Err(failed!("a second space")) };
    let both = || -> Outcome {
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let part = ObjectPart { object: &object, offset: 0 };
        for (space, at) in [(space, AT), (&other, THERE)] {
            let mapped = vm.map_object(space, Placement::At(Va(at)), 4 * PAGE, attrs, part);
            ensure!(mapped == Ok(Va(at)));
        }
        ensure!(store(AT + PAGE, 1).is_ok() && load(AT + 2 * PAGE) == Ok(0));
        let there = fault::run(vm, &other, || {
            let seen = load(THERE + PAGE);
            (seen, store(THERE + PAGE, 2), store(THERE + 2 * PAGE, 3))
        });
        ensure!(there == (Ok(1), Ok(()), Ok(())));
        // The pages are here already.
        ensure!(faults(|| (load(AT + PAGE), load(AT + 2 * PAGE))) == (0, (Ok(2), Ok(3))));
        let mut bytes = [0; 8];
        ensure!(objects.read(&object, 2 * PAGE, &mut bytes) == (8, Ok(())) && bytes[0] == 3);
        recount(vm, &[space, &other])?;
        // What is cut off is gone from this processor's TLB, too.
        ensure!(objects.resize(&object, 2 * PAGE) == Ok(()));
        ensure!(load(AT + 2 * PAGE) == Err(BEYOND) && load(AT + PAGE) == Ok(2));
        ensure!(objects.punch(&object, PAGE, PAGE) == Ok(()));
        ensure!(load(AT + PAGE) == Ok(0));
        Ok(())
    };
    let outcome = both();
    vm.exit(other);
    // The mapping here keeps it.
    objects.discard(object);
    outcome?;
    ensure!(load(AT + PAGE) == Ok(0));
    Ok(())
}

pub fn blocks(vm: &Vm<Metal>, space: &Space) -> Outcome {
    const HUGE: u64 = 512 * PAGE;
    const THERE: u64 = AT + GIB;
    const ODD: u64 = AT + 2 * GIB + PAGE;
    let objects = vm.objects();
    let Ok(object) = objects.create(2 * HUGE) else { return Err(failed!("an object")) };
    let Ok(other) = vm.create() else { return Err(failed!("a second space")) };
    let both = || -> Outcome {
        let thp = Some(HugeAdvice::Huge);
        let attrs = Attrs { thp, ..Attrs::anonymous(Rights::READ_WRITE) };
        let part = ObjectPart { object: &object, offset: 0 };
        for (space, at) in [(space, AT), (&other, THERE), (&other, ODD)] {
            let mapped = vm.map_object(space, Placement::At(Va(at)), 2 * HUGE, attrs, part);
            ensure!(mapped == Ok(Va(at)));
        }
        let touched = faults(|| (store(AT + 5 * PAGE, 1), load(AT + 511 * PAGE)));
        ensure!(touched == (1, (Ok(()), Ok(0))));
        let Walked { level, entry, .. } = walk(vm, AT);
        ensure!(level == Level::TWO && matches!(entry, Entry::Shared(..)));
        let there = fault::run(vm, &other, || {
            let seen = faults(|| (load(THERE + 5 * PAGE), load(THERE + 6 * PAGE)));
            (seen, load(ODD + 5 * PAGE), store(ODD + 6 * PAGE, 2), store(THERE + 7 * PAGE, 3))
        });
        ensure!(there == ((1, (Ok(1), Ok(0))), Ok(1), Ok(()), Ok(())));
        ensure!(faults(|| (load(AT + 6 * PAGE), load(AT + 7 * PAGE))) == (0, (Ok(2), Ok(3))));
        ensure!(objects.usage(&object).huge_pages == 1);
        recount(vm, &[space, &other])?;
        // The large translation is gone from this processor's TLB.
        ensure!(objects.punch(&object, 6 * PAGE, PAGE) == Ok(()));
        ensure!((load(AT + 6 * PAGE), load(AT + 7 * PAGE)) == (Ok(0), Ok(3)));
        ensure!(walk(vm, AT + 7 * PAGE).level == Level::ONE);
        ensure!(objects.usage(&object).huge_pages == 0);
        recount(vm, &[space, &other]).map(drop)
    };
    let outcome = both();
    vm.exit(other);
    objects.discard(object);
    outcome
}

pub fn file(vm: &Vm<Metal>, space: &Space) -> Outcome {
    const THERE: u64 = AT + GIB + 3 * PAGE;
    const BYTES: u64 = FILE as u64;
    (0..BYTES / PAGE).for_each(|i| on_disk(i * PAGE).store(100 + i, Ordering::Relaxed));
    let disk = |page: u64| on_disk(page * PAGE).load(Ordering::Relaxed);
    let objects = vm.objects();
    let Ok(file) = objects.create_paged(BYTES, 1) else { return Err(failed!("a file")) };
    let Ok(other) = vm.create() else { return Err(failed!("a second space")) };
    let both = || -> Outcome {
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let part = ObjectPart { object: &file, offset: 0 };
        for (space, at) in [(space, AT), (&other, THERE)] {
            let mapped = vm.map_object(space, Placement::At(Va(at)), BYTES, attrs, part);
            ensure!(mapped == Ok(Va(at)));
        }
        // The first fault reads four pages and maps one; the next maps those around.
        ensure!((0..8).all(|i| load(AT + i * PAGE) == Ok(100 + i)));
        ensure!(store(AT, 1).is_ok() && disk(0) == 100);
        let there = fault::run(vm, &other, || {
            let seen = (load(THERE), load(THERE + 7 * PAGE));
            (seen, store(THERE + 5 * PAGE, 2))
        });
        ensure!(there == ((Ok(1), Ok(107)), Ok(())));
        recount(vm, &[space, &other])?;
        ensure!(objects.usage(&file).dirty_pages == 2);
        ensure!(objects.sync(&file, 0, u64::MAX) == Ok(()));
        ensure!(disk(0) == 1 && disk(1) == 101 && disk(5) == 2);
        // A store after the sync is seen by the next one: the processor's TLB has no right to it.
        ensure!(faults(|| store(AT, 3)) == (1, Ok(())) && objects.usage(&file).dirty_pages == 1);
        ensure!(objects.evict(&file, 0, u64::MAX) == 7);
        ensure!(faults(|| load(AT)) == (0, Ok(3)));
        on_disk(7 * PAGE).store(9, Ordering::Relaxed);
        ensure!(load(AT + 7 * PAGE) == Ok(9));
        ensure!(objects.sync(&file, 0, u64::MAX) == Ok(()) && disk(0) == 3);
        Ok(())
    };
    let outcome = both();
    vm.exit(other);
    objects.discard(file);
    outcome
}

/// The timer that every PC has there since 2005 (HPET): its first register has the maker's number
/// in bits 16 to 31, bit 0 of the next starts the counter.
pub fn device(vm: &Vm<Metal>, space: &Space) -> Outcome {
    const HPET: u64 = 0xfed0_0000;
    const START: u64 = AT + 0x10;
    const COUNTER: u64 = AT + 0xf0;
    let memory =
        |address| DeviceMemory { address, bytes: PAGE, cache: CacheMode::Uncached, writable: true };
    let objects = vm.objects();
    // SAFETY: refused, as memory of the library.
    let own =
        unsafe { objects.create_device(memory(vm.machine().topology().frames_start() * PAGE)) };
    ensure!(own.is_err_and(|error| error == ObjectError::Owned));
    // SAFETY: nothing else here uses the timer.
    let Ok(timer) = (unsafe { objects.create_device(memory(HPET)) }) else {
        return Err(failed!("a device"));
    };
    let both = || -> Outcome {
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let part = ObjectPart { object: &timer, offset: 0 };
        ensure!(vm.map_object(space, Placement::At(Va(AT)), PAGE, attrs, part) == Ok(Va(AT)));
        let (taken, id) = faults(|| load(AT));
        ensure!(taken == 1 && id.is_ok_and(|id| id >> 16 & 0xffff == 0x8086));
        let Walked { level, entry, .. } = walk(vm, AT);
        let there =
            matches!(entry, Entry::Device(Pfn(p), _, CacheMode::Uncached) if p == HPET / PAGE);
        ensure!(level == Level::ONE && there && vm.usage(space).device_pages == 1);
        // A store reaches the device, and loads are not from a cache.
        ensure!(faults(|| store(START, 1)) == (0, Ok(())));
        let Ok(first) = load(COUNTER) else { return Err(failed!("a counter")) };
        let goes_on = |_| load(COUNTER).is_ok_and(|now| now > first);
        ensure!((0..1_000_000).any(goes_on));
        ensure!(vm.protect(space, Va(AT), PAGE, Rights::READ) == Ok(()));
        ensure!(store(START, 0) == Err(RIGHTS) && faults(|| load(AT)) == (0, id));
        ensure!(vm.copy_out(space, Va(AT), &mut [0; 8]) == Err(FaultError::Device));
        let Ok(child) = vm.fork(space) else { return Err(failed!("a child")) };
        let seen = fault::run(vm, &child, || faults(|| load(AT)));
        recount(vm, &[space, &child])?;
        vm.exit(child);
        ensure!(seen == (0, id));
        ensure!(vm.unmap(space, Va(AT), PAGE) == Ok(()) && load(AT) == Err(UNMAPPED));
        recount(vm, &[space]).map(drop)
    };
    let outcome = both();
    objects.discard(timer);
    outcome
}
