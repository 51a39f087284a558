//! Changing the servers of a file, with everything else in it left as it is: comments, order, blanks.
//!
//! Owns: the edit, that the result was read by the real reader before it is written, and that a person's own
//! change does not cost a file the trust it had.
//! Must not know: what people typed, or what they are told.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

use super::files::{self, hold_folder_of, make_folder_of, replace};
use super::layers::{FILE_BYTES_MAX, Layer, Looked, PROJECT_FILE, user_file};
use super::problem::{ConfigError, Problem};
use super::process::Surroundings;
use super::schema::ID;
use super::servers::State;
use super::tree::SYNTAX;
use super::trust::{TrustRecord, Trusted, TrustedFile, Verdict, digest};
use super::{Flags, load_from};

/// Whose file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The user's own: `colibri/colibri.json` in the configuration directory.
    User,
    /// The working directory's: `colibri.json`.
    Project,
}

/// A file whose servers are about to be changed.
pub struct Editor {
    around: Surroundings,
    /// As it is called, for people.
    path: PathBuf,
    /// What is replaced: the end of a symbolic link, not the link.
    place: PathBuf,
    before: Option<String>,
    record: Option<TrustRecord>,
    /// Whether the result is to be trusted: it was before, or is all of the person's own making.
    keeps_trust: bool,
}

impl Editor {
    /// Reads the file named by `--config`, or that of a scope. It need not be there.
    pub fn open(flags: &Flags, around: Surroundings, scope: Scope) -> Result<Self, ConfigError> {
        let path = match (&flags.config, scope) {
            (Some(path), _) => around.cwd.join(path),
            (None, Scope::Project) => around.cwd.join(PROJECT_FILE),
            (None, Scope::User) => user_file(&around.env, around.home.as_deref()).ok_or_else(|| {
                let message = "there is no home directory, so there is no place for the user's file";
                Problem::new("HOME", message, "set HOME or XDG_CONFIG_HOME, or name a file with --config")
            })?,
        };
        let record = TrustRecord::find(flags, &around.env, &around.cwd, around.home.as_deref());
        // Another's change is one with the trust it hands on; half of it would look like a stranger's.
        let _alone = hold_folder_of(&std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone())).ok();
        let (place, bytes) = match std::fs::canonicalize(&path) {
            Ok(place) => {
                (place.clone(), Some(files::read(&place, FILE_BYTES_MAX).map_err(unreadable(&path))?))
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => (path.clone(), None),
            Err(error) => return Err(unreadable(&path)(error).into()),
        };
        let is_new_here = bytes.is_none() && flags.config.is_none() && scope == Scope::Project;
        let was_trusted = bytes.as_ref().is_some_and(|bytes| {
            Trusted::new(record.clone()).judge(&place, digest(bytes)) == Verdict::Trusted
        });
        let mut editor =
            Self { around, path, place, before: None, record, keeps_trust: is_new_here || was_trusted };
        if let Some(bytes) = bytes {
            // Only a file that can be read can be changed with care; the reader says what is wrong with it.
            Layer::parse(&editor.looked(), bytes.clone())?;
            editor.before = Some(String::from_utf8(bytes).expect("the reader has found it to be UTF-8"));
        }
        Ok(editor)
    }

    /// The file, as it is called.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has a server of this name.
    pub fn has(&self, name: &str) -> bool {
        self.before
            .as_ref()
            .is_some_and(|text| parse(text).is_ok_and(|root| !entries(&root, name).is_empty()))
    }

    /// Adds a server, or puts it in the place of the one of that name. Its entry must be one that can be
    /// used, given the variables it names.
    pub fn put(&self, name: &str, entry: &[(&str, Value)]) -> Result<Edited<'_>, ConfigError> {
        let fresh = format!("{{\n  \"$schema\": \"{ID}\",\n  \"mcpServers\": {{}}\n}}\n");
        let fields = entry.iter().map(|(key, value)| ((*key).to_owned(), input(value)));
        let fields = CstInputValue::Object(fields.collect());
        let after = self.edited(self.before.as_deref().unwrap_or(&fresh), |root| {
            match entries(root, name).into_iter().next() {
                Some(known) => known.set_value(fields),
                None => drop(servers_of(root)?.append(name, fields)),
            }
            Some(())
        })?;
        match self.state_of(name, &after, &variables_of(entry))? {
            Some(State::Ready(_)) => Ok(Edited { editor: self, after }),
            Some(State::Disabled { reason, .. }) => Err(self.refused(&reason)),
            None => Err(self.refused("the entry would not be read")),
        }
    }

    /// Takes a server out.
    pub fn remove(&self, name: &str) -> Result<Edited<'_>, ConfigError> {
        let after = self.edited(self.before.as_deref().unwrap_or_default(), |root| {
            entries(root, name).into_iter().for_each(CstObjectProp::remove);
            Some(())
        })?;
        match self.state_of(name, &after, &BTreeMap::new())? {
            None => Ok(Edited { editor: self, after }),
            Some(_) => Err(self.refused("the entry would still be there")),
        }
    }

    fn edited(
        &self,
        text: &str,
        edit: impl FnOnce(&CstRootNode) -> Option<()>,
    ) -> Result<String, ConfigError> {
        let root = parse(text).map_err(|()| self.refused("it cannot be changed with care"))?;
        edit(&root).ok_or_else(|| self.refused("`mcpServers` is not an object"))?;
        // A byte order mark is an editor's habit, and stays.
        let mark = if text.starts_with('\u{feff}') { "\u{feff}" } else { "" };
        Ok(format!("{mark}{root}"))
    }

    /// What the real reader makes of a server in a text that is not written yet, with these variables set.
    fn state_of(
        &self,
        name: &str,
        after: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<Option<State>, ConfigError> {
        let Surroundings { env, cwd, home } = &self.around;
        let mut all = variables.clone();
        all.extend(env.clone());
        let flags = Flags { config: Some(self.path.clone()), ..Flags::default() };
        let loaded = load_from(&|_| Ok(after.as_bytes().to_vec()), &flags, &all, cwd, home.as_deref())?;
        let found = loaded.config.servers.into_iter().find(|server| server.name == name);
        Ok(found.map(|server| server.state))
    }

    fn looked(&self) -> Looked {
        let path = self.path.clone();
        Looked { path, found: true, trusted: true, by_place: true, servers_only: false, digest: None }
    }

    fn refused(&self, why: &str) -> ConfigError {
        Problem::of_file(&self.path, format!("not changed: {why}"), "").into()
    }
}

/// A changed file that is not written yet.
#[must_use = "nothing is changed before it is saved"]
pub struct Edited<'a> {
    editor: &'a Editor,
    after: String,
}

impl Edited<'_> {
    /// Replaces the file, at once or not at all, and hands on its trust. Tells whether it is on record as
    /// trusted.
    pub fn save(self) -> Result<bool, ConfigError> {
        let Editor { path, place, before, record, keeps_trust, .. } = self.editor;
        let failed = |error: std::io::Error| {
            let remedy = "check its permissions and those of its folder";
            Problem::of_file(path, format!("cannot be written: {error}"), remedy)
        };
        make_folder_of(place).map_err(failed)?;
        // Some network file systems have no locks; there, the look below is all there is.
        let _alone = hold_folder_of(place).ok();
        let now = match files::read(place, FILE_BYTES_MAX) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(path)(error).into()),
        };
        if now.as_deref() != before.as_ref().map(String::as_bytes) {
            let message = "somebody else changed it at the same time, so it was left alone";
            return Err(Problem::of_file(path, message, "try again").into());
        }
        replace(place, self.after.as_bytes()).map_err(failed)?;
        let Some(record) = record.as_ref().filter(|_| *keeps_trust) else { return Ok(false) };
        let path = std::fs::canonicalize(place).map_err(failed)?;
        record.add(TrustedFile { path, digest: digest(self.after.as_bytes()) })?;
        Ok(true)
    }
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> Problem {
    move |error| {
        let remedy = "check the path and its permissions";
        Problem::of_file(path, format!("cannot be read: {error}"), remedy)
    }
}

fn parse(text: &str) -> Result<CstRootNode, ()> {
    CstRootNode::parse(text.trim_start_matches('\u{feff}'), &SYNTAX).map_err(drop)
}

/// Every entry of this name, in file order: the first one counts.
fn entries(root: &CstRootNode, name: &str) -> Vec<CstObjectProp> {
    let is_named = |entry: &CstObjectProp| entry.decoded_name().as_deref() == Some(name);
    maps(root).iter().flat_map(CstObject::properties).filter(is_named).collect()
}

/// `mcpServers`, also spelt `servers`.
fn maps(root: &CstRootNode) -> Vec<CstObject> {
    let is_map = |field: &CstObjectProp| {
        field.decoded_name().is_some_and(|name| matches!(name.as_str(), "mcpServers" | "servers"))
    };
    let fields = root.object_value().map(|object| object.properties()).unwrap_or_default();
    fields.into_iter().filter(is_map).filter_map(|field| field.value()?.as_object()).collect()
}

/// Where a new server goes: the map that is there, or a new one.
fn servers_of(root: &CstRootNode) -> Option<CstObject> {
    if let Some(map) = maps(root).into_iter().next() {
        return Some(map);
    }
    let object = root.object_value_or_create()?;
    let is_null = |field: CstObjectProp| field.value().is_some_and(|value| value.as_null_keyword().is_some());
    if object.get("mcpServers").is_some_and(is_null) {
        // `null` says the same as nothing.
        return Some(object.object_value_or_set("mcpServers"));
    }
    object.object_value_or_create("mcpServers")
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

/// A value for every variable that an entry names: one that is not set today makes no entry wrong.
fn variables_of(entry: &[(&str, Value)]) -> BTreeMap<String, String> {
    let text: String = entry.iter().map(|(_, value)| value.to_string()).collect();
    let named = text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    let named = named.map(|inner| inner.strip_prefix("env:").unwrap_or(inner));
    let named = named.filter_map(|inner| inner.split(":-").next());
    // Our own are read as settings, and are right or wrong by themselves.
    let others = named.filter(|name| !name.starts_with("COLIBRI_") && !name.starts_with("AMS_"));
    others.map(|name| (name.to_owned(), "x".to_owned())).collect()
}
