//! An MCP client of our own on the binary's pipes, in either protocol family. It believes nothing: every
//! answer is checked against the schema that the server published for it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use jsonschema::Validator;
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_colibri");

/// A machine of its own: its data, and nothing of the machine that the test runs on.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("colibri.db")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(self.path()).env_clear().envs(crate::support::measured());
        command.env("HOME", self.path()).env("COLIBRI_DB_PATH", self.database()).env("COLIBRI_LOG", "error");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    /// The same, for a command that must succeed; gives what it printed.
    #[track_caller]
    pub(crate) fn says(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?} said: {}{}", ran.out, ran.err);
        ran.out
    }
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Legacy,
    Modern,
}

pub(crate) const FAMILIES: [Family; 2] = [Family::Legacy, Family::Modern];

/// One server process and the client that talks to it.
pub(crate) struct Client {
    family: Family,
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
    pub(crate) tools: BTreeMap<String, Tool>,
}

/// A tool as `tools/list` shows it.
pub(crate) struct Tool {
    pub(crate) entry: Value,
    output: Validator,
}

impl Client {
    pub(crate) fn start(home: &Home, family: Family) -> Self {
        Self::start_with(home, family, &[])
    }

    pub(crate) fn start_with(home: &Home, family: Family, flags: &[&str]) -> Self {
        let mut command = home.command(&[&["serve"], flags].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { family, child, stdin, stdout, next_id: 0, tools: BTreeMap::new() };
        if family == Family::Legacy {
            let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info() });
            let answer = client.ask("initialize", hello);
            assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
            client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        let listed = client.ask("tools/list", json!({}));
        for entry in listed["result"]["tools"].as_array().unwrap() {
            let output = jsonschema::draft202012::new(&entry["outputSchema"]).unwrap();
            let name = entry["name"].as_str().unwrap().to_owned();
            client.tools.insert(name, Tool { entry: entry.clone(), output });
        }
        client
    }

    /// Calls a tool; gives its envelope, checked against the schema, the text and `isError`.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.send_call(tool, arguments);
        let answer = self.read().unwrap_or_else(|| panic!("no answer to {tool} {arguments}"));
        assert_eq!(answer["id"], id, "{answer}");
        self.checked(tool, &answer)
    }

    /// The data of a call that must succeed.
    #[track_caller]
    pub(crate) fn ok(&mut self, tool: &str, arguments: &Value) -> Value {
        let envelope = self.call(tool, arguments);
        assert!(succeeded(&envelope), "{tool} {arguments} said: {envelope}");
        envelope["data"].clone()
    }

    /// The error of a call that must be refused with this code, in whichever pattern is the tool's.
    #[track_caller]
    pub(crate) fn refused(&mut self, tool: &str, arguments: &Value, code: &str) -> Value {
        let envelope = self.call(tool, arguments);
        assert!(!succeeded(&envelope), "{tool} {arguments} said: {envelope}");
        let error = error(&envelope);
        let found = error["details"]["code"].as_str().or(error["code"].as_str());
        assert_eq!(found, Some(code), "{tool} {arguments} said: {envelope}");
        error.clone()
    }

    /// Sends a call without waiting for its answer.
    pub(crate) fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The next answer; none if the server is gone.
    pub(crate) fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(read) if read > 0 && line.ends_with('\n') => Some(serde_json::from_str(&line).unwrap()),
            _ => None,
        }
    }

    /// The envelope of an answer, if it is all that it should be.
    #[track_caller]
    pub(crate) fn checked(&self, tool: &str, answer: &Value) -> Value {
        let result = &answer["result"];
        let envelope = &result["structuredContent"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool} said: {answer}"));
        assert_eq!(&serde_json::from_str::<Value>(text).unwrap(), envelope, "text and structure differ");
        if let Some(known) = self.tools.get(tool) {
            let faults: Vec<_> = known.output.iter_errors(envelope).map(|e| e.to_string()).collect();
            assert!(faults.is_empty(), "{tool} breaks its own schema: {faults:?} in {envelope}");
        }
        let is_error = result["isError"].as_bool().unwrap_or(false);
        assert_eq!(is_error, !succeeded(envelope), "isError of {tool}: {answer}");
        envelope.clone()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.read().unwrap_or_else(|| panic!("no answer to {method}"));
        assert_eq!(answer["id"], id);
        answer
    }

    fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next_id += 1;
        if self.family == Family::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": info(),
            });
        }
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params }));
        self.next_id
    }

    /// A server that was killed no longer reads; whoever waits for its answer will notice.
    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("open until the client is dropped");
        let _ = stdin.write_all(format!("{message}\n").as_bytes()).and_then(|()| stdin.flush());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let ended = self.child.wait();
        if !std::thread::panicking() {
            assert!(ended.is_ok(), "the server was waited for");
        }
    }
}

fn info() -> Value {
    json!({ "name": "stories", "version": "1" })
}

/// Whether neither pattern tells of an error.
pub(crate) fn succeeded(envelope: &Value) -> bool {
    envelope["ok"] == true && envelope["data"]["ok"] != false
}

/// The error of either pattern.
pub(crate) fn error(envelope: &Value) -> &Value {
    envelope.get("error").unwrap_or_else(|| &envelope["data"]["error"])
}

/// How long the long stories run: `./check full` sets it.
pub(crate) fn is_full_check() -> bool {
    std::env::var("COLIBRI_CHECK").is_ok_and(|check| check == "full")
}
