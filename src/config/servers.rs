//! The servers of all files, checked one by one: a broken entry costs that server and no other.
//!
//! Owns: which entry wins, whose slug is whose, and what a server needs beyond the types of its keys.
//! Must not know: how a server is started or reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use crate::domain::merkle::Hash;

use super::check::{Weight, check, short};
use super::dialect;
use super::env_file;
use super::expand::Variables;
use super::keys::File;
use super::layers::Layer;
use super::problem::{Origin, Problem, Report};
use super::schema;
use super::secret::Secret;
use super::server::{OAuthConfig, OAuthGrant, ServerConfig, Transport};
use super::tree::{Field, Node, Span, Tree};
use super::trust;
use crate::domain::names::slug;

/// Below this a `timeout` was probably meant in seconds, as some clients write it.
const TIMEOUT_MS_SUSPICIOUS: u64 = 1000;

/// Several times what all clients together know.
const SERVER_KEYS_MAX: usize = 256;

/// One configured server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Server {
    /// As the file has it.
    pub name: String,
    /// As it stands before `__` in the names of its tools.
    pub slug: String,
    /// Where it is configured.
    pub origin: Origin,
    /// Whether it may be started. A file found in the working directory is not trusted by itself:
    /// a cloned repository must not run anything.
    pub trusted: bool,
    /// Whether its file was trusted once, and then became another.
    pub changed: bool,
    /// Whether it can be used.
    pub state: State,
}

impl Server {
    /// Why it may not be started, and the command that lets it; nothing if it may.
    pub fn distrust(&self) -> Option<String> {
        let Origin::File { path, .. } = &self.origin else { return None };
        let remedy = trust::command_for(path);
        match (self.trusted, self.changed) {
            (true, _) => None,
            (false, true) => Some(format!("its file changed since it was trusted: {remedy}")),
            (false, false) => {
                Some(format!("its file was found in the working directory and is not trusted: {remedy}"))
            }
        }
    }
}

/// Whether a server can be used.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its entry is sound.
    Ready(Box<ServerConfig>),
    /// It is not used.
    Disabled {
        /// For people.
        reason: String,
        /// Whether something is wrong; otherwise somebody turned it off.
        broken: bool,
    },
}

/// Collects the servers of one file after another, the strongest first.
pub(super) struct Collector<'a> {
    defaults: &'a File,
    variables: Variables<'a>,
    servers: Vec<Server>,
    by_name: BTreeMap<String, usize>,
    /// Every `envFile` that was looked for.
    pub(super) env_files: BTreeMap<PathBuf, Option<Hash>>,
    /// What the environment gave to arguments and addresses.
    pub(super) filled_in: BTreeMap<String, Secret>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(defaults: &'a File, variables: Variables<'a>) -> Self {
        Self {
            defaults,
            variables,
            servers: Vec::new(),
            by_name: BTreeMap::new(),
            env_files: BTreeMap::new(),
            filled_in: BTreeMap::new(),
        }
    }

    /// Takes the servers of one file.
    pub(super) fn add(&mut self, layer: &Layer, fields: Vec<Field>, report: &mut Report) {
        let Layer { source, trusted, changed, .. } = layer;
        for field in fields {
            let (span, name) = (field.name_span, field.name.clone());
            if let Some(stronger) = self.by_name.get(&name) {
                let other = &self.servers[*stronger].origin;
                let message = format!("server `{}` is not used: {other} has one of that name", short(&name));
                report.warn(Problem::new(source.place(span), message, "rename one"));
                continue;
            }
            let state = match self.entry(layer, field, report) {
                Ok(config) => State::Ready(Box::new(config)),
                Err(Unusable::Off) => {
                    State::Disabled { reason: "turned off by `disabled`".to_owned(), broken: false }
                }
                Err(Unusable::Broken(problem)) => {
                    let reason = problem.line();
                    let message = format!("server `{}` is disabled: {}", short(&name), problem.message);
                    report.warn(Problem { message, ..problem });
                    State::Disabled { reason, broken: true }
                }
            };
            let slug = slug(&name).unwrap_or_default();
            self.by_name.insert(name.clone(), self.servers.len());
            let (trusted, changed) = (*trusted, *changed);
            self.servers.push(Server { name, slug, origin: source.origin(span), trusted, changed, state });
        }
    }

    /// All servers, with those disabled whose slug another one has. An untrusted file never takes a
    /// slug from a trusted one.
    pub(super) fn finish(self, report: &mut Report) -> Vec<Server> {
        let mut servers = self.servers;
        let mut order: Vec<usize> = (0..servers.len()).collect();
        order.sort_by_key(|index| !servers[*index].trusted);
        let mut owners: BTreeMap<String, usize> = BTreeMap::new();
        for index in order {
            if !matches!(servers[index].state, State::Ready(_)) {
                continue;
            }
            let Some(owner) = owners.get(&servers[index].slug) else {
                owners.insert(servers[index].slug.clone(), index);
                continue;
            };
            let (server, owner) = (&servers[index], &servers[*owner]);
            let message = format!(
                "server `{}` is disabled: its tools would be named `{}__…` like those of `{}` ({})",
                short(&server.name),
                short(&server.slug),
                short(&owner.name),
                owner.origin
            );
            let problem = Problem::new(server.origin.to_string(), message, "rename one");
            servers[index].state = State::Disabled { reason: problem.line(), broken: true };
            report.warn(problem);
        }
        servers
    }

    fn entry(&mut self, layer: &Layer, field: Field, report: &mut Report) -> Result<ServerConfig, Unusable> {
        let source = &layer.source;
        let Field { name, name_span, value } = field;
        let broken = |span: Span, message: String, remedy: String| {
            Unusable::Broken(Problem::new(source.place(span), message, remedy))
        };
        if slug(&name).is_none() {
            let remedy = "give it at least one letter or digit".to_owned();
            return Err(broken(name_span, "the name cannot stand in a tool's name".to_owned(), remedy));
        }
        let Tree::Map(fields) = value.tree else {
            let remedy = "write `{ \"command\": … }` or `{ \"url\": … }`".to_owned();
            return Err(broken(value.span, "expected an object".to_owned(), remedy));
        };
        if fields.len() > SERVER_KEYS_MAX {
            return Err(broken(value.span, format!("more than {SERVER_KEYS_MAX} keys"), String::new()));
        }
        let fields = dialect::fold(fields).map_err(|message| broken(name_span, message, String::new()))?;
        let node = Node { span: value.span, tree: Tree::Map(fields) };
        if node.get("disabled").is_some_and(|disabled| disabled.tree == Tree::Bool(true)) {
            return Err(Unusable::Off);
        }
        for finding in check(schema::server(), &node, "") {
            if finding.weight != Weight::Stranger {
                return Err(broken(finding.span, finding.message, finding.remedy));
            }
            let message = format!("server `{}`: {}", short(&name), finding.message);
            report.warn(Problem::new(source.place(finding.span), message, finding.remedy));
        }
        let mut config = self.typed(&node).map_err(|message| broken(name_span, message, String::new()))?;
        if let Some(timeout) = node.get("timeout").filter(|_| config.timeout.0 < TIMEOUT_MS_SUSPICIOUS) {
            let message =
                format!("server `{}`: `timeout` is {} milliseconds", short(&name), config.timeout.0);
            let remedy = "if seconds were meant, write three zeros more";
            report.warn(Problem::new(source.place(timeout.span), message, remedy));
        }
        self.settle(&mut config).map_err(|(message, remedy)| broken(name_span, message, remedy))?;
        self.expand(source.path(), &node, &mut config)
            .map_err(|(span, message)| broken(span, message, String::new()))?;
        self.add_env_file(layer, &node, &mut config)?;
        Ok(config)
    }

    /// Puts the variables of its `envFile` under its own. Another's file is not opened because a file that
    /// nobody trusts names it.
    fn add_env_file(
        &mut self,
        layer: &Layer,
        node: &Node,
        config: &mut ServerConfig,
    ) -> Result<(), Unusable> {
        let Some(path) = config.env_file.as_ref().filter(|_| layer.trusted) else { return Ok(()) };
        let path = PathBuf::from(path.value());
        let place = layer.source.place(node.get("envFile").unwrap_or(node).span);
        self.env_files.insert(path.clone(), None);
        let mut all = env_file::read(&path, place.clone()).map_err(Unusable::Broken)?;
        self.env_files.insert(path, Some(env_file::digest(&all)));
        let bytes = all.iter().map(|(name, value)| name.len() + value.expose().len()).sum();
        let charged = self.variables.charge(bytes);
        charged.map_err(|message| Unusable::Broken(Problem::new(place, message, "")))?;
        all.append(&mut config.env);
        config.env = all;
        Ok(())
    }

    fn typed(&self, node: &Node) -> Result<ServerConfig, String> {
        let mut value = node.to_json();
        for name in ["timeout", "connectTimeout"] {
            if value[name].is_null() {
                value[name] = json!(self.defaults.mcp_timeout);
            }
        }
        // The checker has passed it, so this fails only where the two disagree.
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// What the types alone do not say: which keys belong together.
    fn settle(&self, config: &mut ServerConfig) -> Result<(), (String, String)> {
        let transport = match (config.transport, &config.command, &config.url) {
            (_, Some(_), Some(_)) => {
                return Err(("both `command` and `url` are given".into(), "keep one".into()));
            }
            (None | Some(Transport::Stdio), Some(_), None) => Transport::Stdio,
            (None, None, Some(url)) if is_websocket(url.value()) => Transport::Websocket,
            (None, None, Some(_)) => Transport::Http,
            (None, None, None) => {
                return Err(("neither `command` nor `url` is given".into(), "add one".into()));
            }
            (Some(Transport::Stdio), None, _) => {
                return Err(("`type` is stdio, but there is no `command`".into(), "add one".into()));
            }
            (Some(network), None, Some(_)) => network,
            (Some(_), _, None) => {
                return Err(("`type` needs a `url`, but there is none".into(), "add one".into()));
            }
        };
        config.transport = Some(transport);
        check_oauth(&config.oauth)?;
        let queues = config.tools.values().filter_map(|tool| tool.queue.as_ref()).chain([&config.queue]);
        for queue in queues.collect::<BTreeSet<_>>() {
            if queue != "default" && !self.defaults.queues.contains_key(queue) {
                let remedy = format!("add `\"queues\": {{ \"{queue}\": {{ \"concurrent\": 4 }} }}`");
                return Err((format!("queue `{queue}` is not defined"), remedy));
            }
        }
        Ok(())
    }

    /// Fills in the variables, then makes the paths absolute: they are relative to their file.
    fn expand(&mut self, file: &Path, node: &Node, config: &mut ServerConfig) -> Result<(), (Span, String)> {
        for (key, item, text) in texts(config) {
            *text = self.variables.expand(text).map_err(|message| {
                let place = node.get(key).map_or(node, |value| value.get(&item).unwrap_or(value));
                let field = if item.is_empty() { key.to_owned() } else { format!("{key}.{item}") };
                (place.span, format!("`{field}`: {message}"))
            })?;
            let given = std::mem::take(&mut self.variables.given);
            // Paths of programs and folders are none, and what is in `env` and `headers` is one as a whole.
            if matches!(key, "args" | "url") {
                self.filled_in.extend(given.into_iter().filter(|(_, value)| !is_place(value.expose())));
            }
        }
        let folder = file.parent().unwrap_or(Path::new("."));
        let paths = [&mut config.cwd, &mut config.env_file, &mut config.oauth.client_key_file];
        for path in paths.into_iter().flatten() {
            path.value = folder.join(&path.value).display().to_string();
        }
        Ok(())
    }
}

/// Whether a text is where something is on this machine: people must read that, and it opens no door.
fn is_place(text: &str) -> bool {
    let path = Path::new(text);
    path.is_absolute() && path.exists()
}

/// Whether an address can only be a WebSocket's.
fn is_websocket(url: &str) -> bool {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    scheme.eq_ignore_ascii_case("ws") || scheme.eq_ignore_ascii_case("wss")
}

/// Who signs in, and by what.
fn check_oauth(oauth: &OAuthConfig) -> Result<(), (String, String)> {
    let acts_for_itself = oauth.grant == OAuthGrant::ClientCredentials;
    let has_proof = oauth.client_secret.is_some() || oauth.client_key_file.is_some();
    let wrong = if has_proof && oauth.client_id.is_none() {
        "`oauth.clientSecret` and `oauth.clientKeyFile` need `oauth.clientId`"
    } else if acts_for_itself && !has_proof {
        "`oauth.grant` clientCredentials needs `oauth.clientId`, and `oauth.clientSecret` or `oauth.clientKeyFile`"
    } else if oauth.client_key_file.is_some() && (!acts_for_itself || oauth.client_secret.is_some()) {
        "`oauth.clientKeyFile` goes with `oauth.grant` clientCredentials, and with no `oauth.clientSecret`"
    } else {
        return Ok(());
    };
    Err((wrong.to_owned(), "see `oauth` in docs/config.md".to_owned()))
}

enum Unusable {
    /// By its owner's wish.
    Off,
    /// By mistake.
    Broken(Problem),
}

/// Every text in which variables are filled in, with its key and, within that, its name or number.
fn texts(config: &mut ServerConfig) -> Vec<(&'static str, String, &mut String)> {
    let single = [
        ("command", &mut config.command),
        ("cwd", &mut config.cwd),
        ("envFile", &mut config.env_file),
        ("url", &mut config.url),
    ];
    let single =
        single.into_iter().filter_map(|(key, text)| Some((key, String::new(), &mut text.as_mut()?.value)));
    let args = config
        .args
        .iter_mut()
        .enumerate()
        .map(|(number, text)| ("args", number.to_string(), &mut text.value));
    let env = config.env.iter_mut().map(|(name, text)| ("env", name.clone(), &mut text.0));
    let headers = config.headers.iter_mut().map(|(name, text)| ("headers", name.clone(), &mut text.0));
    let oauth = &mut config.oauth;
    let client = [("clientId", &mut oauth.client_id), ("clientKeyFile", &mut oauth.client_key_file)];
    let client = client
        .into_iter()
        .filter_map(|(item, text)| Some(("oauth", item.to_owned(), &mut text.as_mut()?.value)));
    let secret = oauth.client_secret.iter_mut().map(|text| ("oauth", "clientSecret".to_owned(), &mut text.0));
    single.chain(args).chain(env).chain(headers).chain(client).chain(secret).collect()
}
