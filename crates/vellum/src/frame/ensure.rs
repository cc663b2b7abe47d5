//! What validation says.

use crate::error::Invalid;

/// An error with that text unless a sentence holds.
#[inline]
pub(super) fn ensure(
    holds: bool,
    what: &'static str,
    at: u64,
    expected: u64,
    found: u64,
) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(Invalid::new(what, at, expected, found)) }
}
