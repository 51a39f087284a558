//! Streams: what happens, as it happens.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use super::*;

/// A command that goes on until it is dropped.
struct Following {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.command();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line that is like this. The colibri behind it is watched, so that this ends.
    #[track_caller]
    fn next(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it has ended");
            if is_it(&line) {
                return line;
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// SB-7: who follows sees a call complete under the correlation id that the client got, and only the topics it asked for;
/// who comes later finds it in what is kept.
#[test]
fn a_call_is_seen_by_who_follows() {
    let mut colibri = serving(&json!({ "one": server("x") }));
    await_state(&colibri.home, "one", "ready");
    let topic = "provider.mcp.tool.*";
    let mut following = Following::start(&colibri.home, &["events", "--follow", "--json", "--topic", topic]);
    let answer = call(&mut colibri, 1, "one__echo");
    let id = answer["result"]["_meta"]["colibri/correlationId"].clone();
    let event: Value = serde_json::from_str(&following.next(|_| true)).unwrap();
    assert_eq!(event["topic"], "provider.mcp.tool.completed", "{event}");
    assert_eq!((&event["correlation_id"], &event["payload"]["tool"]), (&id, &"echo".into()), "{event}");
    call(&mut colibri, 2, "one__fail");
    let event: Value = serde_json::from_str(&following.next(|_| true)).unwrap();
    assert_eq!(event["topic"], "provider.mcp.tool.failed", "{event}");

    let kept = ok(&colibri.home, &["events", "--topic", topic]).stdout;
    assert_eq!(kept.lines().count(), 2, "{kept}");
    assert!(
        kept.contains(id.as_str().unwrap()) && kept.contains("provider.mcp.tool.completed  one"),
        "{kept}"
    );
    let all = ok(&colibri.home, &["events"]).stdout;
    assert!(all.contains("provider.mcp.tools.discovered") && all.lines().count() > 2, "{all}");
    drop(following);
    colibri.finish();
}

/// PR-16: who follows the lines of a server gets those of its next process too; it ends when colibri does.
#[test]
fn lines_are_followed_over_a_restart() {
    let colibri = serving(&json!({ "one": server("again") }));
    await_state(&colibri.home, "one", "ready");
    let mut following = Following::start(&colibri.home, &["logs", "one", "-f"]);
    following.next(|line| line.contains("a word: again"));
    ok(&colibri.home, &["server", "restart", "one"]);
    following.next(|line| line.contains("a word: again"));
    following.next(|line| line.contains("ready with 2 tools"));
    colibri.finish();
    assert!(following.child.wait().unwrap().success());
}
