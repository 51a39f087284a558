//! The real surroundings: environment, working directory, user.
//!
//! Owns: the only reading of the process's environment in colibri. Everything else in `config` gets
//! it as an argument.

use std::io::Read;
use std::path::PathBuf;

use super::problem::{ConfigError, Problem};
use super::{Flags, Loaded, load};

/// More users than this are not in a file.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// The configuration of this process.
#[expect(clippy::disallowed_methods, reason = "config/ reads the environment, here and nowhere else")]
pub fn from_process(flags: &Flags) -> Result<Loaded, ConfigError> {
    // What is not text becomes text that no key accepts, so that it is complained about, not lost.
    let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let env = std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect();
    let cwd = std::env::current_dir().map_err(|error| {
        Problem::new("the working directory", format!("cannot be found: {error}"), "start colibri elsewhere")
    })?;
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.or_else(|| Some(passwd()?.home));
    load(flags, &env, &cwd, home.as_deref())
}

/// The operating-system user colibri runs as: `name(1000)`, or `uid:1000` if it has no name.
pub fn os_user() -> String {
    let uid = rustix::process::getuid().as_raw();
    match passwd() {
        Some(user) => format!("{}({uid})", user.name),
        None => format!("uid:{uid}"),
    }
}

struct User {
    name: String,
    home: PathBuf,
}

/// This user's line of `/etc/passwd`.
fn passwd() -> Option<User> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let mut text = Vec::new();
    std::fs::File::open("/etc/passwd").ok()?.take(PASSWD_BYTES_MAX).read_to_end(&mut text).ok()?;
    String::from_utf8_lossy(&text).lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields.as_slice() {
            [name, _, id, _, _, home, ..] if *id == uid => {
                Some(User { name: (*name).to_owned(), home: PathBuf::from(home) })
            }
            _ => None,
        }
    })
}
