//! The library on real page tables: every test is a claim about what the processor sees.
//!
//! Each test gets a new space and runs in it. Then the space exits, everything is recounted, and no
//! frame may be missing. A load or store here is an instruction that faults, is served through the
//! trap handler, and is tried again. Output lines are `ok - name`, `not ok - name: where`, and `#
//! numbers`.

use core::sync::atomic::Ordering;

use vellum::addr::{Level, Order, PAGE_SIZE, Pfn, Va, VaRange};
use vellum::entry::{Codec, Entry, Flags, X86_64};
use vellum::error::SpaceError;
use vellum::machine::{Asid, CpuMask, Machine, Scope};
use vellum::space::{Advice, Attrs, HugeAdvice, LeafSize, Page, Placement, Rights, Space};
use vellum::vm::Vm;

use crate::arch::cpu;
use crate::arch::user::{call, load, store};
use crate::fault::{self, NO_MEMORY, RIGHTS, UNMAPPED};
use crate::machine::Metal;
use crate::println;

const PAGE: u64 = PAGE_SIZE as u64;
const MIB: u64 = 1 << 20;
const HUGE: u64 = 2 * MIB;
const GIB: u64 = 1 << 30;
/// Where tests map: aligned to every leaf size, in the middle of the user half.
const AT: u64 = 0x2000_0000_0000;
/// x86's `ret`.
const RET: u64 = 0xc3;

mod objects;

/// Why a test failed: the place, and what was expected there.
struct Failed {
    file: &'static str,
    line: u32,
    claim: &'static str,
}
type Outcome = Result<(), Failed>;

macro_rules! failed {
    ($claim:expr) => {
        Failed { file: file!(), line: line!(), claim: $claim }
    };
}
macro_rules! ensure {
    ($claim:expr) => {
        if !$claim {
            return Err(failed!(stringify!($claim)));
        }
    };
}
use {ensure, failed};

type Test = fn(&Vm<Metal>, &Space) -> Outcome;
const TESTS: &[(&str, Test)] = &[
    ("a store to untouched memory faults once a page, and the page was zeros", base_pages),
    ("a load maps the shared zeros, a store gives the page its own", zeros),
    ("a store to a huge range faults once for 2 MiB, and all of it was zeros", huge_pages),
    (
        "a range populated at once is zeros and does not fault; a long one is cleared around the \
         caches",
        populated,
    ),
    ("the processor sets accessed and dirty where the library reads them", marks),
    ("read-only pages refuse stores, also those already in the TLB", protect),
    ("pages without rights keep their contents", no_rights),
    ("one page of a huge page can be protected alone", protect_part_of_huge),
    ("code runs only where fetching is allowed", fetches),
    ("an unmapped page is gone, its neighbours are not", unmap),
    ("a hole in a huge page leaves the rest as it was", unmap_part_of_huge),
    ("what is forgotten reads as zeros", forget),
    ("a moved page answers at its new place alone", moved),
    ("after fork both sides see the old contents and only their own stores", forked),
    ("an object shows the same page in two spaces, until it is cut off", objects::shared),
    ("an object's block is mapped as a whole, and by pages, until it is split", objects::blocks),
    ("a file shows its bytes in two spaces, and gets what both stored by a sync", objects::file),
    ("a device shows its registers, and gets what is stored to them", objects::device),
    ("the kernel's copies and the program's accesses meet", copies),
    ("a changed entry is seen after invlpg, a dropped range after a flush", flushes),
    ("a 1 GiB page is one fault, or refused as one", giant_page),
    ("when memory runs out the fault says so, and all comes back", exhaustion),
];

/// Runs every test. Whether all passed.
pub fn run(vm: &Vm<Metal>) -> bool {
    let mut passed = true;
    for (name, test) in TESTS {
        match one(vm, *test) {
            Ok(()) => println!("ok - {name}"),
            Err(Failed { file, line, claim }) => {
                passed = false;
                println!("not ok - {name}: line {line} of {file}:");
                claim.lines().for_each(|part| println!("#   {}", part.trim()));
            }
        }
    }
    numbers(vm);
    passed
}

fn one(vm: &Vm<Metal>, test: Test) -> Outcome {
    let before = recount(vm, &[])?;
    let Ok(space) = vm.create() else { return Err(failed!("a space can be made")) };
    let outcome = fault::run(vm, &space, || test(vm, &space));
    let audit = recount(vm, &[&space]);
    vm.exit(space);
    outcome?;
    audit?;
    ensure!(vm.machine().preempt_depth() == 0);
    ensure!(recount(vm, &[])? == before);
    Ok(())
}

/// Free frames, after everything was recounted. The one page of zeros, made at the first use and
/// kept, counts as free.
fn recount(vm: &Vm<Metal>, spaces: &[&Space]) -> Result<u64, Failed> {
    // SAFETY: one CPU, and no other call under way.
    match unsafe { vm.validate(spaces) } {
        Ok(audit) => Ok(audit.free_frames + audit.zero_frames),
        Err(why) => {
            println!("# {why}");
            Err(failed!("everything adds up"))
        }
    }
}

/// Maps `bytes` there, readable and writable, with base pages or as the switches say.
fn map(vm: &Vm<Metal>, space: &Space, at: u64, bytes: u64, thp: Option<HugeAdvice>) -> Outcome {
    let attrs = Attrs { thp, ..Attrs::anonymous(Rights::READ_WRITE) };
    ensure!(vm.map(space, Placement::At(Va(at)), bytes, attrs) == Ok(Va(at)));
    Ok(())
}
const BASE: Option<HugeAdvice> = Some(HugeAdvice::NoHuge);
const SWITCH: Option<HugeAdvice> = None;

/// Faults taken by `body`.
fn faults<T>(body: impl FnOnce() -> T) -> (u64, T) {
    let before = fault::taken();
    let value = body();
    (fault::taken() - before, value)
}

/// The entry that ends a walk, and where it is.
struct Walked {
    table: Pfn,
    slot: usize,
    level: Level,
    entry: Entry,
}

/// What the processor's own root says about an address.
fn walk(vm: &Vm<Metal>, at: u64) -> Walked {
    let (mut table, mut level) = (Pfn(cpu::root() / PAGE), Level(4));
    loop {
        let slot = level.slot(Va(at));
        // SAFETY: tables that the root in force leads to.
        match X86_64::decode(unsafe { vm.machine().entry_load(table, slot) }, level) {
            Entry::Table(next) => (table, level) = (next, level.child()),
            entry => return Walked { table, slot, level, entry },
        }
    }
}

fn flags(vm: &Vm<Metal>, space: &Space, at: u64) -> Flags {
    match vm.query(space, Va(at)) {
        Page::Mapped { flags, .. } => flags,
        _ => Flags::default(),
    }
}

fn base_pages(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 16 * PAGE, BASE)?;
    for i in 0..16 {
        let at = AT + i * PAGE + 8 * i;
        ensure!(faults(|| store(at, i + 1)) == (1, Ok(())));
        ensure!(faults(|| load(at)) == (0, Ok(i + 1)));
        ensure!(faults(|| load(AT + i * PAGE + 4088)) == (0, Ok(0)));
        let Page::Mapped { pfn, level: Level::ONE, zero: false, .. } = vm.query(space, Va(at))
        else {
            return Err(failed!("query finds a base page"));
        };
        let Walked { level, entry, .. } = walk(vm, at);
        ensure!(level == Level::ONE && matches!(entry, Entry::Leaf(p, _) if p == pfn));
    }
    ensure!(load(AT + 16 * PAGE) == Err(UNMAPPED) && load(AT - 8) == Err(UNMAPPED));
    ensure!(vm.usage(space).rss_pages == 16);
    Ok(())
}

fn zeros(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 2 * PAGE, BASE)?;
    ensure!(faults(|| load(AT)) == (1, Ok(0)) && faults(|| load(AT + PAGE)) == (1, Ok(0)));
    ensure!(vm.usage(space).rss_pages == 0);
    ensure!(faults(|| store(AT, 7)) == (1, Ok(())));
    ensure!(load(AT) == Ok(7) && load(AT + PAGE) == Ok(0));
    ensure!(vm.usage(space).rss_pages == 1);
    Ok(())
}

fn huge_pages(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 2 * HUGE, SWITCH)?;
    let (taken, stored) = faults(|| (0..2 * HUGE / PAGE).all(|i| store(AT + i * PAGE, !i).is_ok()));
    ensure!(stored && taken == 2);
    ensure!(
        (0..2 * HUGE / PAGE)
            .all(|i| load(AT + i * PAGE) == Ok(!i) && load(AT + i * PAGE + 2048) == Ok(0))
    );
    let Walked { level, entry, .. } = walk(vm, AT + HUGE);
    ensure!(level == Level::TWO && matches!(entry, Entry::Leaf(..)));
    ensure!(vm.usage(space).huge_leaves == 2);
    Ok(())
}

fn populated(vm: &Vm<Metal>, space: &Space) -> Outcome {
    let pages = 6 * HUGE / 2 / PAGE;
    map(vm, space, AT, pages * PAGE, BASE)?;
    let l2 = vm.machine().caches().l2.bytes();
    let relaxed = core::sync::atomic::Ordering::Relaxed;
    let non_temporal = || vm.machine().cleared_non_temporal.load(relaxed);
    for _ in 0..2 {
        let before = non_temporal();
        ensure!(vm.advise(space, Va(AT), pages * PAGE, Advice::Populate { write: true }) == Ok(()));
        let zero = || {
            (0..pages)
                .all(|i| [0, 8, 2048, 4088].iter().all(|at| load(AT + i * PAGE + at) == Ok(0)))
        };
        ensure!(faults(zero) == (0, true));
        // All of them but those that made a table.
        ensure!(non_temporal() - before >= pages - 8 || l2 == 0 || pages * PAGE < l2 / 2);
        ensure!(
            faults(|| (0..pages * PAGE / 8).all(|i| store(AT + i * 8, !i).is_ok())) == (0, true)
        );
        ensure!(vm.advise(space, Va(AT), pages * PAGE, Advice::DontNeed) == Ok(()));
    }
    Ok(())
}

fn marks(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, PAGE, BASE)?;
    ensure!(store(AT, 1).is_ok());
    let Walked { table, slot, level, entry: Entry::Leaf(pfn, old) } = walk(vm, AT) else {
        return Err(failed!("a leaf"));
    };
    let clean =
        X86_64::encode(Entry::Leaf(pfn, Flags { accessed: false, dirty: false, ..old }), level);
    // SAFETY: the same leaf without its marks.
    unsafe { vm.machine().entry_store(table, slot, clean) };
    vm.machine().flush_local(Scope::Page(Asid(0), Va(AT)));
    ensure!(!flags(vm, space, AT).accessed && !flags(vm, space, AT).dirty);
    ensure!(faults(|| load(AT)) == (0, Ok(1)));
    ensure!(flags(vm, space, AT).accessed && !flags(vm, space, AT).dirty);
    ensure!(faults(|| store(AT, 2)) == (0, Ok(())));
    ensure!(flags(vm, space, AT).dirty);
    Ok(())
}

fn protect(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 3 * PAGE, BASE)?;
    ensure!((0..3).all(|i| store(AT + i * PAGE, i).is_ok()));
    ensure!(vm.protect(space, Va(AT + PAGE), PAGE, Rights::READ) == Ok(()));
    ensure!(faults(|| store(AT + PAGE, 9)) == (1, Err(RIGHTS)));
    ensure!(faults(|| load(AT + PAGE)) == (0, Ok(1)));
    ensure!(store(AT, 5).is_ok() && store(AT + 2 * PAGE, 6).is_ok());
    ensure!(vm.protect(space, Va(AT), 3 * PAGE, Rights::READ_WRITE) == Ok(()));
    ensure!(store(AT + PAGE, 8).is_ok() && load(AT + PAGE) == Ok(8));
    Ok(())
}

fn no_rights(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 2 * PAGE, BASE)?;
    ensure!(store(AT, 3).is_ok());
    ensure!(vm.protect(space, Va(AT), 2 * PAGE, Rights::NONE) == Ok(()));
    ensure!(
        load(AT) == Err(RIGHTS) && store(AT, 4) == Err(RIGHTS) && load(AT + PAGE) == Err(RIGHTS)
    );
    ensure!(vm.protect(space, Va(AT), 2 * PAGE, Rights::READ_WRITE) == Ok(()));
    ensure!(load(AT) == Ok(3) && load(AT + PAGE) == Ok(0));
    Ok(())
}

fn protect_part_of_huge(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, HUGE, SWITCH)?;
    ensure!((0..512).all(|i| store(AT + i * PAGE, i).is_ok()));
    ensure!(vm.protect(space, Va(AT + 100 * PAGE), PAGE, Rights::READ) == Ok(()));
    ensure!(store(AT + 100 * PAGE, 0) == Err(RIGHTS));
    ensure!(store(AT + 99 * PAGE + 8, 1).is_ok() && store(AT + 101 * PAGE + 8, 1).is_ok());
    ensure!((0..512).all(|i| load(AT + i * PAGE) == Ok(i)));
    Ok(())
}

fn fetches(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, PAGE, BASE)?;
    ensure!(store(AT, RET).is_ok());
    // SAFETY: the page holds a `ret`, here and in the calls below.
    ensure!(unsafe { call(AT) } == Err(RIGHTS));
    ensure!(vm.protect(space, Va(AT), PAGE, Rights::READ_EXEC) == Ok(()));
    // SAFETY: as above.
    ensure!(unsafe { call(AT) } == Ok(()));
    ensure!(store(AT, 0) == Err(RIGHTS));
    ensure!(vm.protect(space, Va(AT), PAGE, Rights::READ) == Ok(()));
    // SAFETY: as above.
    ensure!(unsafe { call(AT) } == Err(RIGHTS));
    ensure!(vm.unmap(space, Va(AT), PAGE) == Ok(()));
    // SAFETY: nothing is there to be fetched.
    ensure!(unsafe { call(AT) } == Err(UNMAPPED));
    Ok(())
}

fn unmap(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 3 * PAGE, BASE)?;
    ensure!((0..3).all(|i| store(AT + i * PAGE, 10 + i).is_ok()));
    ensure!(vm.unmap(space, Va(AT + PAGE), PAGE) == Ok(()));
    ensure!(load(AT + PAGE) == Err(UNMAPPED) && store(AT + PAGE, 1) == Err(UNMAPPED));
    ensure!(load(AT) == Ok(10) && load(AT + 2 * PAGE) == Ok(12));
    ensure!(vm.query(space, Va(AT + PAGE)) == Page::Unmapped);
    // What comes to the same place again is new memory.
    map(vm, space, AT + PAGE, PAGE, BASE)?;
    ensure!(load(AT + PAGE) == Ok(0));
    ensure!(vm.unmap(space, Va(AT), 3 * PAGE) == Ok(()));
    ensure!((0..3).all(|i| load(AT + i * PAGE) == Err(UNMAPPED)));
    Ok(())
}

fn unmap_part_of_huge(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, HUGE, SWITCH)?;
    ensure!((0..512).all(|i| store(AT + i * PAGE, i).is_ok()));
    ensure!(vm.unmap(space, Va(AT + 7 * PAGE), 3 * PAGE) == Ok(()));
    for i in 0..512 {
        ensure!(load(AT + i * PAGE) == if (7..10).contains(&i) { Err(UNMAPPED) } else { Ok(i) });
    }
    ensure!(vm.usage(space).rss_pages == 509);
    Ok(())
}

fn forget(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, HUGE + 2 * PAGE, SWITCH)?;
    ensure!(
        store(AT, 1).is_ok() && store(AT + HUGE, 2).is_ok() && store(AT + HUGE + PAGE, 3).is_ok()
    );
    ensure!(vm.advise(space, Va(AT), HUGE + PAGE, Advice::DontNeed) == Ok(()));
    ensure!(load(AT) == Ok(0) && load(AT + HUGE) == Ok(0) && load(AT + HUGE + PAGE) == Ok(3));
    Ok(())
}

fn moved(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 4 * PAGE, BASE)?;
    ensure!((0..4).all(|i| store(AT + i * PAGE, 20 + i).is_ok()));
    let to = AT + GIB;
    ensure!(vm.remap(space, Va(AT), 4 * PAGE, 4 * PAGE, Placement::At(Va(to))) == Ok(Va(to)));
    ensure!((0..4).all(|i| load(AT + i * PAGE) == Err(UNMAPPED)));
    ensure!(faults(|| (0..4).all(|i| load(to + i * PAGE) == Ok(20 + i))) == (0, true));
    Ok(())
}

fn forked(vm: &Vm<Metal>, space: &Space) -> Outcome {
    const LAST: u64 = AT + GIB + HUGE - 8;
    map(vm, space, AT, 2 * PAGE, BASE)?;
    map(vm, space, AT + GIB, HUGE, SWITCH)?;
    ensure!(store(AT, 1).is_ok() && store(AT + PAGE, 2).is_ok() && store(AT + 8, 3).is_ok());
    ensure!(store(AT + GIB, 4).is_ok() && store(LAST, 5).is_ok());
    let Ok(child) = vm.fork(space) else { return Err(failed!("memory for a child")) };
    let parent = || -> Outcome {
        // A store through the translation of before would show in the child.
        ensure!(faults(|| store(AT, 11)) == (1, Ok(())));
        ensure!(faults(|| store(AT + GIB, 44)) == (1, Ok(())));
        ensure!(load(AT + 8) == Ok(3) && load(LAST) == Ok(5));
        Ok(())
    };
    let mut outcome = parent();
    let seen = fault::run(vm, &child, || {
        let old = [load(AT), load(AT + PAGE), load(AT + 8), load(AT + GIB), load(LAST)];
        (old, store(AT + PAGE, 22), store(LAST, 55))
    });
    let audit = recount(vm, &[space, &child]);
    vm.exit(child);
    outcome = outcome.and_then(|()| {
        ensure!(seen == ([Ok(1), Ok(2), Ok(3), Ok(4), Ok(5)], Ok(()), Ok(())));
        audit?;
        ensure!(
            load(AT) == Ok(11)
                && load(AT + PAGE) == Ok(2)
                && load(AT + GIB) == Ok(44)
                && load(LAST) == Ok(5)
        );
        Ok(())
    });
    outcome
}

fn copies(vm: &Vm<Metal>, space: &Space) -> Outcome {
    map(vm, space, AT, 2 * PAGE, BASE)?;
    let bytes = *b"across two pages";
    let at = AT + PAGE - 8;
    ensure!(vm.copy_in(space, Va(at), &bytes) == Ok(()));
    ensure!(faults(|| load(at)) == (0, Ok(u64::from_le_bytes(*b"across t"))));
    ensure!(store(at + 8, u64::from_le_bytes(*b"WO PAGES")).is_ok());
    let mut back = [0; 16];
    ensure!(vm.copy_out(space, Va(at), &mut back) == Ok(()) && &back == b"across tWO PAGES");
    Ok(())
}

fn flushes(vm: &Vm<Metal>, space: &Space) -> Outcome {
    const PAGES: u64 = 100;
    map(vm, space, AT, PAGES * PAGE, BASE)?;
    ensure!((0..PAGES).all(|i| store(AT + i * PAGE, i).is_ok()));
    let metal = vm.machine();
    // Two pages change places behind the library's back; only a flush makes the processor look
    // again.
    let (a, b) = (walk(vm, AT), walk(vm, AT + PAGE));
    let swap = || {
        // SAFETY: two leaves of the test's own space, exchanged twice.
        unsafe {
            let raw_a = metal.entry_load(a.table, a.slot);
            let raw_b = metal.entry_load(b.table, b.slot);
            metal.entry_store(a.table, a.slot, raw_b);
            metal.entry_store(b.table, b.slot, raw_a);
        }
    };
    let asid = Asid(0);
    let Ok(both) = VaRange::new(Va(AT), 2 * PAGE, Va(AT + GIB)) else {
        return Err(failed!("a range"));
    };
    let mut me = CpuMask::EMPTY;
    me.insert(metal.cpu());
    let ways: [&dyn Fn(); 5] = [
        &|| {
            metal.flush_local(Scope::Page(asid, Va(AT)));
            metal.flush_local(Scope::Page(asid, Va(AT + PAGE)));
        },
        &|| metal.flush_local(Scope::Range(asid, both, Level::ONE)),
        &|| metal.flush_local(Scope::Space(asid)),
        &|| metal.flush_remote(&me, Scope::Range(asid, both, Level::ONE)),
        &|| metal.flush_remote(&me, Scope::All),
    ];
    let mut stale = 0;
    for (i, flush) in ways.iter().enumerate() {
        let (old, new) = (i as u64 & 1, i as u64 & 1 ^ 1);
        ensure!(load(AT) == Ok(old) && load(AT + PAGE) == Ok(new));
        swap();
        stale += u32::from(load(AT) == Ok(old));
        flush();
        ensure!(load(AT) == Ok(new) && load(AT + PAGE) == Ok(old));
    }
    swap();
    metal.flush_local(Scope::All);
    // How much this proves: on a processor that had forgotten by itself, nothing.
    println!("# before the flush the old translation answered {stale} times of {}", ways.len());
    // The library must ask for flushes by itself: few pages singly or all at once, many in one go.
    let (pages, all) =
        (metal.dropped_pages.load(Ordering::Relaxed), metal.dropped_all.load(Ordering::Relaxed));
    let dropped = || {
        (
            metal.dropped_pages.load(Ordering::Relaxed) - pages,
            metal.dropped_all.load(Ordering::Relaxed) - all,
        )
    };
    ensure!(vm.unmap(space, Va(AT), PAGE) == Ok(()));
    let (singly, whole) = dropped();
    ensure!(singly + whole == 1);
    ensure!(vm.unmap(space, Va(AT + PAGE), (PAGES - 1) * PAGE) == Ok(()));
    ensure!(dropped().1 > whole);
    ensure!((0..PAGES).all(|i| load(AT + i * PAGE) == Err(UNMAPPED)));
    Ok(())
}

fn giant_page(vm: &Vm<Metal>, space: &Space) -> Outcome {
    let attrs =
        Attrs { leaf: LeafSize::Exactly(Order::GIANT), ..Attrs::anonymous(Rights::READ_WRITE) };
    let answer = vm.map(space, Placement::At(Va(AT)), GIB, attrs);
    if vm.machine().rules().max_leaf < Order::GIANT {
        println!("# 1 GiB pages: this processor has none");
        ensure!(answer == Err(SpaceError::LeafSize));
        return Ok(());
    }
    ensure!(answer == Ok(Va(AT)));
    let (taken, stored) = faults(|| store(AT, 1));
    ensure!(taken == 1);
    if stored == Err(NO_MEMORY) {
        println!("# 1 GiB pages: no memory in one piece");
        return Ok(());
    }
    let Walked { level, entry, .. } = walk(vm, AT);
    ensure!(stored.is_ok() && level == Level::THREE && matches!(entry, Entry::Leaf(..)));
    ensure!(
        faults(|| (0..512)
            .all(|i| load(AT + i * HUGE + 8) == Ok(0) && store(AT + i * HUGE, i).is_ok()))
            == (0, true)
    );
    ensure!((0..512).all(|i| load(AT + i * HUGE) == Ok(i)));
    println!("# 1 GiB pages: used");
    Ok(())
}

fn exhaustion(vm: &Vm<Metal>, space: &Space) -> Outcome {
    let all = vm.machine().topology().node[0].frames * PAGE;
    let bytes = (all * 2).next_multiple_of(HUGE);
    map(vm, space, AT, bytes, SWITCH)?;
    let mut at = AT;
    let end = loop {
        // One page of each 2 MiB: huge pages while there are any, base pages after.
        match store(at, at) {
            Ok(()) if at + HUGE < AT + bytes => at += HUGE,
            other => break other,
        }
    };
    // Twice the memory does not fit unless the last part came as base pages; then the rest of their
    // 2 MiB does not.
    let end = end.and_then(|()| (0..bytes / PAGE).try_for_each(|i| store(AT + i * PAGE, 1)));
    ensure!(end == Err(NO_MEMORY));
    ensure!(load(AT) == Ok(AT) || load(AT) == Ok(1));
    ensure!(vm.unmap(space, Va(AT), bytes) == Ok(()));
    Ok(())
}

/// What things cost, in cycles of the counter; under QEMU's instruction count these are
/// instructions.
fn numbers(vm: &Vm<Metal>) {
    let Ok(space) = vm.create() else { return };
    // The best of 16: the first of them makes tables.
    let cost = |body: &mut dyn FnMut(u64) -> bool| {
        let mut best = u64::MAX;
        for i in 0..16 {
            let start = cpu::cycles();
            if !body(i) {
                return 0;
            }
            best = best.min(cpu::cycles() - start);
        }
        best
    };
    fault::run(vm, &space, || {
        let base = map(vm, &space, AT, 16 * PAGE, BASE).is_ok()
            && map(vm, &space, AT + GIB, 16 * HUGE, SWITCH).is_ok();
        println!("# nothing                    {:>8}", cost(&mut |_| base));
        println!(
            "# 4 KiB write fault          {:>8}, 512 of them clearing",
            cost(&mut |i| store(AT + i * PAGE, 1).is_ok())
        );
        println!(
            "# protect of 1 page          {:>8}",
            cost(&mut |i| vm.protect(&space, Va(AT + i * PAGE), PAGE, Rights::READ).is_ok())
        );
        println!(
            "# unmap of 1 page            {:>8}",
            cost(&mut |i| vm.unmap(&space, Va(AT + i * PAGE), PAGE).is_ok())
        );
        let huge = cost(&mut |i| store(AT + GIB + i * HUGE, 1).is_ok());
        println!("# 2 MiB write fault          {huge:>8}, 262144 of them clearing");
    });
    vm.exit(space);
}
