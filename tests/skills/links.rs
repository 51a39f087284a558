//! Links, pipes and whatever else a folder can hold that is no file.

use std::process::Command;

use serde_json::json;

use super::{World, names, one, plain};

/// SU-12: no link is walked, so no loop is; what lies behind one is found where it really is, or told.
#[test]
fn links_are_never_followed() {
    let world = World::new();
    world.skill("here");
    world.link(".", "project/.agents/skills/loop");
    world.link("../..", "project/.agents/skills/up");
    world.link("b", "project/.agents/skills/a");
    world.link("a", "project/.agents/skills/b");
    world.link("here", "project/.agents/skills/there");
    world.link("../../../elsewhere", "project/.agents/skills/out");
    world.write("elsewhere/away/SKILL.md", plain("away"));
    // Two names of one folder are one folder.
    world.link("../.agents/skills", "project/.claude/skills");
    let listing = world.list();
    assert_eq!(names(&listing), ["here"]);
    let mut told = world.diagnostics(&listing);
    told.sort();
    let leaves = "this link leaves the folder and is not followed: name its target under `skills` in the configuration";
    assert_eq!(
        told,
        [
            "warning project/.agents/skills/a this link leads nowhere, or round in a circle".to_owned(),
            "warning project/.agents/skills/b this link leads nowhere, or round in a circle".to_owned(),
            format!("warning project/.agents/skills/out {leaves}"),
            format!("warning project/.agents/skills/up {leaves}"),
        ]
    );
}

/// SU-12: a repository that links its folder to the user's own is not believed; the user is.
#[test]
fn a_projects_folder_does_not_leave_the_project() {
    let world = World::new();
    world.write("private/diary/SKILL.md", plain("diary"));
    world.link("../../private", "project/.agents/skills");
    let listing = world.list();
    assert_eq!(names(&listing), Vec::<&str>::new());
    let told = world.diagnostics(&listing);
    assert!(
        told[0].contains("project/.agents/skills this folder for skills is a link that leaves the project")
    );

    world.link("../../private", "home/.agents/skills");
    assert_eq!(one(&world.list(), "diary")["source"], "user");
}

/// SU-12: a file of a skill is a regular file in its folder; a link to elsewhere, a pipe or a device
/// is not opened.
#[test]
fn only_regular_files_in_the_folder_belong_to_a_skill() {
    let world = World::new();
    world.write("secret.txt", "the secret");
    world.skill("tidy");
    world.write("project/.agents/skills/tidy/real.txt", "x");
    world.link("real.txt", "project/.agents/skills/tidy/also.txt");
    world.link("../../../../secret.txt", "project/.agents/skills/tidy/stolen.txt");
    world.link("..", "project/.agents/skills/tidy/parent");
    mkfifo(&world, "project/.agents/skills/tidy/pipe");
    mkfifo(&world, "project/.agents/skills/piped/SKILL.md");
    world.link("../../../../secret.txt", "project/.agents/skills/linked/SKILL.md");
    let listing = world.list();
    assert_eq!(names(&listing), ["tidy"]);
    assert_eq!(
        one(&listing, "tidy")["warnings"],
        json!([
            "`parent` is a link that leaves the skill's folder, and is ignored",
            "`pipe` is no regular file, and is ignored",
            "`stolen.txt` is a link that leaves the skill's folder, and is ignored",
        ])
    );
    assert_eq!(
        world.diagnostics(&listing),
        [
            "error project/.agents/skills/linked/SKILL.md is a link that leaves the skill's folder, and is ignored",
            "error project/.agents/skills/piped/SKILL.md is no regular file, and is ignored",
        ]
    );

    let mut client = world.serve();
    let entry = client.modern("skills/get", json!({ "uri": "skill://tidy/SKILL.md" }));
    let files = entry["result"]["skill"]["resources"].as_array().unwrap();
    let files: Vec<&str> = files.iter().map(|file| file["uri"].as_str().unwrap()).collect();
    assert_eq!(files, ["skill://tidy/SKILL.md", "skill://tidy/also.txt", "skill://tidy/real.txt"]);
    for path in ["stolen.txt", "parent", "parent/tidy/SKILL.md", "pipe"] {
        let answer = client.modern("resources/read", json!({ "uri": format!("skill://tidy/{path}") }));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let linked = client.modern("resources/read", json!({ "uri": "skill://tidy/also.txt" }));
    assert_eq!(linked["result"]["contents"][0]["text"], "x");
}

fn mkfifo(world: &World, path: &str) {
    std::fs::create_dir_all(world.path(path).parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(world.path(path)).status().unwrap().success());
}
