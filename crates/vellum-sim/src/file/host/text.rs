//! Writing what was found as a machine file.

use std::fmt::Write;

use super::probe::Times;
use super::topology::{CacheShape, Topology};
use super::translation::{BankGuess, Translation};

struct Text(String);

const MEASURED: &str = "measured on this host";
const KERNEL: &str = "the kernel's description of this host in /sys";
const USUAL: &str = "not to be found out from outside; usual for cores of this class";
const FLUSH: &str = "an estimate for bare metal";

impl Text {
    fn section(&mut self, name: &str) {
        let _ = write!(self.0, "\n{name}\n");
    }
    /// `value` as TOML.
    fn constant(&mut self, key: &str, value: &str, basis: &str, source: &str) {
        let _ = writeln!(
            self.0,
            "{key} = {{ value = {value}, basis = \"{basis}\", source = \"{source}\" }}"
        );
    }
    fn guess(&mut self, key: &str, value: &str, source: &str) {
        self.constant(key, value, "guess", source);
    }
    fn measured(&mut self, key: &str, ps: u64) {
        self.constant(key, &time(ps), "before", MEASURED);
    }
    fn cache(&mut self, name: &str, shape: CacheShape, ps: u64, known: bool) {
        let basis = if known { "outside" } else { "guess" };
        self.section(&format!("[{name}]"));
        self.constant("size", &shape.size.to_string(), basis, KERNEL);
        match shape.ways_known {
            true => self.constant("ways", &shape.ways.to_string(), basis, KERNEL),
            false => self.guess("ways", &shape.ways.to_string(), "the kernel does not know"),
        }
        self.measured("latency", ps);
        self.guess("policy", "\"lru\"", "not published");
    }
    fn tlb(&mut self, name: &str, banks: &[BankGuess], source: Option<&str>, latency: &str) {
        self.section(&format!("[tlb.{name}]"));
        self.guess("latency", latency, USUAL);
        self.guess("fracture", "true", "pages of sizes without entries are kept in pieces");
        let (basis, source) = source.map_or(("guess", USUAL), |s| ("outside", s));
        for bank in banks {
            self.section(&format!("[[tlb.{name}.banks]]"));
            let sizes: Vec<_> = bank.sizes.iter().map(|s| format!("\"{s}\"")).collect();
            self.constant("sizes", &format!("[{}]", sizes.join(", ")), basis, source);
            self.constant("entries", &bank.entries.to_string(), basis, source);
            self.constant("ways", &bank.ways.to_string(), basis, source);
        }
    }
}

/// Picoseconds as a TOML string.
fn time(ps: u64) -> String {
    format!("\"{}.{:03} ns\"", ps / 1000, ps % 1000)
}

/// CPU numbers as a TOML string.
fn list(cpus: &[u32]) -> String {
    let cpus: Vec<_> = cpus.iter().map(u32::to_string).collect();
    format!("\"{}\"", cpus.join(","))
}

/// The text of a machine file.
pub(super) fn write(topology: &Topology, translation: &Translation, times: &Times) -> String {
    let mut t = Text(String::from(
        "# This host, as found and measured by the program that wrote this.\n\n",
    ));
    let _ = write!(
        t.0,
        "name = \"host\"\ndescription = \"this host: {}, {} CPUs\"\n",
        topology.model, topology.cpus
    );
    let chain = "measured on this host: a chain of shifts and exclusive ors, six cycles a step";
    t.constant("clock_hz", &times.clock_hz.to_string(), "before", chain);
    t.constant("cpus", &topology.cpus.to_string(), "outside", KERNEL);
    t.constant("cpus_per_llc", &topology.cpus_per_llc.to_string(), "outside", KERNEL);
    t.section("[core]");
    let overlap = "measured on this host: one chase through memory against sixteen at once";
    t.constant("fill_buffers", &times.overlap.to_string(), "before", overlap);
    t.guess("walkers", "2", USUAL);
    t.guess("window", "224", USUAL);
    t.guess("instruction", "0.33", "three instructions a cycle when nothing misses");
    t.cache("l1i", topology.l1i, times.l1, true);
    t.cache("l1d", topology.l1d, times.l1, true);
    t.cache("l2", topology.l2, times.l2, true);
    t.cache("llc", topology.llc.unwrap_or(topology.l2), times.llc, topology.llc.is_some());
    t.guess("inclusion", "\"victim\"", "what recent server parts do");
    t.tlb("l1i", &translation.l1i, translation.source, "0");
    t.tlb("l1d", &translation.l1d, translation.source, "0");
    t.tlb("l2", &translation.l2, translation.source, "8");
    t.section("[tlb.walk]");
    for (level, entries) in [(2, "32"), (3, "8"), (4, "4")] {
        t.section(&format!("[tlb.walk.level{level}]"));
        t.guess("entries", entries, USUAL);
        t.guess("ways", "4", USUAL);
    }
    for node in &topology.nodes {
        t.section("[[nodes]]");
        t.constant("memory", &node.memory.to_string(), "outside", KERNEL);
        t.constant("cpus", &list(&node.cpus), "outside", KERNEL);
        let all = times
            .bandwidth
            .saturating_mul(node.cpus.len().clamp(1, 8) as u64)
            .clamp(1_000_000, 400_000_000_000);
        t.guess(
            "bandwidth",
            &all.to_string(),
            "what one core reads, times its CPUs up to 8, at most 400 GB/s",
        );
    }
    t.section("[memory]");
    let row = |distances: &Vec<u64>| {
        let row: Vec<_> = distances.iter().map(|d| time(times.memory * d / 10)).collect();
        format!("[{}]", row.join(", "))
    };
    let rows: Vec<_> = topology.nodes.iter().map(|n| row(&n.distance)).collect();
    let (basis, source) = match topology.nodes.len() {
        1 => ("before", MEASURED),
        _ => ("guess", "measured from one CPU, times the firmware's table of distances"),
    };
    t.constant("latency", &format!("[{}]", rows.join(", ")), basis, source);
    mmu(&mut t, translation);
    costs(&mut t, times);
    t.0
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

fn costs(t: &mut Text, times: &Times) {
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
    t.measured("clear_page_line", times.clear_page);
    t.measured("clear_next_line", times.clear_page);
    t.measured("clear_extent_line", times.clear_extent);
    t.measured("clear_elided_line", times.clear_extent);
    t.guess(
        "elision_threshold",
        "0",
        "not measured apart: what the long run does is in clear_extent_line",
    );
    t.measured("copy_line", times.copy);
    t.section("[costs.work]");
    let torvalds = "L. Torvalds, The cost of page fault handling (2014): 715 cycles to enter, 330 \
                    to return, on Haswell";
    t.constant("fault", "1050", "outside", torvalds);
    let hawkeye = "HawkEye (ASPLOS 2019), table 1: a huge fault that need not zero, on Haswell; \
                   quoted from memory";
    t.guess("large", "\"13 us\"", hawkeye);
    t.guess("call", "250", "SYSCALL and SYSRET with saving of registers");
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
mod tests {
    use super::super::topology::NodeShape;
    use super::super::translation;
    use super::*;
    use crate::file::Machine;

    #[test]
    fn what_is_written_is_a_valid_machine_with_two_nodes_or_no_third_level() {
        let cache = |size, ways| CacheShape { size, ways, ways_known: true };
        let node = |cpus, distance| NodeShape { memory: 1 << 30, cpus, distance };
        let mut topology = Topology {
            cpus: 3,
            cpus_per_llc: 2,
            l1i: cache(32 << 10, 8),
            l1d: cache(48 << 10, 12),
            l2: cache(1 << 20, 16),
            llc: Some(cache(30 << 20, 24)),
            nodes: vec![node(vec![0, 1, 2], vec![10, 21]), node(vec![], vec![21, 10])],
            model: "a test".into(),
        };
        let times = Times {
            clock_hz: 3_000_000_000,
            l1: 1333,
            l2: 4000,
            llc: 15_000,
            memory: 100_000,
            overlap: 12,
            clear_page: 2000,
            clear_extent: 1500,
            copy: 3000,
            bandwidth: 10_000_000_000,
        };
        let machine =
            Machine::parse("host", &write(&topology, &translation::read(), &times)).expect("valid");
        assert_eq!(machine.numa().latency[0][1].cycles(), 630);
        assert_eq!(machine.hierarchy(1).llc.sets, 20480);
        assert_eq!(
            machine.hierarchy(1).latency[0].cycles(),
            4,
            "1.333 ns at 3 GHz, to the nearest 1/256 cycle"
        );
        topology.llc = None;
        let machine =
            Machine::parse("host", &write(&topology, &translation::read(), &times)).expect("valid");
        assert_eq!(machine.hierarchy(1).llc.sets, machine.hierarchy(1).l2.sets);
    }
}
