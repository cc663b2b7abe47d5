//! The pager of real files: `vellum_host::files`, on files of a temporary directory.

mod backings;
mod common;
mod crash;
mod errors;
#[path = "../../examples/mapped_file.rs"]
mod example;
mod mishaps;
mod model;
mod named;
mod shutdown;
mod sizes;
mod waits;

#[test]
fn the_example_of_a_mapped_file_runs() {
    example::main().expect("a directory for temporary files");
}
