use super::*;
use vellum_trace::event::{Call, Flags, Map, MapKind, Prot};

/// Events in blocks of a given size.
struct List(VecDeque<Event>, usize);

impl Source for List {
    fn next(&mut self, out: &mut Vec<Event>) -> Result<bool, TraceError> {
        out.clear();
        let n = self.1.min(self.0.len());
        out.extend(self.0.drain(..n));
        Ok(n > 0)
    }
}

fn access(offset: u64) -> Event {
    Event::Access { mapping: 0, size: 8, flags: Flags::READ, offset }
}

fn call(order: u64, change: Change) -> Event {
    Event::Call(Box::new(Call { order, change }))
}

fn map() -> Event {
    call(
        0,
        Change::Map(Map {
            mapping: 0,
            len: 1 << 20,
            prot: Prot(3),
            kind: MapKind::Anon,
            base: 0,
            inside: None,
            file_offset: 0,
            synthetic: false,
            moved: false,
            populate: false,
        }),
    )
}

/// All events of a thread with their numbers, in turn as the feed gives them.
fn drain(feed: &mut Feed<'_>, maps: &mut Maps, thread: usize) -> Vec<(u64, Event)> {
    let mut out = Vec::new();
    while let Taken::Run(run) = feed.take(thread, maps).unwrap() {
        out.extend(run.events.iter().cloned().enumerate().map(|(i, e)| (run.first + i as u64, e)));
        feed.finish(thread, run, 0);
    }
    out
}

#[test]
fn each_thread_gets_its_events_with_their_numbers_whatever_the_blocks() {
    let events = vec![
        map(),
        access(0),
        Event::ThreadStart { thread: 1 },
        Event::Switch { thread: 1 },
        access(64),
        Event::Switch { thread: 0 },
        access(128),
        access(192),
        Event::Switch { thread: 1 },
        access(256),
    ];
    for block in 1..=events.len() {
        let mut source = List(events.clone().into(), block);
        let (mut feed, mut maps) = (Feed::new(&mut source), Maps::new());
        let numbers = |v: Vec<(u64, Event)>| v.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
        assert_eq!(numbers(drain(&mut feed, &mut maps, 0)), [0, 1, 2, 6, 7], "blocks of {block}");
        feed.start(1);
        assert_eq!(numbers(drain(&mut feed, &mut maps, 1)), [4, 9], "blocks of {block}");
        assert!(feed.is_over(0) && feed.is_over(1));
    }
}

#[test]
fn a_thread_waits_until_its_creator_has_started_it() {
    let events = vec![Event::ThreadStart { thread: 1 }, Event::Switch { thread: 1 }, access(0)];
    let mut source = List(events.into(), 99);
    let (mut feed, mut maps) = (Feed::new(&mut source), Maps::new());
    assert!(matches!(feed.take(0, &mut maps).unwrap(), Taken::Run(_)));
    assert!(!feed.has_work(1));
    feed.start(1);
    assert!(feed.has_work(1));
}

#[test]
fn a_thread_that_announces_itself_or_never_may_begin() {
    for events in [
        vec![Event::Switch { thread: 1 }, Event::ThreadStart { thread: 1 }, access(0)],
        vec![Event::Switch { thread: 1 }, access(0)],
    ] {
        let mut source = List(events.into(), 99);
        let (mut feed, mut maps) = (Feed::new(&mut source), Maps::new());
        assert!(matches!(feed.take(0, &mut maps).unwrap(), Taken::Never));
        assert!(feed.has_work(1));
    }
}

#[test]
fn a_taking_call_sees_every_earlier_event_of_other_threads() {
    let events = vec![
        map(),
        Event::ThreadStart { thread: 1 },
        Event::Switch { thread: 1 },
        access(0),
        access(64),
        Event::Switch { thread: 0 },
        call(1, Change::Unmap { mapping: 0, offset: 0, len: 4096 }),
    ];
    let mut source = List(events.into(), 99);
    let (mut feed, mut maps) = (Feed::new(&mut source), Maps::new());
    let Taken::Run(run) = feed.take(0, &mut maps).unwrap() else {
        panic!("no events for thread 0")
    };
    feed.finish(0, run, 0);
    feed.start(1);
    assert!(!feed.all_before(6, 0));
    let Taken::Run(run) = feed.take(1, &mut maps).unwrap() else {
        panic!("no events for thread 1")
    };
    feed.at(1, 4);
    assert!(!feed.all_before(6, 0), "the event being done counts as not done");
    feed.finish(1, run, 0);
    assert!(feed.all_before(6, 0));
}

#[test]
fn nobody_reads_far_ahead_and_the_earliest_event_is_always_there() {
    // Thread 0 has one event at the front; everything else is thread 1's, far more than the limit.
    let mut events = vec![access(0), Event::ThreadStart { thread: 1 }, Event::Switch { thread: 1 }];
    events.resize_with(3 * LIMIT, || access(0));
    let mut source = List(events.into(), 1 << 18);
    let (mut feed, mut maps) = (Feed::new(&mut source), Maps::new());
    let Taken::Run(run) = feed.take(0, &mut maps).unwrap() else {
        panic!("no events for thread 0")
    };
    feed.finish(0, run, 0);
    assert!(
        matches!(feed.take(0, &mut maps).unwrap(), Taken::Later),
        "thread 0 reads on until the feed is full"
    );
    assert!(feed.held <= LIMIT + (1 << 18));
    feed.start(1);
    let mut seen = 0;
    loop {
        match feed.take(1, &mut maps).unwrap() {
            Taken::Run(run) => {
                seen += run.events.len();
                feed.finish(1, run, 0);
            }
            Taken::Never => break,
            Taken::Later => panic!("the thread with the earliest event found the feed full"),
        }
    }
    assert_eq!(seen, 3 * LIMIT - 3);
}

#[test]
fn what_a_thread_gives_back_it_gets_again() {
    let mut source = List((0..10).map(|i| access(i * 64)).collect(), 99);
    let (mut feed, mut maps) = (Feed::new(&mut source), Maps::new());
    let Taken::Run(run) = feed.take(0, &mut maps).unwrap() else { panic!("no events") };
    feed.finish(0, run, 7);
    assert!(!feed.all_before(4, 1) && feed.all_before(3, 1));
    assert_eq!(
        drain(&mut feed, &mut maps, 0).first().map(|(n, e)| (*n, e.clone())),
        Some((3, access(192)))
    );
}

#[test]
fn a_thread_number_out_of_nowhere_is_damage() {
    let mut source = List(vec![Event::Switch { thread: u32::MAX }].into(), 99);
    let (mut feed, mut maps) = (Feed::new(&mut source), Maps::new());
    assert!(feed.take(0, &mut maps).is_err());
}
