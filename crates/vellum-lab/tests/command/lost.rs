//! What is there already stays, whatever is asked, and what is being made is not lost with whoever
//! was to read of it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::{Temporary, vellum};
use crate::record::{nothing_beside, record};

/// One access, as lackey writes it.
const TEXT: &[u8] = b" L 1000,4\n";

#[track_caller]
fn import(input: &str, output: &str, code: i32, says: &str) {
    let said = vellum(&["trace", "import-lackey", input, "-o", output]);
    assert_eq!(said.code, Some(code), "{}", said.err);
    assert!(said.err.starts_with(&format!("vellum: {output}: ")), "{}", said.err);
    assert!(said.err.contains(says) && said.err.trim_end().lines().count() == 1, "{}", said.err);
}

#[test]
fn an_import_replaces_no_device_no_folder_and_not_the_text_that_it_reads() {
    let text = Temporary::with("import.txt", TEXT);
    let pipe = Temporary::new("import-pipe");
    let made = Command::new("mkfifo").arg(&pipe.0).status().expect("mkfifo");
    assert!(made.success());
    import(text.path(), pipe.path(), 2, "no regular file");
    let kind = std::fs::metadata(&pipe.0).expect("it is there").file_type();
    assert!(kind.is_fifo(), "a pipe became a file");
    import(text.path(), "/tmp", 2, "no regular file");
    import(text.path(), text.path(), 2, "the text to be read");
    assert_eq!(std::fs::read(&text.0).expect("it is there"), TEXT);
}

/// A recording that was killed has left all that there is of it under that name.
#[test]
fn an_import_leaves_what_an_earlier_recording_has_left() {
    let text = Temporary::with("import-beside.txt", TEXT);
    let out = Temporary::new("import-beside.vt");
    let left = Temporary::with("import-beside.vt.partial", b"a trace");
    for input in [text.path(), left.path(), "/dev/null"] {
        import(input, out.path(), 2, "of that name and .partial is there");
        assert_eq!(std::fs::read(&left.0).expect("it is there"), b"a trace");
    }
    assert!(!out.0.exists());
}

#[test]
fn an_import_that_cannot_write_names_the_trace_and_not_the_text() {
    // Each on a page of its own, so that a block of them does not fit into the limit.
    let lines: String = (0..100_000u64).map(|n| format!(" L {:x},8\n", n * n * 4096)).collect();
    let text = Temporary::with("import-full.txt", lines.as_bytes());
    let out = Temporary::new("import-full.vt");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.args(["trace", "import-lackey", text.path(), "-o", out.path()]);
    // SAFETY: both calls are async-signal-safe, the limit is live.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        });
    }
    let said = command.output().expect("runs");
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{err}");
    assert!(err.starts_with(&format!("vellum: {}: writing", out.path())), "{err}");
    assert!(!out.0.exists() && !std::path::Path::new(&format!("{}.partial", out.path())).exists());
}

/// `vellum record ... 2>&1 | head -1`: a note that cannot be written ended the recording.
#[test]
fn a_recording_goes_on_where_nobody_reads_its_notes() {
    let trace = Temporary::new("unread.vt");
    // Two programs, so that the first note comes before the second run.
    let words = ["-o", trace.path(), "--", "sh", "-c", "/bin/true; /bin/true; :"];
    let mut command = record(&words);
    let (read, write) = std::io::pipe().expect("a pipe");
    drop(read);
    let status = command.stdin(Stdio::null()).stderr(write).status().expect("runs");
    assert_eq!(status.code(), Some(0));
    assert!(vellum_trace::read_totals(&trace.0).is_ok_and(|sums| !sums.partial));
    // A mistake keeps its code, too.
    let (read, write) = std::io::pipe().expect("a pipe");
    drop(read);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let status = command.arg("simulate").stderr(write).status().expect("runs");
    assert_eq!(status.code(), Some(2));
}

/// The name may be taken by the time the program is over: by the program itself, for one.
#[test]
fn a_trace_that_cannot_get_its_name_stays_under_the_other() {
    let trace = Temporary::new("taken.vt");
    let said = record(&["-o", trace.path(), "--", "mkdir", "-p", trace.path()]).output();
    let said = said.expect("runs");
    std::fs::remove_dir(&trace.0).expect("the program has made it");
    let there = Temporary::new("taken.vt.partial");
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{err}");
    assert!(err.contains(&format!("it is whole, under the name {}", there.path())), "{err}");
    assert!(vellum_trace::read_totals(&there.0).is_ok_and(|sums| !sums.partial), "{err}");
}

/// Whoever calls the command may keep a pipe open as its input, and send nothing.
#[test]
fn input_that_never_ends_is_told_and_ctrl_c_ends_the_wait() {
    let trace = Temporary::new("endless.vt");
    let mut command = record(&["-o", trace.path(), "--", "true"]);
    let command = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut recording = command.spawn().expect("runs");
    let input = recording.stdin.take();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(20));
        drop(input);
    });
    let mut said = BufReader::new(recording.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.starts_with("note: standard input is read to its end first"), "{line}");
    let pid = i32::try_from(recording.id()).expect("a process");
    // SAFETY: kill has no preconditions; the process is our child.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    assert_eq!(recording.wait().expect("ends").code(), Some(130));
    assert!(!trace.0.exists() && nothing_beside(&trace));
}

#[test]
fn ctrl_c_in_an_experiment_is_told_by_the_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.args(["repro", "colour"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let repro = command.spawn().expect("runs");
    let status = format!("/proc/{}/status", repro.id());
    let handles = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:"))?.trim().to_owned();
        Some(u64::from_str_radix(&caught, 16).ok()? & (1 << (libc::SIGINT - 1)) != 0)
    };
    while handles() != Some(true) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = i32::try_from(repro.id()).expect("a process");
    // SAFETY: kill has no preconditions; the process is our child.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let said = repro.wait_with_output().expect("ends");
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(130), "{err}");
    assert!(err.contains("stopped by Ctrl-C"), "{err}");
}
