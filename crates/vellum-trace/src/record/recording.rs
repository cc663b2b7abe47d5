//! The second run: the program that is meant runs under the recorder, all others natively.
use super::error::RecordError;
use super::find;
use super::options::{Listener, Options};
use super::output::{META, PARTIAL, Temporary, beside, numbered};
use super::process::Observer;
use super::program::{Choice, Program};
use super::shared::Shared;
use super::watch::{Ended, Recorders, finish};
use crate::header::Header;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The recorded program's processor: everything QEMU can do, except that copying and clearing with
/// string instructions is not called fast. Libraries would choose it, and QEMU performs it byte by
/// byte, an access and a line each, which no processor does.
const CPU: &str = "max,-erms,-fsrm";

/// What a recording needs beside the program.
pub(super) struct Tools<'a> {
    pub(super) options: &'a Options,
    pub(super) listener: &'a dyn Listener,
    pub(super) qemu: PathBuf,
    pub(super) plugin: PathBuf,
    /// All but the program's command and figures.
    pub(super) header: Header,
    pub(super) recorders: &'a Recorders,
}

/// A trace that is being written.
pub(super) struct Trace {
    /// Which program of this run it is of.
    pub(super) index: usize,
    /// The same program of the native run.
    pub(super) native: Option<usize>,
    /// Where it shall be in the end.
    pub(super) out: PathBuf,
    pub(super) partial: Temporary,
    _meta: Temporary,
    shared: Arc<Shared>,
}

/// What the recorded run gave.
pub(super) struct Run {
    pub(super) programs: Vec<Program>,
    pub(super) traces: Vec<Trace>,
    pub(super) ended: Ended,
}

/// A path inside QEMU's option syntax, where a comma is written twice.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

impl Tools<'_> {
    /// Makes the files of a trace. Gives it, and what QEMU is called with, up to the program's own
    /// name and without it.
    pub(super) fn begin(
        &self,
        index: usize,
        program: &Program,
        native: Option<(usize, &Program)>,
    ) -> Result<(Trace, Vec<OsString>), io::Error> {
        let o = self.options;
        let out = std::path::absolute(match o.choice {
            Choice::All => numbered(&o.out, index + 1),
            _ => o.out.clone(),
        })?;
        let header = Header {
            command: program.args.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
            native: native.map(|(_, program)| program.native),
            ..self.header.clone()
        };
        let partial = Temporary(beside(&out, PARTIAL));
        let meta = Temporary(beside(&out, META));
        let shared = Arc::new(Shared::create(&meta.0, &header.encode())?);
        self.recorders.add(Arc::clone(&shared));
        let mut arg = format!(
            "{},out={},meta={},level={}",
            escaped(&self.plugin),
            escaped(&partial.0),
            escaped(&meta.0),
            o.level
        );
        if let Some(w) = o.window {
            arg += &format!(",window={}", w.to_string().replace(',', ":"));
        }
        if let Some(c) = o.clock {
            arg += &format!(",clock={}", c.to_string().replace(',', ":"));
        }
        if !o.names {
            arg += ",names=off";
        }
        let name = program.args.first().map_or(program.path.as_os_str(), |a| a.as_os_str());
        let words: [&OsStr; 7] = [
            self.qemu.as_os_str(),
            "-0".as_ref(),
            name,
            "-cpu".as_ref(),
            CPU.as_ref(),
            "-plugin".as_ref(),
            arg.as_ref(),
        ];
        let native = native.map(|(index, _)| index);
        let trace = Trace { index, native, out, partial, _meta: meta, shared };
        Ok((trace, words.map(OsStr::to_owned).to_vec()))
    }
}

/// Puts the recorder in the place of the programs that are meant.
pub(super) struct Recording<'a> {
    tools: &'a Tools<'a>,
    /// The native run, if there was one, and which of its programs is meant (`None`: all).
    native: Option<(&'a [Program], Option<usize>)>,
    seen: Vec<Program>,
    pub(super) traces: Vec<Trace>,
}

impl<'a> Recording<'a> {
    pub(super) fn new(
        tools: &'a Tools<'a>,
        native: Option<(&'a [Program], Option<usize>)>,
    ) -> Recording<'a> {
        Recording { tools, native, seen: Vec::new(), traces: Vec::new() }
    }

    /// The program of the native run that this one is: as many alike came before it.
    fn counterpart(&self, program: &Program) -> Option<(usize, &'a Program)> {
        let (programs, _) = self.native?;
        let before = self.seen.iter().filter(|p| p.is_like(program)).count();
        programs.iter().enumerate().filter(|(_, p)| p.is_like(program)).nth(before)
    }

    fn is_meant(&self, program: &Program, counterpart: Option<usize>) -> bool {
        if let Some((_, Some(meant))) = self.native {
            return counterpart == Some(meant);
        }
        match &self.tools.options.choice {
            // Nobody knows yet which will have the most: the command's own process, and if it
            // executes another program, that one instead.
            Choice::Most => self.seen.first().is_none_or(|first| first.pid == program.pid),
            Choice::Number(n) => self.seen.len() + 1 == *n,
            Choice::Name(name) => self.traces.is_empty() && program.is_called(name),
            Choice::All => true,
        }
    }
}

impl Observer for Recording<'_> {
    fn started(&mut self, index: usize, program: &Program) -> io::Result<Option<Vec<CString>>> {
        let counterpart = self.counterpart(program);
        let meant = self.is_meant(program, counterpart.map(|(i, _)| i));
        self.seen.push(program.clone());
        if !meant {
            return Ok(None);
        }
        let all = self.tools.options.choice == Choice::All;
        if !find::is_recordable(&program.path) {
            if !all {
                let e = RecordError::WrongProgram(program.path.clone());
                return Err(io::Error::other(e.to_string()));
            }
            let name = program.path.display();
            self.tools.listener.say(&format!("{name} is no x86_64 executable: not recorded"));
            return Ok(None);
        }
        if !all {
            // The one before has executed this one.
            self.traces.clear();
        }
        let (trace, mut words) = self.tools.begin(index, program, counterpart)?;
        words.push(program.path.clone().into_os_string());
        self.traces.push(trace);
        let text = |w: OsString| CString::new(w.as_bytes()).map_err(io::Error::other);
        words.into_iter().map(text).collect::<io::Result<Vec<_>>>().map(Some)
    }

    fn dying(&mut self, index: usize, signal: i32) {
        if let Some(trace) = self.traces.iter().find(|t| t.index == index) {
            finish(&trace.shared, 128 + signal);
        }
    }
}
