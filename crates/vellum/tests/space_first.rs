//! The verbs of a space, one behaviour a test.

mod space_lab;

use space_lab::*;
use vellum::addr::{Level, Va};
use vellum::config::Config;
use vellum::error::FaultError;
use vellum::space::{Access, Fault, Page, Rights};

#[test]
fn a_space_that_did_nothing_gives_everything_back() {
    let lab = lab(4096, Config::default());
    let first = lab.vm.create().unwrap();
    lab.vm.exit(first);
    let before = lab.free(&[]);
    let space = lab.vm.create().unwrap();
    lab.check(&[&space]);
    lab.vm.exit(space);
    assert_eq!(lab.free(&[]), before);
}

#[test]
fn a_page_is_zero_then_what_was_written_and_gone_after_unmap() {
    let lab = lab(4096, never());
    let space = lab.vm.create().unwrap();
    let before = lab.free(&[&space]);
    lab.map(&space, AT, 3 * KIB4, RW);
    assert_eq!(lab.vm.query(&space, AT), Page::Reserved { rights: Rights::READ_WRITE });
    assert_eq!(lab.vm.fault(&space, AT, Access::Read), Ok(Fault::Zero));
    assert_eq!(lab.peek(&space, AT), Ok(0));
    assert_eq!(lab.vm.fault(&space, AT, Access::Write), Ok(Fault::Copied(Level::ONE)));
    lab.poke(&space, AT, 7).unwrap();
    assert_eq!(lab.vm.fault(&space, Va(AT.0 + KIB4), Access::Write), Ok(Fault::Base));
    assert_eq!(lab.vm.fault(&space, AT, Access::Write), Ok(Fault::Spurious));
    assert_eq!(lab.peek(&space, AT), Ok(7));
    assert_eq!(lab.vm.usage(&space).rss_pages, 2);
    lab.check(&[&space]);
    lab.vm.unmap(&space, AT, 3 * KIB4).unwrap();
    assert_eq!(lab.peek(&space, AT), Err(FaultError::Unmapped));
    assert_eq!(lab.free(&[&space]), before);
    assert_eq!(lab.vm.usage(&space).table_nodes, 1);
    lab.vm.exit(space);
    lab.check(&[]);
}
