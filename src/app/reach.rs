//! How a configured server is reached: from the words of its configuration to something that opens a
//! link.

use std::ffi::OsString;
use std::sync::Arc;

use crate::config::{ServerConfig, Transport, inherited_environment};
use crate::fleet::credentials::Credentials;
use crate::fleet::error::Cause;
use crate::fleet::link::Opener;
use crate::fleet::link::http::Http;
use crate::fleet::link::sse::Sse;
use crate::fleet::link::stdio::Stdio;
use crate::fleet::link::websocket::WebSocket;
use crate::fleet::web::Endpoint;
use crate::mcp::lines::FRAME_BYTES_MAX;
use crate::sandbox::Spec;

/// The link that a configuration asks for. `credentials` are asked by a server on the network, unless a
/// header says who we are.
pub fn opener(
    server: &ServerConfig,
    credentials: Option<Arc<dyn Credentials>>,
) -> Result<Box<dyn Opener>, Cause> {
    match (&server.url, &server.command) {
        (Some(url), _) => {
            let mut endpoint = Endpoint::new(url.value())?;
            for (name, value) in &server.headers {
                endpoint = endpoint.with_header(name, value.expose())?;
            }
            if let Some(credentials) = credentials {
                endpoint = endpoint.with_credentials(credentials);
            }
            Ok(network(endpoint, server.transport))
        }
        (None, Some(command)) => Ok(Box::new(Stdio {
            spec: Spec {
                program: command.value().into(),
                arguments: server.args.iter().map(|argument| argument.value().into()).collect(),
                environment: environment(server),
                directory: server.cwd.as_ref().map(|directory| directory.value().into()),
            },
            frame_bytes_max: FRAME_BYTES_MAX,
        })),
        (None, None) => Err(Cause::Invalid("it has neither `command` nor `url`".to_owned())),
    }
}

fn network(endpoint: Endpoint, transport: Option<Transport>) -> Box<dyn Opener> {
    match transport {
        Some(Transport::Sse) => Box::new(Sse(endpoint)),
        Some(Transport::Websocket) => Box::new(WebSocket(endpoint)),
        Some(Transport::Http) => Box::new(Http(endpoint)),
        Some(Transport::Stdio) | None => crate::fleet::link::for_endpoint(endpoint),
    }
}

/// What every server inherits, and over it what is configured.
fn environment(server: &ServerConfig) -> Vec<(OsString, OsString)> {
    let mut environment = inherited_environment();
    environment.retain(|(name, _)| name.to_str().is_none_or(|name| !server.env.contains_key(name)));
    environment.extend(
        server.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value.expose()))),
    );
    environment
}
