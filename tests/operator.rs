//! A person at a terminal, beside a client: what they see of a running colibri, what they do to its servers, and that
//! nobody else can.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

mod accept;
mod follow;
mod hostile;
mod secrets;
mod verbs;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{Ran, SERVER, run};
use crate::hostile::child::{Colibri, Home};
use crate::support::until;

/// A server that says a word on stderr first.
fn server(word: &str) -> Value {
    json!({ "command": "sh", "args": ["-c", format!("echo 'a word: {word}' >&2\n{SERVER}")] })
}

/// A colibri with these servers, in this home, and a client that has begun.
fn serving_with(home: Home, variables: &[(&str, &str)], servers: &Value) -> Colibri {
    let file = home.path().join("servers.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let mut command = home.command();
    command.arg("--config").arg(&file).arg("serve").envs(variables.iter().copied());
    let mut colibri = Colibri::spawn(home, command);
    colibri.initialize("2025-11-25");
    colibri
}

fn serving(servers: &Value) -> Colibri {
    serving_with(Home::new(), &[], servers)
}

/// Where the sockets of a home lie.
fn folder(home: &Home) -> PathBuf {
    home.path().join(".local/share/colibri/run")
}

/// The socket of a colibri.
fn socket(colibri: &Colibri) -> PathBuf {
    folder(&colibri.home).join(format!("{}.sock", colibri.pid().as_raw_nonzero()))
}

/// What `status` says of a server.
fn standing(home: &Home, name: &str) -> Value {
    let ran = run(home, &["server", "list", "--json"]);
    let servers = ran.json()["servers"].as_array().cloned().unwrap_or_default();
    servers.into_iter().find(|server| server["name"] == name).unwrap_or_default()
}

#[track_caller]
fn await_state(home: &Home, name: &str, state: &str) -> Value {
    until(&format!("{name} is {state}"), || {
        Some(standing(home, name)).filter(|found| found["state"] == state)
    })
}

/// A command that works.
#[track_caller]
fn ok(home: &Home, arguments: &[&str]) -> Ran {
    let ran = run(home, arguments);
    assert_eq!(ran.code, 0, "colibri {}: {ran:?}", arguments.join(" "));
    ran
}

/// The answer to a request of the client; what is told meanwhile is let pass.
fn ask(colibri: &mut Colibri, id: u64, method: &str, params: &Value) -> Value {
    colibri.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
    loop {
        let answer = colibri.answer();
        if answer["id"] == id {
            return answer;
        }
    }
}

fn call(colibri: &mut Colibri, id: u64, tool: &str) -> Value {
    ask(colibri, id, "tools/call", &json!({ "name": tool, "arguments": {} }))
}
