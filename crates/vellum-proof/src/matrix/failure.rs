//! The failures of a pager, and who may have been told of one.
//!
//! A run of several pages that cannot be read fails nobody: the pager is asked for its first page
//! alone, and who waited for another one looks anew. So a read that may be told of has one page.

use super::acts::{Action, Step};
use super::model::{Effect, Model};
use super::spec::{Event, Spec};

/// An answer of the pager by which somebody may fail: a run that it has not written, or a single
/// page that it has not read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Failure {
    /// The page of the object.
    pub page: usize,
    /// It was to be written.
    pub writes: bool,
    /// Instants of the run.
    pub from: usize,
    /// The same.
    pub to: usize,
}

impl Spec<'_> {
    /// A call or an access that a pager's failure ended, if one of a page that it was about came
    /// meanwhile. Only a punch has done something then: it goes from page to page.
    pub(super) fn fails(&self, model: &Model, event: &Event) -> Option<Vec<Effect>> {
        let Event { step: Step { act, side }, began, ended, .. } = *event;
        let writes = act == Action::Sync;
        // A `sync` is told of what failed before, too.
        let may_be_told = |f: &&Failure| writes || began <= f.to;
        let failures = self.failures.iter().filter(|f| f.writes == writes && f.from <= ended);
        let mut failed = failures.filter(may_be_told).map(|f| f.page);
        let pages = model.sides[side].as_ref();
        let shown = |n: usize| pages?[n]?.object;
        match act {
            Action::Sync => failed.next().map(|_| Vec::new()),
            Action::Punch(end) => {
                let bad = failed.find(|&page| page < end)?;
                Some((0..bad).map(|page| Effect::Clear(page, 0)).collect())
            }
            Action::ReadObject(page, _) | Action::WriteObject(page, _) | Action::Grab(page, _) => {
                failed.any(|bad| bad == page).then(Vec::new)
            }
            Action::Load(place, _)
            | Action::Store(place, _)
            | Action::Fetch(place)
            | Action::CopyIn(place, _)
            | Action::CopyOut(place, _)
            | Action::Force(place, _) => {
                let page = shown(self.places.extent(place))?;
                failed.any(|bad| bad == page).then(Vec::new)
            }
            Action::Populate(span, _) => {
                failed.any(|bad| self.within(span).any(|n| shown(n) == Some(bad))).then(Vec::new)
            }
            _ => None,
        }
    }
}
