//! The server on the Rust SDK, over HTTP, in this process.

use std::net::SocketAddr;
use std::sync::Arc;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::rmcp_host::Host;

/// It ends when it is dropped.
pub(super) struct Server {
    address: SocketAddr,
    sessions: Arc<LocalSessionManager>,
    serving: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(host: Host) -> Self {
        let sessions = Arc::new(LocalSessionManager::default());
        let config = StreamableHttpServerConfig::default();
        let service = StreamableHttpService::new(move || Ok(host.clone()), Arc::clone(&sessions), config);
        let router = axum::Router::new().nest_service("/mcp", service);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { address, sessions, serving }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) async fn sessions(&self) -> usize {
        self.sessions.sessions.read().await.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
