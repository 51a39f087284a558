//! `colibri probe`: connects to anything, and shows what is there or what is wrong.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::domain::log::Logger;
use crate::fleet::bridge::{Bridge, BridgeError, Cause, ConnectOptions, Executed, Request, Tools};
use crate::mcp::revision::Family;

use super::Session;
use super::fault::Fault;
use super::out;
use super::reach::{self, Extras};
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri probe -- npx -y @modelcontextprotocol/server-everything
  colibri probe https://example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
  colibri probe ws://127.0.0.1:9000/mcp
  colibri probe github                              a server of your configuration
  colibri probe --json -- uvx mcp-server-time
  colibri probe -- colibri serve

A command runs with your user's rights and a small part of your environment; pass more with --env.";

/// Cheap requests whose median is the latency.
const LATENCY_REQUESTS: usize = 20;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// An address, or the name of a configured server
    #[arg(value_name = "URL|NAME", required_unless_present = "command", conflicts_with = "command")]
    target: Option<String>,
    #[command(flatten)]
    extras: Extras,
    /// A command to start, after `--`
    #[arg(last = true)]
    command: Vec<OsString>,
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let (loaded, _) = session.load()?;
    let reach = match &arguments.target {
        Some(target) => reach::named(target, &loaded, &arguments.extras)?,
        None => reach::command(&arguments.command, &arguments.extras)?,
    };
    let timeout = loaded.config.mcp_timeout;
    let name = reach.name;
    let options = ConnectOptions {
        timeout: Some(timeout),
        transport: Some(reach.opener),
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    let found = block_on(async {
        let bridge = Bridge::connect(&name, options).await?;
        let found = look(&bridge, timeout).await;
        bridge.close().await;
        found
    })?;
    let found = found.map_err(|error: BridgeError| reach::failed("cannot probe", &name, &error))?;
    if session.json { out::json(&found.json(&name)) } else { found.print(&name) }
}

/// What is there.
struct Found {
    transport: &'static str,
    revision: &'static str,
    introduction: Value,
    tools: Tools,
    latency: Duration,
    last_words: Option<String>,
}

async fn look(bridge: &Bridge, timeout: Duration) -> Result<Found, BridgeError> {
    let tools = bridge.tools().await?;
    let cheap = if bridge.revision().family == Family::Modern { "server/discover" } else { "ping" };
    let mut times = Vec::with_capacity(LATENCY_REQUESTS);
    for _ in 0..LATENCY_REQUESTS {
        let begun = Instant::now();
        match bridge.client().request(cheap, Request::default(), timeout).await {
            // A server that refuses the question has answered it all the same.
            Ok(_) | Err(Cause::Answered { .. }) => times.push(begun.elapsed()),
            Err(source) => {
                let executed = Executed::No;
                return Err(BridgeError { source, attempts: 1, retryable: false, executed });
            }
        }
    }
    times.sort();
    Ok(Found {
        transport: bridge.client().connection().transport(),
        revision: bridge.revision().date,
        introduction: serde_json::from_slice(bridge.client().introduction()).unwrap_or_default(),
        tools,
        latency: times[LATENCY_REQUESTS / 2],
        last_words: bridge.client().connection().last_words(),
    })
}

impl Found {
    /// The server's word for itself: in the result, or in the modern family in its `_meta`.
    fn info(&self) -> &Value {
        let modern = &self.introduction["_meta"]["io.modelcontextprotocol/serverInfo"];
        if modern.is_null() { &self.introduction["serverInfo"] } else { modern }
    }

    fn json(&self, target: &str) -> Value {
        let names: Vec<&str> = self.tools.tools.iter().map(|tool| tool.name.as_str()).collect();
        json!({
            "target": target, "transport": self.transport, "revision": self.revision, "serverInfo": self.info(),
            "capabilities": self.introduction["capabilities"], "tools": names, "leftOut": self.tools.left_out,
            "latencyMicros": self.latency.as_micros() as u64, "stderr": self.last_words,
        })
    }

    fn print(&self, target: &str) -> Result<(), Fault> {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let capabilities =
            self.introduction["capabilities"].as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        let rows = [
            ("target", target.to_owned()),
            ("transport", self.transport.to_owned()),
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
