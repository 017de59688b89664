//! Dates of rules: what a person writes, in milliseconds, and back.

use terret_log::moment;
use toml::value::{Date, Datetime, Offset, Time};

const DAY: u64 = 86_400_000;

/// A moment as TOML has it, such as `2027-01-31T08:00:00Z`.
pub(super) fn written(at: u64) -> String {
    let text = moment(at).replacen(' ', "T", 1);
    match at % 1000 {
        0 => format!("{text}Z"),
        rest => format!("{text}.{rest:03}Z"),
    }
}

/// The moment that a TOML date names. A date without a time is the end of that day, UTC:
/// who writes `expires = 2027-01-31` means that day to count.
pub(super) fn of(datetime: &Datetime) -> Result<u64, String> {
    let wrong = |what: &str| Err(format!("`{datetime}` {what}"));
    let Some(date) = datetime.date else {
        return wrong("has no day");
    };
    let Some(start) = day(date) else {
        return wrong("is before 1970");
    };
    match (datetime.time, datetime.offset) {
        (None, _) => Ok(start + DAY - 1),
        (Some(_), None) => wrong("has no offset; write `Z` behind it for UTC"),
        (Some(time), Some(offset)) => {
            let minutes = match offset {
                Offset::Z => 0,
                Offset::Custom { minutes } => i64::from(minutes),
            };
            (start + of_day(time))
                .checked_add_signed(minutes * -60_000)
                .map_or_else(|| wrong("is before 1970"), Ok)
        }
    }
}

/// Reads what stands after `--expires`.
///
/// # Errors
/// What is wrong with it, for the person who wrote it.
pub fn parse_expiry(text: &str) -> Result<u64, String> {
    let datetime = text.trim().parse::<Datetime>().map_err(|_| {
        format!("`{text}` is no date; write `2027-01-31` or `2027-01-31T08:00:00Z`")
    })?;
    of(&datetime)
}

/// Reads a length of time such as `90m`, `8h` or `30d`, in milliseconds.
///
/// # Errors
/// What is wrong with it, for the person who wrote it.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no length of time; write `90m`, `8h` or `30d`");
    let text = text.trim();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let milliseconds: u64 = match unit {
        's' => 1000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => DAY,
        'w' => 7 * DAY,
        _ => return Err(wrong()),
    };
    text.strip_suffix(unit)
        .and_then(|number| number.parse::<u64>().ok())
        .filter(|number| *number > 0)
        .and_then(|number| number.checked_mul(milliseconds))
        // A hundred years; more is a slip of the hand.
        .filter(|length| *length <= 36_525 * DAY)
        .ok_or_else(wrong)
}

/// The first millisecond of a day since 1970.
fn day(date: Date) -> Option<u64> {
    let (month, day) = (u64::from(date.month), u64::from(date.day));
    // A year begins in March, so that leap days come last in it.
    let year = u64::from(date.year).checked_sub(u64::from(month <= 2))?;
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day.checked_sub(1)?;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    days.checked_sub(719_468)?.checked_mul(DAY)
}

fn of_day(time: Time) -> u64 {
    let seconds = u64::from(time.hour) * 3600
        + u64::from(time.minute) * 60
        + u64::from(time.second.unwrap_or_default());
    seconds * 1000 + u64::from(time.nanosecond.unwrap_or_default()) / 1_000_000
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_written_moment_reads_as_itself() {
        for at in [0, 951_782_399_000, 951_782_400_001, 1_798_761_599_999] {
            let text = written(at);
            assert_eq!(of(&text.parse().unwrap()).unwrap(), at, "{text}");
        }
    }

    #[test]
    fn a_date_counts_to_its_end_and_an_offset_is_taken_off() {
        let end = parse_expiry("2027-01-31").unwrap();
        assert_eq!(written(end), "2027-01-31T23:59:59.999Z");
        let there = parse_expiry("2027-01-31T08:00:00+02:00").unwrap();
        assert_eq!(written(there), "2027-01-31T06:00:00Z");
    }

    #[test]
    fn what_is_no_moment_is_refused_with_the_way_out() {
        for text in ["", "tomorrow", "2027-13-01", "08:00:00", "1960-01-01"] {
            let error = parse_expiry(text).unwrap_err();
            assert!(error.contains('`'), "{text}: {error}");
        }
        let error = parse_expiry("2027-01-31T08:00:00").unwrap_err();
        assert!(error.contains("`Z`"), "{error}");
    }

    #[test]
    fn lengths_of_time() {
        assert_eq!(parse_duration("8h"), Ok(8 * 3_600_000));
        assert_eq!(parse_duration("2w"), Ok(14 * DAY));
        for text in [
            "",
            "8",
            "h",
            "0h",
            "-1h",
            "8 h",
            "99999999999999999999d",
            "99999d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
