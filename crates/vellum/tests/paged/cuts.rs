//! A page that a pager fills while the object becomes shorter: nobody is shown zeros in its place.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread::{spawn, yield_now};
use std::time::Duration;

use super::*;

const LATE: Habits = Habits { late: true, fails_reads: false, fails_writes: false, most: None };

#[test]
fn a_fault_beside_a_cut_shows_no_zeros_around_it() {
    each_step(false, |f, _| around(f));
}

#[test]
fn a_fault_beside_a_cut_shows_no_zeros_in_a_run_of_frames() {
    each_step(true, |f, _| around(f));
}

/// Has the pages around page 0 mapped; what is read of page 1 then.
fn around(f: &Paged) -> Result<u64, FaultError> {
    let done = f.fx.vm.fault(&f.space, AT, Access::Read);
    assert_eq!(done, Ok(Fault::Object));
    let mut bytes = [0; 8];
    f.fx.run_on(0);
    let done = f.fx.vm.copy_out(&f.space, page_at(1), &mut bytes);
    done.map(|()| u64::from_le_bytes(bytes))
}

/// What CPU 0 does, and what it then reads of page 1; it gets a space with a private view, too.
type Look = dyn Fn(&'static Paged, &Space) -> Result<u64, FaultError>;

/// Page 0 is there, page 1 is being read. CPU 0 looks; when that has touched `at` shared words, CPU
/// 3 has lowered the size to one page, and then the disk answers. What CPU 0 reads of page 1 while
/// the cut is under way: its word, or that there is none. `in_order`: the frames of pages 1 to 5
/// follow each other.
fn beside_cut(at: u64, in_order: bool, look: &Look) -> Option<Result<u64, FaultError>> {
    let mut f = paged::<X86_64>(8 * KIB4);
    if in_order {
        // One that maps all of a table.
        f.space = f.fx.with_object(AT, 512 * KIB4, &f.object);
    }
    let f: &'static Paged = Box::leak(Box::new(f));
    let paused: &'static AtomicBool = Box::leak(Box::default());
    let go: &'static AtomicBool = Box::leak(Box::default());
    // Page 7 has the table made.
    assert_eq!((f.peek(7), f.word(0)), (Ok(8), Ok(1)));
    let view = f.fx.vm.create().expect("memory");
    f.fx.map_private(&view, AT, 8 * KIB4, &f.object);
    let _ = f.fx.vm.fault(&view, page_at(7), Access::Read);
    f.disk().calls();
    f.disk().set(LATE);
    let reader = spawn(move || {
        f.fx.run_on(2);
        let _ = f.word(1);
    });
    while f.disk().calls().is_empty() {
        yield_now();
    }
    if in_order {
        // While the reader sleeps another task of its CPU takes the next frames.
        f.disk().set(Habits { late: false, ..LATE });
        f.fx.run_on(2);
        assert_eq!([2, 3, 4, 5].map(|n| f.word(n)), [3, 4, 5, 6].map(Ok));
        f.fx.run_on(0);
    }
    let cut = move |f: &&'static Paged| {
        let f: &'static Paged = f;
        spawn(move || {
            let pause = move |_: &&'static Paged| {
                paused.store(true, SeqCst);
                while !go.load(SeqCst) {
                    yield_now();
                }
            };
            // 500 words later it has lowered the size and looks again and again for page 1.
            put_in(&Rc::new(f), [(500, pause)], |f| {
                set_cpu(3);
                assert_eq!(f.fx.vm.objects().resize(&f.object, KIB4), Ok(()));
            });
        });
        while !paused.load(SeqCst) {
            yield_now();
        }
        for answer in f.disk().waiting(f.fx.m()) {
            f.fx.vm.objects().answer(answer);
        }
    };
    let view: &'static Space = Box::leak(Box::new(view));
    let found = Cell::new(None);
    let met = put_in(&Rc::new(f), [(at, cut)], |f| found.set(Some(look(f, view))));
    let word = met.and(found.get());
    go.store(true, SeqCst);
    if word.is_some() {
        reader.join().unwrap();
    }
    word
}

fn each_step(in_order: bool, look: fn(&'static Paged, &Space) -> Result<u64, FaultError>) {
    let mut seen = Vec::new();
    for at in 0..80 {
        let (tell, told) = channel();
        spawn(move || tell.send(beside_cut(at, in_order, &look)));
        // From here on it waits for the disk before the cut begins.
        let Ok(Some(word)) = told.recv_timeout(Duration::from_secs(1)) else { break };
        seen.push((at, word));
    }
    assert!(!seen.is_empty(), "the cut met nobody");
    let wrong = seen.iter().filter(|(_, word)| *word == Ok(0)).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "step, what is read of page 1: {wrong:?}");
}

#[test]
fn a_read_beside_a_cut_gives_no_zeros_of_a_page_that_was_being_read() {
    each_step(false, |f, _| {
        let mut bytes = [0xee; 8];
        match f.fx.vm.objects().read(&f.object, KIB4, &mut bytes) {
            (8, Ok(())) => Ok(u64::from_le_bytes(bytes)),
            (0, Ok(())) => Err(FaultError::Beyond),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_private_copy_beside_a_cut_is_no_copy_of_zeros() {
    each_step(false, |f, view| {
        f.fx.vm.fault(view, page_at(1), Access::Write)?;
        let mut bytes = [0; 8];
        f.fx.run_on(0);
        f.fx.vm.copy_out(view, page_at(1), &mut bytes).map(|()| u64::from_le_bytes(bytes))
    });
}

#[test]
fn a_populating_read_beside_a_cut_shows_no_zeros() {
    each_step(false, |f, _| {
        let mut bytes = [0; 8];
        f.fx.vm.copy_out(&f.space, page_at(1), &mut bytes).map(|()| u64::from_le_bytes(bytes))
    });
}
