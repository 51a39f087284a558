//! Real servers behind one colibri, used by real clients: published ones, five children and one on the network, and two
//! of ours on the SDKs, one of each family, for what no published one shows on demand.

use serde_json::{Value, json};

use super::partners::{self, node_at_a_port, package_script, rmcp_program};
use crate::interop::{BINARY, Home, cache, last_line, run, said, script};

/// PR-3, PR-5, PR-11, PR-12, PR-13, PR-14, SB-1, SB-2, SB-5: the 1.x Python SDK, which knows only the older family.
#[tokio::test]
async fn python_sdk_1_uses_the_servers_behind_colibri() {
    check(&python("mcp1", "legacy").await, Family::Legacy);
}

/// PR-3, PR-5, PR-11, PR-12, PR-13, PR-14, SB-1, SB-2, SB-5: the current Python SDK, by handshake.
#[tokio::test]
async fn python_sdk_2_uses_the_servers_behind_colibri() {
    check(&python("mcp2", "legacy").await, Family::Legacy);
}

/// PR-3, PR-11, PR-12, PR-13, SB-1, SB-5: the current Python SDK in the newer family, and servers of both.
#[tokio::test]
async fn a_modern_python_client_uses_the_servers_behind_colibri() {
    check(&python("mcp2", "modern").await, Family::Modern);
}

/// PR-3, PR-11, PR-12, PR-13, SB-1, SB-5: the 1.x TypeScript SDK, which knows only the older family.
#[tokio::test]
async fn typescript_sdk_1_uses_the_servers_behind_colibri() {
    check(&typescript("v1", "legacy").await, Family::Legacy);
}

/// PR-3, PR-11, PR-12, PR-13, SB-1, SB-5: the 2.x TypeScript client, by handshake.
#[tokio::test]
async fn typescript_client_2_uses_the_servers_behind_colibri() {
    check(&typescript("v2", "legacy").await, Family::Legacy);
}

/// PR-3, PR-11, PR-12, PR-13, SB-1, SB-5: the 2.x TypeScript client in the newer family, and servers of both.
#[tokio::test]
async fn a_modern_typescript_client_uses_the_servers_behind_colibri() {
    check(&typescript("v2", "modern").await, Family::Modern);
}

/// Which protocol the client speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Legacy,
    Modern,
}

async fn python(environment: &str, era: &str) -> Report {
    let program = cache(&format!("python-{environment}/bin/python"));
    fleet(&format!("{environment} {era}"), |home| {
        let mut client = home.command(&program);
        client.arg(script("python_fleet.py")).arg(era);
        client
    })
    .await
}

async fn typescript(line: &str, era: &str) -> Report {
    fleet(&format!("{line} {era}"), |home| {
        let mut client = home.node("typescript_fleet.mjs");
        client.args([line, era]);
        client
    })
    .await
}

/// One client, one colibri, eight servers.
async fn fleet(who: &str, client: impl FnOnce(&Home) -> std::process::Command) -> Report {
    let home = Home::new();
    let folder = home.0.path().join("shared");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("note.txt"), "a note ✓").expect("a file");
    assert!(run(home.command("git".as_ref()).args(["init", "-q"]).arg(&folder)).status.success());
    let elsewhere = partners::Home::new();
    let web = node_at_a_port(&elsewhere, "server-everything", &["streamableHttp"]).await;
    let node = cache("node/bin/node");
    let python = |program: &str| cache(&format!("python-mcp2/bin/{program}"));
    let servers = json!({ "mcpServers": {
        "every": { "command": node, "args": [package_script("server-everything"), "stdio"] },
        "files": { "command": node, "args": [package_script("server-filesystem"), folder] },
        "memory": { "command": node, "args": [package_script("server-memory")], "env": { "MEMORY_FILE_PATH": folder.join("memory.json") } },
        "time": { "command": python("mcp-server-time"), "args": ["--local-timezone", "UTC"] },
        "git": { "command": python("mcp-server-git"), "args": ["--repository", folder] },
        "web": { "url": web.at(|port| format!("http://127.0.0.1:{port}/mcp")).url },
        "old": { "command": node, "args": [script("servers/typescript_host.mjs")], "env": { "INTEROP_NPM": cache("npm") } },
        "new": { "command": rmcp_program() },
    }});
    let config = home.0.path().join("servers.json");
    std::fs::write(&config, servers.to_string()).expect("a file");
    let mut client = client(&home);
    client.arg(&folder).arg(BINARY).arg("--config").arg(&config).arg("serve");
    let output = run(&mut client);
    assert!(output.status.success(), "{who}:\n{}", said(&output));
    let seen = last_line(&output.stdout);
    let seen = seen.unwrap_or_else(|| panic!("{who}: the client printed no JSON:\n{}", said(&output)));
    Report { who: who.to_owned(), seen }
}

/// What a client saw.
struct Report {
    who: String,
    seen: Value,
}

impl Report {
    /// A result that is no error and has this in its text.
    #[track_caller]
    fn says(&self, key: &str, word: &str) {
        let result = &self.seen[key];
        assert_eq!(result["isError"], false, "{}: {key}: {result}", self.who);
        assert!(
            texts(result).iter().any(|text| text.contains(word)),
            "{}: {key} lacks {word:?}: {result}",
            self.who
        );
    }

    /// A result that is an error and has this in its text.
    #[track_caller]
    fn fails(&self, key: &str, word: &str) {
        let result = &self.seen[key];
        assert_eq!(result["isError"], true, "{}: {key}: {result}", self.who);
        assert!(
            texts(result).iter().any(|text| text.contains(word)),
            "{}: {key} lacks {word:?}: {result}",
            self.who
        );
    }

    /// A text, or the message of a refusal, with this in it.
    #[track_caller]
    fn tells(&self, key: &str, word: &str) {
        let told = self.seen[key].as_str().or_else(|| self.seen[key]["message"].as_str());
        assert!(
            told.is_some_and(|text| text.contains(word)),
            "{}: {key} lacks {word:?}: {}",
            self.who,
            self.seen[key]
        );
    }

    #[track_caller]
    fn is(&self, key: &str, expected: &Value) {
        assert_eq!(&self.seen[key], expected, "{}: {key}", self.who);
    }

    /// A list of words, with these in it, in this order.
    #[track_caller]
    fn lists(&self, key: &str, expected: &[&str]) {
        let list = self.seen[key].as_array().unwrap_or_else(|| panic!("{}: {key} is no list", self.who));
        let mut words = list.iter().filter_map(Value::as_str);
        for word in expected {
            assert!(
                words.any(|listed| listed == *word),
                "{}: {key}: {word} is not where it belongs: {list:?}",
                self.who
            );
        }
    }
}

fn texts(result: &Value) -> Vec<&str> {
    result["text"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[track_caller]
fn check(report: &Report, family: Family) {
    check_calls(report);
    check_offers(report, family);
    check_cancelling(report);
    check_changes(report, family);
    match family {
        Family::Legacy => check_asked(report),
        Family::Modern => check_refused(report),
    }
    check_asked_by_modern(report);
}

#[track_caller]
fn check_calls(report: &Report) {
    let tools =
        ["every__echo", "files__read_text_file", "git__git_status", "memory__create_entities", "new__ask"];
    report.lists("names", &tools);
    report.lists("names", &["old__ask", "server_ping", "time__get_current_time", "web__echo"]);
    for (key, word) in [
        ("echo", "hällo 🐦"),
        ("web", "over HTTP"),
        ("long", "completed"),
        ("file", "a note ✓"),
        ("git", "note.txt"),
        ("memory", "entityType"),
        ("time", "UTC"),
        ("ping", "ok"),
        ("modern_echo", "from the newer family ✓"),
        ("modern_steps", "3 steps"),
    ] {
        report.says(key, word);
    }
    report.fails("outside", "denied");
    report.fails("nowhere", "Nowhere");
    report.fails("unknown", "every__no-such-tool");
    assert_eq!(report.seen["unknown"]["code"], "PROVIDER_TOOL_NOT_FOUND", "{}", report.who);
    report.is("image", &json!("image"));
    assert_eq!(numbers(report, "progress"), [1.0, 2.0], "{}", report.who);
    assert_eq!(numbers(report, "modern_progress"), [1.0, 2.0, 3.0], "{}", report.who);
}

fn numbers(report: &Report, key: &str) -> Vec<f64> {
    report.seen[key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// Resources, prompts, completions and instructions, of servers of both families.
#[track_caller]
fn check_offers(report: &Report, family: Family) {
    const DOCUMENT: &str = "demo://resource/static/document/features.md";
    const ALIAS: &str = "colibri://web/demo%3A%2F%2Fresource%2Fstatic%2Fdocument%2Ffeatures.md";
    report.lists("resources", &[DOCUMENT, "note://one", ALIAS]);
    report.lists("templates", &["demo://resource/dynamic/text/{resourceId}", "note://{name}"]);
    report.lists("prompts", &["every__args-prompt", "new__greet", "web__args-prompt"]);
    for (key, word) in [
        ("document", "Everything Server"),
        ("alias", "Everything Server"),
        ("made", "Resource 7:"),
        ("modern_resource", "the note note://one"),
        ("modern_made", "the note note://by-template"),
        ("no_resource", "demo://nowhere"),
        ("prompt", "What's weather in Zürich?"),
        ("modern_prompt", "Greet Ada."),
        ("instructions", "#### MCP Server: every\n# Everything Server"),
        ("instructions", "#### MCP Server: old\nTell it to grow."),
        ("instructions", "#### MCP Server: new\nAsk it who is there."),
        ("instructions", "new__greet: Greets."),
    ] {
        report.tells(key, word);
    }
    // The 2.x TypeScript client gives the older code the newer one's number.
    let codes: &[i64] = if family == Family::Legacy { &[-32002, -32602] } else { &[-32602] };
    let code = report.seen["no_resource"]["code"].as_i64();
    assert!(code.is_some_and(|code| codes.contains(&code)), "{}: {code:?}", report.who);
    report.is("completion", &json!(["Engineering"]));
    report.is("completion_narrowed", &json!(["David"]));
    report.is("completion_of_template", &json!(["7"]));
    report.is("modern_completion", &json!(["Ada", "Alan"]));
}

/// The caller was let go, and the server knows. It left when its callback for progress was called.
#[track_caller]
fn check_cancelling(report: &Report) {
    for server in ["old", "new"] {
        assert!(report.seen[format!("left_{server}")].is_object(), "{}: nobody left {server}", report.who);
        report.is(&format!("taken_back_{server}"), &json!("1"));
    }
}

/// A tool of one server, and a resource of another, came while the client was there. A modern client may keep no list,
/// and is told of no change on this connection.
#[track_caller]
fn check_changes(report: &Report, family: Family) {
    let is_told = family == Family::Legacy;
    report.is("changed", &if is_told { json!(["tools"]) } else { json!([]) });
    report.says("grown", "grown up");
    report.is("changed_resources", &json!(is_told));
    report.is("grown_resource", &json!("a new resource"));
}

/// Within the older family servers ask the client, over stdio and over HTTP, and its log is theirs.
#[track_caller]
fn check_asked(report: &Report) {
    for server in ["every", "web"] {
        report.says(&format!("elicited_{server}"), "Ada Löwe");
        report.says(&format!("sampled_{server}"), "a model’s words");
        report.says(&format!("roots_{server}"), "the first root");
    }
    report.says("roots_changed", "the second root");
    report.is("log", &json!({ "level": "warning", "logger": "old/loud", "data": "a word of warning ⚠" }));
}

/// Across families a server's question comes back to it as an error, and its tool says so; nothing hangs or breaks.
#[track_caller]
fn check_refused(report: &Report) {
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        report.fails(&format!("refused_{method}"), "-32601");
    }
    report.fails("not_offered", "every__trigger-sampling-request");
    assert_eq!(report.seen["not_offered"]["code"], "PROVIDER_TOOL_NOT_FOUND", "{}", report.who);
    report.says("after_refusals", "1");
}

/// What a modern tool wants to know reaches clients of both families, each in its own way.
#[track_caller]
fn check_asked_by_modern(report: &Report) {
    report.says("modern_asked", "Ada Löwe");
    for answer in ["Ada Löwe", "a model’s words", "the first root"] {
        report.says("modern_asked_all", answer);
    }
}
