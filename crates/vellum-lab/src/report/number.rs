//! Numbers as people read them. Ours are integers; the few divisions happen here, at the very end.

/// `1234567` as `1,234,567`.
pub fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    if n < 0 {
        out.push('-');
    }
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

/// Three digits that matter and a decimal prefix: `2.91 G`, `61.2 M`, `812`.
pub fn scaled(n: i64) -> String {
    let magnitude = n.unsigned_abs();
    for (unit, name) in
        [(1_000_000_000_000u64, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")]
    {
        if magnitude >= unit {
            let unit = if name == "k" { 1000 } else { unit };
            return format!("{} {name}", three_digits(n, unit));
        }
    }
    grouped(n)
}

/// Cycles in the unit that suits `total`, so that a column of them lines up and adds up by eye.
pub fn cycles(n: i64, total: i64) -> String {
    match total.abs() {
        t if t >= 1_000_000_000 => format!("{:.3} G", n as f64 / 1e9),
        t if t >= 1_000_000 => format!("{:.3} M", n as f64 / 1e6),
        _ => grouped(n),
    }
}

/// Bytes by powers of 1024: `312 MiB`, `4 KiB`, `1.50 GiB`.
pub fn bytes(n: i64) -> String {
    let magnitude = n.unsigned_abs();
    if magnitude >= 10 << 30 {
        format!("{} GiB", three_digits(n, 1 << 30))
    } else if magnitude >= 10 << 20 {
        format!("{} MiB", grouped(rounded(n, 1 << 20)))
    } else if magnitude >= 1 << 20 {
        format!("{} MiB", three_digits(n, 1 << 20))
    } else {
        format!("{} KiB", grouped(rounded(n, 1 << 10)))
    }
}

/// A ratio, with as many decimals as its size deserves; `-` when there is nothing to divide by.
pub fn ratio(of: i64, to: i64) -> String {
    if to == 0 {
        return if of == 0 { "1.00".to_owned() } else { "-".to_owned() };
    }
    let r = of as f64 / to as f64;
    match r.abs() {
        x if x >= 999.5 => format!("{r:.0}"),
        x if x >= 9.995 => format!("{r:.1}"),
        x if x >= 0.0995 || x == 0.0 => format!("{r:.2}"),
        _ => format!("{r:.3}"),
    }
}

/// A difference in percent of `to`, signed.
pub fn percent_off(of: i64, to: i64) -> String {
    if to == 0 {
        "no base".to_owned()
    } else {
        format!("{:+.2} %", (of - to) as f64 * 100.0 / to as f64)
    }
}

/// A measured figure with three digits that matter: `7.42`, `27.5`, `5,631`.
pub fn figure(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => grouped(x.round() as i64),
    }
}

fn rounded(n: i64, unit: i64) -> i64 {
    (n + n.signum() * (unit / 2)) / unit
}

fn three_digits(n: i64, unit: u64) -> String {
    let x = n as f64 / unit as f64;
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => grouped(x.round() as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(-1000), grouped(79_871)],
            ["0", "999", "-1,000", "79,871"]
        );
    }

    #[test]
    fn large_numbers_keep_three_digits_and_a_prefix() {
        assert_eq!(
            [scaled(9_999), scaled(61_234_567), scaled(2_906_000_000)],
            ["9,999", "61.2 M", "2.91 G"]
        );
        assert_eq!(scaled(12_345), "12.3 k");
    }

    #[test]
    fn cycles_of_one_table_share_a_unit() {
        assert_eq!(
            [cycles(12_345_678, 5_000_000_000), cycles(12_345_678, 20_000_000)],
            ["0.012 G", "12.346 M"]
        );
        assert_eq!(cycles(1_234, 5_678), "1,234");
    }

    #[test]
    fn bytes_are_in_powers_of_two() {
        assert_eq!(
            [bytes(4096), bytes(3 << 19), bytes(311 << 20)],
            ["4 KiB", "1.50 MiB", "311 MiB"]
        );
        assert_eq!(bytes(99 << 30), "99.0 GiB");
    }

    #[test]
    fn ratios_show_small_values_and_survive_a_zero_base() {
        assert_eq!([ratio(214, 79_871), ratio(270, 291), ratio(5, 0)], ["0.003", "0.93", "-"]);
        assert_eq!([ratio(0, 0), ratio(0, 7), ratio(25, 2)], ["1.00", "0.00", "12.5"]);
        assert_eq!(ratio(1, 12_500), "0.000");
    }

    #[test]
    fn measured_figures_show_what_was_measured_and_no_more() {
        assert_eq!(
            [figure(7.416), figure(9.999), figure(27.53), figure(5630.6)],
            ["7.42", "10.0", "27.5", "5,631"]
        );
    }

    #[test]
    fn differences_carry_their_sign() {
        assert_eq!(percent_off(79_871, 79_902), "-0.04 %");
        assert_eq!(percent_off(1, 0), "no base");
    }
}
