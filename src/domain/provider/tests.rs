//! The contract's table, row by row.

use super::*;

fn every() -> Vec<ProviderError> {
    use ProviderError as E;
    let unavailable = |reason| E::Unavailable { reason, why: "exit 1".into(), age: None };
    let crashed = |limit| E::Crashed { how: "signal 9".into(), limit, last_words: "oops".into() };
    let crowded = |crowded| E::ConcurrencyExceeded { queue: "default".into(), crowded };
    let answered = |code| E::ExecuteFailed { code, message: "no".into() };
    let issue = || vec![Issue { path: "/a".to_owned(), message: "too long".to_owned() }];
    vec![
        E::InitFailed("command not found: npx".into()),
        unavailable(Unavailable::RestartInProgress),
        unavailable(Unavailable::RestartFailed),
        unavailable(Unavailable::InitFailed),
        unavailable(Unavailable::LinkLost { sent: false }),
        unavailable(Unavailable::LinkLost { sent: true }),
        E::TimedOut { limit: Duration::from_secs(30), sent: true },
        E::TimedOut { limit: Duration::from_secs(30), sent: false },
        crashed(None),
        crashed(Some(Limit::Memory)),
        crashed(Some(Limit::Cpu)),
        crowded(Crowded::Full),
        crowded(Crowded::Waited),
        answered(-32_603),
        answered(-32_602),
        E::PolicyDenied(Rule::Mode),
        E::PolicyDenied(Rule::Filter),
        E::PolicyDenied(Rule::Pin),
        E::PolicyDenied(Rule::Profile),
        E::PolicyDenied(Rule::Approval),
        E::PolicyDenied(Rule::Off),
        E::ToolNotFound { tool: "raed".into(), nearest: Some("read".into()) },
        E::InvalidInput(issue()),
        E::InvalidOutput { issues: issue(), original: json!({ "content": [] }) },
        E::Cancelled { by: Canceller::Client, queued: false },
        E::Cancelled { by: Canceller::Shutdown, queued: true },
        E::Terminated,
        E::ToolError,
    ]
}

/// Code, whether to try again, whether it was done, how it stands in the ledger, and in which way.
const TABLE: &str = "
    PROVIDER_INIT_FAILED          no  no      error
    PROVIDER_UNAVAILABLE          yes no      error     mcp_restart_in_progress
    PROVIDER_UNAVAILABLE          yes no      error     mcp_restart_failed
    PROVIDER_UNAVAILABLE          yes no      error     init_failed
    PROVIDER_UNAVAILABLE          yes no      error     link_lost
    PROVIDER_UNAVAILABLE          yes unknown error     link_lost
    PROVIDER_TIMEOUT              yes unknown timeout
    PROVIDER_TIMEOUT              yes no      timeout
    PROVIDER_CRASHED              yes unknown error
    PROVIDER_CRASHED              yes unknown error     memory
    PROVIDER_CRASHED              yes unknown error     cpu
    PROVIDER_CONCURRENCY_EXCEEDED yes no      error     queue_full
    PROVIDER_CONCURRENCY_EXCEEDED yes no      error     max_wait
    PROVIDER_EXECUTE_FAILED       yes unknown error
    PROVIDER_EXECUTE_FAILED       no  unknown error
    PROVIDER_POLICY_DENIED        no  no      rejected  mode
    PROVIDER_POLICY_DENIED        no  no      rejected  filter
    PROVIDER_POLICY_DENIED        no  no      rejected  pin
    PROVIDER_POLICY_DENIED        no  no      rejected  profile
    PROVIDER_POLICY_DENIED        no  no      rejected  approval
    PROVIDER_POLICY_DENIED        no  no      rejected  off
    PROVIDER_TOOL_NOT_FOUND       no  no      rejected
    PROVIDER_INVALID_INPUT        no  no      rejected
    PROVIDER_INVALID_OUTPUT       no  yes     error
    PROVIDER_CANCELLED            no  unknown cancelled client
    PROVIDER_CANCELLED            no  no      cancelled shutdown
    PROVIDER_TERMINATED           no  no      error
    PROVIDER_TOOL_ERROR           no  yes     error";

/// SB-11: one taxonomy, exactly the contract's table.
#[test]
fn the_table() {
    let rows: Vec<Vec<&str>> = TABLE.trim().lines().map(|line| line.split_whitespace().collect()).collect();
    let every = every();
    assert_eq!(rows.len(), every.len());
    for (row, error) in rows.iter().zip(&every) {
        let retryable = if error.retryable() { "yes" } else { "no" };
        let executed = json!(error.executed());
        let mut told =
            vec![error.code(), retryable, executed.as_str().unwrap(), error.meaning().outcome.name()];
        told.extend(error.reason());
        assert_eq!(*row, told);
    }
    let mut codes: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    codes.dedup();
    assert_eq!(codes, code::ALL);
}

/// SB-11: `structuredContent {ok:false,error:{code,message,details:{retryable,executed,reason?}}}`.
#[test]
fn structured_content() {
    let check = |error: ProviderError, expected: Value| {
        assert_eq!(error.structured_content("fs"), json!({ "ok": false, "error": expected }));
    };
    check(
        ProviderError::Terminated,
        json!({
            "code": "PROVIDER_TERMINATED",
            "message": "server `fs`: it is being stopped",
            "details": { "retryable": false, "executed": "no" },
        }),
    );
    let age = Some(Duration::from_millis(12_500));
    check(
        ProviderError::Unavailable { reason: Unavailable::InitFailed, why: "refused".into(), age },
        json!({
            "code": "PROVIDER_UNAVAILABLE",
            "message": "server `fs`: it has not started: refused (for 12 s)",
            "details": { "retryable": true, "executed": "no", "reason": "init_failed", "age_ms": 12_500 },
        }),
    );
    let last_words: Arc<str> =
        format!("{}é{}", "x".repeat(5000), "y".repeat(LAST_WORDS_BYTES_MAX - 1)).into();
    check(
        ProviderError::Crashed { how: "signal 9".into(), limit: Some(Limit::Memory), last_words },
        json!({
            "code": "PROVIDER_CRASHED",
            "message": "server `fs`: its process ended: signal 9",
            "details": {
                "retryable": true,
                "executed": "unknown",
                "reason": "memory",
                "stderr": "y".repeat(LAST_WORDS_BYTES_MAX - 1), // Cut at a character's border.
            },
        }),
    );
}

/// SB-2: what does not fit is said where, and an effect that happened is not lost.
#[test]
fn schemas_that_do_not_fit() {
    let issues = vec![Issue { path: "/a".to_owned(), message: "too long".to_owned() }; 50];
    let input = ProviderError::InvalidInput(issues.clone()).failure("fs");
    assert_eq!(input.message, "server `fs`: invalid arguments: 20 issues, listed in details.issues");
    assert_eq!(input.details.unwrap()["issues"].as_array().unwrap().len(), 20);
    let original = json!({ "content": [{ "type": "text", "text": "done" }] });
    let output = ProviderError::InvalidOutput { issues, original: original.clone() }.failure("fs");
    let details = output.details.unwrap();
    assert_eq!((&details["original"], &details["executed"]), (&original, &json!("yes")));
    assert_eq!(details["issues"][0], json!({ "path": "/a", "message": "too long" }));
    let unknown = ProviderError::ToolNotFound { tool: "raed".into(), nearest: Some("read".into()) };
    assert_eq!(unknown.failure("fs").message, "server `fs`: it has no tool `raed`; did you mean `read`?");
}

/// SB-5: what consumers of text read.
#[test]
fn text_consumers() {
    let late = ProviderError::TimedOut { limit: Duration::from_secs(30), sent: true };
    assert_eq!(late.text("fs"), "(tool failed: timeout)");
    assert_eq!(late.failure("fs").message, "server `fs`: no answer within 30000 ms");
    for error in every() {
        let text = error.text("fs");
        assert!(text.starts_with("(tool failed: ") && text.ends_with(')') && !text.contains("  "), "{text}");
    }
}
