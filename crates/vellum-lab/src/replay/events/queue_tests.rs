use super::*;
use vellum_trace::event::{Call, Flags, Map, MapKind, Prot};

/// Events in blocks of a given size.
struct List(VecDeque<Event>, usize);

impl Source for List {
    fn next(&mut self) -> Result<Option<Arc<Block>>, Arc<TraceError>> {
        let n = self.1.min(self.0.len());
        let events: Vec<Event> = self.0.drain(..n).collect();
        let is_other = |e: &Event| !matches!(e, Event::Access { .. } | Event::Fetch { .. });
        let others = (0..n as u32).filter(|&i| is_other(&events[i as usize])).collect();
        Ok((n > 0).then(|| Arc::new(Block { events, others })))
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
            file: None,
            synthetic: false,
            moved: false,
            populate: false,
        }),
    )
}

/// All events of a thread with their numbers, in turn as the queue gives them.
fn drain(queue: &mut EventQueue<'_>, maps: &mut Maps, thread: usize) -> Vec<(u64, Event)> {
    let mut out = Vec::new();
    while let TakenEvents::Run(run) = queue.take(thread, maps).unwrap() {
        out.extend(run.events.iter().cloned().enumerate().map(|(i, e)| (run.first + i as u64, e)));
        queue.finish(thread, run, 0);
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
        let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
        let numbers = |v: Vec<(u64, Event)>| v.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
        assert_eq!(numbers(drain(&mut queue, &mut maps, 0)), [0, 1, 2, 6, 7], "blocks of {block}");
        queue.start(1);
        assert_eq!(numbers(drain(&mut queue, &mut maps, 1)), [4, 9], "blocks of {block}");
        assert!(queue.is_over(0) && queue.is_over(1));
    }
}

#[test]
fn a_thread_waits_until_its_creator_has_started_it() {
    let events = vec![Event::ThreadStart { thread: 1 }, Event::Switch { thread: 1 }, access(0)];
    let mut source = List(events.into(), 99);
    let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
    assert!(matches!(queue.take(0, &mut maps).unwrap(), TakenEvents::Run(_)));
    assert!(!queue.has_work(1));
    queue.start(1);
    assert!(queue.has_work(1));
}

#[test]
fn a_thread_that_announces_itself_or_never_may_begin() {
    for events in [
        vec![Event::Switch { thread: 1 }, Event::ThreadStart { thread: 1 }, access(0)],
        vec![Event::Switch { thread: 1 }, access(0)],
    ] {
        let mut source = List(events.into(), 99);
        let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
        assert!(matches!(queue.take(0, &mut maps).unwrap(), TakenEvents::Never));
        assert!(queue.has_work(1));
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
    let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
    let TakenEvents::Run(run) = queue.take(0, &mut maps).unwrap() else {
        panic!("no events for thread 0")
    };
    queue.finish(0, run, 0);
    queue.start(1);
    assert!(!queue.all_before(6, 0));
    let TakenEvents::Run(run) = queue.take(1, &mut maps).unwrap() else {
        panic!("no events for thread 1")
    };
    queue.at(1, 4);
    assert!(!queue.all_before(6, 0), "the event being done counts as not done");
    queue.finish(1, run, 0);
    assert!(queue.all_before(6, 0));
}

#[test]
fn nobody_reads_far_ahead_and_the_earliest_event_is_always_there() {
    // Thread 0 has one event at the front; everything else is thread 1's, far more than the limit.
    let mut events = vec![access(0), Event::ThreadStart { thread: 1 }, Event::Switch { thread: 1 }];
    events.resize_with(3 * LIMIT, || access(0));
    let mut source = List(events.into(), 1 << 18);
    let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
    let TakenEvents::Run(run) = queue.take(0, &mut maps).unwrap() else {
        panic!("no events for thread 0")
    };
    queue.finish(0, run, 0);
    assert!(
        matches!(queue.take(0, &mut maps).unwrap(), TakenEvents::Later),
        "thread 0 reads on until the feed is full"
    );
    assert!(queue.held <= LIMIT + (1 << 18));
    queue.start(1);
    let mut seen = 0;
    loop {
        match queue.take(1, &mut maps).unwrap() {
            TakenEvents::Run(run) => {
                seen += run.events.len();
                queue.finish(1, run, 0);
            }
            TakenEvents::Never => break,
            TakenEvents::Later => panic!("the thread with the earliest event found the feed full"),
        }
    }
    assert_eq!(seen, 3 * LIMIT - 3);
}

#[test]
fn what_a_thread_gives_back_it_gets_again() {
    let mut source = List((0..10).map(|i| access(i * 64)).collect(), 99);
    let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
    let TakenEvents::Run(run) = queue.take(0, &mut maps).unwrap() else { panic!("no events") };
    queue.finish(0, run, 7);
    assert!(!queue.all_before(4, 1) && queue.all_before(3, 1));
    assert_eq!(
        drain(&mut queue, &mut maps, 0).first().map(|(n, e)| (*n, e.clone())),
        Some((3, access(192)))
    );
}

#[test]
fn a_thread_number_out_of_nowhere_is_damage() {
    let mut source = List(vec![Event::Switch { thread: u32::MAX }].into(), 99);
    let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
    assert!(queue.take(0, &mut maps).is_err());
}

#[test]
fn what_waits_keeps_no_more_than_four_times_its_own_size_in_memory() {
    let events: Vec<Event> = (0..400).map(|n| access(n * 8)).collect();
    let block = Arc::new(Block { events, others: Vec::new() });
    for (from, to) in [(0, 400), (300, 400), (7, 106), (5, 6)] {
        let part = Part::of(&block, from, to);
        assert_eq!(part[..], block.events[from..to]);
        let kept = if Arc::strong_count(&block) > 1 { block.events.len() } else { part.len() };
        assert!(kept <= 4 * part.len(), "{from}..{to} keeps {kept}");
    }
}

#[test]
fn the_first_toucher_of_a_page_is_the_thread_of_that_event_whatever_the_blocks() {
    let forget = Change::Advise { mapping: 0, offset: 0, len: 4096, advice: Advice::DontNeed };
    let events = vec![
        map(),
        access(5 << 12), // One thread yet: nobody is watched.
        Event::ThreadStart { thread: 1 },
        access(0),
        Event::Switch { thread: 1 },
        access(1 << 12),
        access(0),
        call(1, forget),
        access(0),
        Event::Switch { thread: 0 },
        access(1 << 12),
        access(2 << 12),
    ];
    for block in 1..=events.len() {
        let mut source = List(events.clone().into(), block);
        let (mut queue, mut maps) = (EventQueue::new(&mut source), Maps::new());
        drain(&mut queue, &mut maps, 0);
        let first = |page: u64, before: u64| queue.first_touches.before(0, page << 12, before);
        assert_eq!([first(0, 7), first(0, 99)], [Some((0, 3)), Some((1, 8))], "blocks of {block}");
        assert_eq!(
            [first(1, 99), first(2, 99)],
            [Some((1, 5)), Some((0, 11))],
            "blocks of {block}"
        );
        assert_eq!(first(5, 99), None);
    }
}
