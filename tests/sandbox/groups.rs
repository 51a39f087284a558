//! Control groups: used where one was given to colibri, and gone when the sandbox is. This machine may or may
//! not have one with memory; the stories say which, and tell that one.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{XattrFlags, setxattr};

use super::support::{PATIENCE, Villain, wait_until};

/// A group as a service manager gives one away: marked, and with colibri's own group in it.
struct Given(PathBuf);

impl Given {
    /// None on a machine where nobody may make one.
    fn new(villain: &Villain) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?.to_owned();
        let place = Path::new(&mount).join(format!("colibri-story-{}", villain.name));
        std::fs::create_dir(&place).ok()?;
        let given = Self(place);
        std::fs::create_dir(given.0.join("main")).unwrap();
        setxattr(&given.0, c"user.delegate", b"1", XattrFlags::empty()).ok()?;
        Some(given)
    }

    /// Starts a command in colibri's own group.
    fn start(&self, command: &Command) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$0\"/main/cgroup.procs && exec \"$@\""]).arg(&self.0);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            value.map(|value| shell.env(name, value));
        }
        command.get_current_dir().map(|folder| shell.current_dir(folder));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The groups of sandboxes that are there.
    fn groups(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(&self.0).unwrap().flatten().map(|entry| entry.path());
        all.filter(|path| path.is_dir() && !path.ends_with("main")).collect()
    }

    fn has_memory(&self) -> bool {
        std::fs::read_to_string(self.0.join("cgroup.controllers")).unwrap().contains("memory")
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for group in self.groups().iter().chain([&self.0.join("main"), &self.0]) {
            wait_until(PATIENCE / 10, || std::fs::remove_dir(group).is_ok() || !group.exists());
        }
    }
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// SB-3, SB-6: a sandbox has a group of its own below the one that was given, all of its tree is in it, and it
/// is gone with the sandbox, however colibri or the keeper ends. What a dead colibri left is removed.
#[test]
fn a_sandbox_has_a_group_and_leaves_none() {
    let villain = Villain::new();
    let Some(given) = Given::new(&villain) else {
        return no_group_is_used(&villain);
    };
    let left_over = given.0.join("colibri-2147483647-1");
    std::fs::create_dir(&left_over).unwrap();
    let options: [&[&str]; 3] =
        [&[], &["--sandbox", "strict"], &["--pretend-missing", "namespace", "--allow-degraded", "namespace"]];
    for options in options {
        for end in ["close", "KILL", "TERM"] {
            let mut colibri = given.start(&villain.run(options, &["daemons", "4"]));
            let line = first_line(&mut colibri);
            assert_eq!(line, "ready\n", "{options:?}: {}", rest(&mut colibri));
            assert!(!left_over.exists(), "it was swept");
            let [group] = &given.groups()[..] else { panic!("{:?}", given.groups()) };
            let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
            // The program and its daemons; not the helper and the init, which must outlive them.
            assert_eq!(members.lines().count(), 5, "{options:?}: {members}");
            if end == "close" {
                // The helper is killed, and then nobody but colibri is left to tidy.
                let helper = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", colibri.id()));
                signal(helper.unwrap().trim(), "KILL");
            } else {
                signal(&colibri.id().to_string(), end);
            }
            colibri.wait().unwrap();
            villain.assert_gone();
            let gone = wait_until(PATIENCE / 10, || given.groups().is_empty());
            assert!(gone, "{options:?} {end}: {:?}", given.groups());
        }
    }
}

/// SB-3, T4 of the abuse list: memory that no process maps is counted where the group that was given counts
/// memory; elsewhere the doctor says that it is not seen.
#[test]
fn memory_out_of_sight_is_counted_by_a_group() {
    let villain = Villain::new();
    let Some(given) = Given::new(&villain) else {
        return no_group_is_used(&villain);
    };
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_colibri"));
    doctor.arg("doctor").env("HOME", &villain.folder).env("PATH", "/usr/bin:/bin");
    let mut doctor = given.start(&doctor);
    let mut said = String::new();
    std::io::Read::read_to_string(doctor.stdout.as_mut().unwrap(), &mut said).unwrap();
    doctor.wait().unwrap();
    let mut colibri = given.start(&villain.run(&["--memory-mb", "128"], &["memory", "memfd", "400"]));
    assert_eq!(first_line(&mut colibri), "ready\n");
    if given.has_memory() {
        assert!(said.contains("holds memory"), "{said}");
        assert!(rest(&mut colibri).contains("more memory than it may"));
    } else {
        assert!(said.contains("it has neither memory nor processes"), "{said}");
        assert_eq!(first_line(&mut colibri), "memfd ok\n", "the watch does not see it");
        drop(colibri.stdin.take());
        signal(&colibri.id().to_string(), "TERM");
    }
    colibri.wait().unwrap();
    villain.assert_gone();
}

/// A group that nobody gave is not used, though it could be written; and the doctor says so.
#[test]
fn a_group_that_was_not_given_is_left_alone() {
    let villain = Villain::new();
    no_group_is_used(&villain);
    let Some(given) = Given::new(&villain) else { return };
    setxattr(&given.0, c"user.delegate", b"0", XattrFlags::empty()).unwrap();
    let mut colibri = given.start(&villain.run(&[], &["sleep"]));
    assert_eq!(first_line(&mut colibri), "ready\n");
    assert_eq!(given.groups(), Vec::<PathBuf>::new());
    signal(&colibri.id().to_string(), "KILL");
    colibri.wait().unwrap();
    villain.assert_gone();
}

fn no_group_is_used(villain: &Villain) {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_colibri"));
    let done = doctor.arg("doctor").env("HOME", &villain.folder).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("watched, without a control group (none was delegated to colibri)"), "{said}");
}

fn rest(child: &mut Child) -> String {
    let mut said = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
    said
}

fn signal(pid: &str, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap();
    assert!(sent.success());
}
