//! The binary with real servers behind it: children that it starts, loses, starts again and ends.

use std::path::PathBuf;

use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::sandbox::{Policy, Spec};
use serde_json::{Value, json};

use crate::cli::SERVER;
use crate::hostile::child::{Colibri, Home};

/// A colibri with this configuration, and nobody who has said anything to it.
pub(super) fn started(file: &Value) -> Colibri {
    let home = Home::new();
    let path = home.path().join("servers.json");
    std::fs::write(&path, file.to_string()).expect("a file");
    let mut command = home.command();
    command.arg("--config").arg(&path).arg("serve");
    Colibri::spawn(home, command)
}

/// A colibri with these servers, and a client that has begun.
pub(super) fn serving(servers: &Value) -> Colibri {
    let mut colibri = started(&json!({ "mcpServers": servers }));
    colibri.initialize("2025-11-25");
    colibri
}

/// The answer to a request; what is told meanwhile is let pass.
pub(super) fn ask(colibri: &mut Colibri, id: u64, method: &str, params: &Value) -> Value {
    colibri.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
    loop {
        let answer = colibri.answer();
        if answer["id"] == id {
            return answer;
        }
    }
}

fn names(colibri: &mut Colibri, id: u64) -> Vec<String> {
    let list = ask(colibri, id, "tools/list", &json!({}));
    let tools = list["result"]["tools"].as_array().cloned().expect("a list");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// Where a server is in its life, as `server_health` tells.
fn state(health: &Value, name: &str) -> Value {
    let servers = health["result"]["structuredContent"]["data"]["servers"].as_array().cloned();
    let server = servers.into_iter().flatten().find(|server| server["name"] == name);
    server.expect("it is configured")["state"].take()
}

/// Waits until `shell` is ready.
pub(super) fn await_ready(colibri: &mut Colibri) {
    let health = json!({ "name": "server_health", "arguments": {} });
    let is_ready = |answer: &Value| state(answer, "shell") == "ready";
    let mut id = 1000;
    // The story's watchdog bounds this.
    while !is_ready(&ask(colibri, id, "tools/call", &health)) {
        id += 1;
    }
}

/// The processes whose command line has this word.
pub(crate) fn processes(word: &str) -> Vec<PathBuf> {
    let has_word = |folder: &PathBuf| {
        std::fs::read_to_string(folder.join("cmdline"))
            .is_ok_and(|line| line.split('\0').any(|part| part == word))
    };
    let all = std::fs::read_dir("/proc").expect("Linux").flatten().map(|entry| entry.path());
    all.filter(has_word).collect()
}

/// PR-3, PR-5, PR-12, SB-1, SB-2: a server's tools are listed and called on the same path as colibri's own, on
/// record; a server that is not there hinders nobody and is told of.
#[test]
fn servers_are_listed_called_and_on_record() {
    let shell = json!({ "command": "sh", "args": ["-c", SERVER], "env": { "SECRET": "c4n4ry" } });
    let mut colibri = serving(&json!({ "shell": shell, "gone": { "command": "no-such-program-here" } }));
    await_ready(&mut colibri);
    let names = names(&mut colibri, 1);
    assert!(
        names.contains(&"shell__echo".to_owned()) && names.contains(&"server_ping".to_owned()),
        "{names:?}"
    );
    assert!(names.is_sorted());

    let call = |tool: &str, arguments: Value| json!({ "name": tool, "arguments": arguments });
    let echoed = ask(&mut colibri, 2, "tools/call", &call("shell__echo", json!({ "n": "x" })));
    assert_eq!(echoed["result"]["heard"], json!({ "n": "x" }), "{echoed}");
    assert!(echoed["result"]["_meta"]["colibri/correlationId"].is_string(), "{echoed}");
    let refused = ask(&mut colibri, 3, "tools/call", &call("shell__echo", json!({ "n": 7 })));
    assert_eq!(
        refused["result"]["structuredContent"]["error"]["code"], "PROVIDER_INVALID_INPUT",
        "{refused}"
    );
    let failed = ask(&mut colibri, 4, "tools/call", &call("shell__fail", json!({})));
    assert_eq!(failed["result"]["isError"], true);
    let unknown = ask(&mut colibri, 5, "tools/call", &call("shell__ecko", json!({})));
    let unknown = &unknown["result"]["structuredContent"]["error"];
    assert_eq!(unknown["code"], "PROVIDER_TOOL_NOT_FOUND", "{unknown}");
    assert!(unknown["message"].as_str().is_some_and(|said| said.contains("`shell__echo`")), "{unknown}");

    let health = ask(&mut colibri, 6, "tools/call", &call("server_health", json!({})));
    assert_eq!(health["result"]["structuredContent"]["data"]["status"], "degraded", "{health}");
    assert_eq!((state(&health, "shell"), state(&health, "gone")), (json!("ready"), json!("blocked")));

    let log = colibri.log();
    assert!(log.contains("[mcp:gone]") && !log.contains("c4n4ry"), "{log}");
    colibri.finish();
}

/// PR-9, PR-15: a server that is killed is started again and its tools work; when colibri ends, nothing is
/// left of any of them.
#[test]
fn a_killed_server_comes_back_and_nothing_is_left() {
    let mark = format!("mark-{}", std::process::id());
    let shell = json!({ "command": "sh", "args": ["-c", SERVER, mark.as_str()] });
    let mut colibri = serving(&json!({ "shell": shell }));
    await_ready(&mut colibri);
    let call = json!({ "name": "shell__echo", "arguments": {} });
    assert!(ask(&mut colibri, 1, "tools/call", &call)["result"].is_object());

    let running = processes(&mark);
    assert!(!running.is_empty(), "the server runs under its mark");
    for process in running {
        let pid = process
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok())
            .and_then(rustix::process::Pid::from_raw);
        let _ = rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::KILL);
    }
    let mut id = 2;
    loop {
        // The call that was on its way may fail, with a code that says so; the next ones wait.
        let answer = ask(&mut colibri, id, "tools/call", &call);
        if answer["result"]["heard"].is_object() {
            break;
        }
        let code = &answer["result"]["structuredContent"]["error"]["code"];
        assert!(code.as_str().is_some_and(|code| code.starts_with("PROVIDER_")), "{answer}");
        id += 1;
    }
    colibri.finish();
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}

/// CO-13: the mode MINIMAL starts no server, READONLY offers only tools that say they change nothing.
#[test]
fn modes_hold_for_servers_too() {
    for (mode, expected) in [("MINIMAL", 2), ("READONLY", 0)] {
        let home = Home::new();
        let file = home.path().join("servers.json");
        let shell = json!({ "command": "sh", "args": ["-c", SERVER] });
        std::fs::write(&file, json!({ "mcpServers": { "shell": shell } }).to_string()).expect("a file");
        let mut command = home.command();
        command.arg("--config").arg(&file).args(["--mode", mode, "serve"]);
        let mut colibri = Colibri::spawn(home, command);
        colibri.initialize("2025-11-25");
        // Which MINIMAL never has.
        if mode == "READONLY" {
            await_ready(&mut colibri);
        }
        let names = names(&mut colibri, 1);
        assert!(names.iter().all(|name| !name.starts_with("shell__")), "{mode}: {names:?}");
        assert!(expected == 0 || names.len() == expected, "{mode}: {names:?}");
        let call = json!({ "name": "shell__echo", "arguments": {} });
        let refused = ask(&mut colibri, 2, "tools/call", &call);
        let denied = refused["result"]["structuredContent"]["error"]["code"] == "PROVIDER_POLICY_DENIED";
        assert!(denied || refused["error"].is_object(), "{mode}: {refused}");
        colibri.finish();
    }
}

/// PR-11: progress of a server's tool reaches the client that asked for it, under the client's own token, before
/// the answer; who did not ask hears nothing.
#[test]
fn progress_reaches_who_asked_for_it() {
    let tells = r#"*'"echo"'*) token=$(printf %s "$line" | sed -n 's/.*"progressToken":\([0-9]*\).*/\1/p')
        [ -n "$token" ] && echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'$token',"progress":1.50}}'
        answer="#;
    let script = SERVER.replace(r#"*'"echo"'*) answer="#, tells);
    assert_ne!(script, SERVER);
    let mut colibri = serving(&json!({ "shell": { "command": "sh", "args": ["-c", script] } }));
    await_ready(&mut colibri);
    let call = |id: u64, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let asked = json!({ "name": "shell__echo", "arguments": {}, "_meta": { "progressToken": "mine" } });
    colibri.send(&call(1, asked).to_string());
    let mut told = colibri.answer();
    while told["method"] == "notifications/tools/list_changed" {
        told = colibri.answer();
    }
    assert_eq!(told["params"], json!({ "progressToken": "mine", "progress": 1.5 }), "{told}");
    assert_eq!(colibri.answer()["id"], 1);
    colibri.send(&call(2, json!({ "name": "shell__echo", "arguments": {} })).to_string());
    assert_eq!(colibri.answer()["id"], 2);
    colibri.finish();
}

/// PR-15: a fleet that is closed while a server is still being met, and does not want to leave, leaves nobody.
#[tokio::test]
async fn closing_while_connecting_leaves_nobody() {
    let mark = format!("stubborn-{}", std::process::id());
    let script = "trap '' TERM; while :; do sleep 600; done";
    let spec = Spec {
        program: "sh".into(),
        arguments: ["-c", script, &mark].map(Into::into).to_vec(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: None,
    };
    let opener =
        Stdio { spec, policy: Policy::off(), frame_bytes_max: 4 << 20, children: Children::default() };
    let mut stubborn = super::support::member("s", &super::support::Scripted::new(&[]));
    stubborn.settings.opener = Box::new(opener);
    let fleet = super::support::fleet(vec![stubborn]);
    while processes(&mark).is_empty() {
        tokio::task::yield_now().await;
    }
    fleet.fleet.close().await;
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}

/// PR-12, PR-13, CO-9: a real server's resources, prompts and completions reach both families, are asked for under its
/// own names, and are on record; what it says of itself reaches the next client.
#[test]
fn resources_and_prompts_of_a_child_are_served() {
    let script = SERVER
        .replace(r#""capabilities":{"tools":{}}"#, r#""capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{}},"instructions":"Read first.""#)
        .replace(
            "*tools/list*)",
            r#"*resources/list*) answer='"result":{"resources":[{"uri":"mem://a","name":"a"}]}';;
    *resources/templates/list*) answer='"result":{"resourceTemplates":[{"uriTemplate":"mem://{n}/x","name":"x"}]}';;
    *prompts/list*) answer='"result":{"prompts":[{"name":"review","description":"Reviews."}]}';;
    *resources/read*gone*) answer='"error":{"code":-32002,"message":"it is gone"}';;
    *resources/read*|*prompts/get*|*completion/complete*) answer='"result":{"heard":'$(printf %s "$line" | sed 's/.*"params":\(.*\)}$/\1/')'}';;
    *tools/list*)"#,
        );
    let mut colibri = serving(&json!({ "shell": { "command": "sh", "args": ["-c", script] } }));
    await_ready(&mut colibri);
    let resources = ask(&mut colibri, 1, "resources/list", &json!({}));
    assert_eq!(resources["result"]["resources"], json!([{ "uri": "mem://a", "name": "a" }]), "{resources}");
    let templates = ask(&mut colibri, 2, "resources/templates/list", &json!({}));
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "mem://{n}/x", "{templates}");
    let prompts = ask(&mut colibri, 3, "prompts/list", &json!({}));
    assert_eq!(prompts["result"]["prompts"][0]["name"], "shell__review", "{prompts}");

    let modern = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let with = |mut params: Value, meta: Option<&Value>| {
        if let Some(meta) = meta {
            params["_meta"] = meta.clone();
        }
        params
    };
    let complete = |name: &str| json!({ "ref": { "type": "ref/prompt", "name": name }, "argument": { "name": "n", "value": "v" } });
    for meta in [None, Some(&modern)] {
        let mut heard = |method: &str, params: Value| {
            let answer = ask(&mut colibri, 4, method, &with(params, meta));
            assert!(answer["result"]["_meta"]["colibri/correlationId"].is_string(), "{answer}");
            assert_eq!(answer["result"].get("resultType").is_some(), meta.is_some(), "{answer}");
            answer["result"]["heard"].clone()
        };
        assert_eq!(heard("resources/read", json!({ "uri": "mem://7/x" })), json!({ "uri": "mem://7/x" }));
        let alias = "colibri://shell/mem%3A%2F%2Fother";
        assert_eq!(heard("resources/read", json!({ "uri": alias })), json!({ "uri": "mem://other" }));
        let get = json!({ "name": "shell__review", "arguments": { "a": "b" } });
        assert_eq!(heard("prompts/get", get), json!({ "name": "review", "arguments": { "a": "b" } }));
        assert_eq!(heard("completion/complete", complete("shell__review")), complete("review"));
        let gone = ask(&mut colibri, 5, "resources/read", &with(json!({ "uri": "mem://gone/x" }), meta));
        assert_eq!(gone["error"]["message"], "it is gone", "{gone}");
        let unknown = ask(&mut colibri, 6, "resources/read", &with(json!({ "uri": "mem://b" }), meta));
        assert_eq!(unknown["error"]["code"], if meta.is_some() { -32_602 } else { -32_002 }, "{unknown}");
        assert!(
            unknown["error"]["message"].as_str().is_some_and(|said| said.contains("`mem://a`")),
            "{unknown}"
        );
    }
    let discovered = ask(&mut colibri, 7, "server/discover", &json!({ "_meta": modern }));
    let said = discovered["result"]["instructions"].as_str().expect("a text");
    assert!(said.ends_with("#### MCP Server: shell\nRead first.\nshell__review: Reviews."), "{said}");
    colibri.finish();
}
