//! Verbs without memory: each fails as a whole, and nothing is lost.

mod faults;
mod starve;
mod verbs;
mod zeros;
