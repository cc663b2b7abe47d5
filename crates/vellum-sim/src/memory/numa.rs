//! NUMA nodes: the node of a frame, its distance, and the bandwidth of a node.
//!
//! Physical memory starts at frame 0, one node after the other. The latency of a read is its entry
//! in the latency matrix plus the time it queues for the node's bandwidth.
//!
//! Simulated CPUs do not advance in step: one may request a line at an earlier time than another's
//! last request. With a single "next free" time, it would queue behind requests of the future. So
//! each node has a ring of short windows of time with the transfers booked in each; a request takes
//! the first window from its own time on that has room. The result is exact to the length of a
//! window, 64 cycles.

use super::ticks::Ticks;

/// Bytes of a frame as a power of two.
const FRAME_SHIFT: u32 = 12;
/// Bytes of a line as a power of two.
const LINE_SHIFT: u32 = 6;
/// Length of a bandwidth window.
const WINDOW: Ticks = Ticks::from_cycles(64);
/// Windows kept: requests queue for at most this many.
const WINDOWS: u64 = 1024;

/// The frames of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRange {
    /// First 4 KiB frame.
    pub first_frame: u64,
    /// Number of frames.
    pub frames: u64,
}

/// What [`Memory`] is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numa {
    /// Frames of each node.
    pub frames: Vec<u64>,
    /// Time one line keeps a node busy: the inverse of its bandwidth.
    pub line_time: Vec<Ticks>,
    /// `latency[cpu_node][memory_node]` of an idle machine.
    pub latency: Vec<Vec<Ticks>>,
}

/// What a node has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Lines read from it.
    pub lines_read: u64,
    /// Those of them that CPUs of other nodes read.
    pub read_remotely: u64,
    /// Lines written to it.
    pub lines_written: u64,
    /// Time reads spent waiting for its bandwidth.
    pub queued: Ticks,
}

/// Lines that a run of stores moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Fetched into the caches.
    pub read: u64,
    /// Written back, or past the caches.
    pub written: u64,
}

#[derive(Clone, Debug)]
struct Node {
    range: NodeRange,
    line_time: Ticks,
    /// For each window of the ring: which window it is, and how much of it is booked.
    booked: Vec<(u64, Ticks)>,
    traffic: Traffic,
}

impl Node {
    /// Books one line from `now` on; returns how long it waits.
    #[inline]
    fn book(&mut self, now: Ticks) -> Ticks {
        let first = now.0 / WINDOW.0;
        for window in first..first + WINDOWS {
            let slot = &mut self.booked[(window % WINDOWS) as usize];
            if slot.0 < window {
                *slot = (window, Ticks::ZERO);
            }
            // A slot that another CPU has taken for a later lap has no room left for this one.
            if slot.0 == window && slot.1 < WINDOW {
                slot.1 += self.line_time;
                return Ticks(window * WINDOW.0).saturating_sub(now);
            }
        }
        WINDOW * WINDOWS
    }

    /// Books that many lines from `now` on, as as many calls of [`book`](Node::book) would; returns
    /// how long the last one waits. All begin to look at `now`, so none finds room before the
    /// window that the line before it filled.
    fn book_all(&mut self, now: Ticks, lines: u64) -> Ticks {
        let first = now.0 / WINDOW.0;
        let mut left = lines;
        for window in first..first + WINDOWS {
            if left == 0 {
                break;
            }
            let slot = &mut self.booked[(window % WINDOWS) as usize];
            if slot.0 < window {
                *slot = (window, Ticks::ZERO);
            }
            if slot.0 == window && slot.1 < WINDOW {
                let room = (WINDOW.0 - slot.1.0).div_ceil(self.line_time.0.max(1));
                let taken = if self.line_time == Ticks::ZERO { left } else { room.min(left) };
                slot.1 += self.line_time * taken;
                left -= taken;
                if left == 0 {
                    return Ticks(window * WINDOW.0).saturating_sub(now);
                }
            }
        }
        if lines == 0 { Ticks::ZERO } else { WINDOW * WINDOWS }
    }
}

/// The nodes of a machine.
#[derive(Clone, Debug)]
pub struct Memory {
    nodes: Vec<Node>,
    /// `latency[cpu_node * nodes + memory_node]`
    latency: Vec<Ticks>,
}

impl Memory {
    /// Idle memory. The matrix must be square with a row for each node (machine files are checked
    /// for that).
    pub fn new(numa: &Numa) -> Memory {
        let mut first_frame = 0;
        let mut nodes = Vec::new();
        for (&frames, &line_time) in numa.frames.iter().zip(&numa.line_time) {
            nodes.push(Node {
                range: NodeRange { first_frame, frames },
                line_time,
                booked: vec![(0, Ticks::ZERO); WINDOWS as usize],
                traffic: Traffic::default(),
            });
            first_frame += frames;
        }
        Memory { nodes, latency: numa.latency.concat() }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The frames of a node.
    pub fn node(&self, node: usize) -> NodeRange {
        self.nodes[node].range
    }

    /// Frames of all nodes.
    pub fn frames(&self) -> u64 {
        self.nodes.iter().map(|n| n.range.frames).sum()
    }

    /// The node that holds a line. Lines past the end belong to the last node.
    #[inline]
    pub fn node_of_line(&self, line: u64) -> usize {
        let frame = line >> (FRAME_SHIFT - LINE_SHIFT);
        let mut node = 0;
        while node + 1 < self.nodes.len() && frame >= self.nodes[node + 1].range.first_frame {
            node += 1;
        }
        node
    }

    /// Latency between two nodes when nothing queues.
    #[inline]
    pub fn distance(&self, cpu_node: usize, memory_node: usize) -> Ticks {
        self.latency[cpu_node * self.nodes.len() + memory_node]
    }

    /// A line is read at `now`; returns how long that takes.
    #[inline]
    pub fn read(&mut self, now: Ticks, cpu_node: usize, line: u64) -> Ticks {
        let at = self.node_of_line(line);
        let distance = self.distance(cpu_node, at);
        let node = &mut self.nodes[at];
        let wait = node.book(now);
        node.traffic.lines_read += 1;
        node.traffic.read_remotely += u64::from(at != cpu_node);
        node.traffic.queued += wait;
        distance + wait
    }

    /// A dirty line leaves the caches at `now`. Nobody waits, but the node is busy.
    #[inline]
    pub fn write_back(&mut self, now: Ticks, line: u64) {
        let at = self.node_of_line(line);
        let node = &mut self.nodes[at];
        node.book(now);
        node.traffic.lines_written += 1;
    }

    /// A long run of stores starts at `now` and moves lines of the node that holds `line`. Returns
    /// the least time that the node's bandwidth needs for them.
    pub fn stream(&mut self, now: Ticks, cpu_node: usize, line: u64, moved: Moved) -> Ticks {
        let at = self.node_of_line(line);
        let node = &mut self.nodes[at];
        // Beyond a ring's worth the windows are all full, and the time is what the lines take.
        let per_ring = WINDOW.0 * WINDOWS / node.line_time.0.max(1);
        let lines = moved.read + moved.written;
        let last = node.book_all(now, lines.min(per_ring));
        node.traffic.lines_read += moved.read;
        node.traffic.read_remotely += if at == cpu_node { 0 } else { moved.read };
        node.traffic.lines_written += moved.written;
        last.max(node.line_time * lines)
    }

    /// A line takes `times` as long from here.
    pub fn slow(&mut self, node: usize, times: u64) {
        let node = &mut self.nodes[node];
        node.line_time = node.line_time * times.max(1);
    }

    /// What a node has moved so far.
    pub fn traffic(&self, node: usize) -> Traffic {
        self.nodes[node].traffic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_nodes() -> Memory {
        Memory::new(&Numa {
            frames: vec![256, 1024],
            line_time: vec![Ticks::from_cycles(2), Ticks::from_cycles(8)],
            latency: [[100, 300], [320, 110]]
                .map(|row| row.map(Ticks::from_cycles).to_vec())
                .to_vec(),
        })
    }

    #[test]
    fn nodes_follow_one_another_from_frame_zero() {
        let m = two_nodes();
        assert_eq!(m.node(1), NodeRange { first_frame: 256, frames: 1024 });
        assert_eq!(m.frames(), 1280);
        assert_eq!(m.node_of_line(256 * 64 - 1), 0);
        assert_eq!(m.node_of_line(256 * 64), 1);
    }

    #[test]
    fn an_idle_node_answers_after_the_latency_of_its_distance() {
        let mut m = two_nodes();
        let far = 256 * 64;
        assert_eq!(m.read(Ticks::ZERO, 0, 0), Ticks::from_cycles(100));
        assert_eq!(m.read(Ticks::ZERO, 0, far), Ticks::from_cycles(300));
        assert_eq!(m.read(Ticks::ZERO, 1, 0), Ticks::from_cycles(320));
        assert_eq!(m.read(Ticks::ZERO, 1, far), Ticks::from_cycles(110));
        m.stream(Ticks::ZERO, 0, far, Moved { read: 7, written: 0 });
        let read = [0, 1].map(|n| (m.traffic(n).lines_read, m.traffic(n).read_remotely));
        assert_eq!(read, [(2, 1), (9, 8)]);
    }

    #[test]
    fn a_flood_of_reads_is_served_at_the_nodes_bandwidth() {
        let mut m = two_nodes();
        let last = (0..1000).map(|i| m.read(Ticks::ZERO, 0, i)).last().expect("1000 reads");
        let queued = last - Ticks::from_cycles(100);
        assert!(
            queued >= Ticks::from_cycles(2000 - 128) && queued <= Ticks::from_cycles(2000),
            "{queued}"
        );
        assert_eq!(m.traffic(0).lines_read, 1000);
        assert!(m.traffic(0).queued > Ticks::ZERO);
        assert_eq!(m.traffic(1), Traffic::default());
    }

    #[test]
    fn a_reader_in_the_past_does_not_queue_behind_the_future() {
        let mut m = two_nodes();
        for i in 0..32 {
            m.read(Ticks::from_cycles(10_000), 0, i);
        }
        assert_eq!(m.read(Ticks::from_cycles(5_000), 0, 99), Ticks::from_cycles(100));
    }

    #[test]
    fn write_backs_take_bandwidth_from_readers() {
        let mut m = two_nodes();
        for i in 0..200 {
            m.write_back(Ticks::ZERO, i);
        }
        assert!(m.read(Ticks::ZERO, 0, 0) > Ticks::from_cycles(100 + 300));
        assert_eq!(m.traffic(0).lines_written, 200);
    }

    #[test]
    fn many_lines_booked_at_once_are_booked_as_one_after_the_other() {
        let (mut one, mut all) = (two_nodes(), two_nodes());
        let mut state = 1u64;
        for _ in 0..2000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (now, lines) = (Ticks(state >> 40), (state >> 20) % 300);
            let node = usize::from(state & 1 << 13 != 0);
            let waits = (0..lines).map(|_| one.nodes[node].book(now)).max().unwrap_or_default();
            assert_eq!(waits, all.nodes[node].book_all(now, lines), "{lines} lines at {now}");
            assert_eq!(one.nodes[node].booked, all.nodes[node].booked);
        }
    }

    #[test]
    fn a_stream_takes_the_time_its_lines_need() {
        let mut m = two_nodes();
        let time = m.stream(Ticks::ZERO, 0, 0, Moved { read: 1_000_000, written: 1_000_000 });
        assert_eq!(time, Ticks::from_cycles(4_000_000));
    }
}
