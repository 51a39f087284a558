//! `colibri skill`.

use serde_json::Value;

use super::{World, plain, sparse};

fn told(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// SU-12: validation is strict, says where and what, and needs neither ledger nor configuration.
#[test]
fn validation_is_strict() {
    let world = World::new();
    let check = |text: &str, code: i32, expected: &str| {
        world.write("project/tidy/SKILL.md", text);
        let (exit, out, err) = told(&world.run(&["skill", "validate", "tidy"]));
        assert_eq!((exit, &*out), (Some(code), expected), "{text:?}: {err}");
        let json = world.run(&["skill", "validate", "--json", "tidy/SKILL.md"]);
        assert_eq!(json.status.code(), Some(code));
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["valid"], code == 0);
        assert_eq!(json["problems"].as_array().unwrap().len(), expected.matches("SKILL.md").count());
    };
    check(&plain("tidy"), 0, "valid\n");
    check(
        &plain("Tidy-"),
        6,
        "tidy/SKILL.md:2: the name `Tidy-` may only have a-z, 0-9 and hyphens\n\
         tidy/SKILL.md:2: the name `Tidy-` differs from its folder `tidy`: make them equal\n",
    );
    check(
        "---\nname: tidy\ndescription: x\nversion: 1\n---\n",
        6,
        "tidy/SKILL.md:4: `version` is no field of the Agent Skills format: put it under `metadata`\n",
    );
    check(
        "---\nname: tidy\ndescription: a: b\n---\n",
        6,
        "tidy/SKILL.md:3: a value with a colon in it is not quoted: put it in quotes\n",
    );
    check(
        "no frontmatter",
        6,
        "tidy/SKILL.md:1: it does not begin with `---`: the frontmatter, with name and description, is missing\n",
    );
    assert!(!world.path("ledger.db").exists(), "nothing is opened to validate");
}

/// SU-12: what cannot be read is a problem like any other, and is found out quickly.
#[test]
fn what_cannot_be_read_is_not_valid() {
    let world = World::new();
    sparse(&world.path("project/huge/SKILL.md"), 100 << 20);
    world.write("project/tidy.md", plain("tidy"));
    std::fs::create_dir(world.path("project/empty")).unwrap();
    for (path, words) in [
        ("huge", "longer than 1048576 bytes"),
        ("tidy.md", "the file of a skill is called SKILL.md"),
        ("empty", "cannot be read: "),
        ("gone", "the file of a skill is called SKILL.md"),
    ] {
        let (exit, out, err) = told(&world.run(&["skill", "validate", path]));
        assert_eq!(exit, Some(6), "{path}: {out}{err}");
        assert!(out.contains(words), "{path}: {out}");
    }
}

/// SU-12: a person lists and shows skills, and is on record like an agent.
#[test]
fn people_list_and_show() {
    let world = World::new();
    let text =
        "---\nname: tidy\ndescription: >\n  Tidies\n  up.\nversion: 1.10\n---\n# Tidy\n\n\tIndented.\n";
    world.write("project/.agents/skills/tidy/SKILL.md", text);
    world.write("home/.agents/skills/mine/SKILL.md", plain("mine"));
    world.write("project/.agents/skills/bad/SKILL.md", "");
    let (exit, out, err) = told(&world.run(&["skill", "list"]));
    assert_eq!(exit, Some(0), "{err}");
    assert_eq!(
        out,
        "NAME  VERSION  SOURCE   DESCRIPTION\n\
         mine           user     About mine.\n\
         tidy  1.10     project  Tidies up.\n"
    );
    assert!(
        world
            .local(&err)
            .starts_with("colibri: error: project/.agents/skills/bad/SKILL.md:1: it does not begin")
    );

    let (exit, out, _) = told(&world.run(&["skill", "list", "--search", "MINE", "--json"]));
    let envelope: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((exit, super::names(&envelope["data"])), (Some(0), vec!["mine"]));

    let (exit, out, _) = told(&world.run(&["skill", "show", "tidy"]));
    assert_eq!(exit, Some(0));
    assert!(out.starts_with("name         tidy\ndescription  Tidies up."), "{out}");
    assert!(out.ends_with("\n\n# Tidy\n\n\tIndented.\n"), "{out}");
    let (exit, out, err) = told(&world.run(&["skill", "show", "none"]));
    assert_eq!((exit, &*out, &*err), (Some(5), "", "colibri: ERR_NOT_FOUND: there is no skill `none`\n"));

    let enters = world.records("call.enter");
    let tools: Vec<&str> = enters.iter().map(|enter| enter["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["skill_list", "skill_list", "skill_show", "skill_show"]);
    assert_eq!(enters[0]["principal"]["client"], "colibri skill");
}
