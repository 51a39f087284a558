//! What is on record of skills, and when.

use serde_json::{Value, json};

use super::{World, names, one, plain, sha256};

/// SU-12: a changed file is seen without a restart, at once and whatever its size and time say, and
/// leaves exactly one record; a skill that vanished is gone.
#[test]
fn a_change_is_seen_at_once_and_recorded_once() {
    let world = World::new();
    world.skill("tidy");
    world.write("project/.agents/skills/tidy/notes.txt", "1");
    let mut client = world.serve();
    let mut digests = Vec::new();
    let mut look = |world: &World, records: usize| {
        let listing = client.list(&json!({}));
        assert_eq!(world.records("skill.seen").len(), records);
        if let Some(skill) = listing["skills"].as_array().unwrap().first() {
            digests.push(skill["digest"].as_str().unwrap().to_owned());
        }
        listing
    };
    look(&world, 1);
    look(&world, 1); // Nothing changed.
    world.write("project/.agents/skills/tidy/notes.txt", "2"); // The same size, perhaps the same tick.
    look(&world, 2);
    look(&world, 2);
    world.write("project/.agents/skills/tidy/SKILL.md", plain("tidy").replace("well", "best"));
    look(&world, 3);
    world.write("project/.agents/skills/tidy/more.txt", "");
    look(&world, 4);
    std::fs::remove_file(world.path("project/.agents/skills/tidy/more.txt")).unwrap();
    look(&world, 5); // As it was before, and still a change.
    std::fs::remove_dir_all(world.path("project/.agents/skills/tidy")).unwrap();
    assert_eq!(names(&look(&world, 5)), Vec::<&str>::new());
    world.skill("other");
    assert_eq!(names(&look(&world, 6)), ["other"]);

    digests.dedup();
    assert_eq!(digests.len(), 6, "a digest for every record");
    assert_eq!(digests[2], digests[4], "what is the same again is told the same");
}

/// SU-12: what was met once is known to every colibri on the same ledger, now and later.
#[test]
fn several_processes_record_a_skill_once() {
    let world = World::new();
    world.skill("tidy");
    let (mut one, mut other) = (world.serve(), world.serve());
    one.list(&json!({}));
    other.list(&json!({}));
    one.modern("skills/list", json!({}));
    drop((one, other));
    world.list();
    assert_eq!(world.records("skill.seen").len(), 1);
}

/// SU-12, SU-4: the record has the digest of every file, as a shell would make it, and the ledger
/// verifies with it.
#[test]
fn the_record_has_the_digests_of_all_files() {
    let world = World::new();
    world.skill("tidy");
    world.write("project/.agents/skills/tidy/a/z.txt", "zett");
    world.write("project/.agents/skills/tidy/Z.txt", "");
    let listing = world.list();
    let text = plain("tidy");
    let expected =
        format!("{}  SKILL.md\n{}  Z.txt\n{}  a/z.txt\n", sha256(&text), sha256(""), sha256("zett"));
    let skill = one(&listing, "tidy");
    assert_eq!(skill["digest"], sha256(expected));

    let records = world.records("skill.seen");
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(record["digest"], skill["digest"]);
    assert_eq!(
        (&record["name"], &record["source"], &record["files"]),
        (&json!("tidy"), &json!("project"), &json!(3))
    );
    let call = &world.records("call.enter")[0];
    assert_eq!((&call["tool"], &call["call"]), (&json!("skill_list"), &record["call"]));

    let ledger = rusqlite::Connection::open(world.path("ledger.db")).unwrap();
    let sql = "SELECT kept FROM body JOIN record USING (place) WHERE bytes ->> '$.event' = 'skill.seen'";
    let kept: Vec<u8> = ledger.query_row(sql, [], |row| row.get(0)).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(kept["folder"], skill["path"]);
    assert_eq!(kept["files"][2], json!({ "path": "a/z.txt", "size": 4, "digest": sha256("zett") }));

    let verified = world.run(&["audit", "verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// SU-12, CO-13: the ledger is written in every mode that lists skills; MINIMAL lists none.
#[test]
fn every_mode_that_lists_skills_records_them() {
    for (mode, records) in [("FULL", 1), ("READONLY", 1), ("TEST", 1), ("MINIMAL", 0)] {
        let world = World::new().mode(mode);
        world.skill("tidy");
        let mut client = world.serve();
        let envelope = client.call("skill_list", &json!({}));
        let discovered = client.modern("server/discover", json!({}))["result"]["capabilities"].clone();
        let listed = client.modern("skills/list", json!({}));
        drop(client); // A refusal is answered before it is on disk.
        assert_eq!(world.records("skill.seen").len(), records, "{mode}");
        let is_offered = records > 0;
        assert_eq!(envelope["ok"], is_offered, "{mode}: {envelope}");
        assert_eq!(discovered.get("extensions").is_some(), is_offered, "{mode}: {discovered}");
        assert_eq!(listed["error"]["code"] == -32601, !is_offered, "{mode}: {listed}");
        if !is_offered {
            assert_eq!(envelope["error"]["code"], "TOOL_NOT_ADMITTED");
        }
    }
}
