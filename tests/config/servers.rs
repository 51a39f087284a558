//! Stories of configured servers: other clients' files, variables, names, and mistakes that cost one
//! server.

use colibri::config::{Server, State, schema, slug};
use serde_json::{Value, json};

use super::World;

/// The servers of a file that was asked for, each as its state in words.
fn states(world: &World) -> Vec<String> {
    let servers = world.load().expect("a broken server stops nothing").config.servers;
    servers.iter().map(|server| world.plain(&state(server))).collect()
}

fn state(server: &Server) -> String {
    match &server.state {
        State::Ready(_) => format!("{} ready", server.slug),
        State::Disabled { reason, broken: true } => format!("{} broken: {reason}", server.slug),
        State::Disabled { reason, .. } => format!("{} off: {reason}", server.slug),
    }
}

/// A server's effective keys with the secrets laid open, without those left at their default.
fn effective(server: &Server) -> Value {
    let State::Ready(config) = &server.state else { panic!("{}", state(server)) };
    let mut all = json!(config);
    for (shown, secrets) in [("env", &config.env), ("headers", &config.headers)] {
        all[shown] = secrets.iter().map(|(name, secret)| (name.clone(), json!(secret.expose()))).collect();
    }
    let defaults = json!(colibri::config::ServerConfig::default());
    let set =
        all.as_object().expect("a struct").iter().filter(|(key, value)| defaults[key.as_str()] != **value);
    Value::Object(set.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// PR-2: one snippet as each client's users have it, and what it means here.
#[test]
fn what_people_already_have_is_read_as_it_is() {
    let validator = jsonschema::validator_for(&schema()).expect("a valid schema");
    for (client, snippet, expected) in clients() {
        let world = World::asked(snippet).env(&[("API_KEY", "k"), ("TOKEN", "t")]);
        world.write("home/.env", b"# nothing yet");
        let servers = world.load().unwrap_or_else(|error| panic!("{client}: {error}")).config.servers;
        assert_eq!(servers.len(), 1, "{client}");
        assert_eq!(effective(&servers[0]), expected, "{client}");
        let value = serde_json::from_str(snippet).expect("plain JSON");
        assert!(validator.is_valid(&value), "{client}: an editor would complain");
    }
}

fn clients() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        (
            "Claude Desktop",
            r#"{"mcpServers": {"filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"], "env": {"A": "1"}}}}"#,
            json!({"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"], "env": {"A": "1"}}),
        ),
        (
            "Claude Code",
            r#"{"mcpServers": {"api": {"type": "http", "url": "${BASE:-https://api.example.com}/mcp", "headers": {"Authorization": "Bearer ${API_KEY}"}, "timeout": 600000}}}"#,
            json!({"type": "http", "url": "${BASE:-https://api.example.com}/mcp", "headers": {"Authorization": "Bearer k"}, "timeout": 600_000}),
        ),
        (
            "Claude Code, ws",
            r#"{"mcpServers": {"live": {"type": "ws", "url": "wss://live.example/mcp"}}}"#,
            json!({"type": "websocket", "url": "wss://live.example/mcp"}),
        ),
        (
            "nobody's, but clear",
            r#"{"mcpServers": {"live": {"url": "wss://live.example/mcp"}}}"#,
            json!({"type": "websocket", "url": "wss://live.example/mcp"}),
        ),
        (
            "VS Code",
            r#"{"inputs": [], "servers": {"play": {"type": "stdio", "command": "npx", "args": ["-y", "@playwright/mcp"], "envFile": "home/.env", "sandboxEnabled": true, "sandbox": {"filesystem": {"allowWrite": ["/work"], "denyRead": ["/secret"]}, "network": {"allowedDomains": ["example.com"]}}, "dev": {"watch": "src"}}}}"#,
            json!({"type": "stdio", "command": "npx", "args": ["-y", "@playwright/mcp"], "envFile": "home/.env",
                "sandbox": {"level": "standard", "allowDegraded": [], "filesystem": {"allowRead": [], "allowWrite": ["/work"], "denyRead": ["/secret"], "denyWrite": []},
                    "network": {"allowedDomains": ["example.com"], "deniedDomains": []}}}),
        ),
        (
            "Cursor",
            r#"{"mcpServers": {"gh": {"command": "docker", "args": ["run", "-i", "ghcr.io/x"], "env": {"T": "${env:TOKEN}"}, "envFile": "${userHome}/.env"}}}"#,
            json!({"type": "stdio", "command": "docker", "args": ["run", "-i", "ghcr.io/x"], "env": {"T": "t"}, "envFile": "${userHome}/.env"}),
        ),
        (
            "Codex, as JSON",
            r#"{"mcpServers": {"c": {"url": "https://c.example/mcp", "bearer_token_env_var": "TOKEN", "http_headers": {"X": "1"}, "env_http_headers": {"Y": "API_KEY"}, "startup_timeout_sec": 20, "tool_timeout_sec": 1.5, "enabled": true, "enabled_tools": ["a"], "disabled_tools": ["b"], "required": true}}}"#,
            json!({"type": "http", "url": "https://c.example/mcp", "headers": {"Authorization": "Bearer t", "X": "1", "Y": "k"},
                "connectTimeout": 20_000, "timeout": 1500, "toolsAllowed": ["a"], "toolsDenied": ["b"], "required": true}),
        ),
        (
            "Gemini CLI",
            r#"{"mcpServers": {"g": {"httpUrl": "https://g.example/mcp", "headers": {"H": "v"}, "timeout": 5000, "trust": false, "includeTools": ["a"], "excludeTools": ["b"]}}}"#,
            json!({"type": "http", "url": "https://g.example/mcp", "headers": {"H": "v"}, "timeout": 5000, "toolsAllowed": ["a"], "toolsDenied": ["b"]}),
        ),
        (
            "Goose, as JSON",
            r#"{"mcpServers": {"o": {"type": "stdio", "cmd": "uvx", "args": ["x"], "envs": {"A": "1"}, "env_keys": ["TOKEN"], "enabled": true, "available_tools": ["a"]}}}"#,
            json!({"type": "stdio", "command": "uvx", "args": ["x"], "env": {"A": "1", "TOKEN": "t"}, "toolsAllowed": ["a"]}),
        ),
        (
            "Goose, remote",
            r#"{"mcpServers": {"o": {"type": "streamable_http", "uri": "https://o.example/mcp"}}}"#,
            json!({"type": "http", "url": "https://o.example/mcp"}),
        ),
        (
            "Zed",
            r#"{"mcpServers": {"z": {"source": "custom", "enabled": true, "command": "z", "args": [], "env": {}}}}"#,
            json!({"type": "stdio", "command": "z"}),
        ),
        (
            "Cline",
            r#"{"mcpServers": {"c": {"type": "streamableHttp", "url": "https://c.example/mcp", "disabled": false, "autoApprove": ["x"], "timeout": 60}}}"#,
            json!({"type": "http", "url": "https://c.example/mcp", "timeout": 60}),
        ),
        (
            "Roo, Kilo",
            r#"{"mcpServers": {"r": {"type": "streamable-http", "url": "https://r.example/mcp", "alwaysAllow": ["x"], "disabledTools": ["y"]}}}"#,
            json!({"type": "http", "url": "https://r.example/mcp", "toolsDenied": ["y"]}),
        ),
        (
            "Windsurf, Antigravity",
            r#"{"mcpServers": {"w": {"serverUrl": "https://w.example/mcp"}}}"#,
            json!({"type": "http", "url": "https://w.example/mcp"}),
        ),
        (
            "OpenCode",
            r#"{"mcpServers": {"o": {"type": "local", "command": ["bun", "x", "srv"], "environment": {"A": "1"}, "enabled": true}}}"#,
            json!({"type": "stdio", "command": "bun", "args": ["x", "srv"], "env": {"A": "1"}}),
        ),
        (
            "OpenCode, remote",
            r#"{"mcpServers": {"o": {"type": "remote", "url": "https://o.example/mcp"}}}"#,
            json!({"type": "http", "url": "https://o.example/mcp"}),
        ),
        (
            "Copilot CLI",
            r#"{"mcpServers": {"p": {"type": "sse", "url": "https://p.example/sse", "headers": {}, "tools": ["*"]}}}"#,
            json!({"type": "sse", "url": "https://p.example/sse", "toolsAllowed": ["*"]}),
        ),
        (
            "MCP Inspector",
            r#"{"mcpServers": {"i": {"type": "stdio", "command": "node", "args": ["x.js"], "protocolEra": "auto", "roots": []}}}"#,
            json!({"type": "stdio", "command": "node", "args": ["x.js"]}),
        ),
    ]
}

/// PR-2: a mistake costs that server, says where and what, and no other server pays.
#[test]
fn a_broken_entry_disables_that_server_only() {
    for (entry, expected) in [
        ("5", "expected an object; write "),
        ("null", "expected an object; write "),
        ("{}", "neither `command` nor `url` is given; add one"),
        (r#"{"command": "x", "url": "y"}"#, "both `command` and `url` are given; keep one"),
        (r#"{"type": "stdio", "url": "y"}"#, "`type` is stdio, but there is no `command`; add one"),
        (r#"{"type": "sse", "command": "y"}"#, "`type` needs a `url`, but there is none; add one"),
        (r#"{"type": "grpc", "url": "y"}"#, "unknown type `grpc`: use stdio, http, sse or websocket; "),
        (r#"{"command": ""}"#, "`command`: expected a string that is not empty, found an empty string; "),
        (r#"{"command": []}"#, "`command`: expected a string that is not empty, found a list of 0; "),
        (r#"{"command": "x", "args": "-y"}"#, "`args`: expected a list of strings, found a string; "),
        (r#"{"command": "x", "args": ["a", 1]}"#, "`args[1]`: expected a string, found 1; "),
        (r#"{"command": "x", "env": {"A": 1}}"#, "`env.A`: expected a string, found 1; "),
        (
            r#"{"command": "x", "toolsDenyed": ["rm"]}"#,
            "unknown key `toolsDenyed`; did you mean `toolsDenied`?",
        ),
        (r#"{"command": "x", "sandbox": {"colour": 1}}"#, "unknown key `sandbox.colour`; known here: "),
        (
            r#"{"command": "x", "sandbox": {"filesystem": {"read": []}}}"#,
            "unknown key `sandbox.filesystem.read`; known here: ",
        ),
        (
            r#"{"command": "x", "sandbox": "stict"}"#,
            "unknown sandbox `stict`: use standard, strict or off; did you mean `strict`?",
        ),
        (r#"{"command": "x", "sandbox": {"network": "some"}}"#, "unknown network `some`: use none or full; "),
        (
            r#"{"command": "x", "limits": {"memory": 5}}"#,
            "unknown key `limits.memory`; did you mean `memoryMb`?",
        ),
        (
            r#"{"command": "x", "limits": {"memoryMb": 0}}"#,
            "`limits.memoryMb`: expected a whole number from 1 to 1048576, found 0; ",
        ),
        (r#"{"command": "x", "pool": {"sise": 3}}"#, "unknown key `pool.sise`; did you mean `size`?"),
        (
            r#"{"command": "x", "pool": {"size": 33}}"#,
            "`pool.size`: expected a whole number from 0 to 32, found 33; ",
        ),
        (
            r#"{"command": "x", "pool": {"maxUses": 0}}"#,
            "`pool.maxUses`: expected a whole number from 1 to 1000, found 0; ",
        ),
        (
            r#"{"command": "x", "tools": {"t": {"limits": {"zzz": 1}}}}"#,
            "unknown key `tools.t.limits.zzz`; known here: ",
        ),
        (
            r#"{"command": "x", "restart": {"jitter": 2}}"#,
            "`restart.jitter`: expected a number from 0 to 1, found 2; ",
        ),
        (
            r#"{"command": "x", "restart": {"delays": []}}"#,
            "`restart.delays`: expected a list from 1 to 64, found a list of 0; ",
        ),
        (
            r#"{"command": "x", "timeout": -1}"#,
            "`timeout`: expected a whole number of ms from 1 to 2147483647, found -1; ",
        ),
        (r#"{"command": "x", "cmd": "y"}"#, "`cmd` says `command` a second time; keep one"),
        (r#"{"command": "x", "command": "y"}"#, "`command` is given twice; keep one"),
        (
            r#"{"command": "x", "enabled": true, "disabled": false}"#,
            "`disabled` says `disabled` a second time; keep one",
        ),
        (r#"{"command": "x", "queue": "slow"}"#, "queue `slow` is not defined; add "),
        (r#"{"command": "x", "tools": {"t": {"queue": "slow"}}}"#, "queue `slow` is not defined; add "),
        (
            r#"{"command": "x", "args": ["${NO}"]}"#,
            "`args.0`: the variable `NO` is not set; set it, or write `${NO:-default}`",
        ),
        (
            r#"{"url": "x", "headers": {"Authorization": "Bearer ${NO}"}}"#,
            "`headers.Authorization`: the variable `NO` is not set; ",
        ),
        (r#"{"command": "x", "env_vars": ["NO"]}"#, "`env.NO`: the variable `NO` is not set; "),
        (r#"{"command": "x", "env": {"A": "${input:key}"}}"#, "`env.A`: `${input:…}` is not supported; "),
        (r#"{"command": "${A:-${B}}"}"#, "`command`: the default of `${A}` holds a variable; "),
    ] {
        let world = World::asked(&format!(r#"{{"mcpServers": {{"a": {entry}, "b": {{"command": "x"}}}}}}"#));
        let states = states(&world);
        let reason =
            states[0].split_once("c.json:1:").expect("a place").1.split_once(": ").expect("a column").1;
        assert!(reason.starts_with(expected), "{entry}\n{reason}");
        assert_eq!(states[1], "b ready", "{entry}");
        assert!(
            world.warnings().iter().any(|warning| warning.contains("server `a` is disabled: ")),
            "{entry}"
        );
    }
}

#[test]
fn an_unknown_key_that_looks_like_no_other_is_told_and_ignored() {
    let world = World::asked(
        r#"{"mcpServers": {"a": {"command": "x", "colour": 1, "tools": {"t": {"zzz": 1}}, "timeout": 30}}}"#,
    );
    assert_eq!(states(&world), ["a ready"]);
    assert_eq!(
        world.warnings(),
        [
            "c.json:1:39: server `a`: unknown key `colour`; it is ignored",
            "c.json:1:68: server `a`: unknown key `tools.t.zzz`; it is ignored",
            "c.json:1:91: server `a`: `timeout` is 30 milliseconds; if seconds were meant, write three zeros more",
        ]
    );
}

#[test]
fn a_server_that_is_turned_off_is_not_asked_for_its_variables() {
    let world = World::asked(
        r#"{"mcpServers": {"a": {"command": "${NO}", "disabled": true}, "b": {"command": "${NO}", "enabled": false}}}"#,
    );
    assert_eq!(states(&world), ["a off: turned off by `disabled`", "b off: turned off by `disabled`"]);
    assert_eq!(world.warnings(), Vec::<String>::new());
}

/// BR-10: a server's deadlines follow `mcpTimeout` unless it has its own.
#[test]
fn deadlines_follow_the_common_one() {
    let world = World::asked(r#"{"mcpServers": {"a": {"command": "x", "connectTimeout": 7000}}}"#);
    let servers = world.env(&[("COLIBRI_MCP_TIMEOUT", "5000")]).load().expect("a sound file").config.servers;
    let State::Ready(config) = &servers[0].state else { panic!("{}", state(&servers[0])) };
    assert_eq!((config.timeout.0, config.connect_timeout.0), (5000, 7000));
}

/// PR-2: variables are filled in once, by these rules.
#[test]
fn variables_are_filled_in_once() {
    let env = [("A", "a"), ("EMPTY", ""), ("TRICK", "${A}")];
    for (text, expected) in [
        ("plain", "plain"),
        ("${A}${A}", "aa"),
        ("x${env:A}y", "xay"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${NO:-d e}", "d e"),
        ("${NO:-}", ""),
        ("${A:-d}", "a"),
        ("${TRICK}", "${A}"),
        ("${userHome}", "home"),
        ("${workspaceFolder}/x", "work/x"),
        // No form of ours, so it stays.
        ("$A", "$A"),
        ("${A", "${A"),
        ("${}", "${}"),
        ("${1}", "${1}"),
        ("${name%suffix}", "${name%suffix}"),
        ("${x ${A}", "${x a"),
    ] {
        let file = json!({"mcpServers": {"s": {"command": "c", "args": [text]}}}).to_string();
        let world = World::asked(&file).env(&env);
        let servers = world.load().expect("a sound file").config.servers;
        let State::Ready(config) = &servers[0].state else { panic!("{text}: {}", state(&servers[0])) };
        assert_eq!(
            world.plain(config.args[0].value()),
            expected.replace("home", &world.plain("home")),
            "{text}"
        );
        assert_eq!(config.args[0].to_string(), text, "shown as written");
    }
    let file = json!({"mcpServers": {"s": {"command": "c", "args": vec!["${BIG}"; 100]}}}).to_string();
    let world = World::asked(&file).env(&[("BIG", &"x".repeat(100_000))]);
    assert!(states(&world)[0].contains("expand to more than"), "{:?}", states(&world)[0].len());
}

#[test]
fn paths_are_relative_to_the_file_that_names_them() {
    let world = World::new(&[(
        "work/.mcp.json",
        r#"{"mcpServers": {"a": {"command": "x", "cwd": "sub", "envFile": "/abs"}}}"#,
    )]);
    let servers = world.load().expect("a sound file").config.servers;
    let State::Ready(config) = &servers[0].state else { panic!("{}", state(&servers[0])) };
    assert_eq!(world.plain(config.cwd.as_ref().expect("cwd is set").value()), "work/sub");
    assert_eq!(config.env_file.as_ref().expect("envFile is set").value(), "/abs");
}

/// PR-3: a name becomes a slug that the first `__` of a tool's name always splits off.
#[test]
fn names_become_slugs() {
    for (name, expected) in [
        ("github", "github"),
        ("a--b_c-", "a--b_c-"),
        ("my server", "my-server"),
        ("io.github/x", "io-github-x"),
        ("a__b", "a_b"),
        ("a____b__", "a_b"),
        ("_x_", "x"),
        ("-x", "x"),
        ("é1", "1"),
    ] {
        assert_eq!(slug(name).as_deref(), Some(expected), "{name}");
        assert_eq!(slug(expected).as_deref(), Some(expected), "a slug is its own slug");
    }
    for nothing in ["", "__", "é", "--"] {
        assert_eq!(slug(nothing), None);
    }
}

/// PR-3: collisions are detected and reported, and an untrusted file cannot win one.
#[test]
fn the_second_of_two_servers_with_one_slug_is_disabled() {
    let world = World::asked(
        "{\"mcpServers\": {\n\"a b\": {\"command\": \"x\"},\n\"a-b\": {\"command\": \"x\"},\n\"a.b\": {\"command\": \"x\", \"disabled\": true},\n\"é\": {\"command\": \"x\"}}}",
    );
    assert_eq!(
        states(&world),
        [
            "a-b ready",
            "a-b broken: c.json:3: server `a-b` is disabled: its tools would be named `a-b__…` like those of `a b` (c.json:2); rename one",
            "a-b off: turned off by `disabled`",
            " broken: c.json:5:1: the name cannot stand in a tool's name; give it at least one letter or digit",
        ]
    );
    let user = "home/.config/colibri/colibri.json";
    let world = World::new(&[
        ("work/colibri.json", r#"{"mcpServers": {"a b": {"command": "x"}, "same": {"command": "x"}}}"#),
        (user, r#"{"mcpServers": {"a-b": {"command": "x"}, "same": {"command": "x"}}}"#),
    ]);
    let states = states(&world);
    assert!(states[0].starts_with("a-b broken: "), "{states:?}");
    assert_eq!(states[1..], ["same ready", "a-b ready"]);
    let hidden = format!(
        "{user}:1:42: server `same` is not used: work/colibri.json:1 has one of that name; rename one"
    );
    assert!(world.warnings().contains(&hidden), "{:?}", world.warnings());
}

/// PR-2: secrets never reach a log, by no road.
#[test]
fn secrets_are_never_shown() {
    let sound = r#"{"mcpServers": {"a": {"command": "x", "args": ["${TOKEN}"], "env": {"K": "hunter2", "L": "${TOKEN}"}}, "b": {"url": "u", "headers": {"H": "hunter2"}}}}"#;
    let world = World::asked(sound).env(&[("TOKEN", "hunter2")]);
    let loaded = world.load().expect("a sound file");
    let listed = serde_json::to_string(loaded.values()).expect("values are JSON");
    assert!(listed.contains("\"K\":\"***\"") && listed.contains("${TOKEN}"), "{listed}");
    let State::Ready(config) = &loaded.config.servers[0].state else { panic!("ready") };
    assert_eq!((config.env["L"].expose(), config.args[0].value()), ("hunter2", "hunter2"));
    assert!(!format!("{listed}{loaded:?}{}", config.env["K"]).contains("hunter2"));
    for broken in [
        r#"{"mode": 1, "mcpServers": {"a": {"env": {"K": "hunter2"}}}}"#,
        r#"{"mcpServers": {"a": {"env": {"K": "hunter2" "L": 1}}}}"#,
        r#"{"mcpServers": {"a": {"env": {"K: "hunter2"}}}}"#,
        r#"{"mcpServers": {"a": {"env": {"K": "hunter2}}}}"#,
        r#"{"mcpServers": {"a": {"env": {"K": hunter2}}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "headers": "hunter2", "zzz": "hunter2"}}, "mode": 1}"#,
        r#"{"mcpServers": "hunter2"}"#,
        r#"{"log": {"env": {"K": "hunter2"}}}"#,
    ] {
        let told = World::asked(broken).load().unwrap_err().to_string();
        assert!(!told.contains("hunter2") && told.contains('^'), "{told}");
    }
}

/// PR-2: what a variable puts into arguments and addresses is known as something that may be a secret; what is nobody's
/// secret, or where something is, stays readable.
#[test]
fn what_was_filled_in_is_known() {
    let sound = r#"{"mcpServers": {
        "a": {"command": "${TOOLS}/x", "args": ["--key=${KEY}", "${HOME}", "${FOLDER}", "${NONE:-default}", "${userHome}"]},
        "b": {"url": "https://example.com/?k=${WEB_KEY}"}
    }}"#;
    let mut world = World::asked(sound);
    let folder = world.path("work").display().to_string();
    world = world.env(&[
        ("KEY", "k-1"),
        ("WEB_KEY", "k-2"),
        ("HOME", "/h"),
        ("TOOLS", "/t"),
        ("FOLDER", &folder),
    ]);
    let loaded = world.load().expect("a sound file");
    let known: Vec<&str> = loaded.filled_in().map(colibri::config::Secret::expose).collect();
    assert_eq!(known, ["k-1", "k-2"]);
}
