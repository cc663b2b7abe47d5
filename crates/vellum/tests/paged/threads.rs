//! Stores beside syncs, evictions and a disk that fails: nothing that was stored is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use super::*;

/// Pages of the object.
const PAGES: u64 = 48;
/// Stores of each writer.
const STORES: u64 = 4000;

on_both!(beside, what_was_stored_is_on_the_disk_in_the_end);

fn beside<C: Arch>() {
    let f = paged::<C>(PAGES * KIB4);
    let child = f.fx.vm.fork(&f.space).unwrap();
    let over = AtomicBool::new(false);
    let (f_, child_, over_) = (&f, &child, &over);
    let last = scope(|threads| {
        // Each writer has a word of its own in every page, by a mapping and without one.
        let writers = [(1, &f.space), (2, child_)].map(|(cpu, space)| {
            threads.spawn(move || {
                f_.fx.run_on(cpu);
                let mut last = [0; PAGES as usize];
                let mut random = Random::new(cpu as u64);
                for n in 1..=STORES {
                    let page = random.below(PAGES);
                    let at = page * KIB4 + cpu as u64 * 8;
                    let done = if n % 3 == 0 {
                        let objects = f_.fx.vm.objects();
                        objects.write(&f_.object, at, &n.to_le_bytes()).1.is_ok()
                    } else {
                        // A store of this machine is not one with its walk.
                        f_.fx.vm.copy_in(space, Va(AT.0 + at), &n.to_le_bytes()).is_ok()
                    };
                    // A page that could not be read was not written.
                    if done {
                        last[page as usize] = n;
                    }
                }
                last
            })
        });
        let keeper = threads.spawn(move || {
            f_.fx.run_on(3);
            let mut random = Random::new(9);
            while !over_.load(Ordering::Relaxed) {
                let fails = random.below(4);
                f_.disk().set(Habits {
                    fails_reads: fails == 0,
                    fails_writes: fails == 1,
                    ..Habits::default()
                });
                let (from, bytes) = (random.below(PAGES) * KIB4, random.below(PAGES) * KIB4);
                let _ = f_.fx.vm.objects().sync(&f_.object, from, bytes);
                f_.fx.vm.objects().evict(&f_.object, from, bytes);
            }
        });
        let last = writers.map(|writer| writer.join());
        over.store(true, Ordering::Relaxed);
        keeper.join().unwrap();
        last.map(|last| last.unwrap())
    });
    f.disk().set(Habits::default());
    f.fx.check(&[&f.space, &child]);
    assert_eq!((f.sync(), f.dirty()), (Ok(()), 0));
    for page in 0..PAGES {
        let block = f.disk().block(FILE, page);
        for (writer, last) in (1..).zip(&last) {
            let word = u64::from_le_bytes(block[writer * 8..][..8].try_into().unwrap());
            assert_eq!(word, last[page as usize], "page {page}, writer {writer}");
        }
    }
    f.end([child]);
}
