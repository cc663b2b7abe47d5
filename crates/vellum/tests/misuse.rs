//! Safe calls with the wrong arguments are refused, and say why. What does not compile is in
//! `src/misuse.rs`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use vellum::entry::NoZeroTables;
use vellum::error::ReserveError;
use vellum_testkit::prelude::*;

/// A verb that takes a space, by its name.
type Verb = (&'static str, fn(&Fixture, Space));

const VERBS: [Verb; 23] = [
    ("activate", |l, s| l.vm.activate(&s)),
    ("exit", |l, s| l.vm.exit(s)),
    ("fork", |l, s| _ = l.vm.fork(&s)),
    ("map", |l, s| _ = l.vm.map(&s, Placement::Anywhere, KIB4, RW)),
    ("map_object", |l, s| {
        let part = ObjectPart { object: &l.object(KIB4), offset: 0 };
        _ = l.vm.map_object(&s, Placement::Anywhere, KIB4, RW, part);
    }),
    ("map_private", |l, s| {
        let part = ObjectPart { object: &l.object(KIB4), offset: 0 };
        _ = l.vm.map_private(&s, Placement::Anywhere, KIB4, RW, part);
    }),
    ("unmap", |l, s| _ = l.vm.unmap(&s, AT, KIB4)),
    ("protect", |l, s| _ = l.vm.protect(&s, AT, KIB4, Rights::READ)),
    ("remap", |l, s| _ = l.vm.remap(&s, AT, KIB4, KIB4, Placement::Anywhere)),
    ("advise", |l, s| _ = l.vm.advise(&s, AT, KIB4, Advice::DontNeed)),
    ("advise_part", |l, s| _ = l.vm.advise_part(&s, AT, KIB4, Advice::Populate { write: false })),
    ("fault", |l, s| _ = l.vm.fault(&s, AT, Access::Write)),
    ("query", |l, s| _ = l.vm.query(&s, AT)),
    ("usage", |l, s| _ = l.vm.usage(&s)),
    ("copy_in", |l, s| _ = l.vm.copy_in(&s, AT, &[1])),
    ("copy_in_part", |l, s| _ = l.vm.copy_in_part(&s, AT, &[1])),
    ("copy_out", |l, s| _ = l.vm.copy_out(&s, AT, &mut [1])),
    ("copy_out_part", |l, s| _ = l.vm.copy_out_part(&s, AT, &mut [1])),
    ("write_forced", |l, s| _ = l.vm.write_forced(&s, AT, &[1])),
    ("write_forced_part", |l, s| _ = l.vm.write_forced_part(&s, AT, &[1])),
    ("poison", |l, s| _ = l.vm.poison(&s, AT)),
    ("forbid_zeros", |l, s| l.vm.forbid_zeros(&s)),
    ("validate", |l, s| _ = l.vm.audit(&[&s])),
];

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("")
}

/// A `Vm` whose first space has a page: a verb that took another space for it would find one.
fn used() -> (Fixture, Space) {
    let fx = fixture(4096, no_thp());
    let space = fx.mapped(AT, MIB2, RW);
    assert_eq!(fx.vm.fault(&space, AT, Access::Write), Ok(Fault::Base));
    (fx, space)
}

#[test]
fn every_verb_refuses_the_space_of_another_vm() {
    let ((a, mine), (b, _other)) = (used(), used());
    for (name, verb) in VERBS {
        let stranger = b.vm.create().unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| verb(&a, stranger))).expect_err(name);
        assert_eq!(said(&*panic), "the space belongs to another Vm", "{name}");
    }
    // Nothing was touched.
    a.end([mine]);
}

/// The first spaces of two equal machines have the same identifier, by which a CPU knows its
/// current space.
#[test]
fn a_space_that_runs_here_is_not_taken_for_its_namesake() {
    let ((a, mine), (b, other)) = (used(), used());
    assert_eq!(mine.id(), other.id());
    a.vm.activate(&mine);
    assert!(catch_unwind(AssertUnwindSafe(|| a.vm.activate(&other))).is_err());
    a.vm.exit(mine);
    b.vm.exit(other);
}

#[test]
fn a_space_that_outlives_its_vm_is_a_number() {
    let (fx, space) = used();
    let id = space.id();
    drop(fx);
    assert_eq!(space.id(), id);
    assert!(format!("{space:?}").contains("Space"));
    drop(space);
}

/// The sources say which verbs there are; the list must have all of them.
#[test]
fn the_list_has_every_verb_that_takes_a_space() {
    let mut found = Vec::new();
    for (_, source) in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/vm"))) {
        for item in source.split("    pub ").skip(1) {
            let item = item.strip_prefix("unsafe ").unwrap_or(item);
            let Some(item) = item.strip_prefix("fn ") else { continue };
            let (name, rest) = item.split_once('(').unwrap();
            let parameters = rest.split(')').next().unwrap();
            let by = [": Space", ": &Space", ": &[&Space]"];
            let of_a_vm = parameters.trim_start().starts_with("&self");
            let takes = |kind: &str| parameters.split(',').any(|p| p.trim_end().ends_with(kind));
            if of_a_vm && by.into_iter().any(takes) && name != "is_of" {
                found.push(name.to_string());
            }
        }
    }
    found.sort();
    let mut known: Vec<_> = VERBS.iter().map(|(name, _)| name.to_string()).collect();
    known.sort();
    assert_eq!(found, known);
}

#[test]
fn frames_are_reserved_before_anything_is_allocated_and_once() {
    let mut fx = fixture(4096, no_thp());
    assert_eq!(fx.vm.reserve(Pfn(600), 700), Ok(()));
    // A part of it, a range that reaches into it from below, whole blocks of it, and all memory.
    for (first, frames) in [(1000, 1), (590, 11), (1024, 200), (512, 4096), (0, u64::MAX)] {
        let reserved = fx.vm.reserve(Pfn(first), frames);
        assert_eq!(reserved, Err(ReserveError::Twice), "{first}, {frames}");
    }
    assert_eq!(fx.vm.reserve(Pfn(590), 10), Ok(()), "refused before, and so not reserved");
    assert_eq!(fx.vm.reserve(Pfn(1300), 1024), Ok(()));
    let audit = fx.vm.audit(&[]).unwrap();
    assert_eq!((audit.free_frames, audit.other_frames), (4096 - 700 - 10 - 1024, 0));
    // After an allocation nothing can be reserved, even if it was freed.
    let (vm, want) = (&fx.vm, AllocRequest::kernel(Use::Data));
    let pfn = vm.frames().alloc(vm.machine(), Order::BASE, &want).unwrap();
    vm.frames().put(vm.machine(), pfn, Order::BASE);
    assert_eq!(fx.vm.reserve(Pfn(4000), 1), Err(ReserveError::InUse));
    assert!(ReserveError::InUse.to_string().contains("before the first allocation"));
}

#[test]
fn a_space_makes_frames_be_in_use() {
    let (mut fx, space) = used();
    assert_eq!(fx.vm.reserve(Pfn(4000), 1), Err(ReserveError::InUse));
    fx.vm.exit(space);
    assert_eq!(fx.vm.reserve(Pfn(4000), 1), Err(ReserveError::InUse));
    assert_eq!(fx.vm.query(&fx.vm.create().unwrap(), Va(0)), Page::Unmapped);
}

#[test]
fn a_depth_the_machine_does_not_walk_is_refused() {
    for (machine, switch) in [(4, 5), (5, 4)] {
        let machine: Flat = flat_with(1, 512, MmuRules { levels: machine, ..MmuRules::X86_64 });
        let meta = Meta::new(Vm::<Flat>::layout(machine.topology()));
        let config = Config { levels: Some(switch), ..Config::default() };
        // SAFETY: zeroed memory of that layout, kept until after the value.
        let refused = unsafe { Vm::new(machine, config, meta.base()) };
        assert_eq!(refused.err(), Some(InitError::Levels));
    }
}

#[test]
fn a_switch_that_names_a_missing_node_is_refused() {
    for numa in [NumaPolicy::Bind(1), NumaPolicy::Prefer(200), NumaPolicy::Bind(0)] {
        let machine: Flat = flat_with(1, 512, MmuRules::X86_64);
        let meta = Meta::new(Vm::<Flat>::layout(machine.topology()));
        // SAFETY: zeroed memory of that layout, kept until after the value.
        let made = unsafe { Vm::new(machine, Config { numa, ..Config::default() }, meta.base()) };
        let expected = (numa != NumaPolicy::Bind(0)).then_some(InitError::NumaNode);
        assert_eq!(made.err(), expected, "{numa:?}");
    }
}

#[test]
fn a_format_without_tables_of_zeros_refuses_the_switch_and_serves_the_rest() {
    type Lean = Flat<NoZeroTables<X86_64>>;
    let boot = |zero_huge| {
        let machine: Lean = flat_with(1, 4096, MmuRules::X86_64);
        let meta = Meta::new(Vm::<Lean>::layout(machine.topology()));
        let config = Config { zero_huge, ..Config::default() };
        // SAFETY: zeroed memory of that layout, kept until after the value.
        (unsafe { Vm::new(machine, config, meta.base()) }, meta)
    };
    for refused in [ZeroHuge::Table, ZeroHuge::TablePrivate] {
        assert_eq!(boot(refused).0.err(), Some(InitError::ZeroTables));
    }
    for (served, form) in [(ZeroHuge::Off, Fault::Huge), (ZeroHuge::Page, Fault::ZeroHuge)] {
        let (vm, _meta) = boot(served);
        let vm = vm.unwrap();
        let space = vm.create().unwrap();
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        let at = vm.map(&space, Placement::Anywhere, 4 << 20, attrs).unwrap();
        let at = Va(at.0.next_multiple_of(2 << 20));
        assert_eq!(vm.fault(&space, at, Access::Read), Ok(form));
        assert!(vm.fault(&space, at, Access::Write).is_ok());
        let child = vm.fork(&space).unwrap();
        assert_eq!(vm.unmap(&space, at, 4096), Ok(()));
        // SAFETY: nothing runs beside it.
        assert!(unsafe { vm.validate(&[&space, &child]) }.is_ok());
        vm.exit(child);
        vm.exit(space);
    }
}
