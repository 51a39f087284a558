//! A secret that its server writes everywhere it can, and where it must not be found.
//!
//! Arguments and results are content, and so is the JSON-RPC error that a server gives its client: they are passed on as
//! they are, and not looked at here. Everything that colibri itself says, keeps or shows is.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::cli::{SERVER, run};
use crate::hostile::child::{Colibri, Home};
use crate::support::until;

const CANARY: &str = "c4n4ry-0f-th3-m1n3";
/// Comes by a variable among the arguments: whoever lists processes sees it there, and nobody anywhere else.
const ARGUMENT_CANARY: &str = "c4n4ry-0f-th3-l1n3";
const WEB_CANARY: &str = "c4n4ry-0f-th3-w3b";

/// An MCP server over HTTP. It refuses everybody, and repeats what it was told, until its folder has a file `open`.
const WEB: &str = r#"
import http.server, json, os, sys

class Face(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self, status, body):
        body = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405, "")

    do_DELETE = do_GET

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not os.path.exists(os.path.join(sys.argv[2], "open")):
            said = "who is " + self.headers.get("Authorization", "nobody")
            return self.answer(401, json.dumps({"error": said}))
        method = request["method"]
        if "id" not in request:
            return self.answer(202, "")
        said = {"jsonrpc": "2.0", "id": request["id"]}
        if method == "initialize":
            said["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        elif method == "tools/list":
            said["result"] = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            said["result"] = {"content": [{"type": "text", "text": "from the web"}]}
        else:
            said["error"] = {"code": -32601, "message": "no, " + self.headers.get("Authorization", "nobody")}
        self.answer(200, json.dumps(said))

http.server.ThreadingHTTPServer.daemon_threads = True
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Face)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// The server over HTTP, as a process that can go away.
pub(super) struct Web {
    child: Child,
    pub(super) port: u16,
}

impl Web {
    /// On that port, or on any, if it is 0.
    pub(super) fn start(port: u16, folder: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", WEB, &port.to_string()]).arg(folder);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn call(colibri: &mut Colibri, id: u64, tool: &str) -> Value {
    let call = json!({ "name": tool, "arguments": {} });
    colibri.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call }).to_string());
    loop {
        let answer = colibri.answer();
        if answer["id"] == id {
            return answer;
        }
    }
}

pub(super) fn state(home: &Home, name: &str) -> Value {
    let servers = run(home, &["server", "list", "--json"]).json()["servers"].take();
    let servers = servers.as_array().cloned().unwrap_or_default();
    servers.into_iter().find(|server| server["name"] == name).unwrap_or_default()["state"].take()
}

/// A server that cannot keep a secret: on its stderr, in an error, in its list when that is asked for again, and with its
/// last words.
fn talker() -> String {
    let tools = ["leak", "sulk", "die"]
        .map(|tool| format!(r#",{{"name":"{tool}","inputSchema":{{"type":"object"}}}}"#));
    let listed = r#"{"name":"fail","inputSchema":{"type":"object"}}"#;
    let cases = r#"*'"leak"'*) answer='"error":{"code":-32603,"message":"the token '"$SECRET"' is wrong"}';;
    *'"sulk"'*) touch "$HOME/sulks"
      echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'; answer='"result":{"content":[]}';;
    *'"die"'*) echo "last words: $SECRET" >&2; exit 7;;
    *'"echo"'*)"#;
    let list = r#"*tools/list*) if test -e "$HOME/sulks"; then rm "$HOME/sulks"; answer='"error":{"code":-32603,"message":"no list for '"$SECRET"'"}'; else answer="#;
    let script = SERVER.replace(listed, &format!("{listed}{}", tools.concat()));
    let script = script.replace("*'\"echo\"'*)", cases).replace("*tools/list*) answer=", list);
    // The end of the list is the end of the choice.
    let script = script.replace("]}';;\n    *'\"leak\"'", "]}'; fi;;\n    *'\"leak\"'");
    assert!(script.contains("fi;;") && script.contains("sulks"));
    format!("echo \"my token is $SECRET, my argument $1\" >&2\n{script}")
}

/// A server in `call` isolation that is well once, to list its tools; what is started for calls says the secret, and
/// dies.
fn lender() -> String {
    let dies = "echo \"last words of a call: $SECRET\" >&2; exit 7";
    format!("if ! mkdir \"$HOME/lender\"; then {dies}; fi\n{SERVER}")
}

/// PR-1, PR-2, PR-16, SB-5: what stands in `env` and `headers`, or was filled in elsewhere, is in no line, event, error, report or record of colibri's,
/// whatever its server does with it; and the server over HTTP that refused it is used once it lets us in.
#[test]
fn a_secret_is_nowhere_but_where_it_belongs() {
    let home = Home::new();
    let web = Web::start(0, home.path());
    let servers = json!({
        "talker": { "command": "sh", "args": ["-c", talker(), "talker", "${LINE_TOKEN}"], "env": { "SECRET": CANARY }, "restart": { "delays": [0] } },
        "lender": {
            "command": "sh", "args": ["-c", lender()], "env": { "SECRET": CANARY }, "isolation": "call", "pool": { "size": 0 },
            "restart": { "delays": [0], "maxAttempts": 1 }, "tools": { "echo": { "limits": { "memoryMb": 512 } } },
        },
        "web": { "url": format!("http://127.0.0.1:{}/mcp", web.port), "headers": { "Authorization": format!("Bearer {WEB_CANARY}") } },
    });
    let file = home.path().join("servers.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let mut command = home.command();
    command
        .arg("--config")
        .arg(&file)
        .arg("serve")
        .env("COLIBRI_LOG", "trace")
        .env("LINE_TOKEN", ARGUMENT_CANARY);
    let mut colibri = Colibri::spawn(home, command);
    colibri.initialize("2025-11-25");
    until("the talker is ready", || (state(&colibri.home, "talker") == "ready").then_some(()));
    until("the lender is ready", || (state(&colibri.home, "lender") == "ready").then_some(()));
    until("the web refuses us", || (state(&colibri.home, "web") == "blocked").then_some(()));

    let passed = call(&mut colibri, 1, "talker__echo");
    assert_eq!(passed["result"]["env"], CANARY, "a result is content: {passed}");
    let leaked = call(&mut colibri, 2, "talker__leak");
    assert!(leaked["error"]["message"].as_str().is_some_and(|said| said.contains(CANARY)), "{leaked}");
    call(&mut colibri, 3, "talker__sulk");
    until("the list was refused", || colibri.log().contains("could not be listed again").then_some(()));
    let crashed = call(&mut colibri, 4, "talker__die");
    let error = &crashed["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "PROVIDER_CRASHED", "{crashed}");
    assert!(
        error["details"]["stderr"].as_str().is_some_and(|said| said.contains("last words: ***")),
        "{crashed}"
    );
    assert_hidden("the error of a crash", &crashed.to_string());
    let refused = call(&mut colibri, 5, "web__echo");
    assert_hidden("the error of a refusal", &refused.to_string());
    assert_eq!(refused["result"]["structuredContent"]["error"]["code"], "PROVIDER_INIT_FAILED", "{refused}");
    let lent = call(&mut colibri, 8, "lender__echo");
    assert_hidden("the error of what was not lent", &lent.to_string());
    let error = &lent["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "PROVIDER_INIT_FAILED", "{lent}");
    assert!(error.to_string().contains("last words of a call: ***"), "{lent}");
    let health = call(&mut colibri, 6, "server_health");
    assert_hidden("server_health", &health.to_string());

    std::fs::write(colibri.home.path().join("open"), "").unwrap();
    let restarted = run(&colibri.home, &["server", "restart", "web"]);
    assert_eq!(restarted.code, 0, "{restarted:?}");
    let there = call(&mut colibri, 7, "web__echo");
    assert_eq!(there["result"]["content"][0]["text"], "from the web", "{there}");

    assert_commands_hide(&colibri.home);
    assert_processes_hide();
    let home = std::mem::replace(&mut colibri.home, Home::new());
    let said = std::fs::read_to_string(home.path().join("stderr")).unwrap();
    assert_hidden("stderr", &said);
    assert!(said.contains("[mcp:talker]") && said.contains("***"), "it would be easy to say nothing: {said}");
    colibri.end_input();
    colibri.rest();
    assert_eq!(colibri.exit_code(), 0);
    assert_hidden("stderr after the end", &std::fs::read_to_string(home.path().join("stderr")).unwrap());
    assert_records_hide(&home);
}

#[track_caller]
fn assert_hidden(what: &str, said: &str) {
    for canary in [CANARY, WEB_CANARY, ARGUMENT_CANARY] {
        let shown = said.lines().find(|line| line.contains(canary));
        assert!(shown.is_none(), "{what} shows {canary}: {shown:?}");
    }
}

fn assert_commands_hide(home: &Home) {
    let commands: [&[&str]; 9] = [
        &["status"],
        &["server", "list"],
        &["server", "show", "talker"],
        &["server", "show", "web"],
        &["server", "test", "web"],
        &["logs", "talker"],
        &["logs", "web"],
        &["events"],
        &["reload"],
    ];
    let mut shown = String::new();
    for command in commands {
        for json in [&[][..], &["--json"]] {
            let ran = run(home, &[command, json].concat());
            let said = ran.stdout + &ran.stderr;
            assert_hidden(&format!("{command:?} {json:?}"), &said);
            shown += &said;
        }
    }
    for there in [
        "my token is ***, my argument ***",
        "last words: ***",
        "the token *** is wrong",
        "provider.mcp.disconnected",
    ] {
        assert!(shown.contains(there), "{there:?} is not shown:\n{shown}");
    }
}

/// What is on record about calls and servers, without what was asked and answered.
fn assert_records_hide(home: &Home) {
    let listed = run(home, &["audit", "list", "-n", "1000", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert_hidden("audit list", &listed.stdout);
    let tail = run(home, &["audit", "tail", "-n", "1000"]);
    assert_eq!(tail.code, 0, "{tail:?}");
    assert_hidden("audit tail", &tail.stdout);
    // Bodies are kept apart from the records, and are content.
    let database = rusqlite::Connection::open(home.database()).unwrap();
    let mut read = database.prepare("SELECT bytes FROM record").unwrap();
    let records: Vec<String> = read.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_hidden("the ledger", &records.join("\n"));
    assert!(records.iter().any(|record| record.contains("\"talker\"")), "servers are on record: {records:?}");
    for there in ["talker", "PROVIDER_CRASHED"] {
        assert!(
            listed.stdout.contains(there) || tail.stdout.contains(there),
            "{there} is not on record: {tail:?}"
        );
    }
}

fn assert_processes_hide() {
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace(ARGUMENT_CANARY, "");
        assert_hidden("a command line", &line);
    }
}
