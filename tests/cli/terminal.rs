//! `colibri serve`, typed by a person.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::hostile::child::{Home, PING};

/// It says what it serves, where its data is and what to try; the line to try works; Ctrl-D ends it.
#[test]
fn a_person_at_a_terminal_is_told_what_this_is() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: there is no `script` to play the terminal");
        return;
    }
    let home = Home::new();
    let mut played = Command::new("script");
    let typed = format!("{} serve", env!("CARGO_BIN_EXE_colibri"));
    played
        .args(["--quiet", "--return", "--command", &typed, "/dev/null"])
        .env_clear()
        .envs(crate::support::measured());
    played.env("HOME", home.path()).env("COLIBRI_DB_PATH", home.database()).env("PATH", "/usr/bin:/bin");
    played.env("SHELL", "/bin/sh").current_dir(home.path());
    let mut played = played.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keyboard = played.stdin.take().unwrap();
    write!(keyboard, "{PING}\n\u{4}").unwrap();
    let output = played.wait_with_output().unwrap();
    drop(keyboard);
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in [
        "colibri serves MCP here",
        &format!("data      {}", home.database().display()),
        "mode      FULL",
        "servers   0 configured",
        r#"try       {"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        "colibri call server_health",
        "Ctrl-D",
        "[colibri] ready",
        r#"{"jsonrpc":"2.0","id":"ping","result":{}}"#,
    ] {
        assert!(screen.contains(word), "{word:?} is not on the screen:\n{screen}");
    }
    assert_eq!(output.status.code(), Some(0), "{screen}");
}
