//! What a person names to connect to: a configured server, an address, or a command.

use std::ffi::OsString;
use std::sync::Arc;

use crate::app;
use crate::config::{Config, Loaded, ServerConfig, State, expand, inherited_environment, variable};
use crate::domain::nearest::nearest;
use crate::fleet::bridge::{BridgeError, Cause};
use crate::fleet::credentials::Credentials;
use crate::fleet::link::stdio::{Children, Stdio};
use crate::fleet::link::{Opener, for_endpoint};
use crate::fleet::oauth::{Absent, filed_under};
use crate::fleet::web::Endpoint;
use crate::mcp::lines::FRAME_BYTES_MAX;
use crate::sandbox::{Policy, Spec};

use super::fault::{Exit, Fault};
use super::out;

/// Why a server was not reached, in the exit code that scripts know.
pub(super) fn failed(what: &str, name: &str, error: &BridgeError) -> Fault {
    let exit = match error.source {
        Cause::Unauthorized(_) => Exit::AuthenticationNeeded,
        Cause::Answered { .. } => Exit::ToolError,
        _ => Exit::Unreachable,
    };
    Fault::new(exit, format!("{what} {}: {}", out::visible(name), out::visible(&error.to_string())))
}

/// What every command that connects takes.
#[derive(clap::Args)]
pub(super) struct Extras {
    /// Give the command this variable too: NAME=VALUE, or NAME to pass yours on
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Send this header too: `Name: value`; `${VAR}` in it is filled in, so that a secret need not be typed
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
}

/// Something to connect to.
pub(super) struct Reach {
    /// What it is called, without what may be secret in it.
    pub(super) name: String,
    pub(super) opener: Box<dyn Opener>,
    /// Its configuration, if it has one.
    pub(super) configured: Option<ServerConfig>,
}

/// A server's name, an address, or a command with its arguments in one text.
pub(super) fn named(text: &str, loaded: &Loaded, extras: &Extras) -> Result<Reach, Fault> {
    let config = &loaded.config;
    if text.contains("://") {
        return address(text, config, extras);
    }
    if let Some(server) = config.servers.iter().find(|server| server.name == text) {
        let configured = match &server.state {
            State::Ready(configured) if server.trusted => configured,
            State::Ready(_) => {
                return Err(unusable(text, &server.distrust().unwrap_or_default()));
            }
            State::Disabled { reason, .. } => return Err(unusable(text, reason)),
        };
        let credentials = match &configured.url {
            Some(url) => credentials(text, url.value(), Some(configured), config)?,
            None => None,
        };
        let policy = app::policy_for(server, configured, loaded).map_err(|reason| unusable(text, &reason))?;
        let opener = app::opener(text, configured, credentials, policy)
            .map_err(|cause| unusable(text, &cause.to_string()))?;
        return Ok(Reach { name: text.to_owned(), opener, configured: Some((**configured).clone()) });
    }
    let words = words(text)?;
    let is_one_word = words.len() == 1 && !text.contains('/');
    if let Some(known) =
        nearest(text, config.servers.iter().map(|server| server.name.as_str())).filter(|_| is_one_word)
    {
        let what = format!("no server `{}` is configured; did you mean `{known}`?", out::visible(text));
        return Err(Fault::new(Exit::Usage, what));
    }
    command(&words, extras)
}

/// A command and its arguments.
pub(super) fn command(words: &[OsString], extras: &Extras) -> Result<Reach, Fault> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Fault::new(Exit::Usage, "name a server, an address, or a command after `--`"));
    };
    if !extras.header.is_empty() {
        return Err(Fault::new(Exit::Usage, "--header is for addresses; a command gets --env"));
    }
    let mut environment = inherited_environment();
    for given in &extras.env {
        let pair = given.split_once('=').map(|(name, value)| (name.into(), value.into()));
        let own = || variable(given).map(|value| (given.into(), value.into()));
        let what = || format!("--env {}: it is not set here; give it as NAME=VALUE", out::visible(given));
        environment.push(pair.or_else(own).ok_or_else(|| Fault::new(Exit::Usage, what()))?);
    }
    let name = program.to_string_lossy().into_owned();
    let spec = Spec { program: program.clone(), arguments: arguments.to_vec(), environment, directory: None };
    Ok(Reach {
        name,
        opener: Box::new(Stdio {
            spec,
            policy: Policy::off(),
            frame_bytes_max: FRAME_BYTES_MAX,
            children: Children::default(),
        }),
        configured: None,
    })
}

fn address(url: &str, config: &Config, extras: &Extras) -> Result<Reach, Fault> {
    if !extras.env.is_empty() {
        return Err(Fault::new(Exit::Usage, "--env is for commands; an address gets --header"));
    }
    let usage = |what: String| Fault::new(Exit::Usage, what);
    let mut endpoint = Endpoint::new(url).map_err(|cause| usage(cause.to_string()))?;
    let name = endpoint.shown();
    for header in &extras.header {
        let (header, value) =
            header.split_once(':').ok_or_else(|| usage("--header takes `Name: value`".to_owned()))?;
        let value = expand(value.trim()).map_err(usage)?;
        endpoint = endpoint.with_header(header.trim(), &value).map_err(|cause| usage(cause.to_string()))?;
    }
    if let Some(credentials) = credentials(&name, url, None, config)? {
        endpoint = endpoint.with_credentials(credentials);
    }
    Ok(Reach { name, opener: for_endpoint(endpoint), configured: None })
}

/// What was granted by `colibri auth login` before. A command that connects asks nobody; an address that
/// cannot be signed in to (it holds a password of its own) has no need of it.
fn credentials(
    name: &str,
    url: &str,
    configured: Option<&ServerConfig>,
    config: &Config,
) -> Result<Option<Arc<dyn Credentials>>, Fault> {
    if filed_under(url).is_err() {
        return Ok(None);
    }
    let logger = app::stderr_logger(config.log);
    let oauth = app::oauth(name, url, configured, &config.data_dir, Arc::new(Absent), &logger);
    oauth.map(|oauth| Some(Arc::new(oauth) as _)).map_err(|error| unusable(name, &error.to_string()))
}

pub(super) fn unusable(name: &str, reason: &str) -> Fault {
    let what = format!("the server `{}` cannot be used: {}", out::visible(name), out::visible(reason));
    Fault::new(Exit::ConfigInvalid, what)
}

/// A command line as a shell would split it: blanks separate, quotes and backslashes hold together.
fn words(text: &str) -> Result<Vec<OsString>, Fault> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let (mut quote, mut letters) = (None, text.chars());
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some(open), _) if letter == open => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, _) if letter.is_whitespace() => words.extend(word.take().map(OsString::from)),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(Fault::new(Exit::Usage, "a quote in the command is not closed"));
    }
    words.extend(word.map(OsString::from));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        for (text, expected) in [
            ("npx -y server", "npx|-y|server"),
            (r#"  a 'b c' "d \" e" f\ g '' "#, r#"a|b c|d " e|f g|"#),
            ("a'b'c", "abc"),
            ("", ""),
        ] {
            let words: Vec<String> = words(text)
                .expect("it splits")
                .into_iter()
                .map(|word| word.into_string().expect("text"))
                .collect();
            assert_eq!(words.join("|"), expected, "{text}");
        }
        assert!(words("a 'b").is_err());
    }
}
