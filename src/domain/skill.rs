//! Skills: what a `SKILL.md` says, read leniently for those who use it and strictly for its author.
//!
//! Owns: the format (YAML frontmatter, then Markdown), its rules, what a finding about a file is, and
//! in which folders skills are looked for. Must not know: how a file is read, or who lists skills.

mod rules;
pub mod uri;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::log::visible;
use super::merkle::Hash;

/// The file that makes a folder a skill.
pub const FILE: &str = "SKILL.md";

/// A frontmatter is read whole into memory and shown in lists.
pub const FRONTMATTER_BYTES_MAX: usize = 64 << 10;

/// More findings about one file than this help nobody.
pub const FINDINGS_MAX: usize = 20;

/// A skill, as far as its frontmatter tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    /// What it is called by. One line, nothing hidden in it, but perhaps not what the format allows.
    pub name: String,
    /// What it does and when to use it; cut to what the format allows.
    pub description: String,
    /// Its version, however it was written.
    pub version: Option<String>,
    /// What it says it needs to be able to do.
    pub capabilities: Vec<String>,
    /// Every field the author wrote, as JSON.
    pub frontmatter: Map<String, Value>,
    /// Whether another program that keeps to the format reads the same from it.
    pub is_sound: bool,
}

/// One thing to say about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub weight: Weight,
    /// Where, counted from 1, if that is known.
    pub line: Option<u32>,
    /// What, and what to do.
    pub message: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Only whoever validates wants to know.
    Strict,
    /// The skill is used nevertheless.
    Warning,
    /// There is no skill to use.
    Error,
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is not used.
    Error,
    /// It is, but somebody should look.
    Warning,
}

/// A finding, and where it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(inline)]
pub struct Diagnostic {
    /// The file or folder, with what could not be seen made visible.
    pub path: String,
    /// The line, counted from 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Whose folder a skill was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The working directory's.
    Project,
    /// One that the configuration names.
    Configured,
    /// The user's own.
    User,
}

impl Source {
    /// Its name, as it stands in lists and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Configured => "configured",
            Self::User => "user",
        }
    }
}

/// Where skills are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The working directory.
    pub project: Option<PathBuf>,
    /// Further folders, from the configuration.
    pub configured: Vec<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
}

/// A folder that may hold skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is.
    pub source: Source,
    /// What a link at `path` must not lead out of; a cloned repository chooses what it links to.
    pub within: Option<PathBuf>,
}

/// Ours, the one that clients share, and the one that many people already have.
const FOLDERS: [&str; 3] = [".colibri/skills", ".agents/skills", ".claude/skills"];

impl Places {
    /// The folders, the strongest first: a skill found in one hides those of its name in the others.
    pub fn roots(&self) -> Vec<Root> {
        let below = |base: &PathBuf, source, within: Option<&PathBuf>| {
            FOLDERS.map(|folder| Root { path: base.join(folder), source, within: within.cloned() })
        };
        let project = self.project.iter().flat_map(|base| below(base, Source::Project, Some(base)));
        let configured = self.configured.iter().cloned();
        let configured = configured.map(|path| Root { path, source: Source::Configured, within: None });
        let user = self.home.iter().flat_map(|base| below(base, Source::User, None));
        project.chain(configured).chain(user).collect()
    }
}

/// Reads a `SKILL.md` for use: whatever can be made sense of is, and the rest is told. `folder` is
/// the name of the folder it lies in.
pub fn load(text: &str, folder: &str) -> (Option<Skill>, Vec<Finding>) {
    let (skill, mut findings) = read(text, folder);
    findings.retain(|finding| finding.weight > Weight::Strict);
    findings.truncate(FINDINGS_MAX);
    (skill, findings)
}

/// Everything in which a `SKILL.md` departs from the Agent Skills format.
pub fn validate(text: &str, folder: &str) -> Vec<Finding> {
    let (_, mut findings) = read(text, folder);
    findings.truncate(FINDINGS_MAX);
    findings
}

fn read(text: &str, folder: &str) -> (Option<Skill>, Vec<Finding>) {
    let yaml = match split(text) {
        Ok((yaml, _)) => yaml,
        Err(finding) => return (None, vec![finding]),
    };
    let mut findings = Vec::new();
    let frontmatter = match parse(yaml) {
        Ok(frontmatter) => frontmatter,
        Err(broken) => match repair(yaml).and_then(|(line, mended)| Some((line, parse(&mended).ok()?))) {
            Some((line, frontmatter)) => {
                let message = "a value with a colon in it is not quoted: put it in quotes";
                findings.push(Finding::warning(Some(line), message));
                frontmatter
            }
            None => return (None, vec![broken]),
        },
    };
    findings.extend(rules::check(&frontmatter, yaml));
    // What follows is true of the place, not of the text, so it does not make the skill unsound.
    let is_sound = findings.iter().all(|finding| finding.weight == Weight::Strict);
    findings.extend(rules::check_folder(&frontmatter, yaml, folder));
    let skill = if findings.iter().any(|finding| finding.weight == Weight::Error) {
        None
    } else {
        rules::skill(frontmatter, yaml, is_sound)
    };
    (skill, findings)
}

/// The frontmatter and the body of a file; the frontmatter begins on line 2.
pub fn split(text: &str) -> Result<(&str, &str), Finding> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let opening = lines.next().unwrap_or_default();
    if opening.trim_end() != "---" {
        let message = "it does not begin with `---`: the frontmatter, with name and description, is missing";
        return Err(Finding::error(Some(1), message));
    }
    let mut end = opening.len();
    for line in lines {
        if line.trim_end() == "---" {
            let yaml = &text[opening.len()..end];
            return Ok((yaml, &text[end + line.len()..]));
        }
        end += line.len();
        if end > FRONTMATTER_BYTES_MAX {
            let message = format!("its frontmatter is longer than {FRONTMATTER_BYTES_MAX} bytes");
            return Err(Finding::error(Some(1), message));
        }
    }
    Err(Finding::error(Some(1), "its frontmatter has no end: write `---` on a line of its own after it"))
}

fn parse(yaml: &str) -> Result<Map<String, Value>, Finding> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::AsOrdinary,
        // An alias repeats what it names: a page of them is a gigabyte, and no skill needs one.
        budget: serde_saphyr::budget! { max_depth: 16, max_aliases: 0, max_nodes: 10_000 },
    };
    // The empty line stands for the opening `---`, so that the parser counts lines as people do.
    let yaml = format!("\n{yaml}");
    let value: Value = serde_saphyr::from_str_with_options(&yaml, options).map_err(|error| {
        let line = error.location().and_then(|place| u32::try_from(place.line()).ok());
        let words = error.to_string();
        let words = visible(words.lines().next().unwrap_or_default());
        Finding::error(line, format!("its frontmatter is not valid YAML: {words}"))
    })?;
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(Finding::error(Some(2), "its frontmatter is not a list of `key: value` lines")),
    }
}

/// The classic mistake, `description: Use this: when …`, mended by quoting; and where it was.
fn repair(yaml: &str) -> Option<(u32, String)> {
    let mut first = None;
    let mut mended = Vec::new();
    for (number, line) in (2..).zip(yaml.lines()) {
        if let Some((key, value)) = unquoted(line) {
            first.get_or_insert(number);
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            mended.push(format!("{key}: \"{value}\"\n"));
        } else {
            mended.push(format!("{line}\n"));
        }
    }
    first.map(|line| (line, mended.concat()))
}

/// A top-level `key: value` whose plain value has a colon that YAML takes for another key.
fn unquoted(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let value = value.trim();
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let is_plain = !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#']);
    let has_colon = value.contains(": ") || value.ends_with(':');
    (is_key && is_plain && has_colon).then_some((key, value))
}

/// What `sha256sum` prints for a skill's files in the order of their paths, hashed once more: anyone
/// can make it again with a shell.
pub fn digest<'a>(files: impl IntoIterator<Item = (&'a str, Hash)>) -> Hash {
    let mut whole = Sha256::new();
    for (path, digest) in files {
        whole.update(format!("{digest}  {path}\n"));
    }
    Hash(whole.finalize().into())
}

impl Finding {
    fn error(line: Option<u32>, message: impl Into<String>) -> Self {
        Self { weight: Weight::Error, line, message: message.into() }
    }

    fn warning(line: Option<u32>, message: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, line, message: message.into() }
    }

    fn strict(line: Option<u32>, message: impl Into<String>) -> Self {
        Self { weight: Weight::Strict, line, message: message.into() }
    }

    /// The same, said of a file.
    pub fn at(self, path: &str) -> Diagnostic {
        let severity = if self.weight == Weight::Error { Severity::Error } else { Severity::Warning };
        Diagnostic { path: visible(path), line: self.line, severity, message: self.message }
    }
}

#[cfg(test)]
mod tests;
