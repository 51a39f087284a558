//! The bridge as library users meet it: the process's environment is read for them.

pub use crate::fleet::bridge::{
    ATTEMPTS, Bridge, BridgeError, CallOptions, Cause, ConnectOptions, Environment, Era, Executed, Handler,
    Notice, Request, Session, TIMEOUT, TIMEOUT_VARIABLE, Tool, Tools,
};

use crate::config::variable;

/// The options of [`Bridge::connect`] with the environment of this process.
pub fn options() -> ConnectOptions {
    ConnectOptions { environment: std::sync::Arc::new(variable), ..ConnectOptions::default() }
}

/// Connects to an address: Streamable HTTP for `http(s)`, a WebSocket for `ws(s)`.
///
/// ```no_run
/// # async fn example() -> Result<(), colibri::bridge::BridgeError> {
/// use colibri::bridge::{self, CallOptions};
///
/// let server = bridge::connect("http://127.0.0.1:3001/mcp").await?;
/// let result = server.call_tool("echo", &serde_json::json!({ "message": "hi" }), CallOptions::default()).await?;
/// server.close().await;
/// # let _ = result; Ok(())
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Bridge, BridgeError> {
    Bridge::connect(url, options()).await
}
