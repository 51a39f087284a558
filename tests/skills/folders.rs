//! What is found, and what is told of the rest.

use serde_json::{Value, json};

use super::{World, names, one, plain, sparse};

/// SU-12: the project's folders, the configured ones and the user's, each hiding those of the same name
/// in the ones after it.
#[test]
fn every_folder_is_looked_into_and_the_stronger_hides_the_weaker() {
    let world = World::with(&[
        ("project/.colibri/skills/a/SKILL.md", &plain("a")),
        ("project/.agents/skills/b/SKILL.md", &plain("b")),
        ("project/.claude/skills/c/SKILL.md", &plain("c")),
        ("more/group/d/SKILL.md", &plain("d")),
        ("home/.colibri/skills/e/SKILL.md", &plain("e")),
        ("home/.agents/skills/f/SKILL.md", &plain("f")),
        ("home/.claude/skills/g/SKILL.md", &plain("g")),
        ("home/.config/colibri/colibri.json", r#"{ "skills": ["../../../more", "~/gone"] }"#),
        // Hidden, one by each kind.
        ("project/.claude/skills/a/SKILL.md", &plain("a")),
        ("more/b/SKILL.md", &plain("b")),
        ("home/.agents/skills/d/SKILL.md", &plain("d")),
        // Not looked into.
        ("project/.agents/skills/.git/x/SKILL.md", &plain("x")),
        ("project/.agents/skills/node_modules/y/SKILL.md", &plain("y")),
        ("project/.agents/skills/b/nested/SKILL.md", &plain("nested")),
        ("project/skills/z/SKILL.md", &plain("z")),
    ]);
    let listing = world.list();
    let sources: Vec<String> = listing["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| format!("{}:{}", skill["name"].as_str().unwrap(), skill["source"].as_str().unwrap()))
        .collect();
    assert_eq!(
        sources,
        ["a:project", "b:project", "c:project", "d:configured", "e:user", "f:user", "g:user"]
    );
    assert_eq!(world.local(one(&listing, "a")["path"].as_str().unwrap()), "project/.colibri/skills/a");
    let hidden = |path: &str, name: &str, by: &str| {
        format!(
            "warning {path} `{name}` is hidden by the one of the same name in {by}: rename or remove one of them"
        )
    };
    let told = world.diagnostics(&listing);
    assert_eq!(
        told[1..],
        [
            hidden("project/.claude/skills/a", "a", "project/.colibri/skills/a"),
            hidden("more/b", "b", "project/.agents/skills/b"),
            hidden("home/.agents/skills/d", "d", "more/group/d"),
        ]
    );
    assert!(told[0].starts_with("warning home/gone this folder for skills cannot be read: "), "{told:?}");
}

/// SU-12: a cloned repository's configuration does not choose what is shown to whom.
#[test]
fn a_configuration_found_in_the_project_names_no_folders() {
    let world = World::with(&[
        ("project/colibri.json", r#"{ "skills": ["../elsewhere"] }"#),
        ("elsewhere/secret/SKILL.md", &plain("secret")),
    ]);
    assert_eq!(names(&world.list()), Vec::<&str>::new());
    let named = world.run(&["--config", "colibri.json", "call", "skill_list", "--json"]);
    let listing: Value = serde_json::from_slice(&named.stdout).unwrap();
    assert_eq!(names(&listing["data"]), ["secret"], "but a person's word does");
}

/// SU-12: bad files are skipped with path, line and reason, and harm no other.
#[test]
fn bad_files_are_told_and_skipped() {
    let world = World::new();
    let file = |name: &str, text: &str| world.write(&format!("project/.agents/skills/{name}/SKILL.md"), text);
    world.skill("good");
    file("broken-yaml", "---\nname: broken-yaml\ndescription: [one, two\n---\n");
    file("empty", "");
    file("no-description", "---\nname: no-description\n---\n");
    file("no-end", "---\nname: no-end\ndescription: x\n");
    file("no-name", "---\ndescription: x\n---\n");
    file("no-start", "# Just text\n");
    world.write("project/.agents/skills/not-text/SKILL.md", b"---\nname: \xff\n---\n");
    sparse(&world.path("project/.agents/skills/sparse/SKILL.md"), 100 << 20);
    std::fs::create_dir_all(world.path("project/.agents/skills/folder/SKILL.md")).unwrap();
    let listing = world.list();
    assert_eq!(names(&listing), ["good"]);
    let expected = [
        "broken-yaml/SKILL.md:3 its frontmatter is not valid YAML: ",
        "empty/SKILL.md:1 it does not begin with `---`",
        "folder/SKILL.md is no regular file, and is ignored",
        "no-description/SKILL.md `description` is missing",
        "no-end/SKILL.md:1 its frontmatter has no end",
        "no-name/SKILL.md `name` is missing",
        "no-start/SKILL.md:1 it does not begin with `---`",
        "not-text/SKILL.md not valid UTF-8 at byte 10",
        "sparse/SKILL.md longer than 1048576 bytes; it is not read",
    ];
    let told = world.diagnostics(&listing);
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(&format!("error project/.agents/skills/{expected}")), "{told}");
    }
}

/// SU-12: what is not as it should be but can be used is used, with a warning.
#[test]
fn files_that_can_be_made_sense_of_are_used() {
    let world = World::new();
    let file = |name: &str, text: &str| world.write(&format!("project/.agents/skills/{name}/SKILL.md"), text);
    file("bom", &format!("\u{feff}{}", plain("bom")));
    file("colon", "---\nname: colon\ndescription: Use it so: well.\n---\n");
    file("crlf", &plain("crlf").replace('\n', "\r\n"));
    file("folder", &plain("other"));
    file("long", &plain(&"l".repeat(80)));
    file("number", "---\nname: number\ndescription: x\nversion: 1.10\n---\n");
    let listing = world.list();
    assert_eq!(world.diagnostics(&listing), Vec::<String>::new());
    let warnings = |name: &str| one(&listing, name).get("warnings").cloned().unwrap_or_default();
    assert_eq!(warnings("bom"), Value::Null);
    assert_eq!(warnings("crlf"), Value::Null);
    assert_eq!(one(&listing, "number")["version"], "1.10");
    assert_eq!(one(&listing, "colon")["description"], "Use it so: well.");
    assert_eq!(
        warnings("colon"),
        json!(["SKILL.md line 3: a value with a colon in it is not quoted: put it in quotes"])
    );
    assert_eq!(
        warnings("other"),
        json!(["SKILL.md line 2: the name `other` differs from its folder `folder`: make them equal"])
    );
    assert_eq!(warnings(&"l".repeat(80))[0], "SKILL.md line 2: `name` has 80 characters: at most 64");
}

/// SU-12: however many folders and files there are, looking ends, and what was left out is told.
#[test]
fn looking_has_bounds() {
    let world = World::new();
    for number in 0..3_000 {
        let folder = world.path(&format!("project/.agents/skills/f{number:04}"));
        std::fs::create_dir_all(folder).unwrap();
    }
    world.skill("a-first");
    world.skill("z-last");
    world.write("project/.claude/skills/1/2/3/4/5/6/deep/SKILL.md", plain("deep"));
    world.write("project/.claude/skills/1/2/3/4/5/six/SKILL.md", plain("six"));
    let many = "project/.claude/skills/many";
    world.write(&format!("{many}/SKILL.md"), plain("many"));
    for number in 0..600 {
        world.write(&format!("{many}/data/{number}"), "x");
    }
    world.write("project/.claude/skills/large/SKILL.md", plain("large"));
    sparse(&world.path("project/.claude/skills/large/film.bin"), 100 << 20);
    let listing = world.list();
    assert_eq!(names(&listing), ["a-first", "large", "many", "six"]);
    assert_eq!(
        world.diagnostics(&listing),
        [
            "warning project/.agents/skills more than 2000 folders are in it; the rest is not looked into",
            "warning project/.claude/skills folders more than 6 deep are not looked into",
        ]
    );
    let left_out = |name: &str| one(&listing, name)["warnings"][0].as_str().unwrap().to_owned();
    assert!(left_out("many").starts_with("89 of its files are left out"), "{}", left_out("many"));
    assert!(left_out("large").starts_with("1 of its files are left out"), "{}", left_out("large"));
}

/// SU-12: a name that would move the cursor or turn the text is shown as what it is.
#[test]
fn hostile_names_are_made_visible() {
    let world = World::new();
    world.write(
        "project/.agents/skills/\u{1b}[31mred\u{202e}/SKILL.md",
        "---\nname: \"a\\e[2Jb\"\ndescription: x\n---\n",
    );
    world
        .write("project/.agents/skills/plain/SKILL.md", "---\nname: plain\ndescription: \"x\\e[31m\"\n---\n");
    world.write("project/.agents/skills/plain/\u{1b}[2J", "x");
    let listing = world.list();
    let told = world.diagnostics(&listing);
    assert_eq!(
        told[0],
        "error project/.agents/skills/\\u{1b}[31mred\\u{202e}/SKILL.md:2 the name `a\\u{1b}[2Jb` has characters that cannot be seen"
    );
    assert_eq!(one(&listing, "plain")["warnings"][0], "the name of `\\u{1b}[2J` cannot be shown");
    for command in [&["skill", "list"][..], &["skill", "show", "plain"]] {
        let shown = world.run(command);
        let all = [shown.stdout, shown.stderr].concat();
        assert!(!all.is_empty() && !all.contains(&0x1b), "{}", String::from_utf8_lossy(&all));
    }
}

/// SU-12, SU-15: filters combine, pages add up, and what the schema does not admit is refused.
#[test]
fn the_list_is_filtered_and_paged() {
    let world = World::new();
    for (name, capabilities) in [("alpha", "[read]"), ("beta", "[read, write]"), ("gamma", "[]")] {
        let text = format!(
            "---\nname: {name}\ndescription: The Letter {name}.\ncapabilities: {capabilities}\n---\nBody.\n"
        );
        world.write(&format!("project/.agents/skills/{name}/SKILL.md"), text);
    }
    let mut client = world.serve();
    let mut check = |arguments: Value, expected: &[&str]| {
        assert_eq!(names(&client.list(&arguments)), expected, "{arguments}");
    };
    check(json!({}), &["alpha", "beta", "gamma"]);
    check(json!({ "search": "LETTER" }), &["alpha", "beta", "gamma"]);
    check(json!({ "search": "bet" }), &["beta"]);
    check(json!({ "search": "nothing" }), &[]);
    check(json!({ "capability": "read" }), &["alpha", "beta"]);
    check(json!({ "capability": "rea" }), &[]);
    check(json!({ "capability": "read", "search": "ALPHA" }), &["alpha"]);
    let first = client.list(&json!({ "limit": 2 }));
    assert_eq!((names(&first), &first["next_cursor"]), (vec!["alpha", "beta"], &json!("beta")));
    let second = client.list(&json!({ "limit": 2, "cursor": first["next_cursor"] }));
    assert_eq!((names(&second), second.get("next_cursor")), (vec!["gamma"], None));
    assert!(!first.to_string().contains("Body."), "the list has no bodies");

    for (arguments, path) in [
        (json!({ "limit": 0 }), "/limit"),
        (json!({ "limit": 201 }), "/limit"),
        (json!({ "search": "" }), "/search"),
        (json!({ "capability": 7 }), "/capability"),
        (json!({ "serach": "x" }), "/serach"),
    ] {
        let envelope = client.call("skill_list", &arguments);
        assert_eq!(envelope["error"]["code"], "INVALID_PARAMS", "{envelope}");
        assert_eq!(envelope["error"]["details"]["issues"][0]["path"], path, "{envelope}");
    }
    let slip = client.call("skill_list", &json!({ "serach": "x" }));
    assert!(slip.to_string().contains("did you mean `search`?"), "{slip}");
}

/// SU-1, SU-12: the list is among the fourteen tools, and its answers match what it publishes.
#[test]
fn all_fourteen_tools_are_there_and_the_list_keeps_its_schema() {
    let world = World::new();
    world.skill("good");
    world.write("project/.agents/skills/bad/SKILL.md", "");
    world.write("project/.agents/skills/odd/SKILL.md", plain("strange"));
    let mut client = world.serve();
    let tools = client.modern("tools/list", json!({}))["result"]["tools"].clone();
    let tools: Vec<&Value> = tools.as_array().unwrap().iter().collect();
    let all: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(all, crate::support::NATIVE_TOOLS);
    for tool in &tools {
        for key in ["title", "description", "inputSchema", "outputSchema", "annotations"] {
            assert!(tool.get(key).is_some_and(|value| value != ""), "{} has no {key}", tool["name"]);
        }
    }
    for name in ["skill_list", "server_health"] {
        let schema = &tools.iter().find(|tool| tool["name"] == name).unwrap()["outputSchema"];
        let validator = jsonschema::draft202012::new(schema).unwrap();
        for envelope in [client.call(name, &json!({})), client.call(name, &json!({ "limit": "x" }))] {
            let wrong: Vec<String> =
                validator.iter_errors(&envelope).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{name}: {wrong:?} in {envelope}");
        }
    }
}

/// SU-13: health counts what can be used, what cannot, and what somebody should look at.
#[test]
fn health_counts_skills() {
    let world = World::new();
    let health = |world: &World| world.serve().call("server_health", &json!({}))["data"]["skills"].clone();
    assert_eq!(health(&world), json!({ "count": 0, "errors": 0, "warnings": 0 }));
    world.skill("good");
    world.write("project/.agents/skills/bad/SKILL.md", "");
    world.write("project/.agents/skills/odd/SKILL.md", plain("strange"));
    assert_eq!(health(&world), json!({ "count": 2, "errors": 1, "warnings": 1 }));
    assert_eq!(world.records("skill.seen").len(), 0, "to be counted is not to be met");
}
