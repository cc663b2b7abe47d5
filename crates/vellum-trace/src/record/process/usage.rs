//! What `/proc` says of a process.
use crate::record::program::Program;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// What a process has used so far, all its threads together.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    pub minor: u64,
    pub major: u64,
    /// Exact, in contrast to the next two.
    pub cpu_ns: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
}

impl Usage {
    /// Read at a stop: proc_pid_stat(5), fields 10, 12, 14 and 15.
    pub(super) fn of(pid: i32) -> Usage {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The second field is a name that may hold anything; the third follows its last bracket.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse().ok()).unwrap_or(0);
        Usage {
            minor: field(10),
            major: field(12),
            cpu_ns: cpu_ns(pid),
            user_ticks: field(14),
            system_ticks: field(15),
        }
    }

    pub(super) fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            minor: self.minor.saturating_sub(earlier.minor),
            major: self.major.saturating_sub(earlier.major),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(earlier.system_ticks),
        }
    }

    /// User and system time in microseconds: the exact sum, divided as the ticks are, which is what
    /// getrusage(2) does.
    pub(super) fn times(&self) -> (u64, u64) {
        let all = self.cpu_ns / 1000;
        let ticks = self.user_ticks + self.system_ticks;
        let user = (all * self.user_ticks).checked_div(ticks).unwrap_or(all);
        (user, all - user)
    }
}

/// The CPU time of a process. Its clock's number is made as clock_getcpuclockid(3) makes it.
pub(super) fn cpu_ns(pid: i32) -> u64 {
    let clock = (!pid << 3) | 2;
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result is live.
    if unsafe { libc::clock_gettime(clock, &mut t) } != 0 {
        return 0;
    }
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

fn status_field(pid: i32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Most bytes resident at once.
pub(super) fn peak(pid: i32) -> u64 {
    let text = status_field(pid, "VmHWM").unwrap_or_default();
    text.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// The process that a thread belongs to.
pub(super) fn group(tid: i32) -> Option<i32> {
    status_field(tid, "Tgid")?.parse().ok()
}

/// A process's parent.
pub(super) fn parent(pid: i32) -> Option<i32> {
    status_field(pid, "PPid")?.parse().ok()
}

/// Would the signal end the process, by what it has set up?
pub(super) fn is_fatal(pid: i32, signal: i32) -> bool {
    // signal(7): the default of these is to be ignored, to stop or to go on.
    const HARMLESS: [i32; 8] = [
        libc::SIGCHLD,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ];
    let set = |name| {
        let text = status_field(pid, name).unwrap_or_default();
        u64::from_str_radix(&text, 16).unwrap_or(u64::MAX)
    };
    let bit = 1u64 << (signal - 1).clamp(0, 63);
    !HARMLESS.contains(&signal) && (set("SigCgt") | set("SigIgn")) & bit == 0
}

/// Can something arrive at the process's standard input from another? A pipe that nobody writes to,
/// which `make` gives to all but one of its commands, brings nothing.
fn reads_pipe(pid: i32) -> bool {
    let stdin = format!("/proc/{pid}/fd/0");
    let link = std::fs::read_link(&stdin).unwrap_or_default().into_os_string().into_vec();
    if !link.starts_with(b"pipe:") {
        return link.starts_with(b"socket:");
    }
    let Ok(pipe) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(stdin) else {
        return true;
    };
    let mut state = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live element, and no waiting.
    unsafe { libc::poll(&mut state, 1, 0) };
    state.revents != libc::POLLHUP
}

/// The file that is a process's standard input, and where it is in it.
fn stdin(pid: i32) -> Option<(PathBuf, u64)> {
    let at = format!("/proc/{pid}/fd/0");
    let path = std::fs::read_link(&at).ok()?;
    // Follows the link, also to a file that has no name any more.
    std::fs::metadata(at).ok().filter(|m| m.is_file())?;
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/0")).ok()?;
    let position = info.lines().find_map(|l| l.strip_prefix("pos:"))?.trim().parse().ok()?;
    Some((path, position))
}

/// The program that a process has become.
pub(super) fn program(pid: i32) -> Program {
    let link = |name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let texts = |name: &str| -> Vec<OsString> {
        let all = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let texts = all.split_inclusive(|b| *b == 0).map(|t| t.strip_suffix(&[0]).unwrap_or(t));
        texts.map(|t| OsString::from_vec(t.to_vec())).collect()
    };
    let environment = texts("environ").into_iter().filter_map(|text| {
        let text = text.into_vec();
        let cut = text.iter().position(|b| *b == b'=')?;
        let (key, value) = (text[..cut].to_vec(), text[cut + 1..].to_vec());
        Some((OsString::from_vec(key), OsString::from_vec(value)))
    });
    Program {
        path: link("exe"),
        args: texts("cmdline"),
        dir: link("cwd"),
        environment: environment.collect(),
        reads_pipe: reads_pipe(pid),
        stdin: stdin(pid),
        pid,
        ..Program::default()
    }
}
