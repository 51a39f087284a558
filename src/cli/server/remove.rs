//! `colibri server remove`: takes a server out of a file.

use serde_json::json;

use crate::config::{Editor, Origin, Surroundings, from_process};
use crate::domain::nearest::nearest;

use super::super::Session;
use super::super::fault::{Exit, Fault};
use super::super::out;
use super::ScopeWord;

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Its name
    name: String,
    /// Whose file: the user's, or ./colibri.json [default: the one that has it]
    #[arg(long, short, value_enum)]
    scope: Option<ScopeWord>,
}

pub(in crate::cli) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let name = &arguments.name;
    let editor = editor(session, arguments)?;
    editor.remove(name)?.save()?;
    let path = editor.path().display().to_string();
    if session.json {
        return out::json(&json!({ "name": name, "done": "removed", "file": path }));
    }
    out::lines(&format!("removed `{name}` from {path}"))
}

/// The one file that has it.
fn editor(session: &Session, arguments: &Arguments) -> Result<Editor, Fault> {
    let (flags, name) = (&session.flags, &arguments.name);
    let scopes = match (flags.config.is_some(), arguments.scope) {
        (true, Some(_)) => {
            return Err(Fault::new(Exit::Usage, "--config already says which file; leave out --scope"));
        }
        // With --config there is one file, whatever the scope.
        (true, None) => vec![ScopeWord::User],
        (false, Some(scope)) => vec![scope],
        (false, None) => ScopeWord::ALL.to_vec(),
    };
    let mut having = Vec::new();
    for scope in scopes {
        let editor = Editor::open(flags, Surroundings::of_process()?, scope.scope())?;
        if editor.has(name) {
            having.push((scope, editor));
        }
    }
    if having.len() > 1 {
        let files = having
            .iter()
            .map(|(scope, editor)| format!("--scope {} ({})", scope.name(), editor.path().display()));
        let files = files.collect::<Vec<_>>().join(" or ");
        let what = format!("more than one file has a server `{name}`; say {files}");
        return Err(Fault::new(Exit::Usage, out::visible(&what)));
    }
    having.pop().map(|(_, editor)| editor).ok_or_else(|| absent(session, name))
}

/// Where it is instead, or what it may have been meant to be.
fn absent(session: &Session, name: &str) -> Fault {
    let servers = from_process(&session.flags).map(|loaded| loaded.config.servers).unwrap_or_default();
    let elsewhere = servers.iter().find(|server| server.name == name);
    let hint = if let Some(Origin::File { path, .. }) = elsewhere.map(|server| &server.origin) {
        let path = path.display();
        format!("; {path} has one: remove it with `colibri --config {path} server remove {name}`")
    } else {
        let near = nearest(name, servers.iter().map(|server| server.name.as_str()));
        near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
    };
    Fault::new(Exit::Usage, out::visible(&format!("there is no server `{name}` to remove{hint}")))
}
