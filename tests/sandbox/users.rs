//! The same for somebody without rights: everything that root gets, through a user namespace.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output, Stdio};

use colibri::sandbox::policy::Files;
use colibri::sandbox::{Policy, Spec, start_under};

use super::support::Villain;

/// Nobody, on every machine.
pub(super) const NOBODY: u32 = 65534;

/// Runs `colibri run` as nobody, with a copy of the program that nobody can reach.
pub(super) fn as_nobody(villain: &Villain, options: &[&str], words: &[&str]) -> Command {
    let colibri = villain.folder.join("colibri");
    if !colibri.exists() {
        std::fs::set_permissions(&villain.folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_colibri"), &colibri).unwrap();
        chown(&villain.folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string(), "--clear-groups"]);
    command.arg(&colibri).arg("run").args(options).arg("--").arg(villain.program()).args(words);
    command
        .env_clear()
        .envs(crate::support::measured())
        .env("HOME", &villain.folder)
        .current_dir(&villain.folder);
    command.env("PATH", "/usr/bin:/bin");
    command
}

fn said(done: &Output) -> Vec<String> {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect()
}

/// SB-3, SB-6: limits, covers, lists and the end of everything hold without any rights.
#[test]
fn somebody_without_rights_is_kept_too() {
    if !rustix::process::geteuid().is_root() {
        // Then every other story of the sandbox is this one.
        return;
    }
    let villain = Villain::new();
    let secret = villain.folder.join("secret");
    std::fs::write(&secret, "secret").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o666)).unwrap();
    let secret = secret.to_str().unwrap();

    let open = said(&as_nobody(&villain, &[], &["reach", secret]).output().unwrap());
    assert!(open.contains(&format!("read:{secret} ok")), "{open:?}");
    for options in [&["--deny-read", secret][..], &["--sandbox", "strict"]] {
        let lines = said(&as_nobody(&villain, options, &["reach", secret]).output().unwrap());
        assert!(lines.len() == 3 && lines.iter().all(|line| !line.ends_with(" ok")), "{lines:?}");
        let ways = said(&as_nobody(&villain, options, &["escapes"]).output().unwrap());
        assert!(ways.contains(&"ptrace EPERM".to_owned()), "{ways:?}");
    }
    let over = as_nobody(&villain, &["--memory-mb", "64"], &["memory", "forks", "50", "4"]).output().unwrap();
    assert_eq!(over.status.code(), Some(137));
    assert!(String::from_utf8_lossy(&over.stderr).contains("more memory than it may"));
    let many = as_nobody(&villain, &["--processes", "40"], &["bomb", "2000"]).stdin(Stdio::null()).spawn();
    let mut many = many.unwrap();
    // Here the kernel itself counts, and refuses; whoever is refused stays, and is ended.
    let counted = super::support::wait_until(super::support::PATIENCE, || villain.survivors().len() >= 40);
    assert!(counted || many.try_wait().unwrap().is_some());
    assert!(villain.survivors().len() <= 48, "{} processes", villain.survivors().len());
    many.kill().unwrap();
    many.wait().unwrap();
    villain.assert_gone();
}

/// SB-3: under `strict` root's program is somebody who owns nothing, seen from outside too. What was named is its
/// own all the same, though it lies in a folder that is closed to strangers; what it writes is root's on the disk.
#[tokio::test]
async fn under_strict_roots_program_is_nobody() {
    use tokio::io::AsyncReadExt;
    if !rustix::process::geteuid().is_root() {
        // Then it runs as whoever that is, who is not root.
        return;
    }
    let villain = Villain::new();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [writable, readable, other] = ["writable", "readable", "other"].map(|name| place.path().join(name));
    for folder in [&writable, &readable, &other] {
        std::fs::create_dir(folder).unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(folder.join("file"), "roots").unwrap();
        std::fs::set_permissions(folder.join("file"), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    // Of root, for root alone, and in a folder that every program may read.
    let private = tempfile::Builder::new().prefix("colibri-story").tempfile_in("/usr/local").unwrap();
    let files = Files {
        allow_write: vec![writable.clone().into()],
        allow_read: vec![readable.clone().into()],
        ..Files::default()
    };
    let script = format!(
        "echo id $(id -u) $(id -g) $(id -G); cat writable/file readable/file; echo; echo new >writable/new; \
         echo more >>writable/file; echo x >/dev/stdout; cat {private} other/file; echo x >readable/file; \
         echo x >/usr/local/colibri-story; test -w /usr && echo writable; chown 0 writable/new; echo done; \
         read line",
        private = private.path().display()
    );
    let spec = Spec {
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        directory: Some(place.path().to_owned()),
        ..villain.spec(&[])
    };
    let mut child = start_under(&spec, &Policy { files, ..Policy::strict() }).unwrap();
    let mut said = String::new();
    while !said.ends_with("done\n") {
        let mut chunk = [0; 512];
        let read = child.stdout.read(&mut chunk);
        let length = tokio::time::timeout(super::support::PATIENCE, read).await.expect("in time").unwrap();
        assert_ne!(length, 0, "{said}{}", child.life.last_words());
        said.push_str(std::str::from_utf8(&chunk[..length]).unwrap());
    }
    let (id, rest) = said.split_once('\n').unwrap();
    assert_eq!(rest, "rootsroots\nx\ndone\n", "{}", child.life.last_words());
    let id: Vec<u32> = id.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
    assert!(id.len() == 3 && id.iter().all(|one| *one >= 0x7000_0000 && *one == id[0]), "{id:?}");
    assert_eq!(seen_from_outside(child.life.pid), id[0]);
    drop(child.stdin);
    child.life.ended().await;
    // On the disk it is root's, as if root had written it.
    let owner =
        |path: &std::path::Path| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).unwrap());
    assert_eq!((owner(&writable.join("new")), owner(&writable.join("file"))), (0, 0));
    assert_eq!(std::fs::read_to_string(writable.join("file")).unwrap(), "rootsmore\n");
    assert_eq!(std::fs::read_to_string(readable.join("file")).unwrap(), "roots");
}

/// The real user of the program that a helper keeps.
fn seen_from_outside(helper: u32) -> u32 {
    let child_of = |pid: u32| -> u32 {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.trim().parse().unwrap()
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", child_of(child_of(helper)))).unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
