//! Clearing, and the rules of what is seen before and after it.

mod batch;
mod many;
mod order;
mod rules;
mod safety;
