//! Which cache lines CPUs have in common when they fault on one object.

use std::collections::BTreeMap;

use vellum_testkit::prelude::*;

const CPUS: usize = 64;

on_both!(one_line, cpus_that_map_a_page_that_is_there_write_no_common_line_but_the_frames);

fn one_line<C: Arch>() {
    let fx = fixture_of::<C>(CPUS, 8192, no_thp());
    let object = fx.vm.objects().create(8 * KIB4).unwrap();
    let spaces: Vec<Space> = (0..CPUS).map(|_| fx.with_object(AT, 8 * KIB4, &object)).collect();
    map_a_page(&fx, &object, &spaces);
    fx.vm.objects().discard(object);
    fx.end(spaces);
}

on_both!(of_a_block, so_do_those_that_map_a_page_of_a_block);

fn of_a_block<C: Arch>() {
    // Around a fault the frames of other pages would be counted.
    let config = Config { object_huge: Thp::Always, thp: Thp::Never, ..no_around() };
    let fx = fixture_of::<C>(CPUS, 8192, config);
    let object = fx.vm.objects().create(MIB2).unwrap();
    // No entry of 2 MiB fits.
    let spaces: Vec<Space> = (0..CPUS).map(|_| fx.with_object(AT, 8 * KIB4, &object)).collect();
    assert_eq!(fx.vm.objects().write(&object, 0, &[1]), (1, Ok(())));
    map_a_page(&fx, &object, &spaces);
    assert_eq!(fx.vm.objects().usage(&object).huge_pages, 1);
    fx.vm.objects().discard(object);
    fx.end(spaces);
}

/// Each CPU maps a page in a space of its own.
fn map_a_page<C: Arch>(fx: &Fixture<C>, object: &Object, spaces: &[Space]) {
    for access in [Access::Read, Access::Write] {
        let page = Va(AT.0 + KIB4 * (1 + access as u64));
        assert_eq!(fx.vm.objects().write(object, page.0 - AT.0, &[1]), (1, Ok(())));
        // The tables are there.
        for space in spaces {
            fx.vm.fault(space, AT, Access::Write).unwrap();
        }
        let mut writers = BTreeMap::new();
        for (cpu, space) in spaces.iter().enumerate() {
            fx.run_on(cpu);
            let lines = lines_written(|| {
                assert_eq!(fx.vm.fault(space, page, access), Ok(Fault::Object));
            });
            lines.into_iter().for_each(|line| *writers.entry(line).or_insert(0) += 1);
        }
        let mut common: Vec<usize> = writers.into_values().filter(|&cpus| cpus > 1).collect();
        assert_eq!(common.pop(), Some(CPUS), "{access:?}");
        assert_eq!(common, [], "lines that several CPUs write, {access:?}");
    }
    fx.check(&spaces.iter().collect::<Vec<_>>());
}
