//! Pages of zeros: coloured ones, huge ones, and tables of them.

mod colours;
mod flush;
mod page;
mod rules;
mod table;
mod threads;
mod weave;
