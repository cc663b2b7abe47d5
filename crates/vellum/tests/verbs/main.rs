//! What each verb of a space does.

mod advise;
mod collapse;
mod cow;
mod create;
mod fault;
mod fork;
mod map;
mod poison;
mod populate;
mod protect;
mod remap;
mod unmap;
mod write_forced;
