//! The world of a scenario: builds the state, runs and records the scripts, and compares at the
//! end.

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::replace;

use vellum::addr::{Order, Pfn, Va};
use vellum::entry::Codec;
use vellum::error::{FaultError, ObjectError, PoisonError, SpaceError};
use vellum::machine::{Machine, Use};
use vellum::space::{Access, Advice, Attrs, Page as Answer, Placement, Rights, Seals, Space};
use vellum::unstable::AllocRequest;
use vellum::vm::{Object, ObjectPart, Vm};
use vellum_host::mmu::buffer::Shape;

use crate::explore::{Stop, World, footprint, pause, tale};
use crate::small::pool::Lent;
use crate::small::{Plan, SAMPLES, Small};

use super::acts::{Action, Line, PageChoice, Step};
use super::spec::{Cell as Page, Event, Model, Outcome, Refusal, SIDES, Spec, WORDS};
use super::states::{
    EXTENTS, Mmu, NAMED, OBJECT_BYTES, OBJECT_PAGES, PageState, Places, StartState, ThirdCpu,
};

/// What a stage is built for.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The pages' state.
    pub state: StartState,
    /// The MMU.
    pub mmu: Mmu,
    /// The CPUs that run the space.
    pub third: ThirdCpu,
    /// What each CPU does.
    pub lines: Vec<Line>,
}

thread_local! {
    /// Histories of the scenario that runs which were explained.
    static EXPLAINED: RefCell<HashSet<u64>> = RefCell::default();
}

/// A new scenario begins.
pub fn forget_histories() {
    EXPLAINED.with_borrow_mut(HashSet::clear);
}

/// The world.
pub struct Stage<C: Codec> {
    vm: Vm<Small<C>>,
    meta: Meta,
    state: StartState,
    places: Places,
    start: Model,
    sides: [RefCell<Option<Space>>; SIDES],
    object: RefCell<Option<Object>>,
    held: RefCell<Vec<(Pfn, Order)>>,
    events: RefCell<Vec<Event>>,
    clock: Cell<usize>,
    cpus: usize,
}

/// The library's memory for its metadata, cleaned when it is dropped.
struct Meta(Lent, usize);

impl Drop for Meta {
    fn drop(&mut self) {
        // SAFETY: lent to this value, that long, and the `Vm` that lived in it is gone.
        unsafe { self.0.base().write_bytes(0, self.1) };
    }
}

/// The number of the object's pager.
const PAGER: u64 = 1;

fn word_of(extent: usize, word: usize) -> u32 {
    0x1000_0000 | (extent as u32) << 8 | word as u32
}

impl<C: Codec> Stage<C> {
    /// The world of a setting.
    ///
    /// # Panics
    /// If the library refuses what makes the state.
    pub fn new(setting: &Setting) -> Stage<C> {
        let Setting { state, mmu, third, lines } = setting;
        let cpus = lines.len();
        let frames = if state.huge { 4096 } else { 1024 };
        let tlb = Shape { base: 16, huge: 4, giant: 1, nodes: 2 };
        footprint::forget_memory();
        let machine = Small::<C>::new(Plan { cpus, nodes: 1, frames, rules: mmu.rules(), tlb })
            .expect("memory");
        let (ground, bytes) = machine.ground();
        footprint::lend(ground, bytes);
        let size = Vm::<Small<C>>::layout(machine.topology()).size();
        let meta = Meta(Lent::new(size).expect("memory"), size);
        footprint::lend(meta.0.base().as_ptr() as usize, size);
        // SAFETY: zeroed memory of that layout and alignment, kept as long as the value.
        let vm = unsafe { Vm::new(machine, state.config(), meta.0.base()) }
            .expect("a machine that fits");
        let mut stage = Stage {
            vm,
            meta,
            state: *state,
            places: Places::new(state.huge),
            start: Model::default(),
            sides: Default::default(),
            object: RefCell::default(),
            held: RefCell::default(),
            events: RefCell::default(),
            clock: Cell::new(0),
            cpus,
        };
        stage.build();
        for cpu in (0..cpus).rev() {
            stage.enter(cpu);
            if cpu == 0 || !third.comes() {
                stage.vm.activate(&stage.side(0));
            }
        }
        if cpus == 3 && !third.comes() {
            stage.enter(2);
            stage.hold();
        }
        stage.enter(0);
        stage
    }

    /// Makes the state.
    fn build(&mut self) {
        self.enter(0);
        let space = self.vm.create().expect("memory");
        if self.state.object {
            let objects = self.vm.objects();
            let object = match self.state.paged {
                true => objects.create_paged(OBJECT_BYTES, PAGER),
                false => objects.create(OBJECT_BYTES),
            };
            let object = object.expect("memory");
            self.object.replace(Some(object));
        }
        if self.state.private {
            // A copy of a page is not to look like zeros.
            for (page, word) in (0..OBJECT_PAGES).flat_map(|n| (0..WORDS).map(move |w| (n, w))) {
                let value = word_of(0x80 + page, word);
                let done = self.act_on_object(Action::WriteObject(page, word), value);
                assert_eq!(done, Outcome::Done, "the object of the state");
                self.start.object.set(page, word, value);
            }
        }
        let mut pages = [None; EXTENTS];
        for (range, rights) in self.places.mapped(self.state.island) {
            let (at, attrs) = (Placement::Replace(range.start()), Attrs::anonymous(rights));
            let extents = self.places.within((range.start(), range.bytes()));
            if self.state.object {
                let first = pages.iter().flatten().count();
                let private = self.state.private;
                self.map_object(&space, at, range.bytes(), (first, private)).expect("a hole");
                for (extent, page) in extents.zip(first..) {
                    pages[extent] = Some(Page::of_object(rights, page, private));
                }
                continue;
            }
            self.vm.map(&space, at, range.bytes(), attrs).expect("a hole");
            for extent in extents {
                pages[extent] = Some(Page::zero(rights));
            }
        }
        self.sides[0].replace(Some(space));
        self.vm.activate(&self.side(0));
        let kind = self.state.kind;
        for (extent, page) in pages.iter_mut().enumerate() {
            let Some(page) = page else { continue };
            let va = self.places.va(extent);
            let write = !self.state.island || !matches!(extent, 1 | 7);
            for word in 0..WORDS {
                let act = match kind {
                    PageState::Reserved => continue,
                    _ if kind == PageState::Read || !write => {
                        Action::Load(PageChoice::Extent(extent), word)
                    }
                    _ => Action::Store(PageChoice::Extent(extent), word),
                };
                let wanted = match act {
                    Action::Store(..) => {
                        page.store(word, word_of(extent, word), &mut self.start.object);
                        Outcome::Done
                    }
                    _ => Outcome::Value(page.load(word, &self.start.object)),
                };
                assert_eq!(
                    self.access(0, act, word_of(extent, word)),
                    wanted,
                    "the state is made at {va:?}"
                );
            }
        }
        let (start, bytes) = self.places.span(super::acts::PageRange::Both);
        let protect = |rights: Rights, pages: &mut [Option<Page>; EXTENTS]| {
            self.vm.protect(&self.side(0), start, bytes, rights).expect("memory");
            for extent in self.places.within((start, bytes)) {
                pages[extent] = pages[extent].map(|page| page.with(rights));
            }
        };
        match kind {
            PageState::Inaccessible => protect(Rights::NONE, &mut pages),
            PageState::ReadOnly => protect(Rights::READ, &mut pages),
            _ => {}
        }
        self.start.sides[0] = Some(pages);
        if kind == PageState::Shared {
            let child = self.vm.fork(&self.side(0)).expect("memory");
            self.sides[1].replace(Some(child));
            self.start.sides[1] = Some(pages);
        }
        if let Some(left) = self.state.frames_left {
            self.exhaust(left);
        }
    }

    /// Maps the object from a page of it on, privately or not.
    fn map_object(
        &self,
        space: &Space,
        at: Placement,
        bytes: u64,
        (first, private): (usize, bool),
    ) -> Result<Va, SpaceError> {
        let object = self.object.borrow();
        let object = object.as_ref().expect("an object");
        let part = ObjectPart { object, offset: first as u64 * 4096 };
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        match private {
            true => self.vm.map_private(space, at, bytes, attrs, part),
            false => self.vm.map_object(space, at, bytes, attrs, part),
        }
    }

    /// A call on the object.
    fn act_on_object(&self, act: Action, value: u32) -> Outcome {
        let (objects, object) = (self.vm.objects(), self.object.borrow());
        let object = object.as_ref().expect("an object");
        let at = |page: usize, word: usize| page as u64 * 4096 + SAMPLES[word] as u64;
        match act {
            Action::ReadObject(page, word) => {
                let mut bytes = [0; 4];
                match objects.read(object, at(page, word), &mut bytes) {
                    (4, _) => Outcome::Value(u32::from_le_bytes(bytes)),
                    (_, Ok(())) => Outcome::Refused(Refusal::Beyond),
                    (_, Err(ObjectError::NoMemory)) => Outcome::Refused(Refusal::NoMemory),
                    (_, Err(_)) => Outcome::Refused(Refusal::Other),
                }
            }
            Action::WriteObject(page, word) => {
                match objects.write(object, at(page, word), &value.to_le_bytes()).1 {
                    Ok(()) => Outcome::Done,
                    Err(ObjectError::NoMemory) => Outcome::Refused(Refusal::NoMemory),
                    Err(_) => Outcome::Refused(Refusal::Beyond),
                }
            }
            Action::Resize(bytes) => match objects.resize(object, bytes) {
                Ok(()) => {
                    // Who makes a file shorter does so here, too.
                    self.vm.machine().disk.borrow_mut().truncate(PAGER, bytes);
                    Outcome::Done
                }
                Err(ObjectError::Sealed) => Outcome::Refused(Refusal::Sealed),
                Err(error) => panic!("a size that may be gave {error:?}"),
            },
            Action::Seal => {
                objects.seal(object, Seals { shrink: true, grow: true });
                Outcome::Done
            }
            Action::Sync => {
                objects.sync(object, 0, u64::MAX).expect("a pager that works");
                Outcome::Done
            }
            Action::Evict => {
                objects.evict(object, 0, u64::MAX);
                Outcome::Done
            }
            Action::Punch(pages) => match objects.punch(object, 0, pages as u64 * 4096) {
                Ok(()) => Outcome::Done,
                Err(ObjectError::NoMemory) => Outcome::Refused(Refusal::NoMemory),
                Err(_) => Outcome::Refused(Refusal::Other),
            },
            Action::NextData(page) | Action::NextHole(page) => {
                let from = page as u64 * 4096;
                let found = match act {
                    Action::NextData(_) => objects.next_data(object, from),
                    _ => objects.next_hole(object, from),
                };
                found.map_or(Outcome::Refused(Refusal::Beyond), |at| Outcome::Value(at as u32))
            }
            other => panic!("{other:?} is no call on an object"),
        }
    }

    /// Takes all memory but that many single frames.
    fn exhaust(&self, left: u8) {
        let (m, frames) = (self.vm.machine(), self.vm.frames());
        frames.drain(m);
        let take = |order: Order| frames.alloc(m, order, &AllocRequest::kernel(Use::Slab)).ok();
        let spare: Vec<Pfn> = (0..left).map_while(|_| take(Order::BASE)).collect();
        for order in (0..10).rev().filter_map(Order::new) {
            while let Some(pfn) = take(order) {
                self.held.borrow_mut().push((pfn, order));
            }
        }
        // SAFETY: taken just now, and nobody else has them.
        spare.into_iter().for_each(|pfn| unsafe { frames.free(m, pfn, Order::BASE) });
        (0..self.cpus).for_each(|cpu| {
            self.enter(cpu);
            frames.drain(m);
        });
        self.enter(0);
    }

    /// Fills this CPU's TLB with the page's translation, if there is one, without a fault.
    fn hold(&self) {
        let va = self.places.va(0);
        let m = self.vm.machine();
        if let Ok(bytes) = m.load(Va(va.0 + SAMPLES[1] as u64)) {
            let _ = m.store(Va(va.0 + SAMPLES[1] as u64), bytes);
        }
    }

    fn enter(&self, cpu: usize) {
        self.vm.machine().run_on(cpu);
    }

    fn side(&self, n: usize) -> Ref<'_, Space> {
        Ref::map(self.sides[n].borrow(), |side| side.as_ref().expect("a space that is there"))
    }

    fn tick(&self) -> usize {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// Carries a CPU's script out, and notes it.
    pub fn play(&self, cpu: usize, line: &Line) {
        for (n, &step) in line.steps.iter().enumerate() {
            let value = 0x2000_0000 | (cpu as u32) << 8 | n as u32;
            self.note(cpu, step, value, |event| self.events.borrow_mut().push(event));
        }
    }

    fn note(&self, cpu: usize, step: Step, value: u32, keep: impl FnOnce(Event)) {
        let began = self.tick();
        tale::tell(cpu, || format!("> {:?}{}", step.act, side_name(step.side)));
        let outcome = self.act(cpu, step, value);
        tale::tell(cpu, || format!("< {:?} {outcome:x?}", step.act));
        keep(Event { cpu, step, value, began, ended: self.tick(), outcome });
    }

    /// The address of a word.
    fn word(&self, at: PageChoice, word: usize) -> Va {
        Va(self.places.va(self.places.extent(at)).0 + SAMPLES[word] as u64)
    }

    /// A program's access, with the faults it takes.
    fn access(&self, side: usize, act: Action, value: u32) -> Outcome {
        let m = self.vm.machine();
        let (va, access) = match act {
            Action::Load(at, word) => (self.word(at, word), Access::Read),
            Action::Store(at, word) => (self.word(at, word), Access::Write),
            Action::Fetch(at) => (self.word(at, 0), Access::Exec),
            other => panic!("{other:?} is no access"),
        };
        for _ in 0..60 {
            let tried = match access {
                Access::Read => m.load(va).map(|bytes| Outcome::Value(u32::from_le_bytes(bytes))),
                Access::Write => m.store(va, value.to_le_bytes()).map(|()| Outcome::Done),
                Access::Exec => m.fetch(va).map(|_| Outcome::Done),
            };
            if let Ok(outcome) = tried {
                return outcome;
            }
            if let Err(error) = self.vm.fault(&self.side(side), va, access) {
                return Outcome::Refused(of_fault(error));
            }
        }
        panic!("{access:?} at {va:?} faults for ever");
    }

    fn act(&self, cpu: usize, Step { act, side }: Step, value: u32) -> Outcome {
        let vm = &self.vm;
        let of_space = |done: Result<(), SpaceError>| done.map_or_else(refused, |()| Outcome::Done);
        let advise = |span, advice| {
            let (start, bytes) = self.places.span(span);
            of_space(vm.advise(&self.side(side), start, bytes, advice))
        };
        let map = |at: fn(Va) -> Placement, span, rights| {
            let (start, bytes) = self.places.span(span);
            of_space(vm.map(&self.side(side), at(start), bytes, Attrs::anonymous(rights)).map(drop))
        };
        match act {
            Action::Load(..) | Action::Store(..) | Action::Fetch(_) => {
                self.access(side, act, value)
            }
            Action::CopyIn(at, word) => of_copy(
                vm.copy_in(&self.side(side), self.word(at, word), &value.to_le_bytes()),
                Outcome::Done,
            ),
            Action::Force(at, word) => of_copy(
                vm.write_forced(&self.side(side), self.word(at, word), &value.to_le_bytes()),
                Outcome::Done,
            ),
            Action::CopyOut(at, word) => {
                let mut bytes = [0; 4];
                let done = vm.copy_out(&self.side(side), self.word(at, word), &mut bytes);
                of_copy(done, Outcome::Value(u32::from_le_bytes(bytes)))
            }
            Action::Query(at) => {
                Outcome::Told(match vm.query(&self.side(side), self.word(at, 0)) {
                    Answer::Mapped { rights, .. } | Answer::Reserved { rights } => Some(rights),
                    Answer::Inaccessible { .. } => Some(Rights::NONE),
                    Answer::Unmapped => None,
                })
            }
            Action::Populate(span, write) => advise(span, Advice::Populate { write }),
            Action::DontNeed(span) => advise(span, Advice::DontNeed),
            Action::Collapse => advise(super::acts::PageRange::Both, Advice::Collapse),
            Action::Huge(wanted) => advise(
                super::acts::PageRange::Both,
                if wanted { Advice::Huge } else { Advice::NoHuge },
            ),
            Action::MapObject(span, first, replaces)
            | Action::MapPrivate(span, first, replaces) => {
                let (start, bytes) = self.places.span(span);
                let at = if replaces { Placement::Replace(start) } else { Placement::At(start) };
                let private = matches!(act, Action::MapPrivate(..));
                let done = self.map_object(&self.side(side), at, bytes, (first, private));
                of_space(done.map(drop))
            }
            Action::ReadObject(..) | Action::WriteObject(..) => self.act_on_object(act, value),
            Action::Resize(_) | Action::Punch(_) => self.act_on_object(act, value),
            Action::Sync | Action::Evict => self.act_on_object(act, value),
            Action::NextData(_) | Action::NextHole(_) | Action::Seal => {
                self.act_on_object(act, value)
            }
            Action::Map(span, rights) => map(Placement::At, span, rights),
            Action::Replace(span, rights) => map(Placement::Replace, span, rights),
            Action::Anywhere => {
                let attrs = Attrs::anonymous(Rights::READ_WRITE);
                of_space(vm.map(&self.side(side), Placement::Anywhere, 4096, attrs).map(drop))
            }
            Action::Unmap(span) => {
                let (start, bytes) = self.places.span(span);
                of_space(vm.unmap(&self.side(side), start, bytes))
            }
            Action::Protect(span, rights) => {
                let (start, bytes) = self.places.span(span);
                of_space(vm.protect(&self.side(side), start, bytes, rights))
            }
            Action::Remap(from, to) => {
                let ((old, bytes), (new, _)) = (self.places.span(from), self.places.span(to));
                of_space(
                    vm.remap(&self.side(side), old, bytes, bytes, Placement::At(new)).map(drop),
                )
            }
            Action::Fork => match vm.fork(&self.side(side)) {
                Ok(child) => {
                    self.sides[2 + cpu].replace(Some(child));
                    Outcome::Done
                }
                Err(_) => Outcome::Refused(Refusal::NoMemory),
            },
            Action::Exit => {
                let child = self.sides[1].borrow_mut().take();
                child.into_iter().for_each(|child| vm.exit(child));
                Outcome::Done
            }
            Action::Activate => {
                vm.activate(&self.side(side));
                Outcome::Done
            }
            Action::Idle => {
                vm.deactivate();
                Outcome::Done
            }
            Action::Poison(at) => {
                match vm.poison(&self.side(side), self.word(at, 0).align_down(4096)) {
                    Ok(()) => Outcome::Done,
                    Err(PoisonError::NoMemory) => Outcome::Refused(Refusal::NoMemory),
                    Err(PoisonError::NotMapped) => Outcome::Refused(Refusal::Unmapped),
                    Err(_) => Outcome::Refused(Refusal::Other),
                }
            }
            Action::Forbid => {
                vm.forbid_zeros(&self.side(side));
                Outcome::Done
            }
            Action::Shrink => {
                vm.shrink_zeros();
                Outcome::Done
            }
            Action::Take(order) => {
                let order = Order::new(order).unwrap_or(Order::BASE);
                if let Ok(pfn) =
                    vm.frames().alloc(vm.machine(), order, &AllocRequest::kernel(Use::Slab))
                {
                    self.held.borrow_mut().push((pfn, order));
                }
                Outcome::Done
            }
            Action::Drain => {
                vm.frames().drain(vm.machine());
                Outcome::Done
            }
            Action::Yield => {
                pause(Stop::Yield);
                Outcome::Done
            }
        }
    }

    /// Reads everything from every CPU, and lets every CPU try what it is not allowed to do.
    fn look(&self) -> Vec<Event> {
        let mut seen = Vec::new();
        let mut note = |cpu: usize, act: Action, side: usize, value: u32| {
            self.note(cpu, Step { act, side }, value, |event| seen.push(event));
        };
        let loads =
            |n: usize| (0..WORDS).map(move |word| Action::Load(PageChoice::Extent(n), word));
        // What the pager does not have is lost by this.
        let through_the_pager = [Action::Sync, Action::Evict].into_iter();
        let through_the_pager = through_the_pager.filter(|_| self.state.paged);
        self.enter(0);
        through_the_pager.clone().for_each(|act| note(0, act, 0, 0));
        for cpu in 0..self.cpus {
            self.enter(cpu);
            self.vm.activate(&self.side(0));
            let extents = if cpu == 0 { EXTENTS } else { NAMED };
            (0..extents).flat_map(loads).for_each(|act| note(cpu, act, 0, 0));
        }
        for cpu in 0..self.cpus {
            self.enter(cpu);
            for extent in 0..NAMED {
                let value = 0x3000_0000 | (cpu as u32) << 8 | extent as u32;
                note(cpu, Action::Fetch(PageChoice::Extent(extent)), 0, 0);
                note(cpu, Action::Store(PageChoice::Extent(extent), 1), 0, value);
                note(cpu, Action::CopyOut(PageChoice::Extent(extent), 1), 0, 0);
            }
        }
        self.enter(0);
        through_the_pager.for_each(|act| note(0, act, 0, 0));
        if self.state.object {
            let words = |page: usize| (0..WORDS).map(move |word| Action::ReadObject(page, word));
            (0..OBJECT_PAGES).flat_map(words).for_each(|act| note(0, act, 0, 0));
        }
        self.enter(0);
        for side in (1..SIDES).filter(|&side| self.sides[side].borrow().is_some()) {
            self.vm.activate(&self.side(side));
            (0..EXTENTS).flat_map(loads).for_each(|act| note(0, act, side, 0));
        }
        seen
    }

    /// Where zeros were forbidden none are mapped, nor in spaces forked afterwards.
    fn look_for_zeros(&self) {
        let events = self.events.borrow();
        let Some(forbidden) = events.iter().find(|e| e.step.act == Action::Forbid) else { return };
        let later =
            events.iter().filter(|e| e.step.act == Action::Fork && e.began > forbidden.ended);
        for side in
            later.map(|e| 2 + e.cpu).chain([0]).filter(|&side| self.sides[side].borrow().is_some())
        {
            for va in (0..EXTENTS).map(|extent| self.places.va(extent)) {
                let page = self.vm.query(&self.side(side), va);
                let zero = matches!(page, Answer::Mapped { zero: true, .. });
                assert!(
                    !zero,
                    "zeros are mapped at {va:?}{}, where they were forbidden",
                    side_name(side)
                );
            }
        }
    }

    /// Whether what was seen can be explained; once for each history.
    fn explain(&self, after: &[Event]) {
        let events = self.events.borrow();
        let mut hasher = DefaultHasher::new();
        (&*events, after).hash(&mut hasher);
        let history = hasher.finish();
        if EXPLAINED.with_borrow(|known| known.contains(&history)) {
            return;
        }
        let scarce = self.state.is_scarce();
        let spec = Spec { places: &self.places, scarce, events: &events, after };
        if !spec.is_explained(&self.start) {
            let list =
                |events: &[Event]| events.iter().map(|e| format!("\n  {e}")).collect::<String>();
            // What was seen in the end is told if it is that which does not fit.
            let alone = Spec { after: &[], ..spec }.is_explained(&self.start);
            let last =
                if alone { format!("\nand in the end{}", list(after)) } else { String::new() };
            panic!("no order of the calls explains what was seen:{}{last}", list(&events));
        }
        EXPLAINED.with_borrow_mut(|known| known.insert(history));
    }
}

fn side_name(side: usize) -> String {
    match side {
        0 => String::new(),
        1 => " in the child".to_string(),
        n => format!(" in the child of CPU {}", n - 2),
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Event { cpu, step, value, began, ended, outcome } = self;
        write!(f, "CPU {cpu} {began:3}-{ended:3} {:?}{}", step.act, side_name(step.side))?;
        if matches!(step.act, Action::Store(..) | Action::CopyIn(..) | Action::Force(..)) {
            write!(f, " of {value:x}")?;
        }
        write!(f, ": {outcome:x?}")
    }
}

fn of_fault(error: FaultError) -> Refusal {
    match error {
        FaultError::Unmapped => Refusal::Unmapped,
        FaultError::Rights => Refusal::Rights,
        FaultError::NoMemory => Refusal::NoMemory,
        FaultError::Beyond => Refusal::Beyond,
        FaultError::Stopped | FaultError::Io => Refusal::Other,
    }
}

fn of_copy(done: Result<(), FaultError>, outcome: Outcome) -> Outcome {
    done.map_or_else(|error| Outcome::Refused(of_fault(error)), |()| outcome)
}

fn refused(error: SpaceError) -> Outcome {
    Outcome::Refused(match error {
        SpaceError::Unmapped => Refusal::Unmapped,
        SpaceError::Rights => Refusal::Rights,
        SpaceError::NoMemory => Refusal::NoMemory,
        SpaceError::Occupied => Refusal::Occupied,
        SpaceError::Beyond => Refusal::Beyond,
        _ => Refusal::Other,
    })
}

impl<C: Codec> World for Stage<C> {
    fn run_on(&self, cpu: usize, preempt_off: u32) -> u32 {
        self.vm.machine().change_to(cpu, preempt_off)
    }

    fn check(self) {
        let (m, frames) = (self.vm.machine(), self.vm.frames());
        let held = self.held.take();
        let mut is_had = vec![false; m.topology().frames_end() as usize];
        for frame in held.iter().flat_map(|&(pfn, order)| pfn.0..pfn.0 + order.frames()) {
            assert!(!replace(&mut is_had[frame as usize], true), "frame {frame:x} is had twice");
        }
        for (pfn, order) in held {
            // SAFETY: taken by `exhaust` or by a script, each once.
            unsafe { frames.free(m, pfn, order) };
        }
        tale::tell(0, || "all is over".to_string());
        tale::stop();
        let after = self.look();
        self.explain(&after);
        self.look_for_zeros();
        let spaces: Vec<Space> = self.sides.iter().filter_map(RefCell::take).collect();
        let all: Vec<&Space> = spaces.iter().collect();
        // SAFETY: every CPU is done with its script.
        let audit = unsafe { self.vm.validate(&all) }.unwrap_or_else(|e| panic!("validate: {e}"));
        assert_eq!(audit.other_frames, 0, "frames in use that nobody has");
        for cpu in 0..self.cpus {
            m.run_on(cpu);
            self.vm.deactivate();
        }
        spaces.into_iter().for_each(|space| self.vm.exit(space));
        self.object.take().into_iter().for_each(|object| self.vm.objects().discard(object));
        // SAFETY: as above.
        let audit =
            unsafe { self.vm.validate(&[]) }.unwrap_or_else(|e| panic!("validate at the end: {e}"));
        assert_eq!(audit.other_frames, 0, "frames in use that nobody has, at the end");
        for left in [Use::Data, Use::Object, Use::Table, Use::Pending] {
            assert_eq!(m.count(left), 0, "{left:?} frames remain when every space is gone");
        }
        drop(self.vm);
        drop(self.meta);
    }
}
