//! Two address spaces map one real file: what one of them stores the other one reads, and so does
//! everybody else once it is synced.
//!
//! Run it with `cargo run --release -p vellum-host --example mapped_file`.

use std::error::Error;
use std::fs;
use std::process;

use vellum::{Attrs, Config, PAGE_SIZE, Placement, Rights, Space, Va, X86_64};
use vellum_host::files::{FileVm, OpenMode};
use vellum_host::machine::{CpuGuard, Plan};

type Host = FileVm<X86_64, true>;
type Cpu<'h> = CpuGuard<'h, X86_64, true>;

const PAGES: u64 = 16;
const PAGE: u64 = PAGE_SIZE as u64;

/// A program's load: faults are served on the way, and may wait for the disk.
fn load(host: &Host, cpu: &Cpu<'_>, space: &Space, va: Va) -> u64 {
    loop {
        match cpu.load(va) {
            Ok(value) => return value,
            Err(fault) => {
                host.vm().fault(space, fault.va, fault.access).expect("a page of the file")
            }
        };
    }
}

/// A program's store.
fn store(host: &Host, cpu: &Cpu<'_>, space: &Space, (va, value): (Va, u64)) {
    while let Err(fault) = cpu.store(va, value) {
        host.vm().fault(space, fault.va, fault.access).expect("a page of the file");
    }
}

/// Runs it; public so that a test can, too.
pub fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("vellum-mapped-file-{}", process::id()));
    fs::write(&path, vec![b'a'; (PAGES * PAGE) as usize])?;

    // One CPU, and two I/O threads. The library is called by CPUs only, so this thread is it.
    let host = Host::new(Plan::new(1, 64 << 20), Config::default(), 2)?;
    let vm = host.vm();
    let cpu = vm.machine().bind(0);
    let file = host.open(&path, OpenMode::ReadWrite)?;
    let (writer, reader) = (vm.create().expect("memory"), vm.create().expect("memory"));
    let attrs = Attrs::anonymous(Rights::READ_WRITE);
    let map = |space, at| {
        let va = vm.map_object(space, Placement::At(Va(at)), PAGES * PAGE, attrs, file.part(0));
        va.expect("an empty space")
    };
    let (here, there) = (map(&writer, 0x4000_0000), map(&reader, 0x7000_0000));

    vm.activate(&writer);
    assert_eq!(load(&host, &cpu, &writer, here), u64::from_ne_bytes(*b"aaaaaaaa"));
    store(&host, &cpu, &writer, (here, u64::from_ne_bytes(*b"LINE ONE")));
    vm.activate(&reader);
    assert_eq!(load(&host, &cpu, &reader, there), u64::from_ne_bytes(*b"LINE ONE"));
    assert_eq!(fs::read(&path)?[..8], *b"aaaaaaaa", "nothing is written yet");

    host.sync(&file)?;
    assert_eq!(fs::read(&path)?[..9], *b"LINE ONEa");

    // What is clean can go, and is read again when it is wanted.
    let gone = vm.objects().evict(file.object(), 0, u64::MAX);
    assert_eq!(load(&host, &cpu, &reader, there), u64::from_ne_bytes(*b"LINE ONE"));
    println!("{gone} pages evicted; read and written, in KiB: {:?}", {
        let stats = vm.stats();
        (stats.get(vellum::Counter::PageIn), stats.get(vellum::Counter::PageOut))
    });

    vm.deactivate();
    [writer, reader].into_iter().for_each(|space| vm.exit(space));
    host.close(file);
    fs::remove_file(&path)?;
    Ok(())
}
