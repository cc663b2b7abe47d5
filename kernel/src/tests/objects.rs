//! Objects: pages that two spaces map, zeros at first or with a file behind them.

use core::sync::atomic::Ordering;

use vellum::addr::Va;
use vellum::space::{Attrs, Placement, Rights, Space};
use vellum::vm::{ObjectPart, Vm};

use super::{AT, Failed, GIB, Outcome, PAGE, ensure, failed, faults, recount};
use crate::arch::user::{load, store};
use crate::fault::{self, BEYOND};
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
