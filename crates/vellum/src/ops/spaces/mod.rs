//! Whole spaces.

pub(crate) mod create;
pub(crate) mod exit;
pub(crate) mod fork;
