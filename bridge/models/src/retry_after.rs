//! How long a provider asks to wait, in seconds, milliseconds or as a date.

use std::time::Duration;

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// The wait that the headers ask for. A date is compared with the answer's own `Date`, so
/// that a clock that is wrong here changes nothing.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(milliseconds) = text("retry-after-ms").and_then(|value| value.trim().parse().ok()) {
        return seconds::<f64>(milliseconds).map(|duration| duration / 1000);
    }
    let asked = text(RETRY_AFTER.as_str())?.trim();
    if let Ok(number) = asked.parse::<f64>() {
        return seconds(number);
    }
    let (until, now) = (http_date(asked)?, http_date(text(DATE.as_str())?.trim())?);
    Some(Duration::from_secs(until.saturating_sub(now)))
}

fn seconds<N: Into<f64>>(number: N) -> Option<Duration> {
    Duration::try_from_secs_f64(number.into()).ok()
}

/// Seconds since year 0 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`, the only form
/// that HTTP lets a server send (RFC 9110 §5.6.7).
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, text) = text.split_once(", ")?;
    let mut words = text.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64;
    let year: u64 = words
        .next()?
        .parse()
        .ok()
        .filter(|year| (1..=9999).contains(year))?;
    let mut clock = words
        .next()?
        .split(':')
        .map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if words.next() != Some("GMT")
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    // Days before the month, in years that begin in March so that the leap day is last.
    let (year, month) = if month < 2 {
        (year - 1, month + 10)
    } else {
        (year, month - 2)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pairs: &[(&'static str, &'static str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, reqwest::header::HeaderValue::from_static(value));
        }
        retry_after(&headers)
    }

    #[test]
    fn seconds_milliseconds_and_dates() {
        assert_eq!(wait(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(
            wait(&[("retry-after", "0.5")]),
            Some(Duration::from_millis(500))
        );
        assert_eq!(
            wait(&[("retry-after-ms", "250")]),
            Some(Duration::from_millis(250))
        );
        let date = [
            ("date", "Wed, 28 Feb 2024 23:59:50 GMT"),
            ("retry-after", "Fri, 01 Mar 2024 00:00:05 GMT"),
        ];
        assert_eq!(wait(&date), Some(Duration::from_secs(24 * 3600 + 15)));
        let past = [
            ("date", "Fri, 01 Mar 2024 00:00:05 GMT"),
            ("retry-after", "Sun, 31 Dec 2023 23:59:50 GMT"),
        ];
        assert_eq!(wait(&past), Some(Duration::ZERO));
    }

    #[test]
    fn nonsense_asks_for_nothing() {
        for value in [
            "-1",
            "soon",
            "NaN",
            "1e300",
            "Fri, 99 Mar 2024 00:00:05 GMT",
            "",
        ] {
            assert_eq!(wait(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(
            wait(&[("retry-after", "Fri, 01 Mar 2024 00:00:05 GMT")]),
            None
        );
    }
}
