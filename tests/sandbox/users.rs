//! The same for somebody without rights: everything that root gets, through a user namespace.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output, Stdio};

use super::support::Villain;

/// Nobody, on every machine.
const NOBODY: u32 = 65534;

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
