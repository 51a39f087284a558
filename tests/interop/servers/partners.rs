//! How each server is reached: as a child, or at an address.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Pipe};
use std::time::Duration;

use colibri::fleet::link::Opener;
use colibri::fleet::link::sse::Sse;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::web::Endpoint;
use colibri::sandbox::{Policy, Spec};
use tempfile::TempDir;

use super::PATIENCE;
use crate::interop::{cache, script};

/// The longest frame of a server. A result of 1 MB comes as text and as structured content, escaped.
const FRAME_BYTES_MAX: usize = 8 << 20;

/// A folder of its own for one server. Whatever runs with it as `HOME` was started for this story.
pub(super) struct Home(TempDir);

impl Home {
    pub(super) fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The processes that were started for this story and still run.
    pub(super) fn processes(&self) -> Vec<u32> {
        let home = format!("HOME={}", self.path().display());
        let ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == home.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").expect("a list of processes").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(ours).collect()
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<(OsString, OsString)> = vec![
            ("HOME".into(), self.path().into()),
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("MEMORY_FILE_PATH".into(), self.path().join("memory.jsonl").into()),
            // A port that nobody else has.
            ("PORT".into(), "0".into()),
            // What a test machine says of languages must not decide what a server prints.
            ("LC_ALL".into(), "C.UTF-8".into()),
        ];
        environment.extend(crate::support::measured().map(|(name, value)| (name.into(), value)));
        environment
    }
}

/// A server that can be met.
pub(super) struct Partner {
    /// Where it is; for a child, its program.
    pub url: String,
    /// How it is reached, if the address does not say.
    pub transport: Option<Box<dyn Opener>>,
    /// Whether it lives longer than the bridge that reaches it.
    pub is_elsewhere: bool,
}

/// A server from npm, as a child.
pub(super) fn node(home: &Home, package: &str, arguments: &[&str]) -> Partner {
    let package = package_script(package);
    child(home, &cache("node/bin/node"), &[&[package.as_str()], arguments].concat())
}

/// A server from PyPI, as a child.
pub(super) fn python(home: &Home, program: &str, arguments: &[&str]) -> Partner {
    child(home, &cache(&format!("python-mcp2/bin/{program}")), arguments)
}

/// The server on the Rust SDK, as a child.
pub(super) fn rmcp(home: &Home, arguments: &[&str]) -> Partner {
    child(home, &rmcp_program(), arguments)
}

/// The server on the Rust SDK. `cargo test` and `cargo nextest run` build it beside the tests.
pub(super) fn rmcp_program() -> PathBuf {
    let here = std::env::current_exe().expect("the path of this test");
    let profile = here.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let program = profile.join("examples/rmcp_server");
    assert!(program.exists(), "{} is not built: cargo build --examples", program.display());
    program
}

/// A server that runs already.
pub(super) fn elsewhere(url: &str) -> Partner {
    Partner { url: url.to_owned(), transport: None, is_elsewhere: true }
}

/// A server from npm that listens on a port.
pub(super) async fn node_at_a_port(home: &Home, package: &str, arguments: &[&str]) -> Running {
    let package = package_script(package);
    Running::start(home, &cache("node/bin/node"), &[&[package.as_str()], arguments].concat()).await
}

/// Our own server on the Python SDK, listening on a port.
pub(super) async fn python_at_a_port(home: &Home, environment: &str, transport: &str) -> Running {
    let host = script("servers/python_host.py");
    let arguments = [host.to_str().expect("a path that is text"), transport];
    Running::start(home, &cache(&format!("python-{environment}/bin/python")), &arguments).await
}

pub(super) fn package_script(package: &str) -> String {
    let path = cache(&format!("npm/node_modules/@modelcontextprotocol/{package}/dist/index.js"));
    path.to_str().expect("a path that is text").to_owned()
}

fn child(home: &Home, program: &Path, arguments: &[&str]) -> Partner {
    let spec = Spec {
        program: program.into(),
        arguments: arguments.iter().map(OsString::from).collect(),
        environment: home.environment(),
        directory: Some(home.path().to_owned()),
    };
    let transport: Box<dyn Opener> = Box::new(Stdio {
        spec,
        policy: Policy::off(),
        frame_bytes_max: FRAME_BYTES_MAX,
        children: Children::default(),
    });
    Partner { url: program.display().to_string(), transport: Some(transport), is_elsewhere: false }
}

/// A server that was started for a story and listens on a port. It ends when it is dropped.
pub(super) struct Running {
    process: Child,
    port: u16,
}

impl Running {
    async fn start(home: &Home, program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(home.path()).env_clear().envs(home.environment());
        let process = command.stdin(Pipe::null()).stdout(Pipe::null()).stderr(Pipe::null()).spawn();
        let mut running = Self { process: process.expect("it starts"), port: 0 };
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        let listens = async {
            loop {
                looks.tick().await;
                assert!(
                    running.process.try_wait().is_ok_and(|ended| ended.is_none()),
                    "it ended: {arguments:?}"
                );
                if let Some(port) = listening_port(running.process.id()) {
                    return port;
                }
            }
        };
        let port = tokio::time::timeout(PATIENCE, listens).await.expect("it listens");
        running.port = port;
        running
    }

    pub(super) fn at(&self, url: impl Fn(u16) -> String) -> Partner {
        elsewhere(&url(self.port))
    }

    pub(super) fn by_sse(&self, url: impl Fn(u16) -> String) -> Partner {
        let partner = self.at(url);
        let endpoint = Endpoint::new(&partner.url).expect("an address");
        Partner { transport: Some(Box::new(Sse(endpoint))), ..partner }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The port that a process listens on, as the kernel tells it: not every server says which it got.
fn listening_port(pid: u32) -> Option<u16> {
    const LISTEN: &str = "0A";
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inodes: HashSet<String> = links
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    ["tcp", "tcp6"].iter().find_map(|table| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok()?;
        table.lines().skip(1).find_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
            let is_it = *state == LISTEN && inodes.contains(*inode);
            is_it.then(|| u16::from_str_radix(local.rsplit(':').next()?, 16).ok()).flatten()
        })
    })
}
