//! What is read from the pager, and when.

use super::*;

on_both!(first_touch, a_page_is_read_when_it_is_first_touched);

fn first_touch<C: Arch>() {
    let f = paged::<C>(600 * KIB4);
    let other = f.fx.with_object(page_at(5), 600 * KIB4, &f.object);
    assert_eq!(f.peek(3), Ok(4));
    assert_eq!(f.calls(false), [(3, KIB4)]);
    assert_eq!(f.fx.peek(&other, page_at(5 + 3)), Ok(4));
    assert_eq!(f.fx.frame(&f.space, page_at(3)), f.fx.frame(&other, page_at(8)));
    assert_eq!(f.word(3), Ok(4));
    assert_eq!(f.word(599), Ok(600));
    assert_eq!(f.calls(false), [(599, KIB4)]);
    let counters = [Counter::MajorFaults, Counter::PageIn, Counter::FilePages, Counter::Mapped];
    assert_eq!(counters.map(|counter| f.fx.count(counter)), [1, 8, 2, 1]);
    f.fx.check(&[&f.space, &other]);
    f.end([other]);
}

on_both!(past_the_end, bytes_past_the_end_are_zero_whatever_the_pager_has);

fn past_the_end<C: Arch>() {
    let f = paged::<C>(2 * KIB4 + 3);
    assert_eq!(f.peek(2), Ok(3), "three bytes of a small number");
    f.disk().put(FILE, 2, 0x0807_0605_0403_0201);
    assert_eq!(f.evict(), 1);
    assert_eq!(f.peek(2), Ok(0x0003_0201));
    assert_eq!(f.calls(false), [(2, 3), (2, 3)]);
    assert_eq!(f.peek(3), Err(FaultError::Beyond));
    assert_eq!(f.word(3), Ok(0), "nothing was there to be read");
    // What a program writes there is gone when the object grows.
    f.poke(2, u64::MAX).unwrap();
    assert_eq!(f.fx.vm.objects().resize(&f.object, 4 * KIB4), Ok(()));
    assert_eq!(f.peek(2), Ok(0x00ff_ffff));
    f.end([]);
}

on_both!(short, what_a_short_answer_leaves_out_is_zero);

fn short<C: Arch>() {
    let f = paged::<C>(4 * KIB4);
    for (most, word) in [(8, 2), (1, 2), (0, 0)] {
        f.disk().set(Habits { most: Some(most), ..Habits::default() });
        assert_eq!(f.peek(1), Ok(word), "{most} bytes");
        assert_eq!(f.fx.peek(&f.space, Va(page_at(1).0 + 4088)), Ok(0));
        assert_eq!(f.evict(), 1);
    }
    f.end([]);
}

on_both!(failed, a_page_that_cannot_be_read_is_absent_again);

fn failed<C: Arch>() {
    let f = paged::<C>(8 * KIB4);
    f.disk().set(Habits { fails_reads: true, ..Habits::default() });
    assert_eq!(f.peek(1), Err(FaultError::Io));
    assert_eq!(f.poke(1, 5), Err(FaultError::Io));
    assert_eq!(f.word(1), Err(ObjectError::Io));
    let objects = f.fx.vm.objects();
    assert_eq!(objects.write(&f.object, KIB4 + 9, &[1]), (0, Err(ObjectError::Io)));
    assert_eq!(f.fx.vm.copy_out(&f.space, page_at(1), &mut [0]), Err(FaultError::Io));
    assert_eq!(f.fx.vm.write_forced(&f.space, page_at(1), &[0]), Err(FaultError::Io));
    let populate = Advice::Populate { write: false };
    let populated = f.fx.vm.advise(&f.space, page_at(1), KIB4, populate);
    assert_eq!(populated, Err(SpaceError::Io));
    assert_eq!(objects.usage(&f.object).pages, 0);
    assert_eq!(f.calls(false).len(), 7, "each of them asked anew");
    f.fx.check(&[&f.space]);
    f.disk().set(Habits::default());
    assert_eq!(f.peek(1), Ok(2));
    f.end([]);
}

on_both!(sought, all_of_an_object_with_a_pager_is_data);

fn sought<C: Arch>() {
    let f = paged::<C>(8 * KIB4 + 5);
    assert_eq!(f.peek(2), Ok(3));
    let objects = f.fx.vm.objects();
    for at in [0, 2 * KIB4, 5 * KIB4 + 17, 8 * KIB4 + 4] {
        let found = (objects.next_data(&f.object, at), objects.next_hole(&f.object, at));
        assert_eq!(found, (Some(at), Some(8 * KIB4 + 5)));
    }
    assert_eq!(objects.next_data(&f.object, 8 * KIB4 + 5), None);
    f.end([]);
}

on_both!(viewed, a_private_view_copies_what_was_read);

fn viewed<C: Arch>() {
    let f = paged::<C>(8 * KIB4);
    let view = f.fx.vm.create().unwrap();
    f.fx.map_private(&view, AT, 8 * KIB4, &f.object);
    f.fx.poke(&view, Va(page_at(2).0 + 8), 9).unwrap();
    assert_eq!(f.fx.peek(&view, page_at(2)), Ok(3));
    f.fx.poke(&view, page_at(3), 40).unwrap();
    assert_eq!((f.peek(2), f.peek(3)), (Ok(3), Ok(4)));
    assert_eq!(f.dirty(), 0, "what is written to a view is no page of the object");
    f.disk().set(Habits { fails_reads: true, ..Habits::default() });
    assert_eq!(f.fx.poke(&view, page_at(4), 1), Err(FaultError::Io));
    f.fx.check(&[&f.space, &view]);
    f.end([view]);
}
