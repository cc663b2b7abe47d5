//! Shared zeros: coloured frames, the huge page, and tables of them.

mod colours;
mod forms;
mod huge_page;
mod sources;
mod table;
mod zero_page;
