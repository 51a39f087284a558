//! The binary with twenty servers, and a hand that takes their programs away and brings them back.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hostile::child::{Colibri, Home};

/// Servers that misbehave, servers whose port closes now and then, and servers that do neither.
const WILD: usize = 14;
const WEB: usize = 2;
const TAME: usize = 4;

/// How long a call to one that misbehaves may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);

/// Between two pranks.
const PRANKS: Duration = Duration::from_millis(300);

pub(super) struct Stage {
    pub(super) colibri: Colibri,
    dice: Dice,
    next_prank: Instant,
    /// Ended with the stage.
    _web: Vec<Web>,
}

impl Stage {
    pub(super) fn start(seed: &str, mark: &str, patience: Duration) -> Self {
        let home = Home::new();
        let mut servers = serde_json::Map::new();
        for number in 0..WILD {
            let (name, program) = (format!("wild{number}"), program(&home, number));
            std::fs::copy(asset("server.py"), &program).unwrap();
            servers.insert(name.clone(), entry(&program, &[&name, seed, "1", mark]));
        }
        let web: Vec<Web> = (0..WEB).map(|_| Web::start(seed)).collect();
        for (number, web) in web.iter().enumerate() {
            let url = format!("http://127.0.0.1:{}/mcp", web.port);
            servers.insert(format!("web{number}"), with_limits(json!({ "url": url }), TIMEOUT));
        }
        for number in 0..TAME {
            let name = format!("tame{number}");
            let tame = entry(&asset("server.py"), &[&name, seed, "0", mark]);
            servers.insert(name, with_limits(tame, 30 * TIMEOUT));
        }
        let file = home.path().join("servers.json");
        std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
        let mut command = home.command();
        command.arg("--config").arg(&file).args(["--log", "error", "serve"]);
        let mut colibri = Colibri::spawn_for(home, command, patience);
        colibri.initialize("2025-11-25");
        Self { colibri, dice: Dice::new(seed), next_prank: Instant::now(), _web: web }
    }

    /// Now and then the program of a wild server vanishes, so that it cannot be started again until it is back.
    pub(super) fn play_pranks(&mut self) {
        if Instant::now() < self.next_prank {
            return;
        }
        self.next_prank = Instant::now() + PRANKS;
        let program = program(&self.colibri.home, self.dice.next(WILD));
        let away = program.with_extension("away");
        if program.exists() {
            std::fs::rename(&program, &away).unwrap();
        } else {
            std::fs::rename(&away, &program).unwrap();
        }
    }

    pub(super) fn bring_all_back(&self) {
        for number in 0..WILD {
            let program = program(&self.colibri.home, number);
            if !program.exists() {
                std::fs::rename(program.with_extension("away"), program).unwrap();
            }
        }
    }
}

/// Of all servers, the wild first.
pub(super) fn names() -> impl Iterator<Item = String> {
    let named = |kind: &'static str, count| (0..count).map(move |number| format!("{kind}{number}"));
    named("wild", WILD).chain(named("web", WEB)).chain(named("tame", TAME))
}

fn program(home: &Home, number: usize) -> PathBuf {
    home.path().join(format!("wild{number}.py"))
}

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chaos").join(name)
}

fn entry(script: &Path, words: &[&str]) -> Value {
    let arguments: Vec<Value> = [json!(script)].into_iter().chain(words.iter().map(|w| json!(w))).collect();
    with_limits(json!({ "command": "python3", "args": arguments }), TIMEOUT)
}

fn with_limits(mut entry: Value, timeout: Duration) -> Value {
    let limits = json!({
        "timeout": timeout.as_millis(), "acquireTimeout": timeout.as_millis(), "probeTimeout": 500,
        "restart": { "delays": [0, 100, 300], "jitter": 0 },
    });
    entry.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
    entry
}

/// A server over HTTP, which is nobody's child but ours.
struct Web {
    port: u16,
    child: Child,
}

impl Web {
    fn start(seed: &str) -> Self {
        // Free a moment ago is free enough: the story fails if it is not.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("python3").arg(asset("web.py")).arg(port.to_string()).arg(seed).spawn();
        Self { port, child: child.unwrap() }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same numbers for the same seed.
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn new(seed: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        Self { seed: hasher.finish(), thrown: 0 }
    }

    fn next(&mut self, sides: usize) -> usize {
        self.thrown += 1;
        let mut hasher = DefaultHasher::new();
        (self.seed, self.thrown).hash(&mut hasher);
        usize::try_from(hasher.finish() % sides as u64).unwrap()
    }
}
