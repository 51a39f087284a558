//! Real clients against the built binary, over stdio: each one connects in the family it is told to,
//! lists, calls well, calls badly, and calls what is not there. And the bridge against real servers,
//! in `servers`.
//!
//! The partners and their environments are pinned in `tests/interop/`; `./check` fetches them into
//! `.cache/`. A partner that cannot be run is a failure, never a pass: what is not shown does not hold.

mod servers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// CO-9, CO-15, SU-1, SU-2, SU-15: the current Python SDK, by handshake, by probing, and without asking.
#[test]
fn python_sdk_2_calls_in_both_families() {
    for (era, revision) in [("legacy", LEGACY), ("auto", MODERN), ("modern", MODERN)] {
        let home = Home::new();
        let report = report(home.python("mcp2").arg(era));
        // Told to assume the modern family, this SDK never asks who it is talking to.
        let server = if era == "modern" { Value::Null } else { json!("colibri") };
        check(&report, revision, &server);
        check_work(&report);
    }
}

/// CO-9, CO-15, SU-2: the 1.x Python SDK, which knows only the handshake.
#[test]
fn python_sdk_1_calls() {
    let report = report(Home::new().python("mcp1").arg("legacy"));
    check(&report, LEGACY, &json!("colibri"));
    check_work(&report);
}

/// CO-9, CO-15, SU-2: the 1.x TypeScript SDK, which knows only the handshake.
#[test]
fn typescript_sdk_1_calls() {
    check(&report(Home::new().node("typescript_v1.mjs").arg("legacy")), LEGACY, &json!("colibri"));
}

/// CO-9, CO-15, SU-2: the 2.x TypeScript client, by handshake, by probing, and pinned.
#[test]
fn typescript_client_2_calls_in_both_families() {
    for (era, revision) in [("legacy", LEGACY), ("auto", MODERN), ("modern", MODERN)] {
        check(&report(Home::new().node("typescript_v2.mjs").arg(era)), revision, &json!("colibri"));
    }
}

/// CO-9, CO-15, SU-2: the inspector's command line, in its three ways to connect. It lists before it
/// calls, so that it refuses an unknown tool by itself.
#[test]
fn the_inspector_calls_in_both_families() {
    for era in ["legacy", "auto", "modern"] {
        let home = Home::new();
        let call = ["--method", "tools/call", "--tool-name"];
        let listed = home.inspect(era, &["--method", "tools/list"]);
        let ping = home.inspect(era, &[&call[..], &["server_ping"]].concat());
        let bad =
            home.inspect(era, &[&call[..], &["server_ping", "--tool-args-json", r#"{"pong":1}"#]].concat());
        let unknown = home.inspect(era, &[&call[..], &["no_such_tool"]].concat());

        assert!(listed["error"].is_null(), "{era}: {listed}");
        check_tools(&listed["result"]["tools"]);
        check_ping(&ping["result"]);
        check_bad_arguments(&bad["result"]);
        assert_eq!(unknown["error"]["code"], "tool_not_found", "{era}: {unknown}");
    }
}

/// What every SDK must have seen, whatever its language and family.
#[track_caller]
fn check(report: &Value, revision: &str, server: &Value) {
    assert_eq!(report["protocol"], revision, "{report}");
    assert_eq!(&report["server"], server, "{report}");
    let tools = report["tools"].as_array().expect("a list of names");
    check_tools(&tools.iter().map(|name| json!({ "name": name })).collect());
    check_ping(&report["ping"]);
    check_bad_arguments(&report["bad"]);
    assert_eq!(report["unknown"]["code"], -32602, "{report}");
    let message = report["unknown"]["message"].as_str().expect("an error has a message");
    assert!(message.contains("no_such_tool"), "the message names the tool: {message}");
}

/// All fourteen were called and answered as their schemas say, by a validator that is not ours.
#[track_caller]
fn check_work(report: &Value) {
    assert_eq!(report["worked"].as_array().map(Vec::len), Some(14), "{report}");
    assert_eq!(report["worked"], report["tools"], "every tool that is listed was called");
}

#[track_caller]
fn check_tools(tools: &Value) {
    let tools = tools.as_array().expect("a list of tools");
    for name in ["server_ping", "server_health"] {
        assert!(tools.iter().any(|tool| tool["name"] == name), "{name} is not in {tools:?}");
    }
}

#[track_caller]
fn check_ping(result: &Value) {
    let envelope = envelope(result);
    assert_ne!(result["isError"], true, "{result}");
    assert_eq!(envelope["ok"], true, "{result}");
    assert_eq!(envelope["data"]["version"], env!("CARGO_PKG_VERSION"), "{result}");
    assert_eq!(envelope["data"]["mode"], "FULL", "{result}");
    assert!(envelope["data"]["uptime_ms"].is_u64(), "{result}");
}

#[track_caller]
fn check_bad_arguments(result: &Value) {
    let envelope = envelope(result);
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(envelope["ok"], false, "{result}");
    assert_eq!(envelope["error"]["code"], "INVALID_PARAMS", "{result}");
    let issues = envelope["error"]["details"]["issues"].as_array().expect("a list of issues");
    assert!(
        issues.iter().any(|issue| issue.to_string().contains("pong")),
        "no issue names the key: {result}"
    );
}

/// The structured content, which the text must repeat for clients that read only text.
#[track_caller]
fn envelope(result: &Value) -> &Value {
    let text = result["content"][0]["text"].as_str().expect("the envelope is also text");
    let text: Value = serde_json::from_str(text).expect("the text is JSON");
    assert_eq!(result["structuredContent"], text, "text and structured content differ");
    &result["structuredContent"]
}

/// A machine of its own for one server: its data, its configuration, and the clients' scratch files.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory"))
    }

    fn python(&self, environment: &str) -> Command {
        let mut command = self.command(&cache(&format!("python-{environment}/bin/python")));
        command.arg(script("python_client.py"));
        command
    }

    fn node(&self, name: &str) -> Command {
        let mut command = self.command(&cache("node/bin/node"));
        command.arg(script(name)).env("INTEROP_NPM", cache("npm"));
        command
    }

    /// One run of the inspector: a result on stdout, or an error on stderr.
    fn inspect(&self, era: &str, arguments: &[&str]) -> Value {
        let launcher =
            cache("npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
        let mut command = self.command(&cache("node/bin/node"));
        command.arg(launcher).args(["--cli", BINARY, "serve", "--transport", "stdio"]);
        command.args(["--protocol-era", era, "--format", "json", "--quiet"]).args(arguments);
        let output = run(&mut command);
        let printed = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
        last_line(printed).unwrap_or_else(|| panic!("the inspector printed no JSON:\n{}", said(&output)))
    }

    /// Without the caller's own `COLIBRI_*`, so that only this home decides what the server sees.
    #[expect(clippy::disallowed_methods, reason = "the client is a program of its own")]
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("COLIBRI_") || text.starts_with("XDG_") {
                command.env_remove(&name);
            }
        }
        let home = self.0.path();
        command.current_dir(home).env("HOME", home).env("COLIBRI_DB_PATH", home.join("colibri.db"));
        for kind in ["CONFIG", "DATA", "STATE", "CACHE"] {
            command.env(format!("XDG_{kind}_HOME"), home.join(kind.to_lowercase()));
        }
        command
    }
}

const BINARY: &str = env!("CARGO_BIN_EXE_colibri");

/// Run a client script against the server and read the one line it prints.
#[track_caller]
fn report(command: &mut Command) -> Value {
    let output = run(command.args([BINARY, "serve"]));
    assert!(output.status.success(), "the client failed:\n{}", said(&output));
    last_line(&output.stdout).unwrap_or_else(|| panic!("the client printed no JSON:\n{}", said(&output)))
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the client starts")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn last_line(bytes: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(text.lines().last()?).ok()
}

/// Something `./check` has put into the cache folder.
#[track_caller]
fn cache(path: &str) -> PathBuf {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache").join(path);
    assert!(found.exists(), "run ./check once: it fetches the partners these tests need ({path} is missing)");
    found
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop").join(name)
}
