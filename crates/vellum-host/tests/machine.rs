//! What the host machine promises, tried with page tables written by hand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vellum_testkit::ext::MachineExt;

use vellum::addr::{Level, Order, Pfn, Va, VaRange};
use vellum::entry::{Aarch64, Busy, Codec, Entry, Flags, X86_64};
use vellum::machine::{Asid, CpuMask, Machine, MmuRules, Root, Scope, Stores, Use};
use vellum_host::machine::{CpuGuard, Host, Plan, X86_PCID};
use vellum_host::mmu::{Access, PageFault};

const TABLES: [Pfn; 4] = [Pfn(512), Pfn(513), Pfn(514), Pfn(515)];
const ROOT: Pfn = Pfn(515);
const VA: Va = Va(0x4000_0000);
const RW: Flags = Flags { write: true, exec: false, accessed: false, dirty: false };

fn root(context: u16, flush: bool) -> Option<Root> {
    Some(Root { table: ROOT, asid: Asid(context), flush })
}

fn become_(m: &impl Machine, pfn: Pfn, to: Use) {
    m.becomes(pfn, Order::BASE, to);
}

/// One path of four nodes to `VA`'s 2 MiB, and data frames from 600.
fn build<C: Codec>(m: &Host<C>) {
    for (i, &t) in TABLES.iter().enumerate() {
        become_(m, t, Use::Table);
        if i > 0 {
            let level = Level(i as u8 + 1);
            m.set_entry(t, level.slot(VA), C::encode(Entry::Table(TABLES[i - 1]), level));
        }
    }
    for i in 0..16 {
        become_(m, Pfn(600 + i), Use::Data);
        m.poke(Pfn(600 + i), 0, &(1000 + i).to_ne_bytes());
    }
}

fn set<C: Codec>(m: &Host<C>, page: u64, entry: Entry) {
    let va = Va(VA.0 + page * 4096);
    m.set_entry(TABLES[0], Level::ONE.slot(va), C::encode(entry, Level::ONE));
}

fn page(n: u64) -> Va {
    Va(VA.0 + n * 4096)
}

fn machine(plan: Plan) -> Host {
    Host::new(plan).unwrap()
}

#[test]
fn a_store_is_read_back_and_sets_the_bits_in_the_real_entry() {
    let m = machine(Plan::new(1, 64 << 20));
    let cpu = m.bind(0);
    build(&m);
    set(&m, 0, Entry::Leaf(Pfn(600), RW));
    assert_eq!(
        cpu.load(VA),
        Err(PageFault { va: VA, access: Access::Read, present: false }),
        "no root is loaded"
    );
    m.enter_root(root(0, false));
    assert_eq!(cpu.load(VA), Ok(1000));
    assert_eq!(cpu.store(Va(VA.0 + 4088), 7), Ok(()));
    let raw = m.entry(TABLES[0], Level::ONE.slot(VA));
    assert_eq!(
        X86_64::decode(raw, Level::ONE),
        Entry::Leaf(Pfn(600), Flags { accessed: true, dirty: true, ..RW })
    );
    let mut bytes = [0; 8];
    m.peek(Pfn(600), 4088, &mut bytes);
    assert_eq!(u64::from_ne_bytes(bytes), 7);
}

#[test]
fn a_forgotten_flush_shows_as_the_old_page() {
    let m = machine(Plan::new(1, 64 << 20));
    let cpu = m.bind(0);
    build(&m);
    m.enter_root(root(0, false));
    set(&m, 0, Entry::Leaf(Pfn(600), RW));
    assert_eq!(cpu.load(VA), Ok(1000));
    set(&m, 0, Entry::Leaf(Pfn(601), RW));
    assert_eq!(cpu.load(VA), Ok(1000), "nobody flushed");
    m.flush_local(Scope::Page(Asid(0), VA));
    assert_eq!(cpu.load(VA), Ok(1001));
}

#[test]
fn a_stale_translation_to_a_freed_frame_stops_the_machine() {
    let m = machine(Plan::new(1, 64 << 20));
    let cpu = m.bind(0);
    build(&m);
    m.enter_root(root(0, false));
    set(&m, 0, Entry::Leaf(Pfn(600), RW));
    cpu.load(VA).unwrap();
    set(&m, 0, Entry::Empty);
    become_(&m, Pfn(600), Use::Pending);
    assert_eq!(cpu.load(VA), Ok(1000), "pending: the flush is still to come");
    become_(&m, Pfn(600), Use::Free);
    assert!(catch_unwind(AssertUnwindSafe(|| cpu.load(VA))).is_err());
}

#[test]
fn a_walk_through_a_freed_table_stops_the_machine() {
    let m = machine(Plan::new(1, 64 << 20));
    let cpu = m.bind(0);
    build(&m);
    m.enter_root(root(0, false));
    set(&m, 0, Entry::Leaf(Pfn(600), RW));
    cpu.load(VA).unwrap();
    m.set_entry(TABLES[1], Level::TWO.slot(VA), 0);
    become_(&m, TABLES[0], Use::Free);
    assert!(catch_unwind(AssertUnwindSafe(|| cpu.load(page(1)))).is_err());
}

#[test]
fn a_write_to_the_shared_zeros_stops_the_machine() {
    let m = machine(Plan::new(1, 64 << 20));
    let cpu = m.bind(0);
    build(&m);
    become_(&m, Pfn(700), Use::Zero);
    m.enter_root(root(0, false));
    set(&m, 0, Entry::Leaf(Pfn(700), RW));
    assert_eq!(cpu.load(VA), Ok(0));
    assert!(catch_unwind(AssertUnwindSafe(|| cpu.store(VA, 1))).is_err());
}

#[test]
fn loading_a_root_drops_translations_unless_contexts_keep_them() {
    let plain = machine(Plan::new(1, 64 << 20));
    let tagged = machine(Plan { rules: X86_PCID, ..Plan::new(1, 64 << 20) });
    for (m, keeps) in [(&plain, false), (&tagged, true)] {
        let cpu = m.bind(0);
        build(m);
        set(m, 0, Entry::Leaf(Pfn(600), RW));
        m.enter_root(root(1, false));
        cpu.load(VA).unwrap();
        m.enter_root(root(2, false));
        m.enter_root(root(1, false));
        assert_eq!(cpu.held().len(), keeps as usize);
        m.enter_root(root(1, true));
        assert_eq!(cpu.held().len(), 0);
    }
}

#[test]
fn an_upgrade_needs_a_local_flush_only_where_faults_do_not_invalidate() {
    fn try_it<C: Codec>(m: &Host<C>, cpu: &CpuGuard<'_, C, true>) -> bool {
        build(m);
        m.enter_root(root(1, false));
        set(m, 0, Entry::Leaf(Pfn(600), Flags { write: false, ..RW }));
        cpu.load(VA).unwrap();
        set(m, 0, Entry::Leaf(Pfn(600), RW));
        assert!(cpu.store(VA, 1).unwrap_err().present, "the cached translation is read-only");
        cpu.store(VA, 1).is_ok()
    }
    let x86 = machine(Plan::new(1, 64 << 20));
    assert!(try_it(&x86, &x86.bind(0)));
    let arm =
        Host::<Aarch64>::new(Plan { rules: MmuRules::AARCH64, ..Plan::new(1, 64 << 20) }).unwrap();
    let cpu = arm.bind(0);
    assert!(!try_it(&arm, &cpu));
    arm.flush_local(Scope::Page(Asid(1), VA));
    assert_eq!(cpu.store(VA, 1), Ok(()));
}

#[test]
fn a_live_address_change_is_refused_under_break_before_make() {
    let arm =
        Host::<Aarch64>::new(Plan { rules: MmuRules::AARCH64, ..Plan::new(1, 64 << 20) }).unwrap();
    let _cpu = arm.bind(0);
    build(&arm);
    set(&arm, 0, Entry::Leaf(Pfn(600), RW));
    set(&arm, 0, Entry::Leaf(Pfn(600), Flags { write: false, ..RW }));
    assert!(catch_unwind(AssertUnwindSafe(|| set(&arm, 0, Entry::Leaf(Pfn(601), RW)))).is_err());
    set(&arm, 0, Entry::Busy(Busy::Page(Pfn(600))));
    set(&arm, 0, Entry::Leaf(Pfn(601), RW));
    let to_block = Aarch64::encode(Entry::Leaf(Pfn(512), RW), Level::TWO);
    let slot = Level::TWO.slot(VA);
    assert!(catch_unwind(AssertUnwindSafe(|| arm.set_entry(TABLES[1], slot, to_block))).is_err());
}

#[test]
fn a_remote_flush_is_done_on_a_running_cpu_when_it_returns() {
    let m = machine(Plan { running: Some(2), ..Plan::new(2, 64 << 20) });
    let (generation, reads, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let everyone = CpuMask([3, 0, 0, 0]);
    let start = Barrier::new(2);
    std::thread::scope(|s| {
        let (m, generation, reads, done, start) = (&m, &generation, &reads, &done, &start);
        s.spawn(move || {
            let _cpu = m.bind(0);
            build(m);
            set(m, 0, Entry::Leaf(Pfn(600), RW));
            start.wait();
            let range = VaRange::new(VA, 4096, Va(1 << 47)).unwrap();
            let scopes = [
                Scope::Page(Asid(0), VA),
                Scope::Range(Asid(0), range, Level::ONE),
                Scope::Space(Asid(0)),
                Scope::All,
            ];
            // Where the reader seldom runs, until it has read.
            for n in (1u64..).take_while(|&n| n < 2000 || reads.load(Ordering::Relaxed) == 0) {
                set(m, 0, Entry::Leaf(Pfn(600 + n % 16), RW));
                m.flush_remote(&everyone, scopes[n as usize % 4]);
                // From here no CPU may read the other frame.
                generation.store(n, Ordering::Release);
                if n.is_multiple_of(64) {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Release);
        });
        s.spawn(move || {
            let cpu = m.bind(1);
            cpu.park(|| start.wait());
            m.enter_root(root(0, false));
            while !done.load(Ordering::Acquire) {
                let before = generation.load(Ordering::Acquire);
                let value = cpu.load(VA).unwrap();
                let after = generation.load(Ordering::Acquire);
                // The flush of `before` is over, the change after `after` may be under way:
                // anything between is legal.
                let legal = (before..=after + 1).any(|n| value == 1000 + n % 16);
                assert!(legal, "{value} read between generations {before} and {after}");
                reads.fetch_add((after - before < 14) as u64, Ordering::Relaxed);
            }
        });
    });
    assert!(reads.into_inner() > 0);
}

#[test]
fn a_parked_cpu_is_not_waited_for_and_drops_everything_when_it_wakes() {
    let m = machine(Plan { running: Some(2), ..Plan::new(2, 64 << 20) });
    let (asleep, flushed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|s| {
        let (m, asleep, flushed) = (&m, &asleep, &flushed);
        s.spawn(move || {
            let cpu = m.bind(1);
            build(m);
            set(m, 0, Entry::Leaf(Pfn(600), RW));
            m.enter_root(root(0, false));
            assert_eq!(cpu.load(VA), Ok(1000));
            cpu.park(|| {
                asleep.wait();
                flushed.wait();
            });
            assert_eq!(cpu.held().len(), 0);
            assert_eq!(cpu.load(VA), Ok(1001));
            cpu.park(|| ());
            assert_eq!(cpu.held().len(), 1, "nobody flushed: what is cached stays");
        });
        let _cpu = m.bind(0);
        asleep.wait();
        set(m, 0, Entry::Leaf(Pfn(601), RW));
        m.flush_remote(&CpuMask([2, 0, 0, 0]), Scope::Page(Asid(0), VA));
        flushed.wait();
    });
}

#[test]
fn a_broadcast_reaches_cpus_that_were_not_named() {
    let m = Host::<Aarch64>::new(Plan {
        rules: MmuRules::AARCH64,
        running: Some(2),
        ..Plan::new(2, 64 << 20)
    })
    .unwrap();
    let (asleep, flushed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|s| {
        let (m, asleep, flushed) = (&m, &asleep, &flushed);
        s.spawn(move || {
            let cpu = m.bind(1);
            build(m);
            set(m, 0, Entry::Leaf(Pfn(600), RW));
            m.enter_root(root(1, false));
            cpu.load(VA).unwrap();
            cpu.park(|| {
                asleep.wait();
                flushed.wait();
            });
            assert_eq!(cpu.held().len(), 0);
        });
        let _cpu = m.bind(0);
        asleep.wait();
        m.flush_remote(&CpuMask::EMPTY, Scope::Page(Asid(1), VA));
        flushed.wait();
    });
}

#[test]
fn more_cpus_than_cores_flush_each_other_without_waiting_for_ever() {
    let m = machine(Plan { running: Some(2), jitter: 50, ..Plan::new(9, 64 << 20) });
    {
        let _cpu = m.bind(0);
        build(&m);
        set(&m, 0, Entry::Leaf(Pfn(600), RW));
    }
    let everyone = CpuMask([(1 << 9) - 1, 0, 0, 0]);
    std::thread::scope(|s| {
        for n in 0..9 {
            let m = &m;
            s.spawn(move || {
                let cpu = m.bind(n);
                m.enter_root(root(0, false));
                for i in 0..300 {
                    assert_eq!(cpu.load(VA), Ok(1000));
                    if i % 3 == 0 {
                        m.flush_remote(&everyone, Scope::Page(Asid(0), VA));
                    }
                    cpu.yield_core();
                }
            });
        }
    });
}

#[test]
fn a_cpu_is_one_thread_and_a_thread_is_one_cpu() {
    let m = machine(Plan { running: Some(4), ..Plan::new(2, 64 << 20) });
    let guard = m.bind(0);
    assert!(catch_unwind(AssertUnwindSafe(|| m.bind(1).cpu())).is_err(), "this thread is CPU 0");
    std::thread::scope(|s| {
        let m = &m;
        assert!(s.spawn(move || m.bind(0).cpu()).join().is_err(), "CPU 0 is taken");
        assert_eq!(s.spawn(move || m.bind(1).cpu()).join().ok(), Some(1));
    });
    drop(guard);
    let other = machine(Plan::new(1, 64 << 20));
    let (a, b) = (m.bind(1), other.bind(0));
    assert_eq!(other.cpu(), 0);
    drop(b);
    assert_eq!(m.cpu(), 1);
    drop(a);
    assert!(catch_unwind(AssertUnwindSafe(|| m.cpu())).is_err());
}

#[test]
fn plans_that_make_no_machine_are_refused_with_a_reason() {
    let good = Plan::new(1, 64 << 20);
    for plan in [
        Plan { cpus: 0, ..good },
        Plan { cpus: 65, ..good },
        Plan { nodes: 0, ..good },
        Plan { nodes: 17, ..good },
        Plan { nodes: 16, bytes: 16 << 20, ..good },
        Plan { bytes: 0, ..good },
    ] {
        let error = Host::<X86_64>::new(plan).err().expect("no such machine");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn a_split_machine_has_its_frames_in_whole_nodes() {
    let m = machine(Plan { nodes: 3, ..Plan::new(4, 64 << 20) });
    let t = m.topology();
    assert_eq!((t.nodes, t.cpu_node[3], t.distance[0][1], t.distance[1][1]), (3, 0, 20, 10));
    for n in 0..3 {
        assert_eq!(t.node[n].frames, 10 * 512);
        assert_eq!(t.node_of(t.node[n].first), Some(n));
        assert!(t.node[n].first.is_aligned(Order::HUGE));
    }
}

#[test]
fn bytes_at_any_offset_go_in_and_come_out() {
    let m = machine(Plan::new(1, 64 << 20));
    let _cpu = m.bind(0);
    for offset in 0..20 {
        for len in 0..20usize {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            m.zero_out(Pfn(800), 1);
            m.poke(Pfn(800), offset, &bytes);
            let mut back = vec![0xff; 64];
            m.peek(Pfn(800), 0, &mut back);
            assert!(back.iter().enumerate().all(|(i, &b)| b
                == if i >= offset && i < offset + len { (i - offset + 1) as u8 } else { 0 }));
            m.copy_to(Pfn(801), Pfn(800));
            let mut copied = vec![0; len];
            m.peek(Pfn(801), offset, &mut copied);
            assert_eq!(copied, bytes);
        }
    }
}

#[test]
fn scattered_pages_are_cleared_however_many_and_nothing_beside_them() {
    let m = machine(Plan::new(1, 64 << 20));
    let _cpu = m.bind(0);
    let word = |pfn| {
        let mut bytes = [0; 8];
        m.peek(pfn, 4088, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    for stores in [Stores::Cached, Stores::NonTemporal] {
        for pages in 0..10u64 {
            (0..40).for_each(|i| m.poke(Pfn(600 + i), 4088, &1u64.to_ne_bytes()));
            let batch: Vec<_> = (0..pages).map(|i| (Pfn(600 + 3 * i + 1), page(i))).collect();
            // SAFETY: frames of the test, all different.
            unsafe { m.clear_pages(&batch, stores) };
            m.store_fence();
            for i in 0..40 {
                let cleared = i % 3 == 1 && i / 3 < pages;
                assert_eq!(
                    word(Pfn(600 + i)),
                    u64::from(!cleared),
                    "{stores:?}, {pages} pages: frame {i}"
                );
            }
        }
    }
}

#[test]
fn a_thread_that_is_a_cpu_of_two_machines_lets_them_go_in_any_order() {
    let (a, b) = (machine(Plan::new(1, 4 << 20)), machine(Plan::new(1, 4 << 20)));
    let (first, second) = (a.bind(0), b.bind(0));
    assert_eq!((a.cpu(), b.cpu(), a.cpu()), (0, 0, 0), "it is both at once");
    drop(first);
    assert_eq!(b.cpu(), 0);
    drop(second);
    std::thread::scope(|s| {
        let a = &a;
        s.spawn(move || assert_eq!(a.bind(0).cpu(), 0));
    });
    assert!(catch_unwind(AssertUnwindSafe(|| a.cpu())).is_err(), "nobody is a CPU of it");
    let again = (a.bind(0), b.bind(0));
    assert!(catch_unwind(AssertUnwindSafe(|| a.bind(0).cpu())).is_err(), "it is CPU 0 already");
    drop(again);
}

/// A thread's CPU panics while it is parked, somebody catches that, and `beside` is what another
/// thread begins then. Whether it ends before this thread lets it, by a poll or the guard's end.
fn goes_on_beside_a_caught_panic(running: usize, beside: impl FnOnce(&Host) + Send) -> bool {
    let m = machine(Plan { running: Some(running), ..Plan::new(2, 64 << 20) });
    let cpu = m.bind(0);
    let caught = catch_unwind(AssertUnwindSafe(|| cpu.park(|| panic!("of the embedder's"))));
    assert!(caught.is_err());
    std::thread::scope(|s| {
        let m = &m;
        let other = s.spawn(move || beside(m));
        std::thread::sleep(Duration::from_millis(100));
        let ended = other.is_finished();
        while running != 1 && !other.is_finished() {
            m.sched_point();
        }
        drop(cpu);
        other.join().expect("a thread that ends");
        ended
    })
}

#[test]
fn a_panic_while_a_cpu_is_parked_leaves_it_running() {
    let flushes = |m: &Host| {
        let _cpu = m.bind(1);
        m.flush_remote(&CpuMask([1, 0, 0, 0]), Scope::All);
    };
    assert!(!goes_on_beside_a_caught_panic(2, flushes), "a flush waited for no answer");
    let runs = |m: &Host| drop(m.bind(1));
    assert!(!goes_on_beside_a_caught_panic(1, runs), "two CPUs run with one permit");
}

#[test]
fn a_parked_cpu_does_nothing() {
    let m = machine(Plan::new(1, 64 << 20));
    let cpu = m.bind(0);
    build(&m);
    set(&m, 0, Entry::Leaf(Pfn(600), RW));
    m.enter_root(root(0, false));
    assert_eq!(cpu.load(VA), Ok(1000));
    cpu.park(|| {
        let refused = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
        assert!(refused(&|| _ = cpu.load(VA)), "it translates");
        assert!(refused(&|| _ = cpu.held()), "it looks");
        assert!(refused(&|| m.flush_local(Scope::All)), "it flushes");
        assert!(refused(&|| cpu.park(|| ())), "it parks");
        assert!(refused(&|| _ = m.bind(0).cpu()), "the thread is it already");
    });
    assert_eq!(cpu.load(VA), Ok(1000));
}
