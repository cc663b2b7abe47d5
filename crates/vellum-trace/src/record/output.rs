//! The files of a recording: the trace, and what is beside it until it is complete.
use super::error::RecordError;
use std::path::{Path, PathBuf};

/// What the names of the files beside a trace end in, until it is complete.
pub(super) const PARTIAL: &str = ".partial";
/// See [`PARTIAL`].
pub(super) const META: &str = ".meta";

/// Removes a file when the recording is over, however it ended.
pub(super) struct Temporary(pub(super) PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may have been renamed away; then there is nothing to do.
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
    Ok(())
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
    fn devices_directories_and_places_that_are_not_there_are_refused() {
        for out in ["/dev/null", "/tmp", "/no/such/directory/x.vt", ".."] {
            let refused = check_output(Path::new(out));
            assert!(matches!(refused, Err(RecordError::Output { .. })), "{out}");
        }
        assert!(!Path::new("/dev/null").is_file());
    }
}
