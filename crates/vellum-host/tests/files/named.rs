//! Names of the system's errors, and what cannot be opened.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use vellum::X86_64;
use vellum_host::files::{FileError, FileErrorKind, FileOp, OpenMode};
use vellum_host::host_vm::HostVm;
use vellum_host::machine::Plan;

use super::backings::Faulty;
use super::common::*;

#[test]
fn what_is_no_file_is_refused_by_name() {
    let (dir, host) = (TempDir::new(), host(1));
    let _cpu = host.vm().machine().bind(0);
    let refused = |path: &Path, mode| -> FileError {
        let error = host.open(path, mode).map(|_| ()).expect_err("no such file");
        assert_eq!((error.op, error.offset), (FileOp::Open, 0));
        assert!(!error.to_string().is_empty());
        error
    };
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let missing = refused(&dir.path("missing"), mode);
        assert_eq!((missing.kind, missing.errno), (FileErrorKind::Gone, Some(libc::ENOENT)));
        let directory = refused(&dir.path(""), mode);
        let found = (directory.kind, directory.errno);
        assert_eq!(found, (FileErrorKind::Directory, Some(libc::EISDIR)));
        assert_eq!(refused(Path::new("/dev/null"), mode).kind, FileErrorKind::NotAFile);
    }
}

#[test]
fn the_system_s_numbers_have_names() {
    let (dir, host) = (TempDir::new(), host(1));
    let (path, cpu) = (dir.file("a", 4), host.vm().machine().bind(0));
    let disk = Faulty::new(&path);
    let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
    let space = space(&host, file.object(), 4);
    let named = [
        (libc::ENOSPC, FileErrorKind::Full),
        (libc::EDQUOT, FileErrorKind::Full),
        (libc::EFBIG, FileErrorKind::Full),
        (libc::ESTALE, FileErrorKind::Gone),
        (libc::EACCES, FileErrorKind::Denied),
        (libc::EROFS, FileErrorKind::Denied),
        (libc::EIO, FileErrorKind::Other),
    ];
    for (errno, kind) in named {
        store(&host, &cpu, &space, (0, errno as u64)).unwrap();
        disk.fail_writes(errno);
        let error = host.sync(&file).unwrap_err();
        assert_eq!((error.kind, error.errno), (kind, Some(errno)));
    }
    disk.fail_writes(0);
    assert_eq!(host.sync(&file), Ok(()));
    host.vm().exit(space);
    host.close(file);
}

#[test]
fn a_plan_without_cpus_makes_no_machine_with_files_either() {
    let plan = Plan::new(0, 16 << 20);
    let errors = [
        Host::new(plan, vellum::Config::default(), 1).err(),
        HostVm::<X86_64, true>::new(plan, vellum::Config::default()).err(),
    ];
    let [files, plain] = errors.map(|error| error.expect("no CPU").to_string());
    assert_eq!(files, plain);
    let too_many = Host::new(Plan::new(63, 16 << 20), vellum::Config::default(), 2);
    assert!(too_many.is_err());
}

#[test]
fn no_program_becomes_the_cpu_of_an_io_thread() {
    let host = Host::new(Plan::new(1, 16 << 20), vellum::Config::default(), 2).unwrap();
    for cpu in [1, 2] {
        let refused = catch_unwind(AssertUnwindSafe(|| host.vm().machine().bind(cpu).cpu()));
        let says = refused.expect_err("an I/O thread's").downcast::<String>().unwrap();
        assert!(says.contains("answers for a device"), "{says}");
    }
}
