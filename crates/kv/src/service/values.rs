//! Values of CONFIG SET in the forms that clients write.

use crate::number::parse_integer;

pub(super) fn between(value: &str, least: i64, most: i64) -> Result<i64, String> {
    let n = parse_integer(value.as_bytes()).ok_or("argument couldn't be parsed into an integer")?;
    if !(least..=most).contains(&n) {
        return Err(format!(
            "argument must be between {least} and {most} inclusive"
        ));
    }
    Ok(n)
}

/// A number of bytes with or without a unit, as in a configuration file of Redis.
pub(super) fn memory(value: &str) -> Option<u64> {
    let value = value.to_ascii_lowercase();
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &value[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
