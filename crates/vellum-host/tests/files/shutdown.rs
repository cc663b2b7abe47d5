//! The end of a pager: what was asked for is answered, and nothing hangs.

use super::backings::Faulty;
use super::common::*;

/// A thread is killed while it waits for a page; the machine goes while the request is under way.
fn end_with_a_request_under_way(errno: i32) {
    let (dir, host) = (TempDir::new(), host(1));
    let path = dir.file("a", 8);
    let disk = Faulty::new(&path);
    disk.set_gate(false);
    disk.fail_reads(errno);
    let died = std::thread::scope(|s| {
        let (host, disk) = (&host, &disk);
        let waits = s.spawn(move || {
            let cpu = host.vm().machine().bind(0);
            let file = host.adopt_backing(Box::new(disk.clone())).unwrap();
            let space = space(host, file.object(), 8);
            let _ = load(host, &cpu, &space, 0);
        });
        disk.wait_for_calls(1);
        host.vm().machine().poison();
        waits.join()
    });
    assert!(died.is_err(), "the fault cannot have ended");
    // Before the end or beside it: both are to be had.
    let opens = std::thread::spawn(move || disk.set_gate(true));
    drop(host);
    opens.join().unwrap();
}

#[test]
fn a_pager_ends_with_a_request_under_way() {
    (0..10).for_each(|_| end_with_a_request_under_way(0));
}

#[test]
fn a_run_that_fails_while_the_pager_ends_is_not_asked_for_again_for_ever() {
    (0..10).for_each(|_| end_with_a_request_under_way(libc::EIO));
}

#[test]
fn a_pager_that_nobody_used_ends() {
    let dir = TempDir::new();
    drop(host(1));
    let host = host(2);
    let _file = {
        let _cpu = host.vm().machine().bind(0);
        open(&host, &dir.file("a", 1))
    };
    // The handle may outlive the machine; it is good for nothing then.
    drop(host);
}

#[test]
fn a_machine_of_too_many_cpus_is_refused_with_its_io_threads() {
    let plan = vellum_host::machine::Plan::new(64, 64 << 20);
    assert!(Host::new(plan, vellum::Config::default(), 1).is_err());
}
