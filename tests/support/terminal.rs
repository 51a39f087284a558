//! A person at a terminal, played by `script`.

use std::io::Write;
use std::process::{Command, ExitStatus, Stdio};

use crate::hostile::child::Home;

/// What colibri shows a person who runs it with these words at a terminal, in the folder `work`, and types this; and
/// how it ended.
#[track_caller]
pub(crate) fn at_terminal(home: &Home, words: &str, typed: &str) -> (String, ExitStatus) {
    let mut played = Command::new("script");
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_colibri"));
    played.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    played.env_clear().envs(super::measured()).env("SHELL", "/bin/sh").env("PATH", "/usr/bin:/bin");
    played.env("HOME", home.path()).env("COLIBRI_DB_PATH", home.database());
    played.current_dir(home.path().join("work")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut played = played
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run script: {error}; install the Debian package bsdutils"));
    let mut keyboard = played.stdin.take().expect("it is piped");
    keyboard.write_all(typed.as_bytes()).expect("it is read");
    // Left in place until the end: a terminal whose person hangs up ends what runs in it.
    let output = played.wait_with_output().expect("it ends");
    drop(keyboard);
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status)
}
