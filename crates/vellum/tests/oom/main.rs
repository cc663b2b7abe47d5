//! Verbs without memory: each fails as a whole, and nothing is lost.

mod drains;
mod faults;
mod starve;
mod verbs;
mod zeros;
