//! Clearing and copying of pages, and the rules of what is seen before and after it.

mod bandwidth;
mod exits;
mod order;
mod pages;
mod pool;
mod safety;
