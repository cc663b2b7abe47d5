//! A number and where it comes from.

use std::ops::Deref;

use serde::Deserialize;

/// What a constant rests on; it decides what a result may be called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// A measurement of the state before a mechanism, on the machine in question.
    Before,
    /// A source that never saw the mechanism.
    Outside,
    /// It took a measurement of the state after the mechanism to get it: results that rest on it
    /// are not predictions.
    Fitted,
    /// Estimated; results that rest on it are shown with the constant halved and doubled.
    Guess,
}

impl Basis {
    /// As it is written in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            Basis::Before => "before",
            Basis::Outside => "outside",
            Basis::Fitted => "fitted",
            Basis::Guess => "guess",
        }
    }
}

/// A constant of a machine file: `{ value = ..., basis = "outside", source = "..." }`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant<T> {
    /// The constant itself.
    pub value: T,
    /// What it rests on.
    pub basis: Basis,
    /// Where it was read, in words.
    pub source: String,
    /// By how much measurements of it differ. Left out: nobody says.
    pub spread: Option<Share>,
}

/// A share of a value, in millionths: `spread = 0.034`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub struct Share(u32);

impl Share {
    /// As a number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl TryFrom<f64> for Share {
    type Error = &'static str;
    fn try_from(share: f64) -> Result<Share, &'static str> {
        match (0.0..=1000.0).contains(&share) {
            true => Ok(Share((share * 1e6).round() as u32)),
            false => Err("a spread is a share of the value, 0 or more; write 0.05 for 5 %"),
        }
    }
}

impl<T> Deref for Constant<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

/// One line of [`Machine::constants`](super::Machine::constants).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConstantRow {
    /// Dotted key, such as `llc.latency` or `nodes.1.memory`.
    pub key: String,
    /// The value as written.
    pub value: String,
    /// What it rests on.
    pub basis: Basis,
    /// Where it was read.
    pub source: String,
    /// By how much measurements of it differ.
    pub spread: Option<Share>,
}
