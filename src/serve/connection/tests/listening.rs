//! Clients that listen for changes.

use serde_json::json;

use super::*;

fn listen(id: u32, notifications: &Value) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "notifications": notifications, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params }).to_string()
}

impl Client {
    /// One of the newer family, of a colibri with servers.
    fn modern() -> Self {
        Self::silent(Identity { servers: true, ..identity() }, Limits::default())
    }

    /// What it has heard once nothing moves any more, each as `METHOD SUBSCRIPTION [FILTER]` or `ID SUBSCRIPTION end`.
    async fn heard(&self) -> Vec<String> {
        settle().await;
        self.outbox.take_now().iter().map(|line| on_subscription(line)).collect()
    }
}

fn on_subscription(line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap();
    let id = |part: &Value| part["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    let Some(method) = message["method"].as_str() else {
        let result = &message["result"];
        let kind = result["resultType"].as_str().unwrap_or("no result");
        let error = message["error"]["code"].as_i64().map(|code| format!(" {code}")).unwrap_or_default();
        return format!("{} {} {kind}{error}", message["id"], id(result));
    };
    let filter = message["params"].get("notifications").map(|filter| format!(" {filter}"));
    let name = method.trim_start_matches("notifications/");
    format!("{name} {}{}", id(&message["params"]), filter.unwrap_or_default())
}

/// PR-12: a client of the newer family hears of the changes it asked for, on each request under its id, until it
/// takes the request back; of nothing without a request.
#[tokio::test]
async fn a_modern_client_listens_and_is_told_until_it_cancels() {
    let client = Client::modern();
    client.changes.send_modify(|changes| changes.tools += 1);
    assert_eq!(client.heard().await, Vec::<String>::new());

    let all = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a"] });
    client.send(&listen(1, &all)).await;
    client.send(&listen(2, &json!({ "resourcesListChanged": true, "toolsListChanged": true }))).await;
    assert_eq!(
        client.heard().await,
        [
            r#"subscriptions/acknowledged 1 {"promptsListChanged":true,"toolsListChanged":true}"#,
            r#"subscriptions/acknowledged 2 {"resourcesListChanged":true,"toolsListChanged":true}"#,
        ]
    );
    client.changes.send_modify(|changes| changes.tools += 1);
    assert_eq!(client.heard().await, ["tools/list_changed 1", "tools/list_changed 2"]);
    client.changes.send_modify(|changes| (changes.prompts, changes.resources) = (1, 1));
    assert_eq!(client.heard().await, ["resources/list_changed 2", "prompts/list_changed 1"]);

    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#).await;
    assert_eq!(client.heard().await, Vec::<String>::new());
    client.changes.send_modify(|changes| changes.tools += 1);
    assert_eq!(client.heard().await, ["tools/list_changed 1"]);
    client.send(&listen(2, &json!({}))).await; // Its id is free again.
    assert_eq!(client.heard().await, ["subscriptions/acknowledged 2 {}"]);
}

/// PR-12: a session of the older family is told as before, beside a request of the newer one.
#[tokio::test]
async fn both_families_are_told_on_one_connection() {
    let client = Client::modern();
    client.send(&INITIALIZE.replace("REVISION", "2025-11-25")).await;
    client.send(&listen(1, &json!({ "toolsListChanged": true }))).await;
    assert_eq!(client.heard().await.len(), 2);
    client.changes.send_modify(|changes| changes.tools += 1);
    assert_eq!(client.heard().await, ["tools/list_changed null", "tools/list_changed 1"]);
}

/// PR-12: listening is bounded, one id is one request, and it holds no place of a call.
#[tokio::test]
async fn so_many_listen_and_no_more() {
    let client = Client::silent(
        Identity { servers: true, ..identity() },
        Limits { calls_in_flight_max: 1, ..Limits::default() },
    );
    client.send(&INITIALIZE.replace("REVISION", "2025-11-25")).await;
    client.call(100, "gate").await;
    assert_eq!(client.heard().await.len(), 1);
    client.send(&listen(100, &json!({}))).await;
    assert_eq!(client.heard().await, ["100 null no result -32600"]);
    for id in 1..=16 {
        client.send(&listen(id, &json!({}))).await;
    }
    client.send(&listen(17, &json!({}))).await;
    let heard = client.heard().await;
    assert_eq!((heard.len(), heard[16].as_str()), (17, "17 null no result -32600"));
    client.gate.add_permits(1);
    assert_eq!(client.answers().await, ["100 ok"]);
    client.call(3, "echo").await;
    client.call(18, "echo").await;
    assert_eq!(client.answers().await, ["3 -32600", "18 ok"]);
}

/// PR-12, CO-11: when colibri stops, every request that listens is answered, and nothing waits for it.
#[tokio::test(start_paused = true)]
async fn listening_ends_with_an_answer_and_without_delay() {
    let client = Client::modern();
    client.send(&listen(1, &json!({ "toolsListChanged": true }))).await;
    client.send(&listen(2, &json!({}))).await;
    assert_eq!(client.heard().await.len(), 2);
    let begun = Instant::now();
    client.stop.cancel();
    let (ended, lines) = tokio::join!(client.connection, client.outbox.take_all());
    let lines: Vec<_> = lines.iter().map(|line| on_subscription(line)).collect();
    assert_eq!((ended.unwrap(), begun.elapsed()), (Ended::Stopped, Duration::ZERO));
    assert_eq!(lines, ["1 1 complete", "2 2 complete"]);
}
