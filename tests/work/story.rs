//! The whole story, as an agent lives it and an auditor checks it.

use serde_json::{Value, json};

use super::client::{Client, FAMILIES, Home, Ran};

/// SU-7, SU-9, SU-11, SU-15: session, task, reasons, work; DONE refused without a reason and taken with one; sealed, proved,
/// checked elsewhere without the database; one byte changed, refused.
#[test]
fn from_a_task_to_a_proof_that_a_stranger_checks() {
    for family in FAMILIES {
        let home = Home::new();
        let client = &mut Client::start(&home, family);
        let session =
            client.ok("audit_session_start", &json!({ "intent": "Ship it", "session_id": "ship it!" }));
        assert_eq!(session["session_id"], "ship it!");
        let task = client.ok("task_create", &json!({ "title": "Ship it" }))["id"].clone();
        for status in ["GATHER", "ANALYZE", "PLAN", "APPLY", "VERIFY"] {
            client.ok("task_update", &json!({ "id": task, "patch": { "status": status } }));
        }
        let done = json!({ "id": task, "patch": { "status": "DONE" } });
        client.refused("task_update", &done, "ERR_WRITEBACK_REQUIRED");
        let thoughts: Vec<Value> = [("plan", "Read first"), ("decision", "Ship on Monday"), ("reflection", "It held")]
            .map(|(kind, content)| {
                let thought = json!({
                    "type": kind, "task_id": task, "agent_id": "ada", "content": content, "session_id": "ship it!",
                });
                client.ok("thought_record", &thought)
            })
            .to_vec();
        assert_eq!(client.ok("task_update", &done)["status"], "DONE");
        let sealed = client.ok("merkle_finalize", &json!({ "session_id": "ship it!" }));
        assert_eq!(sealed["record_count"], 3);
        let root = client.ok("merkle_root", &json!({ "session_id": "ship it!" }));
        assert_eq!(root["root"], sealed["root"]);

        let files = hand_out(&home, thoughts[1]["id"].as_str().unwrap());
        check_elsewhere(&files, sealed["root"].as_str().unwrap());
    }
}

/// What the auditor gets, while the server still runs.
fn hand_out(home: &Home, thought: &str) -> Home {
    let elsewhere = Home::new();
    let to = |name: &str| elsewhere.path().join(name).display().to_string();
    home.says(&["audit", "prove", "--session", "ship it!", "-o", &to("session.proof")]);
    home.says(&["audit", "prove", "--record", thought, "-o", &to("thought.tlog-proof")]);
    home.says(&["audit", "export", "-o", &to("ledger.bundle")]);
    std::fs::write(to("key"), home.says(&["audit", "key", "show"])).unwrap();
    elsewhere
}

/// Nothing of the database is here: only the files and the key.
fn check_elsewhere(home: &Home, root: &str) {
    let session = home.says(&["verify", "session.proof", "--key", "key", "--json"]);
    let session: Value = serde_json::from_str(&session).unwrap();
    assert_eq!([&session["session"], &session["sessionRoot"]], ["ship it!", root]);
    assert_eq!(session["records"], 3);
    let said = home.says(&["verify", "session.proof", "--key", "key"]);
    assert!(said.starts_with("valid session: ship it! (records: 3) was sealed at "), "{said}");
    assert!(home.says(&["verify", "thought.tlog-proof", "--key", "key"]).contains("\"type\":\"decision\""));
    home.says(&["verify", "ledger.bundle", "--key", "key"]);

    let bytes = std::fs::read(home.path().join("session.proof")).unwrap();
    // A prime apart, so that every part of the file is hit; the first and the last byte always.
    for at in (0..bytes.len()).step_by(61).chain([bytes.len() - 1]) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        refused(home, &changed, &format!("byte {at} changed"));
    }
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| lines.join("\n") + "\n";
    let mut swapped = lines.clone();
    swapped.swap(3, 4);
    refused(home, joined(&swapped).as_bytes(), "two records swapped");
    refused(home, joined(&[&lines[..3], &lines[4..]].concat()).as_bytes(), "a record removed");
    refused(home, joined(&[&lines[..4], &lines[3..]].concat()).as_bytes(), "a record doubled");
    refused(home, text.replace("records 3", "records 03").as_bytes(), "another spelling of a number");
    refused(home, (text.clone() + "\n").as_bytes(), "something added");
    for cut in [1, text.len() / 2, text.len() - 1] {
        refused(home, &text.as_bytes()[..cut], "the end cut off");
    }
    refused(home, b"colibri/session-proof@v1\nsession \xff\n", "no text");
}

#[track_caller]
fn refused(home: &Home, bytes: &[u8], why: &str) {
    std::fs::write(home.path().join("forged"), bytes).unwrap();
    let Ran { code, out, err } = home.run(&["verify", "forged", "--key", "key"]);
    assert_eq!(code, Some(6), "{why}: {out}{err}");
    assert!(out.is_empty() && !err.is_empty(), "{why}: {out}{err}");
}

/// SU-11: what cannot be proved says why, and writes no file.
#[test]
fn what_cannot_be_proved_says_why() {
    let home = Home::new();
    let client = &mut Client::start(&home, FAMILIES[0]);
    client.ok("audit_session_start", &json!({ "intent": "x", "session_id": "open" }));
    for (what, id, says) in [
        ("--session", "ghost", "there is no session ghost"),
        ("--session", "open", "session open is open; seal it with: colibri session finalize open"),
        ("--record", "ghost", "there is no thought ghost"),
    ] {
        let ran = home.run(&["audit", "prove", what, id, "-o", "proof"]);
        assert_eq!((ran.code, ran.err.trim_end()), (Some(2), &*format!("colibri: {says}")));
        assert!(!home.path().join("proof").exists());
    }
    let both = home.run(&["audit", "prove", "--session", "open", "--index", "0"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}
