//! More reach for a command that its sandbox seems to have kept from something: one
//! question, and one more run (`design.md §4 Sandbox`).
//!
//! Whether a failure is the sandbox's doing can only be guessed from what was printed, and
//! the question says so. Nobody is asked twice in a call, and whatever the answer is, the
//! model reads what happened.

use crate::call::{Answer, CallContext, Failure};
use crate::standard::bash::{Command, Told};
use crate::world::process::End;
use crate::world::process::tree::signal_name;
use crate::world::sandbox::{Confinement, Denial, Network};

/// Runs a command, and once more where a person allows it more reach.
pub(super) async fn run(context: &CallContext, command: &Command) -> Result<Told, Failure> {
    let shell = context.world.shell();
    let before = shell.state();
    let mut first = command.run(context, Confinement::default()).await?;
    let Some(denial) = guess(context, &first) else {
        return Ok(first);
    };
    let answer = context.escalate.ask(question(denial)).await;
    let remark = match answer.map_err(|fault| Failure(fault.0))? {
        Answer::Approved => {
            let said = format!("\n--- running once more, {} ---\n", wider(denial));
            context.journal.output(&context.call_id, &said);
            shell.restore(before);
            let mut second = command.run(context, confinement(denial)).await?;
            second.output.remarks.push(format!(
                "this is the second run, {}: the first one failed in the sandbox ({}) and may have done part of its \
                 work",
                wider(denial),
                words(first.end)
            ));
            return Ok(second);
        }
        Answer::Denied { reason } => format!(
            "{} (a guess); it was not run again {}: {reason}",
            looks(denial),
            wider(denial)
        ),
        Answer::Cancelled => {
            first.cancelled = true;
            format!(
                "cancelled: {} (a guess), and whether to run it again {} was not answered",
                looks(denial),
                wider(denial)
            )
        }
    };
    first.output.remarks.push(remark);
    Ok(first)
}

/// What the sandbox seems to have kept from a run that failed.
fn guess(context: &CallContext, first: &Told) -> Option<Denial> {
    match first.end {
        End::Exited(0) | End::Cancelled => None,
        End::Exited(_) | End::Signalled(_) | End::TimedOut => context
            .world
            .processes()
            .sandbox()
            .guess(&first.output.text, Network::Closed),
    }
}

fn confinement(denial: Denial) -> Confinement {
    match denial {
        Denial::Network => Confinement::Sandboxed {
            network: Network::Open,
        },
        Denial::Files => Confinement::Outside,
    }
}

/// Why a person is asked. Short enough for an editor to show whole.
fn question(denial: Denial) -> String {
    let risk = match denial {
        Denial::Network => "It could then send what it can read",
        Denial::Files => "It could then do all that you can",
    };
    format!(
        "it failed, and {} (a guess from its output). Run it once more, {}? {}. The first run may have done part of \
         its work already",
        looks(denial),
        wider(denial),
        risk
    )
}

fn looks(denial: Denial) -> &'static str {
    match denial {
        Denial::Network => "it looks as if the sandbox had kept the network from it",
        Denial::Files => "it looks as if the sandbox had kept a file from it",
    }
}

fn wider(denial: Denial) -> &'static str {
    match denial {
        Denial::Network => "with the network open",
        Denial::Files => "outside of the sandbox",
    }
}

fn words(end: End) -> String {
    match end {
        End::Exited(status) => format!("exit status {status}"),
        End::Signalled(signal) => signal_name(signal),
        End::TimedOut => "timed out".to_owned(),
        End::Cancelled => "cancelled".to_owned(),
    }
}

#[cfg(test)]
mod tests;
