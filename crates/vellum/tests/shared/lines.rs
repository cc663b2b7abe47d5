//! Which cache lines CPUs have in common when they fault on one object.

use std::collections::BTreeMap;

use vellum_testkit::prelude::*;

const CPUS: usize = 64;

on_both!(one_line, cpus_that_map_a_page_that_is_there_write_no_common_line_but_the_frames);

fn one_line<C: Arch>() {
    let fx = fixture_of::<C>(CPUS, 8192, no_thp());
    let object = fx.vm.objects().create(8 * KIB4).unwrap();
    let spaces: Vec<Space> = (0..CPUS).map(|_| fx.with_object(AT, 8 * KIB4, &object)).collect();
    for access in [Access::Read, Access::Write] {
        let page = Va(AT.0 + KIB4 * (1 + access as u64));
        assert_eq!(fx.vm.objects().write(&object, page.0 - AT.0, &[1]), (1, Ok(())));
        // The tables are there.
        for space in &spaces {
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
    fx.vm.objects().discard(object);
    fx.end(spaces);
}
