//! Exact instruction counts of the hot paths: `cargo run --release --example instructions`, with valgrind installed.
//!
//! The program runs itself under `callgrind` once for each row; only what happens inside [`measured`] is collected, so what
//! prepares a row costs nothing, and what clears a huge page is left out. The count over many operations is divided by them: it contains the library's own share of rare
//! work (a table node for every 512 pages, a refilled magazine for every 128) and four or five instructions of the machine for each
//! entry it reads or writes. Clearing and copying do nothing here, so they count nothing. The numbers are the same on every run, and
//! change with the compiler. A row above its ceiling ends the program with status 1.

use std::alloc::{Layout, alloc_zeroed};
use std::process::{Command, ExitCode};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{Order, PAGE_SIZE, Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::machine::{CpuId, CpuMask, Invalidation, Machine, MmuRules, Root, Scope, Topology};
use vellum::space::{Access, Attrs, Fault, HugeAdvice, Placement, Rights, Space};
use vellum::stats::Counter;
use vellum::vm::Vm;

/// 1 GiB, of which only table nodes and slabs are ever touched.
const FRAMES: u64 = 1 << 18;
const PAGE: u64 = PAGE_SIZE as u64;
const HUGE: u64 = 2 << 20;
/// Where the rows map, and how much unless they say otherwise.
const AT: Va = Va(0x2000_0000_0000);
const BYTES: u64 = 100 << 20;

/// One CPU without a TLB. It trusts the library: no address is checked, as on metal.
struct Bare {
    topology: Topology,
    levels: u8,
    memory: NonNull<u8>,
    cpu: AtomicU64,
    preempt: AtomicU64,
    flushes: AtomicU64,
}

impl Bare {
    fn entry(&self, table: Pfn, slot: usize) -> &AtomicU64 {
        // SAFETY: the library names only table nodes, frames of this memory, and slots below 512.
        unsafe { self.direct(table).cast::<AtomicU64>().add(slot).as_ref() }
    }
    fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

impl Machine for Bare {
    type Codec = X86_64;
    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn rules(&self) -> MmuRules {
        MmuRules {
            levels: self.levels,
            max_leaf: Order::GIANT,
            hardware_ad: true,
            fault_invalidates: true,
            break_before_make: false,
            contexts: 0,
            invalidation: Invalidation::Interrupt,
        }
    }
    fn cpu(&self) -> CpuId {
        self.cpu.load(Ordering::Relaxed) as CpuId
    }
    fn preempt_off(&self) {
        Bare::add(&self.preempt, 1);
    }
    fn preempt_on(&self) {
        Bare::add(&self.preempt, u64::MAX);
    }
    fn entry_load(&self, table: Pfn, slot: usize) -> u64 {
        self.entry(table, slot).load(Ordering::Acquire)
    }
    fn entry_store(&self, table: Pfn, slot: usize, raw: u64) {
        self.entry(table, slot).store(raw, Ordering::Release);
    }
    fn entry_cas(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
        self.entry(table, slot).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
    fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        // SAFETY: every frame of the topology lies in the memory.
        unsafe { self.memory.add(pfn.0 as usize * PAGE_SIZE) }
    }
    fn clear(&self, _first: Pfn, _frames: u64) {}
    fn copy(&self, _to: Pfn, _from: Pfn, _frames: u64) {}
    fn read(&self, _pfn: Pfn, _offset: usize, _bytes: &mut [u8]) {}
    fn write(&self, _pfn: Pfn, _offset: usize, _bytes: &[u8]) {}
    fn load_root(&self, _root: Option<Root>) {}
    fn flush_local(&self, _scope: Scope) {
        Bare::add(&self.flushes, 1);
    }
    fn flush_remote(&self, _cpus: &CpuMask, _scope: Scope) {
        Bare::add(&self.flushes, 1);
    }
    fn relax(&self) {
        std::hint::spin_loop();
    }
    fn now(&self) -> u64 {
        0
    }
}

/// Zeroed memory that costs nothing until touched: the host's allocator would write zeros itself if asked to align.
fn zeroed(bytes: usize, align: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(bytes + align, 16).expect("a layout");
    // SAFETY: the layout is not empty. The memory is kept until the program ends.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory of the host");
    // SAFETY: less than `align` bytes further, and `align` more were asked for.
    unsafe { start.add(start.align_offset(align)) }
}

/// What callgrind collects in.
#[inline(never)]
fn measured(body: &mut dyn FnMut()) {
    body();
    std::hint::black_box(());
}

type Bench = Vm<Bare>;

/// How large a machine a row is counted on.
#[derive(Clone, Copy)]
struct Size {
    cpus: usize,
    frames: u64,
    levels: u8,
}

const SMALL: Size = Size { cpus: 1, frames: FRAMES, levels: 4 };

fn boot(size: Size) -> Bench {
    let machine = Bare {
        topology: Topology::flat(size.cpus, Pfn(0), size.frames),
        levels: size.levels,
        memory: zeroed(size.frames as usize * PAGE_SIZE, PAGE_SIZE),
        cpu: AtomicU64::new(0),
        preempt: AtomicU64::new(0),
        flushes: AtomicU64::new(0),
    };
    let layout = Vm::<Bare>::layout(machine.topology());
    // SAFETY: zeroed memory of that layout, never given back.
    unsafe { Vm::new(machine, Config::default(), zeroed(layout.size(), layout.align())) }.expect("a machine")
}

/// A space that runs, with a mapping of base pages (or huge ones) at [`AT`].
fn space(vm: &Bench, bytes: u64, thp: Option<HugeAdvice>) -> Space {
    let space = vm.create().expect("memory");
    vm.activate(&space);
    let attrs = Attrs { thp, ..Attrs::anonymous(Rights::READ_WRITE) };
    vm.map(&space, Placement::At(AT), bytes, attrs).expect("a hole");
    space
}

fn pages(bytes: u64) -> impl Iterator<Item = Va> {
    (0..bytes / PAGE).map(|i| Va(AT.0 + i * PAGE))
}

/// Faults at every page of a mapping of [`BYTES`], inside [`measured`] or not; each must raise the counter.
fn touch(vm: &Bench, space: &Space, access: Access, counter: Counter, run: fn(&mut dyn FnMut())) -> u64 {
    let before = vm.stats().get(counter);
    run(&mut || pages(BYTES).for_each(|va| assert!(vm.fault(space, va, access).is_ok())));
    assert_eq!((vm.stats().get(counter) - before) as u64, BYTES / PAGE, "faults that ended as {counter:?}");
    BYTES / PAGE
}

/// A resident mapping of [`BYTES`], with base pages.
fn resident(vm: &Bench) -> Space {
    let space = space(vm, BYTES, BASE);
    touch(vm, &space, Access::Write, Counter::AnonPages, |body| body());
    space
}

const BASE: Option<HugeAdvice> = Some(HugeAdvice::NoHuge);

/// 1000 mappings beside the one at [`AT`], no two neighbours alike, each with one page.
fn crowd(vm: &Bench, space: &Space) {
    for i in 0..1000 {
        let rights = if i % 2 == 0 { Rights::READ_WRITE } else { Rights::ALL };
        let at = Va(AT.0 / 2 + i * 4 * PAGE);
        vm.map(space, Placement::At(at), 4 * PAGE, Attrs { thp: BASE, ..Attrs::anonymous(rights) }).expect("a hole");
        vm.fault(space, at, Access::Write).expect("a page");
    }
}

fn write_faults(vm: &Bench) -> u64 {
    let space = space(vm, BYTES, BASE);
    touch(vm, &space, Access::Write, Counter::AnonPages, measured)
}

/// A row of growth: name, machine, and what is measured.
type Growth = (&'static str, Size, fn(&Bench) -> u64);

/// What [`write_faults`] comes to must not depend on the size of anything: rows that are to agree with the first.
const GROWTH: &[Growth] = &[
    ("beside 1000 mappings", SMALL, |vm| {
        let space = space(vm, BYTES, BASE);
        crowd(vm, &space);
        touch(vm, &space, Access::Write, Counter::AnonPages, measured)
    }),
    ("64 CPUs configured", Size { cpus: 64, ..SMALL }, write_faults),
    ("10 times the memory", Size { frames: FRAMES * 10, ..SMALL }, write_faults),
    ("5 levels", Size { levels: 5, ..SMALL }, write_faults),
];

/// What one more level of tables may add to a fault: an entry read and taken apart.
const LEVEL: u64 = 20;

/// A row: name, ceiling if there is one, and what is measured. It says how many operations that was.
type Row = (&'static str, Option<u64>, fn(&Bench) -> u64);

const ROWS: &[Row] = &[
    ("4 KiB write fault", Some(400), write_faults),
    ("4 KiB read fault, zeros", None, |vm| {
        let space = space(vm, BYTES, BASE);
        touch(vm, &space, Access::Read, Counter::FaultsZero, measured)
    }),
    ("2 MiB write fault", Some(2500), |vm| {
        let space = space(vm, BYTES, None);
        measured(&mut || {
            for va in pages(BYTES).step_by((HUGE / PAGE) as usize) {
                assert_eq!(vm.fault(&space, va, Access::Write), Ok(Fault::Huge));
            }
        });
        BYTES / HUGE
    }),
    ("4 KiB copy on write, copied", None, |vm| {
        let space = resident(vm);
        let _child = vm.fork(&space).expect("memory");
        touch(vm, &space, Access::Write, Counter::CowCopies, measured)
    }),
    ("4 KiB copy on write, reused", None, |vm| {
        let space = resident(vm);
        vm.exit(vm.fork(&space).expect("memory"));
        touch(vm, &space, Access::Write, Counter::CowReuses, measured)
    }),
    ("map of 1 page, beside the last", Some(1500), |vm| {
        let space = space(vm, PAGE, BASE);
        let attrs = Attrs { thp: BASE, ..Attrs::anonymous(Rights::READ_WRITE) };
        measured(&mut || {
            for va in pages(BYTES).skip(1) {
                vm.map(&space, Placement::At(va), PAGE, attrs).expect("a hole");
            }
        });
        BYTES / PAGE - 1
    }),
    ("map of 1 page, anywhere", None, |vm| {
        let space = space(vm, PAGE, BASE);
        let attrs = Attrs { thp: BASE, ..Attrs::anonymous(Rights::READ_WRITE) };
        measured(&mut || {
            for _ in pages(BYTES) {
                vm.map(&space, Placement::Anywhere, PAGE, attrs).expect("a hole");
            }
        });
        BYTES / PAGE
    }),
    ("unmap of 1 page", Some(500), |vm| {
        let space = resident(vm);
        measured(&mut || {
            for va in pages(BYTES) {
                vm.unmap(&space, va, PAGE).expect("no memory is needed");
            }
        });
        BYTES / PAGE
    }),
    ("remap of 1 page", None, |vm| {
        let space = resident(vm);
        measured(&mut || {
            for va in pages(BYTES) {
                vm.remap(&space, va, PAGE, PAGE, Placement::At(Va(va.0 + BYTES))).expect("memory");
            }
        });
        BYTES / PAGE
    }),
    ("protect of 1 page and back", None, |vm| {
        let space = resident(vm);
        measured(&mut || {
            for va in pages(BYTES) {
                vm.protect(&space, va, PAGE, Rights::READ).expect("memory");
                vm.protect(&space, va, PAGE, Rights::READ_WRITE).expect("memory");
            }
        });
        BYTES / PAGE
    }),
    ("protect of 1 page", Some(1500), |vm| {
        let space = resident(vm);
        measured(&mut || {
            for va in pages(BYTES) {
                vm.protect(&space, va, PAGE, Rights::READ).expect("memory");
            }
        });
        BYTES / PAGE
    }),
    ("unmap of 100 MiB, a page", None, |vm| {
        let space = resident(vm);
        measured(&mut || vm.unmap(&space, AT, BYTES).expect("no memory is needed"));
        BYTES / PAGE
    }),
    ("protect of 100 MiB, a page", None, |vm| {
        let space = resident(vm);
        measured(&mut || vm.protect(&space, AT, BYTES, Rights::READ).expect("memory"));
        BYTES / PAGE
    }),
    ("protect of 100 MiB and back, a page", None, |vm| {
        let space = resident(vm);
        measured(&mut || {
            vm.protect(&space, AT, BYTES, Rights::READ).expect("memory");
            vm.protect(&space, AT, BYTES, Rights::READ_WRITE).expect("memory");
        });
        BYTES / PAGE
    }),
    ("remap of 100 MiB, a page", None, |vm| {
        let space = resident(vm);
        measured(&mut || {
            vm.remap(&space, AT, BYTES, BYTES, Placement::At(Va(AT.0 + (1 << 30)))).expect("memory");
        });
        BYTES / PAGE
    }),
    ("fork of 100 MiB, a page", Some(60), |vm| {
        let space = resident(vm);
        measured(&mut || drop(vm.fork(&space).expect("memory")));
        BYTES / PAGE
    }),
    ("exit of 100 MiB, a page", None, |vm| {
        let space = resident(vm);
        let mut space = Some(space);
        measured(&mut || vm.exit(space.take().expect("once")));
        BYTES / PAGE
    }),
];

/// Runs one row under callgrind; instructions per operation.
fn count(row: usize) -> Result<u64, String> {
    let this = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=instructions::measured*"])
        // Entered while collecting, it ends that until it returns.
        .arg("--toggle-collect=*clear_block*")
        .arg(this)
        .arg(row.to_string())
        .output()
        .map_err(|e| format!("valgrind cannot be run ({e}); install it to count instructions"))?;
    let number = |text: &[u8], before: &str| -> Option<u64> {
        let text = String::from_utf8_lossy(text);
        text.split(before).nth(1)?.split_whitespace().next()?.parse().ok()
    };
    match (number(&out.stderr, "Collected : "), number(&out.stdout, "operations: ")) {
        (Some(all), Some(operations)) if out.status.success() => Ok(all / operations),
        _ => Err(format!("valgrind said no count: {}", String::from_utf8_lossy(&out.stderr))),
    }
}

/// What a row is called on the command line of the program that counts it: rows first, growth after them.
fn run(row: usize) -> Option<u64> {
    match row.checked_sub(ROWS.len()) {
        None => Some(ROWS[row].2(&boot(SMALL))),
        Some(row) => GROWTH.get(row).map(|&(_, size, body)| body(&boot(size))),
    }
}

/// Counts and prints everything; whether some row is too high.
fn table() -> Result<bool, String> {
    let mut high = false;
    let mut fault = 0;
    for (row, (name, ceiling, _)) in ROWS.iter().enumerate() {
        let number = count(row)?;
        let beside = match ceiling {
            Some(most) if number > *most => format!("  above its ceiling of {most}"),
            Some(most) => format!("  ceiling {most}"),
            None => String::new(),
        };
        high |= ceiling.is_some_and(|most| number > most);
        println!("{name:<40} {number:>8}{beside}");
        if row == 0 {
            fault = number;
        }
    }
    for (row, (name, size, _)) in GROWTH.iter().enumerate() {
        let number = count(ROWS.len() + row)?;
        let most = fault + if size.levels > SMALL.levels { LEVEL } else { 0 };
        // A magazine's refill is spread over the faults, and ends at another place.
        let grows = number > most + 1;
        high |= grows;
        println!("4 KiB write fault, {name:<21} {number:>8}{}", if grows { "  grows" } else { "" });
    }
    Ok(high)
}

fn main() -> ExitCode {
    if let Some(row) = std::env::args().nth(1) {
        let Some(operations) = row.parse().ok().and_then(run) else {
            eprintln!("instructions: there is no row {row}; rows are 0 to {}", ROWS.len() + GROWTH.len() - 1);
            return ExitCode::from(2);
        };
        println!("operations: {operations}");
        return ExitCode::SUCCESS;
    }
    match table() {
        Ok(high) => ExitCode::from(u8::from(high)),
        Err(why) => {
            eprintln!("instructions: {why}");
            ExitCode::from(2)
        }
    }
}
