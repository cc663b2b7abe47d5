//! Where the pages of a region come from.

use crate::space::SlabRef;

/// Where the pages of a region come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Backing {
    /// Added to a page number it gives the page's index (wrapping): the object's page, or the index
    /// of private memory, which is the page number unless the pages were moved.
    pub shift: u64,
    /// The attachment of the object that is mapped, if one is.
    pub attachment: Option<SlabRef>,
}

impl Backing {
    /// Private memory that was never moved.
    pub const PRIVATE: Backing = Backing { shift: 0, attachment: None };
}
