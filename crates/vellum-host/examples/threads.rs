//! Four threads fault in one address space at the same time.
//!
//! Each thread is a CPU of a machine with real memory and software TLBs. Every thread writes its
//! own word of every page, so all of them want each page; one of them makes it. Run it with
//! `cargo run --release -p vellum-host --example threads`.

use std::io;
use std::thread;

use vellum::{Attrs, Config, Counter, PAGE_SIZE, Placement, Rights, Space, Va, X86_64};
use vellum_host::host_vm::HostVm;
use vellum_host::machine::Plan;

const CPUS: usize = 4;
const PAGES: u64 = 8192;

type Host = HostVm<X86_64, true>;

/// The word of a thread in a page.
fn word(start: Va, page: u64, cpu: usize) -> Va {
    Va(start.0 + page * PAGE_SIZE as u64 + 8 * cpu as u64)
}

/// Runs as CPU `cpu`: writes to every page, and has the library serve each fault on the way.
fn write_all(host: &Host, space: &Space, start: Va, cpu: usize) -> u64 {
    let vm = host.vm();
    let guard = vm.machine().bind(cpu);
    vm.activate(space);
    let mut faults = 0;
    for page in 0..PAGES {
        let va = word(start, page, cpu);
        while let Err(fault) = guard.store(va, page) {
            vm.fault(space, fault.va, fault.access).expect("a mapped page, and memory enough");
            faults += 1;
        }
        // There may be fewer cores than CPUs.
        guard.yield_core();
    }
    vm.deactivate();
    faults
}

fn main() -> io::Result<()> {
    let config = Config { thp: vellum::config::Thp::Never, ..Config::default() };
    let host = Host::new(Plan::new(CPUS, 256 << 20), config)?;
    let vm = host.vm();

    // The library is called by CPUs only, so this thread is one, too, for a moment.
    let guard = vm.machine().bind(0);
    let space = vm.create().expect("memory for a table");
    let attrs = Attrs::anonymous(Rights::READ_WRITE);
    let bytes = PAGES * PAGE_SIZE as u64;
    let start = vm.map(&space, Placement::Anywhere, bytes, attrs).expect("an empty space");
    drop(guard);

    let faults: Vec<u64> = thread::scope(|scope| {
        let write = |cpu| {
            let (host, space) = (&host, &space);
            scope.spawn(move || write_all(host, space, start, cpu))
        };
        let threads: Vec<_> = (0..CPUS).map(write).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that ends")).collect()
    });

    let guard = vm.machine().bind(0);
    vm.activate(&space);
    for page in 0..PAGES {
        for cpu in 0..CPUS {
            assert_eq!(guard.load(word(start, page, cpu)), Ok(page));
        }
    }
    let stats = vm.stats();
    println!("{PAGES} pages, {CPUS} threads; faults of each thread: {faults:?}");
    println!("pages in the space: {}", stats.get(Counter::AnonPages));
    println!("faults that found the page there: {}", stats.get(Counter::FaultsSpurious));
    vm.exit(space);
    println!("pages after the space has ended: {}", vm.stats().get(Counter::AnonPages));
    Ok(())
}
