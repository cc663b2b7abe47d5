//! Allocating: from the magazine, the cpu buddy, the blocks of each node in turn.

pub mod drain;
mod fast;
mod on_node;
pub mod request;
mod search;
mod search_huge;
mod slow;
