//! The Skills extension, and the resources it is made of.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Client, World, plain, sha256};

fn uris(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["uri"].as_str().unwrap()).collect()
}

/// A client of the family that begins with `initialize`.
fn legacy(world: &World) -> (Client, Value) {
    let mut client = world.serve();
    let begun = client.ask(
        "initialize",
        &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }),
    );
    (client, begun["result"].clone())
}

fn tidy() -> World {
    let world = World::new();
    let text =
        "---\nname: tidy\ndescription: Tidies.\nlicense: MIT\nmetadata:\n  version: \"2\"\n---\nBody.\n";
    world.write("project/.agents/skills/tidy/SKILL.md", text);
    world.write("project/.agents/skills/tidy/references/über uns.md", "Hello.");
    world.write("project/.agents/skills/tidy/scripts/run.sh", "true\n");
    world.write("project/.agents/skills/tidy/scripts/deep/logo.png", [0x89, b'P', 0xff]);
    world
}

/// SU-12: a host finds a skill, reads its files, and finds each to be what was promised — in both
/// families, which differ only in what every result carries.
#[test]
fn a_host_reads_a_skill_and_can_verify_every_byte() {
    let world = tidy();
    let declared = json!({ "io.modelcontextprotocol/skills": { "directoryRead": true } });
    let (mut old, begun) = legacy(&world);
    assert_eq!(begun["capabilities"]["extensions"], declared);
    assert_eq!(begun["capabilities"]["resources"], json!({}));
    let mut new = world.serve();
    let discovered = new.modern("server/discover", json!({}));
    assert_eq!(discovered["result"]["capabilities"]["extensions"], declared);

    let mut ask = |method: &str, params: Value| -> Value {
        let one = old.ask(method, &params)["result"].clone();
        let mut other = new.modern(method, params)["result"].clone();
        assert_eq!(other["resultType"], "complete", "{method}: {other}");
        assert!(other["ttlMs"].is_u64() && other["cacheScope"] == "private", "{method}: {other}");
        assert!(one["_meta"]["colibri/correlationId"].is_string(), "{method}: {one}");
        let object = other.as_object_mut().unwrap();
        object.retain(|key, _| !["resultType", "ttlMs", "cacheScope", "_meta"].contains(&key.as_str()));
        let mut plain = one.clone();
        plain.as_object_mut().unwrap().remove("_meta");
        assert_eq!(plain, other, "{method}");
        one
    };
    let listed = ask("skills/list", json!({}));
    assert_eq!(uris(&listed["skills"]), ["skill://tidy/SKILL.md"]);
    let entry = &listed["skills"][0];
    assert_eq!(
        entry["frontmatter"],
        json!({ "name": "tidy", "description": "Tidies.", "license": "MIT", "metadata": { "version": "2" } })
    );
    assert_eq!(&ask("skills/get", json!({ "uri": "skill://tidy/SKILL.md" }))["skill"], entry);
    assert_eq!(
        uris(&entry["resources"]),
        [
            "skill://tidy/SKILL.md",
            "skill://tidy/references/%C3%BCber%20uns.md",
            "skill://tidy/scripts/deep/logo.png",
            "skill://tidy/scripts/run.sh",
        ]
    );
    let listed = ask("resources/list", json!({}));
    assert_eq!(uris(&listed["resources"]), uris(&entry["resources"]));
    assert_eq!(listed["resources"][0]["name"], "tidy");
    assert_eq!(listed["resources"][0]["description"], "Tidies.");
    for promised in entry["resources"].as_array().unwrap() {
        let read = ask("resources/read", json!({ "uri": promised["uri"] }));
        let content = &read["contents"][0];
        let bytes = match content.get("text") {
            Some(text) => text.as_str().unwrap().as_bytes().to_vec(),
            None => STANDARD.decode(content["blob"].as_str().unwrap()).unwrap(),
        };
        assert_eq!(promised["digest"], format!("sha256:{}", sha256(&bytes)), "{promised}");
        assert_eq!(promised["size"], bytes.len(), "{promised}");
        assert_eq!(content["_meta"]["colibri/digest"], promised["digest"]);
        assert_eq!(content["uri"], promised["uri"]);
    }
    let mut children = |uri: &str| -> Vec<String> {
        let read = ask("resources/directory/read", json!({ "uri": uri }));
        let child = |child: &Value| {
            format!("{} {}", child["name"].as_str().unwrap(), child["mimeType"].as_str().unwrap())
        };
        read["resources"].as_array().unwrap().iter().map(child).collect()
    };
    assert_eq!(
        children("skill://tidy"),
        ["tidy text/markdown", "references inode/directory", "scripts inode/directory"]
    );
    assert_eq!(children("skill://tidy/scripts"), ["deep inode/directory", "run.sh application/x-sh"]);
    assert_eq!(children("skill://tidy/scripts/deep"), ["logo.png image/png"]);
    let templates = new.modern("resources/templates/list", json!({}));
    assert_eq!(templates["result"]["resourceTemplates"], json!([]), "{templates}");
}

/// SU-12: no URI leads out of a skill's folder, in whatever spelling; what is not served is an error in
/// the code that the method and the family have for it.
#[test]
fn nothing_else_can_be_read() {
    let world = tidy();
    world.write("project/.agents/skills/secret.txt", "the secret");
    world.write("project/.agents/skills/.git/config", "the secret");
    let (mut old, _) = legacy(&world);
    let mut new = world.serve();
    for hostile in [
        "skill://tidy/../secret.txt",
        "skill://tidy/%2e%2e/secret.txt",
        "skill://tidy/..%2fsecret.txt",
        "skill://tidy/scripts/../../secret.txt",
        "skill://tidy/../../../../../../../../etc/passwd",
        "skill://../etc/passwd",
        "skill:///etc/passwd",
        "skill://tidy//etc/passwd",
        "skill://tidy/%00",
        "skill://tidy/",
        "skill://tidy",
        "skill://tidy/scripts",
        "skill://nobody/SKILL.md",
        "skill://.git/config",
        "file:///etc/passwd",
        "",
    ] {
        for method in ["resources/read", "skills/get", "resources/directory/read"] {
            let is_folder = ["skill://tidy", "skill://tidy/scripts"].contains(&hostile);
            if is_folder && method == "resources/directory/read" {
                continue;
            }
            let answer = new.modern(method, json!({ "uri": hostile }));
            assert_eq!(answer["error"]["code"], -32602, "{method} {hostile}: {answer}");
            let answer = old.ask(method, &json!({ "uri": hostile }));
            let code = if method == "resources/read" { -32002 } else { -32602 };
            assert_eq!(answer["error"]["code"], code, "{method} {hostile}: {answer}");
        }
    }
    for (method, params) in [
        ("skills/get", json!({})),
        ("resources/read", json!({ "uri": 7 })),
        ("skills/list", json!({ "cursor": "nonsense" })),
        ("resources/directory/read", json!({ "uri": "skill://tidy/SKILL.md" })),
        ("skills/get", json!({ "uri": "skill://tidy/scripts/run.sh" })),
    ] {
        let answer = new.modern(method, params);
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    let unknown = new.modern("skills/frobnicate", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
}

/// SU-4, CO-3: a read is on record like a call, a refused one too; and what stands behind a method can
/// be called as a method alone.
#[test]
fn reads_are_on_record_and_are_no_tools() {
    let world = tidy();
    let mut client = world.serve();
    let tools = client.modern("tools/list", json!({})).to_string();
    for method in ["skills/list", "skills/get", "resources/list", "resources/read", "skill_show"] {
        assert!(!tools.contains(&format!("\"name\":\"{method}\"")), "{method} is listed");
        let called = client.modern("tools/call", json!({ "name": method, "arguments": {} }));
        assert_eq!(called["error"]["code"], -32602, "{called}");
    }
    client.modern("skills/list", json!({}));
    client.modern("resources/read", json!({ "uri": "skill://tidy/SKILL.md" }));
    client.modern("resources/read", json!({ "uri": "skill://tidy/../../x" }));
    drop(client);
    let enters = world.records("call.enter");
    let tools: Vec<&str> = enters.iter().map(|enter| enter["tool"].as_str().unwrap()).collect();
    assert_eq!(tools[5..], ["skills/list", "resources/read", "resources/read"]);
    let exits = world.records("call.exit");
    let outcomes: Vec<&str> = exits.iter().map(|exit| exit["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["rejected", "rejected", "rejected", "rejected", "rejected", "ok", "ok", "error"]);
}

/// SU-12: a skill that another reader would see otherwise, or whose files are not all known, is listed
/// by the tool, with its warnings, and not offered over the extension.
#[test]
fn only_what_every_host_can_take_is_offered() {
    let world = World::new();
    world.skill("sound");
    let file = |name: &str, text: &str| world.write(&format!("project/.agents/skills/{name}/SKILL.md"), text);
    file("colon", "---\nname: colon\ndescription: Use it so: well.\n---\n");
    file("upper", &plain("Upper"));
    file("moved", &plain("elsewhere"));
    world.skill("large");
    super::sparse(&world.path("project/.agents/skills/large/film.bin"), 100 << 20);
    let mut client = world.serve();
    assert_eq!(super::names(&client.list(&json!({}))), ["Upper", "colon", "elsewhere", "large", "sound"]);
    let offered = client.modern("skills/list", json!({}))["result"]["skills"].clone();
    assert_eq!(uris(&offered), ["skill://elsewhere/SKILL.md", "skill://sound/SKILL.md"]);
    for name in ["colon", "Upper", "large", "moved"] {
        let got = client.modern("skills/get", json!({ "uri": format!("skill://{name}/SKILL.md") }));
        assert_eq!(got["error"]["code"], -32602, "{got}");
    }
}

/// SU-12: a long list comes in pages that add up, and a changed file is read as it is now.
#[test]
fn lists_are_paged_and_reads_are_fresh() {
    let world = World::new();
    let padding = "x".repeat(60_000);
    for number in 0..40 {
        let name = format!("skill-{number:02}");
        let text = format!("---\nname: {name}\ndescription: x\nmetadata:\n  padding: {padding}\n---\n");
        world.write(&format!("project/.agents/skills/{name}/SKILL.md"), text);
    }
    let mut client = world.serve();
    let (mut seen, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let page = client.modern("skills/list", params)["result"].clone();
        assert!(page.to_string().len() < (1 << 20) + 1024);
        seen.extend(uris(&page["skills"]).iter().map(ToString::to_string));
        pages += 1;
        match page.get("nextCursor") {
            Some(next) => params = json!({ "cursor": next }),
            None => break,
        }
    }
    let expected: Vec<String> = (0..40).map(|number| format!("skill://skill-{number:02}/SKILL.md")).collect();
    assert_eq!((seen, pages), (expected, 3));

    world.write("project/.agents/skills/skill-00/SKILL.md", plain("skill-00"));
    let read = client.modern("resources/read", json!({ "uri": "skill://skill-00/SKILL.md" }));
    assert_eq!(read["result"]["contents"][0]["text"], plain("skill-00"));
}
