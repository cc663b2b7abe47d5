//! Durations and signals, as people write them.

use std::time::Duration;

use crate::error::LabError;

/// Signals that end programs, or tell them to end: signal(7), numbers of x86_64.
const SIGNALS: [(&str, i32); 8] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
];

/// `250ms`, `10s`, `1.5m`, `1h`; a number alone is in seconds.
pub(super) fn duration(switch: &str, text: &str) -> Result<Duration, LabError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = digits.parse::<f64>().map_or(f64::NAN, |n| n * factor);
    let duration = Duration::try_from_secs_f64(seconds).ok();
    // The recorder is told in milliseconds, as a number of 64 bits.
    duration.filter(|d| u64::try_from(d.as_millis()).is_ok()).ok_or_else(|| {
        LabError::usage(format_args!(
            "{switch} {text}: not a duration; write a number and ms, s, m or h, e.g. 30s"
        ))
    })
}

/// `TERM`, `SIGTERM`, `15`.
pub(super) fn signal(text: &str) -> Result<i32, LabError> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = SIGNALS.iter().find(|(n, _)| *n == name).map(|(_, number)| *number);
    let number = || name.parse().ok().filter(|n| (1..=64).contains(n));
    named.or_else(number).ok_or_else(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|(n, _)| *n).collect();
        LabError::usage(format_args!(
            "--stop {text}: no such signal; write {} or a number",
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_nonsense_is_refused_by_its_name() {
        let of = |text| duration("--for", text).ok().map(|d| d.as_millis());
        let all = ["250ms", "10s", "1.5m", "1h", "7"].map(of);
        assert_eq!(all, [250, 10_000, 90_000, 3_600_000, 7_000].map(Some));
        for bad in ["", "s", "-1s", "5 parsecs", "1d", "nan", "1e300h", "1e17s"] {
            let e = duration("--for", bad).expect_err("nonsense").to_string();
            assert!(e.starts_with(&format!("--for {bad}: ")), "{e}");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!(["TERM", "sigint", "9"].map(|t| signal(t).ok()), [Some(15), Some(2), Some(9)]);
        for bad in ["", "0", "65", "TERMINATE"] {
            assert!(signal(bad).is_err(), "{bad}");
        }
    }
}
