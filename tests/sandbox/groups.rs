//! Control groups: used where one may be made, out of the program's reach, and gone when the sandbox is. A machine
//! may have them in either version, with memory or without; the stories look which, and insist on it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{XattrFlags, setxattr};

use super::support::{PATIENCE, Villain, assert_no_groups, groups_of, wait_until};
use super::users::{NOBODY, as_nobody};

/// Without namespaces, where that was allowed.
const BARE: &[&str] = &["--pretend-missing", "namespace", "--allow-degraded", "namespace"];

/// A group as a service manager gives one away: marked, and with colibri's own group in it.
struct Given(PathBuf);

impl Given {
    /// None on a machine where nobody may make one.
    fn new(villain: &Villain) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?.to_owned();
        // Where the machine's highest group gives away none of its controllers, it can be asked to.
        for controller in ["+memory", "+pids"] {
            let _ = std::fs::write(Path::new(&mount).join("cgroup.subtree_control"), controller);
        }
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
        start(&mut shell)
    }

    fn has_memory(&self) -> bool {
        std::fs::read_to_string(self.0.join("cgroup.controllers")).unwrap().contains("memory")
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for group in [&self.0.join("main"), &self.0] {
            wait_until(PATIENCE / 10, || std::fs::remove_dir(group).is_ok() || !group.exists());
        }
    }
}

/// Where colibri makes groups of the first version: in this process's own group, if that is the top of all that
/// is to be seen. One that lies below others is somebody's, who did not give it.
fn own_first(controller: &str) -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let group =
        groups.lines().find(|line| line.split(':').nth(1) == Some(controller))?.splitn(3, ':').nth(2)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_it = |line: &&str| {
        line.split_once(" - cgroup ")
            .is_some_and(|(_, rest)| rest.split([' ', ',']).any(|word| word == controller))
    };
    let mut fields = mounts.lines().find(is_it)?.split(' ').skip(3);
    let (root, place) = (fields.next()?, PathBuf::from(fields.next()?));
    let may_write = rustix::fs::access(&place, rustix::fs::Access::WRITE_OK).is_ok();
    (group == root && may_write).then_some(place)
}

/// The ways to start colibri in which it has groups: in what was given to it, and as it is.
fn ways(given: Option<&Given>) -> Vec<(Option<&Given>, PathBuf)> {
    let second = given.into_iter().map(|given| (Some(given), given.0.clone()));
    second.chain(own_first("memory").map(|place| (None, place))).collect()
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn start_in(given: Option<&Given>, mut command: Command) -> Child {
    match given {
        Some(given) => given.start(&command),
        None => start(&mut command),
    }
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// What there is to read of a colibri until it ends.
fn rest(child: &mut Child) -> String {
    let mut said = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
    said
}

fn signal(pid: &str, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap();
    assert!(sent.success());
}

/// Ends it, and sees that nothing is left.
fn end(mut colibri: Child, how: &str, villain: &Villain) {
    if how == "helper" {
        // Then nobody but colibri is left to tidy.
        let helper = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", colibri.id()));
        signal(helper.unwrap().trim(), "KILL");
    } else if how == "close" {
        drop(colibri.stdin.take());
        signal(&colibri.id().to_string(), "INT");
    } else {
        signal(&colibri.id().to_string(), how);
    }
    colibri.wait().unwrap();
    villain.assert_gone();
    assert_no_groups(colibri.id());
}

/// SB-3, SB-6: a sandbox has a group of its own wherever one may be made, all of its tree is in it, and it is gone
/// with the sandbox, however colibri or the keeper ends. What a dead colibri left is removed.
#[test]
fn a_sandbox_has_groups_and_leaves_none() {
    let villain = Villain::new();
    let given = Given::new(&villain);
    // A kernel that is too old for the lists of files is no matter here.
    let strict = &["--sandbox", "strict", "--allow-degraded", "landlock"];
    let options: [&[&str]; 3] = [&[], strict, BARE];
    for (given, place) in ways(given.as_ref()) {
        for options in options {
            let left_over = place.join("colibri-2147483647-1");
            std::fs::create_dir_all(left_over.join("in")).unwrap();
            for how in ["close", "helper", "KILL", "TERM"] {
                let mut colibri = start_in(given, villain.run(options, &["daemons", "4"]));
                let line = first_line(&mut colibri);
                assert_eq!(line, "ready\n", "{options:?}: {}", rest(&mut colibri));
                assert!(!left_over.exists(), "it was swept");
                all_are_in(&colibri, &place, 5);
                end(colibri, how, &villain);
            }
        }
    }
}

/// The program and its daemons are in the group; not the helper and the init, which must outlive them.
#[track_caller]
fn all_are_in(colibri: &Child, place: &Path, count: usize) -> PathBuf {
    let groups = groups_of(colibri.id());
    let group = groups.into_iter().find(|group| group.starts_with(place)).expect("it has a group");
    let members = std::fs::read_to_string(group.join("in/cgroup.procs")).unwrap();
    assert_eq!(members.lines().count(), count, "{}: {members}", group.display());
    assert_eq!(std::fs::read_to_string(group.join("cgroup.procs")).unwrap(), "", "the limits are above them");
    group
}

/// SB-3, SB-6, T1 of the abuse list: where no namespace counts processes, a group of the first version does, a
/// little above the limit at which the watch ends the tree; and it is gone afterwards.
#[test]
fn processes_are_bounded_by_a_group() {
    let villain = Villain::new();
    let Some(place) = own_first("pids") else { return };
    let options = [BARE, &["--processes", "40"]].concat();
    for how in ["close", "helper", "KILL", "TERM"] {
        let mut colibri = start(&mut villain.run(&options, &["daemons", "4"]));
        assert_eq!(first_line(&mut colibri), "ready\n");
        let group = all_are_in(&colibri, &place, 5);
        assert_eq!(std::fs::read_to_string(group.join("pids.max")).unwrap(), "56\n");
        end(colibri, how, &villain);
    }
    let mut colibri = start(&mut villain.run(&options, &["bomb", "2000"]));
    assert!(rest(&mut colibri).contains("more processes"));
    colibri.wait().unwrap();
    villain.assert_gone();
    assert_no_groups(colibri.id());
}

/// SB-3, SB-5, T4 of the abuse list: memory that no process maps is counted where a group counts memory, and so is
/// that of a child alone: the whole tree ends, for memory. Elsewhere the doctor says that it is not seen.
#[test]
fn memory_out_of_sight_is_counted_by_a_group() {
    let villain = Villain::new();
    let given = Given::new(&villain);
    let mut counts = false;
    for (given, _) in ways(given.as_ref()) {
        let said = doctor(&villain, given);
        // What the second version does not count, the first may.
        let version = if given.is_some_and(Given::has_memory) { 2 } else { 1 };
        let has_memory = version == 2 || own_first("memory").is_some();
        let holds = |line: &str| line.contains("memory") && line.contains(&format!("(version {version})"));
        assert_eq!(said.split([';', '\n']).any(holds), has_memory, "{said}");
        counts |= has_memory;
        for kind in ["memfd", "child"] {
            let mut colibri = start_in(given, villain.run(&["--memory-mb", "128"], &["memory", kind, "400"]));
            assert_eq!(first_line(&mut colibri), "ready\n", "{}", rest(&mut colibri));
            if has_memory {
                let said = rest(&mut colibri);
                assert!(said.contains("more memory than it may"), "{kind}: {said}");
                colibri.wait().unwrap();
                villain.assert_gone();
                assert_no_groups(colibri.id());
            } else {
                assert_eq!(first_line(&mut colibri), format!("{kind} ok\n"), "the watch does not see it");
                end(colibri, "TERM", &villain);
            }
        }
    }
    if !counts {
        assert!(doctor(&villain, None).contains("no control group holds memory"));
    }
}

fn doctor(villain: &Villain, given: Option<&Given>) -> String {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_colibri"));
    doctor.arg("doctor").env_clear().env("HOME", &villain.folder).env("PATH", "/usr/bin:/bin");
    let mut doctor = start_in(given, doctor);
    let mut said = String::new();
    std::io::Read::read_to_string(doctor.stdout.as_mut().unwrap(), &mut said).unwrap();
    doctor.wait().unwrap();
    assert_no_groups(doctor.id());
    said
}

/// A group that nobody gave is not used, though it could be written; and the doctor says so.
#[test]
fn a_group_that_was_not_given_is_left_alone() {
    let villain = Villain::new();
    let Some(given) = Given::new(&villain) else { return };
    setxattr(&given.0, c"user.delegate", b"0", XattrFlags::empty()).unwrap();
    assert!(!doctor(&villain, Some(&given)).contains("(version 2)"));
    let mut colibri = given.start(&villain.run(&[], &["sleep"]));
    assert_eq!(first_line(&mut colibri), "ready\n");
    let in_it = |group: &PathBuf| group.starts_with(&given.0);
    assert!(!groups_of(colibri.id()).iter().any(in_it));
    end(colibri, "KILL", &villain);
    // The first version is the same: one that lies below others is theirs who made it.
    for controller in ["memory", "pids"] {
        let is_used = doctor(&villain, None).contains(&format!("/{controller} (version 1)"));
        assert_eq!(is_used, own_first(controller).is_some(), "{controller}");
    }
}

/// What a program tries: to change what its groups hold, to leave them, and to make others, where they are mounted
/// and where it mounts them anew. It says what it could do. It touches nothing but this story's own.
const WAYS_OUT: &str = r#"
    while read -r device place kind rest; do
        case $kind in cgroup*) ;; *) continue;; esac
        cat "$place/cgroup.procs" >/dev/null && echo "saw $kind"
        find "$place" -path '*colibri-*' -path "*$1*" -type d | while read -r folder; do
            for file in memory.max memory.limit_in_bytes pids.max cgroup.max.depth cgroup.max.descendants; do
                (cat "$folder/$file" >/dev/null && echo 9999999 >"$folder/$file") && echo "wrote $folder/$file"
            done
            (echo 0 >"$folder/cgroup.procs") && echo "moved to $folder"
            mkdir "$folder/mine" && echo "made $folder/mine"
        done
    done </proc/mounts
    mkdir again
    for what in "0: cgroup2" "memory: cgroup -o memory" "pids: cgroup -o pids"; do
        grep -q "${what%% *}.*/colibri-" /proc/self/cgroup || continue
        unshare --user --map-root-user --mount --cgroup sh -c "
            mount -t ${what#* } none again || exit
            echo mounted
            for file in memory.max memory.limit_in_bytes pids.max; do
                (echo 9999999 >again/\$file) && echo wrote again/\$file
            done
            mkdir again/mine && echo made again/mine"
    done
    echo done"#;

/// SB-3: a program reads its control groups and changes nothing about them, whether colibri is root's or a user's
/// whose groups are its own; and what it makes in them by a mount of its own goes with it.
#[test]
fn a_program_cannot_change_its_groups() {
    let villain = Villain::new();
    let Some(given) = Given::new(&villain) else { return };
    // Everything before the program stays; the program is the script, which is told what is this story's own.
    let script = |command: &Command| {
        let mut whole = Command::new(command.get_program());
        whole.args(command.get_args().take_while(|word| *word != "--"));
        whole.args(["--", "sh", "-c", WAYS_OUT, "sh", &villain.name]).current_dir(&villain.folder);
        whole.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        whole
    };
    for user in ["root", "nobody"] {
        let command = if user == "root" {
            villain.run(&[], &[])
        } else {
            let given = &given.0;
            for file in ["", "cgroup.procs", "cgroup.subtree_control", "main", "main/cgroup.procs"] {
                chown(given.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            as_nobody(&villain, &[], &[])
        };
        let mut colibri = given.start(&script(&command));
        let mut said = String::new();
        std::io::Read::read_to_string(colibri.stdout.as_mut().unwrap(), &mut said).unwrap();
        let why = rest(&mut colibri);
        assert!(said.ends_with("done\n"), "{user}: {said}{why}");
        assert!(said.contains("saw cgroup2\n"), "{user}: {said}{why}");
        // A user can look at its own groups anew; root without its rights is not even let.
        assert_eq!(said.contains("mounted\n"), user == "nobody", "{said}{why}");
        let done =
            said.lines().filter(|line| !["done", "mounted"].contains(line) && !line.starts_with("saw "));
        assert_eq!(done.collect::<Vec<_>>(), Vec::<&str>::new(), "{user}: {why}");
        colibri.wait().unwrap();
        assert_no_groups(colibri.id());
        let _ = std::fs::remove_dir(villain.folder.join("again"));
    }
}
