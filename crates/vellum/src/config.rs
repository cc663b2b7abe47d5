//! One switch per mechanism: its name, its values, its default, and what it trades.
//!
//! The names are the same everywhere: `--set` of the command, a kernel's command line, the fields here, the docs. The table
//! [`SWITCHES`] is the only list; parsing, printing and `vellum switches` all read it.

use crate::addr::Order;
use crate::error::ConfigError;
use crate::zero::colour::MAX_COLOURS;

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
    /// That many, from 1 to [`MAX_COLOURS`](crate::zero::colour::MAX_COLOURS).
    Exactly(Order),
}

/// Which node a new frame should come from. Every policy falls back to other nodes by distance, except `Bind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NumaPolicy {
    /// The node of the CPU that asks.
    #[default]
    Local,
    /// Nodes in turn, by the page's index.
    Interleave,
    /// This node only.
    Bind(u8),
    /// This node first.
    Prefer(u8),
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
    /// `zero.page`: reads of untouched memory map one shared page of zeros.
    pub zero_page: bool,
    /// `zero.colours`: frames of shared zeros, so that they spread over the sets of a cache.
    pub zero_colours: Colours,
    /// `tlb.batch`: one flush for a whole verb, or one per page table leaf.
    pub tlb_batch: bool,
    /// `numa`: where frames come from by default.
    pub numa: NumaPolicy,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            thp: Thp::default(),
            levels: None,
            preempt: Preemption::default(),
            zero_page: true,
            zero_colours: Colours::default(),
            tlb_batch: true,
            numa: NumaPolicy::default(),
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
    set: fn(&mut Config, &str) -> bool,
}

/// Every switch there is, in the order help prints them.
pub const SWITCHES: &[Switch] = &[
    Switch {
        name: "thp",
        values: "never|advise|always",
        default: "always",
        trades: "fewer faults, shorter walks and wider TLB reach, for memory that is given but never used",
        set: |c, v| {
            c.thp = match v {
                "never" => Thp::Never,
                "advise" => Thp::Advise,
                "always" => Thp::Always,
                _ => return false,
            };
            true
        },
    },
    Switch {
        name: "levels",
        values: "machine|4|5",
        default: "machine",
        trades: "a fifth level reaches 56 address bits in the user half, for one more step in every uncached walk",
        set: |c, v| {
            c.levels = match v {
                "machine" => None,
                "4" => Some(4),
                "5" => Some(5),
                _ => return false,
            };
            true
        },
    },
    Switch {
        name: "preempt",
        values: "none|voluntary|full|lazy",
        default: "voluntary",
        trades: "latency of others against scheduling points inside long clears",
        set: |c, v| {
            c.preempt = match v {
                "none" => Preemption::None,
                "voluntary" => Preemption::Voluntary,
                "full" => Preemption::Full,
                "lazy" => Preemption::Lazy,
                _ => return false,
            };
            true
        },
    },
    Switch {
        name: "zero.page",
        values: "on|off",
        default: "on",
        trades: "no memory for pages that are only read, for a second fault on pages that are read before they are written",
        set: |c, v| on_off(v, &mut c.zero_page),
    },
    Switch {
        name: "zero.colours",
        values: "auto|l2|N",
        default: "auto",
        trades: "zero pages spread over the sets of a cache (auto: the first level; N: 1 to 128, a power of two), for the cache that more zeros fill",
        set: |c, v| {
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
        name: "tlb.batch",
        values: "on|off",
        default: "on",
        trades: "one flush for a whole call, for frames that stay pending until it ends",
        set: |c, v| on_off(v, &mut c.tlb_batch),
    },
    Switch {
        name: "numa",
        values: "local|interleave|bind:N|prefer:N",
        default: "local",
        trades: "latency of the toucher against bandwidth of all nodes",
        set: |c, v| {
            let node = |s: &str| s.parse::<u8>().ok();
            c.numa = match v.split_once(':') {
                None if v == "local" => NumaPolicy::Local,
                None if v == "interleave" => NumaPolicy::Interleave,
                Some(("bind", n)) if node(n).is_some() => NumaPolicy::Bind(node(n).unwrap_or(0)),
                Some(("prefer", n)) if node(n).is_some() => NumaPolicy::Prefer(node(n).unwrap_or(0)),
                _ => return false,
            };
            true
        },
    },
];

fn on_off(v: &str, field: &mut bool) -> bool {
    match v {
        "on" => *field = true,
        "off" => *field = false,
        _ => return false,
    }
    true
}

impl Config {
    /// Sets one switch by its name. On an error nothing changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let switch = SWITCHES.iter().find(|s| s.name == name).ok_or(ConfigError::UnknownSwitch)?;
        if (switch.set)(self, value) { Ok(()) } else { Err(ConfigError::BadValue(switch.values)) }
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
                let v = v.replace('N', "1");
                assert_eq!(Config::default().set(s.name, &v), Ok(()), "{}={v}", s.name);
            }
            assert_eq!(Config::default().set(s.name, "bogus"), Err(ConfigError::BadValue(s.values)));
        }
        assert_eq!(Config::default().set("no.such", "on"), Err(ConfigError::UnknownSwitch));
        assert_eq!(
            Config::default().set("numa", "bind:300"),
            Err(ConfigError::BadValue("local|interleave|bind:N|prefer:N"))
        );
    }
}
