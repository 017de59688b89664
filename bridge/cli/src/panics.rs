//! What a panic says. The message of one may quote anything that a session holds: a piece of
//! text that could not be cut, a value that was not expected. So it goes the way of all
//! diagnostics, and at the default level a panic says where it was and no more than that.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// Reports panics through the diagnostics, which must have been started, instead of as the
/// standard library does.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(report));
}

fn report(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string);
    let place = place.as_deref().unwrap_or("an unknown place");
    let thread = std::thread::current();
    // A message without values in it is part of the program.
    let literal = info.payload().downcast_ref::<&'static str>();
    tracing::error!(
        thread = thread.name(),
        place,
        said = literal.copied(),
        "an internal error (panic): please report this line; `--verbose` tells more"
    );
    if let Some(message) = info.payload().downcast_ref::<String>() {
        tracing::debug!(place, message, "the panic's message");
    }
    // Only where RUST_BACKTRACE asks for it; it names functions and no values.
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        tracing::error!("the panic's backtrace:\n{trace}");
    }
    // Nobody else ends a command with a word about it.
    if thread.name() == Some("main") {
        crate::complain(&format!(
            "terret: an internal error at {place} ended the command"
        ));
    }
}

#[cfg(test)]
mod tests;
