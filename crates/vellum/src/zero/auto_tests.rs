//! What a space's trial makes of first faults, fed to it with made-up times: no machine is needed.

use super::*;

/// Feeds first faults in `slots`, each `dwell(form)` after the last; says what was decided, and after how many.
fn feed(
    trial: &mut Trial,
    slots: impl Iterator<Item = u64>,
    dwell: impl Fn(ZeroForm, u64) -> u64,
) -> Option<(ZeroForm, u64)> {
    let mut now = trial.ended.max(1000);
    let mut form = ZeroForm::Page;
    for (n, slot) in slots.enumerate() {
        now += dwell(form, slot);
        trial.begins(0, now);
        form = trial.form();
        now += 700;
        trial.ends(now - 700, now);
        trial.validate().unwrap();
        if let Verdict::Decided(form, ..) = trial.mapped(slot, true) {
            return Some((form, n as u64 + 1));
        }
    }
    None
}

#[test]
fn a_stream_gets_the_form_that_is_faster_after_16_faults_or_32_where_it_is_close() {
    let by = |page, table| {
        let mut trial = Trial::default();
        let got = feed(&mut trial, 7.., move |form, _| if form == ZeroForm::Page { page } else { table });
        (got, trial.choice())
    };
    let (got, choice) = by(300_000, 200_000);
    assert_eq!(got, Some((ZeroForm::Table, 16)));
    assert_eq!((choice.why, choice.page, choice.table), (ZeroWhy::Measured, 1_200_000, 800_000));
    assert_eq!(by(3200, 4100).0, Some((ZeroForm::Page, 13)));
    assert_eq!(by(3200, 9000).0, Some((ZeroForm::Page, 11)), "two dwells of nine thousand are more than four of three");
    // What is equal stays, and so does what is better by less than a 32nd.
    assert_eq!(by(5000, 5000).0, Some((ZeroForm::Page, 32)));
    assert_eq!(by(6400, 6201).0, Some((ZeroForm::Page, 32)));
    assert_eq!(by(6400, 6199).0, Some((ZeroForm::Table, 32)));
}

#[test]
fn one_to_four_streams_side_by_side_are_compared_alike_and_five_are_scattered() {
    let side_by_side = |n: u64| (0..).map(move |i| (i % n) * 10_000 + i / n);
    let dwell = |form, slot: u64| match (slot / 10_000, form) {
        (0, ZeroForm::Page) => 90_000,
        (0, ZeroForm::Table) => 60_000,
        _ => 5,
    };
    for streams in 1..4 {
        let got = feed(&mut Trial::default(), side_by_side(streams), dwell).unwrap();
        assert_eq!(got.0, ZeroForm::Table, "{streams} streams");
        let worse = |form, slot| 150_000 - dwell(form, slot);
        let got = feed(&mut Trial::default(), side_by_side(streams), worse).unwrap();
        assert_eq!(got.0, ZeroForm::Page, "{streams} streams");
    }
    // Eight in which streams begin say nothing.
    assert_eq!(feed(&mut Trial::default(), side_by_side(4), dwell), Some((ZeroForm::Table, 24)));
    let mut trial = Trial::default();
    assert_eq!(feed(&mut trial, side_by_side(5), dwell), Some((ZeroForm::Table, 8)));
    assert_eq!(trial.choice().why, ZeroWhy::Scattered);
}

#[test]
fn up_to_four_streams_side_by_side_get_the_better_form_wherever_in_a_round_the_time_goes() {
    for streams in 1..=4 {
        for busy in 0..streams {
            for (page, table, better) in [(90_000, 60_000, ZeroForm::Table), (60_000, 90_000, ZeroForm::Page)] {
                let slots = (0..).map(move |i| (i % streams) * 10_000 + i / streams);
                let dwell = |form, slot: u64| match (slot / 10_000 == busy, form) {
                    (true, ZeroForm::Page) => page,
                    (true, ZeroForm::Table) => table,
                    _ => 5,
                };
                let got = feed(&mut Trial::default(), slots, dwell).map(|(form, _)| form);
                assert_eq!(got, Some(better), "{streams} streams, time before the {busy}.");
            }
        }
    }
}

#[test]
fn one_interrupted_time_does_not_choose_the_table() {
    // An interrupt, once, by the page.
    let mut n = 0;
    let mut trial = Trial::default();
    let mut now = 0;
    let mut form = ZeroForm::Page;
    loop {
        now += if form == ZeroForm::Page { 1000 } else { 1100 } + if n == 5 { 400 } else { 0 };
        trial.begins(0, now);
        form = trial.form();
        trial.ends(now, now);
        n += 1;
        if let Verdict::Decided(form, ..) = trial.mapped(n, true) {
            assert_eq!(form, ZeroForm::Page);
            return;
        }
    }
}

#[test]
fn a_dwell_that_doubles_or_halves_is_measured_again_and_another_is_not() {
    let mut trial = Trial::default();
    feed(&mut trial, 0.., |_, _| 1000).unwrap();
    assert_eq!(feed(&mut trial, 40..1000, |_, _| 1900), None);
    assert_eq!(trial.choice().why, ZeroWhy::Measured);
    let dense = |form, _| if form == ZeroForm::Page { 90_000 } else { 50_000 };
    assert_eq!(feed(&mut trial, 1000..2000, dense).map(|(form, _)| form), Some(ZeroForm::Table));
    let sparse = |form, _| if form == ZeroForm::Page { 900 } else { 1200 };
    assert_eq!(feed(&mut trial, 2000..3000, sparse).map(|(form, _)| form), Some(ZeroForm::Page));
}

#[test]
fn scattered_faults_choose_the_table_at_once_and_a_stream_after_them_is_measured() {
    let mut trial = Trial::default();
    assert_eq!(feed(&mut trial, (0..).map(|i| i * 37), |_, _| 10), Some((ZeroForm::Table, 8)));
    assert!(!trial.sure());
    assert_eq!(feed(&mut trial, (0..7).map(|i| 5000 + i * 37), |_, _| 10), None);
    assert_eq!(trial.mapped(7000, true), Verdict::Fold(ZeroReason::Sure { eights: 2 }));
    assert!(trial.sure());
    assert_eq!(feed(&mut trial, (0..24).map(|i| 9000 + i * 37), |_, _| 10), None, "nothing new");
    let sparse = |form, _| if form == ZeroForm::Page { 900 } else { 1200 };
    assert_eq!(feed(&mut trial, 20_000..21_000, sparse).map(|(form, _)| form), Some(ZeroForm::Page));
}

#[test]
fn one_cpu_leads_and_another_takes_over_where_it_has_gone() {
    let mut trial = Trial::default();
    assert!(trial.begins(3, 100));
    for _ in 0..GONE {
        assert!(!trial.begins(1, 5));
    }
    assert!(trial.begins(1, 6), "the leader has not faulted for sixteen faults of others");
    assert!(!trial.begins(3, 200));
    assert!(trial.begins(1, 7));
    assert!(!trial.begins(3, 300), "counted from the leader's last fault on");
    trial.saw(90);
    trial.mapped(7, true);
    trial.saw(33);
    assert_eq!((trial.slots(), trial.choice().faults), ((7, 91), 3), "everybody's places count");
}

#[test]
fn everything_is_forgotten_only_after_it_paid() {
    let mut trial = Trial::default();
    feed(&mut trial, 0..32, |_, _| 1000).unwrap();
    let cost = 32 * 700;
    assert!(!trial.is_paid(trial.since + cost * 64 - 1, 0, 64));
    assert!(trial.is_paid(trial.since + cost * 64, 0, 64));
    assert!(!trial.is_paid(trial.since + cost * 64, 1, 64));
    assert!(trial.is_paid(trial.since + (cost + 32 * 1000) * 64, 1000, 64));
    trial.forget(1_000_000, 1_003_000);
    assert_eq!((trial.choice(), trial.cost), (ZeroChoice::default(), 3000));
}

#[test]
fn a_watch_keeps_every_word() {
    let watch = Watch { busy: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; WORDS] };
    let mut words: [u64; WORDS] = core::array::from_fn(|i| i as u64 + 1);
    // These are a side and two answers.
    (words[LOOK], words[LOOK + 6], words[LOOK + 7]) = (3, 1, 1);
    watch.with(|trial| *trial = Trial::of(words)).unwrap();
    assert_eq!(watch.peek().words(), words);
    let nested = watch.with(|_| watch.with(|_| ()));
    assert_eq!(nested, Some(None), "nobody waits");
}
