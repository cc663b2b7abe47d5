//! Real programs under the recorder.
mod common;

use common::{check, compile, run, scratch};
use std::collections::{BTreeMap, BTreeSet};
use vellum_trace::event::{Change, Event, MapKind};
use vellum_trace::record::{Options, RecordError, Silent, record};

fn changes(events: &[Event]) -> Vec<&Change> {
    events
        .iter()
        .filter_map(|e| match e {
            Event::Call(c) => Some(&c.change),
            _ => None,
        })
        .collect()
}

#[test]
fn threads_that_map_and_unmap_at_once_never_touch_unmapped_memory() {
    let dir = scratch("threads");
    let program = compile(&dir, "threads");
    let (report, events) = run(Options::new(vec![program.into()], dir.join("t.vt")));
    assert_eq!((report.native_code, report.exit_code), (Some(7), 7));
    check(&events);
    // Two generations of four, and the first thread; CPU numbers are reused, thread numbers are
    // not.
    assert_eq!(report.totals.threads, 9);
    let ended = events.iter().filter(|e| matches!(e, Event::ThreadEnd { .. })).count();
    assert!(ended >= 8, "{ended}");
    let maps = changes(&events)
        .into_iter()
        .filter(|c| matches!(c, Change::Map(m) if m.len == 64 << 10))
        .count();
    assert_eq!(maps, 2 * 4 * 200);
    assert!(matches!(changes(&events).last(), Some(Change::Exit { code: 7 })));
    std::fs::remove_dir_all(dir).expect("removed");
}

/// A child of `posix_spawn` has its parent's memory, so that no page is copied or faulted for it.
#[test]
fn a_spawned_child_is_no_fork() {
    let dir = scratch("spawn");
    let program = compile(&dir, "spawn");
    let (report, events) = run(Options::new(vec![program.into()], dir.join("s.vt")));
    assert_eq!(report.exit_code, 0);
    let children: Vec<&Change> = changes(&events)
        .into_iter()
        .filter(|c| matches!(c, Change::Fork { .. } | Change::Vfork | Change::ChildEnd { .. }))
        .collect();
    let [Change::Vfork, Change::Fork { child: Some(0) }, Change::ChildEnd { child: 0 }] =
        children[..]
    else {
        panic!("{children:?}")
    };
    assert_eq!(report.totals.forks, 2);
    std::fs::remove_dir_all(dir).expect("removed");
}

/// A forked child has its parent's pages until it ends, however it ends, and so have its children.
#[test]
fn the_end_of_a_child_stands_where_it_happened() {
    let dir = scratch("held");
    let program = compile(&dir, "held");
    let (report, events) = run(Options::new(vec![program.into()], dir.join("h.vt")));
    assert_eq!(report.exit_code, 0);
    check(&events);
    let memory = changes(&events)
        .into_iter()
        .find_map(|c| match c {
            Change::Map(m) if m.len == 64 * 4096 && m.kind == MapKind::Anon => Some(m.mapping),
            _ => None,
        })
        .expect("the memory");
    // Forks, ends, and the quarters of the memory whose last page is written.
    let mut order = Vec::new();
    let mut is_forked = false;
    for event in &events {
        match event {
            Event::Call(call) => match call.change {
                Change::Fork { child } => {
                    is_forked = true;
                    order.push(("fork", child.map(u64::from)));
                }
                Change::ChildEnd { child } => order.push(("end", Some(child.into()))),
                _ => {}
            },
            Event::Access { mapping, offset, flags, .. }
                if is_forked && *mapping == memory && flags.write() =>
            {
                let page = offset / 4096;
                if page % 16 == 15 {
                    order.push(("filled", Some(page / 16)));
                }
            }
            _ => {}
        }
    }
    let expected = [
        ("fork", 0),
        ("fork", 1),
        ("fork", 2),
        ("filled", 0),
        ("end", 1),
        ("filled", 1),
        ("end", 0),
        ("filled", 2),
        ("end", 2),
        ("filled", 3),
    ];
    assert_eq!(order, expected.map(|(what, n)| (what, Some(n))));
    std::fs::remove_dir_all(dir).expect("removed");
}

/// Whoever follows children has descriptors of its own, for a moment at numbers that the program
/// may choose as well.
#[test]
fn a_program_keeps_the_descriptors_that_it_chose_while_it_makes_children() {
    let dir = scratch("descriptors");
    let program = compile(&dir, "descriptors");
    let (report, events) = run(Options::new(vec![program.into()], dir.join("d.vt")));
    assert_eq!((report.native_code, report.exit_code), (Some(0), 0));
    assert_eq!(children(&events), (200, 200));
    std::fs::remove_dir_all(dir).expect("removed");
}

/// An `exec` that fails had the trace ended already, while another thread went on.
#[test]
fn no_child_lives_for_ever_because_it_ended_beside_a_failing_exec() {
    let dir = scratch("failing");
    let program = compile(&dir, "descriptors");
    let file = dir.join("nothing");
    std::fs::write(&file, [1, 2, 3]).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("may be executed");
    let (_, events) = run(Options::new(vec![program.into(), file.into()], dir.join("f.vt")));
    let (forks, ends) = children(&events);
    assert_eq!(forks, ends);
    std::fs::remove_dir_all(dir).expect("removed");
}

/// Children with a number, and ends of them.
fn children(events: &[Event]) -> (usize, usize) {
    let all = changes(events);
    let forks = all.iter().filter(|c| matches!(c, Change::Fork { child: Some(_) })).count();
    (forks, all.iter().filter(|c| matches!(c, Change::ChildEnd { .. })).count())
}

#[test]
fn every_memory_call_is_recorded_and_a_forked_child_is_not() {
    let dir = scratch("calls");
    let program = compile(&dir, "calls");
    let (report, events) = run(Options::new(vec![program.into()], dir.join("c.vt")));
    assert_eq!(report.exit_code, 0);
    check(&events);
    let all = changes(&events);
    let has =
        |what: &str, f: &dyn Fn(&Change) -> bool| assert!(all.iter().any(|c| f(c)), "no {what}");
    has("fixed mapping inside", &|c| {
        let Change::Map(m) = c else { return false };
        m.len == 4 * 4096 && m.inside.is_some_and(|i| i.1 == 8 * 4096)
    });
    has("protect", &|c| matches!(c, Change::Protect { len, .. } if *len == 32 * 4096));
    has("dontneed", &|c| matches!(c, Change::Advise { len, .. } if *len == 4 * 4096));
    has("remap", &|c| matches!(c, Change::Remap { len, .. } if *len == 8 * 4096));
    has("shrinking heap", &|c| matches!(c, Change::Brk { .. }));
    has(
        "private file",
        &|c| matches!(c, Change::Map(m) if m.kind == MapKind::FilePrivate && m.len == 2 * 4096),
    );
    has("stack", &|c| matches!(c, Change::Map(m) if m.kind == MapKind::Stack && m.synthetic));
    has("fork", &|c| matches!(c, Change::Fork { .. }));
    let child = all.iter().any(|c| matches!(c, Change::Map(m) if m.len == 1024 * 4096));
    assert!(!child, "the child's mapping is in the parent's trace");
    let kernel: u64 = events
        .iter()
        .map(|e| match e {
            Event::Access { flags, size, .. } if flags.kernel() && flags.write() => {
                u64::from(*size)
            }
            _ => 0,
        })
        .sum();
    assert!(kernel >= 3 * 4096 + 200, "{kernel}");
    // The failed exec must not have ended the trace.
    assert!(matches!(all.last(), Some(Change::Exit { code: 0 })));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn exec_ends_the_recording_cleanly() {
    let dir = scratch("exec");
    let program = compile(&dir, "calls");
    let (report, events) =
        run(Options::new(vec![program.into(), "hello".into()], dir.join("e.vt")));
    assert_eq!(report.exit_code, 0);
    check(&events);
    assert!(matches!(changes(&events).last(), Some(Change::Exec)));
    std::fs::remove_dir_all(dir).expect("removed");
}

/// First reads and first writes of pages by the program, in a form that does not depend on windows.
type PageSet = BTreeSet<(u32, u64)>;

fn touched(events: &[Event]) -> (PageSet, PageSet) {
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    for e in events {
        if let Event::Access { mapping, offset, size, flags } = e {
            for page in [offset / 4096, (offset + u64::from(*size) - 1) / 4096] {
                read.insert((*mapping, page));
                if flags.write() {
                    written.insert((*mapping, page));
                }
            }
        }
    }
    (read, written)
}

#[test]
fn windows_leave_out_accesses_but_no_first_touch() {
    let dir = scratch("window");
    let program = compile(&dir, "calls");
    let whole = run(Options::new(vec![program.clone().into()], dir.join("a.vt")));
    let mut o = Options::new(vec![program.into()], dir.join("b.vt"));
    o.window = Some("1k,1k,10k".parse().expect("a window"));
    o.native = false;
    let part = run(o);
    assert_eq!(part.0.native, None);
    check(&part.1);
    assert!(part.0.totals.skipped_accesses > part.0.totals.accesses());
    assert_eq!(changes(&whole.1).len(), changes(&part.1).len());
    // The two runs differ in a few stack and libc pages (addresses of the environment, random
    // bytes), not in the pages of the mappings that the program makes itself.
    let own: BTreeMap<u32, u64> = changes(&whole.1)
        .into_iter()
        .filter_map(|c| match c {
            Change::Map(m)
                if m.kind == MapKind::Anon && m.len >= 16 * 4096 && m.inside.is_none() =>
            {
                Some((m.mapping, m.len))
            }
            _ => None,
        })
        .collect();
    let only =
        |s: PageSet| -> PageSet { s.into_iter().filter(|(m, _)| own.contains_key(m)).collect() };
    let (a, b) = (touched(&whole.1), touched(&part.1));
    assert_eq!(only(a.0), only(b.0));
    assert_eq!(only(a.1), only(b.1));
    assert_eq!(whole.0.totals.touched_pages.abs_diff(part.0.totals.touched_pages), 0);
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn what_cannot_be_recorded_is_said_in_one_line_and_leaves_no_file() {
    let dir = scratch("errors");
    let out = dir.join("x.vt");
    for command in [vec![], vec!["no-such-program".into()], vec!["/etc/passwd".into()]] {
        let e = record(&Options::new(command, &out), &Silent).expect_err("nothing to record");
        let text = e.to_string();
        assert!(!text.contains('\n'), "{text}");
    }
    let mut o = Options::new(vec!["/bin/true".into()], &out);
    o.plugin = Some(dir.join("missing.so"));
    assert!(matches!(record(&o, &Silent), Err(RecordError::NoPlugin)));
    assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 0);
    std::fs::remove_dir_all(dir).expect("removed");
}

/// How many accesses to a mapping there are in a part of a trace, and how many are dependent.
fn dependent(events: &[Event], of: u32) -> (usize, usize) {
    let flags = events.iter().filter_map(|e| match e {
        Event::Access { mapping, flags, .. } if *mapping == of && !flags.kernel() => {
            Some(flags.dependent())
        }
        _ => None,
    });
    let all: Vec<bool> = flags.collect();
    (all.len(), all.iter().filter(|d| **d).count())
}

#[test]
fn pointer_chases_and_indexed_accesses_are_dependent_and_strides_are_not() {
    const NODES: usize = 1 << 14;
    let dir = scratch("chase");
    let program = compile(&dir, "chase");
    let mut o = Options::new(vec![program.into()], dir.join("d.vt"));
    o.native = false;
    let (report, events) = run(o);
    assert_eq!(report.exit_code, 0);
    check(&events);
    let of_length = |len: usize| {
        let found = changes(&events).into_iter().rev().find_map(|c| match c {
            Change::Map(m) if m.kind == MapKind::Anon && m.len == len as u64 => Some(m.mapping),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no mapping of {len} bytes"))
    };
    let (nodes, at, marks) = (of_length(NODES * 16), of_length(NODES * 4), of_length(4 * 4096));
    let mark = |page: u64| {
        let hit = |e: &Event| {
            matches!(e, Event::Access { mapping, offset, flags, .. }
                if *mapping == marks && *offset == page * 4096 && flags.write())
        };
        events.iter().position(hit).expect("a mark")
    };
    let [one, two, three, four] = [0, 1, 2, 3].map(mark);

    // The stride is the last thing that reads the nodes before the first mark.
    let before: Vec<Event> = {
        let touches = events[..one]
            .iter()
            .filter(|e| matches!(e, Event::Access { mapping, .. } if *mapping == nodes));
        touches.cloned().collect()
    };
    assert_eq!(dependent(&before[before.len() - NODES..], nodes), (NODES, 0), "stride");
    let (all, chased) = dependent(&events[one..two], nodes);
    assert_eq!(all, 2 * NODES, "chase");
    // The first node's address is computed.
    assert!(chased >= all - 4, "chase: {chased} of {all}");
    assert_eq!(dependent(&events[two..three], nodes), (NODES, NODES), "gather");
    assert_eq!(dependent(&events[two..three], at), (NODES, 0), "the index itself");
    let wrong = |part: &[Event]| {
        let flags = part.iter().filter_map(|e| match e {
            Event::Access { flags, .. } => Some(*flags),
            _ => None,
        });
        let wrong: Vec<_> = flags.filter(|f| f.mispredicted()).collect();
        assert!(wrong.iter().all(|f| f.dependent() && !f.write()));
        wrong.len()
    };
    assert!(wrong(&events[one..three]) < NODES / 100, "loops");
    let chance = wrong(&events[three..four]);
    assert!((NODES * 4 / 10..NODES * 6 / 10).contains(&chance), "{chance}");
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn an_instruction_that_modifies_memory_touches_it_as_a_write_first() {
    let dir = scratch("modify");
    let program = compile(&dir, "modify");
    let (report, events) = run(Options::new(vec![program.into()], dir.join("m.vt")));
    assert_eq!(report.exit_code, 0);
    check(&events);
    let own = changes(&events).into_iter().find_map(|c| match c {
        Change::Map(m) if m.len == 2000 * 4096 => Some(m.mapping),
        _ => None,
    });
    let own = own.expect("the program's mapping");
    let mut first = BTreeMap::new();
    let (mut loads, mut stores) = (0, 0);
    for e in &events {
        if let Event::Access { mapping, offset, flags, .. } = e
            && *mapping == own
        {
            first.entry(offset / 4096).or_insert(flags.write());
            if flags.write() { stores += 1 } else { loads += 1 }
        }
    }
    assert_eq!(first.len(), 2000);
    assert!(first.values().all(|written| *written), "a page was read before it was written");
    assert!(stores >= 4000 && loads >= 2000, "{loads} loads, {stores} stores");
    std::fs::remove_dir_all(dir).expect("removed");
}
