//! Flushes: while one CPU unmaps a page, another activates the space, leaves it or runs in it. It
//! must not read the page once the frame has another owner.

use crate::addr::{Level, Pfn};
use crate::atomic::contents;
use crate::entry::Entry;
use crate::fixture::{Memory, model, on, race};
use crate::machine::Machine;
use crate::machines::{BYTES, Metal, PAGE};
use crate::space::{Access, Attrs, Page, Placement, Rights, Space};
use crate::tlb::Receipt;
use crate::vm::Vm;

/// A machine and two spaces, the first of which maps a page.
struct Fixture {
    vm: Vm<Metal>,
    space: Space,
    other: Space,
    pfn: Pfn,
}

impl Fixture {
    fn new(memory: &mut Memory, asids: bool) -> Fixture {
        let vm = Metal::vm(memory, 1024, asids);
        let (space, other) = (vm.create().expect("memory"), vm.create().expect("memory"));
        let attrs = Attrs::anonymous(Rights::READ_WRITE);
        vm.map(&space, Placement::At(PAGE), BYTES, attrs).expect("a hole");
        vm.fault(&space, PAGE, Access::Write).expect("memory");
        let Page::Mapped { pfn, .. } = vm.query(&space, PAGE) else { panic!("no page") };
        Fixture { vm, space, other, pfn }
    }

    /// The second CPU has run in the space. If the machine has asids, it still has a
    /// translation.
    fn ran(memory: &mut Memory, asids: bool) -> Fixture {
        let fixture = Fixture::running(memory, asids);
        on(1, || fixture.vm.deactivate());
        fixture
    }

    /// The second CPU runs in the space and has a translation.
    fn running(memory: &mut Memory, asids: bool) -> Fixture {
        let fixture = Fixture::new(memory, asids);
        on(1, || {
            fixture.vm.activate(&fixture.space);
            assert_eq!(fixture.vm.machine().touch(), Some(fixture.pfn));
        });
        fixture
    }

    /// Removes the entry, flushes, and writes the frame as its next owner does.
    fn take_away(&self) {
        let (mut table, m) = (self.vm.layers.record_of(&self.space).root(), self.vm.machine());
        for level in (2..=4).rev().map(Level) {
            table = match self.vm.layers.load(table, level.slot(PAGE), level) {
                Entry::Table(next) => next,
                other => panic!("no table but {other:?}"),
            };
        }
        // SAFETY: the entry of this fixture, in a table of its own.
        unsafe { m.entry_store(table, Level::ONE.slot(PAGE), 0) };
        let mut receipt = Receipt::new();
        receipt.leaf(PAGE, Level::ONE);
        let _flushed = self.vm.layers.flush(self.vm.layers.record_of(&self.space), receipt);
        contents(self.pfn.0, true);
    }

    fn come(&self) {
        self.vm.activate(&self.space);
        self.vm.machine().touch();
    }
}

#[test]
fn a_cpu_that_comes_is_flushed_or_sees_the_new_entry() {
    model(
        3,
        |memory| Fixture::new(memory, false),
        |fixture| {
            race(|| fixture.take_away(), || fixture.come());
        },
    );
}

#[test]
fn a_cpu_that_comes_again_is_flushed_or_told_to_flush() {
    model(
        3,
        |memory| Fixture::ran(memory, true),
        |fixture| {
            race(|| fixture.take_away(), || fixture.come());
        },
    );
}

#[test]
fn a_cpu_that_goes_has_dropped_what_it_held() {
    model(
        3,
        |memory| Fixture::running(memory, false),
        |fixture| {
            let go = || {
                fixture.vm.machine().touch();
                fixture.vm.deactivate();
            };
            race(|| fixture.take_away(), go);
        },
    );
}

#[test]
fn a_cpu_that_goes_to_another_space_and_back() {
    model(
        2,
        |memory| Fixture::running(memory, true),
        |fixture| {
            let go = || {
                fixture.vm.activate(&fixture.other);
                fixture.vm.machine().touch();
                fixture.come();
            };
            race(|| fixture.take_away(), go);
        },
    );
}

#[test]
fn a_page_is_unmapped_while_a_cpu_comes() {
    for asids in [false, true] {
        model(
            2,
            |memory| Fixture::ran(memory, asids),
            |fixture| {
                let unmap = || fixture.vm.unmap(&fixture.space, PAGE, BYTES).expect("memory");
                race(unmap, || fixture.come());
            },
        );
    }
}
