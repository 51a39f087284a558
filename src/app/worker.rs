//! Servers on the network that are called from a worker process: which they are, and what their workers may touch.
//!
//! Owns: what is left of a server's sandbox settings where the process is colibri's own program and not the server's.

use std::ffi::OsString;

use crate::config::{Isolation, ServerConfig, variable};
use crate::fleet::web::Endpoint;
use crate::sandbox::policy::{Host, Hosts, Network};
use crate::sandbox::{Level, Policy};

/// How a worker finds its way out, if its network is colibri's own.
const PROXIES: [&str; 8] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Where the roots of trust are, if not where the system has them.
const ROOTS: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The program itself, even if its file has been replaced since.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Whether a server is called from workers.
pub(super) fn is_for_workers(server: &ServerConfig) -> bool {
    server.url.is_some() && server.isolation == Isolation::Call
}

/// What a server's workers may touch and use, given what its programs might. They need no files but the roots of
/// trust, and nobody but their server.
pub(super) fn policy_of_workers(policy: Policy, server: &ServerConfig) -> Result<Policy, String> {
    if policy.level == Level::Off {
        return Ok(policy);
    }
    let network = match (&policy.network, policy.level) {
        (Some(Network::Full), _) | (None, Level::Standard | Level::Off) => Network::Full,
        (Some(Network::Hosts(hosts)), _) => with_its_own(hosts.clone(), server)?,
        _ => with_its_own(Hosts::default(), server)?,
    };
    let mut files = policy.files;
    files.allow_read = vec![OWN_PROGRAM.into()];
    files.allow_read.extend(ROOTS.iter().filter_map(|name| variable(name)).flat_map(places));
    files.allow_write.clear();
    Ok(Policy { files, network: Some(network), ..policy })
}

/// A list of hosts with the server's own.
fn with_its_own(mut hosts: Hosts, server: &ServerConfig) -> Result<Network, String> {
    let Some(url) = &server.url else { return Ok(Network::Hosts(hosts)) };
    let url = url.value();
    let endpoint = Endpoint::new(url).map_err(|cause| cause.to_string())?;
    if url.starts_with("ws:") {
        return Err(format!(
            "{} cannot be reached where the network is limited to hosts: use wss, or write \
             \"network\": \"full\"",
            endpoint.shown()
        ));
    }
    let own = endpoint.host_and_port().map(|own| Host::parse(&own)).transpose()?;
    hosts.allowed.extend(own);
    Ok(Network::Hosts(hosts))
}

fn places(list: String) -> Vec<OsString> {
    let absolute = |path| std::path::absolute(path).ok().map(std::path::PathBuf::into_os_string);
    std::env::split_paths(&OsString::from(list)).filter_map(absolute).collect()
}

/// The environment of a worker: what the one HTTP client looks for there, and nothing else.
pub(super) fn environment(policy: &Policy) -> Vec<(OsString, OsString)> {
    let is_whole = *policy.network() == Network::Full;
    let proxies = PROXIES.iter().filter(|_| is_whole);
    let set = |name: &&str| variable(name).map(|value| (OsString::from(name), value.into()));
    ROOTS.iter().chain(proxies).filter_map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(level: Level, network: Option<Network>, url: &str) -> Result<Policy, String> {
        let server = serde_json::json!({ "url": url, "isolation": "call" });
        let server: ServerConfig = serde_json::from_value(server).expect("a server");
        assert!(is_for_workers(&server));
        let mut policy = Policy { level, network, ..Policy::default() };
        policy.files.hidden.push("/data/colibri".into());
        policy.files.allow_read.push("/u/notes".into());
        policy.files.allow_write.push("/u/notes".into());
        policy_of_workers(policy, &server)
    }

    /// SB-4: a worker sees none of the files that a program of the same entry might, and colibri's own even less.
    #[test]
    fn a_worker_has_no_files() {
        for level in [Level::Standard, Level::Strict] {
            let files = check(level, None, "https://example.com/mcp").unwrap().files;
            assert_eq!(files.allow_read[0], OWN_PROGRAM);
            assert!(!files.allow_read.contains(&"/u/notes".into()) && files.allow_write.is_empty());
            assert_eq!(files.hidden, ["/data/colibri"]);
        }
    }

    /// SB-4: a limited network always has the server's own host in it, and no other that was not named.
    #[test]
    fn a_worker_reaches_its_own_server() {
        let hosts = |names: &[&str]| Network::Hosts(Hosts::allowing(names).unwrap());
        let url = "https://user:password@example.com/mcp?key=1";
        let network = |level, network| check(level, network, url).unwrap().network().clone();
        assert_eq!(network(Level::Standard, None), Network::Full);
        assert_eq!(network(Level::Standard, Some(Network::Full)), Network::Full);
        assert_eq!(network(Level::Standard, Some(Network::None)), hosts(&["example.com:443"]));
        assert_eq!(network(Level::Strict, None), hosts(&["example.com:443"]));
        assert_eq!(network(Level::Strict, Some(Network::Full)), Network::Full);
        assert_eq!(network(Level::Strict, Some(hosts(&["a.com"]))), hosts(&["a.com", "example.com:443"]));
        let own = check(Level::Strict, None, "http://[::1]:3000/").unwrap();
        assert_eq!(*own.network(), hosts(&["[::1]:3000"]));
    }

    #[test]
    fn a_plain_websocket_needs_the_whole_network() {
        let error = check(Level::Strict, None, "ws://user:secret@example.com/mcp").unwrap_err();
        assert!(error.contains("use wss") && !error.contains("secret"), "{error}");
        assert!(check(Level::Standard, None, "ws://example.com/mcp").is_ok());
        assert!(check(Level::Strict, None, "wss://example.com/mcp").is_ok());
    }
}
