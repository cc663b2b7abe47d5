//! A run: the library on the small machine, beside the model, with every answer compared.
//!
//! `verbs` changes mappings, `bytes` contents; `objects` has what is done to objects themselves;
//! `whole` has forks, exits and frames. A verb may return and change what its documentation says
//! and no more: an error leaves everything as it was, except where the documentation says
//! otherwise.

mod bytes;
mod frames;
mod objects;
mod verbs;
mod whole;

use std::fmt;
use std::ops::Range;

use vellum::addr::{Level, Order, Pfn, Va};
use vellum::entry::Codec;
use vellum::error::{FaultError, RangeError, SpaceError};
use vellum::machine::Use;
use vellum::space::{Access, Attrs, LeafSize, Page, Space};
use vellum::vm::Vm;

use crate::command::{CPUS, Command, OBJECTS, Operation, PageSpot, Stretch};
use crate::model::{Cell, Page as Behind, Pages};
use crate::setting::Setting;
use crate::small::{Contents, Small};
use objects::{Objects, Part};

/// What a run did. Printed, so that "nothing failed" can be told from "nothing happened".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Commands.
    pub operations: u64,
    /// Four-byte words compared with what they had to be, and pages of sixteen bytes.
    pub compared: u64,
    /// Pages of objects that an access of a program, or of the kernel for one, has reached.
    pub shared: u64,
    /// Faults handed to the library.
    pub faults: u64,
    /// Times everything was recounted.
    pub recounts: u64,
    /// Answers that memory ran out.
    pub refused: u64,
}

impl Outcome {
    /// Both together.
    pub fn add(&mut self, other: Outcome) {
        self.operations += other.operations;
        self.compared += other.compared;
        self.shared += other.shared;
        self.faults += other.faults;
        self.recounts += other.recounts;
        self.refused += other.refused;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} words compared, {} pages of objects reached, {} faults, {} refused \
             for memory, {} recounts",
            self.operations, self.compared, self.shared, self.faults, self.refused, self.recounts
        )
    }
}

/// A space, what it should be, and the mappings that the library placed: first page and pages.
struct Side {
    space: Space,
    pages: Pages,
    strays: Vec<(u64, u64)>,
    /// Tells it from every other of the run.
    name: u64,
}

/// The run.
pub struct Play<'v, C: Codec> {
    vm: &'v Vm<Small<C>>,
    scarce: bool,
    sides: Vec<Side>,
    /// Spaces made so far.
    made: u64,
    /// The name of the space each CPU runs.
    runs: [Option<u64>; CPUS],
    /// Pages each CPU looked at last, with the space's name.
    last: [Vec<(u64, u64)>; CPUS],
    blocks: Vec<(Pfn, Order)>,
    objects: Objects,
    stamp: u32,
    outcome: Outcome,
}

/// A stretch's pages, and its start and length in bytes, which a skew moves off them.
struct Skewed {
    range: Range<u64>,
    start: Va,
    bytes: u64,
}

impl<'v, C: Codec> Play<'v, C> {
    /// A run with one empty space.
    ///
    /// # Panics
    /// If there is no memory for one.
    pub fn new(vm: &'v Vm<Small<C>>, setting: &Setting) -> Play<'v, C> {
        let mut play = Play {
            vm,
            scarce: setting.scarce,
            sides: Vec::new(),
            made: 0,
            runs: [None; CPUS],
            last: Default::default(),
            blocks: Vec::new(),
            objects: Objects::default(),
            stamp: 0,
            outcome: Outcome::default(),
        };
        let space = vm.create().expect("memory for one space");
        play.add_side(space, Pages::default(), Vec::new());
        play
    }

    /// Does a command.
    ///
    /// # Panics
    /// If what comes of it is not what the model says.
    pub fn step(&mut self, command: Command) {
        self.outcome.operations += 1;
        let cpu = command.cpu as usize % CPUS;
        self.vm.machine().run_on(cpu);
        let n = command.side as usize % self.sides.len();
        match command.act {
            Operation::Map(to, range, rights, thp, exactly) => {
                let leaf = if exactly { LeafSize::Exactly(Order::HUGE) } else { LeafSize::Policy };
                self.map(n, to, range, Attrs { rights, thp, numa: None, leaf }, None)
            }
            Operation::MapObject(to, range, attrs, (slot, offset), private) => {
                if let Some(slot) = self.object(slot) {
                    self.map(n, to, range, attrs, Some(Part { slot, offset, private }));
                }
            }
            Operation::ReadObject(slot, spot, bytes) => self.read_object(slot, spot, bytes),
            Operation::WriteObject(slot, spot, bytes) => self.write_object(slot, spot, bytes),
            Operation::Resize(slot, spot) => self.resize(slot, spot),
            Operation::Back(slot, spot, pages) => self.back(slot, spot, pages),
            Operation::Block(slot, spot, joins) => self.block(slot, spot, joins),
            Operation::Punch(slot, spot, bytes) => self.punch(slot, spot, bytes),
            Operation::Seek(slot, spot) => self.seek(slot, spot),
            Operation::Seal(slot, seals) => self.seal(slot, seals),
            Operation::Discard(slot) => self.discard(slot),
            Operation::Sync(slot, spot, bytes) => self.sync(slot, spot, bytes),
            Operation::Evict(slot, spot, bytes) => self.evict(slot, spot, bytes),
            Operation::WriteBack(slot, spot, bytes) => self.write_back(slot, spot, bytes),
            Operation::WillNeed(slot, spot, bytes) => self.will_need(slot, spot, bytes),
            Operation::Pattern(slot, pattern) => self.pattern(slot, pattern),
            Operation::Grab(slot, spot, pages) => self.grab(slot, spot, pages),
            Operation::Invalidate(slot, spot, bytes) => self.invalidate(slot, spot, bytes),
            Operation::Harvest(slot, spot, room) => self.harvest(slot, spot, room),
            Operation::Fail(reads, writes) => self.fail(reads, writes),
            Operation::Unmap(range) => self.unmap(n, range),
            Operation::Protect(range, rights) => self.protect(n, range, rights),
            Operation::Remap(range, to, pages) => self.remap(n, range, to, pages),
            Operation::Advise(range, advice) => self.advise(n, range, advice),
            Operation::Access(spot, near, access, sample) => {
                let n = self.running(cpu, n);
                let page = self.near(n, spot, near);
                self.access(cpu, n, page, access, sample as usize)
            }
            Operation::Again(ago, access) => self.again(cpu, ago as usize, access),
            Operation::CopyIn(spot, start, bytes) => self.copy_in(n, spot, start, bytes, false),
            Operation::Force(spot, start, bytes) => self.copy_in(n, spot, start, bytes, true),
            Operation::CopyOut(spot, start, bytes) => self.copy_out(n, spot, start, bytes),
            Operation::Query(spot) => self.query(n, spot),
            Operation::Fork => self.fork(n),
            Operation::Exit(fresh) => self.exit(n, fresh),
            Operation::Switch(into) => self.switch(cpu, into.then_some(n)),
            Operation::Take(order) => self.take(order),
            Operation::Give(which) => self.give(which as usize),
            Operation::Poison(spot) => self.poison(n, spot),
            Operation::Device => self.device(n),
            Operation::Forbid => self.vm.forbid_zeros(&self.sides[n].space),
            Operation::Shrink => {
                self.vm.shrink_zeros();
            }
            Operation::Drain => {
                self.vm.frames().drain(self.vm.machine());
            }
        }
    }

    /// What the run did so far.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The library recounts everything it keeps; what nobody accounts for are the blocks that were
    /// taken.
    ///
    /// # Panics
    /// If that is not so.
    pub fn recount(&mut self) {
        let spaces: Vec<&Space> = self.sides.iter().map(|side| &side.space).collect();
        // SAFETY: one thread, between two operations.
        let audit =
            unsafe { self.vm.validate(&spaces) }.unwrap_or_else(|e| panic!("validate: {e}"));
        let taken: u64 = self.blocks.iter().map(|(_, order)| order.frames()).sum();
        assert_eq!(audit.other_frames, taken, "frames in use that nobody has");
        let mapped: u64 = self.sides.iter().map(|side| side.pages.len()).sum();
        assert_eq!(audit.usage.mapped_pages, mapped, "pages mapped");
        self.count_objects(audit.object_frames);
        self.outcome.recounts += 1;
    }

    /// Every page of every space is what the model says.
    ///
    /// # Panics
    /// If one is not.
    pub fn compare(&mut self) {
        for side in &self.sides {
            for chunk in side.pages.chunks() {
                if side.pages.count(chunk..chunk + 512) == 512
                    && chunk & 511 == 0
                    && self.is_one_reserved_range(side, chunk)
                {
                    continue;
                }
                for page in chunk..chunk + 512 {
                    self.outcome.compared += 1;
                    self.page_is(side, page);
                }
            }
        }
        let compared = self.compare_objects();
        self.outcome.compared += compared;
    }

    /// A whole untouched 2 MiB needs no look at each page: it is 512 zero pages of equal rights on
    /// both sides.
    fn is_one_reserved_range(&self, side: &Side, chunk: u64) -> bool {
        let Some(first) = side.pages.get(chunk) else { return false };
        let plain = first.page == Behind::ZERO
            && !side.pages.any(chunk..chunk + 512, |cell| *cell != first);
        let reserved = |page: u64| {
            self.vm.query(&side.space, Va(page << 12)) == Page::Reserved { rights: first.rights }
        };
        plain && [0, 1, 255, 511].into_iter().all(|n| reserved(chunk + n))
    }

    fn page_is(&self, side: &Side, page: u64) {
        let seen = self.vm.query(&side.space, Va(page << 12));
        let cell = side.pages.get(page);
        let holds = |bytes| self.contents(page, seen) == Some(bytes);
        let fits = match (seen, cell.map(|cell| (cell.rights, cell.page))) {
            (Page::Unmapped, None) => true,
            (Page::Reserved { rights }, Some((given, Behind::Own(bytes)))) => {
                rights == given && bytes == Contents::default()
            }
            (Page::Mapped { rights, flags, .. }, Some((given, own))) if own.own().is_some() => {
                let allowed = !flags.write || given.write;
                rights == given && allowed && own.own().is_some_and(holds)
            }
            (Page::Inaccessible { .. }, Some((given, own))) => {
                given.is_none() && own.own().is_some_and(holds)
            }
            // The object has the page, mapped here or not.
            (Page::Reserved { rights }, Some((given, of))) => {
                rights == given && of.shows().is_some()
            }
            (Page::Mapped { rights, flags, level, .. }, Some((given, of))) => {
                let writes = given.write && matches!(of, Behind::Object(..));
                // The first write to a page may have to be noticed.
                let noted = self.objects.of(of).is_some_and(|(object, _)| object.notes_writes());
                let right = flags.write == writes || noted && !flags.write;
                let allowed = right && !given.is_none();
                let there = self.objects.of(of).is_some_and(|(object, index)| {
                    object.may_have(index) && holds(object.contents(index))
                });
                let sized = level == Level::ONE
                    || level == Level::TWO
                        && self.objects.of(of).is_some_and(|(object, _)| object.has_blocks())
                        && !(noted && flags.write);
                rights == given && sized && allowed && there
            }
            _ => false,
        };
        assert!(
            fits,
            "page {page:#x} is {seen:?} with {:?}, wanted {cell:?} with {:?}",
            self.contents(page, seen),
            cell.map(|cell| self.known(cell)),
        );
    }

    /// What the model has behind a page.
    fn known(&self, cell: Cell) -> Contents {
        let shown = || self.objects.of(cell.page).map(|(object, index)| object.contents(index));
        cell.page.own().or_else(shown).unwrap_or_default()
    }

    /// What an access to a page finds there, or gets.
    fn found(&self, cell: Option<Cell>, access: Access) -> Result<Contents, FaultError> {
        let cell = cell.ok_or(FaultError::Unmapped)?;
        match self.objects.of(cell.page) {
            _ if !cell.rights.allows(access) => Err(FaultError::Rights),
            Some((object, index)) if !object.reaches(index) => Err(FaultError::Beyond),
            Some((object, index)) if self.fails().0 && object.is_to_be_read(index) => {
                Err(FaultError::Io)
            }
            _ => Ok(self.known(cell)),
        }
    }

    /// An access made the page, and made it that.
    fn becomes(&mut self, n: usize, page: u64, access: Access, contents: Contents) {
        let Some(cell) = self.sides[n].pages.get(page) else { return };
        let copies = access == Access::Write && matches!(cell.page, Behind::View(..));
        match self.objects.of_mut(cell.page) {
            Some((object, index)) if !copies => {
                object.set(index, contents);
                if access == Access::Write {
                    object.note_write(index);
                }
                self.outcome.shared += 1;
            }
            // What is copied was read before.
            Some((object, index)) if object.is_paged() => {
                object.set(index, object.contents(index));
                let page_of = Some(Cell { page: cell.page.with_own(contents), ..cell });
                self.sides[n].pages.set(page, page_of);
            }
            _ if cell.page.own() == Some(contents) => {}
            _ => {
                let page_of = Some(Cell { page: cell.page.with_own(contents), ..cell });
                self.sides[n].pages.set(page, page_of);
            }
        }
    }

    /// What a present page holds, read behind everybody's back.
    fn contents(&self, page: u64, seen: Page) -> Option<Contents> {
        match seen {
            Page::Mapped { pfn, level, .. } | Page::Inaccessible { pfn, level } => {
                let within = page & ((1 << (level.shift() - 12)) - 1);
                Some(self.vm.machine().contents(pfn.add(within)))
            }
            Page::Reserved { .. } => Some(Contents::default()),
            Page::Unmapped | Page::Device { .. } => None,
        }
    }

    /// Ends everything; no frame may be missing.
    ///
    /// # Panics
    /// If one is, or if anything is not what the model says.
    pub fn finish(mut self) -> Outcome {
        self.compare();
        self.recount();
        while let Some((first, order)) = self.blocks.pop() {
            // SAFETY: taken by `take`, and mapped nowhere.
            unsafe { self.vm.frames().free(self.vm.machine(), first, order) };
        }
        for cpu in 0..CPUS {
            self.vm.machine().run_on(cpu);
            self.vm.deactivate();
        }
        // Mappings end before the handle or after it.
        self.discard(0);
        while let Some(side) = self.sides.pop() {
            self.vm.exit(side.space);
        }
        (0..OBJECTS as u8).for_each(|slot| self.discard(slot));
        self.recount();
        for left in [Use::Data, Use::Object, Use::Table, Use::Pending] {
            assert_eq!(
                self.vm.machine().count(left),
                0,
                "{left:?} frames remain when every space is gone"
            );
        }
        self.outcome
    }

    fn no_memory(&mut self) {
        assert!(self.scarce, "NoMemory with memory in plenty");
        self.outcome.refused += 1;
    }

    fn end_page(&self) -> u64 {
        self.vm.user_end().page()
    }

    fn page(&self, n: usize, spot: PageSpot) -> u64 {
        match spot {
            PageSpot::Page(page) => page,
            PageSpot::End(before) => self.end_page() - 1 - before,
            PageSpot::Stray(which, offset) => match self.sides[n].strays.as_slice() {
                [] => crate::command::AREA + offset,
                strays => {
                    let (first, pages) = strays[which as usize % strays.len()];
                    first + offset % pages
                }
            },
        }
    }

    /// A mapped page at or after the spot, if one is near and wanted.
    fn near(&self, n: usize, spot: PageSpot, near: bool) -> u64 {
        let page = self.page(n, spot);
        let within = (self.end_page() - page).min(1024);
        if near { self.sides[n].pages.next(page, within).unwrap_or(page) } else { page }
    }

    /// The stretch's pages now, and its start and length in bytes with the skew.
    fn range(&self, n: usize, stretch: Stretch) -> Skewed {
        let first = self.near(n, stretch.at, stretch.near);
        let mut range = first..first + stretch.pages;
        if stretch.fit {
            range.end = first + self.sides[n].pages.run(range.clone()).max(1);
        }
        let (start, bytes) = ((first << 12) + stretch.skew.0 as u64, (range.end - first) << 12);
        Skewed { range, start: Va(start), bytes: bytes + stretch.skew.1 as u64 }
    }

    /// Why such a range is none, told without the library's help.
    fn bad_range(&self, start: Va, bytes: u64) -> Option<RangeError> {
        match () {
            () if !start.is_aligned(4096) || !bytes.is_multiple_of(4096) => {
                Some(RangeError::Unaligned)
            }
            () if bytes == 0 => Some(RangeError::Empty),
            () if start.0 + bytes > self.vm.user_end().0 => Some(RangeError::OutOfSpace),
            () => None,
        }
    }

    /// The same for a range that something is to be mapped to.
    fn bad_target(&self, start: Va, bytes: u64) -> Option<RangeError> {
        let low = (start.0 < 64 << 10).then_some(RangeError::TooLow);
        self.bad_range(start, bytes).or(low)
    }

    fn is_mapped(&self, n: usize, range: &Range<u64>) -> bool {
        self.sides[n].pages.count(range.clone()) == range.end - range.start
    }

    /// A refusal that any access may get.
    fn refused(&mut self, cell: Option<Cell>, access: Access, error: FaultError, what: &str) {
        let fits = match (self.found(cell, access), error) {
            // A page that cannot be read takes a frame first.
            (Ok(_) | Err(FaultError::Io), FaultError::NoMemory) => {
                self.outcome.refused += 1;
                self.doubt(cell, access);
                self.scarce || cell.is_some_and(|cell| cell.exactly)
            }
            (Err(wanted), error) => error == wanted,
            // It may be that the page is not there.
            (Ok(_), FaultError::Io) => cell.is_some_and(|cell| {
                let shown = self.objects.of(cell.page);
                self.fails().0
                    && shown.is_some_and(|(object, index)| object.is_paged() && !object.has(index))
            }),
            _ => false,
        };
        assert!(fits, "{access:?} {what} of {cell:?} got {error:?}");
    }
}

/// Whether an answer is that the range is none, and why.
fn is_range<T>(got: &Result<T, SpaceError>, why: RangeError) -> bool {
    matches!(got, Err(SpaceError::Range(told)) if *told == why)
}
