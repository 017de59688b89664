//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A coding agent that lives in your editor.
#[derive(Debug, Parser)]
#[command(
    name = "terret",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Keep config, state and cache under this one folder [default: TERRET_HOME, else the XDG folders]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The model of this run, as `provider:model`
    #[arg(long, global = true, value_name = "PROVIDER:MODEL")]
    pub model: Option<String>,
    /// Log more to stderr, or to the file of `log.file`; twice for everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Speak the Agent Client Protocol on stdin and stdout: what an editor starts
    Acp(AcpArgs),
    /// Play a scripted session with real tools in a throw-away project
    Demo(DemoArgs),
    /// Run one prompt without an editor and print the answer
    Run(RunArgs),
    /// Look at, move and check sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Show and decide what waits for a person
    Inbox(InboxArgs),
    /// List, read and stop background jobs
    Jobs(JobsArgs),
    /// List, add, try and take back rules
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Show and decide what projects bring that runs code or lets more through
    Trust(TrustArgs),
    /// Check this installation and say what works
    Doctor,
    /// Store and list the keys of model providers
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Args)]
pub(crate) struct AcpArgs {
    /// Offer the mode `bypass`, which does everything without asking
    #[arg(long)]
    pub allow_bypass: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Approve everything instead of asking
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to do; `-` reads it from standard input
    pub prompt: String,
    /// Print each ACP update as a line of JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Work in this folder [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// How much may be done without asking: plan, ask or edits
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Let `--mode bypass` do everything without asking
    #[arg(long)]
    pub allow_bypass: bool,
    /// Ask on this terminal instead of refusing what needs an approval
    #[arg(long)]
    pub ask: bool,
    /// What becomes of a call that needs an approval, as nobody is asked without `--ask`
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        default_value_t = PermissionPolicy::Deny,
        conflicts_with = "ask"
    )]
    pub permission_policy: PermissionPolicy,
}

/// What becomes of what a person would have to approve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PermissionPolicy {
    /// Refuse the call and tell the model why
    Deny,
    /// End the run with an error
    Fail,
    /// Approve what rules, hooks and the mode would ask for; never what is forbidden, nor
    /// protected files and more reach
    Allow,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, newest first
    List {
        /// Only those that work in this folder
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// Print a line of JSON for each
        #[arg(long)]
        json: bool,
        /// The most sessions to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show a session as a person reads it
    Show {
        /// The session: its id, or the beginning of just one
        id: String,
        /// Print the log's events as JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Find text in all sessions
    Search {
        /// The words to look for, in what was said and done
        text: String,
        /// The most places to show
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Write a session with its files into one file
    Export {
        /// The session: its id, or the beginning of just one
        id: String,
        /// Where to [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Take in a session that was exported
    Import {
        /// The file; `-` reads standard input
        file: PathBuf,
    },
    /// Prove that nothing in a log was changed or lost
    Verify {
        /// The session: its id, or the beginning of just one; all of them when absent
        id: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    pub command: Option<InboxCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// List what waits
    List {
        /// Print a line of JSON for each that can be decided now
        #[arg(long)]
        json: bool,
    },
    /// Allow a waiting call
    Approve {
        /// As the list shows it: SESSION/APPROVAL, or a part that fits only one
        id: String,
        /// Also allow what the offered rule covers for the rest of the session
        #[arg(long)]
        session: bool,
        /// Also allow what the offered rule covers in all sessions of this project
        #[arg(long, conflicts_with = "session")]
        project: bool,
    },
    /// Refuse a waiting call
    Reject {
        /// As the list shows it: SESSION/APPROVAL, or a part that fits only one
        id: String,
        /// Why, for the model to read
        #[arg(long)]
        reason: Option<String>,
        /// End the turn with it; the next prompt says why
        #[arg(long, conflicts_with = "reason")]
        stop: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    pub command: Option<JobsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List the jobs of all sessions, oldest first
    List {
        /// Print a line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// Print the end of a job's output
    Tail {
        /// The job: its id, or the beginning of just one
        id: String,
        /// Bytes of output to begin with
        #[arg(long, default_value_t = 8192, value_name = "BYTES")]
        bytes: u64,
        /// Go on until the job ends
        #[arg(long, short)]
        follow: bool,
    },
    /// End a job with all that came from it
    Stop {
        /// The job: its id, or the beginning of just one
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// List the rules that hold in a folder, with origin, last use and expiry
    List {
        /// Print a line of JSON for each
        #[arg(long)]
        json: bool,
        /// The folder [default: the current one]
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// With the session's own rules: its id, or the beginning of just one
        #[arg(long, value_name = "ID")]
        session: Option<String>,
    },
    /// Add a rule; running sessions go by it from their next call on
    Add(RulesAddArgs),
    /// Take a rule back; what it covered is asked again from the next call on
    Revoke {
        /// Its number in `terret rules list`, or its exact text
        rule: String,
        #[command(flatten)]
        layer: LayerArgs,
        /// The folder whose project is meant [default: the current one]
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
    },
    /// Say what would become of a command, under the rules in force or those given here
    Test(RulesTestArgs),
    /// Judge the calls of past sessions under the rules in force and those given here
    Replay(RulesReplayArgs),
}

/// Which file of rules is meant.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LayerArgs {
    /// The rules of all projects, in config.toml
    #[arg(long, conflicts_with = "project")]
    pub user: bool,
    /// The rules of this project alone, in the state folder
    #[arg(long)]
    pub project: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RulesAddArgs {
    /// Such as `Bash(cargo test:*)`, `Edit(src/**)` or `WebFetch(domain:docs.rs)`
    pub rule: String,
    /// Without either it holds in this project alone
    #[command(flatten)]
    pub layer: LayerArgs,
    /// Always ask about what it covers, instead of allowing it
    #[arg(long, conflicts_with = "deny")]
    pub ask: bool,
    /// Never allow what it covers
    #[arg(long)]
    pub deny: bool,
    /// Until when it holds: a date, to its end, or a moment such as 2027-01-31T08:00:00Z
    #[arg(long, value_name = "DATE", conflicts_with = "length")]
    pub expires: Option<String>,
    /// For how long it holds, such as 90m, 8h or 30d
    #[arg(long = "for", value_name = "LENGTH", id = "length")]
    pub length: Option<String>,
    /// The folder whose project is meant [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RulesTestArgs {
    /// A command line, as the Bash tool gets it
    #[arg(
        value_name = "LINE",
        required_unless_present = "tool",
        conflicts_with = "tool",
        allow_hyphen_values = true
    )]
    pub line: Option<String>,
    /// A rule that allows; may be given several times. With any rule given, only those count
    #[arg(long, value_name = "RULE")]
    pub allow: Vec<String>,
    /// A rule that asks
    #[arg(long, value_name = "RULE")]
    pub ask: Vec<String>,
    /// A rule that denies
    #[arg(long, value_name = "RULE")]
    pub deny: Vec<String>,
    /// Another tool than Bash
    #[arg(long, value_name = "NAME", requires = "args")]
    pub tool: Option<String>,
    /// Its arguments as JSON
    #[arg(long, value_name = "JSON", requires = "tool")]
    pub args: Option<String>,
    /// The folder of the session [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The mode of the session [default: config.toml's]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RulesReplayArgs {
    /// A proposed rule that allows; may be given several times
    #[arg(long, visible_alias = "rule", value_name = "RULE")]
    pub allow: Vec<String>,
    /// A proposed rule that asks
    #[arg(long, value_name = "RULE")]
    pub ask: Vec<String>,
    /// A proposed rule that denies
    #[arg(long, value_name = "RULE")]
    pub deny: Vec<String>,
    /// Only this session: its id, or the beginning of just one; may be given several times
    #[arg(long, value_name = "ID")]
    pub session: Vec<String>,
    /// The most calls and rules to list of each kind
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    #[command(subcommand)]
    pub command: Option<TrustCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// List what was decided
    List,
    /// Say what a project's files would do, and whether they are trusted
    Show {
        /// A folder of the project [default: the current one]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Trust the files of a project as they are now
    Allow {
        /// A folder of the project [default: the current one]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Refuse the files of a project as they are now, so that they are not asked for
    Refuse {
        /// A folder of the project [default: the current one]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Forget what was decided about a project, so that it is asked for again
    Forget {
        /// A folder of the project [default: the current one]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Make the identity that the stored keys are encrypted for
    Init,
    /// Store a provider's key, read from standard input
    Set {
        /// The provider's name, as in `provider:model`
        provider: String,
        /// Store it in the system keyring instead of the encrypted file
        #[arg(long)]
        keyring: bool,
    },
    /// Remove a provider's stored key
    Remove {
        /// The provider's name
        provider: String,
    },
    /// Say for each provider where its key comes from
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with its value and where it comes from
    Show,
    /// Print where the configuration file is
    Path,
}
