//! Each command, on a colibri with real children behind it.

use super::*;

/// SU-13, PR-16: `status` tells of the process and of each server what is so: state, revision, transport, process, memory,
/// tools, what it said last, and what is wrong with the one that cannot start.
#[test]
fn status_tells_what_is_so() {
    let colibri = serving(
        &json!({ "one": server("first"), "two": server("second"), "gone": { "command": "no-such-program" } }),
    );
    let home = &colibri.home;
    for name in ["one", "two"] {
        await_state(home, name, "ready");
    }
    await_state(home, "gone", "blocked");
    let status = ok(home, &["status", "--json"]).json();
    let own = &status["colibris"][0];
    assert_eq!(status["colibris"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(own["pid"], colibri.pid().as_raw_nonzero().get());
    assert_eq!(own["database"], home.database().to_str().unwrap());
    assert_eq!(own["directory"], home.path().join("work").to_str().unwrap());
    assert_eq!(own["started_by"]["pid"], std::process::id());
    let servers = own["servers"].as_array().unwrap();
    let (gone, one) = (&servers[0], &servers[1]);
    assert_eq!(
        (&one["transport"], &one["revision"], &one["tools"]),
        (&"stdio".into(), &"2025-06-18".into(), &2.into())
    );
    assert_eq!((&one["restarts"], &one["in_flight"]), (&0.into(), &0.into()));
    assert_eq!(one["last_words"], "a word: first");
    assert!(one["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 10_000), "{one}");
    assert!(one["uptime_ms"].is_u64() && one["trouble"].is_null(), "{one}");
    let line = std::fs::read_to_string(format!("/proc/{}/cmdline", one["pid"])).unwrap();
    assert!(line.starts_with("sh\0-c\0"), "the program's own process, not its keeper's: {line}");
    assert!(gone["trouble"].as_str().is_some_and(|why| why.contains("no such program")), "{gone}");

    let shown = ok(home, &["status"]).stdout;
    for words in ["pid ", "directory ", "SERVER", "one: stderr: a word: first", "gone: error: cannot start"] {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "no colours without a terminal: {shown:?}");
    colibri.finish();
}

/// PR-9, PR-16: a server is started again by hand, also one that had given up; `test` times it; `logs` has what it said
/// and what was said of it.
#[test]
fn a_server_is_restarted_tested_and_read() {
    let colibri = serving(&json!({ "one": server("hello"), "gone": { "command": "no-such-program" } }));
    let home = &colibri.home;
    let before = await_state(home, "one", "ready");
    assert_eq!(ok(home, &["server", "restart", "one"]).stdout, "`one` is ready with 2 tools\n");
    let after = standing(home, "one");
    assert_ne!(before["pid"], after["pid"]);
    assert_eq!(after["restarts"], 1);

    let tested = ok(home, &["server", "test", "one", "--json"]).json();
    assert_eq!((&tested["well"], &tested["tools"]), (&true.into(), &2.into()), "{tested}");
    assert!(tested["latency_us"].as_u64().is_some_and(|latency| latency > 0), "{tested}");
    assert!(ok(home, &["server", "test", "one"]).stdout.contains("revision 2025-06-18, 2 tools"));

    for (arguments, code, said) in [
        (&["server", "restart", "gone"][..], 4, "`gone` is blocked: cannot start no-such-program"),
        (&["server", "test", "gone"], 4, "`gone` is not well"),
        (&["server", "test", "on"], 2, "no server `on` runs here; did you mean `one`?"),
        (&["server", "accept", "one"], 2, "no tool waits to be accepted"),
        (&["logs", "nobody"], 2, "no server `nobody` runs here"),
        (&["server", "show", "one", "--pid", "1"], 2, "no colibri has the process number 1"),
    ] {
        let ran = run(home, arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{arguments:?}: {ran:?}");
    }

    let logs = ok(home, &["logs", "one"]).stdout;
    let said: Vec<(&str, &str)> =
        logs.lines().filter_map(|line| line.split_once("  ")?.1.trim().split_once(' ')).collect();
    let said: Vec<(&str, &str)> = said.into_iter().map(|(from, text)| (from, text.trim())).collect();
    let ready = ("colibri", "ready with 2 tools");
    let hello = ("stderr", "a word: hello");
    assert_eq!(said.iter().filter(|line| **line == hello).count(), 2, "once for each process: {logs}");
    assert!(
        said.iter().any(|(from, text)| *from == ready.0 && text.starts_with(ready.1))
            && said.contains(&("colibri", "restarting: a person asked for a restart")),
        "{logs}"
    );

    let shown = ok(home, &["server", "show", "one"]).stdout;
    for words in ["state       ready", "command     sh -c ", "sandbox ", "echo  one__echo", "fail  one__fail"]
    {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    colibri.finish();
}

/// PR-12: a server that is turned off is neither listed nor called, its process is gone and clients are told; turned on,
/// it is as before.
#[test]
fn a_server_is_turned_off_and_on() {
    let mut colibri = serving(&json!({ "one": server("x"), "two": server("y") }));
    for name in ["one", "two"] {
        await_state(&colibri.home, name, "ready");
    }
    let names = |colibri: &mut Colibri, id| ask(colibri, id, "tools/list", &json!({})).to_string();
    until("both are listed", || names(&mut colibri, 1).contains("two__echo").then_some(()));
    let process = standing(&colibri.home, "one")["pid"].to_string();

    let off = ok(&colibri.home, &["server", "disable", "one"]);
    assert_eq!(off.stdout, "`one` is off\n");
    assert!(off.stderr.contains("until this colibri ends"), "{off:?}");
    let told = until("the client is told", || {
        let told = colibri.answer();
        (told["method"] == "notifications/tools/list_changed").then_some(told)
    });
    assert!(told["id"].is_null());
    let listed = names(&mut colibri, 2);
    assert!(!listed.contains("one__echo") && listed.contains("two__echo"), "{listed}");
    let refused = call(&mut colibri, 3, "one__echo");
    let error = &refused["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "PROVIDER_POLICY_DENIED", "{refused}");
    until("its process is gone", || (!PathBuf::from(format!("/proc/{process}")).exists()).then_some(()));
    assert!(call(&mut colibri, 4, "two__echo")["result"]["heard"].is_object());
    let health = call(&mut colibri, 5, "server_health");
    assert_eq!(health["result"]["structuredContent"]["data"]["status"], "ok", "nothing is wrong: {health}");
    for verb in ["restart", "test"] {
        let ran = run(&colibri.home, &["server", verb, "one"]);
        assert!(ran.code == 2 && ran.stderr.contains("is disabled: enable it"), "{ran:?}");
    }

    assert_eq!(ok(&colibri.home, &["server", "enable", "one"]).stdout, "`one` is ready with 2 tools\n");
    assert!(call(&mut colibri, 6, "one__echo")["result"]["heard"].is_object());
    assert!(names(&mut colibri, 7).contains("one__echo"));
    colibri.finish();
}

/// PR-9: who turns on a server that takes its time is told what came of it. The command used to give up on colibri before
/// colibri gave up on the server.
#[test]
fn a_slow_server_is_turned_on() {
    let slowly = format!("[ -e \"$HOME/begun\" ] && sleep 6\ntouch \"$HOME/begun\"\n{SERVER}");
    let colibri = serving(&json!({ "one": { "command": "sh", "args": ["-c", slowly] } }));
    let home = &colibri.home;
    await_state(home, "one", "ready");
    ok(home, &["server", "disable", "one"]);
    until("its process is gone", || standing(home, "one")["pid"].is_null().then_some(()));
    let told = ok(home, &["server", "enable", "one"]).stdout;
    assert!(told.starts_with("`one` is "), "{told}");
    colibri.finish();
}

/// Several colibris are told apart; what concerns one of them must be told which. What a killed one left is swept.
#[test]
fn several_are_told_apart() {
    let first = serving(&json!({ "one": server("x") }));
    let home = &first.home;
    let other = Home::new();
    let mut command = other.command();
    command.arg("serve").env("HOME", home.path()).env("COLIBRI_DB_PATH", other.database());
    let mut second = Colibri::spawn(other, command);
    second.initialize("2025-11-25");
    let pids = || -> Vec<Value> {
        let status = run(home, &["status", "--json"]).json();
        status["colibris"].as_array().unwrap().iter().map(|one| one["pid"].clone()).collect()
    };
    let (one, two) = (first.pid().as_raw_nonzero().get(), second.pid().as_raw_nonzero().get());
    let mut both = vec![json!(one), json!(two)];
    both.sort_by_key(Value::as_i64);
    assert_eq!(until("both answer", || Some(pids()).filter(|pids| pids.len() == 2)), both);
    let asked = run(home, &["server", "list"]);
    assert!(
        asked.code == 2 && asked.stderr.contains("--pid") && asked.stderr.contains(&two.to_string()),
        "{asked:?}"
    );
    let listed = ok(home, &["server", "list", "--json", "--pid", &one.to_string()]).json();
    assert_eq!(listed["servers"][0]["name"], "one");
    assert_eq!(ok(home, &["server", "list", "--pid", &two.to_string()]).stdout, "no servers\n");

    second.signal(rustix::process::Signal::KILL);
    second.exit_code();
    let left = folder(home).join(format!("{two}.sock"));
    assert!(left.exists(), "nobody could tidy up");
    assert_eq!(pids(), [json!(one)]);
    assert!(!left.exists(), "whoever finds it removes it");
    let folder = folder(home);
    let socket = socket(&first);
    assert!(socket.exists());
    let home_path = home.path().to_owned();
    first.finish();
    assert!(!socket.exists() || !folder.exists(), "{}", home_path.display());
}

/// Where nobody runs, that is said, with what to do; and it is no success.
#[test]
fn where_nobody_runs_that_is_said() {
    let home = Home::new();
    let verbs: [&[&str]; 5] =
        [&["status"], &["server", "list"], &["logs", "x"], &["events"], &["server", "restart", "x"]];
    for verb in verbs {
        let ran = run(&home, verb);
        assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran:?}");
        assert!(ran.stderr.contains("no colibri of yours is running"), "{ran:?}");
    }
}
