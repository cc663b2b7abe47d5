//! A change of what a space's addresses allow.

use crate::machine::Machine;
use crate::space::SpaceRecord;
use crate::sync::{Layout, Token, Top};
use crate::vma::Regions;
use crate::vma::deferred_free::Trash;

/// A change in progress: the space, the token of its layout lock, and what is to be freed when the
/// change is over.
pub(crate) struct Edit<'e> {
    pub space: &'e SpaceRecord,
    pub token: &'e mut Token<Layout>,
    pub trash: &'e mut Trash,
}

impl<M: Machine> Regions<M> {
    /// Changes a space under its layout lock, and frees afterwards what no reader can still see.
    #[inline(always)]
    pub fn edit<R>(&self, space: &SpaceRecord, change: impl FnOnce(&mut Edit<'_>) -> R) -> R {
        let mut top: Token<Top> = Token::top();
        let mut trash = Trash::default();
        let done = {
            let mut layout = space.layout().lock(&self.machine, &mut top, space.id());
            change(&mut Edit { space, token: layout.token(), trash: &mut trash })
        };
        self.empty_trash(trash, &mut top);
        done
    }
}
