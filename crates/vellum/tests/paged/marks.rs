//! Who is about to mark a page as written marks another one, which is being read, and that fails.

use super::*;

const LATE: Habits = Habits { late: true, fails_reads: false, fails_writes: false, most: None };

#[test]
fn a_page_that_could_not_be_read_is_not_counted_as_dirty() {
    let mut seen = Vec::new();
    for at in 0..40 {
        // In a thread of its own, which stands still for ever where the act cannot be.
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let cut_off = tell.clone();
            let _ = tell.send(Some(step(at, cut_off)));
        });
        match told.recv_timeout(std::time::Duration::from_secs(3)) {
            Ok(Some(Some(found))) => seen.push(found),
            Ok(Some(None)) => break,
            Ok(None) => {}
            Err(error) => panic!("step {at}: {error}"),
        }
    }
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|found| found.1 == 0), "step, dirty pages: {seen:?}");
}

/// Page 1 is written by one CPU; when that has touched `at` shared words, another one evicts the
/// page, a third begins to read it, and the disk fails when somebody has marked it as written.
fn step(
    at: u64,
    cut_off: std::sync::mpsc::Sender<Option<Option<(u64, u64)>>>,
) -> Option<(u64, u64)> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    let f: &'static Paged = Box::leak(Box::new(paged::<X86_64>(8 * KIB4)));
    assert_eq!(f.word(1), Ok(2));
    let over = Arc::new(AtomicBool::new(false));
    let mine = over.clone();
    let act = move |f: &&'static Paged| {
        let f: &'static Paged = f;
        // The operation is inside an epoch, or was: that schedule does not exist.
        let Some(gone) = unless_it_waits(|| f.evict()) else {
            let _ = cut_off.send(None);
            loop {
                std::thread::park();
            }
        };
        if gone != 1 {
            over.store(true, Ordering::SeqCst);
            return;
        }
        f.disk().calls();
        f.disk().set(LATE);
        std::thread::spawn(move || {
            f.fx.run_on(2);
            let _ = f.word(1);
        });
        while f.disk().calls().is_empty() {
            std::thread::yield_now();
        }
        std::thread::spawn(move || {
            f.fx.run_on(3);
            let began = Instant::now();
            while f.dirty() == 0 && began.elapsed() < Duration::from_millis(50) {
                std::thread::yield_now();
            }
            f.disk().set(Habits { fails_reads: true, ..LATE });
            let mut waiting = Vec::new();
            while waiting.is_empty() {
                waiting = f.disk().waiting(f.fx.m());
            }
            f.disk().set(Habits::default());
            waiting.into_iter().for_each(|answer| f.fx.vm.objects().answer(answer));
            over.store(true, Ordering::SeqCst);
        });
    };
    let written = std::cell::Cell::new(None);
    put_in(&std::rc::Rc::new(f), [(at, act)], |f| {
        let (_, done) = f.fx.vm.objects().write(&f.object, KIB4, &77u64.to_le_bytes());
        written.set(Some(done));
    })?;
    let began = Instant::now();
    while !mine.load(Ordering::SeqCst) && began.elapsed() < Duration::from_secs(2) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    f.fx.run_on(0);
    assert_eq!(f.sync(), Ok(()));
    f.evict();
    let after = f.fx.vm.objects().usage(&f.object);
    assert!(written.get().is_some());
    f.fx.check(&[&f.space]);
    Some((at, after.dirty_pages))
}
