//! What the helper `terret-sandbox` is told: its command line, made here and read here.
//!
//! It stands in the list of processes, so it holds paths and nothing else.

use std::ffi::OsString;
use std::path::PathBuf;

/// The name that our own binary is called by to confine itself and start a program.
pub const HELPER: &str = "terret-sandbox";

/// How the helper confines itself before it becomes the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Files, and folders with all below them, that may be read and executed.
    pub read: Vec<PathBuf>,
    /// The same that may also be written.
    pub write: Vec<PathBuf>,
    /// Devices that may be read, written and controlled.
    pub devices: Vec<PathBuf>,
    pub sockets: Sockets,
    /// Start nothing where the kernel has no Landlock.
    pub required: bool,
    pub argv: Vec<OsString>,
}

/// Which sockets can be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sockets {
    /// Pairs alone, which reach nobody else.
    #[default]
    Closed,
    /// Those of the internet, for a private network namespace where they reach nothing
    /// but the program's own loopback.
    Private,
    /// Those of the internet and Unix sockets.
    Open,
}

/// An order that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the order is not understood: {0}")]
pub struct BadOrder(String);

impl Sockets {
    fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Private => "private",
            Self::Open => "open",
        }
    }
}

impl Order {
    /// The helper's arguments, with its name first.
    pub fn to_argv(&self) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec![HELPER.into()];
        let lists = [
            ("--read", &self.read),
            ("--write", &self.write),
            ("--device", &self.devices),
        ];
        for (flag, paths) in lists {
            for path in paths {
                argv.push(flag.into());
                argv.push(path.into());
            }
        }
        argv.push("--sockets".into());
        argv.push(self.sockets.name().into());
        if self.required {
            argv.push("--required".into());
        }
        argv.push("--".into());
        argv.extend(self.argv.iter().cloned());
        argv
    }

    /// Reads the arguments after the name.
    ///
    /// # Errors
    /// Names what is wrong; nothing may be started then.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, BadOrder> {
        let mut order = Self::default();
        let mut rest = arguments.into_iter();
        while let Some(flag) = rest.next() {
            let mut value = || {
                rest.next()
                    .ok_or_else(|| BadOrder(format!("`{}` has no value", flag.to_string_lossy())))
            };
            match flag.to_str() {
                Some("--read") => order.read.push(value()?.into()),
                Some("--write") => order.write.push(value()?.into()),
                Some("--device") => order.devices.push(value()?.into()),
                Some("--required") => order.required = true,
                Some("--sockets") => {
                    let named = value()?;
                    order.sockets = [Sockets::Closed, Sockets::Private, Sockets::Open]
                        .into_iter()
                        .find(|sockets| named == sockets.name())
                        .ok_or_else(|| {
                            BadOrder(format!("no sockets `{}`", named.to_string_lossy()))
                        })?;
                }
                Some("--") => {
                    order.argv = rest.collect();
                    break;
                }
                _ => return Err(BadOrder(format!("`{}`", flag.to_string_lossy()))),
            }
        }
        if order.argv.is_empty() {
            return Err(BadOrder("no program is named".to_owned()));
        }
        Ok(order)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = Order {
            read: vec!["/usr".into(), "--write".into()],
            write: vec!["/w".into()],
            devices: vec!["/dev/null".into()],
            sockets: Sockets::Private,
            required: true,
            argv: vec!["--".into(), "--read".into()],
        };
        assert_eq!(
            Order::parse(order.to_argv().into_iter().skip(1)).unwrap(),
            order
        );
    }

    #[test]
    fn what_is_not_understood_starts_nothing() {
        let parse = |words: &[&str]| Order::parse(words.iter().map(OsString::from));
        for words in [
            &["--read"] as &[&str],
            &["--sockets", "some", "--", "true"],
            &["true"],
            &["--"],
            &[],
        ] {
            parse(words).unwrap_err();
        }
    }
}
