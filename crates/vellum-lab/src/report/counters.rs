//! A named list of integers in a fixed order.

/// Counters of one column, in the order they are printed in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters(Vec<(&'static str, i64)>);

impl Counters {
    /// No counters.
    pub fn new() -> Counters {
        Counters::default()
    }
    /// Adds a counter at the end. A name already there is replaced in its place.
    pub fn put(&mut self, name: &'static str, value: i64) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name, value)),
        }
    }
    /// As [`put`](Counters::put), for counts; above `i64::MAX` it stays there.
    pub fn count(&mut self, name: &'static str, value: u64) {
        self.put(name, i64::try_from(value).unwrap_or(i64::MAX));
    }
    /// A counter, if the run kept it.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, i64)> + '_ {
        self.0.iter().copied()
    }
}
