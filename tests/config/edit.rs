//! Stories of a file that is changed by command while others change it too.

use colibri::config::{Editor, Scope, Surroundings};
use serde_json::json;

use super::World;

fn editor(world: &World) -> Editor {
    let (env, cwd) = (world.env.clone(), world.path("work"));
    let around = Surroundings { env, cwd, home: Some(world.path("home")) };
    Editor::open(&world.flags, around, Scope::Project).expect("a file that can be read")
}

/// What somebody else wrote in the meantime is not lost, and what they wrote is not trusted for us.
#[test]
fn a_file_that_changed_in_the_meantime_is_left_alone() {
    for before in [None, Some("{}")] {
        let files: Vec<_> = before.map(|text| ("work/colibri.json", text)).into_iter().collect();
        let world = World::new(&files);
        let editor = editor(&world);
        let edited = editor.put("a", &[("command", json!("x"))]).expect("a sound entry");
        let theirs = br#"{"mcpServers": {"theirs": {"command": "y"}}}"#;
        world.write("work/colibri.json", theirs);
        let refused = edited.save().unwrap_err().to_string();
        assert!(refused.contains("somebody else changed it at the same time"), "{refused}");
        assert_eq!(std::fs::read(world.path("work/colibri.json")).expect("their file"), theirs);
        assert!(!world.load().expect("a sound file").config.servers[0].trusted);
    }
}

/// Many commands at once: each either does its work or says that it did not.
#[test]
fn no_change_is_lost_between_two_commands() {
    let world = World::new(&[]);
    let mut added: Vec<String> = std::thread::scope(|scope| {
        let writers = (0..8).map(|number| {
            let world = &world;
            scope.spawn(move || {
                let name = format!("s{number}");
                let editor = editor(world);
                let edited = editor.put(&name, &[("command", json!("x"))]).expect("a sound entry");
                edited.save().ok().map(|_| name)
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().filter_map(|writer| writer.join().expect("no panic")).collect()
    });
    let servers = world.load().expect("a sound file").config.servers;
    let mut found: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();
    added.sort();
    found.sort();
    assert!(!added.is_empty());
    assert_eq!(added, found);
    assert!(servers.iter().all(|server| server.trusted), "all of it is the person's own");
}
