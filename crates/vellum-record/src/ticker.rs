//! What happens by the clock: windows, writing out, and ending when we are asked to.
use crate::order;
use crate::sink::Message;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use vellum_trace::build::Clock;
use vellum_trace::record::shared::Shared;

/// How often we look.
const TICK: Duration = Duration::from_millis(20);
/// How much of a recording a killed program may lose.
const FLUSH: Duration = Duration::from_millis(250);

/// The thread that looks at the clock.
pub struct Ticker {
    clock: Option<Clock>,
    shared: Option<Arc<Shared>>,
    open: bool,
}

impl Ticker {
    /// The first state is in the stream before anything is recorded.
    pub fn new(clock: Option<Clock>, shared: Option<Arc<Shared>>) -> Ticker {
        let open = clock.is_none_or(|c| c.is_open(Duration::ZERO));
        if !open {
            order::lock().message(Message::Keep(false));
        }
        shared.iter().for_each(|s| s.begin());
        Ticker { clock, shared, open }
    }

    /// Works until the recording is over.
    pub fn run(mut self) {
        let begin = Instant::now();
        let mut flushed = begin;
        loop {
            std::thread::sleep(TICK);
            let asked = self.shared.as_ref().and_then(|s| s.asked_to_finish());
            let open = self.clock.is_none_or(|c| c.is_open(begin.elapsed()));
            let mut o = order::lock();
            if o.is_closed() {
                return;
            }
            if let Some(code) = asked {
                let (done, wait) = mpsc::channel();
                o.message(Message::Finish { code, done });
                o.close();
                drop(o);
                let _ = wait.recv();
                return;
            }
            o.ended_children();
            if open != self.open {
                self.open = open;
                o.message(Message::Keep(open));
            }
            if flushed.elapsed() >= FLUSH {
                flushed = Instant::now();
                o.message(Message::Flush);
            }
        }
    }
}
