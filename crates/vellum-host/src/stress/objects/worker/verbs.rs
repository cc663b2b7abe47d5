//! Verbs that change what spaces map of the objects.

use vellum::entry::Codec;
use vellum::error::{ObjectError, SpaceError};

use vellum::space::{Advice, Attrs, Placement, Rights};
use vellum::vm::{Object, ObjectPart, Vm};

use super::Worker;
use crate::machine::Host;
use crate::stress::objects::contents::PAGE;
use crate::stress::objects::place::{Mapped, Part, Place, WINDOWS, Window};

const RW: Rights = Rights::READ_WRITE;

fn part_of<'o>(objects: &'o [Object], window: &Window, from: u64) -> ObjectPart<'o> {
    ObjectPart { object: &objects[window.object], offset: (window.part + from) * PAGE }
}

/// A space that maps the windows that are always mapped.
///
/// # Errors
/// There is no memory.
pub fn first_place<C: Codec>(
    vm: &Vm<Host<C, true>>,
    objects: &[Object],
) -> Result<Place, ObjectError> {
    let space = vm.create().map_err(|_| ObjectError::NoMemory)?;
    let place = Place::new(space);
    for (window, of) in WINDOWS.iter().enumerate().filter(|(_, of)| of.kept) {
        let change = place.begin(Part { window, pages: 0..of.run.pages });
        let (at, part) = (Placement::At(of.run.start()), part_of(objects, of, 0));
        let got = vm.map_object(&place.space, at, of.run.bytes(), Attrs::anonymous(RW), part);
        place.end(&change, Some(&|_| Some(Some(RW))));
        got.map_err(|_| ObjectError::NoMemory)?;
    }
    Ok(place)
}

impl<C: Codec> Worker<'_, C> {
    /// Part of a window that others may unmap.
    fn part(&mut self) -> Part {
        loop {
            let window = self.rng.below(WINDOWS.len() as u64) as usize;
            if !WINDOWS[window].kept {
                return Part::of(window, &mut self.rng);
            }
        }
    }

    fn rights(&mut self) -> Rights {
        match self.rng.below(10) {
            0..6 => RW,
            6 => Rights::ALL,
            7 => Rights::READ,
            8 => Rights::READ_EXEC,
            _ => Rights::NONE,
        }
    }

    /// Whether a verb was done. `wanted` is what it has to say, if that is known.
    fn verb(
        &mut self,
        what: &dyn Fn() -> String,
        got: Result<(), SpaceError>,
        wanted: Option<Result<(), SpaceError>>,
        others: &[SpaceError],
    ) -> bool {
        match got {
            Err(SpaceError::NoMemory) => self.refused(),
            _ if wanted == Some(got) => {}
            Ok(()) if wanted.is_none() => {}
            Err(error) if wanted.is_none() && others.contains(&error) => {}
            _ => self.fail(format!("{} gave {got:?}, wanted {wanted:?}", what())),
        }
        got.is_ok()
    }

    pub(super) fn map(&mut self, place: &Place, replace: bool) {
        let (part, rights) = (self.part(), self.rights());
        let (run, shared) = (part.run(), self.shared);
        let of = part_of(&shared.objects, &WINDOWS[part.window], part.pages.start);
        let change = place.begin(part.clone());
        let at = if replace { Placement::Replace(run.start()) } else { Placement::At(run.start()) };
        let attrs = Attrs::anonymous(rights);
        let got = shared.vm.map_object(&place.space, at, run.bytes(), attrs, of);
        let was = place.was(&change);
        place.end(&change, got.is_ok().then_some(&|_| Some(Some(rights))));
        let wanted = was.map(|was| match was.iter().all(Option::is_none) || replace {
            true => Ok(()),
            false => Err(SpaceError::Occupied),
        });
        let wanted = if replace { Some(Ok(())) } else { wanted };
        let what = || format!("mapping {part:?}, {at:?}");
        if self.verb(&what, got.map(|_| ()), wanted, &[SpaceError::Occupied])
            && got != Ok(run.start())
        {
            self.fail(what());
        }
    }

    pub(super) fn unmap(&mut self, place: &Place) {
        let part = self.part();
        let change = place.begin(part.clone());
        let got = self.shared.vm.unmap(&place.space, part.run().start(), part.run().bytes());
        place.end(&change, got.is_ok().then_some(&|_| Some(None)));
        self.verb(&|| format!("unmapping {part:?}"), got, Some(Ok(())), &[]);
        let spot = part.spot(&mut self.rng);
        self.look_at(place, spot, self.me, super::By::Kernel);
    }

    pub(super) fn protect(&mut self, place: &Place) {
        let (part, rights) = (self.part(), self.rights());
        let run = part.run();
        let change = place.begin(part.clone());
        let got = self.shared.vm.protect(&place.space, run.start(), run.bytes(), rights);
        let wanted = place.was(&change).map(|was| whole(&was));
        place.end(&change, got.is_ok().then_some(&|_| Some(Some(rights))));
        let what = || format!("protecting {part:?}");
        self.verb(&what, got, wanted, &[SpaceError::Unmapped]);
    }

    /// Moves part of a window to the same part of its other place.
    pub(super) fn relocate(&mut self, place: &Place) {
        let from = self.part();
        let Some(other) = WINDOWS[from.window].other else { return };
        let to = from.at(other);
        let (old, new) = (from.run(), to.run());
        let replace = self.rng.once_in(2);
        let at = if replace { Placement::Replace(new.start()) } else { Placement::At(new.start()) };
        let (leaves, comes) = (place.begin(from.clone()), place.begin(to.clone()));
        let got = self.shared.vm.remap(&place.space, old.start(), old.bytes(), new.bytes(), at);
        let (was, there) = (place.was(&leaves), place.was(&comes));
        let moved = |n: usize| was.as_ref().map(|was| was[n]);
        place.end(&comes, got.is_ok().then_some(&moved));
        place.end(&leaves, got.is_ok().then_some(&|_| Some(None)));
        let free = |was: Vec<Mapped>| replace || was.iter().all(Option::is_none);
        let wanted = match (was.as_deref().map(whole), there.map(free)) {
            (Some(Ok(())), Some(free)) => Some(free.then_some(()).ok_or(SpaceError::Occupied)),
            (Some(error), Some(true)) => Some(error),
            // Which of two errors is named first is the library's choice.
            _ => None,
        };
        let what = || format!("moving {from:?} to {to:?}, {at:?}");
        self.verb(&what, got.map(|_| ()), wanted, &[SpaceError::Unmapped, SpaceError::Occupied]);
    }

    /// Takes the pages out of the space; the object keeps them.
    pub(super) fn forget(&mut self, place: &Place) {
        let window = self.rng.below(WINDOWS.len() as u64) as usize;
        let part = Part::of(window, &mut self.rng);
        let run = part.run();
        let got = self.shared.vm.advise(&place.space, run.start(), run.bytes(), Advice::DontNeed);
        let wanted = WINDOWS[window].kept.then_some(Ok(()));
        self.verb(&|| format!("forgetting {part:?}"), got, wanted, &[SpaceError::Unmapped]);
    }

    /// Advice that changes no contents.
    pub(super) fn advise(&mut self, place: &Place, populate: bool) {
        let window = self.rng.below(WINDOWS.len() as u64) as usize;
        let part = Part::of(window, &mut self.rng);
        let run = part.run();
        let advice = match self.rng.below(4) {
            n if populate => Advice::Populate { write: n < 2 },
            0 => Advice::Huge,
            1 => Advice::NoHuge,
            _ => Advice::Collapse,
        };
        let got = self.shared.vm.advise(&place.space, run.start(), run.bytes(), advice);
        let others = [SpaceError::Unmapped, SpaceError::Rights, SpaceError::Beyond];
        let others = match (populate, WINDOWS[window].kept) {
            (true, true) => &others[2..],
            (true, false) => &others[..],
            (false, true) => &[],
            (false, false) => &others[..1],
        };
        self.verb(&|| format!("{advice:?} of {part:?}"), got, None, others);
    }

    /// Each takes a frame away for good, so not too many pages are.
    pub(super) fn poison(&mut self, place: &Place) {
        if self.rng.once_in(4) {
            // What it says depends on what faults made; that no store is lost later looks will
            // tell.
            let _ = self.shared.vm.poison(&place.space, self.spot().va());
        }
    }
}

/// What a verb says that wants all of it mapped.
fn whole(was: &[Mapped]) -> Result<(), SpaceError> {
    was.iter().all(Option::is_some).then_some(()).ok_or(SpaceError::Unmapped)
}
