//! What each server can be made to show, and by which of its tools.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{BIG_BYTES, UNICODE};

/// One call.
pub(super) struct Call {
    pub tool: &'static str,
    pub arguments: Value,
}

/// The calls of one server. Where it has no tool for a thing, that thing is not shown with it.
pub(super) struct Menu {
    /// An ordinary call …
    pub plain: Call,
    /// … and what its result has in it.
    pub expected: &'static str,
    /// A call that the tool itself answers with an error.
    pub error: Call,
    /// A call whose result repeats [`UNICODE`].
    pub unicode: Call,
    /// A call whose result has a string of [`BIG_BYTES`] or more.
    pub big: Option<Call>,
    /// A call whose result has these bytes, or begins with them.
    pub binary: Option<(Call, Vec<u8>)>,
    /// A call that tells of its progress in so many steps.
    pub progress: Option<(Call, u32)>,
    /// A call that does not end in time.
    pub slow: Option<Call>,
    /// A call that tells how many calls were taken back.
    pub taken_back: Option<Call>,
    /// The folder that was made for the server.
    folder: String,
}

impl Menu {
    fn new(plain: Call, expected: &'static str, error: Call, unicode: Call) -> Self {
        let (big, binary, progress, slow, taken_back) = (None, None, None, None, None);
        let folder = String::new();
        Self { plain, expected, error, unicode, big, binary, progress, slow, taken_back, folder }
    }

    /// Every tool it names.
    pub(super) fn tools(&self) -> impl Iterator<Item = &'static str> {
        let always = [&self.plain, &self.error, &self.unicode];
        let sometimes = [
            self.big.as_ref(),
            self.binary.as_ref().map(|(call, _)| call),
            self.progress.as_ref().map(|(call, _)| call),
            self.slow.as_ref(),
            self.taken_back.as_ref(),
        ];
        always.into_iter().chain(sometimes.into_iter().flatten()).map(|call| call.tool)
    }

    pub(super) fn folder(&self) -> &str {
        &self.folder
    }
}

fn call(tool: &'static str, arguments: Value) -> Call {
    Call { tool, arguments }
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The reference server that has everything.
pub(super) fn everything() -> Menu {
    let slow = call("trigger-long-running-operation", json!({ "duration": 600, "steps": 2 }));
    let quick = call("trigger-long-running-operation", json!({ "duration": 0.2, "steps": 4 }));
    let big = call("echo", json!({ "message": "x".repeat(BIG_BYTES) }));
    Menu {
        big: Some(big),
        binary: Some((call("get-tiny-image", json!({})), PNG.to_vec())),
        progress: Some((quick, 4)),
        slow: Some(slow),
        ..Menu::new(
            call("get-sum", json!({ "a": 2, "b": 40 })),
            "The sum of 2 and 40 is 42.",
            call("echo", json!({ "message": 1 })),
            call("echo", json!({ "message": UNICODE })),
        )
    }
}

/// Files: one of 1 MB, one with an odd name, one that is an image.
pub(super) fn filesystem(home: &Path) -> Menu {
    let root = home.join(format!("files {UNICODE}"));
    let write = |name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(&root).expect("a folder");
        std::fs::write(root.join(name), bytes).expect("a file");
    };
    write("big.txt", "y".repeat(BIG_BYTES).as_bytes());
    write("plain.txt", b"forty-two");
    write(&format!("{UNICODE}.txt"), UNICODE.as_bytes());
    write("image.png", &[PNG, &[0, 255, 128]].concat());
    let read = |tool, name: &str| call(tool, json!({ "path": root.join(name) }));
    Menu {
        big: Some(read("read_text_file", "big.txt")),
        binary: Some((read("read_media_file", "image.png"), [PNG, &[0, 255, 128]].concat())),
        folder: root.to_str().expect("it was text").to_owned(),
        ..Menu::new(
            read("read_text_file", "plain.txt"),
            "forty-two",
            read("read_text_file", "nowhere.txt"),
            read("read_text_file", &format!("{UNICODE}.txt")),
        )
    }
}

/// A graph of what is known.
pub(super) fn memory() -> Menu {
    let entity = |name: &str, observation: String| {
        let entity = json!({ "name": name, "entityType": "thing", "observations": [observation] });
        call("create_entities", json!({ "entities": [entity] }))
    };
    Menu {
        big: Some(entity("big", "z".repeat(BIG_BYTES))),
        ..Menu::new(
            entity("plain", "forty-two".to_owned()),
            "forty-two",
            call("open_nodes", json!({ "names": 1 })),
            entity(UNICODE, UNICODE.to_owned()),
        )
    }
}

/// Two tools and no state. An error repeats what it was asked.
pub(super) fn time() -> Menu {
    let convert = json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    Menu::new(
        call("convert_time", convert),
        "T21:00:00+09:00",
        call("get_current_time", json!({ "timezone": "Nowhere/At_All" })),
        call("get_current_time", json!({ "timezone": UNICODE })),
    )
}

/// A repository with one commit: its message is Unicode, its change is 1 MB.
pub(super) fn git(home: &Path) -> Menu {
    let root = home.join("repository");
    std::fs::create_dir_all(&root).expect("a folder");
    std::fs::write(root.join("big.txt"), "w".repeat(BIG_BYTES)).expect("a file");
    let run = |arguments: &[&str]| {
        let identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.invalid"];
        let mut command = Command::new("git");
        command.current_dir(&root).args(identity).args(arguments).env("HOME", home);
        let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().expect("git starts");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["init", "--initial-branch=trunk"]);
    run(&["add", "big.txt"]);
    run(&["commit", "--message", UNICODE]);
    let asked = |tool, more: Value| {
        let mut arguments = json!({ "repo_path": root });
        for (name, value) in more.as_object().into_iter().flatten() {
            arguments[name] = value.clone();
        }
        call(tool, arguments)
    };
    Menu {
        big: Some(asked("git_show", json!({ "revision": "HEAD" }))),
        folder: root.to_str().expect("it was text").to_owned(),
        ..Menu::new(
            asked("git_status", json!({})),
            "On branch trunk",
            call("git_status", json!({ "repo_path": "/" })),
            asked("git_log", json!({})),
        )
    }
}

/// The servers that were written for these stories, in whatever language.
pub(super) fn ours() -> Menu {
    Menu {
        big: Some(call("big", json!({ "bytes": BIG_BYTES }))),
        binary: Some((call("bytes", json!({})), (0..=u8::MAX).collect())),
        progress: Some((call("steps", json!({ "steps": 5 })), 5)),
        slow: Some(call("wait", json!({}))),
        taken_back: Some(call("taken_back", json!({}))),
        ..Menu::new(
            call("echo", json!({ "text": "forty-two" })),
            "forty-two",
            call("fail", json!({})),
            call("echo", json!({ "text": UNICODE })),
        )
    }
}
