//! Stories of the configuration: which value counts, and how a mistake is told.

mod edit;
mod env_file;
mod servers;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use colibri::config::{ConfigError, Flags, Loaded, from_process, load, os_user, schema};
use colibri::domain::audit::Durability;
use proptest::prelude::*;
use tempfile::TempDir;

/// Files on a disk of their own, and what surrounds the process.
struct World {
    disk: TempDir,
    env: BTreeMap<String, String>,
    flags: Flags,
}

impl World {
    /// `work/` is the working directory, `home/` the home directory.
    fn new(files: &[(&str, &str)]) -> Self {
        let disk = tempfile::tempdir().expect("a temporary directory");
        for folder in ["work", "home"] {
            std::fs::create_dir(disk.path().join(folder)).expect("an empty directory");
        }
        let world = Self { disk, env: BTreeMap::new(), flags: Flags::default() };
        for (path, text) in files {
            world.write(path, text.as_bytes());
        }
        world
    }

    /// One file that was asked for.
    fn asked(text: &str) -> Self {
        let world = Self::new(&[("c.json", text)]);
        world.flags(|flags| flags.config = Some("../c.json".into()))
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    }

    fn env(mut self, env: &[(&str, &str)]) -> Self {
        self.env.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    fn flags(mut self, set: impl FnOnce(&mut Flags)) -> Self {
        set(&mut self.flags);
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        self.disk.path().join(path)
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        load(&self.flags, &self.env, &self.path("work"), Some(&self.path("home")))
    }

    /// A text without the name of this disk.
    fn plain(&self, text: &str) -> String {
        let disk = self.disk.path().display().to_string();
        text.replace(&format!("{disk}/work/../"), "").replace(&format!("{disk}/"), "")
    }

    /// The value of a key and its origin, or everything that is wrong.
    fn value(&self, key: &str) -> String {
        match self.load() {
            Ok(loaded) => {
                let value = loaded.values().iter().find(|value| value.key == key).expect("a known key");
                self.plain(&format!("{} ({})", value.value, value.origin))
            }
            Err(error) => self.plain(&error.to_string()),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let loaded = self.load().expect("warnings only");
        loaded.warnings.iter().map(|warning| self.plain(&warning.line())).collect()
    }
}

/// The nearest wins: flag, variable, working directory, user, default.
#[test]
fn a_value_comes_from_the_strongest_that_has_it() {
    let (work, user) = ("work/colibri.json", "home/.config/colibri/colibri.json");
    let files = [(work, r#"{"log": "warn"}"#), (user, "{\n\"log\": \"debug\", \"mcpTimeout\": 5}")];
    let world = World::new(&files);
    assert_eq!(world.value("mode"), r#""FULL" (default)"#);
    assert_eq!(world.value("mcpTimeout"), "5 (home/.config/colibri/colibri.json:2)");
    assert_eq!(world.value("log"), r#""warn" (work/colibri.json:1)"#);
    let world = world.env(&[("COLIBRI_LOG", "TRACE")]);
    assert_eq!(world.value("log"), r#""trace" (env COLIBRI_LOG)"#);
    let world = world.flags(|flags| flags.log = Some("error".into()));
    assert_eq!(world.value("log"), r#""error" (flag --log)"#);
    // A file that is asked for is the only one.
    world.write("work/other.json", b"{}");
    let world = world.flags(|flags| flags.config = Some("other.json".into()));
    assert_eq!(world.value("mcpTimeout"), "30000 (default)");
}

#[test]
fn two_files_can_each_set_a_key_of_one_group() {
    let world = World::new(&[(
        "u/colibri/colibri.json",
        r#"{"audit": {"payloads": "none"}, "queues": {"a": {"concurrent": 1}}}"#,
    )]);
    let folder = world.path("u").display().to_string();
    let world = world.env(&[("XDG_CONFIG_HOME", &folder)]);
    world.write("work/colibri.json", br#"{"queues": {"b": {"concurrent": 2}}}"#);
    let config = world.load().expect("sound files").config;
    assert_eq!(config.queues.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(config.audit.durability, Durability::Admission);
    assert_eq!(world.value("audit.payloads"), r#""none" (u/colibri/colibri.json:1)"#);
    assert_eq!(world.value("audit.durability"), r#""admission" (default)"#);
}

/// CO-13, BR-10: a variable or a flag is right or it is an error; there is no silent fall-back.
#[test]
fn a_wrong_variable_is_a_clear_error() {
    let check = |name: &str, text: &str, key: &str, expected: &str| {
        assert_eq!(World::new(&[]).env(&[(name, text)]).value(key), expected, "{name}={text:?}");
    };
    check("COLIBRI_MODE", "READONLY", "mode", r#""READONLY" (env COLIBRI_MODE)"#);
    let modes = "use FULL, READONLY, TEST or MINIMAL";
    check(
        "COLIBRI_MODE",
        "FUL",
        "mode",
        &format!("COLIBRI_MODE: unknown mode `FUL`: {modes}; did you mean `FULL`?"),
    );
    for wrong in ["full", "Full ", ""] {
        let message = World::new(&[]).env(&[("COLIBRI_MODE", wrong)]).value("mode");
        assert!(message.starts_with(&format!("COLIBRI_MODE: unknown mode `{wrong}`: {modes}")), "{message}");
    }
    for (name, key) in
        [("COLIBRI_MCP_TIMEOUT", "mcpTimeout"), ("COLIBRI_STARTUP_TIMEOUT_MS", "startupTimeout")]
    {
        check(name, "1", key, &format!("1 (env {name})"));
        check(name, "0250", key, &format!("250 (env {name})"));
        for wrong in
            ["", "0", "000", "-1", "+1", "1.0", "1e3", " 1", "1s", "abc", "99999999999999999999", "٣"]
        {
            let expected = "expected a whole number of ms from 1 to 2147483647";
            let remedy = "change it, or unset it for the default";
            check(name, wrong, key, &format!("{name}: {expected}, found `{wrong}`; {remedy}"));
        }
    }
    check(
        "COLIBRI_DB_PATH",
        "",
        "database",
        "COLIBRI_DB_PATH: expected a string that is not empty, found ``; change it, or unset it for the default",
    );
    let flagged = World::new(&[]).flags(|flags| flags.mode = Some("X".into())).value("mode");
    assert!(flagged.starts_with("--mode: unknown mode `X`"), "{flagged}");
}

/// CO-14: variables of the ancestor are refused by name, even empty ones.
#[test]
fn variables_of_the_ancestor_are_refused_and_strangers_are_told() {
    let error =
        World::new(&[]).env(&[("AMS_MODE", "FULL"), ("AMS_DB", ""), ("XAMS_", "")]).load().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("AMS_DB, AMS_MODE: variables named AMS_* are not read"), "{text}");
    assert!(text.contains("COLIBRI_MODE"), "{text}");
    let warnings =
        World::new(&[]).env(&[("COLIBRI_MODUS", "FULL"), ("COLIBRI_XYZZY", "1"), ("OTHER", "1")]).warnings();
    assert_eq!(warnings[0], "COLIBRI_MODUS: unknown variable, ignored; did you mean `COLIBRI_MODE`?");
    assert!(warnings[1].starts_with("COLIBRI_XYZZY: unknown variable, ignored; known are "), "{warnings:?}");
    assert_eq!(warnings.len(), 2);
}

#[test]
fn a_mistake_in_a_file_is_shown_where_it_is() {
    let check = |text: &str, expected: &str| assert_eq!(World::asked(text).value("mode"), expected, "{text}");
    let remedy = "change it, or remove it for the default";
    check(
        "{\n  \"mode\": \"FUL\", // x\n}",
        "c.json:2:11: unknown mode `FUL`: use FULL, READONLY, TEST or MINIMAL; did you mean `FULL`?\n  2 |   \"mode\": \"FUL\", // *\n    |           ^^^^^",
    );
    check(
        r#"{"mcpTimeout": "5"}"#,
        &format!(
            "c.json:1:16: `mcpTimeout`: expected a whole number of ms from 1 to 2147483647, found a string; {remedy}\n  1 | {{\"mcpTimeout\": \"5\"}}\n    |                ^^^"
        ),
    );
    check(
        r#"{"limits": {"frameBytes": 1}}"#,
        &format!(
            "c.json:1:27: `limits.frameBytes`: expected a whole number from 65536 to 67108864, found 1; {remedy}\n  1 | {{\"limits\": {{\"frameBytes\": 1}}}}\n    |                           ^"
        ),
    );
    for (text, expected) in [
        (r#"{"mode": "FULL" "log": "info"}"#, "c.json:1:16: not valid JSON: expected comma; "),
        ("{\n\"mode\": ", "c.json:2:9: not valid JSON: expected value after colon"),
        ("{'mode': 1}", "c.json:1:2: not valid JSON: single-quoted strings are not allowed; "),
        ("[]", "c.json:1:1: expected an object; "),
        (
            "{\"audit\": {\"durabilty\": \"strict\"}}",
            "c.json:1:12: unknown key `audit.durabilty`; did you mean `durability`?",
        ),
        (
            "{\"limits\": {\"mode\": \"FULL\"}}",
            "c.json:1:13: unknown key `limits.mode`; known here: frameBytes",
        ),
        ("{\"audit\": true}", "c.json:1:11: `audit`: expected an object, found true; "),
        (
            "{\"audit\": {\"requireSession\": 1}}",
            "c.json:1:30: `audit.requireSession`: expected true or false, found 1; ",
        ),
        ("{\"log\": \"info\", \"log\": \"warn\"}", "c.json:1:17: `log` is given twice; keep one"),
        ("{\"queues\": {\"a\": {}}}", "c.json:1:18: `queues.a` lacks `concurrent`; add `concurrent`"),
        ("{\"mcpServers\": []}", "c.json:1:16: `mcpServers`: expected an object, server by server; "),
        (
            "{\"database\": \"\"}",
            "c.json:1:14: `database`: expected a string that is not empty, found an empty string; ",
        ),
        (
            "{\"mcpTimeout\": 1.5}",
            "c.json:1:16: `mcpTimeout`: expected a whole number of ms from 1 to 2147483647, found 1.5; ",
        ),
        (
            "{\"audit\": {\"onExitFailure\": \"fail\"}}",
            "c.json:1: `audit.onExitFailure` \"fail\" needs `audit.durability` \"strict\"; ",
        ),
    ] {
        let message = World::asked(text).value("mode");
        assert!(message.starts_with(expected), "{text}\n{message}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_but_not_without_end() {
    let error = World::asked(r#"{"mode": 1, "log": 2, "naming": "x"}"#).load().unwrap_err();
    assert_eq!(error.problems.len(), 3);
    let many: Vec<String> = (0..5000).map(|number| format!("\"k{number}\": 1")).collect();
    assert_eq!(World::asked(&format!("{{{}}}", many.join(","))).warnings().len(), 101);
    // One endless line or name is told, not repeated.
    let long = "k".repeat(100_000);
    for text in [format!("{{\"{long}\": 1}}"), format!("{{\"mcpServers\": {{\"{long}\": 1}}}}")] {
        let warnings = World::asked(&text).load().expect("warnings only").warnings;
        assert!(warnings.iter().all(|warning| warning.to_string().len() < 500), "{}", warnings.len());
    }
}

#[test]
fn what_is_harmless_is_accepted() {
    for text in [
        "",
        "  // nothing yet\n",
        "{}",
        "\u{feff}{\"mode\": \"FULL\"}",
        r#"{"$schema": "x", "mode": null, "audit": {"payloads": null},}"#,
    ] {
        assert_eq!(World::asked(text).warnings(), Vec::<String>::new(), "{text:?}");
    }
    assert_eq!(
        World::asked("{\n  \"modee\": \"FULL\", \"colour\": 1}").warnings(),
        [
            "c.json:2:3: unknown key `modee`; did you mean `mode`?",
            "c.json:2:20: unknown key `colour`; it is ignored"
        ]
    );
}

#[test]
fn a_file_that_cannot_be_read_stops_the_start() {
    let missing = World::new(&[]).flags(|flags| flags.config = Some("no.json".into())).value("mode");
    assert!(missing.starts_with("work/no.json: cannot be read: "), "{missing}");
    let world = World::new(&[]);
    world.write("work/colibri.json", &vec![b' '; (1 << 20) + 1]);
    assert!(world.value("mode").starts_with("work/colibri.json: longer than 1048576 bytes; "));
    world.write("work/colibri.json", b"{\"mode\": \"\xff\"}");
    assert_eq!(world.value("mode"), "work/colibri.json: not valid UTF-8 at byte 10; save it as UTF-8");
    let world = World::new(&[("work/colibri.json/x", "")]);
    assert!(world.value("mode").starts_with("work/colibri.json: cannot be read: "));
}

/// A cloned repository must not weaken the record, redirect data, widen the mode or run anything.
#[test]
fn a_file_found_in_the_working_directory_is_not_trusted() {
    let hostile = r#"{"audit": {"payloads": "none"}, "database": "/tmp/x", "mode": "FULL", "mcpServers": {"a": {"command": "x"}}}"#;
    let world = World::new(&[
        ("work/colibri.json", hostile),
        ("work/.mcp.json", r#"{"mode": "TEST", "anything": 1, "mcpServers": {"b": {"command": "x"}}}"#),
        (
            "home/.config/colibri/colibri.json",
            r#"{"mode": "READONLY", "mcpServers": {"c": {"command": "x"}}}"#,
        ),
    ]);
    let remedy = "move it to the user's file, or name this file with --config";
    let reason = "is ignored: a file found in the working directory may not set it";
    assert_eq!(
        world.warnings(),
        [
            format!("work/colibri.json:1:2: `audit` {reason}; {remedy}"),
            format!("work/colibri.json:1:33: `database` {reason}; {remedy}"),
            "work/colibri.json:1: `mode` \"FULL\" is ignored: home/.config/colibri/colibri.json:1 says \"READONLY\"; use --mode or COLIBRI_MODE to widen it".to_owned(),
        ]
    );
    assert_eq!(world.value("mode"), r#""READONLY" (home/.config/colibri/colibri.json:1)"#);
    assert_eq!(world.value("audit.payloads"), r#""truncated" (default)"#);
    assert_eq!(world.value("database"), r#""home/.local/share/colibri/colibri.db" (default)"#);
    let servers = world.load().expect("sound files").config.servers;
    let trusted: Vec<_> = servers.iter().map(|server| (server.name.as_str(), server.trusted)).collect();
    assert_eq!(trusted, [("a", false), ("b", false), ("c", true)]);
    // Asked for by name, the same file is believed.
    let world = world.flags(|flags| flags.config = Some("colibri.json".into()));
    assert_eq!(world.value("database"), r#""/tmp/x" (work/colibri.json:1)"#);
    assert!(world.load().expect("a sound file").config.servers[0].trusted);
    assert_eq!(world.warnings(), Vec::<String>::new());
}

#[test]
fn the_mode_of_the_user_can_be_narrowed_from_the_working_directory() {
    let user = ("home/.config/colibri/colibri.json", r#"{"mode": "READONLY"}"#);
    let world = World::new(&[("work/colibri.json", r#"{"mode": "MINIMAL"}"#), user]);
    assert_eq!(world.value("mode"), r#""MINIMAL" (work/colibri.json:1)"#);
    let world =
        World::new(&[("work/colibri.json", r#"{"mode": "FULL"}"#), user]).env(&[("COLIBRI_MODE", "TEST")]);
    assert_eq!(world.value("mode"), r#""TEST" (env COLIBRI_MODE)"#);
}

#[test]
fn data_goes_where_it_was_asked_to_go() {
    let check = |file: &str, env: &[(&str, &str)], expected: &str| {
        let world = World::asked(file).env(env);
        let config = world.load().expect("a sound file").config;
        assert_eq!(world.plain(&config.database.display().to_string()), expected, "{file} {env:?}");
    };
    check("{}", &[], "home/.local/share/colibri/colibri.db");
    check("{}", &[("XDG_DATA_HOME", "/data")], "/data/colibri/colibri.db");
    check("{}", &[("XDG_DATA_HOME", "relative")], "home/.local/share/colibri/colibri.db");
    check(r#"{"database": "x.db"}"#, &[], "x.db");
    check(r#"{"database": "~/x.db"}"#, &[], "home/x.db");
    check(r#"{"database": "x.db"}"#, &[("COLIBRI_DB_PATH", "y.db")], "work/y.db");
    check("{}", &[("COLIBRI_DB_PATH", "/z.db")], "/z.db");
    let homeless =
        load(&Flags::default(), &BTreeMap::new(), Path::new("/nowhere"), None).unwrap_err().to_string();
    assert!(homeless.starts_with("HOME: there is no home directory"), "{homeless}");
    let env = BTreeMap::from([("COLIBRI_DB_PATH".to_owned(), "/var/c/x.db".to_owned())]);
    let config = load(&Flags::default(), &env, Path::new("/nowhere"), None).expect("a named database").config;
    assert_eq!(config.data_dir, Path::new("/var/c"));
}

#[test]
fn the_places_are_listed_in_their_order() {
    let world = World::new(&[("work/.mcp.json", "{}")]);
    let files = world.load().expect("sound files").files;
    let listed: Vec<_> =
        files.iter().map(|file| (world.plain(&file.path.display().to_string()), file.trusted)).collect();
    let expected = [
        ("work/colibri.json", false),
        ("work/.mcp.json", false),
        ("home/.config/colibri/colibri.json", true),
        ("/etc/colibri/colibri.json", true),
    ];
    assert_eq!(listed, expected.map(|(path, trusted)| (path.to_owned(), trusted)));
    assert_eq!(files.iter().map(|file| file.found).take(3).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn the_real_surroundings_are_read() {
    let world = World::asked(r#"{"database": "here.db"}"#).flags(|flags| flags.log = Some("debug".into()));
    let flags = Flags { config: Some(world.path("c.json")), ..world.flags.clone() };
    let loaded = from_process(&flags).expect("a sound file");
    assert_eq!(loaded.config.database, world.path("here.db"));
    let user = os_user();
    let id =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(world.path("c.json")).expect("our own file"));
    assert!(user.ends_with(&format!("({id})")) || user == format!("uid:{id}"), "{user}");
}

/// The examples of the reference page work, and an editor with the published schema agrees.
#[test]
fn the_examples_of_the_reference_page_are_sound() {
    let page = include_str!("../docs/config.md");
    let examples: Vec<&str> =
        page.split("```jsonc\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3);
    let validator = jsonschema::validator_for(&schema()).expect("a valid schema");
    for example in examples {
        let world = World::asked(example).env(&[("SEARCH_TOKEN", "t")]);
        assert_eq!(world.warnings(), Vec::<String>::new(), "{example}");
        let plain: String = example.lines().filter(|line| !line.trim().starts_with("//")).collect();
        let plain = plain.replace(",  }", "}").replace(",}", "}");
        let value = serde_json::from_str(&plain).expect("JSON once comments and trailing commas are gone");
        let issues: Vec<_> = validator.iter_errors(&value).map(|issue| issue.to_string()).collect();
        assert_eq!(issues, Vec::<String>::new(), "{example}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in r#"([{}\[\]:,"'\\/*\n é0-9.eE+-]|"mode"|"audit"|"mcpServers"|"command"|"args"|"\$\{A\}"|true|null|\PC){0,60}"#) {
        let world = World::asked(&text);
        if let Err(error) = world.load() {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// A sound file with one piece replaced: the mistakes people make.
    #[test]
    fn no_slip_of_the_hand_makes_it_panic(at in 0usize..400, length in 0usize..20, piece in r#"[{}\[\]:,"\\\n é$0-9a-z]{0,5}"#) {
        let sound = r#"{ // comment
  "mode": "FULL", "mcpTimeout": 3, "audit": {"durability": "strict"}, "queues": {"q": {"concurrent": 1}},
  "mcpServers": {"é": {"command": ["npx", "${A:-x}"], "env": {"T": "secret-value"}, "sandbox": "strict", "restart": {"delays": [0, 5]}},
    "b": {"url": "http://x", "headers": {"H": "secret-value"}, "tools": ["*"], "limits": {"memoryMb": 5}}} }"#;
        let start = sound.floor_char_boundary(at.min(sound.len()));
        let end = sound.ceil_char_boundary((start + length).min(sound.len()));
        let text = format!("{}{piece}{}", &sound[..start], &sound[end..]);
        if let Err(error) = World::asked(&text).load() {
            prop_assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
