//! Stories of `envFile`: variables that are kept beside the configuration.

use colibri::config::State;

use super::World;

/// The environment of the first server, or why it has none.
fn environment(world: &World) -> String {
    let loaded = world.load().expect("a broken server stops nothing");
    match &loaded.config.servers[0].state {
        State::Ready(config) => {
            let pairs = config.env.iter().map(|(name, secret)| format!("{name}={}", secret.expose()));
            pairs.collect::<Vec<_>>().join(" ")
        }
        State::Disabled { reason, .. } => world.plain(reason),
    }
}

/// PR-2: the file lies beside the one that names it, the entry's own variables win, and no listing shows a
/// value.
#[test]
fn its_variables_stand_under_the_entrys_own() {
    let world = World::asked(
        r#"{"mcpServers": {"a": {"command": "x", "envFile": "sub/${NAME}.env", "env": {"B": "entry"}}}}"#,
    )
    .env(&[("NAME", "a")]);
    world.write("sub/a.env", b"# comment\nexport A='hunter2'\nB=hunter2\n");
    assert_eq!(environment(&world), "A=hunter2 B=entry");
    let loaded = world.load().expect("a sound file");
    assert_eq!(loaded.warnings, []);
    let shown = format!("{}{loaded:?}", serde_json::to_string(loaded.values()).expect("values are JSON"));
    assert!(shown.contains(r#""A":"***""#) && !shown.contains("hunter2"), "{shown}");
    assert!(loaded.watched().contains(&world.path("work/../sub/a.env")), "{:?}", loaded.watched());
}

#[test]
fn a_file_that_cannot_be_used_costs_that_server() {
    let world =
        World::asked(r#"{"mcpServers": {"a": {"command": "x", "envFile": "a.env"}, "b": {"command": "x"}}}"#);
    let reason = environment(&world);
    assert!(reason.starts_with("c.json:1:50: `envFile`: a.env cannot be read: No such file"), "{reason}");
    assert!(reason.ends_with("; create it, mend its permissions, or remove `envFile`"), "{reason}");
    let loaded = world.load().expect("a broken server stops nothing");
    assert!(matches!(loaded.config.servers[1].state, State::Ready(_)));
    assert!(loaded.watched().contains(&world.path("work/../a.env")), "it may come yet");
    for (text, expected) in [
        (b"A=1\n\nhunter2\n".as_slice(), "a.env:3: there is no `=`; write `NAME=value`, one a line"),
        (b"A=\"hunter2", "a.env:1: a quote is not closed on its line; "),
        (b"A=\xff", "a.env: not valid UTF-8 at byte 2; save it as UTF-8"),
        (&[b'\n'; 1001], "a.env:1001: more than 1000 lines; "),
        (&vec![b'#'; (64 << 10) + 1], "a.env: longer than 65536 bytes; "),
    ] {
        world.write("a.env", text);
        let reason = environment(&world);
        assert!(reason.starts_with(expected) && !reason.contains("hunter2"), "{reason}");
        assert!(world.warnings().iter().any(|warning| warning.contains("server `a` is disabled: ")));
    }
    world.write("a.env", &vec![b'#'; 64 << 10]);
    assert_eq!(environment(&world), "");
}

/// A pipe would be waited for without end, and a folder is no file.
#[test]
fn only_a_file_proper_is_read() {
    let world = World::asked(r#"{"mcpServers": {"a": {"command": "x", "envFile": "pipe"}}}"#);
    let made = std::process::Command::new("mkfifo").arg(world.path("pipe")).status();
    assert!(made.is_ok_and(|made| made.success()), "there is mkfifo");
    assert!(environment(&world).contains("it is not a regular file"), "{}", environment(&world));
    let world = World::asked(r#"{"mcpServers": {"a": {"command": "x", "envFile": "."}}}"#);
    assert!(environment(&world).contains("it is not a regular file"), "{}", environment(&world));
}

/// What a file that nobody trusts names is not opened.
#[test]
fn a_file_that_is_not_trusted_has_nothing_read() {
    let world = World::new(&[
        ("work/.mcp.json", r#"{"mcpServers": {"a": {"command": "x", "envFile": "../secrets"}}}"#),
        ("secrets", "A=hunter2"),
    ]);
    assert_eq!(environment(&world), "");
    world.trust("work/.mcp.json");
    assert_eq!(environment(&world), "A=hunter2");
}
