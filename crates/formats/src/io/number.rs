//! Numbers in text, fast and exact.

/// Powers of ten that are exact in f64.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Whether a byte ends a number: a blank, a tab or the end of the line.
#[inline(always)]
pub(super) fn is_blank_or_end(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether a byte begins an exponent: `e`, or Fortran's `d` (double) and `q` (quadruple precision).
#[inline(always)]
fn is_exponent_letter(byte: u8) -> bool {
    matches!(byte | 0x20, b'e' | b'd' | b'q')
}

/// Reads digits, returning their value (wrapped beyond 19 digits) and the position after them.
/// `bytes` must hold a byte that is no digit at or after `at`.
#[inline(always)]
fn digits(bytes: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    // Eight at a time: subtract '0' from each byte and join neighbours, three times.
    while let Some(&eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(eight);
        let low = word.wrapping_sub(0x3030_3030_3030_3030);
        let high = word.wrapping_add(0x4646_4646_4646_4646);
        if (low | high) & 0x8080_8080_8080_8080 != 0 {
            break;
        }
        let pairs = low.wrapping_mul(10).wrapping_add(low >> 8);
        let first = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
        let second = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
        value = value.wrapping_mul(100_000_000).wrapping_add(first.wrapping_add(second) >> 32);
        at += 8;
    }
    loop {
        let digit = bytes[at].wrapping_sub(b'0');
        if digit > 9 {
            return (value, at);
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
}

/// Reads an unsigned integer of at most 18 digits that ends at a blank or the end of the line.
/// Returns it and the position after it.
#[inline(always)]
pub(super) fn unsigned(bytes: &[u8], start: usize) -> Option<(u64, usize)> {
    let (mut value, mut at) = (0u64, start);
    loop {
        let digit = bytes[at].wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (at > start && at - start <= 18 && is_blank_or_end(bytes[at])).then_some((value, at))
}

/// Reads an integer with an optional sign that is exact in f64: at most 15 digits. `None` for any
/// other text: then [`slow_integer`] decides.
#[inline(always)]
pub(super) fn fast_integer(bytes: &[u8], start: usize) -> Option<(f64, usize)> {
    let negative = bytes[start] == b'-';
    let first = start + usize::from(negative || bytes[start] == b'+');
    let (value, end) = unsigned(bytes, first)?;
    if end - first > 15 {
        return None;
    }
    // Through f64, so that -0 keeps its sign as it does in the slow path.
    let value = value as f64;
    Some((if negative { -value } else { value }, end))
}

/// Reads a decimal number whose value is one exact f64 operation away: at most 19 digits that
/// make an integer below 2^53, times a power of ten up to 22 (Clinger 1990, doi
/// 10.1145/93542.93557). `None` for any other text, numbers included: then [`slow`] decides.
#[inline(always)]
pub(super) fn fast(bytes: &[u8], start: usize) -> Option<(f64, usize)> {
    let mut at = start;
    let negative = bytes[at] == b'-';
    if negative || bytes[at] == b'+' {
        at += 1;
    }
    let first = at;
    let (mut mantissa, after) = digits(bytes, at, 0);
    at = after;
    let mut count = at - first;
    let mut exponent = 0i64;
    if bytes[at] == b'.' {
        let (value, after) = digits(bytes, at + 1, mantissa);
        let decimals = after - (at + 1);
        mantissa = value;
        count += decimals;
        exponent = -(decimals as i64);
        at = after;
    }
    if count == 0 || count > 19 {
        return None;
    }
    if is_exponent_letter(bytes[at]) {
        at += 1;
        let minus = bytes[at] == b'-';
        if minus || bytes[at] == b'+' {
            at += 1;
        }
        let first = at;
        let (value, after) = digits(bytes, at, 0);
        if after == first || after - first > 4 {
            return None;
        }
        exponent += if minus { -(value as i64) } else { value as i64 };
        at = after;
    }
    if !is_blank_or_end(bytes[at]) || mantissa > 1 << 53 {
        return None;
    }
    let integer = mantissa as f64;
    let power = EXACT_POWERS.get(exponent.unsigned_abs() as usize)?;
    let value = if exponent < 0 { integer / power } else { integer * power };
    Some((if negative { -value } else { value }, at))
}

/// Why a token is not a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoValue {
    /// Its magnitude exceeds the largest f64.
    Overflow,
    /// It is not a number.
    NotANumber,
}

/// Reads a whole token as f64, rounded to nearest. `nan`, `inf` and `infinity` with an optional
/// sign, in any case, are values; a decimal number that overflows is not. Underflow rounds to 0.
/// Numbers may be spelled as Fortran writes them, see [`without_fortran`].
pub(super) fn slow(token: &[u8]) -> Result<f64, NoValue> {
    let text = std::str::from_utf8(token).map_err(|_| NoValue::NotANumber)?;
    let parsed = text.parse().ok().or_else(|| without_fortran(text)?.parse().ok());
    let value: f64 = parsed.ok_or(NoValue::NotANumber)?;
    if value.is_infinite() && token.iter().any(u8::is_ascii_digit) {
        return Err(NoValue::Overflow);
    }
    Ok(value)
}

/// Respells a Fortran number: puts the exponent letter `e` in place of `d` or `q`, or before an
/// exponent of three digits whose letter Fortran leaves out (`0.25-101`). `None` where the text has
/// neither.
fn without_fortran(text: &str) -> Option<String> {
    let is_part = |b: u8| b.is_ascii_digit() || is_exponent_letter(b) || b"+-.".contains(&b);
    if !text.bytes().all(is_part) {
        return None;
    }
    if text.contains(['d', 'D', 'q', 'Q']) {
        return Some(text.replace(['d', 'D', 'q', 'Q'], "e"));
    }
    let (mantissa, exponent) = text.split_at(text.rfind(['+', '-'])?);
    let has_letter = text.contains(['e', 'E']);
    (!has_letter && mantissa.contains('.') && exponent.len() == 4)
        .then(|| format!("{mantissa}e{exponent}"))
}

/// Reads a whole token as an integer of any length with an optional sign, rounded to f64.
pub(super) fn slow_integer(token: &[u8]) -> Result<f64, NoValue> {
    let unsigned = match token {
        [b'+' | b'-', rest @ ..] => rest,
        all => all,
    };
    if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
        return Err(NoValue::NotANumber);
    }
    slow(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn both(text: &str) -> Option<f64> {
        let mut line = text.as_bytes().to_vec();
        line.push(b'\n');
        match fast(&line, 0) {
            Some((value, end)) => {
                assert_eq!(end, text.len());
                Some(value)
            }
            None => slow(text.as_bytes()).ok(),
        }
    }

    #[test]
    fn numbers_in_every_spelling() {
        let cases = [
            ("1", 1.0),
            ("-0", -0.0),
            ("+3.25", 3.25),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e5", 1e5),
            ("1E+05", 1e5),
            ("12345678.87654321e-03", 12_345.678_876_543_21),
            ("9007199254740993", 9_007_199_254_740_992.0),
            ("4.9e-324", 4.9e-324),
            ("1e-400", 0.0),
            ("1.7976931348623157e308", f64::MAX),
            ("Infinity", f64::INFINITY),
            ("-INF", f64::NEG_INFINITY),
            ("4.0D+00", 4.0),
            ("0.6D+01", 6.0),
            ("-1d-1", -0.1),
            ("1q2", 100.0),
            ("12345678901234567890.5Q-3", 12_345_678_901_234_567.890_5),
            ("0.25-101", 0.25e-101),
            ("-1.5+100", -1.5e100),
        ];
        for (text, expected) in cases {
            let found = both(text).unwrap();
            assert_eq!(found.to_bits(), expected.to_bits(), "{text}");
        }
        assert!(both("nan").unwrap().is_nan());
    }

    #[test]
    fn other_text_is_no_number() {
        for text in [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "d5",
            "1d",
            "1d+",
            "1d5d5",
            "1e5d5",
            "0x1",
            "0x1d2",
            "1_0",
            "+-1",
            "--1",
            "1.2.3",
            "1-101",
            "1.0-10",
            "1.0-1000",
            "1.0e5-101",
            "dnan",
        ] {
            assert_eq!(both(text), None, "{text}");
        }
        assert_eq!(slow(b"1e400"), Err(NoValue::Overflow));
        assert_eq!(slow(b"-2e308"), Err(NoValue::Overflow));
        assert_eq!(slow(b"1d400"), Err(NoValue::Overflow));
        assert_eq!(slow_integer(b"1.5"), Err(NoValue::NotANumber));
        assert_eq!(slow_integer(b"-12"), Ok(-12.0));
    }

    proptest! {
        #[test]
        fn integers_agree_with_the_standard_library(text in "[+-]?[0-9]{0,25}[.a]?") {
            let line = format!("{text}\n");
            let found = match fast_integer(line.as_bytes(), 0) {
                Some((value, end)) => {
                    prop_assert_eq!(end, text.len());
                    Some(value)
                }
                None => slow_integer(text.as_bytes()).ok(),
            };
            let digits = text.trim_start_matches(['+', '-']);
            let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let expected = whole.then(|| text.parse::<f64>().unwrap());
            prop_assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits));
        }

        #[test]
        fn agrees_with_the_standard_library(
            digits in "[+-]?[0-9]{0,22}(\\.[0-9]{0,22})?([eE][+-]?[0-9]{1,3})?"
        ) {
            let expected = digits.parse::<f64>().ok().filter(|v| v.is_finite());
            let found = both(&digits);
            prop_assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits));
        }

        #[test]
        fn the_exponent_letter_changes_nothing(
            mantissa in "[+-]?[0-9]{1,22}(\\.[0-9]{0,22})?", letter in "[dDqQE]", exponent in "[+-]?[0-9]{1,3}"
        ) {
            let found = both(&format!("{mantissa}{letter}{exponent}"));
            let expected = both(&format!("{mantissa}e{exponent}"));
            prop_assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits));
        }

        #[test]
        fn reads_back_any_f64(bits: u64) {
            let value = f64::from_bits(bits);
            for text in [format!("{value:?}"), format!("{value:e}"), format!("{value:.17e}")] {
                let found = both(&text).unwrap();
                prop_assert!(found == value || found.is_nan() && value.is_nan());
            }
        }
    }
}
