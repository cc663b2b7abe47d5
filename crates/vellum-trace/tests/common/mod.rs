//! Traces made from lists of small random numbers: whatever the numbers, the events are legal.
// Each test file uses some of this.
#![allow(dead_code)]

use vellum_trace::event::Change;
use vellum_trace::{
    Advice, Call, Event, Flags, Header, Map, MapKind, Prot, Recorder, TraceReader, TraceWriter,
};

/// What has been made so far, so that what comes next is legal.
#[derive(Default)]
struct World {
    lens: Vec<u64>,
    alive: Vec<u32>,
    current: u32,
    threads: u32,
    calls: u64,
    last: (usize, u64),
    files: u32,
    children: (u32, Vec<u32>),
}

/// A part of a mapping.
struct Part {
    mapping: u32,
    offset: u64,
    len: u64,
}

impl World {
    fn call(&mut self, change: Change) -> Event {
        let order = self.calls;
        self.calls += 1;
        Event::Call(Box::new(Call { order, change }))
    }

    fn map(&mut self, x: u64) -> Event {
        let len = (x % 7 + 1) * 0x10000;
        let mapping = self.lens.len() as u32;
        let inside = if x & 64 != 0 {
            let of = self.lens.iter().rposition(|l| *l >= len);
            of.map(|i| (i as u32, (self.lens[i] - len) / 4096 * 4096))
        } else {
            None
        };
        self.lens.push(len);
        let kind = MapKind::ALL[(x >> 16) as usize % MapKind::ALL.len()];
        let file = (kind.is_file() && x & 128 != 0).then_some((x >> 24) as u32);
        self.call(Change::Map(Map {
            mapping,
            len,
            prot: Prot((x >> 8) as u8),
            kind,
            base: (x >> 3) % (1 << 40) * 4096,
            inside,
            file_offset: x % 5 * 4096,
            file: file.and_then(|x| x.checked_rem(self.files)),
            synthetic: x & 1 != 0,
            moved: x & 2 != 0,
            populate: x & 4 != 0,
        }))
    }

    fn part(&self, x: u64) -> Part {
        let i = x as usize % self.lens.len();
        let offset = (x >> 8) % (self.lens[i] / 4096) * 4096;
        Part { mapping: i as u32, offset, len: (self.lens[i] - offset).min(4096 * (x % 5)) }
    }

    fn change(&mut self, x: u64) -> Event {
        let Part { mapping, offset, len } = self.part(x);
        let change = match (x >> 20) % 9 {
            7 | 8 => return self.file(x >> 24),
            0 => Change::Unmap { mapping, offset, len },
            1 => Change::Protect { mapping, offset, len, prot: Prot(x as u8) },
            2 => Change::Advise { mapping, offset, len, advice: Advice::from_raw(x as u32 % 30) },
            3 => Change::Remap { old: mapping, offset, len: len.min(0x10000), new: 0 },
            4 if x & 7 == 0 => Change::Fork { child: None },
            4 if x & 7 < 3 => {
                let (next, alive) = &mut self.children;
                alive.push(*next);
                *next += 1;
                Change::Fork { child: alive.last().copied() }
            }
            4 if x & 7 < 5 && !self.children.1.is_empty() => {
                let alive = &mut self.children.1;
                Change::ChildEnd { child: alive.swap_remove((x >> 8) as usize % alive.len()) }
            }
            4 => Change::Vfork,
            5 => Change::Exit { code: x as i32 },
            _ => {
                self.lens[mapping as usize] = self.lens[mapping as usize].max(len + 0x10000);
                Change::Brk { mapping, len: self.lens[mapping as usize] }
            }
        };
        self.call(change)
    }

    fn file(&mut self, x: u64) -> Event {
        let (offset, bytes) = (x >> (x % 41), (x % (1 << 40)) >> (x % 37));
        let whole = if x & 8 != 0 { u64::MAX } else { bytes };
        let change = match (x % 7, (x >> 3) as u32 % self.files.max(1)) {
            (n, _) if n < 2 || self.files == 0 => {
                let file = self.files;
                self.files += 1;
                let name = (x & 32 != 0).then(|| "a name.db-wal"[..1 + x as usize % 13].to_owned());
                Change::File { file, bytes, name }
            }
            (2, file) => Change::FileRead { file, offset, bytes },
            (3, file) => Change::FileWrite { file, offset, bytes },
            (4, file) => Change::FileResize { file, bytes },
            (5, file) => Change::FileSync { file, offset, bytes: whole },
            (_, file) => Change::FileAdvise { file, offset, bytes: whole, advice: x as u32 % 6 },
        };
        self.call(change)
    }

    fn event(&mut self, x: u64) -> Option<Event> {
        Some(match x % 32 {
            0 => self.map(x >> 5),
            1 => self.change(x >> 5),
            2 => {
                let thread = self.threads;
                self.threads += 1;
                self.alive.push(thread);
                Event::ThreadStart { thread }
            }
            3 if self.alive.len() > 1 => {
                let at = self.alive.iter().position(|t| *t != self.current)?;
                let thread = self.alive.remove(at);
                Event::ThreadEnd { thread }
            }
            4 | 5 => {
                self.current = self.alive[(x >> 5) as usize % self.alive.len()];
                Event::Switch { thread: self.current }
            }
            6 => Event::Skip { accesses: (x >> 5) as u32, instructions: x >> 30 },
            7..=12 => {
                let mapping = (x >> 5) as usize % self.lens.len();
                let lines = self.lens[mapping] / 64;
                Event::Fetch {
                    mapping: mapping as u32,
                    insns: (x >> 40) as u8 % 65,
                    offset: (x >> 11) % lines * 64,
                }
            }
            _ => {
                let size = (x >> 5) as u8 % 64 + 1;
                let (mapping, offset) = if x & (1 << 20) != 0 {
                    (self.last.0, self.last.1 + 8)
                } else {
                    let m = (x >> 11) as usize % self.lens.len();
                    (m, (x >> 21) % self.lens[m])
                };
                let offset = offset.min(self.lens[mapping] - u64::from(size));
                self.last = (mapping, offset);
                let flags = Flags::from_bits((x >> 8) as u8 % 16)?;
                Event::Access { mapping: mapping as u32, size, flags, offset }
            }
        })
    }
}

/// A legal list of events from any numbers.
pub fn events(numbers: &[u64]) -> Vec<Event> {
    let mut w = World { alive: vec![0], threads: 1, ..World::default() };
    let mut out = vec![Event::ThreadStart { thread: 0 }, Event::Switch { thread: 0 }];
    out.push(w.map(6));
    out.extend(numbers.iter().filter_map(|x| w.event(*x)));
    out
}

/// The events as a file.
pub fn write(events: &[Event]) -> Vec<u8> {
    let header =
        Header { command: vec!["made".into()], recorder: Recorder::Made, ..Header::default() };
    let mut w = TraceWriter::new(Vec::new(), &header, 1).expect("memory takes everything");
    for e in events {
        w.push(e).expect("a legal event");
    }
    w.finish().expect("memory takes everything").1
}

/// A file's events.
pub fn read(bytes: &[u8]) -> Result<Vec<Event>, vellum_trace::TraceError> {
    let mut r = TraceReader::new(bytes)?;
    let (mut all, mut block) = (Vec::new(), Vec::new());
    while r.next_block(&mut block)? {
        all.append(&mut block);
    }
    Ok(all)
}

/// Where the first block of a file begins.
pub fn block_at(trace: &[u8]) -> usize {
    let body = u32::from_le_bytes([trace[12], trace[13], trace[14], trace[15]]) as usize;
    8 + 4 + 4 + body + 4
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(bytes);
    sum.finalize().to_le_bytes()
}

/// A file around any raw block, with right checksums: what only a hostile writer makes.
pub fn forged(raw: &[u8], announced: u32) -> Vec<u8> {
    let good = write(&events(&[]));
    let mut out = good[..block_at(&good)].to_vec();
    let packed = zstd::bulk::compress(raw, 1).expect("compressible");
    let mut block = vec![b'B'];
    for n in [raw.len() as u32, packed.len() as u32, announced] {
        block.extend_from_slice(&n.to_le_bytes());
    }
    block.extend(packed);
    out.extend(&block);
    out.extend(crc(&block));
    out
}

/// The same file, said to be of format 1.
pub fn version_1(mut trace: Vec<u8>) -> Vec<u8> {
    trace[8] = 1;
    let end = block_at(&trace);
    let sum = crc(&trace[..end - 4]);
    trace[end - 4..end].copy_from_slice(&sum);
    trace
}
