//! A confused user's view of the built binary: what is typed, what is said, which exit code.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

mod ledger;
mod messages;
mod servers;
mod servers_file;
mod terminal;
mod trust;

use crate::hostile::child::Home;

pub(crate) use servers::SERVER;

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Types a command.
pub(crate) fn run(home: &Home, arguments: &[&str]) -> Ran {
    run_with(home, &[], arguments)
}

/// The same, with these variables set.
pub(crate) fn run_with(home: &Home, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let mut command = home.command();
    command.args(arguments).envs(variables.iter().copied()).stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what it prints is UTF-8");
    Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ran {
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One line of a table: what is typed, the exit code, and what stdout and stderr say among other things.
/// An empty word says that there is nothing there.
pub(crate) type Story<'a> = (&'a [&'a str], i32, &'a str, &'a str);

#[track_caller]
pub(crate) fn check(home: &Home, stories: &[Story<'_>]) {
    for (arguments, code, stdout, stderr) in stories {
        let ran = run(home, arguments);
        let shown = arguments.join(" ");
        assert_eq!(ran.code, *code, "colibri {shown}: {ran:?}");
        assert_says(&ran.stdout, stdout, &format!("stdout of colibri {shown}"));
        assert_says(&ran.stderr, stderr, &format!("stderr of colibri {shown}"));
    }
}

#[track_caller]
fn assert_says(text: &str, word: &str, what: &str) {
    if word.is_empty() {
        assert_eq!(text, "", "{what}");
    } else {
        assert!(text.contains(word), "{what} lacks {word:?}:\n{text}");
    }
}
