//! One switch per mechanism: its name, its values, its default, and what it trades.
//!
//! The names are the same everywhere: `--set` of the command, a kernel's command line, the fields
//! here, the docs. The table [`SWITCHES`] is the only list; parsing, printing and `vellum switches`
//! all read it.

use crate::addr::{Order, PAGE_SIZE};
use crate::error::ConfigError;
use crate::machine::RUN_PAGES;

/// `file.readahead` at most, in base pages: 2 MiB. Basis: a guess.
pub(crate) const MOST_AHEAD: u64 = 512;

/// Most colours there are: those of s390 from z13 on, the most any kernel has used.
pub const MAX_COLOURS: u64 = 128;

/// The largest block that `file.around` takes: 256 KiB. Basis: a guess; a fault remembers what it
/// finds there on its stack.
pub const MOST_AROUND: Order = match Order::new(6) {
    Some(order) => order,
    None => Order::BASE,
};
/// What it is by default. Basis: outside; Linux's `fault_around_bytes`, 64 KiB.
const AROUND: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::BASE,
};

/// When huge pages are used for private anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Thp {
    /// Base pages only.
    Never,
    /// Huge pages where the region was advised to.
    Advise,
    /// Huge pages wherever alignment and length allow.
    #[default]
    Always,
}

/// How the embedding kernel preempts; it decides where a long clear needs scheduling points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preemption {
    /// Kernel code runs until it asks.
    None,
    /// As `None`, with more places that ask.
    #[default]
    Voluntary,
    /// An interrupt may reschedule inside kernel code.
    Full,
    /// As `Full`, put off to the end of the tick for ordinary tasks.
    Lazy,
}

/// How many frames of shared zeros there are: by which cache level their colours are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Colours {
    /// Colours of the first level. One where a way is as long as a page, or nothing is known of it.
    #[default]
    L1d,
    /// Colours of the second level.
    L2,
    /// That many; [`MAX_COLOURS`] where it says more.
    Exactly(Order),
}

/// In what portions a block is cleared before it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClearUnit {
    /// One 4 KiB page a call, a scheduling point before each where the kernel is only preempted
    /// where it asks.
    Page,
    /// Whole runs where the kernel can be preempted anywhere, batches (`clear.batch`) where it
    /// asks.
    #[default]
    Extent,
}

/// In what order a block is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClearOrder {
    /// The neighbourhood of the page that faulted last, that page as the very last.
    #[default]
    NearLast,
    /// From the first page to the last.
    Ascending,
}

/// How long a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClearBatch {
    /// As long as can be cleared within the latency target, by the bandwidth of recent clears on
    /// that node.
    #[default]
    Auto,
    /// So many base pages, at least 1.
    Pages(u64),
}

/// Which stores clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClearStores {
    /// By the length of the run and the machine's caches.
    #[default]
    Auto,
    /// Through the caches.
    Cached,
    /// Around them, but for the neighbourhood of the page that faulted.
    Bypass,
}

/// Which node a new frame should come from. Every policy falls back to other nodes by distance,
/// except `Bind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NumaPolicy {
    /// The node of the CPU that asks.
    #[default]
    Local,
    /// Nodes in turn, by the index of the page, or of the block for larger ones: of an object's, by
    /// that in the object.
    Interleave,
    /// This node only. Of a node that the machine does not have nothing can be had: as a switch it
    /// is refused by [`Vm::new`](crate::vm::Vm::new), as an attribute every page is refused with
    /// `NoMemory`.
    Bind(u8),
    /// This node first; as `Local` where the machine does not have it, which as a switch is refused
    /// by [`Vm::new`](crate::vm::Vm::new).
    Prefer(u8),
}

/// What a read of untouched memory maps where a huge page would be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZeroHuge {
    /// A fresh huge page, cleared and counted.
    Off,
    /// One 2 MiB page of zeros for everybody.
    #[default]
    Page,
    /// One table of 512 zero entries for everybody, above it one table of such tables for a whole 1
    /// GiB.
    Table,
    /// A table of 512 zero entries for each 2 MiB.
    TablePrivate,
}

/// What a store to a shared huge page copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CowHuge {
    /// All of it, to a huge page of the space's own.
    #[default]
    Copy,
    /// The base page that is written; the rest stays shared, by entries of 4 KiB, as in Linux since
    /// 5.8 (commit 3917c80280c9). A leaf of a size that was asked for is copied all the same.
    Split,
}

/// Every switch. Fields are read once per verb, never on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// `thp`: huge pages for private anonymous memory.
    pub thp: Thp,
    /// `levels`: depth of the page table, 4 or 5; `None` takes the machine's.
    pub levels: Option<u8>,
    /// `preempt`: what the kernel below promises about preemption.
    pub preempt: Preemption,
    /// `clear.unit`: portions of a clear.
    pub clear_unit: ClearUnit,
    /// `clear.batch`: length of a portion.
    pub clear_batch: ClearBatch,
    /// `clear.target`: with `clear.batch=auto`, the longest a CPU should be kept from scheduling,
    /// in microseconds.
    pub clear_target: u32,
    /// `clear.order`: which pages first.
    pub clear_order: ClearOrder,
    /// `clear.stores`: through the caches or around them.
    pub clear_stores: ClearStores,
    /// `alloc.zero`: data frames are cleared as they leave the allocator, whatever they are for.
    pub alloc_zero: bool,
    /// `alloc.cursor`: what a fault has looked up is not looked up again before it installs.
    pub alloc_cursor: bool,
    /// `zero.page`: reads of untouched memory map one shared page of zeros.
    pub zero_page: bool,
    /// `zero.colours`: frames of shared zeros, so that they spread over the sets of a cache.
    pub zero_colours: Colours,
    /// `zero.huge`: what such a read maps where a huge page would be used. Nothing of it without
    /// `zero.page`.
    pub zero_huge: ZeroHuge,
    /// `cow.huge`: what a store to a shared huge page copies.
    pub cow_huge: CowHuge,
    /// `tlb.batch`: one flush for a whole verb, or one per page table leaf.
    pub tlb_batch: bool,
    /// `numa`: where frames come from by default.
    pub numa: NumaPolicy,
    /// `file.around`: the aligned block around a read fault of which the pages that an object has
    /// are mapped; [`MOST_AROUND`] where it says more, [`Order::BASE`] for none but the page.
    pub file_around: Order,
    /// `object.huge`: whether objects without a pager get blocks of 2 MiB.
    pub object_huge: Thp,
    /// `file.readahead`: base pages that a pager is asked for at once while they are wanted in
    /// order; 512 at most, 1 for none ahead.
    pub file_readahead: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            thp: Thp::default(),
            levels: None,
            preempt: Preemption::default(),
            clear_unit: ClearUnit::default(),
            clear_batch: ClearBatch::default(),
            clear_target: 1000,
            clear_order: ClearOrder::default(),
            clear_stores: ClearStores::default(),
            alloc_zero: false,
            alloc_cursor: true,
            zero_page: true,
            zero_colours: Colours::default(),
            zero_huge: ZeroHuge::default(),
            cow_huge: CowHuge::default(),
            tlb_batch: true,
            numa: NumaPolicy::default(),
            file_around: AROUND,
            object_huge: Thp::Advise,
            file_readahead: RUN_PAGES as u64,
        }
    }
}

/// A switch as users see it.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// Its one name.
    pub name: &'static str,
    /// The values it takes, as printed in help.
    pub values: &'static str,
    /// The default, the best known choice.
    pub default: &'static str,
    /// What is bought, and what is paid for it.
    pub trades: &'static str,
    set: fn(&mut Config, &Switch, &str) -> bool,
}

impl Switch {
    /// Sets a field to the one of `choices` that stands where `values` has the value.
    fn choose<T, const N: usize>(&self, v: &str, field: &mut T, choices: [T; N]) -> bool {
        let chosen = self.values.split('|').zip(choices).find(|(name, _)| *name == v);
        chosen.map(|(_, choice)| *field = choice).is_some()
    }
}

/// Every switch there is, in the order help prints them.
pub const SWITCHES: &[Switch] = &[
    Switch {
        name: "thp",
        values: "never|advise|always",
        default: "always",
        trades: "fewer faults, shorter walks and wider TLB reach, for memory that is given but \
                 never used",
        set: |c, s, v| s.choose(v, &mut c.thp, [Thp::Never, Thp::Advise, Thp::Always]),
    },
    Switch {
        name: "levels",
        values: "machine|4|5",
        default: "machine",
        trades: "a fifth level reaches 56 address bits in the user half, for one more step in \
                 every uncached walk",
        set: |c, s, v| s.choose(v, &mut c.levels, [None, Some(4), Some(5)]),
    },
    Switch {
        name: "preempt",
        values: "none|voluntary|full|lazy",
        default: "voluntary",
        trades: "latency of others against scheduling points inside long clears",
        set: |c, s, v| {
            s.choose(
                v,
                &mut c.preempt,
                [Preemption::None, Preemption::Voluntary, Preemption::Full, Preemption::Lazy],
            )
        },
    },
    Switch {
        name: "clear.unit",
        values: "page|extent",
        default: "extent",
        trades: "stores that know how long they will run, for fewer places in between where \
                 others get the CPU",
        set: |c, s, v| s.choose(v, &mut c.clear_unit, [ClearUnit::Page, ClearUnit::Extent]),
    },
    Switch {
        name: "clear.batch",
        values: "auto|SIZE such as 8M, whole pages",
        default: "auto",
        trades: "longer runs between scheduling points, for latency of others; 8M and 32M are \
                 the published choices",
        set: |c, _, v| {
            c.clear_batch = match v {
                "auto" => ClearBatch::Auto,
                v => match bytes(v) {
                    Some(b) if b >= 4096 && b.is_multiple_of(4096) => ClearBatch::Pages(b / 4096),
                    _ => return false,
                },
            };
            true
        },
    },
    Switch {
        name: "clear.target",
        values: "MICROSECONDS, 1 to 1000000",
        default: "1000",
        trades: "what clear.batch=auto aims at: the time a CPU may be kept from scheduling",
        set: |c, _, v| match v.parse() {
            Ok(us) if (1..=1_000_000).contains(&us) => {
                c.clear_target = us;
                true
            }
            _ => false,
        },
    },
    Switch {
        name: "clear.order",
        values: "near-last|ascending",
        default: "near-last",
        trades: "the page that faulted and its neighbours in the cache when the program goes on, \
                 for one long run cut in three",
        set: |c, s, v| {
            s.choose(v, &mut c.clear_order, [ClearOrder::NearLast, ClearOrder::Ascending])
        },
    },
    Switch {
        name: "clear.stores",
        values: "auto|cached|bypass",
        default: "auto",
        trades: "half the memory traffic and caches left alone, for pages that are not in the \
                 cache when they are used next",
        set: |c, s, v| {
            s.choose(
                v,
                &mut c.clear_stores,
                [ClearStores::Auto, ClearStores::Cached, ClearStores::Bypass],
            )
        },
    },
    Switch {
        name: "alloc.zero",
        values: "on|off",
        default: "off",
        trades: "data frames hold no old bytes from the moment they are given out, for clearing \
                 twice what is copied into or aliases",
        set: |c, s, v| s.choose(v, &mut c.alloc_zero, [true, false]),
    },
    Switch {
        name: "alloc.cursor",
        values: "on|off",
        default: "on",
        trades: "a fault installs where its lookup ended, in an object's trie and in the page \
                 table; off looks up again",
        set: |c, s, v| s.choose(v, &mut c.alloc_cursor, [true, false]),
    },
    Switch {
        name: "zero.page",
        values: "on|off",
        default: "on",
        trades: "no memory for pages that are only read, for a second fault on pages that are \
                 read before they are written",
        set: |c, s, v| s.choose(v, &mut c.zero_page, [true, false]),
    },
    Switch {
        name: "zero.colours",
        values: "auto|l2|PAGES, a power of two to 128",
        default: "auto",
        trades: "zero pages spread over the sets of a cache (auto: the first level), for the \
                 cache that more zeros fill",
        set: |c, _, v| {
            c.zero_colours = match v {
                "auto" => Colours::L1d,
                "l2" => Colours::L2,
                n => match n.parse::<u64>() {
                    Ok(n) if n.is_power_of_two() && n <= MAX_COLOURS => {
                        Colours::Exactly(Order::new(n.ilog2() as u8).unwrap_or(Order::BASE))
                    }
                    _ => return false,
                },
            };
            true
        },
    },
    Switch {
        name: "zero.huge",
        values: "off|page|table|table-private",
        default: "page",
        trades: "no memory for huge pages that are only read; page: wide TLB reach, 2 MiB of \
                 cache; table: one page of cache, a walk for each 4 KiB",
        set: |c, s, v| {
            s.choose(
                v,
                &mut c.zero_huge,
                [ZeroHuge::Off, ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate],
            )
        },
    },
    Switch {
        name: "cow.huge",
        values: "copy|split",
        default: "copy",
        trades: "a page that stays huge after one fault, for 2 MiB of copying and memory where \
                 few of its pages are written",
        set: |c, s, v| s.choose(v, &mut c.cow_huge, [CowHuge::Copy, CowHuge::Split]),
    },
    Switch {
        name: "tlb.batch",
        values: "on|off",
        default: "on",
        trades: "one flush for a whole call, for frames that stay pending until it ends",
        set: |c, s, v| s.choose(v, &mut c.tlb_batch, [true, false]),
    },
    Switch {
        name: "numa",
        values: "local|interleave|bind:NODE|prefer:NODE",
        default: "local",
        trades: "latency of the toucher against bandwidth of all nodes",
        set: |c, _, v| {
            let node = |s: &str| s.parse::<u8>().ok();
            c.numa = match v.split_once(':') {
                None if v == "local" => NumaPolicy::Local,
                None if v == "interleave" => NumaPolicy::Interleave,
                Some(("bind", n)) if node(n).is_some() => NumaPolicy::Bind(node(n).unwrap_or(0)),
                Some(("prefer", n)) if node(n).is_some() => {
                    NumaPolicy::Prefer(node(n).unwrap_or(0))
                }
                _ => return false,
            };
            true
        },
    },
    Switch {
        name: "object.huge",
        values: "never|advise|always",
        default: "advise",
        trades: "as thp, for what several spaces map: fewer faults and TLB misses, for pages that \
                 nobody uses",
        set: |c, s, v| {
            let values = [Thp::Never, Thp::Advise, Thp::Always];
            s.choose(v, &mut c.object_huge, values)
        },
    },
    Switch {
        name: "file.around",
        values: "off|SIZE, a power of two from 8K to 256K",
        default: "64K",
        trades: "fewer faults on pages that an object has already, for entries that nobody uses",
        set: |c, _, v| {
            let most = MOST_AROUND.bytes();
            c.file_around = match v {
                "off" => Order::BASE,
                v => match bytes(v) {
                    Some(b) if (8192..=most).contains(&b) && b.is_power_of_two() => {
                        Order::new((b / 4096).ilog2() as u8).unwrap_or(Order::BASE)
                    }
                    _ => return false,
                },
            };
            true
        },
    },
    Switch {
        name: "file.readahead",
        values: "off|SIZE such as 128K, whole pages to 2M",
        default: "128K",
        trades: "one request of a pager for many pages that follow each other, for memory and time \
                 of those that nobody uses",
        set: |c, _, v| {
            let pages = if v == "off" { Some(1) } else { bytes(v).and_then(whole_pages) };
            let pages = pages.filter(|&pages| pages <= MOST_AHEAD);
            pages.map(|pages| c.file_readahead = pages).is_some()
        },
    },
];

/// A length: digits, then K, M or G for binary multiples.
fn bytes(v: &str) -> Option<u64> {
    let (digits, shift) = match v.as_bytes().last()? {
        b'K' => (&v[..v.len() - 1], 10),
        b'M' => (&v[..v.len() - 1], 20),
        b'G' => (&v[..v.len() - 1], 30),
        _ => (v, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Base pages of a length that has no part of one.
fn whole_pages(bytes: u64) -> Option<u64> {
    let page = PAGE_SIZE as u64;
    (bytes != 0 && bytes.is_multiple_of(page)).then(|| bytes / page)
}

impl Config {
    /// Sets one switch by its name. On an error nothing changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let switch = SWITCHES.iter().find(|s| s.name == name).ok_or(ConfigError::UnknownSwitch)?;
        if (switch.set)(self, switch, value) {
            Ok(())
        } else {
            Err(ConfigError::BadValue(switch.values))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_in_the_table_is_the_default_of_the_struct() {
        for s in SWITCHES {
            let mut c = Config::default();
            c.set(s.name, s.default).unwrap();
            assert_eq!(c, Config::default(), "{}", s.name);
        }
    }

    #[test]
    fn every_plain_value_in_the_table_is_accepted_and_others_are_not() {
        for s in SWITCHES {
            for v in s.values.split('|') {
                // Behind a comma it says which of them.
                let v = match v.split([',', ' ']).next().unwrap_or(v) {
                    "SIZE" if s.name.starts_with("file.") => "8K".into(),
                    "SIZE" => "8M".into(),
                    "MICROSECONDS" => "250".into(),
                    v => v.replace("NODE", "1").replace("PAGES", "1"),
                };
                assert_eq!(Config::default().set(s.name, &v), Ok(()), "{}={v}", s.name);
            }
            assert_eq!(
                Config::default().set(s.name, "bogus"),
                Err(ConfigError::BadValue(s.values))
            );
        }
        let large = "99999999999999999999|17179869184G";
        for v in "0|4095|4097|-4096|+4096|4096 |8MB|M|".split('|').chain(large.split('|')) {
            assert!(Config::default().set("clear.batch", v).is_err(), "{v}");
        }
        for (v, pages) in [("4096", 1), ("20K", 5), ("8M", 2048), ("32M", 8192), ("1G", 262_144)] {
            let mut c = Config::default();
            c.set("clear.batch", v).unwrap();
            assert_eq!(c.clear_batch, ClearBatch::Pages(pages), "{v}");
        }
        for v in ["0", "4K", "12K", "512K"] {
            assert!(Config::default().set("file.around", v).is_err(), "{v}");
        }
        for v in ["0", "6K", "2052K"] {
            assert!(Config::default().set("file.readahead", v).is_err(), "{v}");
        }
        assert_eq!(Config::default().set("no.such", "on"), Err(ConfigError::UnknownSwitch));
        assert_eq!(
            Config::default().set("numa", "bind:300"),
            Err(ConfigError::BadValue("local|interleave|bind:NODE|prefer:NODE"))
        );
    }
}
