//! What colibri does not touch: a ledger that is newer, foreign, damaged or out of reach is refused
//! in words, with exit code 9, and left as it was.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use super::support::{Place, Ran, in_own_mounts, program, system};

/// A ledger with a few signed calls, closed cleanly.
fn used() -> Place {
    let place = Place::new();
    assert_eq!(place.run(&["call", "server_ping"]).code, Some(0));
    place
}

/// Every file beside the database, but for the lock that every start takes, and what SQLite looks for beside one: a map in
/// shared memory, and logs with nothing in them.
fn files(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(place.database.parent().unwrap()).unwrap().map(Result::unwrap);
    let regular = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let named =
        regular.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    let is_bare = |name: &str, bytes: &[u8]| match name {
        "colibri.db.lock" | "colibri.db-shm" => true,
        "colibri.db-wal" | "colibri.db-journal" => bytes.is_empty(),
        _ => false,
    };
    named.filter(|(name, bytes)| !is_bare(name, bytes)).collect()
}

/// Every command that writes refuses in these words, and changes nothing.
#[track_caller]
fn check_refused(story: &str, place: &Place, words: &str) {
    let before = files(place);
    for command in [&["serve"][..], &["call", "server_ping"], &["audit", "key", "rotate"]] {
        let ran = Ran::of(place.colibri(command).stdin(Stdio::null()));
        assert_eq!(ran.code, Some(9), "{story}, {command:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{story}, {command:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{story}, {command:?}");
    }
    let after = files(place);
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>(),
        "{story}: the same files"
    );
    assert!(before == after, "{story}: with the same bytes");
}

/// SU-4, SU-11: each is refused, and nothing is damaged.
#[test]
fn what_is_not_ours_to_write_is_refused_and_left_alone() {
    let check = |story: &str, words: &str, damage: &dyn Fn(&Place)| {
        let place = used();
        damage(&place);
        check_refused(story, &place, words);
    };
    check("a newer schema", "use the newer colibri", &|place| set_schema_version(place, 99));
    check("the key is lost", "is lost; restore it from a backup", &|place| {
        fs::remove_file(place.paths().key).unwrap();
    });
    check("the key is open to others", "chmod 600", &|place| {
        fs::set_permissions(place.paths().key, fs::Permissions::from_mode(0o644)).unwrap();
    });
    check("the key is garbage", "is not a key", &|place| fs::write(place.paths().key, "garbage\n").unwrap());
    check("the key is another log's", "is not the key of colibri/", &|place| {
        fs::copy(used().paths().key, place.paths().key).unwrap();
    });
    check("the database is garbage", "is damaged", &|place| {
        fs::write(&place.database, [0x5A; 9000]).unwrap();
    });
    check("the database is cut short", "is damaged", &|place| {
        let bytes = fs::read(&place.database).unwrap();
        fs::write(&place.database, &bytes[..bytes.len() / 2]).unwrap();
    });
    check("the database is empty", "the database is gone", &|place| fs::write(&place.database, b"").unwrap());
    check("the database is gone", "the database is gone", &|place| fs::remove_file(&place.database).unwrap());
    check("a journal that SQLite would take up", "colibri makes none", &|place| hot_journal(place));
    check("the key is a link", "is a link", &|place| {
        let (key, away) = (place.paths().key, place.folder.join("away"));
        fs::rename(&key, &away).unwrap();
        std::os::unix::fs::symlink(away, key).unwrap();
    });
    check("the checkpoints are gone", "checkpoints is lost", &|place| {
        fs::remove_file(place.paths().checkpoints).unwrap();
    });
}

/// A rollback journal as a program may leave it that can write in the folder, and not in the database: SQLite would put
/// its page, with another schema version, into the database at the next start.
fn hot_journal(place: &Place) {
    const PAGE: usize = 4096;
    let database = fs::read(&place.database).unwrap();
    let mut page = database[..PAGE].to_vec();
    page[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let sum: u32 = (1..=PAGE / 200).map(|step| u32::from(page[PAGE - 200 * step])).sum();
    let pages = u32::try_from(database.len() / PAGE).unwrap();
    let mut journal = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7].to_vec();
    for number in [1, 0, pages, 512, 4096] {
        journal.extend(u32::to_be_bytes(number));
    }
    journal.resize(512, 0);
    journal.extend([&1_u32.to_be_bytes(), page.as_slice(), &sum.to_be_bytes()].concat());
    fs::write(place.database.with_extension("db-journal"), journal).unwrap();
}

fn set_schema_version(place: &Place, version: u32) {
    let connection = rusqlite::Connection::open(&place.database).unwrap();
    connection.pragma_update(None, "user_version", version).unwrap();
}

/// SU-4: a data folder that cannot be made.
#[test]
fn a_folder_that_cannot_be_made_is_refused() {
    let place = Place::new().with_database(Path::new("/proc/colibri/colibri.db"));
    let ran = place.run(&["call", "server_ping"]);
    assert_eq!(ran.code, Some(9), "{ran:?}");
    assert!(ran.stderr.contains("cannot create the folder /proc/colibri"), "{ran:?}");
}

/// SU-4: a data folder that cannot be written, here on a file system mounted read-only, since root
/// heeds no permissions.
#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    in_own_mounts(concat!(module_path!(), "::a_folder_that_cannot_be_written_is_refused"), || {
        let place = used();
        let folder = place.database.parent().unwrap().to_str().unwrap();
        system("mount", &["mount", "--bind", folder, folder]);
        system("mount", &["mount", "-o", "remount,ro,bind", folder]);
        check_refused("a read-only folder", &place, "Read-only file system");
        system("mount", &["umount", folder]);
        assert_eq!(place.run(&["call", "server_ping"]).code, Some(0));
        place.verify();
    });
}

/// A file system that says it is `sshfs`: it has a root folder and nothing in it, and tells when
/// somebody wants to make something there.
const NETWORK_FILE_SYSTEM: &str = r"
import ctypes, os, struct, sys
fuse = os.open('/dev/fuse', os.O_RDWR)
options = f'fd={fuse},rootmode=40000,user_id=0,group_id=0'.encode()
if ctypes.CDLL(None, use_errno=True).mount(b'elsewhere', sys.argv[1].encode(), b'fuse.sshfs', 0, options):
    sys.exit(f'cannot mount: {os.strerror(ctypes.get_errno())}')
print('mounted', flush=True)
INIT, LOOKUP, FORGET, GETATTR, MKNOD, MKDIR, CREATE, BATCH_FORGET = 26, 1, 2, 3, 8, 9, 35, 42
while True:
    request = os.read(fuse, 1 << 20)
    _, operation, unique = struct.unpack_from('<IIQ', request)
    error, body = 38, b''
    if operation in (FORGET, BATCH_FORGET):
        continue
    if operation == INIT:
        error, body = 0, struct.pack('<IIIIHHIIHHI7I', 7, 31, 4096, 0, 1, 1, 4096, 1, 0, 0, 0, *[0] * 7)
    elif operation == GETATTR:
        error, body = 0, struct.pack('<QII6Q10I', 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
    elif operation == LOOKUP:
        error = 2
    elif operation in (MKNOD, MKDIR, CREATE):
        print('touched', flush=True)
    os.write(fuse, struct.pack('<IiQ', 16 + len(body), -error, unique) + body)
";

/// SU-4: a database on a network file system is refused before anything is made there.
#[test]
fn a_network_file_system_is_refused_untouched() {
    in_own_mounts(concat!(module_path!(), "::a_network_file_system_is_refused_untouched"), || {
        let place = Place::new();
        let mount = place.folder.join("net");
        fs::create_dir(&mount).unwrap();
        let mut command = program("python3");
        command.args(["-c", NETWORK_FILE_SYSTEM]).arg(&mount).stdout(Stdio::piped());
        let mut elsewhere = command.spawn().unwrap();
        let mut said = BufReader::new(elsewhere.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "mounted", "a FUSE file system needs /dev/fuse");
        let place = place.with_database(&mount.join("data/colibri.db"));
        let ran = place.run(&["call", "server_ping"]);
        elsewhere.kill().unwrap();
        elsewhere.wait().unwrap();
        assert_eq!(ran.code, Some(9), "{ran:?}");
        assert!(ran.stderr.contains("network file system (fuse.sshfs)"), "{ran:?}");
        assert!(ran.stderr.contains("COLIBRI_DB_PATH"), "it says what to do: {ran:?}");
        assert!(said.next().is_none(), "nothing was made on it");
    });
}

/// SU-11, SU-13: a key that is lost while colibri runs degrades its health and is never made anew; with
/// the key back, all is well.
#[test]
fn a_key_lost_while_serving_degrades_health_and_is_not_remade() {
    let place = used();
    let (key, away) = (place.paths().key, place.folder.join("away"));
    let mut client = place.serve("serving");
    assert!(client.call("server_ping").is_ok());
    let mut health = |wanted: &str| {
        // Each is on record itself, so that there is something to sign.
        let told = (0..2000).map(|_| client.call("server_health").envelope["data"].take());
        told.into_iter().find(|health| health["status"] == wanted).unwrap_or_else(|| panic!("never {wanted}"))
    };
    fs::rename(&key, &away).unwrap();
    let degraded = health("degraded");
    assert!(degraded["reasons"][0].as_str().unwrap().contains("is lost"), "{degraded}");
    assert!(!key.exists(), "it was not made anew");
    fs::rename(&away, &key).unwrap();
    health("ok");
    assert!(client.end().0.success());
    place.verify();
}

/// SU-4, CO-6: when a newer colibri migrates the database under a running one, the older one's next
/// call is not run, and says why.
#[test]
fn a_database_migrated_under_a_running_colibri_stops_its_calls() {
    let place = used();
    let mut client = place.serve("older");
    assert!(client.call("server_ping").is_ok());
    set_schema_version(&place, 99);
    for _ in 0..2 {
        let (code, message) = client.call("server_ping").error();
        assert_eq!(code, "AUDIT_ENTER_FAILED");
        assert!(message.contains("schema version 99"), "{message}");
    }
    set_schema_version(&place, colibri::store::SCHEMA_VERSION);
    assert!(client.call("server_ping").is_ok(), "the newer one was taken back");
    assert!(client.end().0.success());
    assert_eq!(place.actions_of("older").len(), 2, "what did not run is not on record");
    place.verify();
}
