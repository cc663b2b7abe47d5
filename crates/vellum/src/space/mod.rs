//! What a space is to all layers: its record, the attributes of its regions, and answers of verbs.
//!
//! The page table is the map. There is no second tree of areas to keep in step with it: entries say
//! whether an address lies in a region ([`Entry::Reserved`](crate::entry::Entry::Reserved) is a
//! mapping without a page, of up to 1 GiB), and what a region allows hangs off table nodes as
//! sorted intervals of slots. One walk answers both questions.
//!
//! Two kinds of operations change a space. A *fault* takes no lock of the space: it descends inside
//! an epoch and locks the one node that it changes (`fault/`). Every *other* verb holds the space's
//! mmap lock, prepares everything that may fail, and only then changes things. Entries that it
//! removes become busy or `Detached` until the flush is over, so the table itself is the list of
//! what is to be freed, and no verb needs memory to give memory back.

mod answer;
pub(crate) mod attrs;
mod backing;
mod record;
mod slab_ref;

pub use answer::{Audit, Fault, KeptPage, ObjectUsage, Page, Seals, Usage};
pub use attrs::{Access, Advice, Attrs, HugeAdvice, LeafSize, Placement, Rights};
pub use record::{MAX_SPACES, Space};

pub(crate) use backing::{Backing, View};
pub(crate) use record::{CpuWords, Edits, SpaceRecord};
pub(crate) use slab_ref::SlabRef;
