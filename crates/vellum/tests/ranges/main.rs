//! Addresses: arithmetic, which ranges verbs take, and where a mapping is placed.

mod arithmetic;
mod limits;
mod placement;
mod user_end;
