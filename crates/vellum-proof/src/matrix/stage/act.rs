//! What a script's step does: a program's access with its faults, a call of the library, and how
//! either ended.

use vellum::GrabWait;
use vellum::addr::{Order, Va};
use vellum::entry::Codec;
use vellum::error::{FaultError, ObjectError, PoisonError, SpaceError};
use vellum::machine::{Machine, Use};
use vellum::space::{Access, Advice, Attrs, Page as Answer, Placement, Rights, Seals};
use vellum::unstable::AllocRequest;

use super::{PAGER, Stage};
use crate::explore::{Stop, Touch, pause, touch};
use crate::matrix::acts::{Action, PageChoice, PageRange, Step};
use crate::matrix::spec::{Outcome, Refusal};
use crate::matrix::states::OBJECT_PAGES;
use crate::small::SAMPLES;

impl<C: Codec> Stage<C> {
    /// A call on the object.
    pub(super) fn act_on_object(&self, act: Action, value: u32) -> Outcome {
        let (objects, object) = (self.vm.objects(), self.object.borrow());
        let object = object.as_ref().expect("an object");
        let at = |page, word: usize| self.state.in_object(page) + SAMPLES[word] as u64;
        match act {
            Action::ReadObject(page, word) => {
                let mut bytes = [0; 4];
                match objects.read(object, at(page, word), &mut bytes) {
                    (4, _) => Outcome::Value(u32::from_le_bytes(bytes)),
                    (_, Ok(())) => Outcome::Refused(Refusal::Beyond),
                    (_, Err(error)) => Outcome::Refused(of_object(error)),
                }
            }
            Action::WriteObject(page, word) => {
                match objects.write(object, at(page, word), &value.to_le_bytes()).1 {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Refused(of_object(error)),
                }
            }
            Action::Resize(bytes) => {
                // Who makes a file shorter does so here, too, before others make it longer.
                self.begin_resize();
                let done = objects.resize(object, self.in_object(bytes));
                if done.is_ok() {
                    self.vm.machine().disk.borrow_mut().truncate(PAGER, bytes);
                }
                self.resizes.set(false);
                match done {
                    Ok(()) => Outcome::Done,
                    Err(ObjectError::Sealed) => Outcome::Refused(Refusal::Sealed),
                    Err(error) => panic!("a size that may be gave {error:?}"),
                }
            }
            Action::Seal => {
                let seals = Seals { shrink: true, grow: true, write: false };
                objects.seal(object, seals).expect("seals of the size");
                Outcome::Done
            }
            Action::Sync => match objects.sync(object, 0, u64::MAX) {
                Ok(()) => self.saved(),
                Err(error) => Outcome::Refused(of_object(error)),
            },
            Action::Evict => {
                objects.evict(object, 0, u64::MAX);
                Outcome::Done
            }
            Action::WriteBack => {
                objects.write_back(object, 0, u64::MAX);
                Outcome::Done
            }
            Action::WillNeed => {
                objects.will_need(object, 0, u64::MAX);
                Outcome::Done
            }
            Action::Grab(page, word) => {
                match objects.grab(object, at(page, word), 1, GrabWait::Always) {
                    Ok(grabbed) => {
                        let (pfn, machine) = (grabbed.frames()[0], self.vm.machine());
                        // SAFETY: the page is this call's alone.
                        unsafe { machine.write(pfn, SAMPLES[word], &value.to_le_bytes()) };
                        objects.release(grabbed, true);
                        Outcome::Done
                    }
                    Err(error) => Outcome::Refused(of_object(error)),
                }
            }
            Action::Harvest => {
                let mut pages = [0; OBJECT_PAGES + 1];
                let count = objects.harvest(object, 0, &mut pages).expect("a logged object");
                let told = |page: usize| pages[..count].contains(&self.state.in_object(page));
                Outcome::Harvested(std::array::from_fn(told))
            }
            Action::Punch(pages) => match objects.punch(object, 0, self.state.in_object(pages)) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Refused(of_object(error)),
            },
            Action::Join => match objects.collapse(object, 0) {
                Ok(_) => Outcome::Done,
                Err(error) => Outcome::Refused(of_object(error)),
            },
            Action::Split => match objects.split(object, 0) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Refused(of_object(error)),
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

    /// An offset into the object, by one into the pages that the model knows.
    fn in_object(&self, offset: u64) -> u64 {
        self.state.in_object((offset / 4096) as usize) + offset % 4096
    }

    /// Waits until nobody changes the size of a file.
    fn begin_resize(&self) {
        while self.state.paged && self.resizes.get() {
            pause(Stop::Wait);
        }
        self.resizes.set(true);
    }

    /// What the pager has when a sync says that it has all.
    fn saved(&self) -> Outcome {
        if !self.keeps_size {
            return Outcome::Done;
        }
        touch(Touch::word(self.vm.machine().disk.as_ptr() as usize, false));
        Outcome::Saved(std::array::from_fn(|page| self.on_disk(page)))
    }

    /// The address of a word.
    fn word(&self, at: PageChoice, word: usize) -> Va {
        Va(self.places.va(self.places.extent(at)).0 + SAMPLES[word] as u64)
    }

    /// A program's access, with the faults it takes.
    pub(super) fn access(&self, side: usize, act: Action, value: u32) -> Outcome {
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

    pub(super) fn act(&self, cpu: usize, Step { act, side }: Step, value: u32) -> Outcome {
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
                    Answer::Mapped { rights, .. }
                    | Answer::Device { rights, .. }
                    | Answer::Reserved { rights } => Some(rights),
                    Answer::Inaccessible { .. } => Some(Rights::NONE),
                    Answer::Unmapped => None,
                })
            }
            Action::Populate(span, write) => advise(span, Advice::Populate { write }),
            Action::DontNeed(span) => advise(span, Advice::DontNeed),
            Action::Collapse => advise(PageRange::Both, Advice::Collapse),
            Action::Huge(wanted) => {
                advise(PageRange::Both, if wanted { Advice::Huge } else { Advice::NoHuge })
            }
            Action::MapObject(span, first, replaces)
            | Action::MapPrivate(span, first, replaces) => {
                let (start, bytes) = self.places.span(span);
                let at = if replaces { Placement::Replace(start) } else { Placement::At(start) };
                let private = matches!(act, Action::MapPrivate(..));
                let done = self.map_object(&self.side(side), at, bytes, (first, private));
                of_space(done.map(drop))
            }
            Action::MapDevice(span, first, replaces) => {
                let (start, bytes) = self.places.span(span);
                let at = if replaces { Placement::Replace(start) } else { Placement::At(start) };
                of_space(self.map_device(&self.side(side), at, bytes, first).map(drop))
            }
            Action::ReadObject(..) | Action::WriteObject(..) => self.act_on_object(act, value),
            Action::Resize(_) | Action::Punch(_) => self.act_on_object(act, value),
            Action::Sync | Action::Evict | Action::Harvest => self.act_on_object(act, value),
            Action::WriteBack | Action::WillNeed | Action::Grab(..) => {
                self.act_on_object(act, value)
            }
            Action::NextData(_) | Action::NextHole(_) | Action::Seal => {
                self.act_on_object(act, value)
            }
            Action::Join | Action::Split => self.act_on_object(act, value),
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
                    Err(PoisonError::Device) => Outcome::Refused(Refusal::Device),
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
}

fn of_fault(error: FaultError) -> Refusal {
    match error {
        FaultError::Unmapped => Refusal::Unmapped,
        FaultError::Rights => Refusal::Rights,
        FaultError::NoMemory => Refusal::NoMemory,
        FaultError::Beyond => Refusal::Beyond,
        FaultError::Io => Refusal::Io,
        FaultError::Device => Refusal::Device,
        FaultError::Stopped => Refusal::Other,
    }
}

fn of_object(error: ObjectError) -> Refusal {
    match error {
        ObjectError::NoMemory => Refusal::NoMemory,
        ObjectError::Beyond => Refusal::Beyond,
        ObjectError::Io => Refusal::Io,
        _ => Refusal::Other,
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
        SpaceError::Io => Refusal::Io,
        _ => Refusal::Other,
    })
}
