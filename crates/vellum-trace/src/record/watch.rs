//! Watching over a run: its clock, its disk, and whoever wants it to end.
use super::options::{Listener, Options, Progress};
use super::process::Live;
use super::shared::Shared;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often we look.
const LOOK: Duration = Duration::from_millis(20);
/// How often progress is told.
const TELL: Duration = Duration::from_millis(250);
/// How long a program may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(10);
/// How long a recorder may take to write what it has.
const WRITE: Duration = Duration::from_secs(3);
/// A look that takes so long was none: we were stopped meanwhile, by Ctrl-Z or with the computer.
const STOPPED: Duration = Duration::from_secs(1);
/// How long what a command leaves in the background is waited for without a word.
const LEFT: Duration = Duration::from_secs(2);
/// A native run of this length that used less than a tenth of it waits for somebody.
const WAITING: Duration = Duration::from_secs(10);

/// Why a run ended.
#[derive(Debug, Default)]
pub enum Ended {
    /// By itself.
    #[default]
    Itself,
    /// Somebody asked for it ([`Listener::stopped`]).
    Asked,
    /// Its time was over ([`Options::stop_after`]).
    Clock,
    /// The trace could not be written any more, so the program was ended.
    Unwritable(io::Error),
}

/// The recorders at work.
#[derive(Default)]
pub(super) struct Recorders(Mutex<Vec<Arc<Shared>>>);

impl Recorders {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Shared>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn add(&self, one: Arc<Shared>) {
        self.all().push(one);
    }

    fn failure(&self) -> Option<io::Error> {
        self.all().iter().find_map(|r| r.failure())
    }

    /// Accesses and bytes of all traces.
    fn sums(&self) -> (u64, u64) {
        let add = |sum: (u64, u64), r: &Arc<Shared>| (sum.0 + r.accesses(), sum.1 + r.written());
        self.all().iter().fold((0, 0), add)
    }

    /// Has them write their traces to the end now, all at once.
    fn finish(&self, code: i32) {
        let (all, begin) = (self.all(), Instant::now());
        all.iter().for_each(|recorder| recorder.finish(code));
        all.iter().for_each(|recorder| wait(recorder, begin));
    }
}

/// Has a recorder write its trace to the end now, and waits until it has.
pub(super) fn finish(recorder: &Shared, code: i32) {
    recorder.finish(code);
    wait(recorder, Instant::now());
}

/// Is this process in the foreground of a terminal, whose Ctrl-C reaches its children, too?
fn is_in_foreground() -> bool {
    // SAFETY: neither call has preconditions; what is no terminal gives an error.
    unsafe { libc::tcgetpgrp(libc::STDERR_FILENO) == libc::getpgrp() }
}

fn wait(recorder: &Shared, begin: Instant) {
    while recorder.has_begun() && !recorder.is_finished() && begin.elapsed() < WRITE {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What is looked after.
pub(super) struct Watch<'a> {
    pub(super) options: &'a Options,
    pub(super) listener: &'a dyn Listener,
    pub(super) recorders: &'a Recorders,
    /// Of a native run there is nothing to record, and it is told if it waits.
    pub(super) native: bool,
}

impl Watch<'_> {
    /// Returns when `over` says so. Ends the processes when somebody asks for it, when their time
    /// is over, or when the trace cannot be written.
    pub(super) fn until(&self, over: impl Fn() -> bool, live: &Live) -> Ended {
        let mut begin = Instant::now();
        let mut ended = Ended::Itself;
        let (mut told, mut asked_at) = (begin, None);
        let (mut waits, mut spared) = (false, false);
        let mut alone_since = None;
        while !over() {
            let before = Instant::now();
            std::thread::sleep(LOOK);
            let slept = before.elapsed();
            if slept > STOPPED {
                begin += slept;
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                let (accesses, written) = self.recorders.sums();
                let (native, elapsed) = (self.native, begin.elapsed());
                self.listener.progress(&Progress { native, elapsed, accesses, written });
            }
            if self.native && !waits && !live.is_left() && begin.elapsed() > WAITING {
                waits = live.cpu_time() < WAITING / 10;
                if waits {
                    self.listener.say(
                        "the program waits, for input or for other programs; a service is \
                         recorded in one run by --no-native, and ended by --stop-after 60s or \
                         Ctrl-C",
                    );
                }
            }
            if live.is_left() && alone_since.is_none() {
                alone_since = Some((Instant::now(), false));
            }
            if let Some((since, false)) = alone_since
                && since.elapsed() > LEFT
            {
                alone_since = Some((since, true));
                self.say_left(live);
            }
            match asked_at {
                None => {
                    if let Some(why) = self.reason(begin) {
                        ended = why;
                        asked_at = Some(Instant::now());
                        // Ctrl-C has reached all of them already, and they may be cleaning up.
                        spared = matches!(ended, Ended::Asked) && is_in_foreground();
                        if !spared {
                            live.signal(self.options.stop_signal);
                        }
                    }
                }
                Some(at) if spared && at.elapsed() > GRACE => {
                    spared = false;
                    asked_at = Some(Instant::now());
                    live.signal(self.options.stop_signal);
                }
                Some(at) if at.elapsed() > GRACE || self.listener.hurried() => {
                    self.recorders.finish(128 + libc::SIGKILL);
                    live.signal(libc::SIGKILL);
                    asked_at = Some(Instant::now());
                }
                Some(_) => {}
            }
        }
        match self.recorders.failure() {
            Some(e) => Ended::Unwritable(e),
            None => ended,
        }
    }

    /// Says what the run still waits for when its command is over.
    fn say_left(&self, live: &Live) {
        let (names, pids): (Vec<String>, Vec<String>) = live.names().into_iter().unzip();
        if self.options.stop_after.is_none() && !pids.is_empty() {
            self.listener.say(&format!(
                "the command is over, but it left {} running, which is waited for; end it by \
                 `kill {}`, or every run with its command by --stop-after 10s",
                names.join(", "),
                pids.join(" ")
            ));
        }
    }

    /// Is there a reason to end the run?
    fn reason(&self, begin: Instant) -> Option<Ended> {
        if self.listener.stopped() {
            Some(Ended::Asked)
        } else if self.options.stop_after.is_some_and(|after| begin.elapsed() >= after) {
            Some(Ended::Clock)
        } else {
            self.recorders.failure().map(Ended::Unwritable)
        }
    }
}
