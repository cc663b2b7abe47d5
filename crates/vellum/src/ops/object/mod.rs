//! The verbs on objects.

pub(crate) mod bytes;
pub(crate) mod collapse;
pub(crate) mod grab;
pub(crate) mod invalidate;
pub(crate) mod resize;
pub(crate) mod sparse;
pub(crate) mod sync;
