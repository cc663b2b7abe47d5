//! Zero pages and clearing.
