//! Sampling windows: which accesses of a long program are kept.
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Leave out `skip` accesses, then keep `keep`; with a period, keep `keep` again every `period`
/// accesses from the end of the skipped part on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Accesses left out at the beginning.
    pub skip: u64,
    /// Accesses kept in each window.
    pub keep: u64,
    /// Accesses from the beginning of one window to the beginning of the next; `None`: one window
    /// only.
    pub period: Option<u64>,
}

/// Why a text is not a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadWindow;

impl fmt::Display for BadWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a window is SKIP,KEEP or SKIP,KEEP,PERIOD in accesses, e.g. 1000000,200000,5000000 \
             (suffixes k, M, G), KEEP at least 1 and PERIOD at least KEEP"
        )
    }
}

impl std::error::Error for BadWindow {}

fn number(s: &str) -> Option<u64> {
    let s = s.trim();
    let (digits, factor) = match s.chars().last()? {
        'k' | 'K' => (&s[..s.len() - 1], 1_000),
        'm' | 'M' => (&s[..s.len() - 1], 1_000_000),
        'g' | 'G' => (&s[..s.len() - 1], 1_000_000_000),
        _ => (s, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

impl FromStr for Window {
    type Err = BadWindow;

    fn from_str(s: &str) -> Result<Window, BadWindow> {
        let parts: Vec<Option<u64>> = s.split(',').map(number).collect();
        let window = match parts[..] {
            [Some(skip), Some(keep)] => Window { skip, keep, period: None },
            [Some(skip), Some(keep), Some(p)] if p >= keep => {
                Window { skip, keep, period: Some(p) }
            }
            _ => return Err(BadWindow),
        };
        if window.keep == 0 {
            return Err(BadWindow);
        }
        Ok(window)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.skip, self.keep)?;
        match self.period {
            Some(p) => write!(f, ",{p}"),
            None => Ok(()),
        }
    }
}

/// A window by the clock: accesses are kept from `after` on, for `keep` or to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Time from the program's first instruction to the window.
    pub after: Duration,
    /// Its length; `None`: to the end.
    pub keep: Option<Duration>,
}

impl Clock {
    /// Is it open at that time?
    pub fn is_open(&self, at: Duration) -> bool {
        at >= self.after && self.keep.is_none_or(|keep| at < self.after + keep)
    }
}

impl FromStr for Clock {
    type Err = BadWindow;

    /// As [`Clock`] is shown: `10000ms` or `10000ms,30000ms`.
    fn from_str(s: &str) -> Result<Clock, BadWindow> {
        let time = |s: &str| {
            let ms = s.strip_suffix("ms").and_then(|n| n.parse().ok()).ok_or(BadWindow)?;
            Ok(Duration::from_millis(ms))
        };
        let (after, keep) = s.split_once(',').map_or((s, None), |(a, k)| (a, Some(k)));
        Ok(Clock { after: time(after)?, keep: keep.map(time).transpose()? })
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.after.as_millis())?;
        match self.keep {
            Some(keep) => write!(f, ",{}ms", keep.as_millis()),
            None => Ok(()),
        }
    }
}

/// A position in a window's pattern: one subtraction an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    window: Option<Window>,
    /// Are accesses kept?
    pub(crate) open: bool,
    left: u64,
}

impl Position {
    pub(crate) fn new(window: Option<Window>) -> Position {
        match window {
            None => Position { window, open: true, left: u64::MAX },
            Some(w) if w.skip == 0 => Position { window, open: true, left: w.keep },
            Some(w) => Position { window, open: false, left: w.skip },
        }
    }

    /// Is this access kept? Moves on by one.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> bool {
        if self.left == 0 {
            self.turn();
        }
        self.left -= 1;
        self.open
    }

    /// Keeps accesses from here on, or leaves them out, for as many as there may be.
    pub(crate) fn set(&mut self, open: bool) {
        (self.window, self.open, self.left) = (None, open, u64::MAX);
    }

    #[cold]
    fn turn(&mut self) {
        let Some(w) = self.window else {
            self.left = u64::MAX;
            return;
        };
        (self.open, self.left) = match (self.open, w.period) {
            (false, _) => (true, w.keep),
            (true, None) => (false, u64::MAX),
            (true, Some(p)) if p > w.keep => (false, p - w.keep),
            (true, Some(_)) => (true, w.keep),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str, n: usize) -> String {
        let mut p = Position::new(Some(text.parse().expect("a window")));
        (0..n).map(|_| if p.step() { '#' } else { '.' }).collect()
    }

    #[test]
    fn one_window_repeated_windows_and_windows_without_gap() {
        assert_eq!(kept("3,2", 10), "...##.....");
        assert_eq!(kept("2,2,5", 14), "..##...##...##");
        assert_eq!(kept("0,1,3", 7), "#..#..#");
        assert_eq!(kept("1,2,2", 6), ".#####");
    }

    #[test]
    fn a_window_by_the_clock_is_open_from_its_beginning_to_its_end() {
        let c: Clock = "100ms,50ms".parse().expect("a clock");
        assert_eq!(c.to_string().parse(), Ok(c));
        let open = [0, 99, 100, 149, 150].map(|ms| c.is_open(Duration::from_millis(ms)));
        assert_eq!(open, [false, false, true, true, false]);
        let rest: Clock = "7ms".parse().expect("a clock");
        assert!(rest.keep.is_none() && rest.is_open(Duration::from_secs(9)));
        let mut p = Position::new(None);
        p.set(false);
        assert!(!p.step());
        p.set(true);
        assert!(p.step());
    }

    #[test]
    fn suffixes_are_understood_and_nonsense_is_refused() {
        let w: Window = "1M,200k,5M".parse().expect("a window");
        assert_eq!((w.skip, w.keep, w.period), (1_000_000, 200_000, Some(5_000_000)));
        for bad in ["", "1", "1,0", "1,5,4", "a,b", "1,2,3,4", "-1,2", "99999999999G,1"] {
            assert_eq!(bad.parse::<Window>(), Err(BadWindow), "{bad}");
        }
    }
}
