//! What the stories of the sandbox share: the hostile program under a name of its own, and a look at
//! who is left of it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use colibri::sandbox::{Child, Policy, Spec, start_under, use_helper};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

/// Nothing here takes this long, on however busy a machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// For how long nobody must be seen.
const QUIET: Duration = Duration::from_millis(100);

/// A folder with the hostile program in it, under a name that nothing else on the machine has: the
/// kernel shows it for whatever the program becomes.
pub(super) struct Villain {
    pub(super) folder: PathBuf,
    pub(super) name: String,
    _disk: TempDir,
}

impl Villain {
    pub(super) fn new() -> Self {
        use_helper(env!("CARGO_BIN_EXE_colibri").into());
        let disk = tempfile::tempdir().unwrap();
        let folder = disk.path().canonicalize().unwrap();
        // At most fifteen letters: the kernel keeps no more.
        let name = format!("v{}", &uuid::Uuid::now_v7().simple().to_string()[18..]);
        fs::copy(hostile(), folder.join(&name)).unwrap();
        Self { folder, name, _disk: disk }
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    pub(super) fn spec(&self, words: &[&str]) -> Spec {
        Spec {
            program: self.program().into(),
            arguments: words.iter().map(OsString::from).collect(),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            directory: Some(self.folder.clone()),
        }
    }

    pub(super) fn start(&self, words: &[&str], policy: &Policy) -> Child {
        start_under(&self.spec(words), policy).unwrap()
    }

    /// Starts it and waits until it says that it is ready.
    pub(super) async fn ready(&self, words: &[&str], policy: &Policy) -> Child {
        let mut child = self.start(words, policy);
        let mut line = String::new();
        let mut stdout = BufReader::new(&mut child.stdout);
        tokio::time::timeout(PATIENCE, stdout.read_line(&mut line)).await.expect("in time").unwrap();
        assert_eq!(line, "ready\n", "{}", child.life.last_words());
        child
    }

    /// Runs it to its end, and tells what it said.
    pub(super) async fn said(&self, words: &[&str], policy: &Policy) -> Vec<String> {
        let child = self.start(words, policy);
        let mut lines = BufReader::new(child.stdout).lines();
        let mut said = Vec::new();
        while let Some(line) =
            tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("in time").unwrap()
        {
            said.push(line);
        }
        let end = child.life.how_it_ended().await;
        assert!(end.ran(), "{end}");
        said
    }

    /// Whoever is left: processes, zombies too, by their name, or by their first words for a helper.
    pub(super) fn survivors(&self) -> Vec<String> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let all =
            all.filter(|entry| entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()));
        all.filter_map(|entry| self.survivor(&entry.path())).collect()
    }

    fn survivor(&self, process: &Path) -> Option<String> {
        let stat = fs::read_to_string(process.join("stat")).ok()?;
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let is_ours = stat.contains(&format!("({})", self.name))
            || words.contains(&self.name) && !words.contains("stories") && !words.contains(" run ");
        is_ours.then(|| format!("{} {words}", stat.split(' ').take(4).collect::<Vec<_>>().join(" ")))
    }

    /// What all of it holds in memory, as the kernel shows it from outside.
    pub(super) fn resident_bytes(&self) -> u64 {
        let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let ours = all.filter(|process| {
            fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == self.name)
        });
        let held = |status: String| {
            let lines =
                status.lines().filter(|line| line.starts_with("RssAnon:") || line.starts_with("RssShmem:"));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>() << 10
        };
        ours.filter_map(|process| fs::read_to_string(process.join("status")).ok()).map(held).sum()
    }

    /// Within a second nobody is left. One look is not enough: who was being started just then has no
    /// name yet.
    #[track_caller]
    pub(super) fn assert_gone(&self) {
        let begun = Instant::now();
        let mut quiet_since = None;
        wait_until(Duration::from_secs(1), || {
            if !self.survivors().is_empty() {
                quiet_since = None;
                return false;
            }
            quiet_since.get_or_insert_with(Instant::now).elapsed() > QUIET
        });
        let left = self.survivors();
        assert!(left.is_empty(), "{} left after {:?}:\n{}", left.len(), begun.elapsed(), left.join("\n"));
    }

    /// `colibri run` with these options before and these words after the program.
    pub(super) fn run(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colibri"));
        command
            .env_clear()
            .envs(crate::support::measured())
            .env("HOME", &self.folder)
            .current_dir(&self.folder);
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("COLIBRI_DB_PATH", self.folder.join("own/colibri.db"));
        command.arg("run").args(options).arg("--").arg(self.program()).args(words);
        command
    }
}

/// The control groups that a colibri has made and that are there, in whichever hierarchy.
pub(super) fn groups_of(colibri: u32) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounted = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let mut next: Vec<PathBuf> =
        mounted.filter_map(|line| line.split(' ').nth(4).map(PathBuf::from)).collect();
    let (mut found, prefix) = (Vec::new(), format!("colibri-{colibri}-"));
    while let Some(folder) = next.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for folder in folders {
            let is_ours = folder.file_name().to_string_lossy().starts_with(&prefix);
            if is_ours { found.push(folder.path()) } else { next.push(folder.path()) }
        }
    }
    found
}

/// Soon after colibri has ended, none of its control groups is left.
#[track_caller]
pub(super) fn assert_no_groups(colibri: u32) {
    let gone = wait_until(PATIENCE / 10, || groups_of(colibri).is_empty());
    assert!(gone, "left: {:?}", groups_of(colibri));
}

/// Looks until it is so, or the time is up.
pub(super) fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    let (_never, quiet) = std::sync::mpsc::sync_channel::<()>(1);
    loop {
        if is_so() {
            return true;
        }
        if begun.elapsed() > limit {
            return false;
        }
        let _ = quiet.recv_timeout(POLL);
    }
}

/// How many rounds a story that is left to chance takes.
pub(super) fn rounds() -> usize {
    if std::env::var_os("COLIBRI_CHECK").is_some_and(|check| check == "full") { 200 } else { 20 }
}

/// The hostile program.
fn hostile() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/hostile/hostile.c");
    compiled(&source, "hostile")
}

/// A program in C, compiled once for all stories.
pub(crate) fn compiled(source: &Path, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = folder.join(name);
    let age = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    if age(&target).is_ok_and(|made| made > age(source).unwrap()) {
        return target;
    }
    // Under a name of its own first: another story may be executing the old one.
    let fresh = folder.join(format!("{name}-{}", std::process::id()));
    let done = Command::new("cc").args(["-O1", "-o"]).arg(&fresh).arg(source).status();
    assert!(done.is_ok_and(|status| status.success()), "needs a C compiler: apt-get install gcc libc6-dev");
    fs::rename(&fresh, &target).unwrap();
    target
}
