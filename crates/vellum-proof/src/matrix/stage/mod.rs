//! The world of a scenario: builds the state, runs and records the scripts, and compares at the
//! end.
//!
//! | file | what |
//! |---|---|
//! | `act` | what a step does |
//! | `pager` | the pager that answers late, and who failed by it |
//! | `look` | what is looked at in the end, and whether it is explained |

mod act;
mod look;
mod pager;

pub use look::forget_histories;

use std::cell::{Cell, Ref, RefCell};
use std::mem::replace;

use vellum::addr::{Order, Pfn, Va};
use vellum::entry::{CacheMode, Codec};
use vellum::error::SpaceError;
use vellum::machine::{Machine, Use};
use vellum::space::{Attrs, HugeAdvice, Placement, Rights, Space};
use vellum::unstable::AllocRequest;
use vellum::vm::{DeviceMemory, Object, ObjectPart, Vm};
use vellum_host::mmu::buffer::Shape;

use crate::explore::{World, footprint, tale};
use crate::small::pool::Lent;
use crate::small::{DEVICE, Plan, SAMPLES, Small};

use super::acts::{Action, Line, PageChoice, PageRange, Step};
use super::failure::Failure;
use super::model::{Cell as Page, Model, SIDES, WORDS};
use super::spec::{Event, Outcome};
use super::states::{
    EXTENTS, Mmu, OBJECT_BYTES, OBJECT_PAGES, PageState, Places, StartState, ThirdCpu,
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

impl Setting {
    /// CPUs: one for each line, and one for a pager that answers late.
    pub fn cpus(&self) -> usize {
        self.lines.len() + usize::from(self.state.late.is_some())
    }
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
    device: RefCell<Option<Object>>,
    held: RefCell<Vec<(Pfn, Order)>>,
    events: RefCell<Vec<Event>>,
    failures: RefCell<Vec<Failure>>,
    clock: Cell<usize>,
    /// CPUs that have a line, and how many of them are at its end.
    cpus: usize,
    over: Cell<usize>,
    /// Somebody changes the object's size, and what its pager has.
    resizes: Cell<bool>,
    /// Nobody does ever.
    keeps_size: bool,
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
        let machine = Small::<C>::new(Plan {
            cpus: setting.cpus(),
            nodes: 1,
            frames,
            rules: mmu.rules(),
            tlb,
        });
        let machine = machine.expect("memory");
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
            device: RefCell::default(),
            held: RefCell::default(),
            events: RefCell::default(),
            failures: RefCell::default(),
            clock: Cell::new(0),
            cpus,
            over: Cell::new(0),
            resizes: Cell::new(false),
            keeps_size: !lines.iter().any(Line::resizes),
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
        let device = DeviceMemory {
            address: DEVICE.addr(),
            bytes: OBJECT_BYTES,
            cache: CacheMode::Uncached,
            writable: true,
        };
        // SAFETY: only programs of this machine access it.
        let device = unsafe { self.vm.objects().create_device(device) };
        self.device.replace(Some(device.expect("memory")));
        if self.state.object {
            let objects = self.vm.objects();
            let object = match (self.state.paged, self.state.logged) {
                (true, _) => objects.create_paged(OBJECT_BYTES, PAGER),
                (_, true) => objects.create_logged(self.state.in_object(OBJECT_PAGES)),
                _ => objects.create(self.state.in_object(OBJECT_PAGES)),
            };
            let object = object.expect("memory");
            self.object.replace(Some(object));
            self.start.object.is_logged = self.state.logged;
        }
        if self.state.late.is_some() {
            self.fill_disk();
        } else if self.state.private || self.state.block && (self.state.small || self.state.logged)
        {
            // A copy of a page is not to look like zeros. Blocks are there before entries are.
            for (page, word) in (0..OBJECT_PAGES).flat_map(|n| (0..WORDS).map(move |w| (n, w))) {
                let value = word_of(0x80 + page, word);
                let done = self.act_on_object(Action::WriteObject(page, word), value);
                assert_eq!(done, Outcome::Done, "the object of the state");
                self.start.object.set(page, word, value);
            }
            if self.state.logged {
                self.harvest_and_collapse();
            }
        }
        let mut pages = [None; EXTENTS];
        for (range, rights) in self.places.mapped(self.state.island) {
            let (at, attrs) = (Placement::Replace(range.start()), Attrs::anonymous(rights));
            let extents = self.places.within((range.start(), range.bytes()));
            if self.state.device {
                let first = pages.iter().flatten().count();
                self.map_device(&space, at, range.bytes(), first).expect("a hole");
                for (extent, page) in extents.zip(first..) {
                    pages[extent] = Some(Page::of_device(rights, page));
                }
                continue;
            }
            if self.state.object {
                let first = pages.iter().flatten().count();
                let private = self.state.private;
                self.map_object(&space, at, range.bytes(), (first, private)).expect("a hole");
                let mut extents: Vec<usize> = extents.collect();
                extents.sort_by_key(|&extent| self.places.extents[extent].start);
                for (extent, page) in extents.into_iter().zip(first..) {
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
                        page.store(word, word_of(extent, word), &mut self.start);
                        Outcome::Done
                    }
                    _ => Outcome::Value(page.load(word, &self.start)),
                };
                assert_eq!(
                    self.access(0, act, word_of(extent, word)),
                    wanted,
                    "the state is made at {va:?}"
                );
            }
        }
        let (start, bytes) = self.places.span(PageRange::Both);
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
        if let Some(late) = self.state.late {
            let mut disk = self.vm.machine().disk.borrow_mut();
            (disk.is_late, disk.trouble) = (true, late.trouble);
        }
    }

    /// Makes blocks of what was written.
    fn harvest_and_collapse(&mut self) {
        let (objects, object) = (self.vm.objects(), self.object.borrow());
        let object = object.as_ref().expect("an object");
        let harvested = objects.harvest(object, 0, &mut [0; OBJECT_PAGES]);
        assert_eq!(harvested, Ok(OBJECT_PAGES));
        for page in [0, OBJECT_PAGES - 1] {
            assert_eq!(objects.collapse(object, self.state.in_object(page)), Ok(true));
        }
        self.start.object.written = [false; OBJECT_PAGES];
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
        let part = ObjectPart { object, offset: self.state.in_object(first) };
        let no_huge = self.state.block && self.state.small;
        let thp = no_huge.then_some(HugeAdvice::NoHuge);
        let attrs = Attrs { thp, ..Attrs::anonymous(Rights::READ_WRITE) };
        match private {
            true => self.vm.map_private(space, at, bytes, attrs, part),
            false => self.vm.map_object(space, at, bytes, attrs, part),
        }
    }

    /// Maps the device from a page of it on.
    fn map_device(
        &self,
        space: &Space,
        at: Placement,
        bytes: u64,
        first: usize,
    ) -> Result<Va, SpaceError> {
        let device = self.device.borrow();
        let object = device.as_ref().expect("the device");
        let part = ObjectPart { object, offset: first as u64 * 4096 };
        self.vm.map_object(space, at, bytes, Attrs::anonymous(Rights::READ_WRITE), part)
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
        self.over.set(self.over.get() + 1);
    }

    fn note(&self, cpu: usize, step: Step, value: u32, keep: impl FnOnce(Event)) {
        let began = self.tick();
        tale::tell(cpu, || format!("> {:?}{}", step.act, side_name(step.side)));
        let outcome = self.act(cpu, step, value);
        tale::tell(cpu, || format!("< {:?} {outcome:x?}", step.act));
        keep(Event { cpu, step, value, began, ended: self.tick(), outcome });
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
        self.mend_pager();
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
        let objects = [self.object.take(), self.device.take()].into_iter().flatten();
        objects.for_each(|object| self.vm.objects().discard(object));
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
