//! The sentences around the figures. Every sentence that judges is chosen by the figures it speaks
//! of.

use super::price::Price;
use super::published::{ALLOC, CHANGES, FUNCTIONS, difference, is_noise};
use super::shapes::disciplines::Visits;
use super::sim::{PRICED, RUNS, SAVES, SHARE, Shapes, Taken, share};
use crate::report::number::grouped;
use crate::repro::context::Context;
use crate::repro::page::Page;

/// The page without its tables and statements.
pub fn page(context: &Context<'_>, taken: &Taken) -> Page {
    let counted = |run: usize| taken.prices.runs[run][0][0].calls;
    let calls = taken.compiled.published[0].calls;
    Page {
        name: "cursor",
        title: "Cursors through page allocation".into(),
        on: format!("{}, simulated, seed {}", context.machine.name, context.seed),
        asked: vec![
            "The pages of an object are in a trie. A page fault that allocates one searched that \
             trie three times from the root: for the page, for the page before it, and for the \
             place to insert. FreeBSD changed this in 2025: a cursor remembers where the lookup \
             has failed. First it was used in loops that take many pages (M1), then in the page \
             fault (M2). What does each change save?"
                .into(),
        ],
        run: vec![
            format!(
                "traces/compile.vt, one compilation by GCC's cc1, {RUNS} times: every memory call \
                 and first touch, {} pages allocated. As objects: each anonymous mapping is one, \
                 and each file, whose pages are allocated in the first run alone, when they are \
                 first touched. A write to a private file's page allocates another. The published \
                 load is a build of a system, eight times.",
                grouped(calls as i64),
            ),
            "Root: three searches from the root. Grabs: a cursor in loops that take many pages, of \
             which a compilation has none. Faults: one search; the page before is searched from \
             where that has failed, and the insertion visits nothing. The published shape is a \
             counting model with 16 slots a node (152 bytes); unit tests hold it against a sorted \
             map and the measured bytes an entry (10.1 dense, 20.3 at a distance of 512). Our \
             shape is the library's trie, with a second lookup under the guard in place of the \
             search for the page before; its climbs are among its visits."
                .into(),
            format!(
                "Cycles: the compiler's accesses of two runs go through the simulated caches, and \
                 so do the lines of visited nodes and the clearing of new pages. A visited line \
                 costs the latency of the level that has it. Only calls in the recorder's windows \
                 count, {} of the first run and {} of the second, with 100,000 lines in a row \
                 before them; with 200,000 the cycles saved differ by {:.1} %. Nothing else of a \
                 kernel is in the caches, and a mispredicted branch costs nothing.",
                counted(0),
                counted(1),
                100.0 * warmer(taken),
            ),
            "The mix is invented: 0.18 % of its calls take 16 pages (the share is published), \
             objects have 1 to 65,536 pages, 70 % of them are filled upwards, 10 % downwards, 10 \
             % at a distance of 16 pages, 10 % at random."
                .into(),
        ],
        out: out(taken),
        means: vec![
            "What the fault does decides, not the loops: a compiler's pages come one by one. The \
             cursor takes the searches after the first one away; the first stays, since each fault \
             begins at the root."
                .into(),
            format!(
                "That search has just brought the lines which the others read. At the price of the \
                 first level what is saved comes to {:.0} % of its price by the caches, so the \
                 computer hardly matters.",
                100.0 * taken.prices.saved_by(PRICED - 1, 0) / taken.prices.saved(PRICED - 1)
            ),
        ],
        limits: limits(taken),
        ..Page::default()
    }
}

/// How much the saved cycles differ if calls are twice as warm, as a share.
fn warmer(taken: &Taken) -> f64 {
    let saved = |warm: usize| {
        let [root, faults] = &taken.prices.runs[PRICED - 1];
        let cycles = |price: &Price| price.cycles(taken.prices.latencies);
        cycles(&root[warm]) - cycles(&faults[warm])
    };
    (saved(1) / saved(0) - 1.0).abs()
}

fn out(taken: &Taken) -> Vec<String> {
    let band = |value: f64, [low, high]: [f64; 2]| match value {
        v if v < low => "short of",
        v if v > high => "above",
        _ => "inside",
    };
    let nodes = |whose: &str, shapes: &Shapes| {
        let of =
            |visits: &[Visits; 3]| format!("{:.1} % in the published shape", Shapes::saved(visits));
        format!(
            "{whose} the cursor in the fault saves {} and {:.1} % in ours.",
            of(&shapes.published),
            Shapes::saved(&shapes.ours)
        )
    };
    let least = Shapes::saved(&taken.compiled.published).min(Shapes::saved(&taken.compiled.ours));
    let (prices, last) = (&taken.prices, PRICED - 1);
    let cached = prices.saved(last);
    let [off, on] = taken.faults.objects;
    vec![
        format!(
            "{} Predicted were at least {} % in both shapes: {}.",
            nodes("Of the nodes that a call visits", &taken.compiled),
            SAVES[0],
            if least >= SAVES[0] { "it holds" } else { "it does not hold" },
        ),
        nodes("In the invented mix", &taken.mixed),
        format!(
            "Lines that are not read again save {cached:.0} cycles a call by the simulated caches \
             ({:.0} with cold files), {:.0} if all are in the first level, {:.0} if all are in \
             memory, which is more than the call took. By the caches that is {:.1} % of the \
             published {ALLOC:.0}, {} the {} to {} % that were predicted; 7.97 % were measured.",
            prices.saved(0),
            prices.saved_by(last, 0),
            prices.saved_by(last, 3),
            share(cached),
            band(share(cached), SHARE),
            SHARE[0],
            SHARE[1],
        ),
        noise(),
        format!(
            "The library's own faults on pages of objects visit {off:.2} nodes with \
             alloc.cursor=off and {on:.2} with on, {:.1} % fewer.",
            100.0 * (1.0 - on / off)
        ),
    ]
}

/// The rule for published differences, and what it says of each.
fn noise() -> String {
    let mut said = Vec::new();
    for function in &FUNCTIONS {
        for (change, after) in CHANGES.iter().zip(&function.after) {
            let found = difference(&function.before, after);
            let verdict = if is_noise(found) { "noise" } else { "no noise" };
            let errors = found[0] / found[1];
            said.push(format!("{} {change} {errors:+.1} ({verdict})", function.name));
        }
    }
    format!(
        "Published differences of runs 2 to 8, in their standard errors; below three is noise: {}. \
         M1 was predicted to change nothing of alloc, since 0.2 % of the calls are in loops.",
        said.join(", ")
    )
}

fn limits(taken: &Taken) -> Vec<String> {
    vec![
        format!(
            "Private memory has no trie in this library: its faults visit {} nodes, and a cursor \
             saves nothing. The compiler's own memory is of that kind; only what is mapped from \
             objects gains.",
            taken.faults.private[1]
        ),
        "The machine of the posting is unknown, so the page is there for two machines, between two \
         bounds. The measured difference (124 cycles) and M2's figures go into nothing. Absolute \
         cycles are not claimed: what else the allocation does is not modelled. A search that is \
         not made saves instructions and mispredicted branches, too; the price leaves those out."
            .into(),
        "A trace does not name files: an image of several parts counts as one, another mapping as \
         a file of its own. Nothing is read ahead. A compilation without optimisation stands for \
         a build; only its main process was recorded. Calls per page of the other three functions \
         are not published, so nothing is predicted of them."
            .into(),
    ]
}
