//! From a server's configuration to the policy it runs under. What cannot be held as it is written is
//! refused here, before anything starts.
//!
//! Owns: the meeting of `config` and `sandbox`, neither of which knows the other.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{
    Isolation, Loaded, Network as Written, NetworkWhole, Origin, SandboxLevel, Server, ServerConfig,
    is_in_own_folder, variable,
};
use crate::sandbox::policy::{Files, Hosts, Limits, Network};
use crate::sandbox::{Layer, Level, Policy};
use crate::store::Paths;

use super::operator::place::folders;
use super::worker::{is_for_workers, policy_of_workers};

/// Resident memory of a process that lives as long as one call.
const CALL_MEMORY_BYTES: u64 = 256 << 20;

/// A call may keep as many processors busy for as long as it may take.
const CALL_PROCESSORS: u32 = 2;

/// What a server's paths are relative to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// The folder of the file that configures it.
    pub folder: &'a Path,
    /// What `~` stands for.
    pub home: Option<&'a Path>,
    /// What is colibri's own.
    pub own: &'a Own,
}

/// What is colibri's own: see [`own_places`].
#[derive(Debug, Default)]
pub struct Own {
    /// What no server may reach.
    pub hidden: Vec<OsString>,
    /// What none may change.
    pub read_only: Vec<OsString>,
}

/// The policy of a configured server: its paths are relative to its file, and colibri's own files are out of
/// its reach.
pub fn policy_for(server: &Server, configured: &ServerConfig, loaded: &Loaded) -> Result<Policy, String> {
    let folder = match &server.origin {
        Origin::File { path, .. } => path.parent(),
        Origin::Flag(_) | Origin::Env(_) | Origin::Default => None,
    };
    let (own, home) = (own_places(loaded), variable("HOME").map(PathBuf::from));
    let folder = folder.unwrap_or(Path::new("."));
    let policy = policy_of(configured, Places { folder, home: home.as_deref(), own: &own })?;
    if is_for_workers(configured) { policy_of_workers(policy, configured) } else { Ok(policy) }
}

/// The policy of a server, or what is wrong with its configuration.
pub(super) fn policy_of(server: &ServerConfig, places: Places<'_>) -> Result<Policy, String> {
    let level = match server.sandbox.level {
        // What it says is still read by colibri, which does not listen to a line without end.
        SandboxLevel::Off => {
            let limits = Limits { output_bytes: limits_of(server).output_bytes, ..Limits::none() };
            return Ok(Policy { limits, ..Policy::off() });
        }
        SandboxLevel::Standard => Level::Standard,
        SandboxLevel::Strict => Level::Strict,
    };
    let known = || Layer::ALL.map(Layer::name).join(", ");
    let layer = |name: &String| {
        Layer::named(name).ok_or_else(|| {
            format!("sandbox.allowDegraded: there is no layer `{name}`; the layers are {}", known())
        })
    };
    let allow_degraded = server.sandbox.allow_degraded.iter().map(layer).collect::<Result<_, _>>()?;
    let written = &server.sandbox.filesystem;
    let resolve =
        |paths: &[String]| paths.iter().map(|path| resolve(path, places)).collect::<Result<Vec<_>, _>>();
    let mut files = Files {
        hidden: resolve(&written.deny_read)?,
        read_only: resolve(&written.deny_write)?,
        allow_read: resolve(&written.allow_read)?,
        allow_write: resolve(&written.allow_write)?,
    };
    let policy = Policy { level, allow_degraded, ..Policy::default() };
    if policy.allow_degraded.contains(&Layer::Namespace)
        && !(files.hidden.is_empty() && files.read_only.is_empty())
    {
        return Err("sandbox.filesystem: denyRead and denyWrite need the layer `namespace`, which \
                    allowDegraded lets be missing; leave out one or the other"
            .to_owned());
    }
    files.hidden.extend_from_slice(&places.own.hidden);
    files.read_only.extend_from_slice(&places.own.read_only);
    Ok(Policy { limits: limits_of(server), files, network: network_of(server)?, ..policy })
}

/// colibri's own files: the data folder whole, the database and what lies beside it, the sockets by which it takes
/// commands, and every configuration file, by its folder where the folder is colibri's own. What is not there cannot be
/// covered: a store is opened first, and its files stay the same ones. What servers have from an `envFile` they may read, as
/// any file of the user's, but a line that one writes there is in another's environment.
pub fn own_places(loaded: &Loaded) -> Own {
    let config = &loaded.config;
    let mut places = vec![config.data_dir.clone()];
    for folder in folders(config) {
        // Another colibri may make it while a server runs.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        places.push(folder);
    }
    // A folder that cannot be written is no more writable for a server.
    let _ = Paths::beside(&config.database).take_names();
    places.extend(named_like(&config.database));
    // SQLite follows a link, and keeps its own files where that leads.
    places.extend(std::fs::canonicalize(&config.database).iter().flat_map(|target| named_like(target)));
    for looked in &loaded.files {
        let own = looked.path.parent().filter(|_| is_in_own_folder(&looked.path));
        if looked.found || own.is_some_and(Path::exists) {
            places.push(own.unwrap_or(&looked.path).to_owned());
        }
        // Who keeps it elsewhere and links to it wants that covered too.
        places.extend(std::fs::canonicalize(&looked.path).ok().filter(|target| *target != looked.path));
    }
    // A relative database is relative to here.
    let absolute = |place: &PathBuf| Some(std::path::absolute(place).ok()?.into_os_string());
    Own {
        hidden: places.iter().filter_map(absolute).collect(),
        read_only: loaded.env_files().keys().filter_map(absolute).collect(),
    }
}

/// A database, and what lies beside it under its name and more.
fn named_like(database: &Path) -> Vec<PathBuf> {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = database.file_name().unwrap_or_default().as_encoded_bytes();
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = beside.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(name));
    named.map(|entry| entry.path()).collect()
}

fn resolve(path: &str, places: Places<'_>) -> Result<OsString, String> {
    if path.contains(['*', '?', '[']) {
        return Err(format!("sandbox.filesystem: `{path}` is a pattern; name folders or files"));
    }
    let resolved = match (path.strip_prefix('~'), places.home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => places.folder.join(path),
    };
    if resolved.is_absolute() {
        Ok(resolved.into_os_string())
    } else {
        Err(format!("sandbox.filesystem: `{path}` is relative to nothing; write the whole path"))
    }
}

fn limits_of(server: &ServerConfig) -> Limits {
    let (written, usual) = (&server.limits, Limits::default());
    let is_call = server.isolation == Isolation::Call;
    let megabytes = |count: Option<u32>| count.map(|count| u64::from(count) << 20);
    let cpu = written.cpu_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let of_a_call = Duration::from_millis(server.timeout.0) * CALL_PROCESSORS;
    Limits {
        memory_bytes: megabytes(written.memory_mb).or(if is_call {
            Some(CALL_MEMORY_BYTES)
        } else {
            usual.memory_bytes
        }),
        processes: written.processes.or(usual.processes),
        cpu: cpu.or(is_call.then_some(of_a_call)),
        wall: None,
        file_bytes: megabytes(written.file_size_mb).or(usual.file_bytes),
        open_files: written.open_files.or(usual.open_files),
        output_bytes: megabytes(written.output_mb).or(usual.output_bytes),
    }
}

fn network_of(server: &ServerConfig) -> Result<Option<Network>, String> {
    let hosts = match &server.sandbox.network {
        None => return Ok(None),
        Some(Written::Whole(NetworkWhole::Full)) => return Ok(Some(Network::Full)),
        Some(Written::Whole(NetworkWhole::None)) => Hosts::default(),
        Some(Written::Hosts(hosts)) => Hosts::allowing(hosts)?,
        Some(Written::Domains(domains)) => Hosts::new(&domains.allowed_domains, &domains.denied_domains)?,
    };
    if hosts.allowed.is_empty() && !hosts.denied.is_empty() {
        return Err("sandbox.network: deniedDomains alone allows nothing; name allowedDomains, or write \
                    \"none\" or \"full\""
            .to_owned());
    }
    Ok(Some(if hosts.allowed.is_empty() { Network::None } else { Network::Hosts(hosts) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(server: &str) -> Result<Policy, String> {
        let server: ServerConfig = serde_json::from_str(server).expect("a server");
        let own = Own { hidden: vec!["/data/colibri".into()], read_only: vec!["/u/.env".into()] };
        policy_of(&server, Places { folder: Path::new("/project"), home: Some(Path::new("/u")), own: &own })
    }

    #[test]
    fn a_server_that_says_nothing_gets_the_usual() {
        let hidden = vec!["/data/colibri".into()];
        let read_only = vec!["/u/.env".into()];
        let usual = Policy { files: Files { hidden, read_only, ..Files::default() }, ..Policy::default() };
        assert_eq!(check(r#"{"command": "x"}"#), Ok(usual));
        let output_bytes = Limits::default().output_bytes;
        let off = Policy { limits: Limits { output_bytes, ..Limits::none() }, ..Policy::off() };
        assert_eq!(check(r#"{"command": "x", "sandbox": "off"}"#), Ok(off));
        assert_eq!(check(r#"{"command": "x", "sandbox": "strict"}"#).unwrap().level, Level::Strict);
    }

    #[test]
    fn what_is_written_counts() {
        let policy = check(
            r#"{"command": "x", "isolation": "call", "timeout": 5000, "limits": {"processes": 7, "fileSizeMb": 3, "outputMb": 2},
                "sandbox": {"filesystem": {"allowRead": ["~/notes", "docs", "/abs"], "denyRead": ["~"]}, "network": "none",
                            "allowDegraded": ["landlock"]}}"#,
        )
        .unwrap();
        let paths = |paths: &[&str]| paths.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(policy.files.allow_read, paths(&["/u/notes", "/project/docs", "/abs"]));
        assert_eq!(policy.files.hidden, paths(&["/u/", "/data/colibri"]));
        assert_eq!(policy.network, Some(Network::None));
        assert_eq!(policy.allow_degraded, [Layer::Landlock].into());
        assert_eq!(policy.limits.memory_bytes, Some(CALL_MEMORY_BYTES));
        assert_eq!(policy.limits.processes, Some(7));
        assert_eq!(policy.limits.file_bytes, Some(3 << 20));
        assert_eq!(policy.limits.output_bytes, Some(2 << 20));
        assert_eq!(policy.limits.cpu, Some(Duration::from_secs(10)));
    }

    #[test]
    fn hosts_are_written_in_two_ways() {
        let network = |text: &str| {
            check(&format!(r#"{{"command": "x", "sandbox": {{"network": {text}}}}}"#)).unwrap().network
        };
        let hosts =
            |allowed: &[&str], denied: &[&str]| Some(Network::Hosts(Hosts::new(allowed, denied).unwrap()));
        assert_eq!(network(r#"["a.com:443", "*.b.com"]"#), hosts(&["a.com:443", "*.b.com"], &[]));
        let both = r#"{"allowedDomains": ["*.a.com"], "deniedDomains": ["x.a.com"]}"#;
        assert_eq!(network(both), hosts(&["*.a.com"], &["x.a.com"]));
        assert_eq!(network("[]"), Some(Network::None));
        assert_eq!(network(r#""full""#), Some(Network::Full));
    }

    #[test]
    fn what_cannot_be_held_is_refused() {
        let refused = |sandbox: &str, expected: &str| {
            let error = check(&format!(r#"{{"command": "x", "sandbox": {sandbox}}}"#)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        refused(r#"{"allowDegraded": ["land"]}"#, "there is no layer `land`; the layers are namespace");
        refused(r#"{"network": ["https://example.com"]}"#, "has no port that is a number");
        refused(r#"{"network": ["exa mple.com"]}"#, "`exa mple.com` is no host");
        refused(r#"{"network": {"deniedDomains": ["example.com"]}}"#, "write \"none\" or \"full\"");
        refused(r#"{"filesystem": {"allowRead": ["/a/*"]}}"#, "is a pattern");
        refused(
            r#"{"filesystem": {"denyRead": ["/a"]}, "allowDegraded": ["namespace"]}"#,
            "need the layer `namespace`",
        );
    }
}
