//! Memory nodes.

pub mod numa_node;
