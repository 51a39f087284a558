//! What a file would do once it is trusted, for the person who decides.
//!
//! Owns: that everything a file could ever start is shown, as it is written: also what is turned off or
//! lacks a variable today. Values of variables and headers are left out.
//! Must not know: how it is shown, or what is decided.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::check::{Weight, check};
use super::dialect;
use super::expand::asked_for;
use super::layers::{Layer, Looked, PROJECT_FILE, SHARED_FILE};
use super::problem::{ConfigError, Problem, Report};
use super::schema::{self, FILE};
use super::tree::{Field, Node, Tree};
use super::trust::{self, TrustedFile};

/// Variables by which an environment decides what code runs in a program: what its loader or interpreter takes in
/// first, and where packages are fetched from. An entry that ends in `_` stands for all that begin so.
const LOADERS: &[&str] = &[
    "LD_",
    "DYLD_",
    "GCONV_PATH",
    "PATH",
    "BASH_ENV",
    "ENV",
    "SHELL",
    "PROMPT_COMMAND",
    "IFS",
    "EDITOR",
    "PAGER",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NPM_CONFIG_",
    "BUN_",
    "DENO_",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PIP_",
    "UV_",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYLIB",
    "RUBYOPT",
    "GEM_",
    "BUNDLE_",
    "LUA_PATH",
    "LUA_CPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "CLASSPATH",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "DOTNET_",
    "CORECLR_",
    "GOFLAGS",
    "RUSTC_WRAPPER",
    "GIT_",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
];

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
    /// Which of your variables are filled in, and where: by name, the places such as `headers.Authorization`.
    pub variables: BTreeMap<String, Vec<String>>,
    /// Those of `env` that decide what code the program runs, or where it gets it.
    pub loaders: Vec<String>,
    /// How it is signed in to, without the secret.
    pub oauth: Option<Value>,
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
    let path = PathBuf::from(path);
    let looked = Looked { path, found: true, trusted: true, by_place: true, servers_only, digest: None };
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
    shown.variables = variables(&node);
    shown.loaders = shown.env.iter().filter(|name| is_loader(name)).cloned().collect();
    shown.oauth = node.get("oauth").map(oauth);
    shown.sandbox = node.get("sandbox").map(Node::to_json);
    shown.disabled = node.get("disabled").is_some_and(|disabled| disabled.tree == Tree::Bool(true));
    shown
}

/// Where variables of the person who trusts are filled in: only there, so what is written elsewhere is text.
fn variables(node: &Node) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut look = |place: &dyn Fn() -> String, node: &Node| {
        for name in node.text().into_iter().flat_map(asked_for) {
            let places = found.entry(name.to_owned()).or_default();
            let place = place();
            if !places.contains(&place) {
                places.push(place);
            }
        }
    };
    for key in ["command", "args", "cwd", "envFile", "url", "env", "headers", "oauth"] {
        let Some(value) = node.get(key) else { continue };
        look(&|| key.to_owned(), value);
        match &value.tree {
            Tree::List(items) => items.iter().for_each(|item| look(&|| key.to_owned(), item)),
            Tree::Map(fields) => {
                for Field { name, value, .. } in fields {
                    look(&|| format!("{key}.{name}"), value);
                }
            }
            _ => {}
        }
    }
    found
}

fn is_loader(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let is_it = |known: &&str| if known.ends_with('_') { name.starts_with(known) } else { name == *known };
    LOADERS.iter().any(is_it)
}

fn oauth(node: &Node) -> Value {
    let mut told = node.to_json();
    if let Some(secret) = told.get_mut("clientSecret") {
        *secret = "(not shown)".into();
    }
    told
}
