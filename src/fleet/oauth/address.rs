//! Which addresses a server's metadata may send us to. Metadata is written by whoever runs the server,
//! and a hostile one would like to see requests come from inside our network.
//!
//! The server's own host is always reached, since the person chose it. Any other host must be public,
//! unless the server itself is named by an address of the same kind (loopback or private), or the
//! person allows private ones. What is link-local, reserved or a group address is never reached.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::domain::address::{Kind, kind};

/// What may be reached on behalf of one server.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// The server's own host, and those of proxies: never filtered.
    known: Vec<String>,
    loopback: bool,
    private: bool,
    /// The server itself is reached without TLS, so there is nothing to downgrade.
    plain: bool,
}

impl Reach {
    /// What `server` gives access to, and what the person allows besides.
    pub(super) fn of(server: &Url, allow_private: bool, proxies: &[String]) -> Self {
        let own = named(server);
        let kind = literal(server).map(kind);
        let host = normal(server.host_str().unwrap_or_default());
        let known = proxies.iter().map(|proxy| normal(proxy)).chain([host]).collect();
        Self {
            known,
            loopback: kind == Some(Kind::Loopback) || own == Some(Kind::Loopback),
            private: allow_private || kind == Some(Kind::Private),
            plain: server.scheme() == "http",
        }
    }

    /// Whether a server or the person has let private addresses in.
    pub(super) fn allows_private(&self) -> bool {
        self.private
    }

    /// What speaks against sending anything there; addresses behind a name are looked at when it is resolved.
    pub(super) fn refuses(&self, url: &Url) -> Option<&'static str> {
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Some("it has no host");
        };
        match url.scheme() {
            "https" => {}
            "http" if self.plain => {}
            "http" => return Some("it is not encrypted, though the server is"),
            _ => return Some("it is neither http nor https"),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Some("it holds a user name or a password");
        }
        let kind = literal(url).map(kind).or_else(|| named(url)).unwrap_or(Kind::Public);
        (!self.known.contains(&normal(host)) && !self.admits(kind)).then_some(
            "it lies in a network that the server itself is not in; see `oauth.allowPrivateAddresses`",
        )
    }

    fn admits(&self, kind: Kind) -> bool {
        match kind {
            Kind::Public => true,
            Kind::Loopback => self.loopback,
            Kind::Private => self.private,
            Kind::Never => false,
        }
    }
}

impl Resolve for Reach {
    /// Looks at what a name means at the very moment of connecting, so that it cannot change its meaning
    /// after it was looked at.
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let is_known = this.known.contains(&normal(name.as_str()));
            let admitted: Vec<SocketAddr> =
                found.into_iter().filter(|address| is_known || this.admits(kind(address.ip()))).collect();
            if admitted.is_empty() {
                return Err("every address of this name lies in a network that the server is not in".into());
            }
            Ok(Box::new(admitted.into_iter()) as Addrs)
        })
    }
}

fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The kind that a name has by itself.
fn named(url: &Url) -> Option<Kind> {
    let host = normal(url.host_str()?);
    match host.as_str() {
        "localhost" => Some(Kind::Loopback),
        "metadata" | "metadata.google.internal" | "metadata.azure.internal" => Some(Kind::Never),
        _ => host.ends_with(".localhost").then_some(Kind::Loopback),
    }
}

fn normal(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_opens_only_its_own_kind_of_place() {
        for (server, private, url, admitted) in [
            ("https://mcp.example.com/mcp", false, "https://auth.example.com/token", true),
            ("https://mcp.example.com/mcp", false, "http://auth.example.com/token", false),
            ("https://mcp.example.com/mcp", false, "https://127.0.0.1/token", false),
            ("https://mcp.example.com/mcp", false, "https://[::ffff:127.0.0.1]/token", false),
            ("https://mcp.example.com/mcp", false, "https://localhost/token", false),
            ("https://mcp.example.com/mcp", false, "https://a.localhost./token", false),
            ("https://mcp.example.com/mcp", false, "https://10.0.0.1/token", false),
            ("https://mcp.example.com/mcp", true, "https://10.0.0.1/token", true),
            ("https://mcp.example.com/mcp", true, "https://127.0.0.1/token", false),
            ("https://mcp.example.com/mcp", true, "https://169.254.169.254/token", false),
            ("https://mcp.example.com/mcp", false, "https://metadata.google.internal/token", false),
            ("https://mcp.example.com/mcp", false, "https://me@auth.example.com/token", false),
            ("https://mcp.example.com/mcp", false, "file:///etc/passwd", false),
            ("https://mcp.example.com/mcp", false, "javascript:alert(1)", false),
            ("http://localhost:1/mcp", false, "http://localhost:2/token", true),
            ("http://localhost:1/mcp", false, "http://127.0.0.1:2/token", true),
            ("http://127.0.0.1:1/mcp", false, "http://[::1]:2/token", true),
            ("http://127.0.0.1:1/mcp", false, "http://10.0.0.1/token", false),
            ("http://127.0.0.1:1/mcp", false, "http://169.254.169.254/token", false),
            ("http://10.0.0.4/mcp", false, "http://10.0.0.9/token", true),
            ("http://10.0.0.4/mcp", false, "http://127.0.0.1/token", false),
            ("http://0.0.0.0:1/mcp", false, "http://0.0.0.0:1/token", true), // Its own host.
        ] {
            let reach = Reach::of(&server.parse().unwrap(), private, &[]);
            let refused = reach.refuses(&url.parse().unwrap());
            assert_eq!(refused.is_none(), admitted, "{server} (private: {private}) → {url}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn a_name_is_judged_by_what_it_means_when_it_is_used() {
        let resolve = async |server: &str, name: &str| {
            let reach = Reach::of(&server.parse().unwrap(), false, &["proxy.example".to_owned()]);
            reach.resolve(name.parse().unwrap()).await.is_ok()
        };
        assert!(!resolve("https://mcp.example.com/mcp", "localhost").await);
        assert!(resolve("http://127.0.0.1/mcp", "localhost").await);
        assert!(resolve("http://localhost/mcp", "LOCALHOST").await);
    }
}
