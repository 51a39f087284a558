//! What all servers are told at once, on behalf of the client.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::mcp::revision::Family;

use super::roster::Fleet;
use super::session::{Request, Session};

/// How long a server may take over it. Nobody waits for the answer.
const WITHIN: Duration = Duration::from_secs(10);

impl Fleet {
    /// A notification, to every server of the older family that is connected: the newer one has none from clients.
    pub fn tell(&self, method: &'static str) {
        for session in self.legacy_sessions(|_| true) {
            self.spawn(async move {
                let _ = timeout(WITHIN, session.connection().notify(method, None)).await;
            });
        }
    }

    /// From which severity on they send log messages. Servers that connect later are told then.
    pub fn log_level(&self, level: &'static str) {
        let params: Arc<str> = json!({ "level": level }).to_string().into();
        for session in self.legacy_sessions(|abilities| abilities.logging) {
            let params = Arc::clone(&params);
            self.spawn(async move {
                let request = Request { params: Some(params.as_bytes()), ..Request::default() };
                let _ = session.request("logging/setLevel", request, WITHIN).await;
            });
        }
    }

    fn legacy_sessions(&self, can: impl Fn(super::offer::Abilities) -> bool) -> Vec<Session> {
        let ships = self.ships();
        let session = |ship: &Arc<super::ship::Ship>| {
            let status = Arc::clone(&ship.status().borrow());
            let live = status.live.as_ref().filter(|_| can(status.offered.abilities))?;
            (live.session.revision().family == Family::Legacy).then(|| live.session.clone())
        };
        ships.list.iter().filter_map(session).collect()
    }
}
