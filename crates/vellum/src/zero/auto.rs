//! `zero.huge=auto`: the page or the tables, by what the program itself takes with each.
//!
//! What is seen is the order of a space's first faults in huge zeros, and the *dwell*: how long the program ran between one of them and the
//! next, the time inside the library not counted. Neither a name nor a constant of the machine is asked for, and no threshold
//! in cycles exists, since one machine's long is another's short. A space starts with the page. What its first faults show, eight at a time:
//!
//! ```text
//! in order    each 2 MiB next to one of the last four: streams, four at most. Dwell is then the time 2 MiB take, and can be compared:
//!             eight by the page, eight by the table; and both once more if they differ by less than an eighth. Of each eight the
//!             first four are not counted: caches are cold, and what was read before was mapped by the other form. One stream alone has only
//!             one such, and gets five in place of eight. The table is chosen only if its slower times were less than the page's faster ones, by
//!             a 32nd; a table with which 2 MiB take twice the page's time is given up at once.
//! scattered   six of eight are nobody's neighbour: the dwell between neighbours lasts until the program comes by again. The table.
//! mixed       says nothing; the next eight are looked at.
//! ```
//! Why scattered reads want no measuring: an access by the page takes a line out of 2 MiB of zeros, one by a table takes a line out
//! of 4 KiB of zeros and, where the TLB does not reach, an entry out of one table of 4 KiB that all mappings share. What the page has for itself,
//! reach, is lost where reads are scattered over more than the TLB holds; what is left is 2 MiB against 8 KiB of cache. The
//! page is better where few lines of each 4 KiB are read, in order; and that is measured. A dwell that is twice or half of what was compared
//! is another phase of the program, and all is measured again. Phases without first faults are what
//! [`Vm::reconsider_zeros`](crate::vm::Vm::reconsider_zeros) is for.
//!
//! One CPU leads: its faults are timed, with its clock, and those of others get what it has chosen. Who has faulted sixteen times
//! without the leader takes over.
//!
//! Constants: eight, because the last four of them are timed and so each of four streams once; a 32nd, because what is gained must pay for
//! exchanging what is mapped already; an eighth, because two looks cost a short stream more than what an interrupt, taken for dwell, may do
//! until it is reconsidered; twice, for the same reason. None is fitted to a workload.
//!
//! What it does not see: how much faster scattered reads would be by the page, where walks are slow and do not wait for each other; and that a
//! table of a whole GiB saves 511 faults, which matters to memory that is read a few times.
//!
//! Rejected: a threshold on dwell from the cost of 512 walks and 32,768 lines, which the library cannot measure and which differed by ten
//! between two machine files; trying the table in every other 2 MiB, which says nothing where reads are scattered.

use crate::error::Invalid;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First faults that are looked at together.
const WINDOW: u64 = 8;
/// Last faults a neighbour is looked for among.
const HEADS: usize = 4;
/// First faults of one stream alone that are looked at together: all but one are timed.
const ALONE: u64 = 1 + HEADS as u64;
/// Times the page's dwell after which the table is given up at once.
const WORSE: u64 = 2;
/// Faults of others after which a leader has gone.
const GONE: u64 = 16;
/// Scattered windows after which a whole GiB is taken at once.
const SURE: u64 = 2;
/// Steps of a comparison; then it is decided.
const STEPS: u64 = 4;
/// The step after which each form was timed once.
const FIRST: u64 = 2;
/// The part of its time that the table must win.
const GAIN: u64 = 32;
/// The part that, won or lost, needs no second look.
const CLEAR: u64 = 8;

/// What a read maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u64)]
pub enum ZeroForm {
    /// The huge page of zeros.
    #[default]
    Page,
    /// The shared table of zeros.
    Table,
}

/// Why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u64)]
pub enum ZeroWhy {
    /// Nothing was compared yet.
    #[default]
    Start,
    /// The dwell by both forms was compared.
    Measured,
    /// First faults were scattered.
    Scattered,
}

/// What `zero.huge=auto` has chosen in a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZeroChoice {
    /// What a read maps now.
    pub form: ZeroForm,
    /// Why.
    pub why: ZeroWhy,
    /// Cycles that four first faults were apart by the page, the faster of two times; 0 if that was not compared.
    pub page: u64,
    /// The same by the table, the slower of two times.
    pub table: u64,
    /// First faults of programs since it was last [reconsidered](crate::vm::Vm::reconsider_zeros).
    pub faults: u64,
}

/// What is to be done after a first fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing.
    Go,
    /// It was decided: what is mapped otherwise is exchanged; whole GiB may give way, if so.
    Decided(ZeroForm, bool),
    /// The table was chosen before, and is now so sure that whole GiB may give way.
    Fold,
}

/// What a space keeps. Every word is a word of [`Watch`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    form: u64,
    why: u64,
    /// 0 and 2: by the page; 1 and 3: by the table; 4: decided.
    step: u64,
    /// First faults of the window, those of them that had a neighbour, scattered windows in a row.
    seen: u64,
    near: u64,
    scattered: u64,
    /// Faults of the window next to the very last; whether one stream was alone when the comparison began.
    next: u64,
    alone: u64,
    /// Dwell since the last first fault, of the window, and of each step.
    gap: u64,
    sum: u64,
    spans: [u64; 4],
    /// The last first faults, in units of 2 MiB, + 1.
    heads: [u64; HEADS],
    /// CPU + 1 of the leader, and others' faults since its last.
    leader: u64,
    others: u64,
    /// When the last fault was over.
    ended: u64,
    /// First faults and the cycles that they and the comparison took, since everything was forgotten, and when that was.
    faults: u64,
    cost: u64,
    since: u64,
    /// Where they were, in units of 2 MiB: the lowest + 1, and the highest + 1.
    low: u64,
    high: u64,
}

const WORDS: usize = 18 + 4 + HEADS;

impl Trial {
    fn words(&self) -> [u64; WORDS] {
        let (s, h) = (self.spans, self.heads);
        [
            self.form,
            self.why,
            self.step,
            self.seen,
            self.near,
            self.scattered,
            self.gap,
            self.sum,
            s[0],
            s[1],
            s[2],
            s[3],
            h[0],
            h[1],
            h[2],
            h[3],
            self.leader,
            self.others,
            self.ended,
            self.faults,
            self.cost,
            self.since,
            self.low,
            self.high,
            self.next,
            self.alone,
        ]
    }

    fn of(w: [u64; WORDS]) -> Trial {
        Trial {
            form: w[0],
            why: w[1],
            step: w[2],
            seen: w[3],
            near: w[4],
            scattered: w[5],
            gap: w[6],
            sum: w[7],
            spans: [w[8], w[9], w[10], w[11]],
            heads: [w[12], w[13], w[14], w[15]],
            leader: w[16],
            others: w[17],
            ended: w[18],
            faults: w[19],
            cost: w[20],
            since: w[21],
            low: w[22],
            high: w[23],
            next: w[24],
            alone: w[25],
        }
    }

    /// What a read of 2 MiB maps now.
    pub fn form(&self) -> ZeroForm {
        let by_table = if self.step < STEPS { !self.step.is_multiple_of(2) } else { self.form != 0 };
        if by_table { ZeroForm::Table } else { ZeroForm::Page }
    }

    /// Whether a whole GiB may be mapped at once, where nothing more will be seen of it.
    pub fn sure(&self) -> bool {
        self.step == STEPS && self.form != 0 && (self.why == ZeroWhy::Measured as u64 || self.scattered >= SURE)
    }

    /// A fault of a CPU begins; whether it is timed.
    pub fn begins(&mut self, cpu: usize, now: u64) -> bool {
        let me = cpu as u64 + 1;
        if self.leader != me {
            self.others += 1;
            if self.leader != 0 && self.others <= GONE {
                return false;
            }
            self.leader = me;
            if self.since == 0 {
                self.since = now;
            }
            self.ended = now;
            self.open();
        }
        self.others = 0;
        self.gap = self.gap.saturating_add(now.saturating_sub(self.ended));
        true
    }

    /// The fault that began at `began` is over, or will be tried again.
    pub fn ends(&mut self, began: u64, now: u64) {
        self.cost = self.cost.saturating_add(now.saturating_sub(began));
        self.ended = now;
    }

    /// A fault of any CPU mapped something in a slot of 2 MiB.
    pub fn saw(&mut self, slot: u64) {
        self.faults += 1;
        self.low = if self.low == 0 { slot + 1 } else { self.low.min(slot + 1) };
        self.high = self.high.max(slot + 1);
    }

    /// The slots in which something was mapped: first, and one past the last.
    pub fn slots(&self) -> (u64, u64) {
        (self.low.saturating_sub(1), self.high)
    }

    /// A fault that was timed mapped something in a slot, `alone` if no more than that.
    pub fn mapped(&mut self, slot: u64, alone: bool) -> Verdict {
        self.saw(slot);
        let beside = |head: u64| head != 0 && (head - 1).abs_diff(slot) <= 1;
        let (near, next) = (self.heads.iter().any(|&head| beside(head)), beside(self.heads[0]));
        self.heads.rotate_right(1);
        self.heads[0] = slot + 1;
        let gap = core::mem::take(&mut self.gap);
        if !alone {
            return Verdict::Go;
        }
        self.seen += 1;
        self.near += u64::from(near);
        self.next += u64::from(next);
        let compares = (1..STEPS).contains(&self.step);
        let window = if compares && self.alone != 0 { ALONE } else { WINDOW };
        let untimed = window - HEADS as u64;
        if self.seen > untimed {
            self.sum = self.sum.saturating_add(gap);
        }
        if self.step == 1 && self.next == self.seen && self.gives_up(self.seen.saturating_sub(untimed)) {
            return self.decides();
        }
        if self.seen < window {
            return Verdict::Go;
        }
        let (seen, near, next, sum) = (self.seen, self.near, self.next, self.sum);
        self.open();
        // One of them may be where a stream begins.
        let alone = next + 1 >= seen;
        if compares && self.alone != 0 && !alone {
            // Others came in: the same step again, of eight.
            self.alone = 0;
            return Verdict::Go;
        }
        if near <= seen / 4 {
            self.wanders()
        } else if near >= seen - seen / 4 {
            self.streams(sum, alone)
        } else {
            Verdict::Go
        }
    }

    /// Whether so many times by the table are already so much more than the page's that the rest need not be waited for; then they are
    /// taken to be all.
    fn gives_up(&mut self, timed: u64) -> bool {
        let four = HEADS as u64;
        if timed == 0 || self.sum.saturating_mul(four) <= self.spans[0].saturating_mul(WORSE * timed) {
            return false;
        }
        let table = self.sum.saturating_mul(four) / timed;
        self.spans = [self.spans[0], table, self.spans[0], table];
        self.open();
        true
    }

    /// A new window.
    fn open(&mut self) {
        (self.seen, self.near, self.next, self.sum, self.gap) = (0, 0, 0, 0, 0);
    }

    fn wanders(&mut self) -> Verdict {
        self.scattered += 1;
        if self.step == STEPS && self.form != 0 {
            return if self.scattered == SURE { Verdict::Fold } else { Verdict::Go };
        }
        (self.step, self.form, self.why) = (STEPS, ZeroForm::Table as u64, ZeroWhy::Scattered as u64);
        Verdict::Decided(ZeroForm::Table, self.sure())
    }

    fn streams(&mut self, sum: u64, alone: bool) -> Verdict {
        self.scattered = 0;
        if self.step == STEPS {
            let was = if self.form == 0 { self.page() } else { self.table() };
            let same = sum <= was.saturating_mul(2) && sum >= was / 2;
            if self.why != ZeroWhy::Measured as u64 || !same {
                self.step = 0;
            }
            return Verdict::Go;
        }
        if self.step == 0 {
            self.alone = u64::from(alone);
        }
        self.spans[self.step as usize] = sum;
        self.step += 1;
        if self.step == FIRST {
            // Once may be enough.
            (self.spans[2], self.spans[3]) = (self.spans[0], self.spans[1]);
            if self.page().abs_diff(self.table()) < self.page() / CLEAR {
                return Verdict::Go;
            }
        } else if self.step < STEPS {
            return Verdict::Go;
        }
        self.decides()
    }

    /// By what was timed.
    fn decides(&mut self) -> Verdict {
        (self.step, self.why) = (STEPS, ZeroWhy::Measured as u64);
        let (page, table) = (self.page(), self.table());
        let form = if table < page - page / GAIN { ZeroForm::Table } else { ZeroForm::Page };
        self.form = form as u64;
        // What the worse form took more than the better: twice what was timed, in the two windows that may have had it.
        self.cost = self.cost.saturating_add(page.abs_diff(table).saturating_mul(2 * 2));
        Verdict::Decided(form, self.sure())
    }

    /// The faster time of four by the page.
    fn page(&self) -> u64 {
        self.spans[0].min(self.spans[2])
    }

    /// The slower one by the table.
    fn table(&self) -> u64 {
        self.spans[1].max(self.spans[3])
    }

    /// Whether what faults and the comparison took since everything was last forgotten, each fault with a trap of `trap` cycles, is less than
    /// one part in `part` of the time.
    pub fn is_paid(&self, now: u64, trap: u64, part: u64) -> bool {
        // In the middle of a comparison the answer is still owed.
        if self.step < STEPS && self.faults != 0 {
            return false;
        }
        let cost = self.cost.saturating_add(self.faults.saturating_mul(trap));
        cost.saturating_mul(part) <= now.saturating_sub(self.since)
    }

    /// Starts over; forgetting took from `began` to `now`.
    pub fn forget(&mut self, began: u64, now: u64) {
        *self = Trial { since: now, cost: now.saturating_sub(began), ..Trial::default() };
    }

    pub fn choice(&self) -> ZeroChoice {
        let decided = self.step == STEPS;
        let measured = decided && self.why == ZeroWhy::Measured as u64;
        ZeroChoice {
            form: self.form(),
            why: match self.why {
                _ if !decided => ZeroWhy::Start,
                1 => ZeroWhy::Measured,
                _ => ZeroWhy::Scattered,
            },
            page: if measured { self.page() } else { 0 },
            table: if measured { self.table() } else { 0 },
            faults: self.faults,
        }
    }

    pub fn validate(&self) -> Result<(), Invalid> {
        let bounds = [
            (self.step, STEPS),
            (self.seen, WINDOW - 1),
            (self.near, self.seen),
            (self.next, self.near),
            (self.alone, 1),
            (self.form, 1),
            (self.why, 2),
        ];
        match bounds.iter().find(|(value, most)| value > most) {
            Some(&(value, most)) => Err(Invalid::new("what is kept of a space's zeros is in bounds", 0, most, value)),
            None => Ok(()),
        }
    }
}

/// A trial that several CPUs may come to. Who finds another there goes on without: a fault that is not seen does no harm.
#[repr(C)]
pub(crate) struct Watch {
    busy: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl Watch {
    /// The word that CPUs meet on.
    pub fn word(&self) -> &AtomicU32 {
        &self.busy
    }

    /// Lets `body` at the trial, unless somebody is.
    pub fn with<R>(&self, body: impl FnOnce(&mut Trial) -> R) -> Option<R> {
        self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let mut trial = self.peek();
        let result = body(&mut trial);
        for (word, value) in self.words.iter().zip(trial.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.busy.store(0, Ordering::Release);
        Some(result)
    }

    /// The trial as it may be in the middle of a change: each word was true once.
    pub fn peek(&self) -> Trial {
        let mut words = [0; WORDS];
        for (to, from) in words.iter_mut().zip(&self.words) {
            *to = from.load(Ordering::Relaxed);
        }
        Trial::of(words)
    }
}

#[cfg(test)]
mod tests {
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
            if let Verdict::Decided(form, _) = trial.mapped(slot, true) {
                return Some((form, n as u64 + 1));
            }
        }
        None
    }

    #[test]
    fn a_stream_gets_the_form_that_is_faster_after_13_faults_or_23_where_it_is_close() {
        let by = |page, table| {
            let mut trial = Trial::default();
            let got = feed(&mut trial, 7.., move |form, _| if form == ZeroForm::Page { page } else { table });
            (got, trial.choice())
        };
        let (got, choice) = by(300_000, 200_000);
        assert_eq!(got, Some((ZeroForm::Table, 13)));
        assert_eq!((choice.why, choice.page, choice.table), (ZeroWhy::Measured, 1_200_000, 800_000));
        assert_eq!(by(3200, 4100).0, Some((ZeroForm::Page, 13)));
        // The first is not the table's own; the second is enough.
        assert_eq!(by(3200, 6401).0, Some((ZeroForm::Page, 10)));
        // What is equal stays, and so does what is better by less than a 32nd.
        assert_eq!(by(5000, 5000).0, Some((ZeroForm::Page, 23)));
        assert_eq!(by(6400, 6201).0, Some((ZeroForm::Page, 23)));
        assert_eq!(by(6400, 6199).0, Some((ZeroForm::Table, 23)));
    }

    #[test]
    fn four_streams_side_by_side_are_one_and_five_are_scattered() {
        let side_by_side = |n: u64| (0..).map(move |i| (i % n) * 10_000 + i / n);
        let dwell = |form, slot: u64| match (slot / 10_000, form) {
            (0, ZeroForm::Page) => 90_000,
            (0, ZeroForm::Table) => 60_000,
            _ => 5,
        };
        // Eight in which streams begin say nothing.
        assert_eq!(feed(&mut Trial::default(), side_by_side(4), dwell), Some((ZeroForm::Table, 24)));
        let mut trial = Trial::default();
        assert_eq!(feed(&mut trial, side_by_side(5), dwell), Some((ZeroForm::Table, 8)));
        assert_eq!(trial.choice().why, ZeroWhy::Scattered);
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
            if let Verdict::Decided(form, _) = trial.mapped(n, true) {
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
        assert_eq!(trial.mapped(7000, true), Verdict::Fold);
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
        let cost = 23 * 700;
        assert!(!trial.is_paid(trial.since + cost * 64 - 1, 0, 64));
        assert!(trial.is_paid(trial.since + cost * 64, 0, 64));
        assert!(!trial.is_paid(trial.since + cost * 64, 1, 64));
        assert!(trial.is_paid(trial.since + (cost + 23 * 1000) * 64, 1000, 64));
        trial.forget(1_000_000, 1_003_000);
        assert_eq!((trial.choice(), trial.cost), (ZeroChoice::default(), 3000));
    }

    #[test]
    fn a_watch_keeps_every_word() {
        let watch = Watch { busy: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; WORDS] };
        let words: [u64; WORDS] = core::array::from_fn(|i| i as u64 + 1);
        watch.with(|trial| *trial = Trial::of(words)).unwrap();
        assert_eq!(watch.peek().words(), words);
        let nested = watch.with(|_| watch.with(|_| ()));
        assert_eq!(nested, Some(None), "nobody waits");
    }
}
