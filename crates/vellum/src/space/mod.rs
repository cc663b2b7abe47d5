//! Address spaces: the page table is the map.
//!
//! There is no second tree of areas to keep in step with the page table. Entries say whether an
//! address lies in a region ([`Entry::Reserved`](crate::entry::Entry::Reserved) is a promise
//! without a page, and one of them can promise 1 GiB), and what a region allows hangs off table
//! nodes as sorted intervals of slots. One walk answers both questions.
//!
//! Two kinds of locks serve the verbs:
//!
//! - A *fault* descends without any lock inside an epoch, prepares what it needs, locks the one
//!   node it changes, and looks again whether the node lives, the entry is the one seen, and no
//!   region was edited meanwhile; else it starts over. It takes no lock of the space and writes no
//!   line that faults below other nodes write.
//! - Every *other* verb holds the space's layout lock, prepares everything that may fail, and only
//!   then changes things; it locks a node for as long as it changes that node's entries. Entries it
//!   removes become `Moving` or `Detached`, which make faults wait, until the flush is over; so the
//!   table itself is the list of what is to be freed and no verb needs memory to give memory back.
//!   Entries that a fault has set aside are `Busy`, and every verb waits for them.

mod answer;
pub(crate) mod attrs;
mod record;

pub use answer::{Audit, Fault, Page, Usage};
pub use attrs::{Access, Advice, Attrs, HugeAdvice, LeafSize, Placement, Rights};
pub use record::{MAX_SPACES, Space};

pub(crate) use record::{CpuWords, Edits, SpaceRecord};
