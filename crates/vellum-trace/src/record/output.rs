//! The files of a recording: the trace, and what is beside it until it is complete.
use super::error::{RecordError, io_error};
use std::path::{Path, PathBuf};

/// What the names of the files beside a trace end in, until it is complete.
pub(super) const PARTIAL: &str = ".partial";
/// See [`PARTIAL`].
pub(super) const META: &str = ".meta";

/// Removes a file when the recording is over, however it ended.
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    /// Leaves the file where it is.
    pub(super) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may have been renamed away, or kept; then there is nothing to do.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn beside(out: &Path, ending: &str) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Whether a trace can get that name in the end. Asked before the program runs; a device or a
/// directory is never replaced.
pub(super) fn check_output(out: &Path) -> Result<(), RecordError> {
    let refuse = |why| Err(RecordError::Output { out: out.to_owned(), why });
    match std::fs::symlink_metadata(out) {
        Ok(m) if !m.is_file() => {
            return refuse(
                "there is something that is no regular file; give -o a name to write to",
            );
        }
        _ => {}
    }
    let dir = out.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if out.file_name().is_none() || !dir.is_dir() {
        return refuse("its directory does not exist; make it first, or give -o another name");
    }
    if out.to_str().is_none() {
        return refuse("the recorder takes names in UTF-8 alone; give -o another name");
    }
    if [PARTIAL, META].iter().any(|ending| beside(out, ending).exists()) {
        return refuse(
            "a file of that name and .partial or .meta is there, of an earlier recording perhaps; \
             remove it, or give -o another name",
        );
    }
    // The system alone knows whether it lets a file be made there.
    let probe = beside(out, META);
    std::fs::File::create_new(&probe)
        .map_err(|source| RecordError::Unwritable { out: out.to_owned(), source })?;
    drop(Temporary(probe));
    Ok(())
}

/// The same for several traces, of which nobody knows yet how many there will be: nothing that is
/// there already is in the way.
pub(super) fn check_numbered(out: &Path) -> Result<(), RecordError> {
    check_output(out)?;
    let dir = out.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(dir).map_err(io_error("looking at the traces' directory"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| number_in(out, &name)).try_for_each(|n| check_output(&numbered(out, n)))
}

/// Removes what an unfinished recording has beside its traces. Nothing of that name was there when
/// it began.
pub(super) fn remove_unfinished(out: &Path, several: bool) {
    let dir = out.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers = names.filter_map(|name| number_in(out, &name)).filter(|_| several);
    for trace in numbers.map(|n| numbered(out, n)).chain([out.to_owned()]) {
        for ending in [PARTIAL, META] {
            // Most are not there.
            let _ = std::fs::remove_file(beside(&trace, ending));
        }
    }
}

/// The number of a trace of several in the name of a file that belongs to it.
fn number_in(out: &Path, name: &str) -> Option<usize> {
    let name = [PARTIAL, META].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let rest = name.strip_prefix(out.file_stem()?.to_str()?)?.strip_prefix('-')?;
    let digits = rest.split('.').next()?;
    let number = digits.parse().ok()?;
    (numbered(out, number).file_name()?.to_str()? == name).then_some(number)
}

/// The name of one trace of several: `out.vt` becomes `out-3.vt`.
pub(super) fn numbered(out: &Path, number: usize) -> PathBuf {
    let mut name = out.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(ending) = out.extension() {
        name.push(".");
        name.push(ending);
    }
    out.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_trace_of_several_has_its_number_before_the_ending() {
        assert_eq!(numbered(Path::new("/a/out.vt"), 3), Path::new("/a/out-3.vt"));
        assert_eq!(numbered(Path::new("out"), 12), Path::new("out-12"));
    }

    #[test]
    fn what_is_in_the_way_of_one_trace_of_several_is_found_before() {
        let dir = std::env::temp_dir().join(format!("vellum-numbered-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let out = dir.join("all.vt");
        for harmless in ["all-1.vt", "all-x.vt.partial", "all-2.txt.partial", "all-02.vt.meta"] {
            std::fs::write(dir.join(harmless), "").expect("a file");
        }
        assert!(check_numbered(&out).is_ok());
        for (there, named) in [("all-7.vt.partial", "all-7.vt: "), ("all-12.vt.meta", "all-12.vt")]
        {
            std::fs::write(dir.join(there), "").expect("a file");
            let said = check_numbered(&out).expect_err("in the way").to_string();
            assert!(said.contains(named), "{said}");
            std::fs::remove_file(dir.join(there)).expect("removed");
        }
        for there in ["all-1.vt.partial", "all-1.vt.meta", "all.vt.meta", "all2-1.vt.meta"] {
            std::fs::write(dir.join(there), "").expect("a file");
        }
        remove_unfinished(&out, true);
        let left = ["all-1.vt", "all-x.vt.partial", "all-2.txt.partial", "all2-1.vt.meta"];
        assert!(left.iter().all(|name| dir.join(name).exists()));
        let gone = ["all-1.vt.partial", "all-1.vt.meta", "all.vt.meta"];
        assert!(gone.iter().all(|name| !dir.join(name).exists()));
        std::fs::create_dir(dir.join("all-3.vt")).expect("a directory");
        assert!(check_numbered(&out).is_err());
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn devices_directories_and_places_that_are_not_there_are_refused() {
        for out in ["/dev/null", "/tmp", "/no/such/directory/x.vt", ".."] {
            let refused = check_output(Path::new(out));
            assert!(matches!(refused, Err(RecordError::Output { .. })), "{out}");
        }
        assert!(!Path::new("/dev/null").is_file());
    }
}
