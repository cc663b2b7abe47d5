//! The calibration that is kept: a file in the user's cache folder, for the computer and the
//! version that wrote it.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use vellum_host::calibrate::topology;
use vellum_sim::file::Machine;

use super::{calibrate, machine};
use crate::commands::note;
use crate::error::LabError;

/// This computer.
#[derive(Clone, Debug)]
pub struct Host {
    /// The machine file.
    pub text: String,
    /// Where it is kept; `None` where nothing could be written.
    pub path: Option<PathBuf>,
    /// When it was measured; `None`: in this run.
    pub measured: Option<SystemTime>,
}

impl Host {
    /// The machine of its text.
    pub fn machine(&self) -> Result<Machine, LabError> {
        machine(&self.text)
    }

    /// When it was measured, for people.
    pub fn when(&self) -> String {
        let Some(measured) = self.measured else {
            return match self.path {
                Some(_) => "measured just now".to_owned(),
                None => {
                    "measured just now, and not kept: no cache folder can be written".to_owned()
                }
            };
        };
        let Ok(age) = measured.elapsed() else { return "measured before".to_owned() };
        let (minutes, hours) = (age.as_secs() / 60, age.as_secs() / 3600);
        match (minutes, hours) {
            (0..2, _) => "measured a minute ago".to_owned(),
            (2..120, _) => format!("measured {minutes} minutes ago"),
            (_, 2..48) => format!("measured {hours} hours ago"),
            _ => format!("measured {} days ago", hours / 24),
        }
    }
}

/// This computer as it was measured last, or now if it was not. Once in a program's life.
pub fn host() -> Result<Host, LabError> {
    static HOST: OnceLock<Result<Host, LabError>> = OnceLock::new();
    let measured = || {
        note("host: measuring this computer, about ten seconds");
        measure()
    };
    HOST.get_or_init(|| kept().map_or_else(measured, Ok)).clone()
}

/// Measures this computer again and keeps what comes of it.
pub fn measure() -> Result<Host, LabError> {
    let text = calibrate()?.text;
    let path = keep(&text);
    Ok(Host { text, path, measured: None })
}

/// Writes a calibration to where [`host`] finds it, and says where that is.
pub fn keep(text: &str) -> Option<PathBuf> {
    let path = path()?;
    fs::create_dir_all(path.parent()?).ok()?;
    write_whole(&path, text).ok().map(|()| path)
}

/// Writes a file that is never there in part, and leaves the old one if that fails.
pub fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// Keeps how true predictions were on this computer, in a line, beside its calibration.
pub fn keep_truth(line: &str) -> Option<PathBuf> {
    let path = path()?.with_extension("truth");
    fs::create_dir_all(path.parent()?).ok()?;
    write_whole(&path, &format!("{line}\n")).ok().map(|()| path)
}

/// How true predictions were on this computer, in a line; `None` where it was not calibrated.
pub fn truth() -> Option<String> {
    let path = path().filter(|path| path.exists())?;
    let kept = fs::read_to_string(path.with_extension("truth")).ok();
    let line = kept.as_deref().and_then(|text| text.lines().next());
    let printable = |line: &str| line.chars().filter(|c| !c.is_control()).collect();
    Some(line.map(printable).unwrap_or_else(|| {
        "calibrated; scripts/truth measures how true predictions are here".to_owned()
    }))
}

/// What was kept. A file that is no machine is put aside, since somebody may have worked on it.
fn kept() -> Option<Host> {
    let path = path()?;
    let text = fs::read_to_string(&path).ok()?;
    let measured = fs::metadata(&path).and_then(|m| m.modified()).ok();
    let host = Host { text, path: Some(path.clone()), measured };
    match host.machine() {
        Ok(_) => Some(host),
        Err(e) => {
            let aside = path.with_extension("bad");
            let _ = fs::rename(&path, &aside);
            note(format_args!("host: {e}; the file is {} now", aside.display()));
            None
        }
    }
}

/// The file of this computer, its kernel and huge pages, and this version.
fn path() -> Option<PathBuf> {
    // A relative path there is to be ignored, says the specification.
    let folder = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|f| f.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME").filter(|v| !v.is_empty())?));
    let folder = folder.or_else(|| Some(home()?.join(".cache")))?;
    let found = topology::read(Path::new("/")).ok()?;
    // Not its memory: a guest's grows and shrinks.
    let caches = [Some(found.l1d), Some(found.l2), found.llc];
    let computer = format!("{} {} {caches:?} {}", found.model, found.cpus, found.nodes.len());
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let mut hasher = DefaultHasher::new();
    (computer, kernel, huge, env!("CARGO_PKG_VERSION"), FORMAT).hash(&mut hasher);
    Some(folder.join("vellum").join(format!("host-{:016x}.toml", hasher.finish())))
}

/// Counts the changes of what a calibration measures or writes.
const FORMAT: u32 = 8;
