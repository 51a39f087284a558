//! `colibri server add`: puts a server into a file.

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::config::{Editor, Flags, Origin, Scope, State, Surroundings, command_for, from_process, slug};

use super::super::Session;
use super::super::fault::{Exit, Fault};
use super::super::out;
use super::ScopeWord;

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// What to call it: letters, digits, `_` and `-`
    name: String,
    /// Its address
    #[arg(value_name = "URL", required_unless_present = "command", conflicts_with = "command")]
    url: Option<String>,
    /// Whose file: the user's, or ./colibri.json [default: user]
    #[arg(long, short, value_enum)]
    scope: Option<ScopeWord>,
    /// Give it this variable: NAME=VALUE, or NAME to fill it in from yours at each start
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Send it this header: `Name: value`
    #[arg(long, short = 'H', value_name = "HEADER")]
    header: Vec<String>,
    /// How to talk to it [default: http for an address, stdio for a command]
    #[arg(long = "type", short = 't', visible_alias = "transport", value_enum, value_name = "TYPE")]
    kind: Option<Kind>,
    /// Replace a server of that name
    #[arg(long, short)]
    force: bool,
    /// The command to start it with, and its arguments, after `--`
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Stdio,
    Http,
    Sse,
    Websocket,
}

pub(in crate::cli) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let scope = match (session.flags.config.is_some(), arguments.scope) {
        (true, Some(_)) => {
            return Err(usage("--config already says which file; leave out --scope"));
        }
        (_, scope) => scope.map_or(Scope::User, ScopeWord::scope),
    };
    let entry = entry(arguments)?;
    check_name(&arguments.name)?;
    let editor = Editor::open(&session.flags, Surroundings::of_process()?, scope)?;
    let (name, path) = (&arguments.name, editor.path().display().to_string());
    let was_there = editor.has(name);
    if was_there && !arguments.force {
        let what = format!("{path} has a server `{name}` already; add --force to replace it");
        return Err(usage(out::visible(&what)));
    }
    let edited = editor.put(name, &entry)?;
    edited.save()?;
    let done = if was_there { "replaced" } else { "added" };
    let notes = notes(session, arguments, &editor);
    let next = match &session.flags.config {
        Some(file) => format!("colibri --config {} probe {name}", file.display()),
        None => format!("colibri probe {name}"),
    };
    if session.json {
        return out::json(&json!({ "name": name, "done": done, "file": path, "notes": notes, "next": next }));
    }
    out::lines(&format!("{done} `{name}` in {path}"))?;
    out::lines(&format!("try it: {next}"))?;
    notes.iter().try_for_each(|note| out::talk(&format!("note: {}", out::visible(note))))
}

/// Other names are read from files all the same, as their slug; what is new can be called by it at once.
fn check_name(name: &str) -> Result<(), Fault> {
    let remedy = match slug(name) {
        Some(own) if own == name => return Ok(()),
        Some(own) => format!("call it `{own}`"),
        None => "use letters, digits, `_` and `-`".to_owned(),
    };
    Err(usage(format!("`{}` cannot stand in a tool's name; {remedy}", out::visible(name))))
}

/// The entry as it will stand in the file.
fn entry(arguments: &Arguments) -> Result<Vec<(&'static str, Value)>, Fault> {
    let mut entry = Vec::new();
    if let Some(kind) = arguments.kind {
        let word = kind.to_possible_value().map(|word| word.get_name().to_owned());
        entry.push(("type", json!(word)));
    }
    if let Some(url) = &arguments.url {
        if !url.contains("://") && !url.contains("${") {
            let what = "put `--` before a command: colibri server add NAME -- COMMAND ARGUMENTS; an address begins with https://";
            return Err(usage(what));
        }
        if arguments.kind == Some(Kind::Stdio) {
            return Err(usage("--type stdio is for commands; put `--` before one"));
        }
        if !arguments.env.is_empty() {
            return Err(usage("--env is for commands; an address gets --header"));
        }
        entry.push(("url", json!(url)));
    } else if let Some((program, rest)) = arguments.command.split_first() {
        if arguments.kind.is_some_and(|kind| kind != Kind::Stdio) {
            return Err(usage("--type http, sse and websocket are for addresses"));
        }
        if !arguments.header.is_empty() {
            return Err(usage("--header is for addresses; a command gets --env"));
        }
        entry.push(("command", json!(program)));
        if !rest.is_empty() {
            entry.push(("args", json!(rest)));
        }
    }
    for (key, pairs) in [("env", variables(&arguments.env)?), ("headers", headers(&arguments.header)?)] {
        if !pairs.is_empty() {
            entry.push((key, Value::Object(pairs)));
        }
    }
    Ok(entry)
}

fn variables(given: &[String]) -> Result<Map<String, Value>, Fault> {
    let pair = |given: &String| {
        let (name, value) = match given.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (given.as_str(), format!("${{{given}}}")),
        };
        let is_name = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
        // What stands there may be a secret in the wrong place, so it is not repeated.
        if is_name {
            Ok((name.to_owned(), json!(value)))
        } else {
            Err(usage("--env takes NAME=VALUE, or NAME"))
        }
    };
    given.iter().map(pair).collect()
}

fn headers(given: &[String]) -> Result<Map<String, Value>, Fault> {
    let pair = |given: &String| {
        let (name, value) = given.split_once(':').ok_or_else(|| usage("--header takes `Name: value`"))?;
        let (name, value) = (name.trim(), value.trim());
        let is_sound = http::HeaderName::try_from(name).is_ok() && http::HeaderValue::try_from(value).is_ok();
        if is_sound {
            Ok((name.to_owned(), json!(value)))
        } else {
            Err(usage("--header takes `Name: value`"))
        }
    };
    given.iter().map(pair).collect()
}

/// What a person should know now that it is there.
fn notes(session: &Session, arguments: &Arguments, editor: &Editor) -> Vec<String> {
    let mut notes = Vec::new();
    let is_typed =
        |given: &&String, mark: char| given.split_once(mark).is_some_and(|(_, value)| !value.contains("${"));
    let typed = arguments.env.iter().filter(|given| is_typed(given, '='));
    if typed.chain(arguments.header.iter().filter(|given| is_typed(given, ':'))).next().is_some() {
        notes.push(
            "the values you typed are in the file as they are; a secret is better written as '${VAR}', which is filled in at each start".to_owned(),
        );
    }
    let program =
        arguments.command.first().filter(|program| program.contains('/') && !program.starts_with('/'));
    if program.is_some_and(|program| !program.starts_with("${")) {
        notes.push(
            "the command is relative to the folder colibri is started in; a full path works everywhere"
                .to_owned(),
        );
    }
    notes.extend(as_it_is(&session.flags, &arguments.name, editor));
    notes
}

/// What keeps the new server from being used here and now.
fn as_it_is(flags: &Flags, name: &str, editor: &Editor) -> Option<String> {
    let loaded = match from_process(flags) {
        Ok(loaded) => loaded,
        Err(error) => return Some(format!("the configuration as a whole is not valid: {error}")),
    };
    let server = loaded.config.servers.iter().find(|server| server.name == name)?;
    match (&server.origin, &server.state) {
        (Origin::File { path, .. }, _) if path != editor.path() => {
            Some(format!("here, {} counts more: it has a server `{name}` too", server.origin))
        }
        (Origin::File { path, .. }, State::Ready(_)) if !server.trusted => {
            Some(format!("it is not started before its file is trusted: {}", command_for(path)))
        }
        (_, State::Disabled { reason, .. }) => Some(format!("it cannot be used as things are: {reason}")),
        (_, State::Ready(_)) => None,
    }
}

fn usage(what: impl Into<String>) -> Fault {
    Fault::new(Exit::Usage, what)
}
