//! stdout is guarded: what a tool prints goes to stderr, whether it panics or not.
//!
//! The binary has no tool that prints, so the child is this very test program, which serves one.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use colibri::app::Server;
use colibri::tools::{ToolConfig, ToolError};
use serde_json::{Value, json};

use super::child::{Colibri, Home, call};

/// Set in the child: the same test program, as a server.
const AS_THE_CHILD: &str = "STORY_AS_THE_CHILD";

/// After this line stdout belongs to the protocol; before it, to the test harness.
const FROM_HERE: &str = "from here on there are only frames";

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// CO-7, CO-12: `println!`, a child process and a panic inside a handler: the client sees frames only.
#[test]
fn what_a_tool_prints_never_reaches_the_client() {
    if std::env::var_os(AS_THE_CHILD).is_some() {
        return a_server_whose_tools_print();
    }
    let home = Home::new();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "hostile::guard::what_a_tool_prints_never_reaches_the_client", "--nocapture"]);
    child.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin").env(AS_THE_CHILD, "1");
    let mut input = vec![super::child::initialize("2025-11-25")];
    input.extend(
        (1..=5).map(|id| {
            call(id, ["chatty", "panicky", "server_ping", "noisy_child", "panicky"][id as usize - 1])
        }),
    );
    let (frames, stderr) = talk(&mut child, &home, &input);
    let answers: Vec<Value> = frames.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let mut told: Vec<String> = answers.iter().map(super::child::brief).collect();
    told.sort();
    assert_eq!(told, ["0 ok", "1 ok", "2 HANDLER_ERROR", "3 ok", "4 ok", "5 HANDLER_ERROR"], "{stderr}");
    for printed in ["a word on stdout", "a last word on stdout", "a child's word"] {
        assert!(stderr.contains(printed), "{printed}: {stderr}");
        assert!(!frames.iter().any(|frame| frame.contains(printed)), "{printed}: {frames:?}");
    }
}

/// Every line that the child writes as a server, and its stderr. The input ends when there was a line for each of its
/// own: calls that are still under way at its end have but a moment.
fn talk(child: &mut Command, home: &Home, input: &[String]) -> (Vec<String>, String) {
    let log = home.path().join("stderr");
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
    let mut child = child.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all((input.join("\n") + "\n").as_bytes()).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.expect("UTF-8"));
    let mut frames = lines.skip_while(|line| !line.ends_with(FROM_HERE)).skip(1);
    let mut told: Vec<String> = frames.by_ref().take(input.len()).collect();
    drop(stdin);
    told.extend(frames);
    child.wait().unwrap();
    (told, std::fs::read_to_string(log).unwrap())
}

/// The child of the story above.
#[expect(clippy::print_stdout, reason = "that is the story")]
fn a_server_whose_tools_print() {
    println!("{FROM_HERE}");
    std::io::stdout().flush().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = Server::builder().build();
        let config = || ToolConfig { title: "Prints where it should not".into(), ..ToolConfig::default() };
        let chatty = |_: Nothing, _| async {
            println!("a word on stdout");
            Ok::<Value, ToolError>(json!({}))
        };
        let panicky = |_: Nothing, _| async {
            println!("{{\"jsonrpc\":\"2.0\"}} a last word on stdout");
            let nothing: Value = serde_json::from_str("").expect("an idea");
            Ok::<Value, ToolError>(nothing)
        };
        let noisy_child = |_: Nothing, _| async {
            Command::new("echo").arg("a child's word").status().expect("echo is everywhere");
            Ok::<Value, ToolError>(json!({}))
        };
        server.register("chatty", config(), chatty).unwrap();
        server.register("panicky", config(), panicky).unwrap();
        server.register("noisy_child", config(), noisy_child).unwrap();
        server.start().await.unwrap();
        server.wait().await;
    });
}

/// SU-2: stdio needs no network. Without any, it works; with one, it asks for no socket.
#[test]
fn stdio_needs_no_network() {
    let session = |home: Home, wrapper: &[&str]| {
        let mut command = home.wrapped(wrapper);
        command.arg("serve");
        let mut colibri = Colibri::spawn(home, command);
        colibri.initialize("2025-11-25");
        assert_eq!(colibri.ask(&call(1, "server_ping")), "1 ok");
        colibri.finish();
    };
    let alone = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    session(Home::new(), &["unshare", alone]);
    let kept = tempfile::tempdir().unwrap();
    let trace = kept.path().join("trace").display().to_string();
    session(Home::new(), &["strace", "-f", "-e", "trace=network", "-o", &trace]);
    let calls = std::fs::read_to_string(&trace).unwrap();
    assert!(calls.contains("exited with 0"), "{calls}");
    // The operator socket is a file of this machine, and its family says so.
    let asks = |line: &&str| ["socket(", "connect(", "bind("].iter().any(|door| line.contains(door));
    let outside: Vec<&str> = calls.lines().filter(asks).filter(|line| !line.contains("AF_UNIX")).collect();
    assert!(outside.is_empty(), "{outside:?}");
}
