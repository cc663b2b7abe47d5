//! Epochs: what a reader found stays until it has left. And the descent of a fault against the detaching of a table, which leans on it.

use std::alloc::{alloc_zeroed, dealloc};
use std::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::atomic::{AtomicU64, Ordering};
use crate::machine::OneCpu;
use crate::model;
use crate::sync::{Epochs, Lock, Node, Token};

/// Epochs of some CPUs in memory of their own.
struct Lab {
    epochs: Epochs,
    memory: NonNull<u8>,
    cpus: usize,
}

// SAFETY: plain memory under atomics.
unsafe impl Send for Lab {}
// SAFETY: as above.
unsafe impl Sync for Lab {}

impl Lab {
    fn new(cpus: usize) -> Lab {
        // SAFETY: a layout that is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(Epochs::layout(cpus)) }).expect("memory");
        // SAFETY: zeroed memory of that layout, freed after the value.
        let epochs = unsafe { Epochs::new(cpus, memory) };
        (0..cpus).for_each(|cpu| assert!(!epochs.is_inside(&OneCpu(cpu))));
        Lab { epochs, memory, cpus }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), Epochs::layout(self.cpus)) }
    }
}

/// A node behind a link. loom stops at the first access to it that does not come before or after a write to it.
struct Linked {
    lab: Lab,
    link: AtomicU64,
    node: UnsafeCell<u64>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Linked {}

fn linked(cpus: usize) -> Arc<Linked> {
    let linked = Linked { lab: Lab::new(cpus), link: AtomicU64::new(1), node: UnsafeCell::new(7) };
    linked.link.load(Ordering::Relaxed);
    Arc::new(linked)
}

fn read(l: &Linked, cpu: usize) {
    let m = OneCpu(cpu);
    let _epoch = l.lab.epochs.enter(&m);
    if l.link.load(Ordering::Acquire) == 1 {
        // SAFETY: linked, and the epoch holds it; loom sees it if not.
        assert_eq!(l.node.with(|node| unsafe { *node }), 7, "a node was freed under a reader");
    }
}

fn free(l: &Linked, cpu: usize) {
    l.link.store(0, Ordering::Release);
    l.lab.epochs.synchronize(&OneCpu(cpu), &mut Token::top());
    // SAFETY: nobody is left who can have found it.
    l.node.with_mut(|node| unsafe { *node = 0xdead });
}

#[test]
fn what_a_reader_found_stays_until_it_leaves() {
    model(|| {
        let l = linked(2);
        let reader = thread::spawn({
            let l = l.clone();
            move || read(&l, 1)
        });
        free(&l, 0);
        reader.join().expect("the reader");
    });
}

#[test]
fn a_reader_that_comes_back_is_waited_for_once_only() {
    model(|| {
        let l = linked(2);
        let reader = thread::spawn({
            let l = l.clone();
            move || {
                read(&l, 1);
                read(&l, 1);
            }
        });
        free(&l, 0);
        reader.join().expect("the reader");
    });
}

#[test]
fn a_reader_inside_twice_is_waited_for_until_it_is_outside() {
    model(|| {
        let l = linked(2);
        let reader = thread::spawn({
            let l = l.clone();
            move || {
                let m = OneCpu(1);
                let _outer = l.lab.epochs.enter(&m);
                read(&l, 1);
                read(&l, 1);
            }
        });
        free(&l, 0);
        reader.join().expect("the reader");
    });
}

/// A parent entry, a table node under it with its lock, its dead flag, one entry, and the memory it lies in.
struct Tables {
    lab: Lab,
    parent: AtomicU64,
    lock: Lock<Node>,
    dead: AtomicU64,
    entry: AtomicU64,
    memory: UnsafeCell<bool>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Tables {}

#[test]
fn a_fault_installs_into_a_live_table_or_not_at_all() {
    model(|| {
        let t = Arc::new(Tables {
            lab: Lab::new(2),
            parent: AtomicU64::new(1),
            lock: Lock::new(),
            dead: AtomicU64::new(0),
            entry: AtomicU64::new(0),
            memory: UnsafeCell::new(true),
        });
        t.parent.load(Ordering::Relaxed);
        t.dead.load(Ordering::Relaxed);
        t.entry.load(Ordering::Relaxed);
        assert!(!t.lock.is_locked());
        let fault = thread::spawn({
            let t = t.clone();
            move || {
                let m = OneCpu(1);
                let _epoch = t.lab.epochs.enter(&m);
                if t.parent.load(Ordering::Acquire) != 1 {
                    return 0;
                }
                // SAFETY: the epoch keeps the table; loom sees it if not.
                assert!(t.memory.with(|memory| unsafe { *memory }), "a fault stands in a table that is freed");
                let mut top = Token::top();
                let _guard = t.lock.lock(&m, &mut top, 0);
                if t.dead.load(Ordering::Relaxed) != 0 {
                    return 0;
                }
                t.entry.store(1, Ordering::Release);
                1
            }
        });
        let m = OneCpu(0);
        let mut top = Token::top();
        t.parent.store(0, Ordering::Release);
        {
            let _guard = t.lock.lock(&m, &mut top, 0);
            t.dead.store(1, Ordering::Relaxed);
        }
        t.lab.epochs.synchronize(&m, &mut top);
        let found = t.entry.load(Ordering::Acquire);
        // SAFETY: nobody is left who can stand in it.
        t.memory.with_mut(|memory| unsafe { *memory = false });
        assert_eq!(fault.join().expect("the fault"), found, "a page went into a table that was emptied before");
    });
}
