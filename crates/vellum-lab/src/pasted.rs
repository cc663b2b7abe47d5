//! Commands that run as they are pasted, from where the person stands.
//!
//! `./run` says in `VELLUM_COMMAND` how it was called; without it the command is what the shell was
//! given. Paths below the working directory are said from there.

use std::path::Path;

/// How this command was called.
pub fn command() -> String {
    let called = std::env::var("VELLUM_COMMAND").ok().or_else(|| std::env::args().next());
    quoted(&called.unwrap_or_else(|| "vellum".to_owned()))
}

/// A path as a word of a command.
pub fn path(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let short = path.strip_prefix(&here).ok().filter(|rest| !rest.as_os_str().is_empty());
    quoted(&short.unwrap_or(path).to_string_lossy())
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        assert_eq!(quoted("./run"), "./run");
        assert_eq!(quoted("my trace.vt"), "'my trace.vt'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        let here = std::env::current_dir().expect("a working directory");
        assert_eq!(path(&here.join("traces/a.vt")), "traces/a.vt");
        assert_eq!(path(Path::new("/no/such/a.vt")), "/no/such/a.vt");
    }
}
