//! Stories of trust: a file that was found starts something once somebody has seen these very bytes.

use std::os::unix::fs::PermissionsExt;

use colibri::config::{Standing, TrustRecord, TrustedFile, preview};
use serde_json::json;

use super::World;

const FILE: &str =
    r#"{"mode": "FULL", "audit": {"payloads": "none"}, "mcpServers": {"a": {"command": "x"}}}"#;
const USER: (&str, &str) = ("home/.config/colibri/colibri.json", r#"{"mode": "READONLY"}"#);
const RECORD: &str = "home/.local/share/colibri/trusted.json";

impl World {
    pub(super) fn record(&self) -> TrustRecord {
        self.load().expect("sound files").trust.expect("there is a home")
    }

    /// Does what `colibri trust` does.
    pub(super) fn trust(&self, path: &str) {
        let seen = preview(&self.path(path)).expect("a file that can be trusted");
        self.record().add(seen.file).expect("the record can be written");
    }

    fn is_trusted(&self) -> bool {
        self.load().expect("sound files").config.servers[0].trusted
    }
}

/// By path and digest; a trusted file counts like one that was asked for.
#[test]
fn a_trusted_file_is_believed_until_it_changes() {
    let world = World::new(&[("work/colibri.json", FILE), USER]);
    assert!(!world.is_trusted());
    world.trust("work/colibri.json");
    assert!(world.is_trusted());
    assert_eq!(world.warnings(), Vec::<String>::new());
    assert_eq!(world.value("audit.payloads"), r#""none" (work/colibri.json:1)"#);
    assert_eq!(world.value("mode"), r#""FULL" (work/colibri.json:1)"#);
    world.write("work/colibri.json", FILE.replace('x', "y").as_bytes());
    let loaded = world.load().expect("sound files");
    let server = &loaded.config.servers[0];
    assert!(!server.trusted && server.changed && !loaded.files[0].trusted);
    let changed = "changed since it was trusted: colibri trust work/colibri.json";
    assert_eq!(world.plain(&server.distrust().expect("a reason")), format!("its file {changed}"));
    let warned = format!("work/colibri.json: {changed}; until then it starts nothing");
    assert!(world.warnings().contains(&warned), "{:?}", world.warnings());
    assert!(world.value("mcpServers.a").contains(changed), "{}", world.value("mcpServers.a"));
    assert_eq!(world.value("mode"), r#""READONLY" (home/.config/colibri/colibri.json:1)"#);
    // As it was, it is trusted as it was.
    world.write("work/colibri.json", FILE.as_bytes());
    assert!(world.is_trusted());
    assert!(
        world.record().revoke(&canonical(&world, "work/colibri.json")).expect("the record can be written")
    );
    assert!(!world.is_trusted() && world.load().is_ok_and(|loaded| !loaded.config.servers[0].changed));
    assert!(!world.record().revoke(&world.path("nowhere")).expect("the record can be written"));
}

fn canonical(world: &World, path: &str) -> std::path::PathBuf {
    std::fs::canonicalize(world.path(path)).expect("it is there")
}

/// The same bytes elsewhere are another file. So is a link to a trusted one: what is relative in it would mean other
/// programs there, and a cloned repository could lead to a file that somebody trusts.
#[test]
fn trust_is_given_to_a_place() {
    let world = World::new(&[("work/colibri.json", FILE), ("real/colibri.json", FILE)]);
    world.trust("real/colibri.json");
    assert!(!world.is_trusted());
    std::fs::remove_file(world.path("work/colibri.json")).expect("a file");
    std::os::unix::fs::symlink("../real/colibri.json", world.path("work/colibri.json")).expect("a link");
    assert!(!world.is_trusted());
    world.trust("work/colibri.json");
    assert!(world.is_trusted(), "who was shown what it means here may trust it here");
    let command = |path: &str| colibri::config::command_for(std::path::Path::new(path));
    assert_eq!(command("/a-b/é_1/x.json"), "colibri trust /a-b/é_1/x.json");
    assert_eq!(command("/it's here/$(x)"), r"colibri trust '/it'\''s here/$(x)'");
}

/// What is damaged, too long, or can be written by others trusts nobody, and says so.
#[test]
fn a_record_that_cannot_be_believed_trusts_nobody() {
    let world = World::new(&[("work/colibri.json", FILE)]);
    world.trust("work/colibri.json");
    let sound = std::fs::read(world.path(RECORD)).expect("the record");
    let mode = |bits: u32| {
        let mode = std::fs::Permissions::from_mode(bits);
        std::fs::set_permissions(world.path(RECORD), mode).expect("our own file");
    };
    let told = |expected: &str| {
        assert!(!world.is_trusted(), "{expected}");
        let warnings = world.warnings();
        let warned = warnings.iter().find(|warning| warning.starts_with(RECORD)).expect("a warning");
        assert!(warned.contains(expected), "{warned}");
        assert!(warned.ends_with("so no file is trusted; `colibri trust` makes it anew"), "{warned}");
    };
    let text = String::from_utf8(sound.clone()).expect("JSON");
    for damaged in [
        String::new(),
        "{".to_owned(),
        text.replace("\"version\": 1", "\"version\": 2"),
        text.replace("\"path\": \"/", "\"path\": \""),
        text.replace("\"sha256\": \"", "\"sha256\": \"0"),
        json!({"version": 1, "files": vec![json!({"path": "/x", "sha256": "0".repeat(64)}); 1001]})
            .to_string(),
    ] {
        assert_ne!(damaged, text);
        world.write(RECORD, damaged.as_bytes());
        told("is damaged");
    }
    world.write(RECORD, &vec![b' '; (8 << 20) + 1]);
    told("is damaged");
    world.write(RECORD, &sound);
    for bits in [0o620, 0o602] {
        mode(bits);
        told("can be written by others");
    }
    mode(0o600);
    assert!(world.is_trusted());
    // What is damaged is made anew, private again.
    world.write(RECORD, b"{");
    mode(0o666);
    world.trust("work/colibri.json");
    assert!(world.is_trusted());
    assert_eq!(
        std::fs::metadata(world.path(RECORD)).expect("the record").permissions().mode() & 0o777,
        0o600
    );
    let beside = std::fs::read_dir(world.path("home/.local/share/colibri")).expect("a folder").count();
    assert_eq!(beside, 1, "nothing is left behind");
}

#[test]
fn the_record_has_a_bound_and_tells_what_became_of_files() {
    let world = World::new(&[("work/colibri.json", FILE), ("work/.mcp.json", "{}")]);
    world.trust("work/colibri.json");
    world.trust("work/.mcp.json");
    world.write("work/.mcp.json", b"{ }");
    let record = world.record();
    let digest = record.files().expect("a record")[0].digest;
    record.add(TrustedFile { path: "/no/where".into(), digest }).expect("room");
    let standing: Vec<Standing> =
        record.files().expect("a record").iter().map(TrustedFile::standing).collect();
    let places = ["/no/where", ".mcp.json", "colibri.json"];
    let expected = [Standing::Gone, Standing::Changed, Standing::Trusted];
    let mut found: Vec<_> = record.files().expect("a record").into_iter().zip(standing).collect();
    found.sort_by_key(|(file, _)| places.iter().position(|place| file.path.ends_with(place)));
    assert_eq!(found.iter().map(|(_, standing)| *standing).collect::<Vec<_>>(), expected);
    let full: Vec<_> =
        (0..1000).map(|number| json!({"path": format!("/{number}"), "sha256": digest.to_string()})).collect();
    world.write(RECORD, json!({"version": 1, "files": full}).to_string().as_bytes());
    let refused = record.add(TrustedFile { path: "/more".into(), digest }).unwrap_err().line();
    assert!(refused.contains("1000 files are trusted already; see `colibri trust --list`"), "{refused}");
    record.add(TrustedFile { path: "/7".into(), digest }).expect("it is there already");
}

/// Two at the same time: none forgets the other.
#[test]
fn the_record_is_changed_by_one_at_a_time() {
    let world = World::new(&[("work/colibri.json", FILE)]);
    let record = world.record();
    let digest = preview(&world.path("work/colibri.json")).expect("a file").file.digest;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let record = &record;
            scope.spawn(move || {
                for number in 0..5 {
                    let path = format!("/{writer}/{number}").into();
                    record.add(TrustedFile { path, digest }).expect("the record can be written");
                }
            });
        }
    });
    assert_eq!(record.files().expect("a record").len(), 20);
}

/// All that a file could ever start is shown as it is written; values are not there to be shown.
#[test]
fn a_preview_shows_what_would_be_started() {
    let world = World::new(&[(
        "work/colibri.json",
        r#"{"$schema": "x", "mode": "FULL", "log": "info", "database": "d", "mcpServers": {
            "a": {"command": ["sh", "-c"], "args": ["${UNSET}"], "env": {"K": "hunter2"}, "cwd": "c", "sandbox": "off"},
            "b": {"serverUrl": "https://h/${T}", "http_headers": {"H": "hunter2"}, "disabled": true, "envFile": "e"},
            "c": {"command": "x", "cmd": "y"}, "d": 5, "e": {"command": 5}}}"#,
    )]);
    let seen = preview(&world.path("work/colibri.json")).expect("a file");
    assert_eq!(seen.settings, [("mode".to_owned(), json!("FULL")), ("database".to_owned(), json!("d"))]);
    let [program, address, twice, number, list] = seen.servers.as_slice() else {
        panic!("{:?}", seen.servers)
    };
    assert_eq!(program.command, ["sh", "-c", "${UNSET}"]);
    assert_eq!((program.env.as_slice(), program.cwd.as_deref()), (["K".to_owned()].as_slice(), Some("c")));
    assert_eq!((program.sandbox.clone(), program.wrong.as_deref()), (Some(json!("off")), None));
    assert_eq!((address.url.as_deref(), address.env_file.as_deref()), (Some("https://h/${T}"), Some("e")));
    assert_eq!((address.headers.as_slice(), address.disabled), (["H".to_owned()].as_slice(), true));
    assert_eq!(twice.wrong.as_deref(), Some("`cmd` says `command` a second time; keep one"));
    assert!(number.wrong.is_some() && list.wrong.is_some() && !program.disabled);
    assert!(!format!("{seen:?}").contains("hunter2"));
    let other = preview(&world.path("work/other.json")).unwrap_err().to_string();
    assert!(other.contains("only colibri.json and .mcp.json are looked for"), "{other}");
}
