//! Values with units, as people write them: `"32 KiB"`, `"135 ns"`, `"204.8 GB/s"`, `8.29`
//! (cycles), `"0-15"` (CPUs).
//!
//! A bare number is bytes, cycles or bytes a second. Decimal fractions are read exactly, as digits:
//! no float enters the state.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::memory::Ticks;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bytes(pub u64);

/// A length from which something begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threshold {
    /// That many bytes; 0: it never does.
    Bytes(u64),
    /// The size of the last-level cache, written `"llc"`.
    LastLevel,
}

/// Bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bandwidth(pub u64);

/// A time: in cycles, or in absolute units that the machine's clock turns into cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duration {
    /// Time of this machine's clock.
    Cycles(Ticks),
    /// Picoseconds.
    Picoseconds(u64),
}

impl Duration {
    /// The time at a clock rate.
    pub fn ticks(self, clock_hz: u64) -> Ticks {
        match self {
            Duration::Cycles(ticks) => ticks,
            Duration::Picoseconds(ps) => Ticks::from_picoseconds(ps, clock_hz),
        }
    }
}

/// A set of CPU numbers, written `"0-7,16-23"`, or `""` for none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuList(pub Vec<u32>);

/// `digits[.digits]` times `scale`, rounded to the nearest whole.
fn decimal(text: &str, scale: u128) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if whole.is_empty()
        || !digits(whole)
        || !digits(fraction)
        || text.ends_with('.')
        || fraction.len() > 12
    {
        return None;
    }
    let number: u128 = format!("{whole}{fraction}").replace('_', "").parse().ok()?;
    let divisor = 10u128.pow(fraction.replace('_', "").len() as u32);
    let scaled = number.checked_mul(scale)?;
    u64::try_from((scaled + divisor / 2) / divisor).ok()
}

/// Splits `"32 KiB"` into its number and unit.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..at], text[at..].trim())
}

fn scaled(text: &str, units: &[(&str, u128)]) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    decimal(number, *scale)
}

const BYTES: &[(&str, u128)] = &[
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("K", 1 << 10),
    ("MiB", 1 << 20),
    ("M", 1 << 20),
    ("GiB", 1 << 30),
    ("G", 1 << 30),
    ("TiB", 1 << 40),
    ("T", 1 << 40),
];
const BANDWIDTH: &[(&str, u128)] = &[
    ("", 1),
    ("B/s", 1),
    ("MB/s", 1_000_000),
    ("GB/s", 1_000_000_000),
    ("MiB/s", 1 << 20),
    ("GiB/s", 1 << 30),
];
const TIME: &[(&str, u128)] = &[("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000)];
const CYCLES: &[(&str, u128)] = &[("", 256), ("cycle", 256), ("cycles", 256)];

/// Accepts integers, floats (through their shortest decimal form, which is what was written) and
/// strings.
struct Text<T> {
    expecting: &'static str,
    parse: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        (self.parse)(&number.to_string())
            .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        (self.parse)(&number.to_string())
            .ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let parse = |text: &str| scaled(text, BYTES).map(Bytes);
        from.deserialize_any(Text { expecting: "a size such as 32768 or \"32 KiB\"", parse })
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Threshold, D::Error> {
        let parse = |text: &str| match text.trim() {
            "llc" => Some(Threshold::LastLevel),
            size => scaled(size, BYTES).map(Threshold::Bytes),
        };
        from.deserialize_any(Text {
            expecting: "a size such as \"32 MiB\", or \"llc\" for that of the last level",
            parse,
        })
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bandwidth, D::Error> {
        let parse = |text: &str| scaled(text, BANDWIDTH).map(Bandwidth);
        from.deserialize_any(Text { expecting: "a bandwidth such as \"204.8 GB/s\"", parse })
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let parse = |text: &str| {
            let cycles = scaled(text, CYCLES).map(|t| Duration::Cycles(Ticks(t)));
            cycles.or_else(|| scaled(text, TIME).map(Duration::Picoseconds))
        };
        from.deserialize_any(Text {
            expecting: "cycles such as 8.29, or a time such as \"135 ns\" or \"2.7 us\"",
            parse,
        })
    }
}

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CpuList, D::Error> {
        from.deserialize_any(Text {
            expecting: "CPU numbers such as \"0-7,16-23\", or \"\" for none",
            parse: cpu_list,
        })
    }
}

/// Reads a list of CPU numbers as the kernel writes them.
pub(crate) fn cpu_list(text: &str) -> Option<CpuList> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last > 0xffff {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(CpuList(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_bandwidths_are_read_with_their_units() {
        assert_eq!(scaled("32 KiB", BYTES), Some(32768));
        assert_eq!(scaled("16M", BYTES), scaled("16 MiB", BYTES));
        assert_eq!(scaled("1.25MiB", BYTES), Some(1_310_720));
        assert_eq!(scaled("204.8 GB/s", BANDWIDTH), Some(204_800_000_000));
        assert_eq!(scaled("2.7 us", TIME), Some(2_700_000));
        assert_eq!(scaled("8.29", CYCLES), Some(2122));
        assert_eq!(scaled("2_420_000_000", BYTES), Some(2_420_000_000));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "KiB",
            "-1",
            "1e9",
            "1.",
            ".5",
            "3 KB",
            "12 parsecs",
            "1.2.3",
            "99999999999999999999999",
        ] {
            assert_eq!(scaled(text, BYTES), None, "{text}");
        }
    }

    #[test]
    fn cpu_lists_are_ranges_and_numbers() {
        assert_eq!(cpu_list("0-2,8,10-11"), Some(CpuList(vec![0, 1, 2, 8, 10, 11])));
        assert_eq!(cpu_list(""), Some(CpuList(vec![])));
        for text in ["a", "3-1", "1-", "-", "0-9999999"] {
            assert_eq!(cpu_list(text), None, "{text}");
        }
    }
}
