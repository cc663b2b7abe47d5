//! The guarantees of the verbs to all threads, and whether a history satisfies them.
//!
//! A history satisfies them if its calls and accesses can be put in one order in which each has the
//! outcome that it had. The order respects each thread's own order, and a call that returned before
//! another began comes first. The unit is a word, not a page. An access is one instant. A verb on a
//! range takes effect page by page, in any order, between its call and its return; verbs that
//! change mappings do so one after the other. `fork` is one instant: the child is a snapshot.
//! `remap` moves a page in one instant. Of an object that becomes shorter, `object.rs` has more.
//!
//! `model.rs` has what it is held against. Outcomes are sets: where memory is short, a verb
//! may return an error, and has then done nothing. Where a pager fails, whoever was about that page
//! meanwhile may say so ([`Failure`]), and nobody else. What a `sync` has written each word was at
//! some moment of the call.

use std::collections::HashSet;

use vellum::space::Rights;

use super::acts::{Action, Step};
use super::failure::Failure;
use super::model::{Cell, Effect, Model, Pages, WORDS};
use super::object::ObjectPage;
use super::states::{OBJECT_PAGES, Places};

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Nothing is mapped there.
    Unmapped,
    /// The rights do not allow it.
    Rights,
    /// There is no memory.
    NoMemory,
    /// It lies past the end of the object.
    Beyond,
    /// The object's size is sealed.
    Sealed,
    /// A pager failed.
    Io,
    /// It is a device, which has not that.
    Device,
    /// Something is mapped there.
    Occupied,
    /// Another reason, which the matrix never gives.
    Other,
}

/// How a call or an access ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It did what it says.
    Done,
    /// It read this.
    Value(u32),
    /// It said that the pager has all, which had this of the object's pages.
    Saved([[u32; WORDS]; OBJECT_PAGES]),
    /// It told that these pages of the object were written.
    Harvested([bool; OBJECT_PAGES]),
    /// It told of these rights, or that nothing is mapped.
    Told(Option<Rights>),
    /// It was refused.
    Refused(Refusal),
}

/// A call or an access: when it began and ended, and how.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// Who.
    pub cpu: usize,
    /// What, and in which space.
    pub step: Step,
    /// What a store writes.
    pub value: u32,
    /// Instants of the run.
    pub began: usize,
    /// The same.
    pub ended: usize,
    /// How it ended.
    pub outcome: Outcome,
}

/// The cell of an access, or why it has none.
fn look(pages: &Pages, extent: usize, allows: impl Fn(&Cell) -> bool) -> Result<Cell, Refusal> {
    let cell = pages[extent].ok_or(Refusal::Unmapped)?;
    if allows(&cell) { Ok(cell) } else { Err(Refusal::Rights) }
}

/// What is explained: a history and what was looked at when it was over.
pub struct Spec<'s> {
    /// Where pages lie.
    pub places: &'s Places,
    /// Whether memory may be short.
    pub scarce: bool,
    /// Whether a hole in the object is zeros that are written page by page, so that a seal may come
    /// between two of them.
    pub by_page: bool,
    /// The history.
    pub events: &'s [Event],
    /// The pager's failures.
    pub failures: &'s [Failure],
    /// What was seen afterwards, one after the other.
    pub after: &'s [Event],
}

/// How far an event is.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Phase {
    Waits,
    Begun(Vec<Effect>),
    Over,
}

impl Phase {
    /// What was to be seen at some moment, and is there now, is done with: it never helps to wait.
    fn look(&mut self, model: &Model) {
        let Phase::Begun(effects) = self else { return };
        effects.retain(|effect| match *effect {
            Effect::Saw(at, value) => model.object.words(at.page)[at.word] != value,
            _ => true,
        });
        if effects.is_empty() {
            *self = Phase::Over;
        }
    }
}

impl Spec<'_> {
    /// Whether the history can be explained from where it began.
    pub fn is_explained(&self, start: &Model) -> bool {
        let mut seen = HashSet::new();
        self.explain(start.clone(), vec![Phase::Waits; self.events.len()], &mut seen)
    }

    fn explain(
        &self,
        model: Model,
        mut phases: Vec<Phase>,
        seen: &mut HashSet<(Model, Vec<Phase>)>,
    ) -> bool {
        phases.iter_mut().for_each(|phase| phase.look(&model));
        if phases.iter().all(|p| *p == Phase::Over) {
            return self.holds_after(model);
        }
        if !seen.insert((model.clone(), phases.clone())) {
            return false;
        }
        // Nothing happens before what had returned when it was called.
        let open = (0..phases.len()).filter(|&n| phases[n] != Phase::Over);
        let earliest = open.map(|n| self.events[n].ended).min().unwrap_or(usize::MAX);
        (0..phases.len()).any(|n| {
            let event = &self.events[n];
            if phases[n] == Phase::Over || earliest < event.began {
                return false;
            }
            match &phases[n] {
                Phase::Begun(effects) => (0..effects.len()).any(|i| {
                    match effects[i] {
                        Effect::Saw(..) => return false,
                        Effect::Harvest(page, false) if model.object.written[page] => return false,
                        _ => {}
                    }
                    let (mut model, mut phases, mut left) =
                        (model.clone(), phases.clone(), effects.clone());
                    left.remove(i).apply(&mut model, event.step.side);
                    phases[n] = if left.is_empty() { Phase::Over } else { Phase::Begun(left) };
                    self.explain(model, phases, seen)
                }),
                _ => {
                    let before = self.before(&model, event);
                    if before.into_iter().any(|model| self.explain(model, phases.clone(), seen)) {
                        return true;
                    }
                    let under_way = |m: usize| {
                        matches!(phases[m], Phase::Begun(_))
                            && self.events[m].step.side == event.step.side
                            && changes_mappings(self.events[m].step.act)
                    };
                    let taking = |m: usize| {
                        let act = self.events[m].step.act;
                        matches!(phases[m], Phase::Begun(_))
                            && act.takes_from_object()
                            && !(self.by_page && punches_beside_seal(act, event.step.act))
                    };
                    let changes = changes_mappings(event.step.act);
                    let takes = event.step.act.takes_from_object();
                    if changes && (0..phases.len()).any(under_way)
                        || takes && (0..phases.len()).any(taking)
                    {
                        return false;
                    }
                    let mut model = model.clone();
                    let Some(effects) = self.step(&mut model, event, self.scarce) else {
                        return false;
                    };
                    let mut phases = phases.clone();
                    phases[n] =
                        if effects.is_empty() { Phase::Over } else { Phase::Begun(effects) };
                    self.explain(model, phases, seen)
                }
            }
        })
    }

    /// The model once a call that is under way has done what it may do, once or oftener, before
    /// its own step: an access makes a copy where it writes, one model for each page that it may
    /// copy next; `evict` lets a last page go, and what was stored past the end.
    fn before(&self, model: &Model, event: &Event) -> Vec<Model> {
        let Step { act, side } = event.step;
        if act == Action::Evict {
            let mut evicted = model.clone();
            evicted.object.forget_rest();
            return if evicted == *model { Vec::new() } else { vec![evicted] };
        }
        let extents: Vec<usize> = match act {
            Action::Store(place, _) | Action::CopyIn(place, _) | Action::Force(place, _) => {
                vec![self.places.extent(place)]
            }
            Action::Populate(span, true) => self.within(span).collect(),
            _ => return Vec::new(),
        };
        let forced = matches!(act, Action::Force(..));
        let may_write = |cell: Cell| cell.write || forced && cell.read;
        let copy = |n: usize| {
            let cell = model.sides[side].as_ref()?[n].filter(|&cell| may_write(cell))?;
            let mut copied = (cell.copied(&model.object) != cell).then(|| model.clone())?;
            Effect::Copy(n).apply(&mut copied, side);
            Some(copied)
        };
        extents.into_iter().filter_map(copy).collect()
    }

    /// What was seen in the end. Every page is clean when `evict` is called there, so all go.
    fn holds_after(&self, mut model: Model) -> bool {
        self.after.iter().all(|event| {
            if event.step.act == Action::Evict {
                model.object.forget_rest();
            }
            let phase = self.step(&mut model, event, false).map(Phase::Begun);
            phase.is_some_and(|mut phase| {
                phase.look(&model);
                let Phase::Begun(effects) = phase else { return true };
                effects.into_iter().all(|effect| match effect {
                    Effect::Harvest(page, told) => {
                        let was_written = std::mem::take(&mut model.object.written[page]);
                        told || !was_written
                    }
                    _ => false,
                })
            })
        })
    }

    /// Lets an event begin in a model, if it can end there as it did; says what is left to do.
    fn step(&self, model: &mut Model, event: &Event, scarce: bool) -> Option<Vec<Effect>> {
        let Event { step: Step { act, side }, outcome, value, cpu, .. } = *event;
        match outcome {
            Outcome::Refused(Refusal::NoMemory) => return scarce.then(Vec::new),
            Outcome::Refused(Refusal::Io) => return self.fails(model, event),
            _ => {}
        }
        if act.wants_object() && !matches!(act, Action::MapObject(..) | Action::MapPrivate(..)) {
            return model.object.step(act, value, outcome);
        }
        let (object, device) = (&mut model.object, &mut model.device);
        let pages = model.sides[side].as_mut()?;
        let at = |place| self.places.extent(place);
        let none = Some(Vec::new());
        // The library touches no byte of a device.
        let kernel = matches!(act, Action::CopyIn(..) | Action::CopyOut(..) | Action::Force(..));
        let refused = Outcome::Refused(Refusal::Device);
        match act {
            Action::Load(place, word) | Action::CopyOut(place, word) => {
                let found = look(pages, at(place), |cell| cell.read);
                if let Ok(Cell { device: Some(page), .. }) = found {
                    let seen = Outcome::Value(device[page][word]);
                    return (outcome == if kernel { refused } else { seen }).then(Vec::new);
                }
                if let Ok(Cell { object: Some(page), .. }) = found {
                    return object.access(page, outcome, |words| Outcome::Value(words[word]));
                }
                let seen = found.map(|cell| cell.words[word]);
                if seen.map_or_else(Outcome::Refused, Outcome::Value) == outcome {
                    none
                } else {
                    None
                }
            }
            Action::Fetch(place) => match look(pages, at(place), |cell| cell.exec) {
                Ok(Cell { object: Some(page), .. }) => {
                    object.access(page, outcome, |_| Outcome::Done)
                }
                found => is(found.map(drop), outcome),
            },
            Action::Store(place, word)
            | Action::CopyIn(place, word)
            | Action::Force(place, word) => {
                // What is written to an object others see.
                let forced = matches!(act, Action::Force(..));
                let allows = |cell: &Cell| {
                    let shared = cell.object.or(cell.device).is_some() && cell.view.is_none();
                    if forced && !shared { cell.read } else { cell.write }
                };
                let found = look(pages, at(place), allows);
                if let Ok(Cell { device: Some(page), .. }) = found {
                    if kernel {
                        return (outcome == refused).then(Vec::new);
                    }
                    device[page][word] = value;
                    return is(Ok(()), outcome);
                }
                // A view is copied before, or refused.
                let found = match outcome {
                    Outcome::Done => found.map(|cell| cell.copied(object)),
                    _ => found,
                };
                if let Ok(Cell { object: Some(page), view, .. }) = found {
                    let done = object.access(page, outcome, |words| {
                        if view.is_none() {
                            words[word] = value;
                        }
                        Outcome::Done
                    });
                    if view.is_none() {
                        object.note_write(page);
                    }
                    return done;
                }
                is(store(pages, at(place), word, value, found), outcome)
            }
            Action::Populate(span, write) => {
                // Page by page, of which each has its own instant; what it meets is told apart no
                // further.
                let gives = |n: usize| {
                    let found = look(pages, n, |cell| if write { cell.write } else { cell.read });
                    let is_beyond =
                        |page: usize| !matches!(object.pages[page], ObjectPage::There(_));
                    match found {
                        Ok(cell) if cell.object.is_some_and(is_beyond) => Some(Refusal::Beyond),
                        found => found.err(),
                    }
                };
                let met: Vec<_> = self.within(span).map(gives).collect();
                match outcome {
                    Outcome::Refused(why) if met.contains(&Some(why)) => none,
                    Outcome::Refused(_) => None,
                    _ if write => Some(self.within(span).map(Effect::Copy).collect()),
                    _ => none,
                }
            }
            Action::Query(place) => {
                let told = pages[at(place)].map(Cell::rights);
                if outcome == Outcome::Told(told) { none } else { None }
            }
            Action::Shrink | Action::Take(_) | Action::Drain => none,
            Action::Activate | Action::Idle | Action::Yield => none,
            Action::Anywhere | Action::Forbid => is(Ok(()), outcome),
            Action::Poison(place) => {
                let there = pages[at(place)].is_some_and(|cell| match outcome {
                    Outcome::Refused(Refusal::Device) => cell.device.is_some(),
                    _ => cell.device.is_none(),
                });
                if there || outcome == Outcome::Refused(Refusal::Unmapped) { none } else { None }
            }
            Action::Exit => {
                model.sides[1] = None;
                none
            }
            Action::Fork => {
                let copy = *pages;
                model.sides[2 + cpu] = Some(copy);
                is(Ok(()), outcome)
            }
            _ => self.verb(pages, act, outcome),
        }
    }

    pub(super) fn within(&self, span: super::acts::PageRange) -> impl Iterator<Item = usize> + '_ {
        self.places.within(self.places.span(span))
    }

    /// The verbs that change what is mapped in a range.
    fn verb(&self, pages: &Pages, act: Action, outcome: Outcome) -> Option<Vec<Effect>> {
        let mapped = |span| self.within(span).all(|n| pages[n].is_some());
        let hole = |span| self.within(span).all(|n| pages[n].is_none());
        let is_device = |n: usize| pages[n].is_some_and(|cell| cell.device.is_some());
        let refused = |why| if outcome == Outcome::Refused(why) { Some(Vec::new()) } else { None };
        let effects: Vec<Effect> = match act {
            Action::Map(span, _)
            | Action::MapObject(span, _, false)
            | Action::MapPrivate(span, _, false)
            | Action::MapDevice(span, _, false)
                if !hole(span) =>
            {
                return refused(Refusal::Occupied);
            }
            Action::MapObject(span, first, _) | Action::MapPrivate(span, first, _) => {
                let private = matches!(act, Action::MapPrivate(..));
                let cell = |page| Some(Cell::of_object(Rights::READ_WRITE, page, private));
                self.within(span).zip(first..).map(|(n, page)| Effect::Put(n, cell(page))).collect()
            }
            Action::MapDevice(span, first, _) => {
                let cell = |page| Some(Cell::of_device(Rights::READ_WRITE, page));
                self.within(span).zip(first..).map(|(n, page)| Effect::Put(n, cell(page))).collect()
            }
            Action::Map(span, rights) | Action::Replace(span, rights) => {
                self.within(span).map(|n| Effect::Put(n, Some(Cell::zero(rights)))).collect()
            }
            Action::Unmap(span) => self.within(span).map(|n| Effect::Put(n, None)).collect(),
            Action::Protect(span, _) | Action::DontNeed(span) | Action::Remap(span, _)
                if !mapped(span) =>
            {
                return refused(Refusal::Unmapped);
            }
            Action::Collapse | Action::Huge(_) if !mapped(super::acts::PageRange::Both) => {
                return refused(Refusal::Unmapped);
            }
            Action::Protect(span, Rights { exec: true, .. })
                if self.within(span).any(is_device) =>
            {
                return refused(Refusal::Rights);
            }
            Action::Protect(span, rights) => {
                self.within(span).map(|n| Effect::Rights(n, rights)).collect()
            }
            Action::DontNeed(span) => self.within(span).map(Effect::Forget).collect(),
            Action::Remap(_, to) if !hole(to) => return refused(Refusal::Occupied),
            Action::Remap(from, to) => {
                self.within(from).zip(self.within(to)).map(|(a, b)| Effect::Move(a, b)).collect()
            }
            _ => Vec::new(),
        };
        (outcome == Outcome::Done).then_some(effects)
    }
}

fn is(done: Result<(), Refusal>, outcome: Outcome) -> Option<Vec<Effect>> {
    (done.map_or_else(Outcome::Refused, |()| Outcome::Done) == outcome).then(Vec::new)
}

fn store(
    pages: &mut Pages,
    extent: usize,
    word: usize,
    value: u32,
    found: Result<Cell, Refusal>,
) -> Result<(), Refusal> {
    let cell = found?;
    let mut words = cell.words;
    words[word] = value;
    pages[extent] = Some(Cell { words, ..cell });
    Ok(())
}

/// Whether one makes a hole and the other is a seal.
fn punches_beside_seal(one: Action, other: Action) -> bool {
    matches!((one, other), (Action::Punch(_), Action::Seal) | (Action::Seal, Action::Punch(_)))
}

/// Whether a verb excludes others like it in the same space.
fn changes_mappings(act: Action) -> bool {
    use Action::*;
    matches!(
        act,
        Map(..)
            | MapObject(..)
            | MapPrivate(..)
            | MapDevice(..)
            | Replace(..)
            | Unmap(_)
            | Protect(..)
            | Remap(..)
            | DontNeed(_)
            | Collapse
            | Huge(_)
            | Fork
            | Exit
            | Forbid
            | Poison(_)
    )
}
