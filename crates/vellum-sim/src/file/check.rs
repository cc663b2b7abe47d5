//! Refusing machines that cannot be.

use super::shapes::LINE;
use super::spec::{CacheSpec, Codec, CostSpec, Machine, TlbSpec, WalkLevel};
use crate::cache::{Geometry, GeometryError, MAX_LINE, MAX_STREAMS};
use crate::memory::Ticks;
use crate::tlb::{GLOBAL_CONTEXT, MAX_ENTRIES, PageSize};

/// Most CPUs of a machine: what the library's CPU sets hold.
const MAX_CPUS: u32 = 256;
/// Most memory nodes of a machine, for the same reason.
const MAX_NODES: usize = 16;
/// Node sizes are multiples of this, so that no huge page straddles two nodes.
const NODE_GRAIN: u64 = 2 << 20;

/// Most memory of a node: what line addresses reach.
const MAX_NODE: u64 = MAX_LINE * LINE / MAX_NODES as u64;
/// Longest time a constant may say, in cycles: sums of costs then stay far from the end of the
/// clock.
const MAX_CYCLES: u64 = 10_000_000_000;
/// Most lines all caches together may hold: their tags take 4 bytes each in the simulator.
const MAX_LINES: u64 = 1 << 26;

/// Key, what is wrong, how to mend it.
pub(super) type Wrong = (String, String, String);

fn wrong<T>(
    key: impl Into<String>,
    wrong: impl Into<String>,
    mend: impl Into<String>,
) -> Result<T, Wrong> {
    Err((key.into(), wrong.into(), mend.into()))
}

impl Machine {
    /// Checks what types alone do not. A machine that came out of this module passes.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.name.contains(char::is_control) {
            let is = format!("{:?} has control characters, which a terminal obeys", self.name);
            return wrong("name", is, "use letters, digits and signs");
        }
        for row in self.constants() {
            if row.source.trim().is_empty() {
                return wrong(
                    row.key,
                    "source is empty",
                    "say where the value was read, or how it was estimated",
                );
            }
        }
        self.check_processor()?;
        self.check_times()?;
        self.check_disk()?;
        self.check_nodes()?;
        self.check_nested()?;
        self.check_caches()?;
        self.check_prefetch()?;
        self.check_tlbs()?;
        self.check_mmu()
    }

    fn check_processor(&self) -> Result<(), Wrong> {
        if !(1_000_000..=100_000_000_000).contains(&self.clock_hz.value) {
            return wrong(
                "clock_hz",
                format!("{} Hz", self.clock_hz.value),
                "give hertz, such as 2_400_000_000",
            );
        }
        if !(1..=MAX_CPUS).contains(&self.cpus.value) {
            return wrong(
                "cpus",
                format!("{} CPUs", self.cpus.value),
                format!("use 1 to {MAX_CPUS}"),
            );
        }
        if !(1..=self.cpus.value).contains(&self.cpus_per_llc.value) {
            let mend = format!("use 1 to {}, the number of CPUs", self.cpus.value);
            return wrong(
                "cpus_per_llc",
                format!("{} CPUs share a last-level cache", self.cpus_per_llc.value),
                mend,
            );
        }
        let core = &self.core;
        for (key, value, max) in
            [("core.fill_buffers", &core.fill_buffers, 64), ("core.walkers", &core.walkers, 8)]
        {
            if !(1..=max).contains(&value.value) {
                return wrong(key, value.value.to_string(), format!("use 1 to {max}"));
            }
        }
        if let Some(n) = &core.store_buffer
            && !(1..=256).contains(&n.value)
        {
            let mend = "use 1 to 256, or leave it out";
            return wrong("core.store_buffer", format!("{} stores", n.value), mend);
        }
        if core.window.value == 0 {
            return wrong("core.window", "0 instructions", "use 1 for a core that runs in order");
        }
        if self.ticks(&core.instruction) == Ticks::ZERO {
            return wrong(
                "core.instruction",
                "an instruction takes no time",
                "use at least 0.01 cycles",
            );
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), Wrong> {
        let costs = self.costs();
        let CostSpec { file_line, write_call, grow_call, .. } = &self.costs;
        let with = [("file_line", file_line), ("write_call", write_call), ("grow_call", grow_call)];
        for (key, there) in with.map(|(key, cost)| (key, cost.is_some())) {
            if there && costs.file_call.is_none() {
                let mend = "name both, or neither";
                return wrong(format!("costs.{key}"), "named without costs.file_call", mend);
            }
        }
        let fixed = [
            costs.interrupt_send,
            costs.interrupt_deliver,
            costs.interrupt_handle,
            costs.interrupt_ack,
            costs.broadcast_base,
            costs.broadcast_per_cpu,
            costs.flush_page,
            costs.flush_context,
            costs.flush_full,
            costs.root_load,
            costs.sched_point,
            costs.switch,
            costs.clear_page_line,
            costs.clear_next_line,
            costs.clear_extent_line,
            costs.clear_elided_line,
            costs.clear_cached_line.unwrap_or(Ticks::ZERO),
            costs.copy_line,
            costs.charge_page,
            costs.uncharge_page,
            costs.uncharge_large,
            costs.map_file,
            costs.unmap_file,
            costs.file_call.unwrap_or(Ticks::ZERO),
            costs.file_line.unwrap_or(Ticks::ZERO),
            costs.write_call,
            costs.grow_call,
            costs.add_file,
            costs.drop_file,
        ];
        let tlb = [&self.tlb.l1i, &self.tlb.l1d, &self.tlb.l2].map(|t| self.ticks(&t.latency));
        let others = [
            ("costs", fixed.into_iter().chain(costs.work).max()),
            ("memory.latency", self.memory.latency.iter().flatten().map(|d| self.ticks(d)).max()),
            ("tlb", tlb.into_iter().max()),
            ("l1i.latency", Some(self.ticks(&self.l1i.latency))),
            ("l1d.latency", Some(self.ticks(&self.l1d.latency))),
            ("l2.latency", Some(self.ticks(&self.l2.latency))),
            ("llc.latency", Some(self.ticks(&self.llc.latency))),
            ("core.instruction", Some(self.ticks(&self.core.instruction))),
            ("core.load", Some(self.overlap().load)),
            ("core.mispredict", Some(self.overlap().mispredict)),
            ("llc.line", Some(self.overlap().last_level_line)),
            ("tlb.walk.start", self.tlb.walk.start.as_ref().map(|d| self.ticks(d))),
        ];
        match others
            .into_iter()
            .find(|(_, longest)| longest.is_some_and(|t| t.cycles() > MAX_CYCLES))
        {
            Some((key, _)) => {
                wrong(key, "a time of seconds", format!("give at most {MAX_CYCLES} cycles"))
            }
            None => Ok(()),
        }
    }

    fn check_disk(&self) -> Result<(), Wrong> {
        let (Some(disk), Some(times)) = (&self.disk, self.disk_times()) else { return Ok(()) };
        if !(1..=65_536).contains(&disk.requests.value) {
            let is = format!("{} requests", disk.requests.value);
            return wrong("disk.requests", is, "use 1 to 65536");
        }
        for (key, bandwidth) in [
            ("disk.read_bandwidth", &disk.read_bandwidth),
            ("disk.write_bandwidth", &disk.write_bandwidth),
        ] {
            if bandwidth.0 < 1_000_000 || bandwidth.0 > 1_000_000_000_000 {
                let mend = "give bytes a second, such as \"3.2 GB/s\"";
                return wrong(key, format!("{} B/s", bandwidth.0), mend);
            }
        }
        let longest = times.read_latency.max(times.write_latency).max(times.cpu);
        if longest.cycles() > MAX_CYCLES {
            return wrong("disk", "a time of seconds", format!("give at most {MAX_CYCLES} cycles"));
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), Wrong> {
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            let mend = format!("give 1 to {MAX_NODES} [[nodes]] tables");
            return wrong("nodes", format!("{} memory nodes", self.nodes.len()), mend);
        }
        let mut owner = vec![None; self.cpus.value as usize];
        for (n, node) in self.nodes.iter().enumerate() {
            if node.memory.0 == 0 || !node.memory.0.is_multiple_of(NODE_GRAIN) {
                let mend = "each node needs memory in multiples of 2 MiB";
                return wrong(
                    format!("nodes.{n}.memory"),
                    format!("{} bytes", node.memory.0),
                    mend,
                );
            }
            if node.memory.0 > MAX_NODE {
                let mend = format!("use at most {} TiB", MAX_NODE >> 40);
                return wrong(
                    format!("nodes.{n}.memory"),
                    format!("{} bytes", node.memory.0),
                    mend,
                );
            }
            let fastest = LINE * Ticks::PER_CYCLE * self.clock_hz.value;
            if node.bandwidth.0 < 1_000_000 || node.bandwidth.0 > fastest {
                let mend = "give bytes a second, such as \"204.8 GB/s\"";
                return wrong(
                    format!("nodes.{n}.bandwidth"),
                    format!("{} B/s", node.bandwidth.0),
                    mend,
                );
            }
            for &cpu in &node.cpus.0 {
                let key = format!("nodes.{n}.cpus");
                match owner.get_mut(cpu as usize) {
                    None => {
                        let mend = format!("CPUs are numbered 0 to {}", self.cpus.value - 1);
                        return wrong(key, format!("CPU {cpu} does not exist"), mend);
                    }
                    Some(Some(other)) => {
                        return wrong(
                            key,
                            format!("CPU {cpu} is in node {other} too"),
                            "name each CPU once",
                        );
                    }
                    Some(slot) => *slot = Some(n),
                }
            }
        }
        if let Some(cpu) = owner.iter().position(Option::is_none) {
            return wrong(
                "nodes",
                format!("CPU {cpu} is in no node"),
                "add it to the cpus of the node it is nearest to",
            );
        }
        let rows = &self.memory.latency.value;
        let count = self.nodes.len();
        if rows.len() != count || rows.iter().any(|r| r.len() != count) {
            let shape = rows.iter().map(|r| r.len().to_string()).collect::<Vec<_>>().join(", ");
            let mend = format!("with {count} nodes give {count} rows of {count} latencies");
            return wrong(
                "memory.latency",
                format!("{} rows of {shape} columns", rows.len()),
                mend,
            );
        }
        if rows.iter().flatten().any(|d| self.ticks(d) == Ticks::ZERO) {
            return wrong(
                "memory.latency",
                "a latency of 0",
                "give the load-to-use time, such as \"100 ns\"",
            );
        }
        Ok(())
    }

    fn check_caches(&self) -> Result<(), Wrong> {
        let shape = self.hierarchy(0);
        let whole = self.llc.cache();
        let caches = [
            ("l1i", &self.l1i, &shape.l1i),
            ("l1d", &self.l1d, &shape.l1d),
            ("l2", &self.l2, &shape.l2),
            ("llc", &whole, &shape.llc),
        ];
        for (name, spec, geometry) in caches {
            self.check_cache(name, spec, geometry, shape.lines)?;
        }
        self.check_first_level()?;
        let private = shape.l1i.lines() + shape.l1d.lines() + shape.l2.lines();
        let groups = self.cpus.div_ceil(self.cpus_per_llc.value);
        let lines = private * u64::from(self.cpus.value) + shape.llc.lines() * u64::from(groups);
        if lines > MAX_LINES {
            let mend = format!("all caches together may hold {} GiB", (MAX_LINES * LINE) >> 30);
            return wrong(
                "cpus",
                format!("the caches of all CPUs hold {} GiB", (lines * LINE) >> 30),
                mend,
            );
        }
        for pair in caches.windows(2).skip(1) {
            if self.ticks(&pair[0].1.latency) > self.ticks(&pair[1].1.latency) {
                let key = format!("{}.latency", pair[1].0);
                return wrong(
                    key,
                    format!("less than that of {}", pair[0].0),
                    "latencies are load-to-use times of a hit",
                );
            }
        }
        Ok(())
    }

    fn check_cache(
        &self,
        name: &str,
        spec: &CacheSpec,
        geometry: &Geometry,
        lines: u64,
    ) -> Result<(), Wrong> {
        let (size, ways) = (spec.size.0, spec.ways.value);
        if ways > 0 && !size.is_multiple_of(u64::from(ways) * LINE) {
            let mend = format!(
                "use a multiple of {} ({ways} ways of {LINE} bytes)",
                u64::from(ways) * LINE
            );
            return wrong(
                format!("{name}.size"),
                format!("{size} bytes do not divide into {ways} ways"),
                mend,
            );
        }
        match geometry.check() {
            Err(e @ GeometryError::Ways(_)) => {
                return wrong(format!("{name}.ways"), e.to_string(), "mend the number of ways");
            }
            Err(e @ GeometryError::FewSets(_)) => {
                return wrong(format!("{name}.index"), e.to_string(), "leave it out");
            }
            Err(e) => return wrong(format!("{name}.size"), e.to_string(), "mend the size"),
            Ok(()) => {}
        }
        if lines > geometry.reach() {
            let mend = "use more sets or less memory";
            let gib = (geometry.reach() * LINE) >> 30;
            return wrong(
                format!("{name}.size"),
                format!("{} sets reach {gib} GiB of memory", geometry.sets),
                mend,
            );
        }
        if self.ticks(&spec.latency) == Ticks::ZERO {
            return wrong(
                format!("{name}.latency"),
                "a hit takes no time",
                "give the load-to-use time in cycles",
            );
        }
        Ok(())
    }

    fn check_first_level(&self) -> Result<(), Wrong> {
        for (name, spec) in [("l1i", &self.l1i), ("l2", &self.l2)] {
            let named = [
                ("refill", spec.refill.is_some()),
                ("refill_dirty", spec.refill_dirty.is_some()),
                ("way_predictor", spec.way_predictor.is_some()),
            ];
            if let Some((key, _)) = named.into_iter().find(|(_, is_named)| *is_named) {
                let mend = "name it under [l1d], or leave it out";
                return wrong(
                    format!("{name}.{key}"),
                    "only the first level of data has one",
                    mend,
                );
            }
        }
        let first = self.first_level();
        let times = [("l1d.refill", first.refill), ("l1d.refill_dirty", first.refill_dirty)];
        for (key, time) in times {
            if time.is_some_and(|time| time == Ticks::ZERO || time.cycles() > MAX_CYCLES) {
                let mend = format!("give at most {MAX_CYCLES} cycles, or leave it out");
                return wrong(key, "no time between two lines, or a time of seconds", mend);
            }
        }
        if first.refill_dirty.is_some() && first.refill.is_none() {
            let what = "named without l1d.refill";
            return wrong("l1d.refill_dirty", what, "name both, or neither");
        }
        Ok(())
    }

    fn check_prefetch(&self) -> Result<(), Wrong> {
        let Some(shape) = self.prefetcher() else { return Ok(()) };
        if !(1..=MAX_STREAMS).contains(&shape.streams) {
            let mend = format!("use 1 to {MAX_STREAMS} pages that a core follows at once");
            return wrong("prefetch.streams", format!("{} streams", shape.streams), mend);
        }
        if !(2..=63).contains(&shape.train) {
            let mend = "use 2 (which tell a direction) to 63 of the 64 lines of a page";
            return wrong("prefetch.train", format!("{} misses", shape.train), mend);
        }
        if !(1..=63).contains(&shape.depth) {
            let mend = "use 1 to 63 of the 64 lines of a page; without [prefetch] there is none";
            return wrong("prefetch.depth", format!("{} lines ahead", shape.depth), mend);
        }
        Ok(())
    }

    fn check_tlbs(&self) -> Result<(), Wrong> {
        let tlb = &self.tlb;
        for (name, spec, first) in
            [("l1i", &tlb.l1i, true), ("l1d", &tlb.l1d, true), ("l2", &tlb.l2, false)]
        {
            check_tlb(&format!("tlb.{name}"), spec, first)?;
        }
        let walk = &tlb.walk;
        check_walk("tlb.walk", [&walk.level2, &walk.level3, &walk.level4, &walk.level5])
    }

    /// The hypervisor's tables; before the caches, whose reach depends on them.
    fn check_nested(&self) -> Result<(), Wrong> {
        let Some(nested) = &self.mmu.nested else { return Ok(()) };
        self.check_levels("mmu.nested.levels", nested.levels.value)?;
        check_bank("mmu.nested", nested.entries.value, nested.ways.value)?;
        let walk = &nested.walk;
        check_walk("mmu.nested.walk", [&walk.level2, &walk.level3, &walk.level4, &walk.level5])
    }

    fn check_levels(&self, key: &str, levels: u8) -> Result<(), Wrong> {
        let most = if self.mmu.codec.value == Codec::X86_64 { 5 } else { 4 };
        if !(4..=most).contains(&levels) {
            let mend = if most == 5 { "use 4 or 5" } else { "aarch64 tables have 4" };
            return wrong(key, format!("{levels} levels"), mend);
        }
        Ok(())
    }

    fn check_mmu(&self) -> Result<(), Wrong> {
        let mmu = &self.mmu;
        self.check_levels("mmu.levels", mmu.levels.value)?;
        if mmu.contexts.value == GLOBAL_CONTEXT {
            return wrong(
                "mmu.contexts",
                format!("{GLOBAL_CONTEXT} contexts"),
                "use at most 65534",
            );
        }
        if mmu.max_leaf.value == PageSize::K4 {
            return wrong(
                "mmu.max_leaf",
                "4K",
                "use \"2M\" or \"1G\"; 4 KiB pages alone are the switch thp=never",
            );
        }
        Ok(())
    }
}

fn check_tlb(key: &str, spec: &TlbSpec, first_level: bool) -> Result<(), Wrong> {
    let mut seen = [false; 3];
    for (n, bank) in spec.banks.iter().enumerate() {
        let key = format!("{key}.banks.{n}");
        check_bank(&key, bank.entries.value, bank.ways.value)?;
        if bank.sizes.is_empty() {
            return wrong(
                format!("{key}.sizes"),
                "no page size",
                "name one or more of \"4K\", \"2M\", \"1G\"",
            );
        }
        for &size in &bank.sizes.value {
            if std::mem::replace(&mut seen[size as usize], true) {
                return wrong(
                    format!("{key}.sizes"),
                    format!("{size:?} has a bank already"),
                    "name each page size once",
                );
            }
        }
    }
    if first_level && !seen[PageSize::K4 as usize] {
        return wrong(
            format!("{key}.banks"),
            "no bank holds 4 KiB pages",
            "add one with sizes = [\"4K\"]",
        );
    }
    Ok(())
}

/// Walk caches of levels 2 to 5.
fn check_walk(key: &str, levels: [&Option<WalkLevel>; 4]) -> Result<(), Wrong> {
    for (level, spec) in (2..).zip(levels).filter_map(|(n, l)| l.as_ref().map(|l| (n, l))) {
        check_bank(&format!("{key}.level{level}"), spec.entries.value, spec.ways.value)?;
    }
    Ok(())
}

fn check_bank(key: &str, entries: u32, ways: u32) -> Result<(), Wrong> {
    if !(1..=MAX_ENTRIES).contains(&entries) {
        return wrong(
            format!("{key}.entries"),
            format!("{entries} entries"),
            format!("use 1 to {MAX_ENTRIES}"),
        );
    }
    if ways == 0 || !entries.is_multiple_of(ways) {
        let mend = format!("use a divisor of {entries}; {entries} for a fully associative bank");
        return wrong(
            format!("{key}.ways"),
            format!("{ways} ways do not divide {entries} entries"),
            mend,
        );
    }
    Ok(())
}
