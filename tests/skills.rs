//! Stories of skills: what is found, what is told of the rest, what is on record, and what is read
//! over MCP. All of them on the built program, in a project and a home of their own.

#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

mod commands;
mod folders;
mod links;
mod protocol;
mod record;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use colibri::domain::merkle::Hash;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A project, `project/`, and a home, `home/`, on a disk of their own.
struct World {
    disk: TempDir,
    env: Vec<(&'static str, &'static str)>,
}

impl World {
    fn new() -> Self {
        let disk = TempDir::new().unwrap();
        for folder in ["project", "home"] {
            std::fs::create_dir(disk.path().join(folder)).unwrap();
        }
        Self { disk, env: Vec::new() }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let world = Self::new();
        for (path, text) in files {
            world.write(path, text);
        }
        world
    }

    fn mode(mut self, mode: &'static str) -> Self {
        self.env.push(("COLIBRI_MODE", mode));
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        self.disk.path().join(path)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A skill of the project that says nothing but its name.
    fn skill(&self, name: &str) {
        self.write(&format!("project/.agents/skills/{name}/SKILL.md"), plain(name));
    }

    fn link(&self, target: &str, path: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colibri"));
        command
            .args(arguments)
            .env_clear()
            .envs(crate::support::measured())
            .env("HOME", self.path("home"))
            .env("COLIBRI_DB_PATH", self.path("ledger.db"))
            .envs(self.env.iter().copied())
            .current_dir(self.path("project"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn serve(&self) -> Client {
        let mut command = self.command(&["serve"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Client { child, input, output, id: 0 }
    }

    /// What `skill_list` says when nobody has asked before.
    fn list(&self) -> Value {
        self.serve().list(&json!({}))
    }

    /// A text without the name of this disk.
    fn local(&self, text: &str) -> String {
        let real = self.disk.path().canonicalize().unwrap();
        text.replace(&format!("{}/", real.display()), "")
            .replace(&format!("{}/", self.disk.path().display()), "")
    }

    /// Each diagnostic as `severity path:line message`.
    fn diagnostics(&self, listing: &Value) -> Vec<String> {
        let said = |one: &Value| {
            let line = one["line"].as_u64().map(|line| format!(":{line}")).unwrap_or_default();
            let [severity, path, message] =
                ["severity", "path", "message"].map(|key| one[key].as_str().unwrap());
            self.local(&format!("{severity} {path}{line} {message}"))
        };
        listing["diagnostics"].as_array().unwrap().iter().map(said).collect()
    }

    /// The records of one kind, oldest first.
    fn records(&self, event: &str) -> Vec<Value> {
        let ledger = rusqlite::Connection::open(self.path("ledger.db")).unwrap();
        let sql = "SELECT bytes ->> '$.facts' FROM record WHERE bytes ->> '$.event' = ? ORDER BY place";
        let mut statement = ledger.prepare(sql).unwrap();
        let rows = statement.query_map([event], |row| row.get::<_, String>(0)).unwrap();
        rows.map(|facts| serde_json::from_str(&facts.unwrap()).unwrap()).collect()
    }
}

/// One modern client of one colibri.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    id: u64,
}

impl Client {
    /// One request as it is, and its answer.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params });
        writeln!(self.input.as_mut().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{method}: {line:?}"));
        assert_eq!(answer["id"], self.id, "{answer}");
        answer
    }

    /// The same, with the `_meta` of a modern request.
    fn modern(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.ask(method, &params)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.modern("tools/call", json!({ "name": tool, "arguments": arguments }));
        answer["result"]["structuredContent"].clone()
    }

    fn list(&mut self, arguments: &Value) -> Value {
        let envelope = self.call("skill_list", arguments);
        assert_eq!(envelope["ok"], true, "{envelope}");
        envelope["data"].clone()
    }
}

impl Drop for Client {
    /// The end of its input ends it; when it has ended, everything is on record.
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// As `sha256sum` prints it.
fn sha256(bytes: impl AsRef<[u8]>) -> String {
    use sha2::Digest as _;
    Hash(sha2::Sha256::digest(bytes).into()).to_string()
}

fn plain(name: &str) -> String {
    format!("---\nname: {name}\ndescription: About {name}.\n---\nDo it well.\n")
}

fn names(listing: &Value) -> Vec<&str> {
    listing["skills"].as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect()
}

fn one<'a>(listing: &'a Value, name: &str) -> &'a Value {
    let found = listing["skills"].as_array().unwrap().iter().find(|skill| skill["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {listing}"))
}

/// A file that is long and takes no room.
fn sparse(path: &Path, bytes: u64) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
}
