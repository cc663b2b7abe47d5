//! What is run, and what it rests on.
//!
//! The posting's kernel has string stores and nothing else, so the rows that are compared with it do too (`clear.stores=cached`); what the
//! library does beyond is a row without a published figure.

use vellum::addr::Order;

pub(super) type Switches = &'static [(&'static str, &'static str)];

/// A row: what is run, what was published, what is stated of it.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub name: &'static str,
    pub leaf: Order,
    pub after: Switches,
    pub published: [Option<f64>; 2],
    /// Where it is stated: the statement and its band, by throughput after over before.
    pub stated: Option<(&'static str, &'static str, [f64; 2])>,
    /// What it rests on.
    pub rests: &'static [&'static str],
}

/// The kernel before the posting.
pub(super) const BEFORE: Switches = &[("clear.unit", "page"), ("clear.stores", "cached"), ("preempt", "voluntary")];
const BATCHES: Switches = &[("clear.batch", "8M"), ("clear.stores", "cached")];
const WHOLE: Switches = &[("preempt", "full"), ("clear.stores", "cached")];
const LONG: Switches = &[("clear.batch", "32M"), ("clear.stores", "cached")];
const AROUND: Switches = &[("clear.stores", "bypass")];

const HUGE: &[&str] = &["costs.clear_page_line", "costs.clear_extent_line", "costs.work.large"];
const GIANT: &[&str] = &["costs.clear_next_line", "costs.clear_extent_line", "costs.elision_threshold"];
const ELIDED: &[&str] = &["costs.clear_next_line", "costs.clear_elided_line", "costs.elision_threshold", "llc.size"];
const PASSED: &[&str] = &["costs.clear_page_line", "costs.clear_elided_line", "costs.work.large"];

/// A case without published figures and without a statement.
const fn alone(name: &'static str, leaf: Order, after: Switches, rests: &'static [&'static str]) -> Case {
    Case { name, leaf, after, published: [None, None], stated: None, rests }
}
const SMALL: Case = alone("2 MiB, all models, GiB/s", Order::HUGE, BATCHES, HUGE);
const LARGE: Case = alone("1 GiB, preemptible, GiB/s", Order::GIANT, WHOLE, ELIDED);
const BYPASSING: Case = alone("2 MiB, bypassing, GiB/s", Order::HUGE, AROUND, PASSED);

pub(super) const MILAN: &[Case] = &[
    Case { published: [Some(11.82), Some(16.48)], stated: Some(("A-7", "2 MiB", [1.30, 1.45])), ..SMALL },
    Case {
        published: [Some(17.14), Some(17.42)],
        stated: Some(("A-7-8m", "1 GiB in batches of 8 MiB", [0.94, 1.06])),
        ..alone("1 GiB, asks, 8 MiB, GiB/s", Order::GIANT, BATCHES, GIANT)
    },
    Case {
        published: [Some(17.51), Some(43.23)],
        stated: Some(("A-7-preemptible", "1 GiB, preemptible", [2.20, 2.60])),
        ..LARGE
    },
    Case {
        stated: Some(("A-8", "1 GiB in batches of 32 MiB", [1.50, 4.0])),
        ..alone("1 GiB, asks, 32 MiB, GiB/s", Order::GIANT, LONG, ELIDED)
    },
    BYPASSING,
];

pub(super) const ICELAKE: &[Case] = &[
    Case { stated: Some(("A-14", "2 MiB; published: about 1.35", [1.25, 1.45])), ..SMALL },
    Case { stated: Some(("A-14-1g", "1 GiB; published: about 1.35", [1.25, 1.45])), rests: GIANT, ..LARGE },
    BYPASSING,
];
