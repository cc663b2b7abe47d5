//! Clearing, and the rules of what is seen before and after it.

#[path = "../common/flat.rs"]
mod flat;
mod lab;

mod batch;
mod many;
mod order;
mod rules;
mod safety;
