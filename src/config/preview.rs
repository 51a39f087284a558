//! What a file would do once it is trusted, for the person who decides.
//!
//! Owns: that everything a file could ever start is shown, as it is written: also what is turned off or
//! lacks a variable today. Values of variables and headers are left out.
//! Must not know: how it is shown, or what is decided.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::check::{Weight, check};
use super::dialect;
use super::layers::{Layer, Looked, PROJECT_FILE, SHARED_FILE};
use super::problem::{ConfigError, Problem, Report};
use super::schema::{self, FILE};
use super::tree::{Field, Node, Tree};
use super::trust::{self, TrustedFile};

/// What a file would do.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The very bytes that this is about, for [`super::TrustRecord::add`].
    pub file: TrustedFile,
    /// The servers it names, in file order.
    pub servers: Vec<PreviewedServer>,
    /// What else only a trusted file may say: a key, and its value.
    pub settings: Vec<(String, Value)>,
}

/// A server as a file has it, without values that may be secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedServer {
    /// Its name.
    pub name: String,
    /// The program and its arguments, as they are written.
    pub command: Vec<String>,
    /// Its address, as it is written. It may hold a password.
    #[serde(skip)]
    pub url: Option<String>,
    /// The folder it is started in.
    pub cwd: Option<String>,
    /// The names of the variables it gets.
    pub env: Vec<String>,
    /// The file with more of them.
    pub env_file: Option<String>,
    /// The names of the headers that are sent to it.
    pub headers: Vec<String>,
    /// What it says about its sandbox.
    pub sandbox: Option<Value>,
    /// Whether it is turned off.
    pub disabled: bool,
    /// Why it cannot be started as it is written.
    pub wrong: Option<String>,
}

/// Reads a file once, and says what it would do.
pub fn preview(path: &Path) -> Result<Preview, ConfigError> {
    let servers_only = path.file_name().is_some_and(|name| name == SHARED_FILE);
    if !servers_only && path.file_name().is_none_or(|name| name != PROJECT_FILE) {
        let message = format!("only {PROJECT_FILE} and {SHARED_FILE} are looked for in a working directory");
        let remedy = "a file that is named with --config needs no trust";
        return Err(Problem::of_file(path, message, remedy).into());
    }
    let (place, bytes) = trust::read_once(path)?;
    let file = TrustedFile { path: place, digest: trust::digest(&bytes) };
    let looked = Looked { path: PathBuf::from(path), found: true, trusted: true, servers_only, digest: None };
    let mut layer = Layer::parse(&looked, bytes)?;
    let mut report = Report::default();
    let servers = layer.take_servers(&mut report);
    report.finish()?;
    let servers = servers.into_iter().map(server).collect();
    let settings = if servers_only { Vec::new() } else { settings(&layer.fields) };
    Ok(Preview { file, servers, settings })
}

/// The keys that count from a trusted file alone, and the mode, which such a file may also widen.
fn settings(fields: &[Field]) -> Vec<(String, Value)> {
    let is_told = |field: &&Field| {
        let known = &FILE["properties"][field.name.as_str()];
        field.value.tree != Tree::Null && (known["x-trusted"] == true || field.name == "mode")
    };
    fields.iter().filter(is_told).map(|field| (field.name.clone(), field.value.to_json())).collect()
}

fn server(field: Field) -> PreviewedServer {
    let Field { name, value, .. } = field;
    let mut shown = PreviewedServer { name, ..PreviewedServer::default() };
    let Tree::Map(fields) = value.tree else {
        shown.wrong = Some("expected an object".to_owned());
        return shown;
    };
    let node = match dialect::fold(fields) {
        Ok(fields) => Node { span: value.span, tree: Tree::Map(fields) },
        Err(wrong) => {
            shown.wrong = Some(wrong);
            return shown;
        }
    };
    let wrong = check(schema::server(), &node, "").into_iter().find(|found| found.weight != Weight::Stranger);
    shown.wrong = wrong.map(|found| found.message);
    let text = |key: &str| node.get(key).and_then(Node::text).map(ToOwned::to_owned);
    let names = |key: &str| match node.get(key).map(|node| &node.tree) {
        Some(Tree::Map(fields)) => fields.iter().map(|field| field.name.clone()).collect(),
        _ => Vec::new(),
    };
    let args = match node.get("args").map(|node| &node.tree) {
        Some(Tree::List(items)) => items.iter().filter_map(Node::text).map(ToOwned::to_owned).collect(),
        _ => Vec::new(),
    };
    shown.command = text("command").into_iter().chain(args).collect();
    shown.url = text("url");
    shown.cwd = text("cwd");
    shown.env = names("env");
    shown.env_file = text("envFile");
    shown.headers = names("headers");
    shown.sandbox = node.get("sandbox").map(Node::to_json);
    shown.disabled = node.get("disabled").is_some_and(|disabled| disabled.tree == Tree::Bool(true));
    shown
}
