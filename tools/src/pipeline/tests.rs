#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Admission, CallHook, HookSays, MAX_TEXT, Next, Pipeline, Veto};
use crate::call::{Call, CallResult, Fault, Output};
use crate::definition::Concurrency::{Parallel, Serial};
use crate::floor::Floor;
use crate::testing::{Bench, Puppet, call};

async fn run(pipeline: &Pipeline, call: Call) {
    pipeline
        .run_calls(vec![call], &CancellationToken::new())
        .await
        .expect("no fault");
}

type Before = dyn Fn(Call) -> Result<Admission, Veto> + Send + Sync;

/// A hook made of closures.
#[derive(Default)]
struct Hook {
    before: Option<Box<Before>>,
    around: Option<Box<dyn Fn(Call) -> Call + Send + Sync>>,
    replaces: Option<CallResult>,
    panics_around: bool,
    after: AtomicUsize,
}

#[async_trait]
impl CallHook for Hook {
    async fn before(&self, call: Call) -> Result<Admission, Veto> {
        match &self.before {
            Some(before) => before(call),
            None => Ok(call.into()),
        }
    }

    async fn around(&self, call: Call, next: Next<'_>) -> Result<CallResult, Fault> {
        assert!(!self.panics_around, "this hook panics");
        match (&self.replaces, &self.around) {
            (Some(result), _) => Ok(result.clone()),
            (None, Some(around)) => next.run(around(call)).await,
            (None, None) => next.run(call).await,
        }
    }

    async fn after(&self, _call: &Call, result: CallResult) -> CallResult {
        self.after.fetch_add(1, Ordering::SeqCst);
        result
    }
}

fn renamed(name: &'static str) -> impl Fn(Call) -> Call + Send + Sync {
    move |call| Call {
        name: name.to_owned(),
        ..call
    }
}

#[tokio::test]
async fn check_078_an_empty_floor_denies_every_call() {
    let bench = Bench::new();
    bench.set_policy(|policy| policy.floor = Floor::new(Vec::<String>::new()));
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("Read", Parallel)]));
    run(&pipeline, call("1", "Read", json!({}))).await;
    assert_eq!(bench.journal.error("1"), "Read is not on the allow list");
}

#[tokio::test]
async fn check_080_a_veto_skips_the_call_and_the_after_hooks() {
    let bench = Bench::new();
    let mut pipeline = bench.pipeline(Puppet::table([Puppet::echo("P", Parallel)]));
    let hook = Arc::new(Hook {
        before: Some(Box::new(|_| Err(Veto("not today".to_owned())))),
        ..Hook::default()
    });
    pipeline.hooks.push(hook.clone());
    run(&pipeline, call("1", "P", json!({}))).await;
    assert_eq!(bench.journal.error("1"), "not today");
    assert_eq!(hook.after.load(Ordering::SeqCst), 0);
    assert_eq!(bench.journal.lines(), ["called 1", "finished 1"]);
}

#[tokio::test]
async fn check_081_082_no_hook_gets_a_call_past_the_floor() {
    let bench = Bench::new();
    bench.set_policy(|policy| policy.floor = Floor::new(["P"]));
    let before = Hook {
        before: Some(Box::new(|call| Ok(renamed("Q")(call).into()))),
        ..Hook::default()
    };
    let around = Hook {
        around: Some(Box::new(renamed("Q"))),
        ..Hook::default()
    };
    for hook in [before, around] {
        let mut pipeline = bench.pipeline(Puppet::table([
            Puppet::echo("P", Parallel),
            Puppet::echo("Q", Parallel),
        ]));
        pipeline.hooks.push(Arc::new(hook));
        pipeline.journal = Arc::new(crate::testing::Journal::default());
        let journal = Arc::new(crate::testing::Journal::default());
        pipeline.journal = journal.clone();
        run(&pipeline, call("1", "P", json!({}))).await;
        assert_eq!(journal.error("1"), "Q is not on the allow list");
        assert!(!journal.lines().contains(&"started 1".to_owned()));
    }
}

#[tokio::test]
async fn a_call_that_an_around_hook_made_is_asked_about_as_what_it_is() {
    let bench = Bench::new();
    let mut pipeline = bench.pipeline(Puppet::table([
        Puppet::echo("P", Parallel),
        Puppet::echo("Q", Serial).gated(),
    ]));
    pipeline.hooks.push(Arc::new(Hook {
        around: Some(Box::new(renamed("Q"))),
        ..Hook::default()
    }));
    bench.approver.approve("1");
    run(&pipeline, call("1", "P", json!({"text": "t"}))).await;
    let questions = bench.approver.questions();
    assert_eq!(
        questions
            .first()
            .map(|question| question.call.name.as_str()),
        Some("Q")
    );
    assert_eq!(bench.journal.output("1").text, "t");
}

#[tokio::test]
async fn an_around_hook_may_replace_the_execution_and_after_hooks_see_its_result() {
    let bench = Bench::new();
    let mut pipeline = bench.pipeline(Puppet::table([Puppet::echo("P", Parallel)]));
    let hook = Arc::new(Hook {
        replaces: Some(CallResult::ok(Output::text("replaced"))),
        ..Hook::default()
    });
    pipeline.hooks.push(hook.clone());
    run(&pipeline, call("1", "P", json!({}))).await;
    assert_eq!(bench.journal.output("1").text, "replaced");
    assert_eq!(hook.after.load(Ordering::SeqCst), 1);
    assert!(
        !bench.journal.lines().contains(&"started 1".to_owned()),
        "nothing was started"
    );
}

#[tokio::test]
async fn check_124_a_panicking_hook_gives_an_error_result_and_never_a_dangling_call() {
    let bench = Bench::new();
    let panics_before = Hook {
        before: Some(Box::new(|_| panic!("inside"))),
        ..Hook::default()
    };
    let panics_around = Hook {
        panics_around: true,
        ..Hook::default()
    };
    for (id, hook) in [("1", panics_before), ("2", panics_around)] {
        let mut pipeline = bench.pipeline(Puppet::table([Puppet::echo("S", Serial)]));
        pipeline.hooks.push(Arc::new(hook));
        run(&pipeline, call(id, "S", json!({}))).await;
        assert!(bench.journal.error(id).contains("internal error"));
    }
}

#[tokio::test]
async fn check_044_an_unknown_tool_is_an_error_result_that_lists_the_names() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([
        Puppet::echo("P", Parallel),
        Puppet::echo("Q", Parallel),
    ]));
    run(&pipeline, call("1", "Reed", json!({}))).await;
    assert_eq!(
        bench.journal.error("1"),
        "no tool named Reed; there are P, Q"
    );
    run(&pipeline, call("2", "a\u{1b}[31m\n", json!({}))).await;
    assert!(!bench.journal.error("2").contains(['\u{1b}', '\n']));
}

#[tokio::test]
async fn check_047_malformed_arguments_are_an_error_result() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("P", Parallel)]));
    let broken = Call {
        id: "1".to_owned(),
        name: "P".to_owned(),
        args: Err("it ends too early".to_owned()),
    };
    run(&pipeline, broken).await;
    assert_eq!(
        bench.journal.error("1"),
        "the arguments of P are not valid JSON: it ends too early"
    );
    run(&pipeline, call("2", "P", json!({"number": "many"}))).await;
    assert_eq!(
        bench.journal.error("2"),
        "`number` is the string \"many\", and an integer is wanted"
    );
}

#[tokio::test]
async fn an_unknown_parameter_is_ignored_with_a_remark() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("P", Parallel)]));
    run(
        &pipeline,
        call("1", "P", json!({"text": "t", "colour": "red"})),
    )
    .await;
    let output = bench.journal.output("1");
    assert_eq!(
        output.render(),
        "t\n--- terret ---\nignored `colour`: there is no such parameter"
    );
}

#[tokio::test]
async fn check_088_a_forged_session_argument_reaches_no_tool() {
    let bench = Bench::new();
    let shows = Puppet::new("P", Parallel, |_, args| async move {
        Ok(Output::text(args.to_string()))
    });
    let pipeline = bench.pipeline(Puppet::table([shows]));
    run(
        &pipeline,
        call("1", "P", json!({"session_id": "another", "text": "t"})),
    )
    .await;
    assert_eq!(bench.journal.output("1").text, r#"{"text":"t"}"#);
}

#[tokio::test]
async fn check_085_086_policies_are_a_sessions_own_and_hold_from_the_next_call() {
    let (one, other) = (Bench::new(), Bench::new());
    let table = || Puppet::table([Puppet::echo("P", Parallel)]);
    let (first, second) = (one.pipeline(table()), other.pipeline(table()));
    run(&first, call("1", "P", json!({}))).await;
    one.set_policy(|policy| policy.floor = Floor::new(["Q"]));
    run(&first, call("2", "P", json!({}))).await;
    run(&second, call("3", "P", json!({}))).await;
    assert!(one.journal.result("1").content.is_ok());
    assert_eq!(one.journal.error("2"), "P is not on the allow list");
    assert!(other.journal.result("3").content.is_ok());
}

#[tokio::test]
async fn check_125_what_a_model_sees_of_a_result_is_bounded_on_a_character() {
    let bench = Bench::new();
    let long = Puppet::new("P", Parallel, |_, _| async {
        Ok(Output::text("é".repeat(MAX_TEXT)))
    });
    let pipeline = bench.pipeline(Puppet::table([long]));
    run(&pipeline, call("1", "P", Value::Null)).await;
    let output = bench.journal.output("1");
    assert_eq!(output.text.len(), MAX_TEXT);
    assert_eq!(
        output.remarks,
        [format!(
            "the result is cut at {MAX_TEXT} bytes; {MAX_TEXT} more bytes are left out"
        )]
    );
}

#[tokio::test]
async fn plan_mode_refuses_what_changes_something_and_says_why() {
    let bench = Bench::new();
    bench.set_policy(|policy| policy.mode = crate::mode::Mode::Plan);
    let pipeline = bench.pipeline(Puppet::table([
        Puppet::echo("S", Serial).gated(),
        Puppet::echo("P", Parallel),
    ]));
    run(&pipeline, call("1", "S", json!({}))).await;
    run(&pipeline, call("2", "P", json!({"text": "looks"}))).await;
    assert!(bench.journal.error("1").contains("plan mode"));
    assert_eq!(bench.journal.output("2").text, "looks");
    assert!(bench.approver.questions().is_empty());
}

fn saying(says: HookSays) -> Arc<Hook> {
    Arc::new(Hook {
        before: Some(Box::new(move |call| {
            Ok(Admission {
                call,
                says: Some(says.clone()),
            })
        })),
        ..Hook::default()
    })
}

/// Asked, run unasked, or refused: what becomes of a gated call that hooks spoke about.
async fn outcome(
    change: impl FnOnce(&mut crate::gate::Policy),
    tool: Puppet,
    hooks: &[HookSays],
) -> Result<Option<String>, String> {
    let bench = Bench::new();
    bench.set_policy(change);
    let mut pipeline = bench.pipeline(Puppet::table([tool]));
    for says in hooks {
        pipeline.hooks.push(saying(says.clone()));
    }
    bench.approver.approve("1");
    run(&pipeline, call("1", "S", json!({"text": "t"}))).await;
    let asked = bench.approver.questions().pop();
    if let Some(question) = &asked {
        assert_eq!(question.offered_rule.is_some(), hooks.is_empty());
    }
    bench
        .journal
        .result("1")
        .content
        .map(|_| asked.map(|question| question.reason))
}

fn ask(reason: &str) -> HookSays {
    HookSays::Ask(reason.to_owned())
}

fn with_rule(effect: crate::rules::Effect) -> impl FnOnce(&mut crate::gate::Policy) {
    move |policy| {
        let rule = crate::rules::Rule::parse("S", effect, crate::rules::Scope::User);
        policy.rules = rule.into_iter().collect();
    }
}

#[tokio::test]
async fn a_hook_that_allows_spares_only_the_question_of_a_default() {
    use crate::rules::Effect;
    let gated = || Puppet::echo("S", Serial).gated();
    let allow = [HookSays::Allow];
    assert!(
        outcome(|_| {}, gated(), &[])
            .await
            .is_ok_and(|asked| asked.is_some())
    );
    assert_eq!(outcome(|_| {}, gated(), &allow).await, Ok(None));
    assert!(
        outcome(with_rule(Effect::Ask), gated(), &allow)
            .await
            .is_ok_and(|asked| asked.is_some()),
        "an ask rule stands"
    );
    assert!(
        outcome(with_rule(Effect::Deny), gated(), &allow)
            .await
            .is_err()
    );
    let plan = |policy: &mut crate::gate::Policy| policy.mode = crate::mode::Mode::Plan;
    assert!(outcome(plan, gated(), &allow).await.is_err());
    let floor = |policy: &mut crate::gate::Policy| policy.floor = Floor::new(["P"]);
    assert!(outcome(floor, gated(), &allow).await.is_err());
}

#[tokio::test]
async fn a_hook_that_asks_is_passed_by_no_allow_rule_and_by_no_hook_that_allows() {
    use crate::rules::Effect;
    let echo = || Puppet::echo("S", Serial);
    let asked = outcome(with_rule(Effect::Allow), echo(), &[ask("on Fridays")]).await;
    assert_eq!(asked, Ok(Some("on Fridays".to_owned())));
    for hooks in [
        [HookSays::Allow, ask("on Fridays")],
        [ask("on Fridays"), HookSays::Allow],
    ] {
        let asked = outcome(|_| {}, echo(), &hooks).await;
        assert_eq!(asked, Ok(Some("on Fridays".to_owned())));
    }
    let both = outcome(|_| {}, echo(), &[ask("one"), ask("two")]).await;
    assert_eq!(both, Ok(Some("one; two".to_owned())));
    // Only the mode that asks nobody asks nobody.
    let bypass = |policy: &mut crate::gate::Policy| policy.mode = crate::mode::Mode::Bypass;
    assert_eq!(outcome(bypass, echo(), &[ask("one")]).await, Ok(None));
}

#[tokio::test]
async fn a_rule_that_comes_meanwhile_settles_no_question_of_a_hook() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("S", Serial)]));
    let call = call("1", "S", json!({}));
    assert_eq!(
        pipeline.decision(&call, None),
        Some(crate::gate::Decision::Run)
    );
    assert!(matches!(
        pipeline.decision(&call, Some(&ask("one"))),
        Some(crate::gate::Decision::Ask { .. })
    ));
}

#[tokio::test]
async fn what_allowed_a_call_says_nothing_of_the_one_that_it_becomes() {
    let bench = Bench::new();
    let mut pipeline = bench.pipeline(Puppet::table([
        Puppet::echo("S", Serial).gated(),
        Puppet::echo("Q", Serial).gated(),
    ]));
    pipeline.hooks.push(saying(HookSays::Allow));
    pipeline.hooks.push(Arc::new(Hook {
        around: Some(Box::new(renamed("Q"))),
        ..Hook::default()
    }));
    bench.approver.approve("1");
    run(&pipeline, call("1", "S", json!({"text": "t"}))).await;
    assert_eq!(bench.approver.questions().len(), 1);
}
