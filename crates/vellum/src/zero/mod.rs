//! The shared zeros, and clearing.
//!
//! A few frames of zeros stand behind every page that was read and never written. They are allocated when the first space is made
//! (an embedder reserves its own frames before that), never freed, never writable, never counted as anyone's memory; "is
//! this a zero page" is a range test on the frame number, not a look at a record (rule 6). How many there are, and which one an
//! address maps, is told in `colour`; a space may have none at all, by `forbid`. An empty table is none of them: it is a frame of
//! its own, of another use, as a zero frame's contents must stay zero and a table's need not.
//!
//! Where a huge page would be used, `huge` keeps one page of zeros of that size, and `tables` tables that map base zeros for everybody.
//!
//! Clearing is in [`clear`], blocks kept aside for large leaves in `pool`.

mod huge;
pub mod page;
mod tables;

pub(crate) use huge::HugeZero;
#[cfg(test)]
pub(crate) use huge::MOST_USES;
pub(crate) use tables::ZeroTables;
