//! Published figures, and the sentences around ours. Every sentence that judges is chosen by the
//! figures it speaks of.

use super::loops::{Each, HALF, LINES, PAGES, Taken};
use super::sim::{Resident, moved};
use crate::repro::context::Context;
use crate::repro::page::{Page, Pair};

/// Comparisons of benchmark 2 in the posting: 1000 loops of 4 GiB by pages.
const TWO: f64 = 1000.0 * 1_048_576.0;
/// Pairs of lines of benchmark 1: 100 loops.
const ONE: f64 = 100.0 * 67_108_864.0;

/// Published figures of each table's first rows, huge page of zeros and tables of their own.
pub const PUBLISHED: [&[Pair]; 4] = [
    &[
        [Some(8_318_482_466.0 / TWO), Some(64_747_374_606.0 / TWO)],
        [Some(4_266_538.0 / TWO), Some(2_098_967_427.0 / TWO)],
        [Some(1_048_710_998.0 / TWO), Some(271_374_358.0 / TWO)],
        [Some(1_047_699_685.0 / TWO), Some(20_385_476.0 / TWO)],
    ],
    &[[Some(76_712_481_765.0 / ONE), Some(71_964_773_660.0 / ONE)]],
    &[],
    &[[Some(200.0), Some(0.4)], [Some(2.5), None]],
];
/// Bands of what benchmark 1 may save by tables, in hundredths.
pub const SAVES: [f64; 2] = [3.0, 10.0];

/// How many of the page's cycles a form saves, in hundredths.
pub fn saved(taken: &[Taken], form: usize) -> f64 {
    100.0 * (1.0 - taken[form].all.cycles / taken[0].all.cycles)
}

/// The page without its tables and statements.
pub fn page(
    context: &Context<'_>,
    [lines, pages]: [&[Taken]; 2],
    resident: &Resident,
    checked: u64,
) -> Page {
    let ratio = |taken: &[Taken], form: usize| taken[form].all.cycles / taken[0].all.cycles;
    let doubled =
        [lines, pages].map(|t| t[1..].iter().map(|other| moved(&t[0], other)).fold(0.0, f64::max));
    let factor = |b: super::loops::Benchmark| b.published_loops / b.loops;
    let less = saved(lines, 1);
    let fetches_ahead = match context.machine.prefetcher() {
        None => "The model has no hardware prefetcher",
        Some(_) => "The model's prefetcher follows the program, and not walks",
    };
    let transform = |load: usize, column: usize| {
        let pages = &resident.loads[load];
        pages[column] as f64 / pages[0] as f64
    };
    let tables = |taken: &Taken| taken.usage.table_nodes;
    let alike =
        resident.loads.iter().chain([&resident.read]).all(|l| l[2..].iter().all(|&p| p == l[2]));
    Page {
        name: "hugezero",
        title: "Huge pages of zeros".into(),
        on: format!("{}, simulated, seed {}", context.machine.name, context.seed),
        asked: vec![
            "Memory that was only read needs no memory: a small page of zeros serves all of it. \
             With huge pages such a read used to take 2 MiB. Two remedies were measured in 2012: \
             one shared huge page of zeros (it was merged), or a table of its own for each 2 MiB \
             that names the small page 512 times. What do they save, and which is faster to read \
             through?"
                .into(),
        ],
        run: vec![
            format!(
                "{} GiB of untouched memory, read once. Benchmark 1 compares its halves line by \
                 line, benchmark 2 a byte of each page; instructions beside the loads as counted \
                 in the posting. Loops are 1/{} (benchmark 1) and 1/{} (benchmark 2) of the \
                 published ones; twice as many moves no ratio by more than {:.2} % and {:.2} %. \
                 Before counting, every page has been read once. The oracle compared {} TLB \
                 hits.",
                HALF >> 29,
                factor(LINES),
                factor(PAGES),
                doubled[0] * 100.0,
                doubled[1] * 100.0,
                crate::report::number::grouped(checked as i64),
            ),
            "Nothing here is drawn at random, so another seed gives the same figures: caches and \
             TLBs have fixed rules, and one CPU runs alone."
                .into(),
            "For memory: one byte of each 4 KiB of 200 MiB is read; and a transform in three \
             dimensions after the one the posting names (NAS ft, class A: arrays of 256 x 256 x \
             128 complex numbers, 128 MiB). Which of its reads found untouched memory is not \
             published, so this one was built from the reason: part of the first of three arrays \
             is initialised, planes that are zero are transformed to nothing and not written, the \
             third array is written whole."
                .into(),
        ],
        out: vec![
            format!(
                "Benchmark 2 takes {:.2} times as long by tables ({:.2} published): {}.",
                ratio(pages, 1),
                64_747_374_606.0 / 8_318_482_466.0,
                of_walks(&pages[0].all, &pages[1].all),
            ),
            format!(
                "Benchmark 1 takes {less:.1} % fewer cycles by tables (6.2 % published; {} of the \
                 {} to {} % asked for).",
                if less < SAVES[0] {
                    "short"
                } else if less > SAVES[1] {
                    "more than the end"
                } else {
                    "inside"
                },
                SAVES[0],
                SAVES[1],
            ),
            format!(
                "The library's one table for all costs {} tables where tables of their own cost \
                 {}; benchmark 2 takes {:.2} times as long as by the page, benchmark 1 {:.1} % \
                 fewer cycles.",
                tables(&pages[2]),
                crate::report::number::grouped(tables(&pages[1]) as i64),
                ratio(pages, 2),
                saved(lines, 2),
            ),
            format!(
                "200 MiB read leave {} pages with the program, where thp=always left {}. With an \
                 eighth of the planes initialised a transform takes {:.2} times the memory of \
                 thp=never with thp=always, {:.2} times with huge zeros{}.",
                resident.read[2],
                crate::report::number::grouped(resident.read[1] as i64),
                transform(0, 1),
                transform(0, 2),
                if alike { ", whatever their form" } else { " by the page; other forms differ" },
            ),
        ],
        means: vec![
            "Huge zeros take away a cost that huge pages brought with them; they make nothing \
             faster that was not slow by that. The page is the right form for reads far apart, \
             where each 4 KiB would walk; tables are for reads side by side, whose zeros then \
             stay in the first-level cache."
                .into(),
        ],
        limits: vec![
            format!(
                "What is written anyway gains nothing: {:.2} times the memory of thp=never with \
                 all planes initialised, and one fault more for each 2 MiB that was read before. \
                 Writes far apart still take 2 MiB each: {:.2} times with every 8th plane, where \
                 thp=always takes {:.2}.",
                transform(2, 2),
                transform(3, 2),
                transform(3, 1),
            ),
            "How many planes are initialised is our choice, and it decides the figure: read the \
             rows below each other. Reads far apart by tables walk for each 4 KiB; dense reads by \
             the page pass 2 MiB of zeros through the caches."
                .into(),
            format!(
                "{fetches_ahead}: {:.2} reads of the LLC a comparison by \
                 tables ({:.2} published) are lines of the tables themselves, read in order, \
                 which that core's second level fetches ahead: with it walks would cost less, and \
                 so would dense reads by the page. How memcmp was written is not published: 4 \
                 loads of 16 bytes a line are assumed.",
                pages[1].all.llc,
                20_385_476.0 / TWO,
            ),
        ],
        ..Page::default()
    }
}

/// What the walks of a comparison have to do with it.
fn of_walks(page: &Each, tables: &Each) -> String {
    let more = tables.walks - page.walks;
    // A machine that keeps huge pages in pieces walks for both.
    if more < 0.5 {
        return format!(
            "by the page {:.1} loads walk here, by tables {:.1}, so that tables save lines of \
             zeros and pay for their own",
            page.walks, tables.walks
        );
    }
    let cycles = (tables.cycles - page.cycles) / more;
    format!("every load walks, and a walk costs {cycles:.1} cycles here, 26.9 there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_has_a_price_only_where_tables_have_more_of_them() {
        let each = |walks, cycles| Each { walks, cycles, ..Each::default() };
        let more = of_walks(&each(0.004, 8.0), &each(2.004, 60.0));
        assert!(more.contains("a walk costs 26.0 cycles here"), "{more}");
        let same = of_walks(&each(2.0, 23.5), &each(2.0, 51.9));
        assert!(same.contains("by the page 2.0 loads walk here, by tables 2.0"), "{same}");
        assert!(!same.contains("inf"));
    }
}
