//! CPUs, caches and memory nodes, as the Linux kernel describes them under `/sys` and `/proc`.
//!
//! Online CPUs are renumbered from 0, since a machine's CPUs have no holes. Nodes with neither
//! memory nor CPUs are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheShape {
    /// Bytes.
    pub size: u64,
    /// Ways of a set.
    pub ways: u32,
    /// Whether the kernel said how many ways; if not, 8 are assumed.
    pub ways_known: bool,
}

/// A memory node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeShape {
    /// Bytes.
    pub memory: u64,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// Distances to the nodes, 10 being local.
    pub distance: Vec<u64>,
}

/// What the kernel tells of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// CPUs online.
    pub cpus: u32,
    /// CPUs that share a last level.
    pub cpus_per_llc: u32,
    /// First level, instructions.
    pub l1i: CacheShape,
    /// First level, data.
    pub l1d: CacheShape,
    /// Second level.
    pub l2: CacheShape,
    /// None where there is no third level.
    pub llc: Option<CacheShape>,
    /// Memory nodes.
    pub nodes: Vec<NodeShape>,
    /// The processor's name.
    pub model: String,
}

/// Largest machine, as in `check.rs`.
const MAX_CPUS: usize = 256;

/// Reads below `root`, which is `/` but in tests. The error says what could not be read.
pub fn read(root: &Path) -> Result<Topology, String> {
    let text = |path: &str| {
        let text = fs::read_to_string(root.join(path))
            .map_err(|e| format!("/{path} cannot be read ({e})"))?;
        Ok::<String, String>(text.trim().to_string())
    };
    let list = |path: &str| {
        let text = text(path)?;
        cpu_list(&text).ok_or_else(|| format!("/{path} says '{text}', which is no list of CPUs"))
    };
    let mut online = list("sys/devices/system/cpu/online")?;
    online.truncate(MAX_CPUS);
    let Some(&first) = online.first() else {
        return Err("/sys/devices/system/cpu/online is empty".into());
    };
    let number: BTreeMap<u32, u32> = online.iter().zip(0..).map(|(&cpu, n)| (cpu, n)).collect();
    let renumber =
        |cpus: Vec<u32>| cpus.iter().filter_map(|c| number.get(c).copied()).collect::<Vec<_>>();

    let mut caches = BTreeMap::new();
    let mut cpus_per_llc = online.len() as u32;
    for index in 0..8 {
        let dir = format!("sys/devices/system/cpu/cpu{first}/cache/index{index}");
        if !root.join(&dir).exists() {
            break;
        }
        let (level, kind) = (text(&format!("{dir}/level"))?, text(&format!("{dir}/type"))?);
        let size = text(&format!("{dir}/size"))?;
        let bytes = kibibytes(&size)
            .ok_or_else(|| format!("/{dir}/size says '{size}', which is no size"))?;
        let line = text(&format!("{dir}/coherency_line_size")).unwrap_or_else(|_| "64".into());
        if line != "64" {
            return Err(format!(
                "cache lines of {line} bytes are not modelled (/{dir}/coherency_line_size)"
            ));
        }
        let ways = text(&format!("{dir}/ways_of_associativity")).ok().and_then(|w| w.parse().ok());
        caches.insert((level.clone(), kind == "Instruction"), shape(bytes, ways));
        if level == "3" {
            cpus_per_llc = (renumber(list(&format!("{dir}/shared_cpu_list"))?).len() as u32).max(1);
        }
    }
    let cache = |level: &str, instruction| {
        let found = caches.get(&(level.to_string(), instruction)).copied();
        found.ok_or_else(|| {
            format!(
                "no level {level} cache is described under /sys/devices/system/cpu/cpu{first}/cache"
            )
        })
    };
    let l1d = cache("1", false)?;
    let info = text("proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(':'));
    Ok(Topology {
        cpus: online.len() as u32,
        cpus_per_llc,
        l1i: cache("1", true).unwrap_or(l1d),
        l1d,
        l2: cache("2", false)?,
        llc: cache("3", false).ok(),
        nodes: nodes(root, online.len() as u32, &text, &list, &renumber)?,
        model: model
            .map_or("a CPU of unknown model".into(), |(_, m)| m.trim().replace(['"', '\\'], "")),
    })
}

/// `0-3,8` as numbers.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// A cache of the size told; ways that do not divide it are not believed.
fn shape(size: u64, ways: Option<u32>) -> CacheShape {
    let believable = |&w: &u32| (1..=64).contains(&w) && size.is_multiple_of(u64::from(w) * 64);
    match ways.filter(believable) {
        Some(ways) => CacheShape { size, ways, ways_known: true },
        None => {
            CacheShape { size: size.max(512).next_multiple_of(512), ways: 8, ways_known: false }
        }
    }
}

fn kibibytes(text: &str) -> Option<u64> {
    let (digits, scale) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(scale).filter(|&bytes| bytes > 0)
}

/// `MemTotal: 123 kB` of a meminfo, rounded down to 2 MiB.
fn memory(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.contains("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    Some(kib >> 11 << 21)
}

fn nodes(
    root: &Path,
    cpus: u32,
    text: &impl Fn(&str) -> Result<String, String>,
    list: &impl Fn(&str) -> Result<Vec<u32>, String>,
    renumber: &impl Fn(Vec<u32>) -> Vec<u32>,
) -> Result<Vec<NodeShape>, String> {
    let dir = "sys/devices/system/node";
    let mut nodes = Vec::new();
    let numbers = list(&format!("{dir}/online")).unwrap_or_default();
    for (column, n) in numbers.iter().enumerate() {
        if !root.join(format!("{dir}/node{n}")).exists() {
            continue;
        }
        let memory = memory(&text(&format!("{dir}/node{n}/meminfo"))?).unwrap_or(0);
        let distance = text(&format!("{dir}/node{n}/distance"))?;
        let distance = distance.split_whitespace().map(|d| d.parse().unwrap_or(10)).collect();
        nodes.push((
            column,
            NodeShape {
                memory,
                cpus: renumber(list(&format!("{dir}/node{n}/cpulist"))?),
                distance,
            },
        ));
    }
    // A node with CPUs and no memory gives its CPUs to its nearest node with some: a machine's
    // nodes all have memory.
    let (kept, bare): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|(_, n)| n.memory > 0);
    let columns: Vec<usize> = kept.iter().map(|(column, _)| *column).collect();
    let mut kept: Vec<NodeShape> = kept.into_iter().map(|(_, n)| n).collect();
    for node in &mut kept {
        node.distance =
            columns.iter().map(|&c| node.distance.get(c).copied().unwrap_or(10).max(10)).collect();
    }
    for (_, node) in bare {
        let far = |i: &usize| node.distance.get(columns[*i]).copied().unwrap_or(u64::MAX);
        if let Some(nearest) = (0..kept.len()).min_by_key(far) {
            kept[nearest].cpus.extend(node.cpus);
        }
    }
    if kept.is_empty() || kept.iter().map(|n| n.cpus.len()).sum::<usize>() != cpus as usize {
        let whole = memory(&text("proc/meminfo")?).filter(|&m| m > 0);
        let memory = whole.ok_or("/proc/meminfo does not say MemTotal")?;
        return Ok(vec![NodeShape { memory, cpus: (0..cpus).collect(), distance: vec![10] }]);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
