//! What the crash stories share: a place for a ledger, a client that speaks to the real binary, a
//! seed that can be given back, and the tools of the system that a story cannot do without.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use colibri::store::{Action, ActionFilter, Paths, Reader};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Nothing here takes this long, on however busy a machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The revision that the client of these stories speaks.
const REVISION: &str = "2025-06-18";

/// A folder with one ledger in it.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) database: PathBuf,
    config: PathBuf,
    _disk: TempDir,
}

impl Place {
    /// On a disk of its own, gone with the story.
    pub(crate) fn new() -> Self {
        let disk = tempfile::tempdir().unwrap();
        let folder = disk.path().canonicalize().unwrap();
        let (database, config) = (folder.join("data").join("colibri.db"), folder.join("config.json"));
        Self { folder, database, config, _disk: disk }
    }

    /// With the ledger somewhere else.
    pub(crate) fn with_database(self, database: &Path) -> Self {
        Self { database: database.to_owned(), ..self }
    }

    /// Writes what the audit part of the configuration says.
    pub(crate) fn audit(self, settings: &Value) -> Self {
        std::fs::write(&self.config, json!({ "audit": settings }).to_string()).unwrap();
        self
    }

    pub(crate) fn durability(self, level: &str) -> Self {
        self.audit(&json!({ "durability": level }))
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::beside(&self.database)
    }

    /// The real binary on this ledger.
    pub(crate) fn colibri(&self, arguments: &[&str]) -> Command {
        self.fit(program(env!("CARGO_BIN_EXE_colibri")), arguments)
    }

    /// The real binary, started by another program (`strace …`), which comes with its arguments.
    pub(crate) fn colibri_under(&self, wrapper: &[&str], arguments: &[&str]) -> Command {
        let mut command = program(wrapper[0]);
        command.args(&wrapper[1..]).arg(env!("CARGO_BIN_EXE_colibri"));
        self.fit(command, arguments)
    }

    fn fit(&self, mut command: Command, arguments: &[&str]) -> Command {
        if self.config.exists() {
            command.arg("--config").arg(&self.config);
        }
        command.args(arguments);
        #[expect(clippy::disallowed_methods, reason = "what steers the stories must not steer colibri")]
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"COLIBRI_"))
        {
            command.env_remove(name);
        }
        // No configuration of whoever runs the tests counts.
        command.env("HOME", &self.folder).env_remove("XDG_CONFIG_HOME").current_dir(&self.folder);
        command.env("COLIBRI_DB_PATH", &self.database);
        command
    }

    /// Runs a command of colibri to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.colibri(arguments))
    }

    /// A client of a server of its own.
    pub(crate) fn serve(&self, client: &str) -> Client {
        Client::start(self.colibri(&["serve"]), client)
    }

    /// One start and a clean end: whatever recovery there is to do is done.
    pub(crate) fn recover(&self) {
        let ran = Ran::of(self.colibri(&["serve"]).stdin(Stdio::null()));
        assert_eq!(ran.code, Some(0), "a start after the fault: {ran:?}");
    }

    /// Everything derived again from the bytes, by the program itself.
    pub(crate) fn verify(&self) -> Value {
        let ran = self.run(&["--json", "audit", "verify"]);
        assert_eq!(ran.code, Some(0), "`colibri audit verify`: {ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// Every call of the newest log, the oldest first; the numbers have no gap.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let filter = ActionFilter { limit: u32::MAX, ..ActionFilter::default() };
        let mut actions = Reader::open(&self.paths()).unwrap().actions(&filter).unwrap();
        actions.reverse();
        let numbers: Vec<u64> = actions.iter().map(|action| action.sequence_no).collect();
        assert_eq!(numbers, (0..actions.len() as u64).collect::<Vec<_>>(), "a number for every call, no gap");
        actions
    }

    /// The calls that one client made.
    pub(crate) fn actions_of(&self, client: &str) -> Vec<Action> {
        self.actions().into_iter().filter(|action| action.client == client).collect()
    }
}

/// Of these calls, the correlation ids.
pub(crate) fn ids<'a>(actions: impl IntoIterator<Item = &'a Action>) -> BTreeSet<String> {
    actions.into_iter().map(|action| action.call.clone()).collect()
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: status.code(), stdout: text(&stdout), stderr: text(&stderr) }
    }
}

/// A client of one `colibri serve`. Killed with the story, if it still runs.
pub(crate) struct Client {
    pub(crate) name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    asked: u64,
    answered: u64,
}

/// What a call was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The correlation id.
    pub(crate) call: String,
    pub(crate) envelope: Value,
}

impl Answer {
    pub(crate) fn is_ok(&self) -> bool {
        self.envelope["ok"] == true
    }

    /// The code of the error, and its message.
    pub(crate) fn error(&self) -> (String, String) {
        let text = |key: &str| self.envelope["error"][key].as_str().unwrap_or_default().to_owned();
        (text("code"), text("message"))
    }
}

impl Client {
    /// Starts it and says hello; the answer to that is the first line to come.
    pub(crate) fn start(mut command: Command, name: &str) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (sender, lines) = sync_channel(4096);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // It ends with the child's stdout, or with the client.
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line).ok())
        });
        let mut talk = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = talk.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let stdin = child.stdin.take();
        let (name, stderr) = (name.to_owned(), Some(stderr));
        let mut client = Self { name, child, stdin, lines, stderr, asked: 0, answered: 0 };
        client.say(&json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": client.name, "version": "1" } } }));
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    /// A server that is gone does not hear it; that is the story's to find out.
    fn say(&mut self, message: &Value) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{message}\n").as_bytes());
        }
    }

    /// Asks, and does not wait.
    pub(crate) fn ask(&mut self, tool: &str) {
        self.asked += 1;
        let params = json!({ "name": tool, "arguments": {} });
        self.say(&json!({ "jsonrpc": "2.0", "id": self.asked, "method": "tools/call", "params": params }));
    }

    /// The next answer to a call; `None` once the server is gone.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        self.answer_within(PATIENCE).unwrap_or_else(|()| panic!("{}: no answer in {PATIENCE:?}", self.name))
    }

    pub(crate) fn answer_within(&mut self, patience: Duration) -> Result<Option<Answer>, ()> {
        loop {
            let line = match self.lines.recv_timeout(patience) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => return Err(()),
            };
            let mut message: Value = serde_json::from_str(&line)
                .unwrap_or_else(|error| panic!("not a frame on stdout: {line:?}: {error}"));
            let result = message["result"].take();
            if let Some(call) = result["_meta"]["colibri/correlationId"].as_str() {
                self.answered += 1;
                return Ok(Some(Answer {
                    call: call.to_owned(),
                    envelope: result["structuredContent"].clone(),
                }));
            }
        }
    }

    /// Asks and waits.
    pub(crate) fn call(&mut self, tool: &str) -> Answer {
        self.ask(tool);
        let Some(answer) = self.answer() else { panic!("the server is gone: {}", self.last_words()) };
        answer
    }

    fn last_words(&mut self) -> String {
        let _ = self.child.kill();
        self.stderr.take().and_then(|talk| talk.join().ok()).unwrap_or_default()
    }

    /// Keeps `width` calls on their way until `count` were answered or the server is gone.
    pub(crate) fn storm(&mut self, width: u64, count: u64) -> Vec<Answer> {
        let mut answers = Vec::new();
        while (answers.len() as u64) < count {
            while self.asked < self.answered + width {
                self.ask(if self.asked % 3 == 2 { "server_health" } else { "server_ping" });
            }
            match self.answer() {
                Some(answer) => answers.push(answer),
                None => break,
            }
        }
        answers
    }

    /// SIGKILL; gives what was already answered.
    pub(crate) fn kill(mut self) -> Vec<Answer> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.answer()).collect()
    }

    /// The end of stdin; gives the exit status, what was still answered, and stderr.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<Answer>, String) {
        drop(self.stdin.take());
        let answers = std::iter::from_fn(|| self.answer()).collect();
        let status = self.child.wait().unwrap();
        let talk = self.stderr.take().map(|talk| talk.join().unwrap()).unwrap_or_default();
        (status, answers, talk)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Chances that can be had again: splitmix64, seeded by `COLIBRI_SEED` or by the operating system.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(story: &str) -> Self {
        let fresh = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8);
        let seed = variable("COLIBRI_SEED").map_or_else(fresh, |text| text.parse().unwrap());
        tell(format_args!("{story}: COLIBRI_SEED={seed}"));
        Self(seed)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// For whoever reads the test's output.
#[expect(clippy::print_stdout, reason = "the harness shows it with a story that failed")]
pub(crate) fn tell(text: std::fmt::Arguments<'_>) {
    println!("{text}");
}

/// Few rounds in the daily run, many when `COLIBRI_CHECK=full`.
pub(crate) fn rounds(few: u64, many: u64) -> u64 {
    if variable("COLIBRI_CHECK").as_deref() == Some("full") { many } else { few }
}

#[expect(clippy::disallowed_methods, reason = "a story asks the environment how long and how it is to run")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[expect(clippy::disallowed_methods, reason = "the stories are about processes")]
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(name)
}

/// Tells a story in a mount namespace of its own: this binary again, with that one story. Whatever it
/// mounts is gone with its last process, however that ends.
///
/// `name` is `concat!(module_path!(), "::the_story")`. A machine without root fails, unless
/// `COLIBRI_NO_POWER_CUT=1` says that this is known.
#[track_caller]
pub(crate) fn in_own_mounts(name: &str, story: impl FnOnce()) {
    if variable("COLIBRI_OWN_MOUNTS").is_some() {
        return story();
    }
    if variable("COLIBRI_NO_POWER_CUT").as_deref() == Some("1") {
        return tell(format_args!("not told, since COLIBRI_NO_POWER_CUT=1: {name}"));
    }
    let (_, name) = name.split_once("::").unwrap();
    let own = ["--mount", "--propagation", "private", "--"];
    let story = ["--exact", name, "--nocapture", "--test-threads=1"];
    let mut command = program("unshare");
    command.args(own).arg(std::env::current_exe().unwrap()).args(story).env("COLIBRI_OWN_MOUNTS", "1");
    let ran = Ran::of(&mut command);
    tell(format_args!("{}{}", ran.stdout, ran.stderr));
    assert!(
        ran.code == Some(0) && ran.stdout.contains("1 passed"),
        "{name} failed in its own mount namespace, as told above. It needs root and loop devices; \
         set COLIBRI_NO_POWER_CUT=1 on a machine that has none"
    );
}

/// A small ext4 on a loop device, inside [`in_own_mounts`] only. The kernel frees the device with the
/// mount.
pub(crate) struct Disk {
    pub(crate) mount: PathBuf,
    image: PathBuf,
    _folder: TempDir,
}

impl Disk {
    pub(crate) fn new(mebibytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mount, image) = (folder.path().join("mount"), folder.path().join("image"));
        std::fs::create_dir(&mount).unwrap();
        std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        system("e2fsprogs", &["mkfs.ext4", "-q", "-F", "-m", "0", image.to_str().unwrap()]);
        let disk = Self { mount, image, _folder: folder };
        disk.mount();
        disk
    }

    pub(crate) fn mount(&self) {
        system("mount", &["mount", "-o", "loop", self.image.to_str().unwrap(), self.mount.to_str().unwrap()]);
    }

    pub(crate) fn unmount(&self) {
        system("mount", &["umount", self.mount.to_str().unwrap()]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a story that failed may have left something open.
        let _ = program("umount").arg("-l").arg(&self.mount).output();
    }
}

/// Runs a tool of the system; a machine that lacks it is told which package has it.
#[track_caller]
pub(crate) fn system(package: &str, command: &[&str]) -> String {
    let ran = program(command[0]).args(&command[1..]).output();
    let output = ran.unwrap_or_else(|error| {
        panic!("cannot run {}: {error}; install the Debian package {package}", command[0])
    });
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {talk}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
