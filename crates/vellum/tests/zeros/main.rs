//! Pages of zeros: coloured ones, huge ones, and tables of them.

#[path = "../common/cached.rs"]
mod cached;
#[path = "../common/flat.rs"]
mod flat;
#[path = "../space/lab/mod.rs"]
mod lab;

mod colours;
mod flush;
mod page;
mod rules;
mod table;
mod threads;
mod weave;
