//! The caches of a machine file: what the first level does beside holding lines, what is fetched
//! ahead, the last level.

use vellum_host::calibrate::topology::CacheShape;
use vellum_host::calibrate::{Computer, Figure};
use vellum_sim::cache::MAX_AGES;

use super::constants::{KERNEL, Text, USUAL, time};
use crate::calibrate::values::Values;

/// What the first level of data does beside holding lines, where chases show it.
pub(super) fn first_level(t: &mut Text, computer: &Computer) {
    let (l1d, places) = (&computer.topology.l1d, &computer.places);
    let first = &places.first;
    let chases = "measured on this host: 32 chases at once through lines of one set";
    t.spread("refill", &time(first.one_set.ns), chases, first.one_set.spread);
    let Figure { ns, spread } = first.one_set_stores;
    if ns > first.one_set.ns {
        let stores = "measured on this host: stores to lines of one set in turn";
        t.spread("refill_dirty", &time(ns), stores, spread);
    }
    // Where a way is more than a page, one frame may also lie in sets of several colours.
    let is_one_colour = l1d.size / u64::from(l1d.ways.max(1)) <= 4096;
    let misses = |step: Figure| step.ns > (places.l1.ns + places.l2.ns) / 2.0;
    if is_one_colour && first.aliases.is_some_and(misses) {
        let law = "measured on this host: a chase over one line by eight addresses; how it works: \
                   AMD, Software Optimization Guide for Family 17h, 55723, 2.6.2.2";
        t.before("way_predictor", "\"linear\"", law);
    }
}

pub(super) fn prefetch(t: &mut Text, computer: &Computer, values: &Values) {
    if values.depth == 0 {
        return;
    }
    t.section("[prefetch]");
    match computer.places.streams {
        Some(streams) => {
            let among = "measured on this host: lines read in a row among loads at random";
            t.before("streams", &streams.to_string(), among);
        }
        None => t.guess("streams", "16", USUAL),
    }
    t.guess("train", "2", USUAL);
    let chosen = "measured on this host: the depth that explains lines read in a row best";
    t.before("depth", &values.depth.to_string(), chosen);
    if computer.tables.are_fetched_ahead() {
        let walked = "measured on this host: walks through lines of tables in a row against others";
        t.before("walks", "true", walked);
    }
    if crosses_pages(computer) {
        let paced = "measured on this host: lines read in a row, slowly, wait at no page's start";
        t.before("crosses_pages", "true", paced);
    }
}

/// Whether lines that are read in a row are fetched ahead beyond the end of a page, too: otherwise
/// the first of each page takes the time of memory.
fn crosses_pages(computer: &Computer) -> bool {
    let slow = &computer.lines.slow;
    let of_page = (slow.cold.ns - slow.hot.ns) * 64.0;
    of_page < computer.places.memory.ns / 2.0
}

pub(super) fn last_level(t: &mut Text, computer: &Computer, values: &Values) {
    let (topology, places) = (&computer.topology, &computer.places);
    let Some(llc) = topology.llc else {
        t.cache("llc", topology.l2, places.llc, false);
        return t.guess("inclusion", "\"victim\"", "there is none; another second level");
    };
    let known = llc.size.min(places.llc_share);
    let unit = 64 * u64::from(llc.ways);
    let shape = CacheShape { size: (known / unit).max(1) * unit, ..llc };
    t.section("[llc]");
    let share = "measured on this host: what chases find there; others use it, too";
    match known < llc.size {
        true => t.before("size", &shape.size.to_string(), share),
        false => t.constant("size", &shape.size.to_string(), "outside", KERNEL),
    }
    match llc.ways_known {
        true => t.constant("ways", &llc.ways.to_string(), "outside", KERNEL),
        false => t.guess("ways", &llc.ways.to_string(), "the kernel does not know"),
    }
    t.measured("latency", places.llc);
    t.measured("line", computer.lines.read_cached);
    // Other policies here have lost all of it by then.
    match places.kept.filter(|_| llc.ways <= MAX_AGES) {
        Some(kept) if kept > 0.5 => {
            let through = "measured on this host: lines used again stay while twice as many as it \
                           has are read in a row; the law: A. Jaleel et al., High Performance \
                           Cache Replacement Using Re-Reference Interval Prediction (RRIP), ISCA \
                           2010";
            t.before("policy", "\"rrip\"", through);
        }
        _ => t.guess("policy", "\"lru\"", "not published"),
    }
    t.guess("inclusion", "\"victim\"", "what recent server parts do");
    last_level_index(t, computer, values);
}

/// Small pages of a hypervisor spread lines over all sets, whatever the index is.
fn last_level_index(t: &mut Text, computer: &Computer, values: &Values) {
    let places = &computer.places;
    if let Some(step) = places.one_set.filter(|_| values.nested != Some("4K")) {
        let plain = step.ns > (places.llc.ns + places.memory.ns) / 2.0;
        let chase = "measured on this host: a chase through lines at the stride of its sets";
        return t.before("index", if plain { "\"modulo\"" } else { "\"hash\"" }, chase);
    }
    let hash = "C. Maurice et al., Reverse Engineering Intel Last-Level Cache Complex Addressing \
                Using Performance Counters, RAID 2015; other vendors' servers hash as well";
    let is_intel = computer.topology.model.contains("Intel");
    t.constant("index", "\"hash\"", if is_intel { "outside" } else { "guess" }, hash);
}
