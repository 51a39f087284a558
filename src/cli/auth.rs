//! `colibri auth`: signing in to servers that demand it, signing out, and what is kept.
//!
//! No token is ever printed: not by `status`, not by `--json`, not in an error.

use std::io::{BufRead, IsTerminal, Read};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::app::{self, SystemClock};
use crate::config::{Config, Server, ServerConfig, State, variable};
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::grant::{Freshness, Grant, Vault, VaultError};
use crate::domain::log::Logger;
use crate::domain::nearest::nearest;
use crate::fleet::oauth::{Loopback, OAuthError, filed_under};
use crate::fleet::web::shown;
use crate::sandbox::browser;
use crate::store::TokenFiles;

use super::Session;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri auth login github                     a server of the configuration
  colibri auth login https://example.com/mcp    any server, by its address
  colibri auth login github --scope repo        and ask for more than it demands
  colibri auth status                           who is signed in where, and until when
  colibri auth logout github                    forget what was granted

On a machine without a browser, open the address elsewhere; then paste here the address to which the
browser was sent, though it shows nothing.";

/// What a redirect's address takes at most, many times over.
const PASTED_BYTES_MAX: u64 = 1 << 20;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Sign in to a server
    Login(Login),
    /// Forget what a server has granted
    Logout {
        /// Its name in the configuration, or its address
        server: String,
    },
    /// Show what is kept, without showing it
    Status {
        /// Its name in the configuration, or its address; all, if none is named
        server: Option<String>,
    },
}

#[derive(clap::Args)]
pub(super) struct Login {
    /// Its name in the configuration, or its address
    server: String,
    /// Also ask for this scope
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// The port to which the browser is sent back, in place of any that is free
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// How long to wait for you, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    /// Only show the address
    #[arg(long)]
    no_browser: bool,
    /// Take the address to which the browser was sent from stdin, also where stdin is no terminal
    #[arg(long)]
    paste: bool,
}

pub(super) fn run(session: &Session, command: &Command) -> Result<(), Fault> {
    let (loaded, logger) = session.load()?;
    let config = &loaded.config;
    let files = TokenFiles::below(&config.data_dir);
    match command {
        Command::Login(login) => sign_in(session, config, &logger, login),
        Command::Logout { server } => sign_out(&files, &find(server, config)?),
        Command::Status { server: Some(server) } => status_of(session, &files, &find(server, config)?),
        Command::Status { server: None } => status(session, &files, config),
    }
}

/// A server that can be signed in to.
struct Target<'a> {
    name: String,
    url: String,
    /// What its grant is filed under.
    key: String,
    configured: Option<&'a ServerConfig>,
}

fn find<'a>(text: &str, config: &'a Config) -> Result<Target<'a>, Fault> {
    if text.contains("://") {
        let key = filed_under(text)?;
        return Ok(Target { name: shown(text), url: text.to_owned(), key, configured: None });
    }
    let Some(server) = config.servers.iter().find(|server| server.name == text) else {
        let near = nearest(text, config.servers.iter().map(|server| server.name.as_str()));
        let hint = near.map(|near| format!("; did you mean `{}`?", out::visible(near))).unwrap_or_default();
        let what = format!("no server `{}` is configured{hint}", out::visible(text));
        return Err(Fault::new(Exit::Usage, what));
    };
    target(server)?.ok_or_else(|| {
        let what =
            format!("`{}` is a program, not an address: there is nobody to sign in to", out::visible(text));
        Fault::new(Exit::Usage, what)
    })
}

fn target(server: &Server) -> Result<Option<Target<'_>>, Fault> {
    let unusable = |reason: &str| {
        let name = out::visible(&server.name);
        Fault::new(
            Exit::ConfigInvalid,
            format!("the server `{name}` cannot be used: {}", out::visible(reason)),
        )
    };
    let configured = match &server.state {
        // What it says about secrets of the environment would be believed.
        State::Ready(_) if !server.trusted => {
            return Err(unusable(&server.distrust().unwrap_or_default()));
        }
        State::Ready(configured) => configured,
        State::Disabled { reason, .. } => return Err(unusable(reason)),
    };
    let Some(url) = &configured.url else { return Ok(None) };
    let key = filed_under(url.value()).map_err(|error| unusable(&error.to_string()))?;
    let (name, url) = (server.name.clone(), url.value().to_owned());
    Ok(Some(Target { name, url, key, configured: Some(configured) }))
}

fn sign_in(session: &Session, config: &Config, logger: &Logger, login: &Login) -> Result<(), Fault> {
    let target = find(&login.server, config)?;
    let has_header =
        |server: &ServerConfig| server.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
    if target.configured.is_some_and(has_header) {
        let what = "its `headers` already say who you are (`Authorization`); remove that to sign in";
        return Err(Fault::new(Exit::Usage, what));
    }
    let port = login.port.or(target.configured.and_then(|server| server.oauth.callback_port));
    let is_desk = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let may_open = is_desk && !login.no_browser && has_display();
    let name = out::visible(&target.name);
    let mut person = Loopback::new(port, Duration::from_secs(login.wait), move |address| {
        let opened = may_open && browser::open(address);
        let how = if opened { "Your browser was asked to open" } else { "Open" };
        // Whoever cannot read this cannot sign in; the wait then ends by itself.
        let _ =
            out::talk(&format!("{how} this address to sign in to {name}:\n\n  {}\n", out::visible(address)));
    });
    if login.paste || std::io::stdin().is_terminal() {
        person = person.or_pasted(pasted());
    }
    let (url, configured) = (&target.url, target.configured);
    let oauth = app::oauth(&target.name, url, configured, &config.data_dir, Arc::new(person), logger);
    let grant = block_on(oauth?.login(&login.scope))??;
    tell(session, &target, Some(&grant))
}

/// Lines from stdin. The thread ends with the process: nothing else reads there.
fn pasted() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let stdin = std::io::stdin().lock().take(PASTED_BYTES_MAX);
        for line in stdin.lines().map_while(Result::ok) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Without a display the desktop's opener would start a browser in this terminal.
fn has_display() -> bool {
    cfg!(target_os = "macos") || variable("DISPLAY").is_some() || variable("WAYLAND_DISPLAY").is_some()
}

fn sign_out(files: &TokenFiles, target: &Target<'_>) -> Result<(), Fault> {
    let forgotten = block_on(async {
        // A renewal under way must not put back what is taken away.
        let _hold = files.hold(&target.key).await?;
        files.forget(&target.key).await
    })?;
    let name = out::visible(&target.name);
    if forgotten? {
        out::line(&format!("signed out of {name}; what was granted may hold at the server until it expires"))
    } else {
        out::line(&format!("nothing was kept for {name}"))
    }
}

fn status_of(session: &Session, files: &TokenFiles, target: &Target<'_>) -> Result<(), Fault> {
    let grant = block_on(files.load(&target.key))??;
    tell(session, target, grant.as_ref())?;
    let held = Held::of(grant.as_ref(), SystemClock::start().now().wall);
    if held == Held::SignedIn { Ok(()) } else { Err(Fault::told(Exit::AuthenticationNeeded)) }
}

fn status(session: &Session, files: &TokenFiles, config: &Config) -> Result<(), Fault> {
    let (mut grants, damaged) = files.all()?;
    let mut rows = Vec::new();
    // What cannot be used is told by `config show` and `doctor`.
    for target in config.servers.iter().filter_map(|server| target(server).ok().flatten()) {
        let at = grants.iter().position(|grant| grant.server == target.key);
        let grant = at.map(|at| grants.remove(at));
        rows.push((target, grant));
    }
    for grant in grants {
        let (url, key) = (grant.server.clone(), grant.server.clone());
        rows.push((Target { name: shown(&url), url, key, configured: None }, Some(grant)));
    }
    let now = SystemClock::start().now().wall;
    if session.json {
        let all: Vec<Value> =
            rows.iter().map(|(target, grant)| described(target, grant.as_ref(), now)).collect();
        out::json(&all)?;
    } else if rows.is_empty() {
        out::line("no server on the network is configured, and none has granted anything")?;
    } else {
        let cells = rows.iter().map(|(target, grant)| cells(target, grant.as_ref(), now)).collect::<Vec<_>>();
        out::table(&["SERVER", "STATE", "ISSUER", "SCOPES", "EXPIRES", "RENEWS"], &cells)?;
    }
    for error in damaged {
        out::talk(&format!("colibri: {}", out::visible(&error.to_string())))?;
    }
    Ok(())
}

/// How far what is kept carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    SignedIn,
    Expired,
    SignedOut,
}

impl Held {
    fn of(grant: Option<&Grant>, now: Timestamp) -> Self {
        match grant.and_then(|grant| grant.tokens.as_ref()) {
            None => Self::SignedOut,
            Some(tokens) if tokens.refresh.is_some() => Self::SignedIn,
            Some(tokens) if tokens.freshness(now) == Freshness::Expired => Self::Expired,
            Some(_) => Self::SignedIn,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::SignedIn => "signed in",
            Self::Expired => "expired",
            Self::SignedOut => "signed out",
        }
    }
}

fn tell(session: &Session, target: &Target<'_>, grant: Option<&Grant>) -> Result<(), Fault> {
    let now = SystemClock::start().now().wall;
    if session.json {
        return out::json(&described(target, grant, now));
    }
    let heads = ["server", "state", "issuer", "scopes", "expires", "renews"];
    for (head, cell) in heads.iter().zip(cells(target, grant, now)).filter(|(_, cell)| !cell.is_empty()) {
        out::line(&format!("{head:<8} {}", out::visible(&cell)))?;
    }
    let wanted = grant.map(|grant| grant.wanted.join(" ")).filter(|wanted| !wanted.is_empty());
    wanted.map_or(Ok(()), |wanted| out::line(&format!("wanted   {}", out::visible(&wanted))))
}

fn cells(target: &Target<'_>, grant: Option<&Grant>, now: Timestamp) -> Vec<String> {
    let tokens = grant.and_then(|grant| grant.tokens.as_ref());
    let expires = tokens.and_then(|tokens| tokens.expires_at).map(|at| at.to_string()).unwrap_or_default();
    let renews = tokens.map_or("", |tokens| if tokens.refresh.is_some() { "yes" } else { "no" });
    vec![
        target.name.clone(),
        Held::of(grant, now).words().to_owned(),
        grant.and_then(|grant| grant.issuer.clone()).unwrap_or_default(),
        grant.map(|grant| grant.scopes.join(" ")).unwrap_or_default(),
        expires,
        renews.to_owned(),
    ]
}

fn described(target: &Target<'_>, grant: Option<&Grant>, now: Timestamp) -> Value {
    let tokens = grant.and_then(|grant| grant.tokens.as_ref());
    json!({
        "server": target.name,
        "url": shown(&target.url),
        "state": Held::of(grant, now).words(),
        "issuer": grant.and_then(|grant| grant.issuer.as_ref()),
        "clientId": grant.map(|grant| &grant.client.id),
        "scopes": grant.map_or(&[][..], |grant| &grant.scopes),
        "wanted": grant.map_or(&[][..], |grant| &grant.wanted),
        "expiresAt": tokens.and_then(|tokens| tokens.expires_at).map(|at| at.to_string()),
        "refreshable": tokens.is_some_and(|tokens| tokens.refresh.is_some()),
    })
}

impl From<OAuthError> for Fault {
    fn from(error: OAuthError) -> Self {
        let exit = match &error {
            OAuthError::Settings(_) => Exit::Usage,
            OAuthError::Vault(_) => Exit::Unexpected,
            error if error.is_passing() => Exit::Unreachable,
            _ => Exit::AuthenticationNeeded,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<VaultError> for Fault {
    fn from(error: VaultError) -> Self {
        OAuthError::from(error).into()
    }
}
