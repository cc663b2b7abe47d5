//! A counting model of the published trie: 16 slots a node, levels without a branch left out.
//!
//! Its nodes have what the published ones have: the prefix that all keys below share, the level,
//! which slots are in use, the node above. It has no pages and no locks. It counts the nodes that a
//! descent or a climb reaches, and can note which cache lines of them are read. One pool serves all
//! objects, so that nodes have addresses: slabs of whole frames, and the node freed last is used
//! next.

/// Slots of a node.
const SLOTS: usize = 16;
/// Bits of a digit.
const WIDTH: u32 = 4;
/// Bytes of a node: prefix, node above, used slots and level in 24, and the slots.
pub const NODE_BYTES: u64 = HEAD_BYTES + 8 * SLOTS as u64;
const HEAD_BYTES: u64 = 24;
/// Nodes in a frame of the slab.
const IN_A_FRAME: u64 = 4096 / NODE_BYTES;

/// What a slot, or the root of an object, holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Slot {
    /// Nothing.
    #[default]
    Empty,
    /// The page with this key.
    Page(u64),
    /// A node by its number.
    Node(u32),
}

#[derive(Clone, Debug)]
struct Node {
    prefix: u64,
    level: u32,
    above: Option<u32>,
    slots: [Slot; SLOTS],
}

impl Node {
    fn covers(&self, key: u64) -> bool {
        let top = self.level + WIDTH;
        top >= u64::BITS || (key ^ self.prefix) >> top == 0
    }
    fn digit(&self, key: u64) -> usize {
        (key >> self.level) as usize % SLOTS
    }
    fn used(&self) -> usize {
        self.slots.iter().filter(|slot| **slot != Slot::Empty).count()
    }
}

/// Nodes that were reached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Steps {
    /// All of them.
    pub visits: u64,
    /// Those reached from a node below.
    pub climbs: u64,
}

/// A place in the trie of an object: the lowest node known to cover the key looked up last.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    object: usize,
    node: Option<u32>,
    key: Option<u64>,
}

impl Place {
    /// At the root.
    pub fn root(object: usize) -> Place {
        Place { object, node: None, key: None }
    }
}

/// The tries of all objects.
#[derive(Default)]
pub struct Nodes {
    nodes: Vec<Node>,
    free: Vec<u32>,
    roots: Vec<Slot>,
    /// Counted since the start.
    pub steps: Steps,
    /// Lines read, by their number in the pool, where they are asked for.
    pub lines: Option<Vec<u64>>,
}

impl Nodes {
    /// Nodes in use.
    pub fn count(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    fn root(&mut self, object: usize) -> &mut Slot {
        if self.roots.len() <= object {
            self.roots.resize(object + 1, Slot::Empty);
        }
        &mut self.roots[object]
    }

    /// Reads a node's head, and the slot of a key.
    fn read(&mut self, node: u32, key: u64) -> Slot {
        let digit = self.nodes[node as usize].digit(key);
        let at = u64::from(node) / IN_A_FRAME * 4096 + u64::from(node) % IN_A_FRAME * NODE_BYTES;
        if let Some(lines) = &mut self.lines {
            let (head, slot) = (at / 64, (at + HEAD_BYTES + 8 * digit as u64) / 64);
            lines.push(head);
            if slot != head {
                lines.push(slot);
            }
        }
        self.nodes[node as usize].slots[digit]
    }

    fn visit(&mut self, node: u32, key: u64) -> Slot {
        self.steps.visits += 1;
        self.read(node, key)
    }

    fn climb(&mut self, node: u32, key: u64) -> Option<u32> {
        let above = self.nodes[node as usize].above;
        if let Some(above) = above {
            self.steps.climbs += 1;
            self.visit(above, key);
        }
        above
    }

    /// Whether a key has a page. The place is afterwards where it is, or would be put.
    pub fn lookup(&mut self, place: &mut Place, key: u64) -> bool {
        self.find(place, key) == Slot::Page(key)
    }

    fn find(&mut self, place: &mut Place, key: u64) -> Slot {
        let start = place.node;
        while let Some(node) = place.node
            && !self.nodes[node as usize].covers(key)
        {
            place.node = self.climb(node, key);
        }
        let mut slot = match place.node {
            // Another key of the node that the last one was in: its slot is read anew.
            Some(node) if start == Some(node) && place.key != Some(key) => self.read(node, key),
            Some(node) => self.nodes[node as usize].slots[self.nodes[node as usize].digit(key)],
            None => *self.root(place.object),
        };
        while let Slot::Node(node) = slot {
            let below = self.visit(node, key);
            if !self.nodes[node as usize].covers(key) {
                break;
            }
            place.node = Some(node);
            slot = below;
        }
        place.key = Some(key);
        slot
    }

    /// The greatest key below one that was looked up in vain, by a search that goes on from there
    /// and leaves the place where it is.
    pub fn predecessor_near(&mut self, place: &Place, key: u64) -> Option<u64> {
        let mut at = place.node;
        // What lies in the key's own slot may be below it.
        let own = match at {
            Some(node) => {
                let node = &self.nodes[node as usize];
                node.slots[node.digit(key)]
            }
            None => *self.root(place.object),
        };
        if let Some(found) = self.last_below(own, key) {
            return Some(found);
        }
        while let Some(node) = at {
            let (slots, digit) = {
                let node = &self.nodes[node as usize];
                (node.slots, node.digit(key))
            };
            if let Some(slot) = slots[..digit].iter().rev().find(|slot| **slot != Slot::Empty) {
                return self.last_below(*slot, key);
            }
            at = self.climb(node, key);
        }
        None
    }

    /// The same from the root: down to where the key would be, and from the lowest node that has
    /// a smaller slot in use down to its last page.
    pub fn predecessor(&mut self, object: usize, key: u64) -> Option<u64> {
        let (mut slot, mut before) = (*self.root(object), Slot::Empty);
        while let Slot::Node(node) = slot {
            let below = self.visit(node, key);
            let node = &self.nodes[node as usize];
            if !node.covers(key) {
                break;
            }
            let smaller = node.slots[..node.digit(key)].iter().rev();
            if let Some(smaller) = smaller.copied().find(|slot| *slot != Slot::Empty) {
                before = smaller;
            }
            slot = below;
        }
        self.last_below(slot, key).or_else(|| self.last_below(before, key))
    }

    /// The last page of a slot all of whose keys are below one; `None` where they are above it.
    fn last_below(&mut self, mut slot: Slot, key: u64) -> Option<u64> {
        loop {
            match slot {
                Slot::Page(found) => return (found < key).then_some(found),
                Slot::Node(node) if self.nodes[node as usize].prefix < key => {
                    let last = self.nodes[node as usize].slots;
                    let last = last.iter().rposition(|slot| *slot != Slot::Empty)?;
                    slot = self.visit(node, (last as u64) << self.nodes[node as usize].level);
                }
                _ => return None,
            }
        }
    }

    /// Puts a page where a lookup of its key has failed. From a place that was there nothing is
    /// read again.
    pub fn insert(&mut self, place: &mut Place, key: u64) {
        if place.key != Some(key) {
            self.find(place, key);
        }
        let held = match place.node {
            Some(node) => self.nodes[node as usize].slots[self.nodes[node as usize].digit(key)],
            None => *self.root(place.object),
        };
        let other = match held {
            Slot::Empty => return self.put(place, key, Slot::Page(key)),
            Slot::Page(other) => other,
            Slot::Node(node) => self.nodes[node as usize].prefix,
        };
        assert!(other != key || matches!(held, Slot::Node(_)), "{key} is there already");
        let level = (63 - (other ^ key).leading_zeros()) / WIDTH * WIDTH;
        let top = level + WIDTH;
        let prefix = if top >= u64::BITS { 0 } else { key >> top << top };
        let mut node = Node { prefix, level, above: place.node, slots: Default::default() };
        (node.slots[node.digit(other)], node.slots[node.digit(key)]) = (held, Slot::Page(key));
        let new = match self.free.pop() {
            Some(new) => {
                self.nodes[new as usize] = node;
                new
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        if let Slot::Node(below) = held {
            self.nodes[below as usize].above = Some(new);
        }
        self.put(place, key, Slot::Node(new));
        place.node = Some(new);
    }

    fn put(&mut self, place: &Place, key: u64, slot: Slot) {
        match place.node {
            Some(node) => {
                let node = &mut self.nodes[node as usize];
                let digit = node.digit(key);
                node.slots[digit] = slot;
            }
            None => *self.root(place.object) = slot,
        }
    }

    /// Takes a page out; nothing is counted. A node that keeps one slot is spliced out.
    pub fn remove(&mut self, object: usize, key: u64) {
        let (steps, lines) = (self.steps, self.lines.take());
        let mut place = Place::root(object);
        let found = self.lookup(&mut place, key);
        (self.steps, self.lines) = (steps, lines);
        if !found {
            return;
        }
        self.put(&place, key, Slot::Empty);
        let Some(node) = place.node.filter(|node| self.nodes[*node as usize].used() == 1) else {
            return;
        };
        let Node { above, prefix, slots, .. } = self.nodes[node as usize].clone();
        let last = slots.into_iter().find(|slot| *slot != Slot::Empty).unwrap_or_default();
        if let Slot::Node(last) = last {
            self.nodes[last as usize].above = above;
        }
        self.put(&Place { object, node: above, key: None }, prefix, last);
        self.free.push(node);
    }

    /// Takes all pages of an object out; nothing is counted.
    pub fn clear(&mut self, object: usize) {
        let mut open = vec![std::mem::take(self.root(object))];
        while let Some(slot) = open.pop() {
            if let Slot::Node(node) = slot {
                open.extend(self.nodes[node as usize].slots);
                self.free.push(node);
            }
        }
    }

    /// Nodes above a key, from the root to where it is or would be; nothing is counted.
    pub fn depth(&mut self, object: usize, key: u64) -> u64 {
        let (mut slot, mut depth) = (*self.root(object), 0);
        while let Slot::Node(node) = slot {
            let node = &self.nodes[node as usize];
            if !node.covers(key) {
                break;
            }
            (slot, depth) = (node.slots[node.digit(key)], depth + 1);
        }
        depth
    }
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
