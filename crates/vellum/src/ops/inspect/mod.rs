//! Questions, which change nothing.

pub(crate) mod query;
pub(crate) mod usage;
pub(crate) mod validate;
