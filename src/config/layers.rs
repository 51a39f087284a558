//! Where values come from, and which one counts: flags over environment over files over defaults.
//!
//! Owns: the list of files, reading them within bounds, and what a file that was merely found in the
//! working directory may not say. Must not know: what any value is for.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::domain::merkle::Hash;

use super::Flags;
use super::check::{Weight, check, expectation, join, short, words};
use super::problem::{Origin, Problem, Report};
use super::schema::FILE;
use super::tree::{Field, Node, Source, Span, Tree};
use super::trust::{self, Trusted, Verdict};
use crate::domain::nearest::nearest;

/// One file. Far above any configuration a person keeps, small enough to read at every start.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file of a working directory that is all ours.
pub(super) const PROJECT_FILE: &str = "colibri.json";

/// The file of a working directory that all clients read for its servers.
pub(super) const SHARED_FILE: &str = ".mcp.json";

/// A place where a file is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four answers about one place, none of which follows from another"
)]
pub struct Looked {
    /// Where.
    pub path: PathBuf,
    /// Whether there is one.
    pub found: bool,
    /// Whether it may start programs, and say where and how the record is kept.
    pub trusted: bool,
    /// Whether that is so whatever is in it, and by nobody's word about its bytes.
    #[serde(skip)]
    pub by_place: bool,
    /// Whether only its servers count.
    pub servers_only: bool,
    /// Of its bytes, if there is one.
    #[serde(skip)]
    pub digest: Option<Hash>,
}

/// How a file's bytes are had: from the disk, or from somebody who asks what would be.
pub(super) type Read<'a> = &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>;

/// The places, the strongest first. A file that was asked for is the only one.
pub(super) fn places(
    flags: &Flags,
    env: &BTreeMap<String, String>,
    cwd: &Path,
    home: Option<&Path>,
) -> Vec<Looked> {
    let place = |path: PathBuf, trusted, servers_only| Looked {
        path,
        found: false,
        trusted,
        by_place: trusted,
        servers_only,
        digest: None,
    };
    if let Some(path) = &flags.config {
        return vec![place(cwd.join(path), true, false)];
    }
    let mut places =
        vec![place(cwd.join(PROJECT_FILE), false, false), place(cwd.join(SHARED_FILE), false, true)];
    places.extend(user_file(env, home).map(|path| place(path, true, false)));
    places.push(place(PathBuf::from("/etc/colibri/colibri.json"), true, false));
    places
}

/// The user's own file.
pub(super) fn user_file(env: &BTreeMap<String, String>, home: Option<&Path>) -> Option<PathBuf> {
    Some(user_folder(env, "XDG_CONFIG_HOME", home, ".config")?.join("colibri/colibri.json"))
}

/// A folder of the XDG kind; what is not absolute does not count, as that specification says.
pub(super) fn user_folder(
    env: &BTreeMap<String, String>,
    variable: &str,
    home: Option<&Path>,
    below_home: &str,
) -> Option<PathBuf> {
    let named = env.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| Some(home?.join(below_home)))
}

/// A file that was found and is an object.
pub(super) struct Layer {
    pub source: Source,
    pub trusted: bool,
    /// Whether it was trusted once, and then became another.
    pub changed: bool,
    servers_only: bool,
    pub fields: Vec<Field>,
}

impl Layer {
    /// The file at a place, if there is one; marks the place as found, and as trusted if somebody said so
    /// about these very bytes.
    pub(super) fn read(
        place: &mut Looked,
        must_exist: bool,
        read: Read<'_>,
        trusted: &mut Trusted,
    ) -> Result<Option<Self>, Problem> {
        let bytes = match read(&place.path) {
            Ok(bytes) => bytes,
            Err(error)
                if !must_exist && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => {
                let remedy = "check the path and its permissions";
                return Err(Problem::of_file(&place.path, format!("cannot be read: {error}"), remedy));
            }
        };
        place.found = true;
        let digest = trust::digest(&bytes);
        place.digest = Some(digest);
        let mut changed = false;
        if !place.trusted {
            let verdict = trusted.judge(&place.path, digest);
            place.trusted = verdict == Verdict::Trusted;
            changed = verdict == Verdict::Changed;
        }
        Ok(Some(Self { changed, ..Self::parse(place, bytes)? }))
    }

    /// The bytes of a file as an object.
    pub(super) fn parse(place: &Looked, bytes: Vec<u8>) -> Result<Self, Problem> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let message = format!("longer than {FILE_BYTES_MAX} bytes");
            return Err(Problem::of_file(
                &place.path,
                message,
                "a configuration is shorter; is this the right file?",
            ));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let message = format!("not valid UTF-8 at byte {}", error.utf8_error().valid_up_to());
            Problem::of_file(&place.path, message, "save it as UTF-8")
        })?;
        let source = Source::new(place.path.clone(), text);
        let fields = source.parse()?;
        let Looked { trusted, servers_only, .. } = *place;
        Ok(Self { source, trusted, changed: false, servers_only, fields })
    }

    /// The entries of `mcpServers`, also spelt `servers`, taken out.
    pub(super) fn take_servers(&mut self, report: &mut Report) -> Vec<Field> {
        let is_servers = |field: &mut Field| matches!(field.name.as_str(), "mcpServers" | "servers");
        let mut servers = Vec::new();
        for field in self.fields.extract_if(.., is_servers) {
            match field.value.tree {
                Tree::Map(fields) => servers.extend(fields),
                Tree::Null => {}
                _ => {
                    let message = format!("`{}`: expected an object, server by server", field.name);
                    let remedy = "write `{ \"name\": { \"command\": … } }`";
                    report.error(self.source.problem(field.value.span, None, message, remedy));
                }
            }
        }
        servers
    }
}

/// A key as a path: `["audit", "durability"]`.
pub(super) type Key = Vec<String>;

/// A value, and who said so.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub value: Value,
    pub origin: Origin,
    trusted: bool,
}

/// The values that somebody set, each from the strongest that did.
#[derive(Default)]
pub(super) struct Values(BTreeMap<Key, Found>);

impl Values {
    pub(super) fn get(&self, key: &[String]) -> Option<&Found> {
        self.0.get(key)
    }

    /// All values as one object, for the structs of `keys`.
    pub(super) fn to_json(&self) -> Value {
        let mut all = serde_json::Map::new();
        for (key, found) in &self.0 {
            match key.as_slice() {
                [group, name] => {
                    let group =
                        all.entry(group.clone()).or_insert_with(|| Value::Object(serde_json::Map::new()));
                    group[name.as_str()] = found.value.clone();
                }
                key => {
                    all.insert(key.concat(), found.value.clone());
                }
            }
        }
        Value::Object(all)
    }

    /// Takes what flags and environment say. They come before any file.
    pub(super) fn add_process(&mut self, flags: &Flags, env: &BTreeMap<String, String>, report: &mut Report) {
        for setting in settings() {
            let from_flag = flags.get(setting.key).map(|text| (text, Origin::Flag(setting.flag)));
            let from_env = env.get(setting.env).map(|text| (text.clone(), Origin::Env(setting.env)));
            let Some((text, origin)) = from_flag.or(from_env) else { continue };
            let place = if let Origin::Flag(name) | Origin::Env(name) = origin { name } else { setting.key };
            match setting.parse(&text) {
                Ok(value) => {
                    self.add(vec![setting.key.to_owned()], Found { value, origin, trusted: true }, report);
                }
                Err((message, remedy)) => report.error(Problem::new(place, message, remedy)),
            }
        }
    }

    /// Takes what a file says, except its servers.
    pub(super) fn add_file(&mut self, layer: &Layer, report: &mut Report) {
        if layer.servers_only {
            return;
        }
        let source = &layer.source;
        let root = Node { span: Span { start: 0, end: 0 }, tree: Tree::Map(layer.fields.clone()) };
        for finding in check(&FILE, &root, "") {
            // An unknown top-level key, however spelt, widens nothing: it is told and ignored.
            let is_wrong = finding.weight == Weight::Wrong;
            let problem =
                || source.problem(finding.span, Some(finding.span), finding.message, finding.remedy);
            if is_wrong { report.error_with(problem) } else { report.warn_with(problem) }
        }
        for field in layer.fields.iter().filter(|field| field.value.tree != Tree::Null) {
            let Some(known) = FILE["properties"].get(&field.name) else { continue };
            if known["x-trusted"] == true && !layer.trusted {
                let message = format!(
                    "`{}` is ignored: a file found in the working directory may not set it",
                    field.name
                );
                let remedy = "move it to the user's file, or name this file with --config";
                report.warn(Problem::new(source.place(field.name_span), message, remedy));
                continue;
            }
            for (key, span, node) in leaves(field) {
                let found =
                    Found { value: node.to_json(), origin: source.origin(span), trusted: layer.trusted };
                self.add(key, found, report);
            }
        }
    }

    /// The first one counts, as they come strongest first; but an untrusted file cannot widen the
    /// mode that the strongest trusted one has narrowed.
    fn add(&mut self, key: Key, found: Found, report: &mut Report) {
        let Some(stronger) = self.0.get_mut(&key) else {
            self.0.insert(key, found);
            return;
        };
        if key != ["mode"] || stronger.trusted || !found.trusted {
            return;
        }
        if width(&found.value) < width(&stronger.value) {
            let message =
                format!("`mode` {} is ignored: {} says {}", stronger.value, found.origin, found.value);
            let remedy = "use --mode or COLIBRI_MODE to widen it";
            report.warn(Problem::new(stronger.origin.to_string(), message, remedy));
            *stronger = found;
        } else {
            stronger.trusted = true;
        }
    }
}

fn width(mode: &Value) -> u8 {
    match mode.as_str() {
        Some("MINIMAL") => 0,
        Some("READONLY") => 1,
        _ => 2,
    }
}

/// The values of a field: itself, or one level down, so that two files can each set one of a group.
fn leaves(field: &Field) -> Vec<(Key, Span, &Node)> {
    match &field.value.tree {
        Tree::Map(inner) => inner
            .iter()
            .filter(|inner| inner.value.tree != Tree::Null)
            .map(|inner| (vec![field.name.clone(), inner.name.clone()], inner.name_span, &inner.value))
            .collect(),
        _ => vec![(vec![field.name.clone()], field.name_span, &field.value)],
    }
}

/// A key that has a variable and a flag.
pub(super) struct Setting {
    key: &'static str,
    env: &'static str,
    flag: &'static str,
    schema: &'static Value,
}

/// All of them, as the structs of `keys` declare them.
pub(super) fn settings() -> impl Iterator<Item = Setting> {
    FILE["properties"].as_object().into_iter().flatten().filter_map(|(key, schema)| {
        let (env, flag) = (schema["x-env"].as_str()?, schema["x-flag"].as_str()?);
        Some(Setting { key, env, flag, schema })
    })
}

impl Setting {
    fn parse(&self, text: &str) -> Result<Value, (String, String)> {
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let tree = match self.schema["type"].as_str() {
            Some("integer") if is_digits => Tree::Number(text.trim_start_matches('0').to_owned()),
            // Levels are commonly written either way; modes are not.
            _ if self.key == "log" => Tree::Text(text.to_ascii_lowercase()),
            _ => Tree::Text(text.to_owned()),
        };
        let node = Node { span: Span { start: 0, end: 0 }, tree };
        match check(self.schema, &node, self.key).into_iter().next() {
            None if text.contains('\u{fffd}') => {
                Err(("not valid UTF-8".into(), "change it, or unset it".into()))
            }
            None => Ok(node.to_json()),
            Some(finding) if !words(self.schema).is_empty() => Err((finding.message, finding.remedy)),
            Some(_) => {
                let message = format!("expected {}, found `{}`", expectation(self.schema), short(text));
                Err((message, "change it, or unset it for the default".into()))
            }
        }
    }
}

/// Complains about variables that look like ours but are not, and refuses those of the ancestor.
pub(super) fn check_variables(env: &BTreeMap<String, String>, report: &mut Report) {
    let known: Vec<&str> = settings().map(|setting| setting.env).collect();
    let ancestor: Vec<&str> =
        env.keys().map(String::as_str).filter(|name| name.starts_with("AMS_")).collect();
    if !ancestor.is_empty() {
        let message = "variables named AMS_* are not read by colibri";
        let remedy = format!("unset them and use {}", known.join(", "));
        report.error(Problem::new(ancestor.join(", "), message, remedy));
    }
    for name in env.keys().filter(|name| name.starts_with("COLIBRI_") && !known.contains(&name.as_str())) {
        let remedy = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", known.join(", ")),
        };
        report.warn(Problem::new(name.as_str(), "unknown variable, ignored", remedy));
    }
}

/// A key for people.
pub(super) fn shown(key: &[String]) -> String {
    key.iter().fold(String::new(), |path, name| join(&path, name))
}
