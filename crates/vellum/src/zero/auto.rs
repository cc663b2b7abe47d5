//! `zero.huge=auto`: the page or the tables, by what the program itself takes with each.
//!
//! What is seen is the order of a space's first faults in huge zeros, and the *dwell*: how long the program ran between one of them and the
//! next, the time inside the library not counted. Neither a name nor a constant of the machine is asked for, and no threshold
//! in cycles exists, since one machine's long is another's short. A space starts with the page. What its first faults show, eight at a time:
//!
//! ```text
//! in order    each 2 MiB next to one of the last four: streams, four at most. Dwell is then the time 2 MiB take, and can be compared:
//!             eight by the page, eight by the table; and both once more if they differ by less than an eighth. Of each eight the
//!             first four are not counted: caches are cold, and what was read before was mapped by the other form. The table is given
//!             up as soon as fewer of its dwells have taken longer; it is chosen only if its slower eight were faster than the page's
//!             faster eight, by a 32nd.
//! scattered   six of eight are nobody's neighbour: the dwell between neighbours lasts until the program comes by again. The table, or what
//!             the last look at accessed bits found better.
//! mixed       says nothing; the next eight are looked at.
//! ```
//! Why scattered reads are not measured: first faults come faster than what follows them, and say nothing of it. An access by the page takes a
//! line out of 2 MiB of zeros, one by a table takes a line out of 4 KiB of zeros and, where the TLB does not reach, an entry out of one table
//! of 4 KiB that all mappings share. What the page has for itself, reach, is lost where reads are scattered over more than the TLB holds; what is
//! left is 2 MiB against 8 KiB of cache. The page is better where few lines of each 4 KiB are read, in order; and that is measured. A dwell that
//! is twice or half of what was compared is another phase of the program, and all is measured again. Phases without first faults are
//! what [`Vm::reconsider_zeros`](crate::vm::Vm::reconsider_zeros) is for.
//!
//! One CPU leads: its faults are timed, with its clock, and those of others get what it has chosen. Who has faulted sixteen times
//! without the leader takes over.
//!
//! Constants: eight, because the last four of them are timed and so each of four streams once; a 32nd, because what is gained must pay for
//! exchanging what is mapped already; an eighth, because two looks cost a short stream more than what an interrupt, taken for dwell, may do
//! until it is reconsidered. None is fitted to a workload.
//!
//! A dwell is counted from the neighbour's fault, over whatever other streams did between, so that a round of one, two, three or four streams
//! counts once each. Adding up what lay between faults instead had three streams, of which one takes the time, count one round in one eight and two
//! in the next, and choose the worse form.
//!
//! How much faster scattered reads would be by the page, where walks are slow and do not wait for each other, is what accessed bits show,
//! later: `look`. What neither shows: that a table of a whole GiB saves 511 faults, which matters to memory that is read a few times.
//!
//! Rejected: a threshold on dwell from the cost of 512 walks and 32,768 lines, which the library cannot measure and which differed by ten
//! between two machine files; trying the table in every other 2 MiB, which says nothing where reads are scattered.

use crate::error::Invalid;
use crate::machine::Machine;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::touch;
use crate::zero::decided::ZeroReason;
use crate::zero::look::{self, Look, Side, Visits};

/// First faults that are looked at together.
const WINDOW: u64 = 8;
/// Last faults a neighbour is looked for among.
const HEADS: usize = 4;
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
    /// They were, and the accessed bits by both forms were compared.
    Visited,
}

/// What `zero.huge=auto` has chosen in a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZeroChoice {
    /// What a read maps now.
    pub form: ZeroForm,
    /// Why.
    pub why: ZeroWhy,
    /// Cycles of four dwells by the page, the faster of two times; 0 if that was not compared.
    pub page: u64,
    /// The same by the table, the slower of two times; of fewer dwells where it was given up.
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
    Decided(ZeroForm, bool, ZeroReason),
    /// The table was chosen before, and is now so sure that whole GiB may give way.
    Fold(ZeroReason),
    /// All is compared anew.
    Anew(ZeroReason),
}

/// What is to be done when a space is reconsidered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Nothing.
    Wait,
    /// Everything goes back to its promise.
    Forget,
    /// A look begins, with the table's side.
    Begin,
    /// The table's side is over.
    Table,
    /// The page's side is over.
    Page,
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
    /// Dwell since the last first fault, of the window, and of each step.
    gap: u64,
    sum: u64,
    spans: [u64; 4],
    /// Dwells in the sum.
    dwells: u64,
    /// The last first faults, in units of 2 MiB, + 1, and how long the program had run before each.
    heads: [u64; HEADS],
    gaps: [u64; HEADS],
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
    look: Look,
}

const WORDS: usize = LOOK + look::WORDS;
const LOOK: usize = 17 + 4 + 2 * HEADS;

impl Trial {
    fn words(&self) -> [u64; WORDS] {
        let (s, h, g, l) = (self.spans, self.heads, self.gaps, self.look.words());
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
            self.dwells,
            g[0],
            g[1],
            g[2],
            g[3],
            l[0],
            l[1],
            l[2],
            l[3],
            l[4],
            l[5],
            l[6],
            l[7],
            l[8],
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
            dwells: w[24],
            gaps: [w[25], w[26], w[27], w[28]],
            look: Look::of(core::array::from_fn(|i| w[LOOK + i])),
        }
    }

    /// What a read of 2 MiB maps now.
    pub fn form(&self) -> ZeroForm {
        let by_table = match self.look.side {
            Side::Table => true,
            Side::Page => false,
            _ if self.step < STEPS => !self.step.is_multiple_of(2),
            _ => self.form != 0,
        };
        if by_table { ZeroForm::Table } else { ZeroForm::Page }
    }

    /// Whether a whole GiB may be mapped at once, where nothing more will be seen of it.
    pub fn sure(&self) -> bool {
        self.look.side == Side::None
            && self.step == STEPS
            && self.form != 0
            && (self.why == ZeroWhy::Measured as u64 || self.scattered >= SURE)
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
        let gap = core::mem::take(&mut self.gap);
        let neighbour = self.heads.iter().position(|&head| head != 0 && (head - 1).abs_diff(slot) <= 1);
        // How long the program ran since its neighbour's fault, whatever it did between.
        let dwell = neighbour.map(|n| self.gaps[..n].iter().fold(gap, |sum, &gap| sum.saturating_add(gap)));
        self.heads.rotate_right(1);
        self.gaps.rotate_right(1);
        (self.heads[0], self.gaps[0]) = (slot + 1, gap);
        // In a look bits count, and what faults map is the side's.
        if !alone || self.look.side != Side::None {
            return Verdict::Go;
        }
        self.seen += 1;
        if let (Some(n), Some(dwell)) = (neighbour, dwell) {
            self.near += 1;
            // One that began in this window was by this window's form from one end to the other.
            if self.seen > n as u64 + 1 && (self.seen > WINDOW - HEADS as u64 || self.is_first_table()) {
                self.sum = self.sum.saturating_add(dwell);
                self.dwells += 1;
            }
        }
        if self.is_first_table() && self.dwells <= HEADS as u64 && self.loses() {
            // Fewer dwells by the table than were compared by the page have taken longer: no more of this.
            self.spans = [self.spans[0], self.sum, self.spans[0], self.sum];
            self.open();
            return self.decide();
        }
        if self.seen < WINDOW {
            return Verdict::Go;
        }
        let (near, sum) = (self.near, self.sum.saturating_mul(HEADS as u64) / self.dwells.max(1));
        self.open();
        if near <= WINDOW / 4 {
            self.wanders(near)
        } else if near >= WINDOW - WINDOW / 4 {
            self.streams(sum)
        } else {
            Verdict::Go
        }
    }

    /// A new window.
    fn open(&mut self) {
        (self.seen, self.near, self.sum, self.dwells, self.gap) = (0, 0, 0, 0, 0);
    }

    /// Whether the table is tried and was not before: it is cut short where it is much worse.
    fn is_first_table(&self) -> bool {
        self.step == 1
    }

    /// Whether what the table took so far is more than all the page took, and that by an eighth.
    fn loses(&self) -> bool {
        self.sum > self.spans[0].saturating_add(self.spans[0] / CLEAR)
    }

    fn wanders(&mut self, near: u64) -> Verdict {
        self.scattered += 1;
        if self.step == STEPS && self.form != 0 {
            return if self.scattered == SURE {
                Verdict::Fold(ZeroReason::Sure { eights: self.scattered })
            } else {
                Verdict::Go
            };
        }
        if self.step == STEPS && self.why == ZeroWhy::Visited as u64 {
            return Verdict::Go;
        }
        let (form, why) = match self.look.page {
            true => (ZeroForm::Page, ZeroWhy::Visited),
            false => (ZeroForm::Table, ZeroWhy::Scattered),
        };
        (self.step, self.form, self.why) = (STEPS, form as u64, why as u64);
        Verdict::Decided(form, self.sure(), ZeroReason::Scattered { near })
    }

    fn streams(&mut self, sum: u64) -> Verdict {
        self.scattered = 0;
        if self.step == STEPS {
            let was = if self.form == 0 { self.page() } else { self.table() };
            let same = sum <= was.saturating_mul(2) && sum >= was / 2;
            if self.why != ZeroWhy::Measured as u64 || !same {
                self.step = 0;
                let was = if self.why == ZeroWhy::Measured as u64 { was } else { 0 };
                return Verdict::Anew(ZeroReason::Phase { was, is: sum });
            }
            return Verdict::Go;
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
        self.decide()
    }

    fn decide(&mut self) -> Verdict {
        (self.step, self.why) = (STEPS, ZeroWhy::Measured as u64);
        let (page, table) = (self.page(), self.table());
        let form = if table < page - page / GAIN { ZeroForm::Table } else { ZeroForm::Page };
        self.form = form as u64;
        // What the worse form took more than the better: twice what was timed, in the two windows that may have had it.
        self.cost = self.cost.saturating_add(page.abs_diff(table).saturating_mul(2 * 2));
        Verdict::Decided(form, self.sure(), ZeroReason::Dwell { page, table })
    }

    /// The faster time of four by the page.
    fn page(&self) -> u64 {
        self.spans[0].min(self.spans[2])
    }

    /// The slower one by the table.
    fn table(&self) -> u64 {
        self.spans[1].max(self.spans[3])
    }

    /// Cycles that faults and the comparison took, each fault with a trap of `trap` cycles, since everything was last forgotten, and the
    /// time since.
    pub fn bill(&self, now: u64, trap: u64) -> (u64, u64) {
        let cost = self.cost.saturating_add(self.faults.saturating_mul(trap));
        (cost, now.saturating_sub(self.since))
    }

    /// Whether that is less than one part in `part` of the time.
    pub fn is_paid(&self, now: u64, trap: u64, part: u64) -> bool {
        // In the middle of a comparison the answer is still owed.
        if self.step < STEPS && self.faults != 0 {
            return false;
        }
        let (cost, time) = self.bill(now, trap);
        cost.saturating_mul(part) <= time
    }

    /// What is to be done when the space is reconsidered at `now`; the rest as for [`is_paid`](Trial::is_paid). `able` says that accessed bits
    /// can be compared.
    pub fn turn(&mut self, now: u64, trap: u64, part: u64, able: bool) -> Turn {
        let turn = match self.look.side {
            Side::Between => return Turn::Wait,
            Side::Table if self.look.is_due(now) => Turn::Table,
            Side::Page if self.look.is_due(now) => Turn::Page,
            Side::None if !self.is_paid(now, trap, part) => return Turn::Wait,
            Side::None if able && self.step == STEPS && self.why != ZeroWhy::Measured as u64 && !self.look.over => {
                Turn::Begin
            }
            Side::None => return Turn::Forget,
            _ => return Turn::Wait,
        };
        self.look.side = Side::Between;
        turn
    }

    /// A side of a look begins, after an exchange from `began` to `now`.
    pub fn looks(&mut self, side: Side, began: u64, now: u64) {
        self.look.begins(side, began, now);
    }

    /// What was visited by the table, whose side ended at `now`.
    pub fn table_was(&mut self, visits: Visits, now: u64) {
        self.look.table_was(visits, now);
    }

    /// What was visited by the page, whose side ended at `now`: what stays, and why; `None` if the page has its side
    /// once more.
    pub fn judge(&mut self, visits: Visits, now: u64) -> Option<(ZeroForm, ZeroReason)> {
        let (form, table, cost) = self.look.judge(visits, now)?;
        (self.form, self.why, self.scattered) = (form as u64, ZeroWhy::Visited as u64, SURE);
        (self.cost, self.since, self.faults) = (cost, now, 0);
        self.open();
        Some((form, ZeroReason::Visits { page: visits.visited, table, of: visits.of }))
    }

    /// A look was not to be had: no memory.
    pub fn looks_away(&mut self) {
        (self.look.side, self.look.over) = (Side::None, true);
    }

    /// Starts over; forgetting took from `began` to `now`. What the last look gave to scattered reads they keep.
    pub fn forget(&mut self, began: u64, now: u64) {
        let look = self.look.forgotten();
        *self = Trial { since: now, cost: now.saturating_sub(began), look, ..Trial::default() };
    }

    pub fn choice(&self) -> ZeroChoice {
        let decided = self.step == STEPS;
        let measured = decided && self.why == ZeroWhy::Measured as u64;
        ZeroChoice {
            form: self.form(),
            why: match self.why {
                _ if !decided => ZeroWhy::Start,
                1 => ZeroWhy::Measured,
                2 => ZeroWhy::Scattered,
                _ => ZeroWhy::Visited,
            },
            page: if measured { self.page() } else { 0 },
            table: if measured { self.table() } else { 0 },
            faults: self.faults,
        }
    }

    pub fn validate(&self) -> Result<(), Invalid> {
        let bounds =
            [(self.step, STEPS), (self.seen, WINDOW - 1), (self.near, self.seen), (self.form, 1), (self.why, 3)];
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

    /// Lets `body` at the trial, after whoever is.
    pub fn wait<M: Machine, R>(&self, m: &M, mut body: impl FnMut(&mut Trial) -> R) -> R {
        loop {
            touch(m, &self.busy, true);
            if let Some(result) = self.with(&mut body) {
                return result;
            }
            m.relax();
        }
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
#[path = "auto_tests.rs"]
mod tests;
