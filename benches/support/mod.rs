//! What both benchmarks need: a client that speaks MCP to a process, and honest numbers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;

/// The binary under test, in the same profile as the benchmark.
pub(crate) const COLIBRI: &str = env!("CARGO_BIN_EXE_colibri");

/// One client of one server process.
pub(crate) struct Client {
    process: Child,
    /// Whoever takes it writes on its own, so that reading need not wait for writing.
    pub(crate) stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    /// Starts the server and sends the handshake without waiting for its answer.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut client = Self { process, stdin, stdout };
        client.send(INITIALIZE);
        client
    }

    /// Writes frames.
    pub(crate) fn send(&mut self, frames: &str) {
        let stdin = self.stdin.as_mut().expect("it is open until the end");
        stdin.write_all(frames.as_bytes()).expect("the server reads");
    }

    /// Reads frames until the answer with that id.
    pub(crate) fn answer(&mut self, id: u32) -> String {
        let mark = format!(r#""id":{id},"#);
        loop {
            let line = self.next();
            if line.contains(&mark) {
                return line;
            }
        }
    }

    /// Reads the next frame, whatever it is.
    pub(crate) fn next(&mut self) -> String {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).expect("the server writes");
        assert!(length > 0, "the server ended before it answered");
        line
    }

    /// Ends the server by ending its input, and waits for it.
    pub(crate) fn end(mut self) {
        drop(self.stdin.take());
        let status = self.process.wait().expect("the server is our child");
        assert!(status.success(), "the server ended with {status}");
    }
}

/// A call of `server_ping`.
pub(crate) fn ping(id: u32) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"server_ping\",\"arguments\":{{}}}}}}\n"
    )
}

/// `colibri serve` on that database, with nothing of the machine's configuration.
pub(crate) fn colibri_serve(database: &Path, command: &mut Command) {
    let home = database.parent().expect("it lies in a folder");
    command.env_clear().env("HOME", home).current_dir(home).arg("--database").arg(database).arg("serve");
    command.stderr(Stdio::null());
}
