//! `colibri probe`: connects to anything, and shows what is there or what is wrong.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::config::inherited_environment;
use crate::domain::log::Logger;
use crate::fleet::bridge::{Bridge, BridgeError, ConnectOptions};
use crate::fleet::error::Cause;
use crate::fleet::link::stdio::Stdio;
use crate::fleet::listing::Tools;
use crate::mcp::lines::FRAME_BYTES_MAX;
use crate::mcp::revision::Family;
use crate::sandbox::Spec;

use super::Session;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri probe -- npx -y @modelcontextprotocol/server-everything
  colibri probe --json -- uvx mcp-server-time
  colibri probe -- colibri serve

The command runs with your user's rights and a small part of your environment; pass more with --env.";

/// Cheap requests whose median is the latency.
const LATENCY_REQUESTS: usize = 20;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Also give the command this variable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The command to start, after `--`
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let (loaded, _) = session.load()?;
    let timeout = loaded.config.mcp_timeout;
    let opener = Stdio { spec: spec(arguments)?, frame_bytes_max: FRAME_BYTES_MAX };
    let name = opener.spec.program.to_string_lossy().into_owned();
    let found = block_on(async {
        let options = ConnectOptions { timeout, logger: Logger::silent(), ..ConnectOptions::default() };
        let bridge = Bridge::connect(&name, &opener, options).await?;
        let found = look(&bridge, timeout).await;
        bridge.close().await;
        found
    })?;
    let found = found.map_err(|error: BridgeError| {
        Fault::new(
            Exit::Unreachable,
            format!("cannot probe {}: {}", out::visible(&name), out::visible(&error.to_string())),
        )
    })?;
    if session.json { out::json(&found.json(&name)) } else { found.print(&name) }
}

fn spec(arguments: &Arguments) -> Result<Spec, Fault> {
    let mut environment = inherited_environment();
    for pair in &arguments.env {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Fault::new(Exit::Usage, "--env takes NAME=VALUE"));
        };
        environment.push((name.into(), value.into()));
    }
    let (program, rest) = arguments.command.split_first().expect("clap asks for at least one");
    Ok(Spec { program: program.clone(), arguments: rest.to_vec(), environment, directory: None })
}

/// What is there.
struct Found {
    revision: &'static str,
    introduction: Value,
    tools: Tools,
    latency: Duration,
    last_words: Option<String>,
}

async fn look(bridge: &Bridge, timeout: Duration) -> Result<Found, BridgeError> {
    let tools = bridge.tools(timeout).await?;
    let cheap = if bridge.revision().family == Family::Modern { "server/discover" } else { "ping" };
    let mut times = Vec::with_capacity(LATENCY_REQUESTS);
    for _ in 0..LATENCY_REQUESTS {
        let begun = Instant::now();
        match bridge.client().request(cheap, None, None, timeout).await {
            // A server that refuses the question has answered it all the same.
            Ok(_) | Err(Cause::Answered { .. }) => times.push(begun.elapsed()),
            Err(source) => return Err(BridgeError { source, attempts: 1, retryable: false }),
        }
    }
    times.sort();
    Ok(Found {
        revision: bridge.revision().date,
        introduction: serde_json::from_slice(&bridge.client().introduction).unwrap_or_default(),
        tools,
        latency: times[LATENCY_REQUESTS / 2],
        last_words: bridge.client().connection.last_words(),
    })
}

impl Found {
    /// The server's word for itself: in the result, or in the modern family in its `_meta`.
    fn info(&self) -> &Value {
        let modern = &self.introduction["_meta"]["io.modelcontextprotocol/serverInfo"];
        if modern.is_null() { &self.introduction["serverInfo"] } else { modern }
    }

    fn json(&self, command: &str) -> Value {
        let names: Vec<&str> = self.tools.tools.iter().map(|tool| tool.name.as_str()).collect();
        json!({
            "command": command, "transport": "stdio", "revision": self.revision, "serverInfo": self.info(),
            "capabilities": self.introduction["capabilities"], "tools": names, "leftOut": self.tools.left_out,
            "latencyMicros": self.latency.as_micros() as u64, "stderr": self.last_words,
        })
    }

    fn print(&self, command: &str) -> Result<(), Fault> {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let capabilities =
            self.introduction["capabilities"].as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        let rows = [
            ("command", command.to_owned()),
            ("transport", "stdio".to_owned()),
            ("revision", self.revision.to_owned()),
            ("server", format!("{} {}", text(&self.info()["name"]), text(&self.info()["version"]))),
            ("capabilities", capabilities.unwrap_or_default().join(", ")),
            (
                "latency",
                format!("{:.1} ms (median of {LATENCY_REQUESTS})", self.latency.as_secs_f64() * 1000.0),
            ),
            ("tools", self.tools.tools.len().to_string()),
        ];
        for (name, value) in rows {
            out::line(&format!("{name:<13} {}", out::visible(&value)))?;
        }
        for tool in &self.tools.tools {
            out::line(&format!("  {}", out::visible(&tool.name)))?;
        }
        for reason in &self.tools.left_out {
            out::line(&format!("  left out: {}", out::visible(reason)))?;
        }
        let mut words = self.last_words.iter().flat_map(|words| words.lines());
        words.try_for_each(|line| out::line(&format!("  stderr: {}", out::visible(line))))
    }
}
