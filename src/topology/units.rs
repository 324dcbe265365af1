//! Durations, rates, sizes and ranges: numbers with their unit always written.

/// A time between two bounds, drawn from the seed; equal bounds are a fixed time. Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The shortest.
    pub min_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Delay {
    /// Always the same.
    pub fn fixed(ms: u64) -> Self {
        Self { min_ms: ms, max_ms: ms }
    }
}

/// Longest time that a topology may name, in seconds: 30 days. Sums of them never overflow.
const SECONDS_MAX: f64 = 30.0 * 86_400.0;

const DURATION_UNITS: &[(&str, f64)] =
    &[("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
const SIZE_UNITS: &[(&str, f64)] =
    &[("B", 1.0), ("kB", 1e3), ("KB", 1e3), ("KiB", 1_024.0), ("MB", 1e6), ("MiB", 1_048_576.0)];

/// `230us`, `4ms`, `1.5s`, `2m`, `1h`; the result is in microseconds.
pub(super) fn duration_us(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let Some((_, seconds)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{text}` is no duration: write a number and a unit, such as `500ms`, `2s` or `3m`"));
    };
    let number = decimal(number).ok_or_else(|| format!("`{text}` is no duration: `{number}` is no number"))?;
    let total = number * seconds;
    if total > SECONDS_MAX {
        return Err(format!("`{text}` is longer than 30 days"));
    }
    // Bounded by the check above, and not negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2.6e12 fits")]
    Ok((total * 1e6).round() as u64)
}

/// As [`duration_us`], in whole milliseconds.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    let us = duration_us(text)?;
    if us % 1_000 == 0 { Ok(us / 1_000) } else { Err(format!("`{text}` is finer than a millisecond")) }
}

/// `500ms`, or a range that a time is drawn from: `1s..3s`.
pub(super) fn delay(text: &str) -> Result<Delay, String> {
    match text.split_once("..") {
        None => duration_ms(text).map(Delay::fixed),
        Some((min, max)) => {
            let (min_ms, max_ms) = (duration_ms(min.trim())?, duration_ms(max.trim())?);
            if max_ms < min_ms {
                return Err(format!("`{text}` is an empty range: the shorter time comes first"));
            }
            Ok(Delay { min_ms, max_ms })
        }
    }
}

/// `40/s` or `90/m`; the result is a second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no rate: write a number a second or minute, such as `40/s` or `90/m`");
    let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
    let number = decimal(number.trim()).ok_or_else(wrong)?;
    let rate = match unit.trim() {
        "s" => number,
        "m" => number / 60.0,
        _ => return Err(wrong()),
    };
    if rate <= 0.0 || rate > 1e6 {
        return Err(format!("`{text}` is out of bounds: a rate is above 0 and at most 1000000/s"));
    }
    Ok(rate)
}

/// `200B`, `1KiB`, `2kB`, `1MiB`; the result is in bytes.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is no size: write a number and a unit, such as `200B`, `4kB` or `1KiB`");
    let (number, unit) = split(text);
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let total = decimal(number).ok_or_else(wrong)? * bytes;
    if !(1.0..=1_048_576.0).contains(&total) {
        return Err(format!("`{text}` is out of bounds: a transaction has 1B to 1MiB"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1048576 fits")]
    Ok(total.round() as usize)
}

/// `2%`, above 0 and at most 100.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no share: write a number and `%`, such as `2%`");
    let value = text.strip_suffix('%').and_then(|number| decimal(number.trim())).ok_or_else(wrong)?;
    if value > 0.0 && value <= 100.0 {
        Ok(value)
    } else {
        Err(format!("`{text}` is out of bounds: above 0% and at most 100%"))
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// A plain decimal number: no sign, no exponent.
fn decimal(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(duration_us("230us"), Ok(230));
        assert_eq!(duration_us("1.5s"), Ok(1_500_000));
        assert_eq!(duration_ms("2m"), Ok(120_000));
        assert_eq!(delay("1s..3s"), Ok(Delay { min_ms: 1_000, max_ms: 3_000 }));
        assert_eq!(rate("90/m"), Ok(1.5));
        assert_eq!(size("1KiB"), Ok(1_024));
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in ["", "5", "ms", "-1s", "1e3s", "1..2s", "1 day", "99999999h", "NaNs", "infs"] {
            assert!(duration_us(text).is_err(), "{text}");
        }
        assert!(duration_ms("1us").is_err());
        assert!(delay("3s..1s").unwrap_err().contains("empty range"));
        for text in ["40", "40/h", "0/s", "/s", "-1/s", "99999999/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["200", "0B", "2MiB", "B", "200 bytes"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
