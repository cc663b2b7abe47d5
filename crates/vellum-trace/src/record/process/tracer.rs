//! Following all processes of a command, which stop only where one is made, executes or ends.
use super::ptrace::{self, EVENT_STOP, Wait};
use super::replace::replace;
use super::usage::{self, Usage};
use crate::header::NativeRun;
use crate::record::program::Program;
use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Who is told of what happens, while the process concerned stands still.
pub(crate) trait Observer {
    /// A process has become this program, the `index`th: what shall run in its place, if anything?
    /// The answer is another program and the arguments in front of this one's.
    fn started(&mut self, index: usize, program: &Program) -> io::Result<Option<Vec<CString>>>;
    /// What runs in the place of the `index`th program is about to be ended by a signal.
    fn dying(&mut self, index: usize, signal: i32);
}

/// The processes that live, for whoever wants to end them.
#[derive(Default)]
pub(crate) struct Live {
    all: Mutex<BTreeSet<i32>>,
    /// The command's own process has ended.
    left: AtomicBool,
}

impl Live {
    fn pids(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.all.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One that is no tracer's.
    pub(crate) fn of(pid: i32) -> Live {
        Live { all: Mutex::new(BTreeSet::from([pid])), left: AtomicBool::new(false) }
    }

    /// Has the command's own process ended, though others live?
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) && !self.pids().is_empty()
    }

    /// The programs of all of them by name, and their processes.
    pub(crate) fn names(&self) -> Vec<(String, String)> {
        let name = |pid: &i32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            Some((crate::printable(name.trim_end()), pid.to_string()))
        };
        self.pids().iter().filter_map(name).collect()
    }

    /// The CPU time of all of them.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.pids().iter().map(|pid| Duration::from_nanos(usage::cpu_ns(*pid))).sum()
    }

    /// Sends a signal to all of them.
    pub(crate) fn signal(&self, signal: i32) {
        for pid in self.pids().iter() {
            // SAFETY: kill has no preconditions. A process is removed from the list as soon as the
            // tracer learns that it is gone, so that its number is not another's yet.
            unsafe { libc::kill(*pid, signal) };
        }
    }
}

/// What is in the place of a process's program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Itself,
    /// Another, which is about to be executed.
    Expected,
    /// Another.
    Other,
}

struct Process {
    program: Option<usize>,
    /// A child that has not executed a program of its own.
    is_child: bool,
    place: Place,
    /// What the process had used when the program began.
    before: Usage,
    /// The same as last seen.
    now: Usage,
    peak: u64,
    began: Instant,
}

/// Follows processes and lists their programs.
pub(crate) struct Tracer<'a, O> {
    pub(crate) programs: Vec<Program>,
    pub(crate) observer: O,
    processes: HashMap<i32, Process>,
    /// Which process a thread belongs to.
    threads: HashMap<i32, i32>,
    live: &'a Live,
    thp_off: bool,
}

impl<'a, O: Observer> Tracer<'a, O> {
    /// `thp_off`: what the figures shall say of huge pages.
    pub(crate) fn new(observer: O, live: &'a Live, thp_off: bool) -> Self {
        let (processes, threads) = (HashMap::new(), HashMap::new());
        Tracer { programs: Vec::new(), observer, processes, threads, live, thp_off }
    }

    /// Follows a process, which this thread has [started](super::start), and all that it makes,
    /// until none is left.
    pub(crate) fn follow(&mut self, first: i32) -> io::Result<()> {
        self.know(first, None);
        while let Some((tid, what)) = ptrace::wait()? {
            match what {
                Wait::Ended(code) => {
                    self.ended(tid, code);
                    self.live.left.fetch_or(tid == first, Ordering::Relaxed);
                }
                Wait::Stopped { event, signal } => self.stopped(tid, event, signal)?,
            }
        }
        Ok(())
    }

    fn stopped(&mut self, tid: i32, event: i32, signal: i32) -> io::Result<()> {
        let pid = self.process_of(tid);
        match event {
            // The child is met at its own first stop, before it has done anything. Here it may be
            // gone already, and its number another's.
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {}
            libc::PTRACE_EVENT_EXEC => self.executed(tid)?,
            libc::PTRACE_EVENT_EXIT => self.look(pid, tid),
            EVENT_STOP if signal != libc::SIGTRAP => {
                ptrace::listen(tid);
                return Ok(());
            }
            EVENT_STOP => {}
            _ => return self.signalled(tid, pid, signal),
        }
        ptrace::go_on(tid, 0);
        Ok(())
    }

    fn signalled(&mut self, tid: i32, pid: i32, signal: i32) -> io::Result<()> {
        if let Some(Process { place, program: Some(index), is_child: false, .. }) =
            self.processes.get(&pid)
        {
            if *place == Place::Expected && signal == libc::SIGTRAP {
                return Err(io::Error::other("it could not be executed"));
            }
            if *place == Place::Other && usage::is_fatal(tid, signal) {
                self.observer.dying(*index, signal);
            }
        }
        ptrace::go_on(tid, signal);
        Ok(())
    }

    /// The process of a thread, which is new at its first stop.
    fn process_of(&mut self, tid: i32) -> i32 {
        if !self.threads.contains_key(&tid) {
            let parent = usage::parent(tid).and_then(|p| self.processes.get(&p)?.program);
            self.know(tid, parent);
        }
        self.threads.get(&tid).copied().unwrap_or(tid)
    }

    /// A process or thread, made by that program.
    fn know(&mut self, tid: i32, parent: Option<usize>) {
        if self.threads.contains_key(&tid) {
            return;
        }
        let pid = usage::group(tid).unwrap_or(tid);
        self.threads.insert(tid, pid);
        if self.processes.contains_key(&pid) {
            return;
        }
        self.live.pids().insert(pid);
        let process = Process {
            program: parent,
            is_child: true,
            place: Place::Itself,
            before: Usage::default(),
            now: Usage::default(),
            peak: 0,
            began: Instant::now(),
        };
        self.processes.insert(pid, process);
    }

    /// Notes what a process has used, as one of its threads ends. One that ended before has no
    /// memory to tell of.
    fn look(&mut self, pid: i32, tid: i32) {
        if let Some(p) = self.processes.get_mut(&pid) {
            p.now = Usage::of(pid);
            p.peak = p.peak.max(usage::peak(tid));
        }
    }

    /// The process executes something; its other threads are gone, and this one has its number.
    fn executed(&mut self, pid: i32) -> io::Result<()> {
        self.threads.retain(|tid, process| *process != pid || *tid == pid);
        let now = Usage::of(pid);
        if let Some(p) = self.processes.get_mut(&pid) {
            p.now = now;
            if p.place == Place::Expected {
                p.place = Place::Other;
                return Ok(());
            }
        }
        self.settle(pid, None);
        let index = self.programs.len();
        let program = usage::program(pid);
        let instead = self.observer.started(index, &program)?;
        self.programs.push(program);
        if let Some(front) = &instead {
            replace(pid, front)?;
        }
        let process = Process {
            program: Some(index),
            is_child: false,
            place: if instead.is_some() { Place::Expected } else { Place::Itself },
            before: now,
            now,
            peak: 0,
            began: Instant::now(),
        };
        self.processes.insert(pid, process);
        Ok(())
    }

    fn ended(&mut self, tid: i32, code: i32) {
        self.threads.remove(&tid);
        if self.processes.contains_key(&tid) {
            self.live.pids().remove(&tid);
            self.settle(tid, Some(code));
            self.processes.remove(&tid);
        }
    }

    /// A program is over: its process has ended with a code, or executed another.
    fn settle(&mut self, pid: i32, code: Option<i32>) {
        let Some(process) = self.processes.get(&pid) else { return };
        let Some(program) = process.program.and_then(|i| self.programs.get_mut(i)) else { return };
        let used = process.now.since(&process.before);
        if process.is_child {
            // A child that became another program did nothing worth telling before.
            if code.is_some() {
                program.children += 1;
                program.child_faults += used.minor;
            }
            return;
        }
        let (user_us, system_us) = used.times();
        program.native = NativeRun {
            minor_faults: used.minor,
            major_faults: used.major,
            peak_rss: process.peak,
            user_us,
            system_us,
            wall_us: u64::try_from(process.began.elapsed().as_micros()).unwrap_or(u64::MAX),
            thp_off: self.thp_off,
        };
        program.code = code;
        program.replaced = code.is_none();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::process::start;
    use std::process::{Command, Stdio};

    struct Nobody;

    impl Observer for Nobody {
        fn started(&mut self, _: usize, _: &Program) -> io::Result<Option<Vec<CString>>> {
            Ok(None)
        }
        fn dying(&mut self, _: usize, _: i32) {}
    }

    fn programs(script: &str) -> Vec<Program> {
        let mut c = Command::new("/bin/sh");
        c.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null());
        let live = Live::default();
        let mut tracer = Tracer::new(Nobody, &live, true);
        tracer.follow(start(c).expect("a traced shell")).expect("followed to its end");
        assert!(live.pids().is_empty());
        tracer.programs
    }

    #[test]
    fn every_program_of_a_pipe_is_listed_with_its_arguments_and_its_end() {
        let all = programs("cd / && echo 1 2 3 | cat | (read a b; exit 7); exit 3");
        assert_eq!((all[0].name().as_str(), all[0].code), ("dash", Some(3)), "{all:?}");
        let cat = all.iter().find(|p| p.is_called("cat".as_ref())).expect("cat ran");
        assert_eq!((cat.code, cat.dir.as_path()), (Some(0), std::path::Path::new("/")));
        assert!(cat.native.minor_faults > 20 && cat.native.peak_rss > 4096, "{cat:?}");
        assert!(all[0].children >= 2 && all[0].child_faults > 0, "{all:?}");
    }

    #[test]
    fn a_program_that_replaces_itself_and_one_that_a_signal_ends_are_two() {
        let all = programs("exec sh -c 'kill -SEGV $$'");
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].replaced && all[0].code.is_none());
        assert_eq!(all[1].code, Some(128 + libc::SIGSEGV));
    }
}
