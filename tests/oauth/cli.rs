//! `colibri auth`, typed by a person: what is said, which exit code, and what lies on the disk.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::stage::{Redirect, Stage};
use super::{sent_to, visit};
use crate::cli::Ran;
use crate::hostile::child::Home;
use crate::support::library::PATIENCE;

/// Types a command, and reads what it comes to. Nothing it says may be a secret.
async fn run(home: &Home, arguments: &[&str]) -> Ran {
    finish(start(home, arguments)).await
}

fn start(home: &Home, arguments: &[&str]) -> Child {
    let mut command = Command::from(home.command());
    command.args(arguments).env("SECRET", "canary-secret").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

async fn finish(child: Child) -> Ran {
    let output = timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what it prints is UTF-8");
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    assert!(!format!("{ran:?}").contains("canary"), "{ran:?}");
    ran
}

/// Signs in, with a browser that goes where it is told.
async fn sign_in(home: &Home, arguments: &[&str]) -> Ran {
    let mut child = start(home, arguments);
    let address = address(&mut child).await;
    assert_eq!(visit(&address).await, 200);
    finish(child).await
}

/// The address that the command shows.
async fn address(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let shown = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it shows an address");
            if let Some(address) = line.strip_prefix("  http") {
                return format!("http{address}");
            }
        }
    };
    timeout(PATIENCE, shown).await.expect("it shows an address")
}

fn tokens(home: &Home) -> std::path::PathBuf {
    home.path().join(".local/share/colibri/tokens")
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Signing in, using it from other processes, looking at it, and signing out.
#[tokio::test]
async fn a_person_signs_in_and_out() {
    let (stage, home) = (Stage::set().await, Home::new());
    // Over as soon as it is given: the next process has to renew it.
    stage.script().expires_in = Some(0);
    let url = stage.url.as_str();
    let ran = run(&home, &["call", "--server", url, "greet"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains(&format!("run `colibri auth login {url}`")), "{ran:?}");
    assert_eq!(run(&home, &["auth", "status", url]).await.code, 3);

    let ran = sign_in(&home, &["auth", "login", url]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("signed in") && ran.stdout.contains(&stage.issuers[0]), "{ran:?}");
    assert_eq!(mode(&tokens(&home)), 0o700);
    let files: Vec<_> =
        std::fs::read_dir(tokens(&home)).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    let kept = files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "json"));
    let kept: Vec<String> = kept.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert!(kept.len() == 1 && kept[0].contains("canary-refresh"), "{} files", kept.len());

    stage.script().expires_in = Some(3600);
    let ran = run(&home, &["call", "--server", url, "greet"]).await;
    assert!(ran.code == 0 && ran.stdout.contains("hello"), "{ran:?}");
    assert_eq!(stage.asked("a POST /token refresh_token"), 1);
    assert_eq!(run(&home, &["probe", url]).await.code, 0);
    assert_eq!(stage.asked("a POST /token"), 2, "the first process kept what it renewed");

    let told = run(&home, &["auth", "status", "--json"]).await.json();
    assert_eq!((told[0]["url"].as_str(), told[0]["refreshable"].as_bool()), (Some(url), Some(true)));
    assert_eq!((&told[0]["state"], &told[0]["issuer"]), (&json!("signed in"), &json!(stage.issuers[0])));
    assert!(told[0]["expiresAt"].as_str().unwrap().ends_with('Z'), "{told}");
    let ran = run(&home, &["auth", "logout", url]).await;
    assert!(ran.code == 0 && ran.stdout.starts_with("signed out of"), "{ran:?}");
    let ran = run(&home, &["auth", "logout", url]).await;
    assert!(ran.code == 0 && ran.stdout.starts_with("nothing was kept"), "{ran:?}");
    assert_eq!(run(&home, &["auth", "status", "--json"]).await.json(), json!([]));
    assert_eq!(run(&home, &["call", "--server", url, "greet"]).await.code, 3);
}

/// A server of the configuration, with a client of its own, and what is said about those that are none.
#[tokio::test]
async fn a_configured_server_is_signed_in_to_by_its_name() {
    let (stage, home) = (Stage::set().await, Home::new());
    let file = home.path().join("colibri.json");
    let oauth = json!({ "clientId": "mine", "clientSecret": "${SECRET}", "scopes": "one two" });
    let servers = json!({
        "the server": { "url": stage.url, "oauth": oauth },
        "fixed": { "url": stage.url, "headers": { "authorization": "Bearer ${SECRET}" } },
        "program": { "command": "true" },
        "broken": { "url": stage.url, "oauth": { "clientSecret": "${SECRET}" } },
    });
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let with = |arguments: &[&'static str]| [&config[..], arguments].concat();

    let ran = run(&home, &with(&["call", "--server", "the server", "greet"])).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("run `colibri auth login -- 'the server'`"), "{ran:?}");
    let ran = run(&home, &with(&["call", "the-server__greet"])).await;
    assert_eq!(ran.code, 3, "by the name that clients know it is the same: {ran:?}");
    assert!(ran.stdout.contains("run `colibri auth login -- 'the server'`"), "{ran:?}");
    let ran = sign_in(&home, &with(&["auth", "login", "the server", "--scope", "three"])).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(stage.script().form["basic"], "mine:canary-secret");
    assert_eq!(stage.script().authorize["scope"], "one two three");
    let ran = run(&home, &with(&["call", "--server", "the server", "greet"])).await;
    assert!(ran.code == 0 && ran.stdout.contains("hello"), "{ran:?}");

    let ran = run(&home, &with(&["call", "the-server__greet"])).await;
    assert!(ran.code == 0 && ran.stdout.contains("hello"), "{ran:?}");

    let ran = run(&home, &with(&["auth", "status"])).await;
    assert!(ran.stdout.contains("one two three") && ran.stdout.contains("fixed"), "{ran:?}");
    let ran = run(&home, &with(&["config", "show"])).await;
    assert!(ran.stdout.contains("\"clientSecret\":\"***\""), "{ran:?}");
    for (name, code, word) in [
        ("fixed", 2, "already say who you are"),
        ("program", 2, "is a program"),
        ("the serve", 2, "did you mean `the server`?"),
        ("broken", 7, "need `oauth.clientId`"),
        ("ftp://example.com", 2, "address"),
    ] {
        let ran = run(&home, &with(&["auth", "login", name])).await;
        assert!(ran.code == code && ran.stderr.contains(word), "{name}: {ran:?}");
    }
}

/// A file that was merely found cannot have its servers signed in to.
#[tokio::test]
async fn a_found_file_is_not_signed_in_for() {
    let (stage, home) = (Stage::set().await, Home::new());
    let servers = json!({ "found": { "url": stage.url, "oauth": { "clientId": "${SECRET}" } } });
    std::fs::write(home.path().join("work/.mcp.json"), json!({ "mcpServers": servers }).to_string()).unwrap();
    let ran = run(&home, &["auth", "login", "found"]).await;
    assert!(ran.code == 7 && ran.stderr.contains("not trusted"), "{ran:?}");
    assert_eq!(stage.asked(""), 0);
}

/// What does not work out is told in one line, by its exit code, and in JSON for machines.
#[tokio::test]
async fn a_login_that_fails_says_why() {
    let (stage, home) = (Stage::set().await, Home::new());
    stage.script().redirect = Redirect::Denied;
    let ran = sign_in(&home, &["auth", "login", &stage.url]).await;
    assert!(ran.code == 3 && ran.stderr.contains("access was refused: access_denied: No."), "{ran:?}");
    assert!(!tokens(&home).exists() || std::fs::read_dir(tokens(&home)).unwrap().count() == 0);

    let ran = run(&home, &["auth", "login", &stage.url, "--wait", "1"]).await;
    assert!(ran.code == 3 && ran.stderr.contains("no answer came from the browser within 1 s"), "{ran:?}");

    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = run(&home, &["auth", "login", &stage.url, "--port", &port]).await;
    assert!(ran.code == 3 && ran.stderr.contains(&format!("port {port}")), "{ran:?}");

    stage.script().is_published = false;
    let ran = run(&home, &["auth", "login", &stage.url, "--json"]).await;
    let told: Value = serde_json::from_str(ran.stderr.trim()).unwrap();
    assert_eq!(told["error"]["exit"], 3, "{ran:?}");
    assert!(told["error"]["message"].as_str().unwrap().contains("no OAuth metadata"), "{ran:?}");

    drop(taken);
    let ran = run(&home, &["auth", "login", &format!("http://127.0.0.1:{port}/mcp")]).await;
    assert!(ran.code == 4 && ran.stderr.contains("cannot reach 127.0.0.1"), "{ran:?}");
}

/// A machine without a browser: the address is opened elsewhere, and what it led to is pasted.
#[tokio::test]
async fn a_login_from_afar_is_pasted() {
    let (stage, home) = (Stage::set().await, Home::new());
    let mut child = start(&home, &["auth", "login", &stage.url, "--paste", "--json"]);
    let address = address(&mut child).await;
    let location = sent_to(&address).await;
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(format!("what?\n{location}\n").as_bytes()).await.unwrap();
    let ran = finish(child).await;
    assert_eq!((ran.code, &ran.json()["state"]), (0, &json!("signed in")), "{ran:?}");
    drop(stdin);
}
