//! The credentials of a configured server, put together: its settings, the private files, the clock.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::config::{OAuthGrant, ServerConfig, variable};
use crate::domain::grant::Secret;
use crate::domain::log::Logger;
use crate::fleet::oauth::{Flow, Identity, OAuth, OAuthError, Person, Ports, Settings};
use crate::store::TokenFiles;

use super::SystemClock;

/// Where the environment may name a proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// The longest keys take a tenth of this.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// What signs in to a server at `url`, as `configured` says if it is configured. `name` is what the
/// person calls it; tokens lie below `data_dir`.
pub fn oauth(
    name: &str,
    url: &str,
    configured: Option<&ServerConfig>,
    data_dir: &Path,
    person: Arc<dyn Person>,
    logger: &Logger,
) -> Result<OAuth, OAuthError> {
    let mut settings = Settings::new(name, url);
    settings.proxy_hosts = proxy_hosts();
    if let Some(oauth) = configured.map(|server| &server.oauth) {
        settings.identity = Identity {
            client_id: oauth.client_id.as_ref().map(|id| id.value().to_owned()),
            client_secret: oauth.client_secret.as_ref().map(|secret| Secret::new(secret.expose())),
            client_key: oauth.client_key_file.as_ref().map(|path| key(path.value())).transpose()?,
            client_metadata_url: oauth.client_metadata_url.clone(),
        };
        settings.scopes.clone_from(&oauth.scopes);
        settings.allow_private_addresses = oauth.allow_private_addresses;
        settings.flow = match oauth.grant {
            OAuthGrant::Person => Flow::Person,
            OAuthGrant::ClientCredentials => Flow::ClientCredentials,
        };
    }
    let ports = Ports {
        vault: Arc::new(TokenFiles::below(data_dir)),
        person,
        clock: Arc::new(SystemClock::start()),
        logger: logger.clone(),
    };
    OAuth::new(settings, ports)
}

/// Read anew for every connection, so that a key can be changed without a word.
fn key(path: &str) -> Result<Secret, OAuthError> {
    let read = File::open(path).and_then(|file| {
        let mut text = String::new();
        file.take(KEY_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    });
    read.map(Secret::new)
        .map_err(|error| OAuthError::Settings(format!("cannot read `oauth.clientKeyFile` {path}: {error}")))
}

/// A proxy may lie anywhere: the person chose it.
fn proxy_hosts() -> Vec<String> {
    let host = |proxy: String| {
        let proxy = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
        reqwest::Url::parse(&proxy).ok()?.host_str().map(ToOwned::to_owned)
    };
    PROXY_VARIABLES.iter().filter_map(|name| variable(name)).filter_map(host).collect()
}
