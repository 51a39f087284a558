//! `colibri server add` and `remove`: a file is changed as a careful person would change it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{SERVER, check, run, run_with};
use crate::hostile::child::Home;

fn user_file(home: &Home) -> PathBuf {
    home.path().join(".config/colibri/colibri.json")
}

fn project_file(home: &Home) -> PathBuf {
    home.path().join("work/colibri.json")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// PR-2: from nothing to a server that answers, by what the commands themselves say to type.
#[test]
fn a_server_is_added_tried_and_removed() {
    let home = Home::new();
    let added = run(&home, &["server", "add", "shell", "--env", "SECRET=c4n4ry", "--", "sh", "-c", SERVER]);
    assert_eq!(added.code, 0, "{added:?}");
    let file = user_file(&home);
    assert!(added.stdout.contains(&format!("added `shell` in {}", file.display())), "{added:?}");
    assert!(added.stdout.contains("try it: colibri probe shell"), "{added:?}");
    assert!(added.stderr.contains("'${VAR}'"), "{added:?}");
    assert!(!format!("{added:?}").contains("c4n4ry"), "{added:?}");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    assert!(text(&file).starts_with("{\n  \"$schema\": \"urn:colibri:config\",\n  \"mcpServers\": {\n    \"shell\": {\n      \"command\": \"sh\",\n"));
    check(&home, &[(&["call", "--server", "shell", "echo", "--json"], 0, "heard", "")]);
    let called = run(&home, &["call", "--server", "shell", "echo", "--json"]);
    assert!(called.stdout.contains(r#""env":"c4n4ry""#), "{called:?}");
    let removed = run(&home, &["server", "remove", "shell", "--json"]);
    assert_eq!(removed.json(), json!({"name": "shell", "done": "removed", "file": file}));
    assert_eq!(text(&file), "{\n  \"$schema\": \"urn:colibri:config\",\n  \"mcpServers\": {}\n}\n");
    let beside: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().collect();
    assert_eq!(beside.len(), 1, "{beside:?}");
}

/// What a person wrote stays: comments, order, blanks, line ends, byte order mark, mode, and the link.
#[test]
fn everything_else_in_the_file_stays() {
    let home = Home::new();
    let real = home.path().join("dotfiles.json");
    let before = "\u{feff}// mine\r\n{\r\n\t\"log\": \"warn\", // quiet\r\n\t\"mcpServers\": {\r\n\t\t// the first\r\n\t\t\"a\": { \"command\": \"x\" }, /* a */\r\n\t\t\"b\": { \"url\": \"https://b.example/mcp\" },\r\n\t},\r\n}\r\n// end";
    fs::write(&real, before).unwrap();
    fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).unwrap();
    let file = user_file(&home);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    symlink(&real, &file).unwrap();
    check(&home, &[(&["server", "add", "c", "--type", "sse", "https://c.example/sse"], 0, "added `c`", "")]);
    let with = before.replace(
        "mcp\" },\r\n\t},",
        "mcp\" },\r\n\t\t\"c\": {\r\n\t\t\t\"type\": \"sse\",\r\n\t\t\t\"url\": \"https://c.example/sse\",\r\n\t\t},\r\n\t},",
    );
    assert_eq!(text(&real), with);
    assert!(file.is_symlink() && mode(&real) == 0o640);
    check(&home, &[(&["server", "rm", "c"], 0, "removed `c`", "")]);
    assert_eq!(text(&real), before);
    check(&home, &[(&["server", "add", "--force", "a", "--", "y", "-z"], 0, "replaced `a`", "")]);
    assert_eq!(
        text(&real),
        before.replace(
            "{ \"command\": \"x\" }",
            "{\r\n\t\t\t\"command\": \"y\",\r\n\t\t\t\"args\": [\"-z\"]\r\n\t\t}"
        )
    );
}

/// What is refused changes nothing, says why, and repeats no secret.
#[test]
fn what_is_refused_changes_nothing() {
    let home = Home::new();
    let file = user_file(&home);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let sound = r#"{"servers": {"a": {"command": "x"}}}"#;
    fs::write(&file, sound).unwrap();
    check(
        &home,
        &[
            (&["server", "add", "a", "--", "y"], 2, "", "has a server `a` already; add --force"),
            (&["server", "add", "my server", "--", "y"], 2, "", "call it `my-server`"),
            (&["server", "add", "é", "--", "y"], 2, "", "use letters, digits"),
            (&["server", "add", "b", "npx"], 2, "", "put `--` before a command"),
            (&["server", "add", "b"], 2, "", "required"),
            (&["server", "add", "b", "https://x/", "--", "y"], 2, "", "cannot be used with"),
            (&["server", "add", "b", "https://x/", "--env", "A=hunter2"], 2, "", "--env is for commands"),
            (
                &["server", "add", "b", "--header", "A: hunter2", "--", "y"],
                2,
                "",
                "--header is for addresses",
            ),
            (
                &["server", "add", "b", "https://x/", "--header", "hunter2"],
                2,
                "",
                "--header takes `Name: value`",
            ),
            (&["server", "add", "b", "https://x/", "--type", "stdio"], 2, "", "is for commands"),
            (&["server", "add", "b", "--type", "http", "--", "y"], 2, "", "are for addresses"),
            (&["server", "add", "b", "--env", "=hunter2", "--", "y"], 2, "", "--env takes NAME=VALUE"),
            (&["server", "add", "b", "--env", "A=${input:x}", "--", "y"], 7, "", "not changed: "),
            (&["server", "add", "b", "--", ""], 7, "", "expected a string that is not empty"),
            (&["server", "add", "-s", "user", "b", "--config", "x", "--", "y"], 2, "", "leave out --scope"),
            (&["server", "remove", "b"], 2, "", "there is no server `b` to remove; did you mean `a`?"),
        ],
    );
    assert_eq!(text(&file), sound);
    for broken in ["{", r#"{"mode": "FUL"}"#, r#"{"mcpServers": [1]}"#, "[1]"] {
        fs::write(&file, broken).unwrap();
        let ran = run(&home, &["server", "add", "b", "--env", "A=hunter2", "--", "y"]);
        assert_eq!((ran.code, text(&file).as_str()), (7, broken), "{ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    }
    for empty in ["", "// nothing yet\n", "{}", r#"{"mcpServers": null}"#] {
        fs::write(&file, empty).unwrap();
        check(&home, &[(&["server", "add", "b", "--", "y"], 0, "added `b`", "")]);
        let shown = run(&home, &["config", "show"]);
        assert!(shown.stdout.contains("mcpServers.b") && shown.stderr.is_empty(), "{empty:?}: {shown:?}");
    }
}

/// A variable that is not set today makes no entry wrong, but is told; and so is what counts more here.
#[test]
fn what_keeps_it_from_being_used_is_told() {
    let home = Home::new();
    let add = ["server", "add", "b", "--env", "TOKEN", "--", "y", "${OTHER:-x}"];
    let ran = run(&home, &add);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr.contains("cannot be used as things are") && ran.stderr.contains("`TOKEN` is not set"),
        "{ran:?}"
    );
    let set = run_with(&home, &[("TOKEN", "t")], &[&add[..], &["--force"]].concat());
    assert_eq!(set.code, 2, "what follows -- is the command's: {set:?}");
    let forced = ["server", "add", "--force", "b", "--env", "TOKEN", "--", "y"];
    let set = run_with(&home, &[("TOKEN", "t")], &forced);
    assert_eq!((set.code, set.stderr.as_str()), (0, ""), "{set:?}");
    fs::write(project_file(&home), r#"{"mcpServers": {"b": {"command": "z"}}}"#).unwrap();
    let hidden = run_with(&home, &[("TOKEN", "t")], &forced);
    assert!(hidden.stderr.contains("counts more"), "{hidden:?}");
    let both = run(&home, &["server", "remove", "b"]);
    assert!(both.code == 2 && both.stderr.contains("say --scope project ("), "{both:?}");
    check(&home, &[(&["server", "remove", "--scope", "user", "b"], 0, "removed `b`", "")]);
    assert!(!text(&user_file(&home)).contains("\"b\"") && text(&project_file(&home)).contains("\"b\""));
}

/// A person's own project file starts at once; one that came from elsewhere gains no trust by an edit.
#[test]
fn a_projects_file_keeps_the_trust_it_had() {
    let home = Home::new();
    let add =
        |name: &str| run(&home, &["server", "add", "--scope", "project", name, "--", "sh", "-c", SERVER]);
    assert_eq!(add("one").code, 0);
    assert_eq!(mode(&project_file(&home)), 0o600);
    check(&home, &[(&["call", "--server", "one", "echo", "--json"], 0, "heard", "")]);
    let second = add("two");
    assert_eq!((second.code, second.stderr.as_str()), (0, ""), "{second:?}");
    check(&home, &[(&["call", "--server", "two", "echo", "--json"], 0, "heard", "")]);
    check(
        &home,
        &[
            (&["server", "remove", "two"], 0, "removed", ""),
            (&["call", "--server", "one", "echo", "--json"], 0, "heard", ""),
        ],
    );
    let foreign = text(&project_file(&home)).replace("\"one\"", "\"other\"");
    fs::write(project_file(&home), foreign).unwrap();
    let third = add("three");
    assert!(
        third.code == 0 && third.stderr.contains("not started before its file is trusted: colibri trust /"),
        "{third:?}"
    );
    check(&home, &[(&["probe", "three"], 7, "", "changed since it was trusted: colibri trust /")]);
}

/// `--config` names the file that is changed, and nothing else is touched.
#[test]
fn the_file_that_is_named_is_the_one_that_is_changed() {
    let home = Home::new();
    let file = home.path().join("named.json");
    let named = file.to_str().unwrap();
    let added = run(&home, &["--config", named, "server", "add", "b", "--json", "--", "y"]);
    let next = format!("colibri --config {named} probe b");
    assert_eq!(added.json(), json!({"name": "b", "done": "added", "file": named, "notes": [], "next": next}));
    assert!(text(&file).contains("\"b\"") && !user_file(&home).exists());
    let link = home.path().join("dangling.json");
    symlink(home.path().join("nowhere.json"), &link).unwrap();
    check(
        &home,
        &[(&["--config", link.to_str().unwrap(), "server", "add", "b", "--", "y"], 7, "", "cannot be read")],
    );
    fs::write(home.path().join("work/.mcp.json"), r#"{"mcpServers": {"m": {"command": "x"}}}"#).unwrap();
    check(&home, &[(&["server", "remove", "m"], 2, "", "remove it with `colibri --config /")]);
}
