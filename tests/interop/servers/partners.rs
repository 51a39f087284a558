//! How each server is reached: as a child, or at a URL.

use std::ffi::OsString;
use std::path::Path;

use colibri::fleet::link::Opener;
use colibri::fleet::link::stdio::Stdio;
use colibri::sandbox::Spec;
use tempfile::TempDir;

use crate::interop::cache;

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
}

/// A server that can be met.
pub(super) struct Partner {
    /// For people.
    pub url: String,
    /// How it is reached.
    pub opener: Box<dyn Opener>,
    /// Whether it lives longer than the bridge that reaches it.
    pub is_elsewhere: bool,
}

/// A server from npm, as a child.
pub(super) fn node(home: &Home, package: &str, arguments: &[&str]) -> Partner {
    let script = cache(&format!("npm/node_modules/@modelcontextprotocol/{package}/dist/index.js"));
    let script = script.to_str().expect("a path that is text");
    child(home, &cache("node/bin/node"), &[&[script], arguments].concat())
}

/// A server from PyPI, as a child.
pub(super) fn python(home: &Home, program: &str, arguments: &[&str]) -> Partner {
    child(home, &cache(&format!("python-mcp2/bin/{program}")), arguments)
}

/// The server on the Rust SDK, as a child. `cargo test` and `cargo nextest run` build it beside the tests.
pub(super) fn rmcp(home: &Home, arguments: &[&str]) -> Partner {
    let here = std::env::current_exe().expect("the path of this test");
    let profile = here.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let program = profile.join("examples/rmcp_server");
    assert!(program.exists(), "{} is not built: cargo build --examples", program.display());
    child(home, &program, arguments)
}

fn child(home: &Home, program: &Path, arguments: &[&str]) -> Partner {
    let mut environment: Vec<(OsString, OsString)> = vec![
        ("HOME".into(), home.path().into()),
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("MEMORY_FILE_PATH".into(), home.path().join("memory.jsonl").into()),
        // What a test machine says of languages must not decide what a server prints.
        ("LC_ALL".into(), "C.UTF-8".into()),
    ];
    environment.extend(crate::support::measured().map(|(name, value)| (name.into(), value)));
    let arguments = arguments.iter().map(OsString::from).collect();
    let directory = Some(home.path().to_owned());
    let spec = Spec { program: program.into(), arguments, environment, directory };
    let opener = Box::new(Stdio { spec, frame_bytes_max: FRAME_BYTES_MAX });
    Partner { url: program.display().to_string(), opener, is_elsewhere: false }
}
