//! Rules F-6 and F-7: zeros of every form keep their colours, and every walker knows them.
//!
//! Zeros come as base frames of a colour, as the huge page, and as tables of base zeros, shared or
//! private. A walker that took one of them for a page would count it, share it, free it, own it or
//! write to it; so each goes over each form, and afterwards every frame of zeros is what it was to
//! the word, nobody has more memory than was written, and another space still reads its zeros.

use std::ops::Deref;

use vellum_testkit::prelude::*;

listed! {
    /// How zeros are mapped.
    enum Form {
        Base,
        Page,
        Private,
        /// A shared table for 2 MiB.
        Table,
        /// A shared table for 1 GiB.
        Middle,
    }
}

impl Form {
    fn config(self) -> Config {
        let zero_huge = match self {
            Form::Base => ZeroHuge::Off,
            Form::Page => ZeroHuge::Page,
            Form::Private => ZeroHuge::TablePrivate,
            Form::Table | Form::Middle => ZeroHuge::Table,
        };
        let thp = if self == Form::Base { Thp::Never } else { Thp::Always };
        let zero_colours = Colours::Exactly(order(3));
        Config { zero_huge, thp, zero_colours, ..Config::default() }
    }
    fn bytes(self) -> u64 {
        if self == Form::Middle { GIB } else { 2 * MIB2 }
    }
}

/// A fixture with two spaces that read zeros of a form at 1 GiB, and nothing else.
struct Readers<C: Codec> {
    fx: Fixture<C>,
    form: Form,
    space: Space,
    other: Space,
}

impl<C: Codec> Deref for Readers<C> {
    type Target = Fixture<C>;
    fn deref(&self) -> &Fixture<C> {
        &self.fx
    }
}

/// Pages that are looked at: some of each colour, in each 2 MiB.
fn pages() -> impl Iterator<Item = u64> {
    (0..10).chain(250..260).chain(505..520).chain(1010..1024)
}

fn page(n: u64) -> Va {
    Va(GIB + n * KIB4)
}

fn readers<C: Arch>(form: Form) -> Readers<C> {
    let fx = fixture_of::<C>(3, 512 * 12, form.config());
    let [space, other] = [(); 2].map(|()| {
        let space = fx.mapped(Va(GIB), form.bytes(), RW);
        for n in 0..1024 {
            assert_eq!(fx.kernel_peek(&space, page(n)), Ok(0));
        }
        space
    });
    let readers = Readers { fx, form, space, other };
    readers.is_of_form(&readers.space);
    readers
}

impl<C: Codec> Readers<C> {
    /// The space maps zeros as the form says, and nothing else.
    fn is_of_form(&self, space: &Space) {
        let usage = self.usage(space);
        let seen = (usage.zero_leaves, usage.zero_huge_leaves, usage.zero_tables, usage.rss_pages);
        let expect = match self.form {
            Form::Base | Form::Private => (1024, 0, 0, 0),
            Form::Page => (0, 2, 0, 0),
            Form::Table => (0, 0, 2, 0),
            Form::Middle => (0, 0, 1, 0),
        };
        assert_eq!(seen, expect, "{:?}", self.form);
    }

    /// Every frame of zeros with its record's words, none of which may change.
    fn zeros(&self) -> Vec<(Pfn, Vec<u64>)> {
        let vm = &self.vm;
        let (first, frames) = vm.zeros(0);
        let mut all: Vec<Pfn> = (0..frames).map(|i| first.add(i)).collect();
        let huge = vm.huge_zero().into_iter();
        all.extend(huge.flat_map(|first| (0..512).map(move |i| first.add(i))));
        let words = |pfn: Pfn| {
            let record = vm.frames().record(pfn);
            record.words().into_iter().chain([record.use_() as u64]).collect()
        };
        all.into_iter().map(|pfn| (pfn, words(pfn))).collect()
    }

    fn all_zero(&self, zeros: &[(Pfn, Vec<u64>)]) {
        let mut bytes = [1; 4096];
        for (pfn, _) in zeros {
            self.m().peek(*pfn, 0, &mut bytes);
            let zeros = bytes.iter().all(|&b| b == 0) && self.vm.is_zero(*pfn);
            assert!(zeros, "{pfn:?} is not zeros any more");
        }
    }

    fn read(&self, space: &Space, n: u64) -> u64 {
        self.kernel_peek(space, page(n)).expect("mapped")
    }
}

/// A walker of the page table: its name, whether it allocates pages, and what it does.
type Walker<C> = (&'static str, bool, fn(&Readers<C>));

fn walkers<C: Codec>() -> Vec<Walker<C>> {
    vec![
        ("query", false, |r| {
            for n in pages() {
                let Page::Mapped { zero, flags, pfn, level, .. } = r.vm.query(&r.space, page(n))
                else {
                    panic!("page {n} is not mapped")
                };
                assert!(zero && !flags.write && !flags.dirty && r.vm.is_zero(pfn), "page {n}");
                assert_eq!(level == Level::TWO, r.form == Form::Page);
            }
        }),
        ("usage", false, |r| r.is_of_form(&r.space)),
        ("copy out", false, |r| pages().for_each(|n| assert_eq!(r.read(&r.space, n), 0))),
        ("populate for reading", false, |r| {
            r.vm.advise(&r.space, Va(GIB), 2 * MIB2, Advice::Populate { write: false }).unwrap();
            r.is_of_form(&r.space);
        }),
        ("populate for writing", true, |r| {
            r.populate(&r.space, Va(GIB), 2 * MIB2).unwrap();
        }),
        ("write fault", true, |r| _ = r.vm.fault(&r.space, page(9), Access::Write).unwrap()),
        ("write fault without huge pages", true, |r| {
            let taken = r.take_all(Order::HUGE);
            r.vm.fault(&r.space, page(9), Access::Write).unwrap();
            r.give_back(taken, Order::HUGE);
        }),
        ("copy in", true, |r| r.vm.copy_in(&r.space, page(9), &[7; 9000]).unwrap()),
        ("forced write", true, |r| r.vm.write_forced(&r.space, page(9), &[7; 9000]).unwrap()),
        ("forced write where nothing may be written", true, |r| {
            r.vm.protect(&r.space, Va(GIB), r.form.bytes(), Rights::READ).unwrap();
            r.vm.write_forced(&r.space, page(9), &[7; 9]).unwrap();
            assert!(r.vm.fault(&r.space, page(10), Access::Write).is_err());
        }),
        ("fork", false, |r| {
            let child = r.vm.fork(&r.space).unwrap();
            r.is_of_form(&child);
            r.is_of_form(&r.space);
            r.check(&[&r.space, &r.other, &child]);
            r.vm.exit(child);
        }),
        ("fork, and both write", true, |r| {
            let child = r.vm.fork(&r.space).unwrap();
            r.vm.copy_in(&child, page(9), &[1]).unwrap();
            assert_eq!((r.read(&r.space, 9), r.read(&child, 9)), (0, 1));
            r.is_of_form(&r.space);
            r.vm.copy_in(&r.space, page(9), &[2]).unwrap();
            assert_eq!((r.read(&r.space, 9), r.read(&child, 9)), (2, 1));
            r.check(&[&r.space, &r.other, &child]);
            r.vm.exit(child);
        }),
        ("collapse of zeros alone", false, |r| {
            let _ = r.vm.advise(&r.space, Va(GIB), MIB2, Advice::Huge);
            let _ = r.vm.advise(&r.space, Va(GIB), MIB2, Advice::Collapse);
            pages().for_each(|n| assert_eq!(r.read(&r.space, n), 0));
        }),
        ("collapse of a page among zeros", true, |r| {
            let taken = r.take_all(Order::HUGE);
            r.vm.copy_in(&r.space, page(9), &[7]).unwrap();
            r.give_back(taken, Order::HUGE);
            r.vm.advise(&r.space, Va(GIB), MIB2, Advice::Huge).unwrap();
            r.vm.advise(&r.space, Va(GIB), MIB2, Advice::Collapse).unwrap();
            assert_eq!(r.usage(&r.space).huge_leaves, 1, "{:?}", r.form);
            (0..512).for_each(|n| assert_eq!(r.read(&r.space, n), if n == 9 { 7 } else { 0 }));
        }),
        ("unmap", false, |r| r.vm.unmap(&r.space, Va(GIB), r.form.bytes()).unwrap()),
        ("unmap of a page", false, |r| r.vm.unmap(&r.space, page(9), KIB4).unwrap()),
        ("unmap of what spans two tables", false, |r| {
            r.vm.unmap(&r.space, page(500), 20 * KIB4).unwrap()
        }),
        ("unmap without memory", false, |r| {
            let taken = r.take_all(Order::BASE);
            let _ = r.vm.unmap(&r.space, page(500), 20 * KIB4);
            r.give_back(taken, Order::BASE);
        }),
        ("forget", false, |r| r.vm.advise(&r.space, Va(GIB), 2 * MIB2, Advice::DontNeed).unwrap()),
        ("forget a page", false, |r| {
            r.vm.advise(&r.space, page(9), KIB4, Advice::DontNeed).unwrap()
        }),
        ("protect", false, |r| {
            const RW: Rights = Rights::READ_WRITE;
            for rights in [Rights::READ, RW, Rights::READ_EXEC, Rights::NONE, RW] {
                r.vm.protect(&r.space, Va(GIB), r.form.bytes(), rights).unwrap();
                r.check(&[&r.space, &r.other]);
                let page = r.vm.query(&r.space, page(9));
                assert!(!matches!(page, Page::Mapped { flags, .. } if flags.write));
            }
        }),
        ("protect a page", false, |r| {
            for (n, rights) in [
                (9, Rights::READ),
                (300, Rights::NONE),
                (700, Rights::READ_EXEC),
                (9, Rights::READ_WRITE),
            ] {
                r.vm.protect(&r.space, page(n), KIB4, rights).unwrap();
                r.check(&[&r.space, &r.other]);
            }
        }),
        ("remap", false, |r| {
            let (mut from, bytes) = (GIB, r.form.bytes());
            for to in [4 * GIB, 8 * GIB + 5 * KIB4, 12 * GIB + MIB2] {
                r.vm.remap(&r.space, Va(from), bytes, bytes, Placement::At(Va(to))).unwrap();
                r.check(&[&r.space, &r.other]);
                pages().for_each(|n| assert_eq!(r.kernel_peek(&r.space, Va(to + n * KIB4)), Ok(0)));
                r.check(&[&r.space, &r.other]);
                from = to;
            }
        }),
        ("remap of a few pages, and to fewer", false, |r| {
            r.vm.remap(&r.space, page(9), 4 * KIB4, 4 * KIB4, Placement::At(Va(4 * GIB))).unwrap();
            r.vm.remap(&r.space, page(600), 40 * KIB4, 7 * KIB4, Placement::Anywhere).unwrap();
        }),
        ("remap without memory", false, |r| {
            let taken = r.take_all(Order::BASE);
            let _ = r.vm.remap(&r.space, page(9), MIB2, MIB2, Placement::At(Va(4 * GIB + KIB4)));
            r.give_back(taken, Order::BASE);
            pages()
                .filter(|n| !(9..=600).contains(n))
                .for_each(|n| assert_eq!(r.read(&r.space, n), 0));
        }),
        ("map over", false, |r| {
            let read = Attrs::anonymous(Rights::READ);
            r.vm.map(&r.space, Placement::Replace(page(500)), 20 * KIB4, read).unwrap();
            r.vm.map(&r.space, Placement::Replace(Va(GIB)), MIB2, RW).unwrap();
        }),
        ("forbid", false, |r| r.vm.forbid_zeros(&r.space)),
        ("shrink and keep", false, |r| {
            assert_eq!(r.vm.shrink_zeros(), 0);
            r.is_of_form(&r.space);
        }),
        ("poison", false, |r| {
            let poison = |n| assert_eq!(r.vm.poison(&r.space, page(n)), Err(PoisonError::Zero));
            assert_eq!(pages().map(poison).count() as i64, r.count(Counter::PoisonSkippedZero));
            r.is_of_form(&r.space);
        }),
        ("poison of a page among zeros", true, |r| {
            r.vm.copy_in(&r.space, page(9), &[7]).unwrap();
            r.vm.poison(&r.space, page(9)).unwrap();
            assert_eq!((r.read(&r.space, 9), r.read(&r.space, 10)), (7, 0));
        }),
        ("run and leave", false, |r| {
            r.vm.activate(&r.space);
            r.vm.deactivate();
        }),
    ]
}

fn every_walker<C: Arch>() {
    for &form in Form::ALL {
        for (name, owns, walk) in walkers::<C>() {
            let readers = readers::<C>(form);
            let zeros = readers.zeros();
            let tables = readers.vm.audit(&[&readers.space, &readers.other]).unwrap().zero_frames;
            walk(&readers);
            let what = format!("{name} over {form:?}");
            assert!(readers.zeros() == zeros, "{what}: the records of zeros changed");
            readers.all_zero(&zeros);
            let audit = readers.vm.audit(&[&readers.space, &readers.other]);
            let audit = audit.unwrap_or_else(|e| panic!("{what}: {e:?}"));
            assert_eq!((audit.zero_frames, audit.other_frames), (tables, 0), "{what}");
            let rss = readers.usage(&readers.space).rss_pages;
            assert_eq!(rss != 0, owns, "{what}: {rss} pages");
            let counted =
                readers.count(Counter::AnonPages) + 512 * readers.count(Counter::AnonHuge);
            assert_eq!((audit.data_frames, counted), (rss, rss as i64), "{what}");
            readers.is_of_form(&readers.other);
            pages().for_each(|n| assert_eq!(readers.read(&readers.other, n), 0, "{what}"));
            let Readers { fx, space, other, .. } = readers;
            fx.vm.exit(space);
            fx.check(&[&other]);
            pages().for_each(|n| {
                assert_eq!(fx.kernel_peek(&other, page(n)), Ok(0), "{what}, at the other's end")
            });
            fx.end_zeros([other]);
            let left = [Counter::AnonPages, Counter::TablePages].map(|n| fx.count(n));
            assert_eq!(left, [0, 0], "{what}");
        }
    }
}

#[test]
fn f_07_every_walker_over_every_form_of_zeros_leaves_them_unowned_on_x86_64() {
    every_walker::<X86_64>();
}

#[test]
fn f_07_every_walker_over_every_form_of_zeros_leaves_them_unowned_on_aarch64() {
    every_walker::<Aarch64>();
}

/// Every page of 2 MiB keeps its colour, at an address of any colour.
fn colours_stay<C: Arch>(colours: u8, form: Form, moved: u64) {
    let config =
        Config { zero_colours: Colours::Exactly(Order::new(colours).unwrap()), ..form.config() };
    let fx = fixture_of::<C>(2, 512 * 8, config);
    let space = fx.vm.create().unwrap();
    let (start, mask) = (GIB + moved * MIB2, (1u64 << colours) - 1);
    let bytes = if form == Form::Middle { GIB } else { MIB2 };
    fx.map(&space, Va(start), bytes, RW);
    let at = |n: u64| Va(start + n * KIB4);
    (0..512).for_each(|n| assert_eq!(fx.kernel_peek(&space, at(n)), Ok(0)));
    // The cache set of a page of zeros is that of its frame; sub-pages of the huge page count from
    // its first.
    let colour = |n: u64| match fx.vm.query(&space, at(n)) {
        Page::Mapped { pfn, level, zero: true, .. } => {
            let pfn = if level == Level::TWO { pfn.add(n) } else { pfn };
            assert!(fx.vm.is_zero(pfn));
            assert!(level == Level::TWO || fx.vm.zero_frame(at(n)) == Some(pfn));
            Some(pfn.0 & mask)
        }
        _ => None,
    };
    let of_address = |n: u64| Some(at(n).page() & mask);
    let all = |hole: u64| {
        (0..512).for_each(|n| {
            assert_eq!(colour(n), of_address(n).filter(|_| n != hole), "{form:?}, page {n}")
        })
    };
    all(512);
    // MarkPass by unmap and by protect.
    fx.vm.unmap(&space, at(77), KIB4).unwrap();
    all(77);
    fx.vm.protect(&space, at(80), KIB4, Rights::READ).unwrap();
    all(77);
    // A write that finds no huge page splits the zeros.
    fx.vm.map(&space, Placement::Replace(Va(start)), bytes, RW).unwrap();
    (0..512).for_each(|n| assert_eq!(fx.kernel_peek(&space, at(n)), Ok(0)));
    all(512);
    let taken = fx.take_all(Order::HUGE);
    assert!(matches!(fx.vm.fault(&space, at(300), Access::Write), Ok(Fault::Copied(Level::ONE))));
    fx.give_back(taken, Order::HUGE);
    assert_eq!(fx.usage(&space).rss_pages, 1);
    all(300);
    fx.end_zeros([space]);
}

#[test]
fn f_06_zeros_of_every_form_have_the_colour_of_their_address_and_keep_it_when_they_are_split() {
    for colours in [0, 3, 5, 7] {
        for &form in Form::ALL {
            for moved in [0, 1, 5] {
                if form != Form::Middle || moved == 0 {
                    colours_stay::<X86_64>(colours, form, moved);
                    colours_stay::<Aarch64>(colours, form, moved);
                }
            }
        }
    }
}
