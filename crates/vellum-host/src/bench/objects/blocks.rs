//! Blocks of 2 MiB of objects, beside huge pages of Linux's shared memory.
//!
//! Both sides ask for huge pages by advice on a mapping, clear what they make, copy what they
//! collapse, and touch it once afterwards, so that a leaf of 2 MiB maps it. The floor is clearing,
//! or copying, alone. Linux is asked by
//! `MADV_HUGEPAGE` and by `MADV_COLLAPSE`, which needs no setting. Where it has no huge page for
//! the one or the other a row has no figure of Linux, and a note says why: pages of 4 KiB are
//! another thing.

use std::io;

use vellum::addr::{Order, Pfn, Va};
use vellum::machine::{Machine, Stores, Use};
use vellum::space::{Access, Advice, Attrs, HugeAdvice, Placement, Space};
use vellum::stats::Counter;
use vellum::unstable::AllocRequest;
use vellum::vm::{Object, ObjectPart};

use super::{BareVm, boot, linux_blocks};
use crate::bench::fixture::{HUGE, PAGE, Pages, area, attrs, fault_all, unmap};
use crate::bench::linux::NAME;
use crate::bench::measure::table::Table;
use crate::bench::measure::{Effort, Timed, alone, conditions, time, timed};

const MADE: &str = "objects/block-write-fault, made";
const THERE: &str = "objects/block-write-fault, there";
const CUT: &str = "objects/truncate-block";
const COLLAPSED: &str = "objects/collapse-512-pages";

/// The rows, in the order of the figures of a turn.
const ROWS: [&str; 4] = [MADE, THERE, CUT, COLLAPSED];

/// What is measured: acts on one machine.
struct Turn<'a> {
    host: &'a BareVm,
    space: &'a Space,
    bytes: u64,
}

impl Turn<'_> {
    fn map(&self, object: &Object, at: Va, thp: Option<HugeAdvice>) {
        let attrs = Attrs { thp, ..attrs(true) };
        let (at, part) = (Placement::At(at), ObjectPart { object, offset: 0 });
        let done = self.host.vm.map_object(self.space, at, self.bytes, attrs, part);
        done.expect("an empty range and memory enough");
    }
    fn unmap(&self, at: Va) {
        unmap(&self.host.vm, self.space, at, self.bytes);
    }
    /// A write fault on each block, or on each page.
    fn fault(&self, at: Va, huge: bool) {
        let pages = Pages::new(at, self.bytes, huge);
        fault_all(&self.host.vm, self.space, pages, Access::Write);
    }
    fn blocks(&self) -> u64 {
        self.bytes / HUGE
    }

    /// Leaves of 2 MiB that faults have stored, over all.
    fn leaves(&self) -> u64 {
        self.host.vm.stats().get(Counter::ThpFileMapped) as u64
    }

    /// Blocks made, mapped once more, and cut off.
    fn blocks_come_and_go(&self, object: &Object) -> [Timed; 3] {
        let (objects, before) = (self.host.vm.objects(), self.leaves());
        let touch = |at| {
            self.map(object, at, Some(HugeAdvice::Huge));
            timed(self.blocks(), || self.fault(at, true))
        };
        let (made, there) = (touch(area(0)), touch(area(1)));
        assert_eq!(objects.usage(object).huge_pages, self.blocks());
        assert_eq!(self.leaves() - before, 2 * self.blocks());
        self.unmap(area(0));
        self.unmap(area(1));
        let cut = timed(self.blocks(), || objects.resize(object, 0).expect("no seal"));
        [made, there, cut]
    }

    /// Pages of 4 KiB become blocks, and each of those is touched.
    fn collapse(&self, object: &Object) -> Timed {
        let (vm, before) = (&self.host.vm, self.leaves());
        self.map(object, area(0), None);
        self.fault(area(0), false);
        assert_eq!(vm.objects().usage(object).huge_pages, 0);
        let took = timed(self.blocks(), || {
            let done = vm.advise(self.space, area(0), self.bytes, Advice::Collapse);
            done.expect("memory for blocks");
            self.fault(area(0), true);
        });
        assert_eq!(vm.objects().usage(object).huge_pages, self.blocks());
        assert_eq!(self.leaves() - before, self.blocks());
        self.unmap(area(0));
        took
    }

    /// Clearing and copying alone, by the faster kind of stores, over as many blocks as the faults
    /// go through, so that they are as cold. Pages are copied one at a time, as they may lie
    /// anywhere.
    fn floors(&self) -> [f64; 2] {
        let (m, frames) = (self.host.vm.machine(), self.host.vm.frames());
        let want = AllocRequest::kernel(Use::Data);
        let take = |_| frames.alloc(m, Order::HUGE, &want).expect("nothing else has memory now");
        let all: Vec<Pfn> = (0..2 * self.blocks()).map(take).collect();
        let (to, from) = all.split_at(all.len() / 2);
        let timed = |act: &dyn Fn(Pfn, Pfn)| {
            time(self.blocks(), || {
                to.iter().zip(from).for_each(|(&to, &from)| act(to, from));
                m.store_fence();
            })
        };
        let pages = HUGE / PAGE;
        // Those past the caches come first: they would have to drive out what the others left.
        let [first, second] = [Stores::NonTemporal, Stores::Cached].map(|stores| {
            let copy = timed(&|to, from| {
                for n in 0..pages {
                    // SAFETY: both blocks were had above, are two, and nobody else knows them.
                    unsafe { m.copy_run(to.add(n), from.add(n), 1, stores, Va(0)) };
                }
            });
            // SAFETY: as above.
            let clear = timed(&|to, _| unsafe { m.clear_run(to, pages, stores, Va(0)) });
            [clear, copy]
        });
        for block in all {
            // SAFETY: had above, and mapped by nobody.
            unsafe { frames.free(m, block, Order::HUGE) };
        }
        [first[0].min(second[0]), first[1].min(second[1])]
    }

    /// All acts, in the order of [`ROWS`].
    fn all(&self) -> [Timed; 4] {
        let objects = self.host.vm.objects();
        let object = objects.create(self.bytes).expect("memory for an object");
        let [made, there, cut] = self.blocks_come_and_go(&object);
        objects.resize(&object, self.bytes).expect("no seal");
        let collapsed = self.collapse(&object);
        objects.discard(object);
        [made, there, cut, collapsed]
    }
}

/// How often Linux had no figure for a row, and why.
#[derive(Default)]
struct Missing {
    turns: usize,
    rows: [usize; 4],
    refused: Option<io::Error>,
}

impl Missing {
    /// Why the row that is the `n`th has fewer figures of Linux than turns, or none.
    fn why(&self, n: usize) -> String {
        let setting = || match conditions::shared_huge_setting() {
            Some(word) => format!("its shmem_enabled is `{word}`"),
            None => "it does not tell its shmem_enabled".to_owned(),
        };
        match (ROWS[n], &self.refused) {
            (MADE, _) => format!("took no huge pages for MADV_HUGEPAGE; {}", setting()),
            (COLLAPSED, Some(why)) => format!("did no MADV_COLLAPSE: {why}"),
            (_, Some(_)) => "had no huge page of shared memory".to_owned(),
            _ => "mapped huge pages by pages of 4 KiB".to_owned(),
        }
    }
    fn notes(&self) -> impl Iterator<Item = String> {
        let missing = self.rows.iter().enumerate().filter(|(_, missing)| **missing > 0);
        missing.map(|(n, &missing)| {
            let row = ROWS[n].trim_start_matches("objects/");
            let often = if missing == self.turns {
                "no figure of Linux, which".to_owned()
            } else {
                format!("in {missing} of {} turns Linux", self.turns)
            };
            format!("{row}: {often} {}", self.why(n))
        })
    }
}

/// Microseconds for each 2 MiB, of ours and of Linux in turn.
pub(super) fn run(effort: Effort, table: &mut Table, notes: &mut Vec<String>) -> io::Result<()> {
    let host = boot(1, true)?;
    let space = {
        let _cpu = host.vm.machine().bind(0);
        host.vm.create().map_err(io::Error::other)?
    };
    let turn = Turn { host: &host, space: &space, bytes: (64 << 20) / effort.shrink.min(32) };
    let mut missing = Missing::default();
    for repetition in 0..=effort.repetitions {
        if repetition > 1 && (effort.stop)() {
            break;
        }
        let (ours, [clear, copy]) = alone(|| {
            let _cpu = host.vm.machine().bind(0);
            host.vm.activate(&space);
            let found = turn.all();
            host.vm.deactivate();
            (found, turn.floors())
        });
        let linux = alone(|| linux_blocks::turn(turn.bytes))?;
        if repetition == 0 {
            continue;
        }
        missing.turns += 1;
        missing.refused = linux.refused.or(missing.refused);
        for (n, (ours, theirs)) in ours.into_iter().zip(linux.each).enumerate() {
            table.add_timed(ROWS[n], 1, "us", ours);
            match theirs {
                Some(each) => table.peer(ROWS[n], 1, NAME, each / 1000.0),
                None => missing.rows[n] += 1,
            }
        }
        table.floor(MADE, 1, clear / 1000.0);
        table.floor(COLLAPSED, 1, copy / 1000.0);
    }
    notes.extend(missing.notes());
    let _cpu = host.vm.machine().bind(0);
    host.vm.exit(space);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_beside_linux_or_a_note_says_why_not() {
        let (mut table, mut notes) = (Table::default(), Vec::new());
        run(Effort::QUICK, &mut table, &mut notes).unwrap();
        let rows = table.report().benchmarks;
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ROWS);
        for row in rows {
            let is_told = notes.iter().any(|n| n.starts_with(&row.name["objects/".len()..]));
            assert!(row.ours > 0.0 && row.unit == "us", "{row:?}");
            assert_eq!(row.peers.contains_key(NAME), !is_told, "{row:?} {notes:?}");
            assert_eq!(
                row.floor.is_some(),
                [MADE, COLLAPSED].contains(&row.name.as_str()),
                "{row:?}"
            );
        }
    }

    #[test]
    fn what_linux_refuses_is_said_with_its_reason() {
        let no = io::Error::from_raw_os_error(libc::EINVAL);
        let all = Missing { turns: 3, rows: [3, 3, 3, 3], refused: Some(no) };
        let said: Vec<String> = all.notes().collect();
        assert!(said[0].contains("no figure of Linux") && said[0].contains("shmem_enabled"));
        assert!(said[1].contains("had no huge page") && said[2].contains("had no huge page"));
        assert!(said[3].contains("MADV_COLLAPSE") && said[3].contains("Invalid argument"));
        let one = Missing { turns: 3, rows: [0, 1, 0, 0], refused: None };
        let said: Vec<String> = one.notes().collect();
        assert_eq!(
            said,
            ["block-write-fault, there: in 1 of 3 turns Linux mapped huge pages by \
                           pages of 4 KiB"]
        );
    }
}
