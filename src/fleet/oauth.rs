//! OAuth to a server that demands it: the [`Credentials`] of one server's link.
//!
//! Owns: when a token is had, renewed, stepped up or given up, one attempt at a time.
//! Uses: rmcp's OAuth client for the protocol (`authority`), a [`Vault`] for what must outlive the
//! process, a [`Person`] for what only a person can grant.
//! Must not know: which link sends the requests, or where the vault is.
//!
//! A token is sent to the server it was granted for and to nobody else; a refresh token to the issuer
//! that granted it and to nobody else. Neither appears in an error or a log line.

mod address;
mod assertion;
mod authority;
mod demand;
mod error;
mod explain;
mod loopback;
mod memory;
mod person;
mod renewal;
mod wire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;

use crate::domain::audit::Pending;
use crate::domain::clock::Clock;
use crate::domain::grant::{Client, Freshness, Grant, Secret, Tokens, Vault, VaultError};
use crate::domain::log::Logger;

use super::credentials::{Credentials, Refusal};
use super::error::Cause;

pub use error::OAuthError;
pub use loopback::Loopback;
pub use memory::MemoryVault;
pub use person::{Absent, Person, Visit};

use address::Reach;
use authority::Authority;
use demand::{Demand, demand, union};
use error::{login_command, shown};
use renewal::{Outcome, Wish};
use wire::Wire;

/// How long a token that still holds is used as it is, once it could not be renewed.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What there is to know about one server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the person calls it: the remedy names it so.
    pub name: String,
    /// Its address.
    pub url: String,
    /// Who colibri is to its authorization server.
    pub identity: Identity,
    /// What to ask for, in place of what the server says.
    pub scopes: Vec<String>,
    /// On whose behalf.
    pub flow: Flow,
    /// Whether its authorization server may lie in a private network though it does not itself.
    pub allow_private_addresses: bool,
    /// Hosts that requests pass through, wherever they lie.
    pub proxy_hosts: Vec<String>,
}

impl Settings {
    /// A server of which nothing is known but its address.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            identity: Identity::default(),
            scopes: Vec::new(),
            flow: Flow::default(),
            allow_private_addresses: false,
            proxy_hosts: Vec::new(),
        }
    }
}

/// Who colibri is to an authorization server. With nothing set it registers itself.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// A client registered beforehand.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// Its private key in PEM, in place of a secret, for a client that acts for itself.
    pub client_key: Option<Secret>,
    /// The address of a document that describes the client, for authorization servers that read such.
    pub client_metadata_url: Option<String>,
}

/// On whose behalf a token is had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// A person's, who is asked once.
    #[default]
    Person,
    /// The client's own, with its secret or its key.
    ClientCredentials,
}

/// What the flow needs of the outside.
#[derive(Clone)]
pub struct Ports {
    /// Where grants are kept.
    pub vault: Arc<dyn Vault>,
    /// Who can say yes.
    pub person: Arc<dyn Person>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where lines for people go.
    pub logger: Logger,
}

/// The credentials of one server. A cheap handle.
#[derive(Clone)]
pub struct OAuth {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    server: Url,
    ports: Ports,
    wire: Arc<Wire>,
    current: Mutex<Current>,
    /// One attempt at a time: ten requests that are refused together need one new token.
    turn: tokio::sync::Mutex<Turn>,
}

/// What requests are sent with.
#[derive(Default)]
struct Current {
    grant: Option<Grant>,
    /// Whether the vault could not take it.
    is_unsaved: bool,
}

/// What whoever renews knows from the last time.
#[derive(Default)]
struct Turn {
    authority: Option<Authority>,
    registered: Option<Registered>,
    /// What was last asked for, granted or not.
    asked: Vec<String>,
    step_ups: u32,
    /// When a token was last renewed before its end, or could not be.
    tried_at: Option<Instant>,
    /// When a token was last renewed because it was refused.
    renewed_at: Option<Instant>,
}

/// Who we are to whom, with which way back.
struct Registered {
    issuer: Option<String>,
    redirect_uri: String,
    client: Client,
}

impl OAuth {
    /// The credentials of a server. Nothing is asked of anybody yet.
    pub fn new(settings: Settings, ports: Ports) -> Result<Self, OAuthError> {
        let server = address(&settings.url)?;
        let reach = Reach::of(&server, settings.allow_private_addresses, &settings.proxy_hosts);
        let wire = Arc::new(Wire::new(reach)?);
        let (current, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { inner: Arc::new(Inner { settings, server, ports, wire, current, turn }) })
    }

    /// Lets the person sign in now, whatever is held already. `scopes` are asked for besides.
    pub async fn login(&self, scopes: &[String]) -> Result<Grant, OAuthError> {
        let mut turn = self.inner.turn.lock().await;
        if self.inner.settings.flow == Flow::ClientCredentials {
            let wish = Wish { scopes: scopes.to_vec(), rediscover: true, insist: true, ..Wish::default() };
            self.inner.renew(&mut turn, wish).await?;
        } else {
            self.inner.login(&mut turn, Why::Asked, None, scopes.to_vec()).await?;
        }
        let (granted, is_unsaved) = self.inner.current(|current| (current.grant.clone(), current.is_unsaved));
        if is_unsaved {
            let message = "what was granted could not be written; it is lost with this process";
            return Err(OAuthError::Vault(VaultError(message.to_owned())));
        }
        granted.ok_or(OAuthError::NotAccepted)
    }
}

/// What a server's grant is filed under: its address, spelt one way.
pub fn filed_under(url: &str) -> Result<String, OAuthError> {
    address(url).map(|url| url.to_string())
}

fn address(url: &str) -> Result<Url, OAuthError> {
    let wrong = |what: &str| OAuthError::Settings(format!("the server's address {what}"));
    let url = url.trim();
    // Metadata and refusals come by HTTP; what a WebSocket is, it becomes after that.
    let plain = [("ws://", "http://"), ("wss://", "https://")].into_iter().find_map(|(socket, plain)| {
        let head = url.get(..socket.len())?;
        head.eq_ignore_ascii_case(socket).then(|| format!("{plain}{}", &url[socket.len()..]))
    });
    let mut url = Url::parse(plain.as_deref().unwrap_or(url)).map_err(|_| wrong("is not one"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("is none of http, https, ws and wss"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("holds a user name or a password"));
    }
    url.set_fragment(None);
    Ok(url)
}

impl Credentials for OAuth {
    fn authorization(&self) -> Pending<'_, Result<Option<String>, Cause>> {
        Box::pin(async { Ok(self.inner.authorization().await?) })
    }

    fn refused(&self, refusal: Refusal) -> Pending<'_, Result<(), Cause>> {
        Box::pin(async move { Ok(self.inner.refused(&refusal).await?) })
    }
}

/// Why a person is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// They asked for it themselves.
    Asked,
    /// The server refused what we have, or that we have nothing.
    Refused,
    /// The server demands more.
    StepUp,
}

impl Inner {
    async fn authorization(self: &Arc<Self>) -> Result<Option<String>, OAuthError> {
        let Some(access) = self.held().await? else { return Ok(None) };
        match self.freshness() {
            Freshness::Fresh => {}
            // What still holds is used to its end.
            Freshness::Waning => {
                if let Err(error) = self.renew_stale(access, RETRY_AFTER).await {
                    self.log(format_args!("cannot renew its token yet: {error}"));
                }
            }
            Freshness::Expired => match self.renew_stale(access, Duration::ZERO).await {
                Ok(true) => {}
                Err(error) if error.is_passing() => return Err(error),
                // What is over is not sent, and the server's refusal tells how to go on.
                Ok(false) | Err(_) => return Ok(None),
            },
        }
        Ok(self.access().as_ref().map(header))
    }

    /// Renews a token before the server has to refuse it; tells whether there is another one. Not tried
    /// again within `pause` of the last time.
    async fn renew_stale(self: &Arc<Self>, used: Secret, pause: Duration) -> Result<bool, OAuthError> {
        let mut turn = self.turn.lock().await;
        // Whoever had the turn before may have done it.
        if self.access().is_some_and(|now| now != used) {
            return Ok(true);
        }
        if turn.tried_at.is_some_and(|at| at.elapsed() < pause) {
            return Ok(false);
        }
        turn.tried_at = Some(Instant::now());
        let outcome = self.renew(&mut turn, Wish { used: Some(used), ..Wish::default() }).await?;
        if outcome != Outcome::Nothing {
            turn.tried_at = None;
        }
        Ok(outcome != Outcome::Nothing)
    }

    async fn refused(self: &Arc<Self>, refusal: &Refusal) -> Result<(), OAuthError> {
        let mut turn = self.turn.lock().await;
        let used = self.access();
        // While it was under way, or while we waited, another token has come.
        if used.as_ref().is_some_and(|used| refusal.sent.as_ref().map(Secret::expose) != Some(&*header(used)))
        {
            return Ok(());
        }
        let challenge = demand::challenge(refusal).map(ToOwned::to_owned);
        match demand(refusal, &self.server) {
            Demand::Token => self.get_token(&mut turn, challenge).await,
            Demand::Scopes(scopes) => self.step_up(&mut turn, challenge, scopes).await,
            Demand::Nothing(reason) => Err(OAuthError::Forbidden { reason }),
        }
    }

    /// Another token than the one refused: renewed without a person if that goes, else by one.
    async fn get_token(
        self: &Arc<Self>,
        turn: &mut Turn,
        challenge: Option<String>,
    ) -> Result<(), OAuthError> {
        let used = self.access();
        // A token renewed a moment ago and refused again would be renewed for ever.
        let is_settling = turn.renewed_at.is_some_and(|at| at.elapsed() < renewal::SETTLING);
        let only_adopt = is_settling && used.is_some();
        let wish =
            Wish { used, challenge: challenge.clone(), only_adopt, rediscover: true, ..Wish::default() };
        match self.renew(turn, wish).await? {
            Outcome::Nothing => {}
            Outcome::Adopted => return Ok(()),
            Outcome::Renewed => {
                turn.renewed_at = Some(Instant::now());
                return Ok(());
            }
        }
        match self.settings.flow {
            Flow::ClientCredentials => Err(OAuthError::NotAccepted),
            Flow::Person => self.login(turn, Why::Refused, challenge, Vec::new()).await.map(drop),
        }
    }

    /// More than was granted.
    async fn step_up(
        self: &Arc<Self>,
        turn: &mut Turn,
        challenge: Option<String>,
        scopes: Vec<String>,
    ) -> Result<(), OAuthError> {
        let (held, used) = (self.current(|current| current.grant.clone()), self.access());
        let granted = held.map(|grant| grant.scopes).unwrap_or_default();
        let is_granted = scopes.iter().all(|scope| granted.contains(scope));
        let was_asked = scopes.iter().all(|scope| granted.contains(scope) || turn.asked.contains(scope));
        if was_asked || turn.step_ups >= renewal::STEP_UPS_MAX {
            return Err(OAuthError::StillRefused { scopes, granted: is_granted });
        }
        turn.step_ups += 1;
        let all = union(granted, &scopes);
        let wish = Wish { used, challenge: challenge.clone(), scopes: all.clone(), ..Wish::default() };
        if self.renew(turn, Wish { rediscover: true, ..wish }).await? != Outcome::Nothing {
            return Ok(());
        }
        match self.settings.flow {
            Flow::ClientCredentials => Err(OAuthError::StillRefused { scopes, granted: false }),
            Flow::Person => match self.login(turn, Why::StepUp, challenge, all).await {
                Err(OAuthError::NeedsPerson { remedy }) => Err(OAuthError::NeedsScopes { scopes, remedy }),
                done => done.map(drop),
            },
        }
    }

    /// The access token in use; from the vault if there is none yet.
    async fn held(&self) -> Result<Option<Secret>, OAuthError> {
        if let Some(access) = self.access() {
            return Ok(Some(access));
        }
        if let Some(grant) = self.load().await?
            && grant.tokens.is_some()
        {
            // Unless a renewal was quicker.
            self.current(|current| {
                if tokens_of(current).is_none() {
                    current.adopt(grant);
                }
            });
        }
        Ok(self.access())
    }

    /// What the vault holds for this server and the configured client. What was granted to another is not
    /// ours to use.
    async fn load(&self) -> Result<Option<Grant>, OAuthError> {
        let grant = self.ports.vault.load(self.server.as_str()).await?;
        let configured = self.settings.identity.client_id.as_ref();
        Ok(grant.filter(|grant| configured.is_none_or(|id| *id == grant.client.id)))
    }

    fn access(&self) -> Option<Secret> {
        self.current(|current| tokens_of(current).map(|tokens| tokens.access.clone()))
    }

    fn freshness(&self) -> Freshness {
        let now = self.ports.clock.now().wall;
        self.current(|current| tokens_of(current).map_or(Freshness::Expired, |tokens| tokens.freshness(now)))
    }

    fn current<T>(&self, work: impl FnOnce(&mut Current) -> T) -> T {
        work(&mut self.current.lock().expect("nothing panics while it holds the current grant"))
    }

    fn needs_person(&self) -> OAuthError {
        OAuthError::NeedsPerson { remedy: login_command(&self.settings.name) }
    }

    fn log(&self, text: std::fmt::Arguments<'_>) {
        let name = &self.settings.name;
        let name = if name.contains("://") { super::web::shown(name) } else { name.clone() };
        self.ports.logger.warn(format_args!("[oauth] {}: {text}", shown(&name)));
    }
}

impl Current {
    fn adopt(&mut self, grant: Grant) {
        self.grant = Some(grant);
        self.is_unsaved = false;
    }
}

/// What a request is sent with.
fn header(access: &Secret) -> String {
    format!("Bearer {}", access.expose())
}

fn tokens_of(current: &Current) -> Option<&Tokens> {
    current.grant.as_ref()?.tokens.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_spelt_one_way() {
        let filed = |url: &str| filed_under(url).map_err(|error| error.to_string());
        assert_eq!(filed("HTTPS://Example.com:443").as_deref(), Ok("https://example.com/"));
        assert_eq!(filed("http://example.com/mcp#x").as_deref(), Ok("http://example.com/mcp"));
        assert_eq!(filed("WSS://example.com/mcp").as_deref(), Ok("https://example.com/mcp"));
        assert_eq!(filed("http://example.com/mcp?a=b").as_deref(), Ok("http://example.com/mcp?a=b"));
        for wrong in ["example.com", "ftp://example.com", "file:///x", "https://me:canary@example.com", ""] {
            let refused = filed(wrong).unwrap_err();
            assert!(refused.contains("address") && !refused.contains("canary"), "{refused}");
        }
    }
}
