//! Where the pages of a region come from.

use crate::space::SlabRef;
use crate::space::attrs::ViewKind;

/// Where the pages of a region come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Backing {
    /// Added to a page number it gives the index of a page of private memory (wrapping). 0 unless
    /// the pages were moved, and where no page is private.
    pub shift: u64,
    /// The attachment of the object that is mapped, if one is.
    pub attachment: Option<SlabRef>,
    /// What a write does; of private memory `Private`.
    pub kind: ViewKind,
}

impl Backing {
    /// Private memory that was moved by so much.
    pub const fn anonymous(shift: u64) -> Backing {
        Backing { shift, attachment: None, kind: ViewKind::Private }
    }
}

/// A view of an object: what a region that maps one begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub object: SlabRef,
    /// Added to a page number it gives the object's page index (wrapping).
    pub shift: u64,
    /// The same for the index of private copies; `None` if who writes changes the object.
    pub copies: Option<u64>,
}
