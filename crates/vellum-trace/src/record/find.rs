//! Finding the program, its interpreter, QEMU and the plugin.
use super::error::RecordError;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PLUGIN: &str = "libvellum_record.so";
/// Linux gives up on scripts of scripts after a few levels too.
const MAX_SCRIPTS: usize = 4;

fn executable(p: &Path) -> bool {
    std::fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// A program on the search path.
pub(super) fn in_path(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name.as_ref())).find(|p| executable(p))
}

/// The file that a command's first word names.
pub(super) fn resolve(name: &OsStr) -> Result<PathBuf, RecordError> {
    if !name.as_bytes().contains(&b'/') {
        return in_path(name).ok_or_else(|| RecordError::NoProgram(name.into()));
    }
    let path = PathBuf::from(name);
    match (executable(&path), path.exists()) {
        (true, _) => Ok(path),
        (false, true) => Err(RecordError::NotExecutable(path)),
        (false, false) => Err(RecordError::NoProgram(path)),
    }
}

/// The command as an ELF executable and its arguments: user-mode QEMU loads no scripts, so `#!`
/// lines are followed here.
pub(super) fn command(command: &[OsString]) -> Result<Vec<OsString>, RecordError> {
    let (name, args) = command.split_first().ok_or(RecordError::NoCommand)?;
    let mut program = resolve(name)?;
    let mut rest: Vec<OsString> = args.to_vec();
    for _ in 0..MAX_SCRIPTS {
        let head = head_of(&program)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
            let text = without_blanks(line);
            let cut = text.iter().position(is_blank);
            let (interpreter, arg) = text.split_at(cut.unwrap_or(text.len()));
            let arg = without_blanks(arg);
            let interpreter = loader(&program, interpreter)?;
            rest.insert(0, program.into_os_string());
            if !arg.is_empty() {
                rest.insert(0, OsString::from_vec(arg.to_vec()));
            }
            program = interpreter;
            continue;
        }
        if !is_x86_64(&head) {
            return Err(RecordError::WrongProgram(program));
        }
        if let Some(name) = elf_loader(&program) {
            loader(&program, &name)?;
        }
        rest.insert(0, program.into_os_string());
        return Ok(rest);
    }
    Err(RecordError::WrongProgram(program))
}

/// What Linux takes for blanks in the first line of a script: a carriage return is not one.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn without_blanks(text: &[u8]) -> &[u8] {
    let begin = text.iter().position(|b| !is_blank(b)).unwrap_or(text.len());
    let end = text.iter().rposition(|b| !is_blank(b)).map_or(begin, |last| last + 1);
    &text[begin..end]
}

/// What a program names to load or interpret it, if that can be run.
fn loader(program: &Path, name: &[u8]) -> Result<PathBuf, RecordError> {
    let loader = PathBuf::from(OsStr::from_bytes(name));
    if executable(&loader) {
        return Ok(loader);
    }
    Err(RecordError::NoLoader { program: program.into(), loader })
}

/// The loader that an x86_64 executable names; `None`: it is static.
fn elf_loader(p: &Path) -> Option<Vec<u8>> {
    let file = std::fs::File::open(p).ok()?;
    let read = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    // System V ABI: e_phoff, e_phentsize and e_phnum; of an entry p_type (3 is PT_INTERP), p_offset
    // and p_filesz.
    let head = read(0, 64)?;
    let (table, size) = (number(&head[32..40]), number(&head[54..56]));
    let mut entries =
        (0..number(&head[56..58])).map_while(|i| read(table.checked_add(i * size)?, 56));
    let entry = entries.find(|entry| number(&entry[..4]) == 3)?;
    let length = number(&entry[32..40]).min(4096) as usize;
    let name = read(number(&entry[8..16]), length)?;
    Some(name.split(|b| *b == 0).next().unwrap_or_default().to_vec())
}

/// ELF, 64 bits, little endian, machine 62 (EM_X86_64): System V ABI, AMD64 supplement.
fn is_x86_64(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&[62, 0])
}

/// Can QEMU run that executable?
pub(super) fn is_recordable(p: &Path) -> bool {
    head_of(p).is_ok_and(|head| is_x86_64(&head))
}

/// Would the system give that executable other rights than ours? Not while it is traced.
pub(super) fn is_privileged(p: &Path) -> bool {
    // SAFETY: geteuid and getegid have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    std::fs::metadata(p).is_ok_and(|m| {
        let set = |bit, other| m.permissions().mode() & bit != 0 && other;
        set(libc::S_ISUID, m.uid() != user) || set(libc::S_ISGID, m.gid() != group)
    })
}

fn head_of(p: &Path) -> Result<Vec<u8>, RecordError> {
    let file = std::fs::File::open(p).map_err(|_| RecordError::NoProgram(p.into()))?;
    let mut head = Vec::new();
    file.take(256).read_to_end(&mut head).map_err(|_| RecordError::NoProgram(p.into()))?;
    Ok(head)
}

/// The plugin.
pub(super) fn plugin(given: Option<&Path>) -> Option<PathBuf> {
    let named = given.map(Path::to_owned);
    let named = named.or_else(|| std::env::var_os("VELLUM_RECORDER").map(PathBuf::from));
    if let Some(p) = named {
        // The program recorded may be in another directory.
        return std::path::absolute(p).ok().filter(|p| p.is_file());
    }
    let exe = std::env::current_exe().ok()?;
    // Test binaries live one directory below the libraries.
    exe.ancestors().skip(1).take(2).map(|dir| dir.join(PLUGIN)).find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_becomes_its_interpreter_with_the_script_as_argument() {
        let dir = std::env::temp_dir().join(format!("vellum-find-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let script = dir.join("s");
        std::fs::write(&script, "#!/bin/sh -e\ntrue\n").expect("a file");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("mode");
        let found = command(&[script.clone().into(), "x".into()]).expect("a shell");
        assert_eq!(found[1..], ["-e".into(), script.clone().into_os_string(), "x".into()]);
        assert!(found[0].to_string_lossy().contains("sh"));
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_program_whose_loader_is_missing_is_refused_with_the_name_of_both() {
        let dir = std::env::temp_dir().join(format!("vellum-loader-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::write(&path, bytes).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
            path
        };
        let of = |path: &Path| command(&[path.into()]).map_err(|e| e.to_string());
        let mut program = std::fs::read("/bin/sh").expect("a shell");
        let at = program.windows(12).position(|w| w == b"ld-linux-x86").expect("a loader");
        let whole = write("whole", &program);
        assert_eq!(of(&whole), Ok(vec![whole.into()]));
        program[at] = b'L';
        let broken = write("broken", &program);
        let said = of(&broken).expect_err("no loader");
        assert!(
            said.contains("broken: it is run by /") && said.contains("/Ld-linux-x86"),
            "{said}"
        );
        let script = write("script", b"#!/no/such/python3 -u\nprint(1)\n");
        let said = of(&script).expect_err("no interpreter");
        assert!(said.contains("script: it is run by /no/such/python3, which is"), "{said}");
        let said = of(&write("dos", b"#!/bin/sh\r\ntrue\r\n")).expect_err("a carriage return");
        assert!(said.contains("/bin/sh\r, which is"), "{said}");
        assert!(of(&write("blank", b"#! /bin/sh \ntrue\n")).is_ok());
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_program_has_special_rights_if_they_are_another_s() {
        let file = std::env::temp_dir().join(format!("vellum-rights-{}", std::process::id()));
        std::fs::write(&file, "").expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4755)).expect("mode");
        assert!(!is_privileged(&file), "our own");
        // Only the superuser can give files away.
        if std::os::unix::fs::chown(&file, Some(1), None).is_ok() {
            assert!(!is_privileged(&file), "giving away takes the bit");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4755)).expect("mode");
            assert!(is_privileged(&file));
        }
        std::fs::remove_file(&file).expect("removed");
    }

    #[test]
    fn missing_programs_and_text_files_are_refused() {
        assert!(matches!(command(&[]), Err(RecordError::NoCommand)));
        let missing = command(&["no-such-program-anywhere".into()]);
        assert!(matches!(missing, Err(RecordError::NoProgram(_))));
        for there in ["/etc/passwd", "/tmp"] {
            assert!(
                matches!(command(&[there.into()]), Err(RecordError::NotExecutable(_))),
                "{there}"
            );
        }
    }
}
