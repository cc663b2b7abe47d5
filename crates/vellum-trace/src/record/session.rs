//! The two runs of a command.
use super::error::{RecordError, io_error};
use super::input::Input;
use super::options::{Listener, Options};
use super::program::{Choice, Program};
use super::recording::{Recording, Run, Tools};
use super::watch::{Ended, Recorders, Watch};
use super::{find, folio, input, native, output, plain};
use crate::header::{Header, Khugepaged, Recorder};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What both runs need.
pub(super) struct Session<'a> {
    options: &'a Options,
    listener: &'a dyn Listener,
    tools: Tools<'a>,
    /// The command's first executable and its arguments.
    executable: Vec<OsString>,
    input: Input,
    /// Are the programs followed that a program starts?
    pub(super) followed: bool,
}

impl<'a> Session<'a> {
    /// Looks whether all is there.
    pub(super) fn new(
        options: &'a Options,
        listener: &'a dyn Listener,
        recorders: &'a Recorders,
    ) -> Result<Session<'a>, RecordError> {
        match options.choice {
            Choice::All => output::check_numbered(&options.out)?,
            _ => output::check_output(&options.out)?,
        }
        let executable = find::command(&options.command)?;
        let qemu = find::in_path("qemu-x86_64").ok_or(RecordError::NoQemu)?;
        let qemu = std::path::absolute(qemu).map_err(io_error("looking for qemu-x86_64"))?;
        let plugin = find::plugin(options.plugin.as_deref()).ok_or(RecordError::NoPlugin)?;
        let header = header(options);
        let tools = Tools { options, listener, qemu, plugin, header, recorders };
        if find::is_privileged(std::path::Path::new(&executable[0])) {
            listener.say(&format!(
                "{} runs without its special rights, since the system does not give them to a \
                 program that is followed; record what it starts: vellum record -o {} -- PROGRAM \
                 ARGS",
                executable[0].display(),
                options.out.display()
            ));
        }
        // One run alone reads what there is as it comes.
        let input = if options.native { Input::new(listener)? } else { Input::Inherited };
        Ok(Session { options, listener, tools, executable, input, followed: options.follow })
    }

    fn command(&self) -> Result<Command, RecordError> {
        let words = &self.options.command;
        let mut c = Command::new(find::resolve(&words[0])?);
        c.arg0(&words[0]).args(&words[1..]).stdin(self.input.stdio()?);
        Ok(c)
    }

    fn watch(&self, native: bool) -> Watch<'_> {
        let (options, listener) = (self.options, self.listener);
        Watch { options, listener, recorders: self.tools.recorders, native }
    }

    /// The system refuses ptrace: says what that means, or refuses what needs it.
    fn unfollowed(&mut self) -> Result<(), RecordError> {
        self.followed = false;
        if self.options.choice != Choice::Most {
            return Err(RecordError::CannotFollow);
        }
        self.listener.say(&format!(
            "the system refuses ptrace: what this program starts cannot be followed; record such a \
             program by its own command: vellum record -o {} -- PROGRAM ARGS",
            self.options.out.display()
        ));
        Ok(())
    }

    /// The first of the two: the native run, if one is wanted. Its programs and why it ended.
    pub(super) fn native(&mut self) -> Result<Option<(Vec<Program>, Ended)>, RecordError> {
        let doing = "running the program";
        if !self.followed {
            self.unfollowed()?;
        }
        if !self.options.native {
            return Ok(None);
        }
        if self.followed {
            match native::run(self.command()?, &self.watch(true)) {
                Err(e) if e.kind() == io::ErrorKind::Unsupported => self.unfollowed()?,
                result => return result.map(Some).map_err(io_error(doing)),
            }
        }
        let stdin = self.input.stdio()?;
        let (program, ended) =
            plain::native(&self.executable, stdin, &self.watch(true)).map_err(io_error(doing))?;
        Ok(Some((vec![program], ended)))
    }

    /// The run under the recorder. `native` are the programs of the native run, `meant` which of
    /// them is recorded (`None`: all).
    pub(super) fn record(
        &mut self,
        native: Option<&[Program]>,
        meant: Option<usize>,
    ) -> Result<Run, RecordError> {
        let doing = "recording the program";
        if self.followed {
            match self.follow(self.command()?, native.map(|programs| (programs, meant))) {
                Err(e) if e.kind() == io::ErrorKind::Unsupported => self.unfollowed()?,
                result => {
                    let run = result.map_err(io_error(doing))?;
                    let missing = native.zip(meant).filter(|_| run.traces.is_empty());
                    return match missing {
                        Some((programs, meant)) if !self.listener.stopped() => {
                            self.alone(programs, meant)
                        }
                        _ => Ok(run),
                    };
                }
            }
        }
        let before = native.and_then(|programs| programs.first());
        let with = (self.input.stdio()?, &self.watch(false));
        plain::record(&self.tools, before, &self.executable, with).map_err(io_error(doing))
    }

    fn follow(
        &self,
        command: Command,
        native: Option<(&[Program], Option<usize>)>,
    ) -> io::Result<Run> {
        let recording = Recording::new(&self.tools, native);
        let ((programs, recording), ended) =
            native::follow(command, recording, &self.watch(false))?;
        Ok(Run { programs, traces: recording.traces, ended })
    }

    /// Records a program of the native run without the command that started it: what the first run
    /// made can keep the second from doing it once more, as it does with `make`.
    fn alone(&self, programs: &[Program], meant: usize) -> Result<Run, RecordError> {
        let program = &programs[meant];
        let not_again = || RecordError::NotAgain(program.name());
        if program.reads_pipe {
            return Err(not_again());
        }
        let stdin = match &program.stdin {
            Some(file) if !self.input.is(&file.0) => input::at(file).map_err(|_| not_again())?,
            _ => self.input.stdio()?,
        };
        self.listener.say(&format!(
            "the second run of the command did not start {}; it is recorded by itself, with the \
             arguments, directory and environment of the first",
            program.name()
        ));
        let mut command = program.command();
        command.stdin(stdin);
        let one = std::slice::from_ref(program);
        let mut run = self
            .follow(command, Some((one, Some(0))))
            .map_err(io_error("recording the program by itself"))?;
        run.traces.iter_mut().for_each(|trace| trace.native = Some(meant));
        Ok(run)
    }
}

pub(super) fn host_text(path: &str) -> String {
    std::fs::read_to_string(path).map(|s| s.trim().to_owned()).unwrap_or_default()
}

/// What is known of the host before anything runs.
fn header(options: &Options) -> Header {
    // SAFETY: sysconf has no preconditions.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let thp = |name: &str| host_text(&format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let window = options.window.map(|w| w.to_string());
    Header {
        recorder: Recorder::Qemu,
        arch: "x86_64".into(),
        page_size: u64::try_from(page_size).unwrap_or(0),
        host_kernel: host_text("/proc/sys/kernel/osrelease"),
        host_thp: thp("enabled"),
        host_thp_defrag: thp("defrag"),
        host_thp_zero_page: thp("use_zero_page"),
        host_thp_shmem: thp("shmem_enabled"),
        host_khugepaged: Khugepaged {
            scan_sleep_millisecs: thp("khugepaged/scan_sleep_millisecs"),
            pages_to_scan: thp("khugepaged/pages_to_scan"),
            max_ptes_none: thp("khugepaged/max_ptes_none"),
        },
        host_folio_ahead: folio::read_ahead(Path::new(".")),
        window: window.or(options.clock.map(|c| c.to_string())).unwrap_or_default(),
        ..Header::default()
    }
}
