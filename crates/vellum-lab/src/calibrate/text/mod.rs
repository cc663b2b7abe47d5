//! Writing what was found as a machine file.

mod caches;
mod constants;

use std::fmt::Write;

use vellum_host::calibrate::translation::Translation;
use vellum_host::calibrate::{Computer, Figure, KernelTimes};

use super::values::Values;
use caches::{first_level, last_level, prefetch};
use constants::{FLUSH, KERNEL, LEFT, Text, USUAL, list, time};

/// The text of a machine file.
pub(super) fn write(computer: &Computer, values: &Values) -> String {
    let (topology, places) = (&computer.topology, &computer.places);
    let mut t = Text(String::from(
        "# This host, as found and measured by the program that wrote this.\n\n",
    ));
    let _ = write!(
        t.0,
        "name = \"host\"\ndescription = \"this host: {}, {} CPUs\"\n",
        topology.model, topology.cpus
    );
    let chain = "measured on this host: a chain of exclusive ors of registers, a cycle each";
    t.before("clock_hz", &computer.clock_hz.to_string(), chain);
    t.constant("cpus", &topology.cpus.to_string(), "outside", KERNEL);
    t.constant("cpus_per_llc", &topology.cpus_per_llc.to_string(), "outside", KERNEL);
    t.section("[core]");
    let overlap = "measured on this host: one load from memory against many at once";
    let together = (places.memory.ns / places.memory_of_many.ns).round().clamp(1.0, 64.0);
    t.before("fill_buffers", &together.to_string(), overlap);
    match values.walkers {
        Some(walkers) => {
            let many = "measured on this host: as many as explain 32 chases at once best";
            t.before("walkers", &walkers.to_string(), many);
        }
        None => t.guess("walkers", "2", USUAL),
    }
    match places.window {
        Some(n) => {
            let reach = "measured on this host: loads from memory with 28 instructions between";
            t.before("window", &n.to_string(), reach);
        }
        None => t.guess("window", "224", USUAL),
    }
    if let Some(n) = places.store_buffer {
        let behind = "measured on this host: stores of which one in 16 goes to memory";
        t.before("store_buffer", &n.to_string(), behind);
    }
    match computer.instruction {
        Some(mean) => t.measured("instruction", mean),
        None => t.guess("instruction", "0.33", "three instructions a cycle when nothing misses"),
    }
    if let Some(branch) = computer.mispredict {
        // From the byte's arrival on: its own time is that of a load.
        t.measured("mispredict", branch.beyond(places.l1));
    }
    prefetch(&mut t, computer, values);
    t.cache("l1i", topology.l1i, places.l1, true);
    t.cache("l1d", topology.l1d, places.l1, true);
    first_level(&mut t, computer);
    t.cache("l2", topology.l2, places.l2, true);
    if values.nested == Some("4K") {
        let anywhere =
            "measured on this host: mmu.nested.page; such pages lie anywhere in its memory";
        t.before("index", "\"pages\"", anywhere);
    }
    last_level(&mut t, computer, values);
    translation(&mut t, computer);
    t.section("[tlb.walk]");
    t.before("start", &time(values.walk_start), LEFT);
    for (level, entries) in [(2, "32"), (3, "8"), (4, "4")] {
        t.section(&format!("[tlb.walk.level{level}]"));
        t.guess("entries", entries, USUAL);
        t.guess("ways", "4", USUAL);
    }
    nodes(&mut t, computer);
    mmu(&mut t, &computer.translation);
    nested(&mut t, values);
    costs(&mut t, computer, values);
    work(&mut t, &computer.kernel, values);
    t.0
}

/// Sizes by CPUID; where it does not tell, the steps of chases.
fn translation(t: &mut Text, computer: &Computer) {
    let (found, [first, second]) = (&computer.translation, computer.places.tlb);
    t.tlb("l1i", &found.l1i, found.source);
    if found.source.is_some() {
        t.tlb("l1d", &found.l1d, found.source);
        return t.tlb("l2", &found.l2, found.source);
    }
    let steps = "measured on this host: where chases over 4 KiB pages become slower";
    for (name, banks, entries) in [("l1d", &found.l1d, first), ("l2", &found.l2, second)] {
        t.tlb(name, &[], None);
        for bank in banks {
            let is_small = bank.sizes.contains(&"4K");
            t.section(&format!("[[tlb.{name}.banks]]"));
            let sizes: Vec<_> = bank.sizes.iter().map(|s| format!("\"{s}\"")).collect();
            t.guess("sizes", &format!("[{}]", sizes.join(", ")), USUAL);
            match is_small {
                true => t.before("entries", &entries.to_string(), steps),
                false => t.guess("entries", &bank.entries.to_string(), USUAL),
            }
            let ways = if is_small { ways(entries, bank.ways) } else { bank.ways };
            t.guess("ways", &ways.to_string(), USUAL);
        }
    }
}

/// Ways that divide the entries, the usual number if it does.
fn ways(entries: u32, usual: u32) -> u32 {
    [usual, 8, 6, 4, 1].into_iter().find(|w| entries.is_multiple_of(*w)).unwrap_or(1)
}

fn nodes(t: &mut Text, computer: &Computer) {
    let nodes = &computer.topology.nodes;
    let rate = |line: Figure| 64.0 / line.ns * 1e9;
    let (reads, clears) = (rate(computer.lines.read), rate(computer.lines.around));
    for node in nodes {
        t.section("[[nodes]]");
        t.constant("memory", &node.memory.to_string(), "outside", KERNEL);
        t.constant("cpus", &list(&node.cpus), "outside", KERNEL);
        let all = (reads * node.cpus.len().clamp(1, 8) as f64).max(clears).clamp(1e6, 400e9);
        let source = "what one core reads, times its CPUs up to 8, and no less than one clears \
                      around the caches; at most 400 GB/s";
        t.guess("bandwidth", &(all as u64).to_string(), source);
    }
    t.section("[memory]");
    let Figure { ns: memory, spread } = computer.places.memory;
    let row = |distances: &Vec<u64>| {
        let row: Vec<_> = distances.iter().map(|&d| time(memory * d as f64 / 10.0)).collect();
        format!("[{}]", row.join(", "))
    };
    let rows: Vec<_> = nodes.iter().map(|n| row(&n.distance)).collect();
    let table = format!("[{}]", rows.join(", "));
    let distances = "measured from one CPU, times the firmware's table of distances";
    match nodes.len() {
        1 => t.spread("latency", &table, "measured on this host", spread),
        _ => t.guess("latency", &table, distances),
    }
}

fn mmu(t: &mut Text, translation: &Translation) {
    let arm = cfg!(target_arch = "aarch64");
    let manual = "the manual of this architecture";
    t.section("[mmu]");
    let codec = if arm { "\"aarch64\"" } else { "\"x86_64\"" };
    t.constant("codec", codec, "outside", manual);
    t.guess("levels", "4", "what kernels use below 128 TiB");
    t.constant(
        "max_leaf",
        if translation.gigantic { "\"1G\"" } else { "\"2M\"" },
        "outside",
        "CPUID, or the manual",
    );
    t.constant("contexts", &translation.contexts.to_string(), "outside", "CPUID, or the manual");
    t.constant("hardware_ad", "true", "outside", manual);
    t.constant("caches_not_present", "false", "outside", manual);
    t.constant("fault_invalidates", if arm { "false" } else { "true" }, "outside", manual);
    t.constant("break_before_make", if arm { "true" } else { "false" }, "outside", manual);
    let reach = if arm { "\"broadcast\"" } else { "\"interrupt\"" };
    t.constant("invalidation", reach, "outside", "what kernels use on this architecture");
}

/// The hypervisor's tables, where walks show that there are some.
fn nested(t: &mut Text, values: &Values) {
    let Some(page) = values.nested else { return };
    t.section("[mmu.nested]");
    let chosen = "measured on this host: the size that explains chases through page tables best";
    t.before("page", &format!("\"{page}\""), chosen);
    t.guess("levels", "4", "what hypervisors use below 128 TiB");
    t.guess("entries", "64", USUAL);
    t.guess("ways", "8", USUAL);
    for (level, entries) in [(2, "32"), (3, "8"), (4, "4")] {
        t.section(&format!("[mmu.nested.walk.level{level}]"));
        t.guess("entries", entries, USUAL);
        t.guess("ways", "4", USUAL);
    }
}

fn costs(t: &mut Text, computer: &Computer, values: &Values) {
    let (lines, kernel) = (&computer.lines, &computer.kernel);
    t.section("[costs]");
    let interrupt = "about 1 us and 0.2 us for each target on bare metal, split by us";
    let us = [("send", "0.2"), ("deliver", "0.6"), ("handle", "0.3"), ("ack", "0.1")];
    for (part, time) in us {
        t.guess(&format!("interrupt_{part}"), &format!("\"{time} us\""), interrupt);
    }
    t.guess("broadcast_base", "\"0.5 us\"", FLUSH);
    t.guess("broadcast_per_cpu", "\"0.03 us\"", FLUSH);
    t.guess("flush_page", "\"0.1 us\"", FLUSH);
    t.guess("flush_context", "\"0.4 us\"", FLUSH);
    t.guess("flush_full", "\"0.5 us\"", FLUSH);
    t.guess("root_load", "200", FLUSH);
    t.guess("sched_point", "35", "20 to 50 cycles when nothing is due");
    t.guess("switch", "\"1.5 us\"", "the usual one to two microseconds");
    t.measured("clear_page_line", lines.downwards);
    t.measured("clear_next_line", lines.upwards);
    t.measured("clear_extent_line", lines.run);
    t.measured("clear_elided_line", lines.around);
    let none = "not measured apart: what a long run does is in clear_extent_line";
    t.guess("elision_threshold", "0", none);
    t.measured("clear_cached_line", lines.cached);
    let lines = 64.0;
    let copied = Figure { ns: kernel.copy.ns / lines, ..kernel.copy };
    t.left("copy_line", values.copy_line, copied);
    t.left("charge_page", values.charge_page, kernel.touch);
    t.left("uncharge_page", values.uncharge_page, kernel.unmap);
    if let (Some(value), Some(file)) = (values.map_file, &kernel.file) {
        t.left("map_file", value, file.touch);
    }
    if let (Some(value), Some(file)) = (values.unmap_file, &kernel.file) {
        t.left("unmap_file", value, file.unmap);
    }
    if let (Some(price), Some(calls)) = (&values.calls, &kernel.calls) {
        t.left("file_call", price.call, calls.few);
        t.left("file_line", price.line, calls.line);
        t.left("write_call", price.write, calls.over);
        t.left("grow_call", price.grow, calls.grow);
        t.left("add_file", price.add, calls.add);
        t.left("drop_file", price.drop, calls.drop);
    }
    if let (Some(value), Some(huge)) = (values.uncharge_large, &kernel.huge) {
        t.left("uncharge_large", value, huge.unmap);
    }
}

fn work(t: &mut Text, kernel: &KernelTimes, values: &Values) {
    t.section("[costs.work]");
    t.left("fault", values.fault, kernel.zero_read);
    match (values.large, &kernel.huge) {
        (Some(ns), Some(huge)) => t.left("large", ns, huge.touch),
        _ => {
            let hawkeye = "HawkEye (ASPLOS 2019), table 1: a huge fault that need not zero, on \
                           Haswell; quoted from memory";
            t.guess("large", "\"13 us\"", hawkeye);
        }
    }
    t.left("call", values.call, kernel.map);
    let count = "our own count of instructions and cache hits on this path, not measured";
    let work = [
        ("descend", "12"),
        ("scan", "2"),
        ("entry", "20"),
        ("region", "40"),
        ("magazine", "25"),
        ("refill", "600"),
        ("block", "300"),
        ("table", "120"),
        ("contended", "200"),
    ];
    for (key, cycles) in work {
        t.guess(key, cycles, count);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use vellum_host::calibrate::topology::{CacheShape, NodeShape, Topology};
    use vellum_host::calibrate::{
        CallTimes, FileTimes, FirstTimes, HugeTimes, LineTimes, Paced, PlaceTimes, TableTimes,
        translation,
    };
    use vellum_sim::cache::{Index, Policy};
    use vellum_sim::memory::Ticks;

    use super::*;
    use crate::calibrate::machine;

    /// A computer with round figures.
    pub fn computer() -> Computer {
        let figure = |ns| Figure { ns, spread: 0.01 };
        let cache = |size, ways| CacheShape { size, ways, ways_known: true };
        let node = |cpus, distance| NodeShape { memory: 1 << 30, cpus, distance };
        let line = figure(2.0);
        Computer {
            topology: Topology {
                cpus: 3,
                cpus_per_llc: 2,
                l1i: cache(32 << 10, 8),
                l1d: cache(48 << 10, 12),
                l2: cache(1 << 20, 16),
                llc: Some(cache(30 << 20, 24)),
                nodes: vec![node(vec![0, 1, 2], vec![10, 21]), node(vec![], vec![21, 10])],
                model: "a test".into(),
            },
            translation: Translation { source: None, ..translation::read() },
            clock_hz: 3_000_000_000,
            instruction: Some(figure(0.1)),
            mispredict: Some(figure(6.0)),
            places: PlaceTimes {
                l1: figure(1.333),
                first: FirstTimes {
                    one_set: figure(3.0),
                    one_set_stores: figure(8.0),
                    many_sets: figure(0.8),
                    aliases: Some(figure(5.0)),
                },
                l2: figure(4.0),
                llc: figure(15.0),
                memory: figure(100.0),
                memory_of_many: figure(8.0),
                window: None,
                store_buffer: None,
                llc_share: 20_000_000,
                kept: None,
                streams: None,
                one_set: None,
                tlb: [96, 2048],
                chases: vec![],
            },
            lines: LineTimes {
                upwards: line,
                downwards: line,
                run: line,
                around: line,
                cached: line,
                copied: line,
                read: line,
                read_cached: line,
                brisk: Paced { cold: line, hot: line },
                slow: Paced { cold: line, hot: line },
            },
            tables: TableTimes { in_a_row: figure(100.0), shuffled: figure(100.0) },
            kernel: KernelTimes {
                map: figure(1000.0),
                touch: figure(1000.0),
                zero_read: figure(500.0),
                copy: figure(2000.0),
                unmap: figure(150.0),
                file: Some(FileTimes { touch: figure(180.0), unmap: figure(130.0) }),
                calls: Some(CallTimes {
                    few: figure(400.0),
                    line: figure(3.0),
                    over: figure(600.0),
                    grow: figure(6000.0),
                    add: figure(1200.0),
                    drop: figure(600.0),
                }),
                huge: Some(HugeTimes {
                    touch: figure(100_000.0),
                    unmap: figure(400.0),
                    cold: None,
                }),
            },
            is_guest: Some(true),
            load: None,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn a_last_level_that_keeps_what_is_used_again_goes_by_ages_if_they_have_room() {
        let policy = |kept, ways| {
            let mut computer = computer();
            computer.places.kept = kept;
            computer.topology.llc.as_mut().expect("one").ways = ways;
            machine(&write(&computer, &Values::default())).expect("valid").hierarchy(1).llc.policy
        };
        assert_eq!([policy(Some(0.6), 16), policy(Some(0.6), 21)], [Policy::Rrip; 2]);
        let others = [policy(Some(0.6), 24), policy(Some(0.4), 16), policy(None, 16)];
        assert_eq!(others, [Policy::Lru; 3]);
    }

    #[test]
    fn lines_of_one_set_say_how_the_last_level_is_indexed_unless_they_may_lie_anywhere() {
        let index = |one_set: Option<f64>, nested| {
            let mut computer = computer();
            computer.places.one_set = one_set.map(|ns| Figure { ns, spread: 0.01 });
            let text = write(&computer, &Values { nested, ..Values::default() });
            let found = machine(&text).expect("valid").hierarchy(1).llc.index;
            let llc = text.split("[llc]").nth(1).expect("one");
            let line = llc.lines().find(|l| l.starts_with("index")).expect("one");
            (found, line.contains("before"))
        };
        // 15 ns from the last level, 100 from memory.
        assert_eq!(index(Some(90.0), None), (Index::Modulo, true));
        assert_eq!(index(Some(20.0), Some("2M")), (Index::Hash, true));
        assert_eq!(index(Some(90.0), Some("4K")), (Index::Hash, false));
        assert_eq!(index(None, None), (Index::Hash, false));
    }

    #[test]
    fn as_many_streams_are_followed_as_were_found_and_16_where_none_were_looked_for() {
        let streams = |found| {
            let mut computer = computer();
            computer.places.streams = found;
            let values = Values { depth: 8, ..Values::default() };
            let machine = machine(&write(&computer, &values)).expect("valid");
            machine.prefetcher().expect("one").streams
        };
        assert_eq!([Some(8), Some(256), None].map(streams), [8, 256, 16]);
    }

    #[test]
    fn what_is_written_is_a_valid_machine_with_two_nodes_or_no_third_level() {
        let mut computer = computer();
        let found = machine(&write(&computer, &Values::default())).expect("valid");
        assert_eq!(found.numa().latency[0][1].cycles(), 630);
        let llc = found.hierarchy(1).llc;
        assert!(llc.sets * u64::from(llc.ways) * 64 <= 20_000_000, "the share of one program");
        let nearest = "1.333 ns at 3 GHz, to the nearest 1/256 cycle";
        assert_eq!(found.hierarchy(1).latency[0].cycles(), 4, "{nearest}");
        assert_eq!(found.overlap().fill_buffers, 13);
        assert_eq!(*found.tlb.l2.banks[0].entries, 2048);
        for page in ["4K", "2M", "1G"] {
            let guest = Values { nested: Some(page), depth: 8, ..Values::default() };
            let found = machine(&write(&computer, &guest)).expect("valid");
            let is_anywhere = found.hierarchy(1).l2.index == Index::Pages;
            assert_eq!(is_anywhere, page == "4K", "in a guest on pages of {page}");
        }
        computer.lines.around = Figure { ns: 0.25, spread: 0.0 };
        let found = machine(&write(&computer, &Values::default())).expect("valid");
        assert!(found.nodes[0].bandwidth.0 >= 255e9 as u64, "one core alone clears as much");
        computer.topology.llc = None;
        let found = machine(&write(&computer, &Values::default())).expect("valid");
        assert_eq!(found.hierarchy(1).llc.sets, found.hierarchy(1).l2.sets);
    }

    #[test]
    fn a_core_has_the_store_buffer_that_was_measured_and_none_where_none_was() {
        let places = |measured| {
            let mut computer = computer();
            computer.places.store_buffer = measured;
            let written = write(&computer, &Values::default());
            machine(&written).expect("valid").overlap().store_buffer
        };
        assert_eq!([Some(66), Some(256), None].map(places), [66, 256, 0]);
    }

    #[test]
    fn a_prefetcher_crosses_pages_where_no_page_begins_with_a_wait() {
        let figure = |ns| Figure { ns, spread: 0.01 };
        let crosses = |cold| {
            let mut computer = computer();
            computer.lines.slow = Paced { cold: figure(cold), hot: figure(9.0) };
            let values = Values { depth: 8, ..Values::default() };
            let machine = machine(&write(&computer, &values)).expect("valid");
            machine.prefetcher().expect("it fetches ahead").crosses_pages
        };
        // A wait of 100 ns for each page is 1.6 ns for each of its lines.
        assert_eq!([8.9, 9.3, 10.6].map(crosses), [true, true, false]);
    }

    #[test]
    fn a_prefetcher_watches_walks_where_tables_in_a_row_cost_little() {
        let figure = |ns| Figure { ns, spread: 0.01 };
        let watches = |in_a_row| {
            let mut computer = computer();
            computer.tables = TableTimes { in_a_row: figure(in_a_row), shuffled: figure(130.0) };
            let values = Values { depth: 8, ..Values::default() };
            let machine = machine(&write(&computer, &values)).expect("valid");
            machine.prefetcher().expect("it fetches ahead").walks
        };
        assert_eq!([15.0, 120.0].map(watches), [true, false]);
    }

    #[test]
    fn what_chases_show_of_the_first_level_is_named_and_nothing_else() {
        let figure = |ns| Figure { ns, spread: 0.01 };
        let first = |change: &dyn Fn(&mut Computer)| {
            let mut computer = computer();
            change(&mut computer);
            machine(&write(&computer, &Values::default())).expect("valid").first_level()
        };
        let found = first(&|_| ());
        assert_eq!((found.refill.map(Ticks::cycles), found.predicts_ways), (Some(9), true));
        assert_eq!(found.refill_dirty.map(Ticks::cycles), Some(24));
        let stores = first(&|c| c.places.first.one_set_stores = figure(2.0));
        assert_eq!(stores.refill_dirty, None, "a store takes no longer than a load");
        let alias = |aliases| first(&|c| c.places.first.aliases = aliases);
        assert!(!alias(Some(figure(1.4))).predicts_ways, "as fast by any address");
        assert!(!alias(None).predicts_ways, "not measured");
        assert!(!first(&|c| c.topology.l1d.ways = 6).predicts_ways, "ways of two pages");
    }
}
