//! Code that is not colibri's accepts what colibri hands out, and refuses it once it is changed.

use std::path::{Path, PathBuf};

use super::ledger::{Ledger, is_full, run};
use super::offline::Auditor;

const FILES: [&str; 5] = ["0.tlog-proof", "300.tlog-proof", "702.tlog-proof", "ledger.bundle", "checkpoint"];

/// SU-11: openssl and a page of Python need no line of colibri.
#[test]
fn python_and_openssl_agree() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tamper/verify.py");
    agree(Path::new("python3"), &[script], if is_full() { 200 } else { 12 });
}

/// SU-11: the packages that Go trusts its checksum database with. Only in the long run, because it
/// takes a Go compiler.
#[test]
fn the_go_checksum_database_agrees() {
    if !is_full() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    agree(&build_go(workspace.path()), &[], 2000);
}

/// SU-11: the page that explains it all is typed in, line by line.
#[test]
fn the_life_of_a_proof_is_as_its_page_tells() {
    crate::docs::run_page("docs/life-of-a-proof.md");
}

/// The program accepts every file and refuses every changed one.
#[track_caller]
fn agree(program: &Path, arguments: &[&str], changes: usize) {
    let ledger = Ledger::get();
    assert_eq!(ledger.size, 703, "the files are named for it");
    let auditor = Auditor::of(&ledger.copy(), &[0, 300, 702]);
    let verify = |names: &[String]| {
        let names = ["key"].into_iter().chain(names.iter().map(String::as_str));
        let arguments: Vec<&str> = arguments.iter().copied().chain(names).collect();
        let output = run(program, auditor.folder(), &arguments);
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (all_hold, said) = verify(&FILES.map(str::to_owned));
    assert!(all_hold, "{said}");
    assert_eq!(said.matches(": valid").count(), FILES.len(), "{said}");
    for name in FILES {
        let good = auditor.read(name);
        let mut names = Vec::new();
        for at in (0..good.len()).step_by(good.len().div_ceil(changes)) {
            let mut bytes = good.clone();
            bytes[at] ^= if at % 3 == 0 { 0x80 } else { 0x01 };
            names.push(format!("changed-{at}"));
            std::fs::write(auditor.path(&format!("changed-{at}")), bytes).unwrap();
        }
        let (_, said) = verify(&names);
        let believed: Vec<_> = said.lines().filter(|line| !line.contains(": refused: ")).collect();
        assert!(believed.is_empty(), "{name}: {believed:?}");
        assert_eq!(said.lines().count(), names.len(), "{name}: one line a file: {said}");
        for name in &names {
            std::fs::remove_file(auditor.path(name)).unwrap();
        }
    }
}

/// Builds the Go program against the packages that come with the compiler, without any network.
fn build_go(workspace: &Path) -> PathBuf {
    let found = run(Path::new("/bin/sh"), workspace, &["-c", "go env GOROOT"]);
    assert!(found.status.success(), "there is no Go compiler: install Debian's golang-go");
    let vendored = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim()).join("src/cmd/vendor");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tamper/go");
    let packages =
        ["golang.org/x/mod/sumdb/note", "golang.org/x/mod/sumdb/tlog", "golang.org/x/crypto/ed25519"];
    let copies = packages.map(|package| (vendored.join(package), workspace.join("src").join(package)));
    for (from, to) in copies.into_iter().chain([(sources, workspace.join("src/verify"))]) {
        // A newer Go needs no ed25519 from outside; the compiler says if anything is missing.
        for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
            std::fs::create_dir_all(&to).unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    let script =
        "GO111MODULE=off GOFLAGS= GOPROXY=off GOPATH=$PWD GOCACHE=$PWD/cache go build -o verifier verify";
    let built = run(Path::new("/bin/sh"), workspace, &["-c", script]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    workspace.join("verifier")
}
