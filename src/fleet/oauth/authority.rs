//! A server's authorization server: found, identified to, and asked for tokens.
//!
//! Owns: the use of rmcp's OAuth client, and the translation between its words and ours. rmcp does
//! discovery (RFC 9728, RFC 8414, OpenID), PKCE, the `resource` parameter and the issuer's check; what
//! it keeps between steps lies in a store in memory that nobody else reads.
//! Must not know: when a token is wanted, where grants are kept, or who the person is.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
    ClientCredentialsConfig, CredentialStore, InMemoryCredentialStore, OAuthClientConfig, OAuthTokenResponse,
    StoredCredentials,
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::domain::clock::Timestamp;
use crate::domain::grant::{Client, Grant, Secret, Tokens};

use super::Identity;
use super::assertion::assertion;
use super::error::{OAuthError, shown};
use super::explain::{Step, explain, words};
use super::person::Redirect;
use super::wire::{Wire, host};

/// What colibri calls itself where it registers.
const CLIENT_NAME: &str = "colibri";

/// Metadata leads from place to place, and a hostile one to many: no further than this, and no longer.
const DISCOVERY_REQUESTS_MAX: usize = 32;
const DISCOVERY_TIMEOUT: Duration = Duration::from_mins(1);

/// A token that can stand in a header, and that fits one.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// An authorization server, as a server's metadata names it.
pub(super) struct Authority {
    manager: AuthorizationManager,
    scratch: InMemoryCredentialStore,
    metadata: AuthorizationMetadata,
    /// Nothing was published; the addresses are those of the oldest revision's default.
    is_guessed: bool,
    server: Url,
    wire: Arc<Wire>,
}

/// What an authorization server gave.
pub(super) struct Obtained {
    pub(super) tokens: Tokens,
    pub(super) scopes: Vec<String>,
}

/// Why a refresh token bought nothing.
pub(super) enum NotRefreshed {
    /// It is of no use any more.
    Rejected,
    /// Something else.
    Failed(OAuthError),
}

impl Authority {
    /// Looks for the server's authorization server, beginning with what it said when it refused.
    pub(super) async fn discover(
        wire: &Arc<Wire>,
        server: &Url,
        challenge: Option<&str>,
    ) -> Result<Self, OAuthError> {
        match Self::discover_by(Way::Ours, wire, server, challenge).await {
            // rmcp refuses private addresses that are written as numbers, whatever its client says.
            Err(OAuthError::Metadata(_)) if wire.reach().allows_private() => {
                Self::discover_by(Way::Theirs, wire, server, challenge).await
            }
            found => found,
        }
    }

    async fn discover_by(
        way: Way,
        wire: &Arc<Wire>,
        server: &Url,
        challenge: Option<&str>,
    ) -> Result<Self, OAuthError> {
        let mut manager = manager(way, wire, server).await.map_err(|error| words(server, &error))?;
        let scratch = InMemoryCredentialStore::new();
        manager.set_credential_store(scratch.clone());
        wire.take_trouble();
        wire.allow(DISCOVERY_REQUESTS_MAX);
        let found = timeout(DISCOVERY_TIMEOUT, manager.resolve_metadata_from_challenge(challenge)).await;
        wire.allow(usize::MAX);
        let late = |_| OAuthError::Unreachable {
            host: host(server),
            what: "its metadata takes too long".to_owned(),
        };
        let found = found.map_err(late)?.map_err(|error| explain(wire, server, Step::Discovery, error))?;
        let metadata = found.metadata;
        manager.set_metadata(metadata.clone());
        let is_guessed = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
        let this =
            Self { manager, scratch, metadata, is_guessed, server: server.clone(), wire: Arc::clone(wire) };
        this.check_addresses()?;
        Ok(this)
    }

    /// Who it says it is.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.metadata.issuer.as_deref()
    }

    /// Metadata is words of a stranger: an address in it is opened only if it is one to open.
    fn check_addresses(&self) -> Result<(), OAuthError> {
        let metadata = &self.metadata;
        let addresses = [Some(&metadata.authorization_endpoint), Some(&metadata.token_endpoint)];
        for address in addresses.into_iter().chain([metadata.registration_endpoint.as_ref()]).flatten() {
            let url = Url::parse(address)
                .map_err(|_| OAuthError::Metadata("it names something that is no address".to_owned()))?;
            if let Some(reason) = self.wire.reach().refuses(&url) {
                return Err(OAuthError::Address { host: shown(&host(&url)), reason });
            }
        }
        Ok(())
    }

    /// The scopes of a login: those configured, else those the server demanded when it refused, else
    /// those it publishes, else none.
    pub(super) async fn scopes(&self, configured: &[String]) -> Vec<String> {
        if configured.is_empty() {
            return self.manager.select_initial_scopes(&[]).await;
        }
        let mut scopes = configured.to_vec();
        self.add_offline_access(&mut scopes);
        scopes
    }

    /// Without `offline_access` some authorization servers give no refresh token.
    pub(super) fn add_offline_access(&self, scopes: &mut Vec<String>) {
        let offered = self.metadata.scopes_supported.iter().flatten().any(|scope| scope == "offline_access");
        if offered && !scopes.is_empty() && !scopes.iter().any(|scope| scope == "offline_access") {
            scopes.push("offline_access".to_owned());
        }
    }

    /// Settles who colibri is there, in the order of the specification: a client registered beforehand,
    /// a client described by a document, a client registered now.
    pub(super) async fn identify(
        &mut self,
        identity: &Identity,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<Client, OAuthError> {
        let takes_documents = self.metadata.additional_fields.get("client_id_metadata_document_supported")
            == Some(&json!(true));
        let client = match (&identity.client_id, &identity.client_metadata_url) {
            (Some(id), _) => Client { id: id.clone(), secret: identity.client_secret.clone() },
            (None, Some(document)) if takes_documents => {
                if !Url::parse(document).is_ok_and(|url| url.scheme() == "https" && url.path() != "/") {
                    let message = "`oauth.clientMetadataUrl` must be an https address with a path";
                    return Err(OAuthError::Settings(message.to_owned()));
                }
                Client { id: document.clone(), secret: None }
            }
            _ => self.register(redirect_uri, scopes).await?,
        };
        self.present(&client, redirect_uri)?;
        Ok(client)
    }

    async fn register(&mut self, redirect_uri: &str, scopes: &[String]) -> Result<Client, OAuthError> {
        if self.metadata.registration_endpoint.is_none() {
            return Err(OAuthError::NoRegistration);
        }
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        self.wire.take_trouble();
        match self.manager.register_client(CLIENT_NAME, redirect_uri, &scopes).await {
            Ok(registered) => {
                Ok(Client { id: registered.client_id, secret: registered.client_secret.map(Secret::new) })
            }
            // Where nothing was published, a guessed address that refuses says only that.
            Err(_) if self.is_guessed => Err(OAuthError::NoMetadata),
            Err(error) => Err(explain(&self.wire, &self.server, Step::Registration, error)),
        }
    }

    /// Uses this client from now on.
    pub(super) fn present(&mut self, client: &Client, redirect_uri: &str) -> Result<(), OAuthError> {
        let mut config = OAuthClientConfig::new(client.id.clone(), redirect_uri);
        if let Some(secret) = &client.secret {
            config = config.with_client_secret(secret.expose());
        }
        self.manager.configure_client(config).map_err(|error| words(&self.server, &error))
    }

    /// The address to which a person is sent.
    pub(super) async fn authorization_address(&self, scopes: &[String]) -> Result<Url, OAuthError> {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let address = self.manager.get_authorization_url(&scopes).await;
        let address = address.map_err(|error| explain(&self.wire, &self.server, Step::Discovery, error))?;
        Url::parse(&address).map_err(|_| OAuthError::Metadata("its authorization address is none".to_owned()))
    }

    /// Exchanges what the person brought back for tokens.
    pub(super) async fn exchange(
        &self,
        redirect: &Redirect,
        state: &str,
        now: Timestamp,
    ) -> Result<Obtained, OAuthError> {
        self.wire.take_trouble();
        let issuer = redirect.issuer.as_deref();
        let given = self.manager.exchange_code_for_token_with_issuer(&redirect.code, state, issuer).await;
        let given = given.map_err(|error| self.no_token(error))?;
        self.obtained(&given, now).await
    }

    /// Exchanges a grant's refresh token for new tokens. The caller has made sure of the issuer.
    pub(super) async fn refresh(&mut self, grant: &Grant, now: Timestamp) -> Result<Obtained, NotRefreshed> {
        let Some((tokens, refresh)) =
            grant.tokens.as_ref().and_then(|held| Some((held, held.refresh.as_ref()?)))
        else {
            return Err(NotRefreshed::Rejected);
        };
        let (access, refresh) = (tokens.access.expose(), refresh.expose());
        let held = json!({ "access_token": access, "token_type": "bearer", "refresh_token": refresh });
        let held: OAuthTokenResponse =
            serde_json::from_value(held).expect("it has the shape of a token response");
        let stored = StoredCredentials::new(grant.client.id.clone(), Some(held), grant.scopes.clone(), None);
        let failed = NotRefreshed::Failed;
        let server = self.server.to_string();
        self.present(&grant.client, &server).map_err(failed)?;
        self.scratch.save(stored).await.map_err(|error| failed(words(&self.server, &error)))?;
        self.wire.take_trouble();
        match self.manager.refresh_token().await {
            Ok(given) => self.obtained(&given, now).await.map_err(failed),
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                Err(NotRefreshed::Rejected)
            }
            Err(error) => Err(failed(self.no_token(error))),
        }
    }

    /// Gets tokens for colibri itself, on nobody's behalf.
    pub(super) async fn client_credentials(
        &mut self,
        client: &Client,
        scopes: &[String],
        now: Timestamp,
    ) -> Result<Obtained, OAuthError> {
        let Some(secret) = &client.secret else {
            let message = "a client that acts for itself needs a secret or a key";
            return Err(OAuthError::Settings(message.to_owned()));
        };
        let server = self.server.to_string();
        self.present(client, &server)?;
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: client.id.clone(),
            client_secret: secret.expose().to_owned(),
            scopes: scopes.to_vec(),
            resource: Some(self.resource().await),
        };
        let ready = self.manager.validate_client_credentials_metadata(&config);
        let ready = ready.and_then(|()| self.manager.configure_client_credentials(&config));
        ready.map_err(|error| words(&self.server, &error))?;
        self.wire.take_trouble();
        let given = self.manager.exchange_client_credentials(&config).await;
        let given = given.map_err(|error| self.no_token(error))?;
        let mut obtained = self.obtained(&given, now).await?;
        if obtained.scopes.is_empty() {
            // Unsaid means: all that was asked for.
            obtained.scopes = scopes.to_vec();
        }
        Ok(obtained)
    }

    /// The same, for a client that has a key in place of a secret. rmcp would bring a second cryptography.
    pub(super) async fn client_credentials_by_key(
        &mut self,
        client: &Client,
        key: &Secret,
        scopes: &[String],
        now: Timestamp,
    ) -> Result<Obtained, OAuthError> {
        let server = self.server.to_string();
        self.present(client, &server)?;
        let accepted =
            self.metadata.additional_fields.get("token_endpoint_auth_signing_alg_values_supported");
        let accepted: Option<Vec<String>> =
            accepted.and_then(|names| serde_json::from_value(names.clone()).ok());
        let audience = self.issuer().unwrap_or(&self.metadata.token_endpoint);
        let statement = assertion(key, &client.id, audience, accepted.as_deref(), now)?;
        let resource = self.resource().await;
        let mut form = Url::parse("form:/").expect("an address of nothing");
        form.query_pairs_mut()
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
            .append_pair("client_assertion", &statement)
            .append_pair("resource", &resource);
        if !scopes.is_empty() {
            form.query_pairs_mut().append_pair("scope", &scopes.join(" "));
        }
        self.wire.take_trouble();
        let answered =
            self.wire.post_form(&self.metadata.token_endpoint, form.query().unwrap_or_default()).await;
        let unreadable = || self.no_token(AuthError::InternalError(String::new()));
        let answer = answered.ok_or_else(unreadable)?;
        let given: Given = serde_json::from_slice(&answer).map_err(|_| unreadable())?;
        let granted =
            given.scope.as_deref().map(|scope| scope.split_whitespace().map(ToOwned::to_owned).collect());
        Ok(Obtained { tokens: self.tokens(given, now)?, scopes: granted.unwrap_or_else(|| scopes.to_vec()) })
    }

    /// The name that the server's metadata gives to the server. rmcp tells it nowhere but in the address
    /// of a login.
    async fn resource(&self) -> String {
        let address =
            self.manager.get_authorization_url(&[]).await.ok().and_then(|url| Url::parse(&url).ok());
        let told = address.and_then(|url| {
            url.query_pairs().find(|(name, _)| name == "resource").map(|(_, value)| value.into_owned())
        });
        told.unwrap_or_else(|| self.server.to_string())
    }

    async fn obtained(&self, given: &OAuthTokenResponse, now: Timestamp) -> Result<Obtained, OAuthError> {
        let scopes = match self.scratch.load().await {
            Ok(Some(stored)) => stored.granted_scopes,
            _ => Vec::new(),
        };
        let given: Given = serde_json::to_value(given)
            .and_then(serde_json::from_value)
            .map_err(|_| self.no_token(AuthError::InternalError(String::new())))?;
        Ok(Obtained { tokens: self.tokens(given, now)?, scopes })
    }

    fn tokens(&self, given: Given, now: Timestamp) -> Result<Tokens, OAuthError> {
        let unusable = |what: &str| OAuthError::Token {
            host: self.token_host(),
            code: Some(what.to_owned()),
            passing: false,
        };
        if !given.token_type.eq_ignore_ascii_case("bearer") {
            return Err(unusable("the token is not a bearer token"));
        }
        let fits =
            |token: &str| token.len() <= TOKEN_BYTES_MAX && token.bytes().all(|byte| byte.is_ascii_graphic());
        if given.access_token.is_empty() || !fits(&given.access_token) {
            return Err(unusable("the token cannot stand in a header"));
        }
        let expires_at =
            given.expires_in.map(|seconds| Timestamp(now.0.saturating_add(seconds.saturating_mul(1000))));
        Ok(Tokens {
            access: Secret::new(given.access_token),
            refresh: given.refresh_token.filter(|token| !token.is_empty()).map(Secret::new),
            received_at: now,
            expires_at,
        })
    }

    fn no_token(&self, error: AuthError) -> OAuthError {
        explain(&self.wire, &self.server, Step::Token(&self.token_host()), error)
    }

    fn token_host(&self) -> String {
        Url::parse(&self.metadata.token_endpoint).map_or_else(|_| host(&self.server), |url| host(&url))
    }
}

/// What a token response holds, read as anybody else would read it.
#[derive(Deserialize)]
struct Given {
    access_token: String,
    token_type: String,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
    scope: Option<String>,
}

/// Whose HTTP client asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Ours, which knows what went wrong.
    Ours,
    /// rmcp's, around our client and its limits: the only way to private addresses written as numbers.
    Theirs,
}

async fn manager(way: Way, wire: &Arc<Wire>, server: &Url) -> Result<AuthorizationManager, AuthError> {
    if way == Way::Ours {
        return AuthorizationManager::new_with_oauth_http_client(server.clone(), Arc::clone(wire) as _).await;
    }
    let mut manager = AuthorizationManager::new_allowing_private_addresses(server.clone()).await?;
    manager.with_client(wire.client().clone())?;
    Ok(manager)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::response::Response;
    use tokio::net::TcpListener;

    use super::super::address::Reach;
    use super::*;

    /// The way to private addresses written as numbers, shown on loopback: it finds, and it says what is
    /// wrong.
    #[tokio::test]
    async fn the_other_way_finds_and_fails_alike() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let server: Url = format!("{origin}/mcp").parse().unwrap();
        let wire = Arc::new(Wire::new(Reach::of(&server, true, &[])).unwrap());
        let answer = {
            let origin = origin.clone();
            move |request: axum::extract::Request| async move {
                let metadata = json!({
                    "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
                    "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
                });
                let (status, body) = match request.uri().path() {
                    "/.well-known/oauth-authorization-server" => (200, metadata),
                    "/token" => (401, json!({ "error": "invalid_client", "error_description": "canary" })),
                    _ => (404, json!({})),
                };
                let response = Response::builder().status(status).header("content-type", "application/json");
                response.body(Body::from(body.to_string())).unwrap()
            }
        };
        let serving =
            tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        let mut authority = Authority::discover_by(Way::Theirs, &wire, &server, None).await.unwrap();
        assert_eq!(authority.issuer(), Some(origin.as_str()));
        let client = Client { id: "id".to_owned(), secret: Some(Secret::new("canary")) };
        let refused = authority.client_credentials(&client, &[], Timestamp(0)).await.err().unwrap();
        assert!(refused.to_string().contains("invalid_client"), "{refused}");
        assert!(!format!("{refused:?}").contains("canary"));
        let refused = authority.register("http://127.0.0.1:1/callback", &[]).await.unwrap_err();
        assert!(matches!(refused, OAuthError::Registration { .. }), "{refused}");
        serving.abort();
        let _ = serving.await;
        let refused = Authority::discover_by(Way::Theirs, &wire, &server, None).await.err().unwrap();
        assert!(refused.is_passing(), "{refused}");
    }
}
