//! Which hosts a child may reach, as plain data: rules from text, and what they say about one target.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The ports of an entry that names none.
const USUAL_PORTS: [u16; 2] = [443, 80];

/// The longest name there is.
const NAME_BYTES_MAX: usize = 253;

/// Rules for hosts: what is not allowed is refused, and what is denied is refused even if it is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// What may be reached.
    pub allowed: Vec<Host>,
    /// What may not, though it is allowed.
    pub denied: Vec<Host>,
}

/// One entry: a name, every name below a domain, or an address; and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    who: Who,
    /// Absent means the ports of HTTPS and HTTP.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Who {
    Name(String),
    /// `*.example.com`, without the star and its dot.
    Below(String),
    Address(IpAddr),
}

/// What a child wants to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// A name in small letters, or an address.
    pub(super) host: String,
    pub(super) port: u16,
}

/// What the rules say about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may be reached, wherever the name leads in the public network.
    Named,
    /// It is this very address, and an entry says so: even if it is private.
    Literal(IpAddr),
    /// No entry names it, or one denies it.
    Refused,
}

impl Host {
    /// Reads `host`, `host:port`, `*.domain`, `address`, `address:port` or `[address]:port`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            |why: &str| format!("sandbox.network: `{text}` {why}; write host, host:port or *.domain:port");
        let (host, port) = split(text).ok_or_else(|| wrong("has no port that is a number"))?;
        if port == Some(0) {
            return Err(wrong("has port 0"));
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self { who: Who::Address(address.to_canonical()), port });
        }
        let host = normal(host);
        let (name, is_below) = host.strip_prefix("*.").map_or((host.as_str(), false), |rest| (rest, true));
        let is_name = !name.is_empty()
            && name.split('.').all(|label| !label.is_empty())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_name {
            return Err(wrong("is no host"));
        }
        let name = name.to_owned();
        Ok(Self { who: if is_below { Who::Below(name) } else { Who::Name(name) }, port })
    }

    fn fits(&self, target: &Target) -> bool {
        let port_fits =
            self.port.map_or_else(|| USUAL_PORTS.contains(&target.port), |port| port == target.port);
        port_fits
            && match &self.who {
                Who::Name(name) => *name == target.host,
                Who::Below(domain) => {
                    let below = target.host.strip_suffix(domain.as_str());
                    // An address lies below no domain, though it may look so.
                    below.is_some_and(|rest| rest.ends_with('.')) && target.address().is_none()
                }
                Who::Address(address) => target.address() == Some(*address),
            }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.who {
            Who::Name(name) => out.write_str(name)?,
            Who::Below(domain) => write!(out, "*.{domain}")?,
            Who::Address(IpAddr::V6(address)) => write!(out, "[{address}]")?,
            Who::Address(address) => write!(out, "{address}")?,
        }
        self.port.map_or(Ok(()), |port| write!(out, ":{port}"))
    }
}

impl Hosts {
    /// Reads a list of entries that may be reached.
    pub fn allowing<T: AsRef<str>>(entries: &[T]) -> Result<Self, String> {
        Self::new(entries, &[])
    }

    /// Reads both lists. A denied entry without a port denies every one.
    pub fn new<T: AsRef<str>>(allowed: &[T], denied: &[T]) -> Result<Self, String> {
        let read =
            |entries: &[T]| entries.iter().map(|entry| Host::parse(entry.as_ref())).collect::<Result<_, _>>();
        Ok(Self { allowed: read(allowed)?, denied: read(denied)? })
    }

    /// Whether an address of this very machine is allowed, so that a client must not go around the proxy
    /// for those.
    pub(in crate::sandbox) fn name_loopback(&self) -> bool {
        let is_loopback = |host: &Host| matches!(host.who, Who::Address(address) if address.is_loopback());
        self.allowed.iter().any(is_loopback)
    }

    pub(super) fn judge(&self, target: &Target) -> Verdict {
        let on_any_port = |host: &Host| Host { port: host.port.or(Some(target.port)), who: host.who.clone() };
        if self.denied.iter().any(|host| on_any_port(host).fits(target))
            || !self.allowed.iter().any(|host| host.fits(target))
        {
            return Verdict::Refused;
        }
        // Only an entry that is an address fits a target that is one.
        target.address().map_or(Verdict::Named, Verdict::Literal)
    }
}

impl Target {
    /// A target from `host:port` as a client writes it.
    pub(super) fn parse(text: &str, usual_port: Option<u16>) -> Option<Self> {
        let (host, port) = split(text)?;
        let host = normal(host);
        let is_sound =
            (1..=NAME_BYTES_MAX).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic());
        is_sound.then_some(Self { host, port: port.or(usual_port)? })
    }

    /// The address, if it is one and no name.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.host.parse::<IpAddr>().ok().map(|address| address.to_canonical())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(out, "[{host}]:{port}") } else { write!(out, "{host}:{port}") }
    }
}

/// The host without brackets, and the port if there is one; nothing if what follows the colon is none.
fn split(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = if rest.is_empty() { None } else { Some(number(rest.strip_prefix(':')?)?) };
        return host.parse::<std::net::Ipv6Addr>().ok().map(|_| (host, port));
    }
    if text.parse::<IpAddr>().is_ok() {
        return Some((text, None));
    }
    match text.split_once(':') {
        None => Some((text, None)),
        Some((host, port)) => Some((host, Some(number(port)?))),
    }
}

fn number(text: &str) -> Option<u16> {
    // `+80` is a number to the standard library, and none here.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(allowed: &[&str], denied: &[&str], target: &str) -> Verdict {
        Hosts::new(allowed, denied).unwrap().judge(&Target::parse(target, None).unwrap())
    }

    #[test]
    fn an_entry_allows_what_it_names_and_nothing_else() {
        for (entry, target, expected) in [
            ("example.com", "example.com:443", true),
            ("example.com", "EXAMPLE.com.:80", true),
            ("example.com", "example.com:8080", false),
            ("example.com:8080", "example.com:8080", true),
            ("example.com:8080", "example.com:443", false),
            ("example.com", "www.example.com:443", false),
            ("example.com", "notexample.com:443", false),
            ("example.com", "example.com.evil.org:443", false),
            ("*.example.com", "www.example.com:443", true),
            ("*.example.com", "a.b.example.com:443", true),
            ("*.example.com", "example.com:443", false),
            ("*.example.com", "notexample.com:443", false),
            ("*.example.com:8443", "www.example.com:8443", true),
            ("*.1", "127.0.0.1:443", false), // A domain never fits an address.
        ] {
            let verdict = judge(&[entry], &[], target);
            assert_eq!(verdict != Verdict::Refused, expected, "{entry} {target}: {verdict:?}");
        }
    }

    #[test]
    fn an_address_is_meant_literally_however_it_is_written() {
        let home = Verdict::Literal("127.0.0.1".parse().unwrap());
        assert_eq!(judge(&["127.0.0.1:99"], &[], "127.0.0.1:99"), home);
        assert_eq!(judge(&["127.0.0.1:99"], &[], "[::ffff:127.0.0.1]:99"), home);
        assert_eq!(judge(&["[::ffff:127.0.0.1]:99"], &[], "127.0.0.1:99"), home);
        assert_eq!(judge(&["127.0.0.1:99"], &[], "127.0.0.2:99"), Verdict::Refused);
        assert_eq!(judge(&["::1"], &[], "[::1]:443"), Verdict::Literal("::1".parse().unwrap()));
        // A name that means the same is still a name.
        assert_eq!(judge(&["localhost:99"], &[], "localhost:99"), Verdict::Named);
        assert_eq!(judge(&["127.0.0.1:99"], &[], "localhost:99"), Verdict::Refused);
        assert_eq!(judge(&["127.0.0.1:99"], &[], "2130706433:99"), Verdict::Refused);
    }

    #[test]
    fn what_is_denied_is_refused_on_every_port() {
        assert_eq!(
            judge(&["*.example.com:99"], &["bad.example.com"], "bad.example.com:99"),
            Verdict::Refused
        );
        assert_eq!(judge(&["*.example.com:99"], &["bad.example.com"], "good.example.com:99"), Verdict::Named);
        assert_eq!(judge(&["a.com:99"], &["a.com:98"], "a.com:99"), Verdict::Named);
    }

    #[test]
    fn what_is_no_host_is_told() {
        for text in
            ["", "*", "*.", "a..b", "https://example.com", "example.com/x", "a b", "a:*", "a:+80", "a:99999"]
        {
            assert!(Host::parse(text).is_err(), "{text}");
        }
        for text in ["a:0", "a*.com", "*.*.com", "user@host", "[::1", "[::1]x", "[a]:1", "1:2:3:"] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
        for text in ["example.com", "example.com:1", "*.example.com:2", "10.0.0.1:3", "[::1]:4"] {
            assert_eq!(Host::parse(text).unwrap().to_string(), text);
        }
    }
}
