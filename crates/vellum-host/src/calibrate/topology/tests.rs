//! Made-up hosts, described by files in a directory as the kernel would.

use std::path::PathBuf;

use super::*;

/// A directory that goes away with the value.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, files: &[(&str, &str)]) -> Root {
        let root = std::env::temp_dir().join(format!("vellum-host-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        Root(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CPU: &str = "sys/devices/system/cpu";

fn caches() -> Vec<(String, &'static str)> {
    let cache = |n: u32, files: [(&'static str, &'static str); 5]| {
        files.map(|(file, text)| (format!("{CPU}/cpu0/cache/index{n}/{file}"), text)).to_vec()
    };
    [
        cache(
            0,
            [
                ("level", "1"),
                ("type", "Data"),
                ("size", "48K"),
                ("ways_of_associativity", "12"),
                ("shared_cpu_list", "0"),
            ],
        ),
        cache(
            1,
            [
                ("level", "1"),
                ("type", "Instruction"),
                ("size", "32K"),
                ("ways_of_associativity", "8"),
                ("shared_cpu_list", "0"),
            ],
        ),
        cache(
            2,
            [
                ("level", "2"),
                ("type", "Unified"),
                ("size", "1024K"),
                ("ways_of_associativity", "0"),
                ("shared_cpu_list", "0"),
            ],
        ),
        cache(
            3,
            [
                ("level", "3"),
                ("type", "Unified"),
                ("size", "32M"),
                ("ways_of_associativity", "16"),
                ("shared_cpu_list", "0,2"),
            ],
        ),
    ]
    .concat()
}

fn host(name: &str, extra: &[(&str, &str)]) -> Root {
    let caches = caches();
    let mut files: Vec<(&str, &str)> =
        caches.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    files.extend([
        ("sys/devices/system/cpu/online", "0,2-4\n"),
        ("proc/meminfo", "MemTotal:  8388608 kB\n"),
    ]);
    files.extend(extra);
    Root::new(name, &files)
}

#[test]
fn caches_and_cpus_are_read_and_cpus_renumbered_without_holes() {
    let root = host("plain", &[("proc/cpuinfo", "model name\t: Toy \"9000\"\n")]);
    let t = read(&root.0).expect("read");
    assert_eq!((t.cpus, t.cpus_per_llc), (4, 2));
    assert_eq!(t.l1d, CacheShape { size: 48 << 10, ways: 12, ways_known: true });
    assert_eq!(
        t.l2,
        CacheShape { size: 1 << 20, ways: 8, ways_known: false },
        "0 ways are not believed"
    );
    assert_eq!(t.llc.map(|c| c.size), Some(32 << 20));
    assert_eq!(t.model, "Toy 9000");
    assert_eq!(
        t.nodes,
        [NodeShape { memory: 8 << 30, cpus: vec![0, 1, 2, 3], distance: vec![10] }]
    );
}

#[test]
fn nodes_without_memory_give_their_cpus_away_and_nodes_without_cpus_stay() {
    let node = "sys/devices/system/node";
    let files: Vec<(String, &str)> = vec![
        (format!("{node}/online"), "0-2"),
        (format!("{node}/node0/meminfo"), "Node 0 MemTotal:  2097152 kB"),
        (format!("{node}/node0/cpulist"), "0,2"),
        (format!("{node}/node0/distance"), "10 21 30"),
        (format!("{node}/node1/meminfo"), "Node 1 MemTotal:  0 kB"),
        (format!("{node}/node1/cpulist"), "3-4"),
        (format!("{node}/node1/distance"), "21 10 12"),
        (format!("{node}/node2/meminfo"), "Node 2 MemTotal:  4194304 kB"),
        (format!("{node}/node2/cpulist"), ""),
        (format!("{node}/node2/distance"), "30 12 10"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
    let t = read(&host("nodes", &files).0).expect("read");
    assert_eq!(t.nodes.len(), 2);
    assert_eq!((t.nodes[0].memory, &t.nodes[0].cpus[..]), (2 << 30, &[0, 1][..]));
    assert_eq!(
        (t.nodes[1].memory, &t.nodes[1].cpus[..]),
        (4 << 30, &[2, 3][..]),
        "CPUs 3 and 4 are nearest to it"
    );
    assert_eq!(
        (&t.nodes[0].distance[..], &t.nodes[1].distance[..]),
        (&[10, 30][..], &[30, 10][..])
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    let nothing = Root::new("nothing", &[("proc/meminfo", "")]);
    assert!(
        read(&nothing.0)
            .expect_err("refused")
            .contains("/sys/devices/system/cpu/online cannot be read")
    );
    let bad = host("bad", &[("sys/devices/system/cpu/online", "many")]);
    assert!(read(&bad.0).expect_err("refused").contains("says 'many', which is no list of CPUs"));
    let line =
        host("line", &[("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size", "128")]);
    assert!(
        read(&line.0).expect_err("refused").contains("cache lines of 128 bytes are not modelled")
    );
    let size = host("size", &[("sys/devices/system/cpu/cpu0/cache/index2/size", "big")]);
    assert!(read(&size.0).expect_err("refused").contains("says 'big', which is no size"));
    let memory = host("memory", &[("proc/meminfo", "")]);
    assert!(read(&memory.0).expect_err("refused").contains("/proc/meminfo does not say MemTotal"));
    let cpu0 = [("sys/devices/system/cpu/online", "0"), ("proc/meminfo", "MemTotal: 4096 kB")];
    let caches = Root::new("caches", &cpu0);
    assert!(read(&caches.0).expect_err("refused").contains("no level 1 cache is described"));
}
