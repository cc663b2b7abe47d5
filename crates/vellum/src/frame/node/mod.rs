//! Memory nodes.

pub mod counters;
pub mod marks;
pub mod numa_node;
pub mod pending_queue;
