//! Devices: memory that is not the library's, in a cache mode. The machine of these tests has no
//! memory there, and fails whoever reads, clears, copies or frees it.

use super::oom::each_allocation_fails;
use vellum_testkit::prelude::*;

/// Registers, 64 GiB up: aligned to 1 GiB, as [`AT`] is.
const BASE: u64 = 64 * GIB;
const FIRST: Pfn = Pfn(BASE / KIB4);
const REGISTERS: DeviceMemory =
    DeviceMemory { address: BASE, bytes: 16 * KIB4, cache: CacheMode::Uncached, writable: true };

/// Nothing is cleared without cause.
fn no_zeros() -> Config {
    Config { zero_page: false, ..Config::default() }
}

fn device<C: Arch>(fx: &Fixture<C>, memory: DeviceMemory) -> Object {
    // SAFETY: nobody accesses it: these tests have no programs.
    unsafe { fx.vm.objects().create_device(memory) }.expect("a device")
}

/// What is mapped where a device is: the frame there, the level and the cache mode.
type Shown = (Pfn, u8, CacheMode);

fn shown<C: Arch>(fx: &Fixture<C>, space: &Space, va: Va) -> Option<Shown> {
    match fx.vm.query(space, va) {
        Page::Device { pfn, level, cache, .. } => {
            let page = va.page() & ((1 << (level.shift() - 12)) - 1);
            Some((pfn.add(page), level.0, cache))
        }
        _ => None,
    }
}

fn write<C: Arch>(fx: &Fixture<C>, space: &Space, va: Va) {
    assert_eq!(fx.vm.fault(space, va, Access::Write), Ok(Fault::Object));
}

fn ends<C: Arch>(fx: Fixture<C>, object: Object, spaces: impl IntoIterator<Item = Space>) {
    fx.vm.objects().discard(object);
    fx.end(spaces);
    let asked = &fx.m().asked;
    assert_eq!((asked.cleared_frames.get(), asked.copied_frames.get()), (0, 0));
}

/// A device of 16 pages, and a space that maps them at [`AT`] and has faulted each in.
struct Mapped<C: Arch> {
    fx: Fixture<C>,
    object: Object,
    space: Space,
}

fn mapped<C: Arch>() -> Mapped<C> {
    let fx = fixture_of::<C>(2, 4096, no_zeros());
    let object = device(&fx, REGISTERS);
    let space = fx.with_object(AT, 16 * KIB4, &object);
    (0..16).for_each(|n| write(&fx, &space, page_at(n)));
    Mapped { fx, object, space }
}

fn shows_all<C: Arch>(fx: &Fixture<C>, space: &Space, pages: impl IntoIterator<Item = u64>) {
    for n in pages {
        let wanted = Some((FIRST.add(n), 1, CacheMode::Uncached));
        assert_eq!(shown(fx, space, page_at(n)), wanted, "page {n}");
    }
}

on_both!(refused, memory_that_is_no_devices_is_refused_by_name);

fn refused<C: Arch>() {
    let fx = fixture_of::<C>(1, 4096, Config::default());
    let space = fx.mapped(AT, KIB4, RW);
    let before = fx.state(&[&space]);
    let at = |address, bytes| {
        let memory = DeviceMemory { address, bytes, ..REGISTERS };
        // SAFETY: refused, or given back at once.
        let made = unsafe { fx.vm.objects().create_device(memory) };
        made.map(|object| fx.vm.objects().discard(object))
    };
    for (address, bytes) in [(BASE + 1, KIB4), (BASE, KIB4 + 8), (BASE, 0), (BASE + 8, 0)] {
        assert_eq!(at(address, bytes), Err(ObjectError::Unaligned));
    }
    let end = C::PFN_END * KIB4;
    for (address, bytes) in
        [(end, KIB4), (end - KIB4, 2 * KIB4), (!0xfff, KIB4), (BASE, !0xfff), (1 << 63, 1 << 63)]
    {
        assert_eq!(at(address, bytes), Err(ObjectError::Address), "{address:#x} {bytes:#x}");
    }
    // The library's frames begin at 2 MiB.
    let top = MIB2 + 4096 * KIB4;
    for (address, bytes) in
        [(MIB2, KIB4), (MIB2 - KIB4, 2 * KIB4), (0, GIB), (top - KIB4, KIB4), (top - KIB4, GIB)]
    {
        assert_eq!(at(address, bytes), Err(ObjectError::Owned), "{address:#x} {bytes:#x}");
    }
    assert_same(&before, &fx.state(&[&space]), "a device was refused");
    for (address, bytes) in [(MIB2 - KIB4, KIB4), (0, MIB2), (top, KIB4), (end - KIB4, KIB4)] {
        assert_eq!(at(address, bytes), Ok(()), "{address:#x} {bytes:#x}");
    }
    fx.end([space]);
}

/// A format that has no cache modes.
#[derive(Clone, Copy)]
struct NoModes;

impl Codec for NoModes {
    const FRAME: u64 = X86_64::FRAME;

    fn encode(entry: Entry, level: Level) -> u64 {
        X86_64::encode(entry, level)
    }
    fn decode(raw: u64, level: Level) -> Entry {
        X86_64::decode(raw, level)
    }
    fn user_end(levels: u8) -> Va {
        X86_64::user_end(levels)
    }
    fn is_accessed(raw: u64, level: Level) -> bool {
        X86_64::is_accessed(raw, level)
    }
    fn unaccessed(raw: u64, level: Level) -> u64 {
        X86_64::unaccessed(raw, level)
    }
}

impl Arch for NoModes {
    const RULES: MmuRules = MmuRules::X86_64;
}

#[test]
fn a_format_without_cache_modes_has_no_devices() {
    let fx = fixture_of::<NoModes>(1, 600, Config::default());
    // SAFETY: refused.
    let made = unsafe { fx.vm.objects().create_device(REGISTERS) };
    assert_eq!(made.map(drop), Err(ObjectError::CacheMode));
    fx.check(&[]);
}

on_both!(faulted, a_fault_maps_the_memory_in_its_cache_mode_and_counts_nothing);

fn faulted<C: Arch>() {
    use CacheMode::*;
    for cache in [WriteBack, WriteThrough, Uncached, WriteCombining] {
        let fx = fixture_of::<C>(2, 4096, no_zeros());
        let object = device(&fx, DeviceMemory { cache, ..REGISTERS });
        let space = fx.with_object(AT, 16 * KIB4, &object);
        assert_eq!(fx.vm.fault(&space, page_at(3), Access::Read), Ok(Fault::Object));
        write(&fx, &space, page_at(4));
        assert_eq!(fx.vm.fault(&space, page_at(4), Access::Write), Ok(Fault::Spurious));
        assert_eq!(fx.vm.fault(&space, page_at(4), Access::Exec), Err(FaultError::Rights));
        for n in [3, 4] {
            assert_eq!(shown(&fx, &space, page_at(n)), Some((FIRST.add(n), 1, cache)));
        }
        assert_eq!(shown(&fx, &space, page_at(5)), None);
        let usage = fx.usage(&space);
        assert_eq!((usage.device_pages, usage.rss_pages, usage.mapped_pages), (2, 0, 16));
        let audit = fx.vm.audit(&[&space]).unwrap();
        assert_eq!((audit.data_frames, audit.object_frames), (0, 0));
        assert_eq!((fx.count(Counter::Mapped), fx.count(Counter::ShmemPages)), (0, 0));
        ends(fx, object, [space]);
    }
}

on_both!(unmapped, what_is_unmapped_or_forgotten_is_nobodys_and_comes_again);

fn unmapped<C: Arch>() {
    let Mapped { fx, object, space } = mapped::<C>();
    let free = fx.check(&[&space]);
    assert_eq!(fx.vm.advise(&space, page_at(2), 4 * KIB4, Advice::DontNeed), Ok(()));
    assert_eq!((fx.usage(&space).device_pages, fx.check(&[&space])), (12, free));
    write(&fx, &space, page_at(3));
    shows_all(&fx, &space, [1, 3, 6]);
    assert_eq!(fx.vm.unmap(&space, page_at(8), KIB4), Ok(()));
    assert_eq!(fx.vm.fault(&space, page_at(8), Access::Read), Err(FaultError::Unmapped));
    assert_eq!(fx.vm.unmap(&space, page_at(9), 7 * KIB4), Ok(()));
    assert_eq!((fx.usage(&space).device_pages, fx.check(&[&space])), (5, free));
    // All of it, with the table that it is in.
    assert_eq!(fx.vm.unmap(&space, AT, 16 * KIB4), Ok(()));
    assert_eq!(fx.usage(&space).device_pages, 0);
    fx.map_object(&space, AT, 16 * KIB4, &object);
    let replaced = fx.vm.map(&space, Placement::Replace(AT), KIB4, RW);
    assert_eq!(replaced, Ok(AT));
    ends_after_clears(fx, object, [space]);
}

/// As [`ends`], where private memory was in use, too.
fn ends_after_clears<C: Arch>(
    fx: Fixture<C>,
    object: Object,
    spaces: impl IntoIterator<Item = Space>,
) {
    fx.vm.objects().discard(object);
    fx.end(spaces);
}

on_both!(protected, protect_keeps_the_cache_mode);

fn protected<C: Arch>() {
    let Mapped { fx, object, space } = mapped::<C>();
    let protect = |from, pages, rights| fx.vm.protect(&space, page_at(from), pages * KIB4, rights);
    for (from, pages) in [(0, 16), (3, 1), (8, 8)] {
        let part = from..from + pages;
        assert_eq!(protect(from, pages, Rights::READ), Ok(()));
        shows_all(&fx, &space, 0..16);
        fx.check(&[&space]);
        assert_eq!(fx.vm.fault(&space, page_at(from), Access::Write), Err(FaultError::Rights));
        assert_eq!(protect(from, pages, Rights::READ_WRITE), Ok(()));
        shows_all(&fx, &space, 0..16);
        assert_eq!(fx.vm.fault(&space, page_at(from), Access::Write), Ok(Fault::Spurious));
        fx.check(&[&space]);
        assert_eq!(protect(from, pages, Rights::NONE), Ok(()));
        assert_eq!(fx.usage(&space).device_pages, 16 - pages);
        fx.check(&[&space]);
        assert_eq!(fx.vm.fault(&space, page_at(from), Access::Read), Err(FaultError::Rights));
        assert_eq!(protect(from, pages, Rights::READ_WRITE), Ok(()));
        part.for_each(|n| write(&fx, &space, page_at(n)));
        shows_all(&fx, &space, 0..16);
        fx.check(&[&space]);
    }
    ends(fx, object, [space]);
}

on_both!(read_only, rights_that_a_device_does_not_give_are_refused_by_name);

fn read_only<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, no_zeros());
    let object = device(&fx, DeviceMemory { writable: false, ..REGISTERS });
    let space = fx.mapped(Va(2 * GIB), 2 * KIB4, RW);
    let before = fx.state(&[&space]);
    let map = |pages: u64, offset, rights| {
        let part = ObjectPart { object: &object, offset };
        let attrs = Attrs::anonymous(rights);
        fx.vm.map_object(&space, Placement::At(AT), pages * KIB4, attrs, part)
    };
    for rights in [Rights::READ_WRITE, Rights::READ_EXEC, Rights::ALL] {
        assert_eq!(map(4, 0, rights), Err(SpaceError::Rights));
    }
    for (pages, offset) in [(17, 0), (1, 16 * KIB4), (16, KIB4), (1, 8), (1, !0xfff)] {
        assert_eq!(map(pages, offset, Rights::READ), Err(SpaceError::Part));
    }
    let part = ObjectPart { object: &object, offset: 0 };
    let private = fx.vm.map_private(&space, Placement::At(AT), KIB4, RW, part);
    assert_eq!(private, Err(SpaceError::Device));
    assert_same(&before, &fx.state(&[&space]), "a mapping was refused");

    assert_eq!(map(16, 0, Rights::READ), Ok(AT));
    assert_eq!(fx.vm.map(&space, Placement::At(page_at(16)), KIB4, RW), Ok(page_at(16)));
    assert_eq!(fx.vm.fault(&space, page_at(1), Access::Read), Ok(Fault::Object));
    let before = fx.state(&[&space]);
    for (from, pages) in [(0, 16), (1, 1), (15, 2)] {
        for rights in [Rights::READ_WRITE, Rights::READ_EXEC, Rights::ALL] {
            let done = fx.vm.protect(&space, page_at(from), pages * KIB4, rights);
            assert_eq!(done, Err(SpaceError::Rights));
        }
    }
    assert_same(&before, &fx.state(&[&space]), "rights were refused");
    assert_eq!(fx.vm.fault(&space, page_at(1), Access::Write), Err(FaultError::Rights));
    assert_eq!(fx.vm.write_forced(&space, page_at(1), &[1]), Err(FaultError::Rights));
    assert_eq!(fx.vm.protect(&space, AT, 16 * KIB4, Rights::NONE), Ok(()));
    ends(fx, object, [space]);
}

on_both!(kernel, the_kernel_reads_writes_and_poisons_no_device);

fn kernel<C: Arch>() {
    let Mapped { fx, object, space } = mapped::<C>();
    assert_eq!(fx.vm.advise(&space, page_at(1), KIB4, Advice::DontNeed), Ok(()));
    let before = fx.state(&[&space]);
    // What is mapped, and what is not.
    for n in [0, 1] {
        let va = page_at(n);
        assert_eq!(fx.vm.copy_out(&space, va, &mut [0; 8]), Err(FaultError::Device));
        assert_eq!(fx.vm.copy_in(&space, va, &[0; 9000]), Err(FaultError::Device));
        assert_eq!(fx.vm.write_forced(&space, va, &[1]), Err(FaultError::Device));
    }
    assert_eq!(fx.vm.poison(&space, page_at(0)), Err(PoisonError::Device));
    assert_eq!(fx.vm.poison(&space, page_at(1)), Err(PoisonError::NotMapped));
    let objects = fx.vm.objects();
    assert_eq!(objects.read(&object, 0, &mut [0; 8]), (0, Err(ObjectError::Device)));
    assert_eq!(objects.write(&object, 0, &[0; 8]), (0, Err(ObjectError::Device)));
    assert_eq!(objects.resize(&object, KIB4), Err(ObjectError::Device));
    assert_eq!(objects.punch(&object, 0, KIB4), Err(ObjectError::Device));
    assert_eq!(objects.sync(&object, 0, u64::MAX), Ok(()));
    assert_eq!(objects.evict(&object, 0, u64::MAX), 0);
    assert_eq!(objects.next_data(&object, KIB4), Some(KIB4));
    assert_eq!(objects.next_hole(&object, KIB4), Some(16 * KIB4));
    assert_eq!((objects.usage(&object).bytes, objects.usage(&object).pages), (16 * KIB4, 0));
    assert_same(&before, &fx.state(&[&space]), "the kernel touched no byte");
    // A copy goes as far as there is other memory.
    assert_eq!(fx.vm.map(&space, Placement::At(Va(AT.0 - KIB4)), KIB4, RW), Ok(Va(AT.0 - KIB4)));
    let copied = fx.vm.copy_in_part(&space, Va(AT.0 - 8), &[7; 16]);
    assert_eq!(copied, (8, Err(FaultError::Device)));
    ends_after_clears(fx, object, [space]);
}

on_both!(forked, a_fork_maps_the_same_memory_and_shares_no_page_of_it);

fn forked<C: Arch>() {
    let Mapped { fx, object, space } = mapped::<C>();
    let child = fx.vm.fork(&space).expect("memory");
    for space in [&space, &child] {
        shows_all(&fx, space, 0..16);
        assert_eq!(fx.vm.fault(space, page_at(2), Access::Write), Ok(Fault::Spurious));
    }
    fx.check(&[&space, &child]);
    fx.vm.exit(space);
    shows_all(&fx, &child, 0..16);
    // The handle goes first here: the mapping keeps the device.
    ends(fx, object, [child]);
}

on_both!(moved, a_remap_shows_the_same_memory_elsewhere);

fn moved<C: Arch>() {
    let Mapped { fx, object, space } = mapped::<C>();
    let to = Va(3 * GIB + 5 * KIB4);
    let moved = fx.vm.remap(&space, page_at(4), 8 * KIB4, 8 * KIB4, Placement::At(to));
    assert_eq!(moved, Ok(to));
    fx.check(&[&space]);
    shows_all(&fx, &space, [0, 3, 12, 15]);
    for n in 0..8 {
        write(&fx, &space, Va(to.0 + n * KIB4));
        let wanted = Some((FIRST.add(4 + n), 1, CacheMode::Uncached));
        assert_eq!(shown(&fx, &space, Va(to.0 + n * KIB4)), wanted);
    }
    // What is longer shows what the device has next, and then no more.
    let longer = fx.vm.remap(&space, to, 8 * KIB4, 20 * KIB4, Placement::At(to));
    assert_eq!(longer, Ok(to));
    write(&fx, &space, Va(to.0 + 11 * KIB4));
    let beyond = Va(to.0 + 12 * KIB4);
    assert_eq!(fx.vm.fault(&space, beyond, Access::Read), Err(FaultError::Beyond));
    let populated = fx.vm.advise_part(&space, to, 20 * KIB4, Advice::Populate { write: true });
    assert_eq!(populated, (12 * KIB4, Err(SpaceError::Beyond)));
    fx.check(&[&space]);
    ends(fx, object, [space]);
}

on_both!(large, leaves_are_as_large_as_address_offset_and_size_allow);

fn large<C: Arch>() {
    let fx = fixture_of::<C>(2, 4096, Config { thp: Thp::Never, ..no_zeros() });
    let cache = CacheMode::WriteCombining;
    let bytes = 2 * GIB + 4 * MIB2 + KIB4;
    let object = device(&fx, DeviceMemory { bytes, cache, ..REGISTERS });
    let space = fx.with_object(Va(4 * GIB), bytes, &object);
    let at = |offset: u64| Va(4 * GIB + offset);
    let is = |offset: u64, level| {
        let wanted = Some((FIRST.add(offset / KIB4), level, cache));
        assert_eq!(shown(&fx, &space, at(offset)), wanted, "at {offset:#x}");
    };
    for (offset, level) in
        [(GIB - 8 * KIB4, 3), (2 * GIB + MIB2 + 7 * KIB4, 2), (2 * GIB + 4 * MIB2, 1)]
    {
        write(&fx, &space, at(offset));
        is(offset, level);
        fx.check(&[&space]);
    }
    assert_eq!(fx.usage(&space).device_pages, (GIB + MIB2 + KIB4) / KIB4);
    // What ends inside a leaf splits it; all that stays is as it was.
    assert_eq!(fx.vm.protect(&space, at(5 * KIB4), KIB4, Rights::READ), Ok(()));
    [0, 4, 5, 6, 511].into_iter().for_each(|n| is(n * KIB4, 1));
    is(MIB2, 2);
    is(GIB - KIB4, 2);
    fx.check(&[&space]);
    assert_eq!(fx.vm.unmap(&space, at(2 * MIB2 - KIB4), 2 * KIB4), Ok(()));
    assert_eq!(shown(&fx, &space, at(2 * MIB2)), None);
    is(2 * MIB2 - 2 * KIB4, 1);
    is(2 * MIB2 + KIB4, 1);
    fx.check(&[&space]);
    // Moved by a distance that is no multiple of 2 MiB, it comes in small leaves.
    let to = Va(16 * GIB + 2 * KIB4);
    let moved = fx.vm.remap(&space, at(3 * MIB2 + KIB4), 2 * MIB2, 2 * MIB2, Placement::At(to));
    assert_eq!(moved, Ok(to));
    write(&fx, &space, Va(to.0 + MIB2));
    let wanted = Some((FIRST.add((4 * MIB2 + KIB4) / KIB4), 1, cache));
    assert_eq!(shown(&fx, &space, Va(to.0 + MIB2)), wanted);
    is(3 * MIB2, 1);
    fx.check(&[&space]);
    // Populated, and no large leaf where the program wants none.
    assert_eq!(fx.vm.advise(&space, at(GIB), GIB, Advice::NoHuge), Ok(()));
    write(&fx, &space, at(GIB));
    is(GIB, 1);
    assert_eq!(fx.vm.advise(&space, at(GIB), GIB, Advice::Collapse), Ok(()));
    is(GIB, 1);
    let part = (at(2 * GIB), 4 * MIB2 + KIB4);
    assert_eq!(fx.populate(&space, part.0, part.1), Ok(()));
    [0, MIB2, 2 * MIB2, 3 * MIB2].into_iter().for_each(|n| is(2 * GIB + n, 2));
    let child = fx.vm.fork(&space).expect("memory");
    assert_eq!(fx.usage(&child).device_pages, fx.usage(&space).device_pages);
    ends(fx, object, [space, child]);
}

#[test]
fn what_finds_no_memory_has_changed_nothing() {
    let fx = fixture(600, no_zeros());
    let space = fx.mapped(Va(GIB * 64), KIB4, RW);
    let mut object = None;
    let memory = DeviceMemory { address: BASE + MIB2, bytes: GIB, ..REGISTERS };
    each_allocation_fails(&fx, &[&space], || {
        // SAFETY: as in `device`.
        let made = unsafe { fx.vm.objects().create_device(memory) };
        made.map(|made| object = Some(made)).map_err(|error| error.to_string())
    });
    let object = object.unwrap();
    let at = |offset: u64| Va(GIB * 200 + offset);
    each_allocation_fails(&fx, &[&space], || {
        let part = ObjectPart { object: &object, offset: 0 };
        let mapped = fx.vm.map_object(&space, Placement::At(at(0)), GIB, RW, part);
        mapped.map(drop).map_err(|error| error.to_string())
    });
    each_allocation_fails(&fx, &[&space], || {
        let done = fx.vm.fault(&space, at(MIB2), Access::Write);
        done.map(drop).map_err(|error| error.to_string())
    });
    assert_eq!(shown(&fx, &space, at(MIB2)), Some((FIRST.add(1024), 2, CacheMode::Uncached)));
    each_allocation_fails(&fx, &[&space], || {
        let done = fx.vm.protect(&space, at(MIB2 + KIB4), KIB4, Rights::READ);
        done.map_err(|error| error.to_string())
    });
    write(&fx, &space, at(3 * MIB2));
    each_allocation_fails(&fx, &[&space], || {
        let done = fx.vm.unmap(&space, at(3 * MIB2 + KIB4), KIB4);
        done.map_err(|error| error.to_string())
    });
    // Small leaves and large ones, which come back as they were.
    (4..7).for_each(|n| write(&fx, &space, at(n * MIB2)));
    assert_eq!(fx.vm.protect(&space, at(4 * MIB2 + 20 * KIB4), KIB4, Rights::READ), Ok(()));
    each_allocation_fails(&fx, &[&space], || {
        let (from, to) = (at(4 * MIB2 + 9 * KIB4), Placement::At(Va(GIB * 300 + KIB4)));
        let moved = fx.vm.remap(&space, from, 2 * MIB2, 2 * MIB2, to);
        moved.map(drop).map_err(|error| error.to_string())
    });
    let mut child = None;
    each_allocation_fails(&fx, &[&space], || {
        let forked = fx.vm.fork(&space).map_err(|error| error.to_string());
        forked.map(|forked| child = Some(forked))
    });
    ends(fx, object, [space, child.unwrap()]);
}
