//! The counters that people see, in words and in order.
//!
//! This is the one list of rows: the full table of `vellum run` prints all of it, the screen a
//! choice. JSON prints counters by their own names.
//!
//! Cycles are estimates for the whole program. If the trace kept everything, they are the simulated
//! cycles. If the recorder's windows left something out, the program's own part is scaled up, since
//! faults and calls are complete: a total of both would otherwise compare a hundredth of one with
//! all of the other. JSON has the simulated figures beside the estimates.

use super::counters::Counters;

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A plain count.
    Count,
    /// Modelled cycles.
    Cycles,
    /// Bytes.
    Bytes,
    /// Hundredths of a percent; ratios of shares say nothing and are left out.
    Permyriad,
}

/// What a value comes to beside the base's, if that is not 0.
pub type Remark = fn(i64, i64) -> Option<String>;

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// In words, at most 25 characters.
    pub label: &'static str,
    /// The counter's name in JSON.
    pub counter: &'static str,
    /// Another one to be added to it.
    pub and: Option<&'static str>,
    /// How it is written.
    pub unit: Unit,
    /// Printed even if it is zero everywhere.
    pub always: bool,
    /// A part of the program's time.
    pub is_part: bool,
    /// What a value comes to beside the base's.
    pub remark: Option<Remark>,
}

/// Rows under one title.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its title.
    pub title: &'static str,
    /// Its rows.
    pub rows: &'static [Row],
}

const fn row(label: &'static str, counter: &'static str, unit: Unit) -> Row {
    Row { label, counter, and: None, unit, always: false, is_part: false, remark: None }
}

const fn always(label: &'static str, counter: &'static str, unit: Unit) -> Row {
    Row { label, counter, and: None, unit, always: true, is_part: false, remark: None }
}

const fn both(label: &'static str, counter: &'static str, and: &'static str) -> Row {
    Row {
        label,
        counter,
        and: Some(and),
        unit: Unit::Cycles,
        always: true,
        is_part: false,
        remark: None,
    }
}

const fn part(label: &'static str, counter: &'static str) -> Row {
    Row { is_part: true, ..row(label, counter, Unit::Cycles) }
}

/// The counter of a program's time.
pub const TIME: &str = "estimate_total";

const TOTAL: Row = Row {
    label: "total",
    counter: TIME,
    and: None,
    unit: Unit::Cycles,
    always: true,
    is_part: false,
    remark: Some(time_remark),
};
const RSS: Row = Row {
    label: "RSS, peak",
    counter: "rss_peak_bytes",
    and: None,
    unit: Unit::Bytes,
    always: true,
    is_part: false,
    remark: Some(memory_remark),
};

/// The table of `vellum run`.
pub const GROUPS: &[Group] = &[
    Group {
        title: "faults",
        rows: &[
            always("page faults", "pgfault", Unit::Count),
            row("  huge page allocated", "thp_fault_alloc", Unit::Count),
            row("  huge page, fell back", "thp_fault_fallback", Unit::Count),
            row("  zero page mapped", "zero_page_fault", Unit::Count),
            row("  copy-on-write, copied", "cow_copy", Unit::Count),
            row("  copy-on-write, reused", "cow_reuse", Unit::Count),
            row("  major (disk read)", "pgmajfault", Unit::Count),
            row("  spurious", "pgfault_spurious", Unit::Count),
            row("  refused (no access)", "pgfault_refused", Unit::Count),
            row("pages populated", "populated_pages", Unit::Count),
        ],
    },
    Group {
        title: "translation",
        rows: &[
            row("L1 TLB misses, data", "dtlb_misses", Unit::Count),
            row("L1 TLB misses, code", "itlb_misses", Unit::Count),
            row("L2 TLB hits", "stlb_hits", Unit::Count),
            always("page walks", "tlb_walks", Unit::Count),
            row("  page-table reads", "walk_reads", Unit::Count),
            row("  nested-table reads", "nested_reads", Unit::Count),
        ],
    },
    Group {
        title: "cache misses",
        rows: &[
            row("L1D, program", "l1d_misses_demand", Unit::Count),
            row("L1D, walks", "l1d_misses_walk", Unit::Count),
            row("L1D, kernel", "l1d_misses_kernel", Unit::Count),
            row("L1I, program", "l1i_misses_demand", Unit::Count),
            row("L2, program", "l2_misses_demand", Unit::Count),
            row("L2, walks", "l2_misses_walk", Unit::Count),
            row("L2, kernel", "l2_misses_kernel", Unit::Count),
            row("LLC, program", "llc_misses_demand", Unit::Count),
            row("LLC, walks", "llc_misses_walk", Unit::Count),
            row("LLC, kernel", "llc_misses_kernel", Unit::Count),
            row("prefetches into L2", "prefetches", Unit::Count),
            row("  of them useful", "prefetch_hits", Unit::Count),
        ],
    },
    Group {
        title: "memory reads, in lines",
        rows: &[
            row("from the local node", "memory_reads_local", Unit::Count),
            row("from remote nodes", "memory_reads_remote", Unit::Count),
        ],
    },
    Group {
        title: "TLB flushes",
        rows: &[
            row("remote (shootdowns)", "nr_tlb_remote_flush", Unit::Count),
            row("local, all entries", "nr_tlb_local_flush_all", Unit::Count),
            row("local, single pages", "nr_tlb_local_flush_one", Unit::Count),
            row("flush interrupts (IPIs)", "interrupts", Unit::Count),
        ],
    },
    Group {
        title: "memory",
        rows: &[
            RSS,
            row("RSS, end", "rss_end_bytes", Unit::Bytes),
            row("page tables, peak", "page_table_peak_bytes", Unit::Bytes),
            row("file cache, end", "file_cache_bytes", Unit::Bytes),
            row("huge-page share, end", "huge_coverage", Unit::Permyriad),
        ],
    },
    Group {
        title: "disk",
        rows: &[
            row("read, KiB", "pgpgin", Unit::Count),
            row("written, KiB", "pgpgout", Unit::Count),
            row("readahead pages", "readahead_pages", Unit::Count),
            row("  of them unused", "readahead_unused", Unit::Count),
        ],
    },
    Group {
        title: "modelled cycles",
        rows: &[
            part("program", "estimate_program"),
            part("L2 TLB hits", "estimate_stlb"),
            part("page walks", "estimate_walk"),
            part("page faults", "cycles_fault"),
            part("clearing and copying", "cycles_clear"),
            part("TLB flushes and IPIs", "cycles_flush"),
            part("memory system calls", "cycles_calls"),
            part("process end", "cycles_exit"),
            TOTAL,
            row("idle, not in total", "cycles_idle", Unit::Cycles),
            row("disk wait, not in total", "cycles_io", Unit::Cycles),
            row("elapsed, longest CPU", "cycles_elapsed", Unit::Cycles),
        ],
    },
];

/// The rows of one section of the screen.
pub const SCREEN: &[Row] = &[
    always("page faults", "pgfault", Unit::Count),
    always("page walks", "tlb_walks", Unit::Count),
    always("cycles, program", "estimate_program", Unit::Cycles),
    always("cycles, L2 TLB hits", "estimate_stlb", Unit::Cycles),
    always("cycles, page walks", "estimate_walk", Unit::Cycles),
    both("cycles, faults + clearing", "cycles_fault", "cycles_clear"),
    both("cycles, calls + flushes", "cycles_calls", "cycles_flush"),
    always("cycles, process end", "cycles_exit", Unit::Cycles),
    TOTAL,
    RSS,
];

/// The part that has more than half of the difference between two times, if that is a percent or
/// more: `mostly page faults`.
pub fn cause(value: &Counters, base: &Counters) -> Option<String> {
    let apart = |name: &str| Some(value.get(name)? - base.get(name)?);
    let whole = apart(TIME)?;
    change(value.get(TIME)?, base.get(TIME)?).filter(|percent| *percent != 0)?;
    let share = |name: &str| apart(name).map_or(0, |part| part * whole.signum());
    let parts = GROUPS.iter().flat_map(|group| group.rows).filter(|row| row.is_part);
    let most = parts.map(|row| (row.label, row.counter)).find(|p| 2 * share(p.1) > whole.abs())?;
    let said = if most.0 == "program" { "the program itself" } else { most.0 };
    Some(format!("mostly {said}"))
}

fn time_remark(value: i64, base: i64) -> Option<String> {
    Some(match change(value, base)? {
        0 => "the same time".to_owned(),
        p if p < 0 => format!("{} % less time", -p),
        p => format!("{p} % more time"),
    })
}

fn memory_remark(value: i64, base: i64) -> Option<String> {
    Some(match change(value, base)? {
        0 => "same memory".to_owned(),
        p if p < 0 => format!("{} % less memory", -p),
        p => format!("{p} % more memory"),
    })
}

/// Whole percents of change.
fn change(value: i64, base: i64) -> Option<i64> {
    (base > 0).then(|| ((value - base) as f64 * 100.0 / base as f64).round() as i64)
}
