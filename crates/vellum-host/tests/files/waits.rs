//! Who waits for a page sleeps, and answers come in any order.

use vellum_host::machine::Plan;

use super::backings::Faulty;
use super::common::*;

#[test]
fn threads_that_wait_for_one_page_sleep_until_its_answer() {
    let (dir, host) = (TempDir::new(), host(4));
    let path = dir.file("a", 4);
    let disk = Faulty::new(&path);
    let file = {
        let _cpu = host.vm().machine().bind(0);
        host.adopt_backing(Box::new(disk.clone())).unwrap()
    };
    disk.set_gate(false);
    std::thread::scope(|s| {
        for n in 0..4 {
            let (host, file) = (&host, &file);
            s.spawn(move || {
                let cpu = host.vm().machine().bind(n);
                let space = space(host, file.object(), 4);
                assert_eq!(load(host, &cpu, &space, 8 * n as u64), Ok(8 * n as u64));
                host.vm().deactivate();
                host.vm().exit(space);
            });
        }
        // All of them are asleep, and none of them has a core: a fifth CPU could run.
        while host.vm().machine().sleepers().slept() < 4 {
            std::thread::yield_now();
        }
        disk.set_gate(true);
    });
    assert_eq!(disk.calls(), 1, "one request for all");
    let _cpu = host.vm().machine().bind(0);
    host.close(file);
}

#[test]
fn a_later_request_is_answered_before_an_earlier_one() {
    let (dir, host) = (TempDir::new(), host(2));
    let disks = ["a", "b"].map(|name| Faulty::new(&dir.file(name, 4)));
    let files = {
        let _cpu = host.vm().machine().bind(0);
        [0, 1].map(|n: usize| host.adopt_backing(Box::new(disks[n].clone())).unwrap())
    };
    disks[0].set_gate(false);
    std::thread::scope(|s| {
        let (host, files) = (&host, &files);
        let first = s.spawn(move || {
            let cpu = host.vm().machine().bind(1);
            let space = space(host, files[0].object(), 4);
            assert_eq!(load(host, &cpu, &space, 8), Ok(8));
            host.vm().exit(space);
        });
        disks[0].wait_for_calls(1);
        let cpu = host.vm().machine().bind(0);
        let space = space(host, files[1].object(), 4);
        assert_eq!(load(host, &cpu, &space, 16), Ok(16));
        assert!(!first.is_finished(), "its gate is closed");
        disks[0].set_gate(true);
        host.vm().exit(space);
        drop(cpu);
        first.join().unwrap();
    });
    let _cpu = host.vm().machine().bind(0);
    files.into_iter().for_each(|file| host.close(file));
}

#[test]
fn one_core_is_enough_for_who_waits_and_who_answers() {
    let (dir, plan) = (TempDir::new(), Plan { running: Some(1), ..Plan::new(3, 64 << 20) });
    let host = Host::new(plan, vellum::Config::default(), 1).unwrap();
    let (path, pages) = (dir.file("a", 64), 64);
    let file = {
        let _cpu = host.vm().machine().bind(0);
        open(&host, &path)
    };
    std::thread::scope(|s| {
        for me in 0..3 {
            let (host, file) = (&host, &file);
            s.spawn(move || {
                let cpu = host.vm().machine().bind(me);
                let space = space(host, file.object(), pages);
                for n in 0..400 {
                    let at = (n * 7 + me as u64 * 11) % 32 * PAGE;
                    assert_eq!(load(host, &cpu, &space, at), Ok(at));
                    match (me, n % 8) {
                        (0, 0) => host.set_len(file, (32 + n % 32) * PAGE).unwrap(),
                        (1, 0) => host.set_len(file, (33 + n % 16) * PAGE).unwrap(),
                        (2, _) => drop(host.vm().objects().evict(file.object(), 0, u64::MAX)),
                        _ => {}
                    }
                }
                host.vm().exit(space);
            });
        }
    });
    let _cpu = host.vm().machine().bind(0);
    host.close(file);
}
