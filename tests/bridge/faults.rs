//! Children that misbehave: what the caller is told, by when, and what is left behind.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use colibri::fleet::bridge::{Bridge, Cause, Executed};
use colibri::fleet::era::Era;
use colibri::fleet::link::Opener;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::sandbox::{Policy, STDERR_TAIL_BYTES_MAX, Spec};
use rustix::process::{Pid, Signal, kill_process};

use super::support::{Held, Kind, LONG, SHORT, Told, call, connect, memory_peak, tell_all, until};

/// The longest frame in these stories.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// Words for the scripts: `next` reads a message and its id, `answer` answers with a result.
const WORDS: &str = r#"
    next() { IFS= read -r line || exit 0; rest=${line#*'"id":'}; id=${rest%%[,\}]*}; }
    answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
    introduce() { next; answer "$id" '{"protocolVersion":"2025-11-25","capabilities":{}}'; next; }
    ignore() { cat >/dev/null; }
"#;

/// A shell script as a server.
fn script(text: &str) -> Box<dyn Opener> {
    let environment = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    let arguments = vec!["-c".into(), OsString::from(format!("{WORDS}\n{text}"))];
    let spec = Spec { program: "sh".into(), arguments, environment, directory: None };
    Box::new(Stdio {
        spec,
        policy: Policy::off(),
        frame_bytes_max: FRAME_BYTES_MAX,
        children: Children::default(),
    })
}

/// One that introduces itself as it should, reads the first call, and then does this.
async fn calling(text: &str) -> Bridge {
    let opener = script(&format!("introduce; next; {text}"));
    connect(opener, Era::Legacy, LONG).await.expect("it introduces itself")
}

/// BR-3, BR-5, BR-7, PR-1: whatever a child does with a call, the caller is told what it was, in how many
/// attempts, whether to try later and whether it may have been done, by its deadline; and nothing of it
/// stays.
#[tokio::test]
async fn every_fault_of_a_child_is_told() {
    let late = Err(Told::transient(Kind::TimedOut));
    let rows: [(&str, &str, Result<(), Told>); 22] = [
        ("never answers", "ignore", late),
        ("answers half a line", r#"printf '{"jsonrpc":"2.0","id":%s,"resu' "$id"; ignore"#, late),
        ("prints rubbish", r"printf '<html>\n\377\376\n\n[]\n{}\n7\nnull\n'; ignore", late),
        ("prints rubbish without end", "yes", late),
        ("answers another id", r"answer 1000 '{}'; ignore", late),
        ("answers our id as a text", r#"answer "\"$id\"" '{}'; ignore"#, late),
        ("answers our id as a fraction", r#"answer "$id.0" '{}'; ignore"#, late),
        ("talks to stderr without end", "yes >&2", late),
        ("answers twice", r#"answer "$id" '{}'; answer "$id" '{}'; ignore"#, Ok(())),
        ("answers another id first", r#"answer 1000 '{}'; answer "$id" '{}'; ignore"#, Ok(())),
        ("prints rubbish first", r#"printf '<html>\n'; answer "$id" '{}'; ignore"#, Ok(())),
        ("talks to stderr all the time", r#"yes >&2 & answer "$id" '{}'; ignore; kill $!"#, Ok(())),
        (
            "ends its lines as Windows does",
            r#"printf '{"jsonrpc":"2.0","id":%s,"result":{}}\r\n' "$id"; ignore"#,
            Ok(()),
        ),
        ("answers in a batch", r#"printf '[{"jsonrpc":"2.0","id":%s,"result":{}}]\n' "$id"; ignore"#, Ok(())),
        ("answers and leaves without a newline", r#"answer "$id" '{}' | tr -d '\n'; exit 0"#, Ok(())),
        ("leaves", "exit 3", Err(Told::lost())),
        (
            "leaves in the middle",
            r#"printf '{"jsonrpc":"2.0","id":%s,"resu' "$id"; exit 3"#,
            Err(Told::lost()),
        ),
        ("is killed", "kill -9 $$", Err(Told::lost())),
        ("closes its stdout and stays", "exec >&-; ignore", Err(Told::lost())),
        ("closes its stdout in the middle", r#"printf '{"jsonrpc"'; exec >&-; ignore"#, Err(Told::lost())),
        (
            "answers without a newline, for ever",
            r#"printf '{"jsonrpc":"2.0","result":"'; tr '\0' x </dev/zero"#,
            Err(Told::last(Kind::Protocol, Executed::Unknown)),
        ),
        (
            "answers with an error that has no code",
            r#"printf '{"jsonrpc":"2.0","id":%s,"error":{}}\n' "$id"; ignore"#,
            Err(Told::last(Kind::Protocol, Executed::Unknown)),
        ),
    ];
    let before = Held::now();
    let told = |(name, text, expected): (&'static str, &'static str, Result<(), Told>)| async move {
        let bridge = calling(text).await;
        match expected {
            Ok(()) => drop(call(&bridge, LONG).await.expect(name)),
            Err(told) => {
                let deadline = if told.0 == Kind::TimedOut { SHORT } else { LONG };
                told.check(name, deadline, &call(&bridge, deadline).await.expect_err(name));
            }
        }
        assert_eq!(bridge.client().connection().in_flight(), 0, "{name}");
        let words = bridge.client().connection().last_words().unwrap_or_default();
        assert!(words.len() <= STDERR_TAIL_BYTES_MAX, "{name}: {} bytes of stderr are kept", words.len());
        tokio::time::timeout(LONG, bridge.close()).await.expect("it closes");
    };
    tell_all(rows.map(told)).await;
    before.comes_back("a child's fault").await;
}

/// BR-3, BR-7: a child that cannot be introduced is told as what went wrong, after one attempt, and is
/// gone.
#[tokio::test]
async fn every_fault_of_a_child_that_starts_is_told() {
    let once = |kind, retryable| Told(kind, 1, retryable, Executed::No);
    let rows: [(&str, &str, Era, Told, &str); 8] = [
        (
            "leaves at once",
            "echo no licence >&2; exit 3",
            Era::Auto,
            once(Kind::Gone, true),
            "code 3; its last words: no licence",
        ),
        ("leaves on whatever it is asked", "next; exit 4", Era::Auto, once(Kind::Gone, true), "code 4"),
        ("is killed", "kill -9 $$", Era::Legacy, once(Kind::Gone, true), "signal 9"),
        ("closes its stdout", "exec >&-; ignore", Era::Legacy, once(Kind::Gone, true), "closed its stdout"),
        ("never answers", "ignore", Era::Modern, once(Kind::TimedOut, true), "no answer within 700 ms"),
        ("prints rubbish without end", "yes", Era::Legacy, once(Kind::TimedOut, true), "no answer"),
        (
            "prints without a newline",
            r"tr '\0' x </dev/zero",
            Era::Legacy,
            once(Kind::Protocol, false),
            "longer than",
        ),
        (
            "speaks another protocol",
            r#"next; answer "$id" '{"protocolVersion":7}'; ignore"#,
            Era::Legacy,
            once(Kind::Version, false),
            "the server offers none",
        ),
    ];
    let before = Held::now();
    let told = |(name, text, era, told, words): (&'static str, &'static str, Era, Told, &'static str)| async move {
        let deadline = if told.0 == Kind::TimedOut { SHORT } else { LONG };
        let Err(error) = connect(script(text), era, deadline).await else { panic!("{name}") };
        told.check(name, deadline, &error);
        assert!(error.to_string().contains(words), "{name}: {error}");
    };
    tell_all(rows.map(told)).await;
    before.comes_back("a child that was not introduced").await;
}

/// BR-7, PR-1: what is no program is not started, and nothing of it stays.
#[tokio::test]
async fn what_is_no_program_is_not_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "not a program").expect("it is written");
    let before = Held::now();
    for program in [Path::new("no-such-program-here"), folder.path(), &plain, Path::new("")] {
        let spec =
            Spec { program: program.into(), arguments: Vec::new(), environment: Vec::new(), directory: None };
        let opener = Box::new(Stdio {
            spec,
            policy: Policy::off(),
            frame_bytes_max: FRAME_BYTES_MAX,
            children: Children::default(),
        });
        let Err(error) = connect(opener, Era::Auto, LONG).await else { panic!("{}", program.display()) };
        assert!(matches!(error.source, Cause::Start { .. }), "{error:?}");
        assert_eq!((error.attempts, error.retryable, error.executed), (1, false, Executed::No));
    }
    before.comes_back("what is no program").await;
}

/// BR-8: an answer that comes too late changes nothing, the child was told that nobody waits, and the next
/// call works.
#[tokio::test]
async fn a_late_answer_changes_nothing() {
    // Which of the two comes first is nobody's promise.
    let text = r#"late=$id
        for _ in 1 2; do
            next; case "$line" in *tools/call*) again=$id;; *) cancelled=$line;; esac
        done
        answer "$late" '{"late":true}'; answer "$again" "$cancelled"; ignore"#;
    let bridge = calling(text).await;
    let late = bridge.client().call("t", b"{}", None, SHORT).await.expect_err("it waits");
    assert_eq!(late, Cause::TimedOut(SHORT));
    let said = call(&bridge, LONG).await.expect("the next call works");
    let said: serde_json::Value = serde_json::from_slice(&said).expect("JSON");
    assert_eq!(
        (&said["method"], &said["params"]["requestId"]),
        (&"notifications/cancelled".into(), &2.into())
    );
    bridge.close().await;
}

/// BR-5: a line without end fails the call that waits, is skipped to its newline at no cost in memory,
/// and the next call works.
#[tokio::test]
async fn a_line_without_end_is_skipped() {
    let text = r#"head -c 268435456 /dev/zero | tr '\0' x; echo; next; answer "$id" '{}'; ignore"#;
    let bridge = calling(text).await;
    let before = memory_peak();
    let error = call(&bridge, LONG).await.expect_err("it is no answer");
    Told::last(Kind::Protocol, Executed::Unknown).check("a line without end", LONG, &error);
    call(&bridge, LONG).await.expect("what follows the line is read");
    let more = memory_peak() - before;
    assert!(more < 32 << 20, "256 MiB that nobody reads cost {} MiB", more >> 20);
    bridge.close().await;
}

/// BR-3, BR-8: a child that does not read costs its callers their deadline, each its own, and holds up no close. What was
/// half sent to it cannot be taken back; it stays on its way until the child reads, or ends.
#[tokio::test]
async fn a_child_that_does_not_read_costs_a_deadline() {
    let before = Held::now();
    let bridge = connect(script("introduce; exec sleep 600"), Era::Legacy, LONG).await.expect("it connects");
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(4 << 20));
    let error = bridge.client().call("t", long.as_bytes(), None, SHORT).await.expect_err("nobody reads");
    assert_eq!(error, Cause::TimedOut(SHORT));
    let error = bridge.client().call("t", b"{}", None, SHORT).await.expect_err("it waits behind the other");
    assert_eq!(error, Cause::TimedOut(SHORT));
    bridge.close().await;
    drop(bridge);
    before.comes_back("a child that does not read").await;
}

/// BR-5, BR-9: what has left the child's group keeps neither a caller nor a bridge waiting, although it
/// holds the child's stdout.
#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_is_not_waited_for() {
    let before = Held::now();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("number");
    let leave = format!("setsid sh -c 'echo $$ >{0}; exec sleep 600' 2>/dev/null &", file.display());
    let bridge = calling(&format!("{leave} until [ -s {} ]; do :; done; exit 3", file.display())).await;
    let error = call(&bridge, Duration::from_secs(10)).await.expect_err("the child has left");
    Told::lost().check("a grandchild", LONG, &error);
    assert!(error.to_string().contains("code 3"), "{error}");
    bridge.close().await;
    drop(bridge);
    before.comes_back("a grandchild that holds the pipe").await;
    let grandchild = std::fs::read_to_string(&file).expect("its number");
    let grandchild = grandchild.trim().parse().ok().and_then(Pid::from_raw).expect("a number");
    kill_process(grandchild, Signal::KILL).expect("it was alive all the time");
}

/// BR-8: a call that its caller leaves is taken back by a message, once.
#[tokio::test]
async fn a_call_that_is_left_is_taken_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("said");
    let bridge = calling(&format!("echo \"$line\" >{0}; cat >>{0}", file.display())).await;
    let said = || std::fs::read_to_string(&file).unwrap_or_default();
    tokio::select! {
        outcome = bridge.client().call("t", b"{}", None, LONG) => panic!("nobody answers: {outcome:?}"),
        () = until("the call is there", || said().contains("tools/call")) => {}
    }
    until("it is taken back", || said().contains("notifications/cancelled")).await;
    bridge.close().await;
    let said = said();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.lines().last().is_some_and(|line| line.contains(r#""requestId":2"#)), "{said}");
}

/// BR-7: what a child was given in its environment is in no word of ours.
#[tokio::test]
async fn no_word_of_ours_repeats_an_environment() {
    const CANARY: &str = "c4n4ry-5ecret";
    for (program, text) in [
        ("sh", "exit 1"),
        ("sh", "ignore"),
        ("sh", "echo '<html>'; exec >&-; sleep 600"),
        ("no-such-program", ""),
    ] {
        let environment = vec![("PATH".into(), "/usr/bin:/bin".into()), ("API_KEY".into(), CANARY.into())];
        let arguments = vec!["-c".into(), OsString::from(format!("{WORDS}\n{text}"))];
        let spec = Spec { program: program.into(), arguments, environment, directory: None };
        let opener = Box::new(Stdio {
            spec,
            policy: Policy::off(),
            frame_bytes_max: FRAME_BYTES_MAX,
            children: Children::default(),
        });
        let Err(error) = connect(opener, Era::Auto, SHORT).await else { panic!("{text}") };
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    }
}

/// BR-8, BR-9: fifty children leave no more behind than ten, whether their bridge was closed or dropped.
#[tokio::test]
async fn fifty_children_leave_nothing_behind() {
    let texts = [
        r#"answer "$id" '{}'; ignore"#,
        "ignore",
        r#"printf '{"jsonrpc"'; ignore"#,
        r#"printf '{"jsonrpc"'; exit 1"#,
        "kill -9 $$",
    ];
    let mut before = Held::now();
    for time in 0..50 {
        if time == 10 {
            before.comes_back("ten children").await;
            before = Held::now();
        }
        let bridge = calling(texts[time % texts.len()]).await;
        let _ = bridge.client().call("t", b"{}", None, Duration::from_millis(20)).await;
        if time.is_multiple_of(2) {
            bridge.close().await;
        }
    }
    before.comes_back("fifty children").await;
}
