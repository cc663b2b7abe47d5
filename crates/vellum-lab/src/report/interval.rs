//! How sure a ratio of modelled times is, as far as the constants of its machine go.
//!
//! A constant that is a guess may be half or twice what the file says; one that was measured is
//! uncertain by the spread of its measurements. The replay says how many cycles each constant was
//! charged for (`vellum_sim::Counters::charges`), so that a change of one changes both times in
//! proportion, and their ratio by a figure that needs no other replay. Errors of different
//! constants are taken as independent: their squares add up. Sizes, bandwidths and the parts of a
//! walk are not varied, and what the model lacks is not in an interval (`docs/truth.md`).

use vellum_sim::file::{Basis, Machine};

use super::counters::Counters;

/// A constant that may be another.
#[derive(Clone, PartialEq, Debug)]
pub struct Doubt {
    /// Its key.
    pub key: String,
    /// What it is to be multiplied by, at least and at most.
    pub factors: [f64; 2],
}

/// The doubtful constants of a machine.
pub fn doubts(machine: &Machine) -> Vec<Doubt> {
    let doubt = |row: vellum_sim::file::ConstantRow| {
        let spread = row.spread.map_or(0.0, |share| share.get());
        let factors = match row.basis {
            Basis::Guess => [0.5, 2.0],
            _ if spread > 0.0 => [(1.0 - spread).max(0.0), 1.0 + spread],
            _ => return None,
        };
        Some(Doubt { key: row.key, factors })
    };
    machine.constants().into_iter().filter_map(doubt).collect()
}

/// A time in cycles and what it was charged by.
#[derive(Clone, Copy, Debug)]
pub struct Time<'a> {
    /// All of it.
    pub total: i64,
    /// Cycles by constant.
    pub charges: &'a Counters,
}

impl Time<'_> {
    /// The time, were a constant `factor` times what it is.
    fn with(&self, key: &str, factor: f64) -> f64 {
        let charged = self.charges.get(key).unwrap_or(0) as f64;
        self.total as f64 + (factor - 1.0) * charged
    }
}

/// A ratio and what it may be.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval {
    /// The ratio.
    pub ratio: f64,
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
    /// The constant that moves it furthest, and to where.
    pub most: Option<(String, [f64; 2])>,
}

impl Interval {
    /// The ratio of a time to another; `None` where that is nothing.
    pub fn of(time: Time<'_>, base: Time<'_>, doubts: &[Doubt]) -> Option<Interval> {
        if base.total <= 0 || time.total <= 0 {
            return None;
        }
        let ratio = time.total as f64 / base.total as f64;
        let (mut below, mut above) = (0.0, 0.0);
        let mut most: Option<(String, [f64; 2], f64)> = None;
        for doubt in doubts {
            let moved = doubt.factors.map(|f| time.with(&doubt.key, f) / base.with(&doubt.key, f));
            let least = moved[0].min(moved[1]).min(ratio);
            let greatest = moved[0].max(moved[1]).max(ratio);
            below += (ratio - least).powi(2);
            above += (greatest - ratio).powi(2);
            let by = greatest - least;
            if most.as_ref().map_or(0.0, |m| m.2) < by {
                most = Some((doubt.key.clone(), [least, greatest], by));
            }
        }
        let most = most.map(|(key, to, _)| (key, to));
        Some(Interval { ratio, low: ratio - below.sqrt(), high: ratio + above.sqrt(), most })
    }

    /// Whether it says on which side of 1 the ratio is.
    pub fn is_open(&self) -> bool {
        self.low < 1.0 && 1.0 < self.high
    }

    /// The time in words, beside that of the base: `28 % less time (19 to 35 %)`.
    pub fn words(&self) -> String {
        let percent = |ratio: f64| ((ratio - 1.0) * 100.0).round() as i64;
        let (low, middle, high) = (percent(self.low), percent(self.ratio), percent(self.high));
        if self.is_open() && (low, high) != (0, 0) {
            let less = if low < 0 { format!("{} % less", -low) } else { "the same".to_owned() };
            let more = if high > 0 { format!("{high} % more") } else { "the same".to_owned() };
            return format!("no difference in time that this model can see ({less} to {more})");
        }
        let (side, from, to) = if middle < 0 { ("less", -high, -low) } else { ("more", low, high) };
        match middle {
            0 => "the same time".to_owned(),
            _ if from == to => format!("{} % {side} time", middle.abs()),
            _ => format!("{} % {side} time ({from} to {to} %)", middle.abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charges(list: &[(&'static str, i64)]) -> Counters {
        let mut charges = Counters::new();
        list.iter().for_each(|(key, cycles)| charges.put(key, *cycles));
        charges
    }

    fn doubt(key: &str, factors: [f64; 2]) -> Doubt {
        Doubt { key: key.to_owned(), factors }
    }

    #[test]
    fn what_both_pay_alike_moves_a_ratio_less_than_what_one_pays() {
        let (a, b) = (charges(&[("x", 400), ("y", 100)]), charges(&[("x", 400)]));
        let time = Time { total: 800, charges: &b };
        let base = Time { total: 1000, charges: &a };
        let of = |doubts: &[Doubt]| Interval::of(time, base, doubts).expect("both took time");
        let none = of(&[]);
        assert_eq!((none.low, none.ratio, none.high, none.most), (0.8, 0.8, 0.8, None));
        let guess = [0.5, 2.0];
        // (800 - 200) / (1000 - 200), and (800 + 400) / (1000 + 400).
        let x = of(&[doubt("x", guess)]);
        assert!((x.low - 0.75).abs() < 1e-9 && (x.high - 1200.0 / 1400.0).abs() < 1e-9, "{x:?}");
        // 800 / 1100, and 800 / 950.
        let y = of(&[doubt("y", guess)]);
        assert!((y.low - 800.0 / 1100.0).abs() < 1e-9 && (y.high - 800.0 / 950.0).abs() < 1e-9);
        let both = of(&[doubt("x", guess), doubt("y", guess)]);
        let below = (0.05f64.powi(2) + (0.8f64 - 800.0 / 1100.0).powi(2)).sqrt();
        assert!((both.low - (0.8 - below)).abs() < 1e-9, "{both:?}");
        assert_eq!(both.most.as_ref().map(|m| m.0.as_str()), Some("y"));
        assert_eq!(of(&[doubt("z", guess)]), of(&[]), "nothing is charged by it");
        assert_eq!(Interval::of(time, Time { total: 0, charges: &a }, &[]), None);
    }

    #[test]
    fn words_say_the_side_and_the_interval_or_that_there_is_no_telling() {
        let words = |low, ratio, high| Interval { ratio, low, high, most: None }.words();
        assert_eq!(words(0.65, 0.72, 0.81), "28 % less time (19 to 35 %)");
        assert_eq!(words(1.4, 1.59, 1.8), "59 % more time (40 to 80 %)");
        assert_eq!(words(0.72, 0.72, 0.72), "28 % less time");
        assert_eq!(words(1.0, 1.0, 1.0), "the same time");
        assert_eq!(
            words(0.96, 0.98, 1.03),
            "no difference in time that this model can see (4 % less to 3 % more)"
        );
    }

    #[test]
    fn guesses_may_be_half_or_twice_and_measurements_are_off_by_their_spread() {
        let text = vellum_sim::file::preset_text("milan").expect("a preset");
        let spread = "0.55 of a scheduling point a page\" }";
        assert!(text.contains(spread));
        let text = text.replacen(spread, &spread.replace(" }", ", spread = 0.05 }"), 1);
        let machine = Machine::parse("milan.toml", &text).expect("a machine");
        let doubts = doubts(&machine);
        let of = |key: &str| doubts.iter().find(|d| d.key == key).map(|d| d.factors);
        assert_eq!(of("costs.copy_line"), Some([0.5, 2.0]));
        assert_eq!(of("costs.clear_next_line"), Some([0.95, 1.05]));
        assert_eq!(of("l2.latency"), None, "an outside source that says no spread");
        let bad = text.replacen("spread = 0.05", "spread = -1.0", 1);
        let error = Machine::parse("milan.toml", &bad).expect_err("no share");
        assert!(error.to_string().contains("write 0.05 for 5 %"), "{error}");
    }
}
