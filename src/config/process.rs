//! The real surroundings: environment, working directory, user.
//!
//! Owns: the only reading of the process's environment in colibri. Everything else in `config` gets
//! it as an argument.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;

use super::expand::Variables;
use super::problem::{ConfigError, Problem};
use super::trust::TrustRecord;
use super::{Flags, Loaded, load};

/// More users than this are not in a file.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// What surrounds this process: all that a configuration depends on beside flags and files.
#[derive(Clone)]
pub struct Surroundings {
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The user's home directory.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    /// The real ones.
    #[expect(clippy::disallowed_methods, reason = "config/ reads the environment, here and nowhere else")]
    pub fn of_process() -> Result<Self, ConfigError> {
        // What is not text becomes text that no key accepts, so that it is complained about, not lost.
        let lossy = |text: OsString| text.to_string_lossy().into_owned();
        let env = std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect();
        let cwd = std::env::current_dir().map_err(|error| {
            let message = format!("cannot be found: {error}");
            Problem::new("the working directory", message, "start colibri elsewhere")
        })?;
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = home.or_else(|| Some(passwd()?.home));
        Ok(Self { env, cwd, home })
    }
}

/// The configuration of this process.
pub fn from_process(flags: &Flags) -> Result<Loaded, ConfigError> {
    let Surroundings { env, cwd, home } = Surroundings::of_process()?;
    load(flags, &env, &cwd, home.as_deref())
}

/// Where this process has trusted files on record, whatever is wrong with them.
pub fn trust_record(flags: &Flags) -> Result<TrustRecord, ConfigError> {
    let Surroundings { env, cwd, home } = Surroundings::of_process()?;
    TrustRecord::find(flags, &env, &cwd, home.as_deref()).ok_or_else(|| {
        let message = "there is no home directory, so there is no place for data";
        Problem::new("HOME", message, "set HOME, XDG_DATA_HOME or COLIBRI_DB_PATH").into()
    })
}

/// One variable, if it is set and is text.
#[expect(clippy::disallowed_methods, reason = "config/ reads the environment, here and nowhere else")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A text of the command line with its variables filled in, so that a secret need not be typed.
#[expect(clippy::disallowed_methods, reason = "config/ reads the environment, here and nowhere else")]
pub fn expand(text: &str) -> Result<String, String> {
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let cwd = std::env::current_dir().unwrap_or_default();
    Variables::new(&env.collect(), &cwd, None).expand(text)
}

/// What a server inherits of colibri's environment: what programs need to find their files, their
/// language and their terminal, and nothing that could be a secret.
const INHERITED: [&str; 14] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

/// Whether a variable is one of these.
pub(super) fn is_plain(name: &str) -> bool {
    INHERITED.contains(&name) || name.starts_with("LC_")
}

/// The part of the environment that a server inherits.
#[expect(clippy::disallowed_methods, reason = "config/ reads the environment, here and nowhere else")]
pub fn inherited_environment() -> Vec<(OsString, OsString)> {
    let is_inherited = |name: &OsString| name.to_str().is_some_and(is_plain);
    std::env::vars_os().filter(|(name, _)| is_inherited(name)).collect()
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
