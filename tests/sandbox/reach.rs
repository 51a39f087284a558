//! What is out of reach: colibri's own files, other people's, the network, and the ways out.

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;

use colibri::sandbox::policy::{Files, Network};
use colibri::sandbox::{Policy, start_under};

use super::support::Villain;

/// What the program found, by what it tried.
#[track_caller]
fn all_refused(said: &[String], but: &[&str]) {
    assert!(!said.is_empty(), "it said nothing");
    for line in said {
        let (what, outcome) = line.rsplit_once(' ').unwrap();
        assert_eq!(outcome == "ok", but.contains(&what), "{line}; all of it: {said:#?}");
    }
}

/// A folder as colibri keeps it.
struct Own {
    folder: PathBuf,
    files: Vec<String>,
    _socket: UnixListener,
}

impl Own {
    fn new(villain: &Villain) -> Self {
        let folder = villain.folder.join("home/share/colibri");
        std::fs::create_dir_all(&folder).unwrap();
        let names = ["colibri.db", "colibri.db.key", "colibri.db.checkpoints", "colibri.json", "socket"];
        for name in &names[..4] {
            std::fs::write(folder.join(name), "secret").unwrap();
        }
        let socket = UnixListener::bind(folder.join("socket")).unwrap();
        let files = names.map(|name| folder.join(name).to_str().unwrap().to_owned()).into();
        Self { folder, files, _socket: socket }
    }
}

/// SB-3: colibri's key, database, checkpoints, configuration and socket cannot be read, written or
/// spoken to; nor covered anew by moving the folders above them away.
#[tokio::test]
async fn what_is_colibris_own_is_out_of_reach() {
    let villain = Villain::new();
    let own = Own::new(&villain);
    let hidden = vec![own.folder.clone().into_os_string()];
    let alone: Vec<_> = own.files.iter().map(Into::into).collect();
    for hidden in [hidden, alone] {
        let policy = Policy { files: Files { hidden, ..Files::default() }, ..Policy::default() };
        let mut words = vec!["reach"];
        words.extend(own.files.iter().map(String::as_str));
        all_refused(&villain.said(&words, &policy).await, &[]);
        let script = "mv home moved; mv home/share moved; mv home/share/colibri moved; rm -rf home; \
                      cat home/share/colibri/colibri.db.key home/../home/share/colibri/colibri.db.key; \
                      (cd home/share && cat colibri/colibri.db.key); \
                      unshare --user --map-root-user --mount sh -c ' \
                        for cover in /proc/self/cwd/home/share/colibri/* /proc/self/cwd/home/share/colibri; do \
                          umount -l $cover; done; cat home/share/colibri/colibri.db.key; \
                        mount --bind . /mnt && cat /mnt/home/share/colibri/colibri.db.key; \
                        mount --rbind / /mnt && cat /mnt/$PWD/home/share/colibri/colibri.db.key'; \
                      echo done";
        let arguments = vec!["-c".into(), script.into()];
        let spec = colibri::sandbox::Spec { program: "sh".into(), arguments, ..villain.spec(&[]) };
        let mut child = start_under(&spec, &policy).unwrap();
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut child.stdout, &mut said).await.unwrap();
        assert_eq!(said, "done\n", "{}", child.life.last_words());
        for file in &own.files[..4] {
            assert_eq!(std::fs::read_to_string(file).unwrap(), "secret", "{file}");
        }
    }
}

/// SB-3: `colibri run` covers its own files by itself.
#[test]
fn running_a_program_covers_colibris_own_files() {
    let villain = Villain::new();
    let own = villain.folder.join("own");
    std::fs::create_dir(&own).unwrap();
    let files = ["colibri.db", "colibri.db.key", "colibri.db.checkpoints"].map(|name| own.join(name));
    for file in &files {
        std::fs::write(file, "secret").unwrap();
    }
    let config = villain.folder.join("colibri.json");
    std::fs::write(&config, "{}").unwrap();
    // An operator's socket, made by another colibri while this one runs.
    let runtime = villain.folder.join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let socket = runtime.join("colibri/socket");
    let mut words = vec!["reach"];
    words.extend(files.iter().chain([&config, &socket]).map(|file| file.to_str().unwrap()));
    let mut listener = None;
    for _ in 0..2 {
        let mut command = villain.run(&["--config", config.to_str().unwrap()], &words);
        let done = command.env("XDG_RUNTIME_DIR", &runtime).output().unwrap();
        let said: Vec<String> = String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(said.len(), 15, "{}", String::from_utf8_lossy(&done.stderr));
        all_refused(&said, &[]);
        // The folder is there from the first server on, so that the second cannot miss it.
        listener.get_or_insert_with(|| UnixListener::bind(&socket).unwrap());
    }
    assert_eq!(mode_of(socket.parent().unwrap()), 0o700);
    for file in &files {
        assert_eq!(std::fs::read_to_string(file).unwrap(), "secret");
    }
    // Without one of the system's, it lies in the data folder.
    let inner = villain.folder.join(".local/share/colibri/run");
    std::fs::create_dir_all(&inner).unwrap();
    let inner = inner.join("socket");
    let _inner = UnixListener::bind(&inner).unwrap();
    let done = villain.run(&[], &["reach", inner.to_str().unwrap()]).output().unwrap();
    let said: Vec<String> = String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect();
    all_refused(&said, &[]);
    // And not, if it is told not to.
    let done = villain.run(&["--sandbox", "off"], &words).output().unwrap();
    assert!(String::from_utf8(done.stdout).unwrap().contains("colibri.db.key ok"));
}

fn mode_of(path: &std::path::Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777
}

/// T9 of the abuse list: without a network there is no socket of any kind, not even of this machine.
#[tokio::test]
async fn without_a_network_there_are_no_sockets() {
    let villain = Villain::new();
    let place = villain.folder.join("docker.sock");
    let _listener = UnixListener::bind(&place).unwrap();
    let words = ["sockets", place.to_str().unwrap()];
    all_refused(&villain.said(&words, &Policy::strict()).await, &["pair"]);
    let alone = Policy { network: Some(Network::None), ..Policy::default() };
    all_refused(&villain.said(&words, &alone).await, &["pair"]);
    let said = villain.said(&words, &Policy::default()).await;
    assert!(said.contains(&"tcp ok".to_owned()) && said.contains(&"pathname ok".to_owned()), "{said:?}");
}

/// A socket of each kind on which somebody of this machine listens, in a folder that is open to everybody.
struct Listeners {
    stream: UnixListener,
    packets: std::os::fd::OwnedFd,
    datagrams: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Listeners {
    const NAMES: [&str; 3] = ["stream", "packets", "datagrams"];

    fn new() -> Self {
        use rustix::net::{
            AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
        };
        // Not below /tmp, which is private under `strict`.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        open_to_all(folder.path());
        let paths = Self::NAMES.map(|name| folder.path().join(name));
        let stream = UnixListener::bind(&paths[0]).unwrap();
        stream.set_nonblocking(true).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let packets = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&packets, &SocketAddrUnix::new(&paths[1]).unwrap()).unwrap();
        listen(&packets, 1).unwrap();
        let datagrams = UnixDatagram::bind(&paths[2]).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        for path in &paths {
            open_to_all(path);
        }
        Self { stream, packets, datagrams, folder }
    }

    /// Whoever was heard, by the kind of socket.
    fn heard(&self) -> Vec<&str> {
        let [stream, packets, datagrams] = Self::NAMES;
        let mut heard = Vec::new();
        heard.extend(self.stream.accept().is_ok().then_some(stream));
        heard.extend(rustix::net::accept(&self.packets).is_ok().then_some(packets));
        while self.datagrams.recv(&mut [0; 8]).is_ok() {
            heard.push(datagrams);
        }
        heard
    }
}

fn open_to_all(path: &std::path::Path) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
}

/// SB-3: where sockets of this machine are refused, a pair of them leads to nobody else. A pair of datagrams once did:
/// each of the two could be sent from, and tied anew, to any socket that somebody listens on. Pairs that are tied for
/// good stay.
#[tokio::test]
async fn a_pair_of_sockets_leads_to_nobody_else() {
    let (villain, listeners) = (Villain::new(), Listeners::new());
    let places = Listeners::NAMES.map(|name| listeners.folder.path().join(name).display().to_string());
    let words = ["pairs", &places[0], &places[1], &places[2]];
    let files = Files { allow_read: vec![listeners.folder.path().into()], ..Files::default() };
    let hosts = Network::Hosts(colibri::sandbox::policy::Hosts::allowing(&["example.com"]).unwrap());
    let strict = Policy { files, ..Policy::strict() };
    let policies = [
        strict.clone(),
        Policy { network: Some(Network::Full), ..strict.clone() },
        Policy { network: Some(hosts.clone()), ..strict.clone() },
        Policy { network: Some(hosts), ..Policy::default() },
        Policy { network: Some(Network::None), ..Policy::default() },
    ];
    let tied = ["stream-pair", "stream-plain-pair", "packets-pair", "packets-plain-pair"];
    for policy in policies {
        let said = villain.said(&words, &policy).await;
        all_refused(&said, &tied);
        assert!(said.contains(&"other-family EPERM".to_owned()), "{said:?}");
        assert_eq!(listeners.heard(), Vec::<&str>::new(), "{policy:?}");
    }
    // It is the filter that holds this: without it those places are in reach, for datagrams alone.
    let missing = || [colibri::sandbox::Layer::Seccomp].into();
    let without = Policy { pretend_missing: missing(), allow_degraded: missing(), ..strict };
    villain.said(&words, &without).await;
    let heard = listeners.heard();
    assert!(!heard.is_empty() && heard.iter().all(|kind| *kind == "datagrams"), "{heard:?}");
}

/// T9 of the abuse list: without a network no name is resolved, by the system's own way or by asking.
#[tokio::test]
async fn without_a_network_no_name_is_resolved() {
    let villain = Villain::new();
    let script = "import socket\n\
        for ask in (lambda: socket.getaddrinfo('example.com', 443), lambda: socket.gethostbyname('example.com'), \
                    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('9.9.9.9', 53))):\n\
        \x20   try: print('found', ask())\n\
        \x20   except OSError as error: print(type(error).__name__)";
    for policy in [Policy::strict(), Policy { network: Some(Network::None), ..Policy::default() }] {
        let spec = colibri::sandbox::Spec {
            program: "/usr/bin/python3".into(),
            arguments: vec!["-c".into(), script.into()],
            ..villain.spec(&[])
        };
        let mut child = start_under(&spec, &policy).unwrap();
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut child.stdout, &mut said).await.unwrap();
        assert_eq!(said, "gaierror\ngaierror\nPermissionError\n", "{}", child.life.last_words());
    }
}

/// T10 of the abuse list: under `strict`, files that were not named, by every way around.
#[tokio::test]
async fn files_that_were_not_named_are_out_of_reach() {
    let villain = Villain::new();
    // Not below /tmp, which is private anyway.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [outside, inside] = ["outside", "inside"].map(|name| place.path().join(name));
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir(&inside).unwrap();
    let secret = outside.join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let files = Files { allow_write: vec![inside.clone().into()], ..Files::default() };
    let words = [&outside, &secret, &inside].map(|path| path.to_str().unwrap());
    let words = ["around", words[0], words[1], words[2]];
    let policy = Policy { files, ..Policy::strict() };
    all_refused(&villain.said(&words, &policy).await, &["inside"]);
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert!(!outside.join("new").exists());
}

/// SB-3: lists work under `standard` too, once they are asked for; and a folder in a writable one can
/// be kept from being written.
#[tokio::test]
async fn files_are_limited_as_asked_for() {
    let villain = Villain::new();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [writable, kept, other] = ["writable", "writable/kept", "other"].map(|name| place.path().join(name));
    for folder in [&writable, &kept, &other] {
        std::fs::create_dir(folder).unwrap();
    }
    let files = Files {
        allow_write: vec![writable.clone().into()],
        read_only: vec![kept.clone().into()],
        ..Files::default()
    };
    let policy = Policy { files, ..Policy::default() };
    let script = "for f in writable writable/kept other; do touch $f/new && echo $f; done; ls / >/dev/null && echo read";
    let spec = colibri::sandbox::Spec {
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        directory: Some(place.path().to_owned()),
        ..villain.spec(&[])
    };
    let mut child = start_under(&spec, &policy).unwrap();
    let mut said = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut child.stdout, &mut said).await.unwrap();
    assert_eq!(said, "writable\nread\n", "{}", child.life.last_words());
}

/// T11 of the abuse list: system calls that lead out are refused.
#[tokio::test]
async fn the_ways_out_are_closed() {
    let villain = Villain::new();
    all_refused(&villain.said(&["escapes"], &Policy::strict()).await, &[]);
    let said = villain.said(&["escapes"], &Policy::default()).await;
    // It may make namespaces of its own there, and mount in them; the init stays out of its reach.
    assert!(said.contains(&"ptrace EPERM".to_owned()), "{said:?}");
    // A signal to the init is not refused there; it is not delivered.
    assert!(said.contains(&"kill-init ok".to_owned()), "{said:?}");
}

/// T13 of the abuse list: nothing of colibri's environment, arguments or descriptors is visible inside.
#[test]
fn secrets_do_not_leak_in() {
    let villain = Villain::new();
    // Left open on purpose: descriptor 9 of a shell that starts colibri.
    let mut script = std::process::Command::new("sh");
    let inner = villain.run(&[], &["descriptors"]);
    let words: Vec<_> = inner.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
    script.arg("-c").arg(format!(
        "exec 9</etc/passwd; exec {} {}",
        env!("CARGO_BIN_EXE_colibri"),
        words.join(" ")
    ));
    let done = script.env("HOME", &villain.folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "done\n", "{}", String::from_utf8_lossy(&done.stderr));

    let look = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'";
    let mut command = villain.run(&[], &[]);
    command = {
        let mut fresh = std::process::Command::new(command.get_program());
        fresh.env("CANARY_SECRET", "canary-4711").env("HOME", &villain.folder);
        fresh.args(["run", "--", "sh", "-c", look]);
        fresh
    };
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("HOME="), "{said}");
    assert!(!said.contains("canary-4711"), "{said}");
}

/// T13 of the abuse list: what a server is given in its environment and arguments is in no log, however much is
/// logged and however its start goes wrong; nor in what colibri keeps.
#[test]
fn secrets_are_not_logged_and_not_kept() {
    use std::io::{BufRead, BufReader};
    let villain = Villain::new();
    let config = villain.folder.join("colibri.json");
    let env = r#""env": {"TOKEN": "canary-4711"}"#;
    let strange = villain.folder.join("strange");
    std::fs::write(&strange, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&strange, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let servers = [
        format!(r#""leaves": {{"command": "sh", "args": ["-c", "exit 3 # canary-4712"], {env}}}"#),
        format!(r#""absent": {{"command": "no-such-program", "args": ["canary-4712"], {env}}}"#),
        format!(r#""strange": {{"command": {strange:?}, "args": ["canary-4712"], {env}}}"#),
    ];
    let servers = servers.join(",");
    std::fs::write(&config, format!(r#"{{"mcpServers": {{{servers}}}}}"#)).unwrap();
    let mut colibri = std::process::Command::new(env!("CARGO_BIN_EXE_colibri"))
        .arg("--config")
        .arg(&config)
        .args(["--log", "debug", "serve"])
        .env("HOME", &villain.folder)
        .env("COLIBRI_DB_PATH", villain.folder.join("own/colibri.db"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut log = BufReader::new(colibri.stderr.take().unwrap());
    // Until every one of them has been told of as failed.
    while !["leaves", "absent", "strange"].iter().all(|name| said.contains(&format!("mcp:{name}]"))) {
        assert_ne!(log.read_line(&mut said).unwrap(), 0, "{said}");
    }
    drop(colibri.stdin.take());
    std::io::Read::read_to_string(&mut log, &mut said).unwrap();
    colibri.wait().unwrap();
    assert!(!said.contains("canary"), "{said}");
    for entry in std::fs::read_dir(villain.folder.join("own")).unwrap().flatten() {
        let kept = std::fs::read(entry.path()).unwrap_or_default();
        let found = kept.windows(6).any(|window| window == b"canary");
        assert!(!found, "{}", entry.path().display());
    }
}

/// T11 of the abuse list: a sandbox within a sandbox fails closed.
#[test]
fn a_sandbox_in_a_sandbox_fails_closed() {
    let villain = Villain::new();
    let inner = env!("CARGO_BIN_EXE_colibri");
    let mut command = std::process::Command::new(inner);
    command.env("HOME", &villain.folder).args(["run", "--sandbox", "strict", "--allow-read"]);
    command.arg(std::path::Path::new(inner).parent().unwrap()).arg("--");
    command.args([inner, "run", "--", "echo", "it ran"]);
    let done = command.output().unwrap();
    assert!(!done.status.success());
    assert_eq!(String::from_utf8_lossy(&done.stdout), "");
}
