//! Large machines cost nothing to boot: metadata that is never used is never touched. Alone in its
//! file, since it watches the memory of the whole process.
#![cfg(target_os = "linux")]

use vellum_testkit::prelude::*;

fn resident_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
}

#[test]
fn a_hundred_gibibytes_boot_and_serve_in_less_than_a_mebibyte() {
    let gib = 1u64 << 18;
    let t = nodes(16, &[(0, gib), (gib, 99 * gib)]);
    let m = Flat::<X86_64>::hollow(t, MmuRules::X86_64);
    let layout = Frames::layout(m.topology()).unwrap();
    // A record of 64 bytes for each frame, and little else.
    let records = 100 * gib * 64;
    assert!(layout.size() as u64 > records && (layout.size() as u64) < records + records / 192);
    let before = resident_kib();
    let meta = Meta::new(layout);
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let frames = unsafe { Frames::new(m.topology(), meta.base()) }.unwrap();
    let booted = resident_kib();
    let want =
        |node| AllocRequest { policy: NumaPolicy::Bind(node), ..AllocRequest::kernel(Use::Table) };
    for node in 0..2 {
        for order in [Order::BASE, Order::HUGE, Order::GIANT] {
            if order == Order::GIANT && node == 0 {
                continue;
            }
            for _ in 0..3 {
                let pfn = frames.alloc(&m, order, &want(node)).unwrap();
                frames.put(&m, pfn, order);
            }
        }
    }
    let served = resident_kib();
    assert!(booted - before < 512, "booting took {} KiB", booted - before);
    assert!(served - before < 1024, "serving took {} KiB", served - before);
    assert_eq!(frames.free_frames(0) + frames.free_frames(1), 100 * gib);
}
