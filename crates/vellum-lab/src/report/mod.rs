//! From counters to what people and scripts read.
//!
//! Everything printed is a function of [`Counters`]: a named list of integers in a fixed order.
//! Tables and JSON read the same list, so a figure cannot be in one and differ in the other, and no
//! figure is computed at printing except ratios and unit prefixes.

pub mod behind;
pub mod bench;
mod counters;
mod interval;
pub mod json;
pub mod number;
mod rows;
pub mod table;

pub use counters::Counters;
pub use interval::{Doubt, Interval, Time, doubts};
pub use rows::{GROUPS, Group, Row, SCREEN, TIME, Unit};
