//! The socket in bad company: who must not reach it, and who means harm.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::*;
use crate::cli::run_with;
use crate::support::PATIENCE;

fn mode(path: &std::path::Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Garbage, a megabyte in one line, silence and a hundred connections: the client is served all the while, and a person
/// who comes then is served too.
#[test]
fn a_hostile_visitor_hurts_nobody() {
    let mut colibri = serving(&json!({ "one": server("x") }));
    await_state(&colibri.home, "one", "ready");
    let path = socket(&colibri);
    let say = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(bytes);
        let mut answer = String::new();
        // Cut off while it still speaks, it may read nothing more.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(say(b"\xff\xfe\0\n").contains("bad_request"));
    assert!(say(format!("{}\n", "[".repeat(60_000)).as_bytes()).contains("bad_request"));
    let long = say(&vec![b'x'; 1 << 20]);
    assert!(long.is_empty() || long.contains("at most"), "{long}");
    assert!(say(b"{\"v\":1,\"verb\":\"dance\"}\n").contains("expected one of `status`"));

    let silent: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let begun = Instant::now();
    for id in 1..20 {
        assert!(call(&mut colibri, id, "one__echo")["result"]["heard"].is_object());
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "calls wait for nobody: {:?}", begun.elapsed());
    // There is room again when the silent ones have had their time, and the command waits for that.
    assert_eq!(standing(&colibri.home, "one")["state"], "ready");
    drop(silent);
    assert!(colibri.now_mib() < 200);
    colibri.finish();
}

/// The folder and the socket are this user's alone; another user who gets past both is turned away at the door.
#[test]
fn nobody_else_can_speak() {
    let colibri = serving(&json!({}));
    let (folder, socket) = (folder(&colibri.home), socket(&colibri));
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    if !rustix::process::geteuid().is_root() {
        // Nobody but root can play another user.
        return colibri.finish().clear();
    }
    for path in socket.ancestors().take_while(|path| path.starts_with(colibri.home.path())) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  try:\n s.sendall(b'{\"v\":1,\"verb\":\"status\"}\\n')\n print('heard', s.recv(99))\n\
                  except OSError: print('heard', b'')";
    let visit = |user: u32| {
        let mut command = Command::new("python3");
        let ran = command.args(["-c", script]).arg(&socket).current_dir("/").uid(user).output().unwrap();
        String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr)
    };
    assert_eq!(visit(65_534), "heard b''\n");
    assert!(visit(0).contains("\"ok\""));
    colibri.finish();
}

/// A folder that others can enter, and a path that is too long, cost the socket and a warning, never the service.
#[test]
fn without_a_socket_colibri_serves_all_the_same() {
    let open = Home::new();
    std::fs::create_dir_all(folder(&open)).unwrap();
    std::fs::set_permissions(folder(&open), PermissionsExt::from_mode(0o755)).unwrap();
    let far = Home::new();
    let long = far.path().join("x".repeat(100));
    std::fs::create_dir(&long).unwrap();
    let long = long.to_str().unwrap().to_owned();
    for (home, variables, why) in [
        (open, vec![], "is open to others: chmod 700 "),
        (far, vec![("XDG_RUNTIME_DIR", long.as_str())], "the path of the socket is too long"),
    ] {
        let mut colibri = serving_with(home, &variables, &json!({}));
        colibri.assert_lives();
        let said = colibri.log();
        assert!(said.contains(why), "{said}");
        assert_eq!(run(&colibri.home, &["status"]).code, 4);
        colibri.finish();
    }
}

/// SB-3: a server in the sandbox cannot reach the socket, by which it could turn off others and accept itself.
#[test]
fn a_server_in_the_sandbox_cannot_reach_the_socket() {
    let look = "$(test -S \"$XDG_RUNTIME_DIR\"/colibri/*.sock && echo reached || echo refused)";
    let peeking = SERVER.replace("\"$SECRET\"", look);
    assert_ne!(peeking, SERVER);
    for (sandbox, expected) in [("standard", "refused"), ("off", "reached")] {
        let home = Home::new();
        let runtime = home.path().join("runtime");
        std::fs::create_dir(&runtime).unwrap();
        let servers = json!({ "one": { "command": "sh", "args": ["-c", peeking], "sandbox": sandbox } });
        let variables = [("XDG_RUNTIME_DIR", runtime.to_str().unwrap())];
        let mut colibri = serving_with(home, &variables, &servers);
        let answer = call(&mut colibri, 1, "one__echo");
        assert_eq!(answer["result"]["env"], expected, "{sandbox}: {answer}");
        assert_eq!(mode(&runtime.join("colibri")), 0o700);
        assert_eq!(run_with(&colibri.home, &variables, &["status"]).code, 0, "who looks there finds it");
        colibri.finish();
    }
}
