//! A program that a command started, and which of several is meant.
use super::error::RecordError;
use crate::header::NativeRun;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What ran in one process from an exec to the next, or to the process's end.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Its executable.
    pub path: PathBuf,
    /// Its arguments, the name it was called by first.
    pub args: Vec<OsString>,
    /// The directory in which it was started.
    pub dir: PathBuf,
    /// Its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Could something arrive at its standard input from another program?
    pub reads_pipe: bool,
    /// The file that is its standard input, and where in it that begins.
    pub stdin: Option<(PathBuf, u64)>,
    /// Its process.
    pub pid: i32,
    /// What it cost.
    pub native: NativeRun,
    /// Exit code of its process (128 + signal if a signal ended it); `None`: it replaced itself by
    /// the next program of this process, or still runs.
    pub code: Option<i32>,
    /// Did it replace itself by another program?
    pub replaced: bool,
    /// Children that it made and that did not become other programs.
    pub children: u64,
    /// Minor faults of those; `native` does not count them.
    pub child_faults: u64,
}

impl Program {
    /// The last part of its executable's name.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// The command that runs it by itself.
    pub fn command(&self) -> Command {
        let mut c = Command::new(&self.path);
        let (name, args) = self.args.split_first().map_or((None, &[][..]), |(n, a)| (Some(n), a));
        c.args(args).current_dir(&self.dir).env_clear();
        c.envs(self.environment.iter().map(|(k, v)| (k, v)));
        c.arg0(name.map_or(self.path.as_os_str(), |n| n.as_os_str()));
        c
    }

    /// Is it called that: by its executable, or by the name it was started with?
    pub fn is_called(&self, name: &OsStr) -> bool {
        let called = self.args.first().map(|a| Path::new(a.as_os_str()));
        let last = |p: &Path| p.file_name().is_some_and(|n| n == name) || p.as_os_str() == name;
        last(&self.path) || called.is_some_and(last)
    }

    /// Is that the same program in another run of the command? Names of temporary files, which a
    /// compiler's driver draws anew each time, may differ.
    pub fn is_like(&self, other: &Program) -> bool {
        let temporary = |a: &OsStr| {
            let path = Path::new(a);
            path.starts_with("/tmp") || path.starts_with(std::env::temp_dir())
        };
        let same = |a: &OsStr, b: &OsStr| a == b || (temporary(a) && temporary(b));
        self.path == other.path
            && same(self.dir.as_os_str(), other.dir.as_os_str())
            && self.args.len() == other.args.len()
            && self.args.iter().zip(&other.args).all(|(a, b)| same(a, b))
    }
}

/// Which of the programs of a command is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Choice {
    /// The one with the most page faults.
    #[default]
    Most,
    /// By its number in the order in which they were started, from 1.
    Number(usize),
    /// By its name; of several, the one with the most page faults.
    Name(OsString),
    /// All, a trace each.
    All,
}

impl Choice {
    /// `--process N|NAME`.
    pub fn parse(text: &OsStr) -> Choice {
        match text.to_str().and_then(|t| t.parse().ok()) {
            Some(n) => Choice::Number(n),
            None => Choice::Name(text.to_owned()),
        }
    }

    /// The index of the program meant; `None`: all of them.
    ///
    /// # Errors
    /// [`RecordError::NoSuchProcess`].
    pub(super) fn of(&self, programs: &[Program]) -> Result<Option<usize>, RecordError> {
        let most = |wanted: &dyn Fn(&Program) -> bool| {
            let wanted = programs.iter().enumerate().filter(|(_, p)| wanted(p));
            // Of equals the first.
            wanted.rev().max_by_key(|(_, p)| p.native.minor_faults).map(|(i, _)| i)
        };
        let found = match self {
            Choice::All => return Ok(None),
            Choice::Most => most(&|_| true),
            Choice::Number(n) => n.checked_sub(1).filter(|i| *i < programs.len()),
            Choice::Name(name) => most(&|p| p.is_called(name)),
        };
        let asked = match self {
            Choice::Number(n) => n.to_string(),
            Choice::Name(name) => name.to_string_lossy().into_owned(),
            _ => String::new(),
        };
        let names = || programs.iter().enumerate().map(|(i, p)| format!("{} {}", i + 1, p.name()));
        found.map(Some).ok_or_else(|| RecordError::NoSuchProcess { asked, ran: names().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &str, args: &[&str], minor_faults: u64) -> Program {
        Program {
            path: path.into(),
            args: args.iter().map(Into::into).collect(),
            native: NativeRun { minor_faults, ..NativeRun::default() },
            ..Program::default()
        }
    }

    #[test]
    fn the_program_meant_is_the_one_with_most_faults_or_the_one_named() {
        let all = [
            program("/bin/dash", &["sh", "-c", "x"], 100),
            program("/usr/bin/sort", &["sort"], 900),
            program("/usr/bin/sort", &["sort", "-r"], 900),
            program("/usr/bin/tail", &["tail"], 90),
        ];
        let of = |choice: Choice| choice.of(&all).ok().flatten();
        assert_eq!(of(Choice::Most), Some(1));
        assert_eq!(of(Choice::parse("4".as_ref())), Some(3));
        assert_eq!(of(Choice::parse("sh".as_ref())), Some(0), "by the name it was started with");
        assert_eq!(of(Choice::parse("/bin/dash".as_ref())), Some(0));
        for wrong in ["0", "5", "cat"] {
            let e = Choice::parse(wrong.as_ref()).of(&all).expect_err("no such program");
            let text = e.to_string();
            assert!(text.contains(wrong) && text.contains("1 dash, 2 sort"), "{text}");
        }
    }

    #[test]
    fn names_of_temporary_files_may_differ_between_runs() {
        let one = program("/usr/lib/cc1", &["cc1", "a.c", "-o", "/tmp/ccA1.s"], 1);
        assert!(one.is_like(&program("/usr/lib/cc1", &["cc1", "a.c", "-o", "/tmp/ccB2.s"], 2)));
        assert!(!one.is_like(&program("/usr/lib/cc1", &["cc1", "b.c", "-o", "/tmp/ccA1.s"], 2)));
        assert!(!one.is_like(&program("/usr/bin/as", &["cc1", "a.c", "-o", "/tmp/ccA1.s"], 2)));
        assert!(!one.is_like(&program("/usr/lib/cc1", &["cc1"], 2)));
        let there = |dir: &str| Program { dir: dir.into(), ..one.clone() };
        assert!(!there("/a").is_like(&there("/b")), "the same words in another folder");
        assert!(there("/tmp/x1").is_like(&there("/tmp/x2")));
    }
}
