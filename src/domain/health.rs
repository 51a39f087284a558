//! Health: facts in, one word out. The word is derived, never stored, so it cannot disagree with
//! the facts.

use serde::Serialize;

/// The one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything works.
    Ok,
    /// Calls work, but somebody should look.
    Degraded,
    /// Calls fail.
    Failing,
}

/// What is known of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerFacts {
    /// Why it cannot be written, if it cannot.
    pub failure: Option<String>,
    /// Why it could not be signed, if it could not.
    pub unsigned: Option<String>,
    /// Ends of calls that are not on record.
    pub lost_exits: u64,
}

/// What is known of a server behind colibri.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its configured name.
    pub name: String,
    /// One word for where it is in its life.
    pub state: &'static str,
    /// Whether its calls fail, though nobody wants it so.
    pub is_down: bool,
    /// How many tools it listed last.
    pub tools: u64,
    /// What went wrong last, and what is waited for.
    pub trouble: Option<String>,
    /// Tools that wait for a person's word: not what they were when first seen, or new where pins are enforced.
    pub changed: Vec<String>,
    /// How many of its tools are not pinned, since it has had too many names.
    pub unpinned: usize,
}

/// The word, and a reason for everything that is not well.
pub fn judge(
    ledger: Option<&LedgerFacts>,
    last_audit_error: Option<&str>,
    servers: &[ServerFacts],
) -> (Status, Vec<String>) {
    let mut findings = Vec::new();
    if let Some(facts) = ledger {
        let failing =
            facts.failure.iter().map(|why| (Status::Failing, format!("the ledger cannot be written: {why}")));
        let unsigned = facts
            .unsigned
            .iter()
            .map(|why| (Status::Degraded, format!("no checkpoint could be signed: {why}")));
        findings.extend(failing.chain(unsigned));
        if facts.lost_exits > 0 {
            findings.push((
                Status::Degraded,
                format!("the ends of {} calls are not on record", facts.lost_exits),
            ));
        }
    }
    findings
        .extend(last_audit_error.map(|why| (Status::Degraded, format!("a call was not recorded: {why}"))));
    let down = servers.iter().filter(|server| server.is_down).map(|server| {
        let why = server.trouble.as_deref().unwrap_or(server.state);
        (Status::Degraded, format!("the server `{}` is unavailable: {why}", server.name))
    });
    findings.extend(down);
    let changed = servers.iter().filter(|server| !server.changed.is_empty()).map(|server| {
        let (name, tools) = (&server.name, server.changed.join(", "));
        let what = format!("tools of `{name}` are not what they were when first seen: {tools}");
        (Status::Degraded, format!("{what}; look at them and decide: colibri server accept {name}"))
    });
    findings.extend(changed);
    let unpinned = servers.iter().filter(|server| server.unpinned > 0).map(|server| {
        let ServerFacts { name, unpinned, .. } = server;
        let what = format!(
            "{unpinned} tools of `{name}` are not pinned, since it has had too many names: if they change, nobody is told"
        );
        (Status::Degraded, format!("{what}; with \"pin\": \"enforce\" in its entry they wait to be accepted"))
    });
    findings.extend(unpinned);
    let worst = findings.iter().map(|(status, _)| *status).max().unwrap_or(Status::Ok);
    (worst, findings.into_iter().map(|(_, reason)| reason).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SU-13: `status` follows the facts.
    #[test]
    fn the_word_is_the_worst_of_the_findings() {
        let well = LedgerFacts { failure: None, unsigned: None, lost_exits: 0 };
        let broken = LedgerFacts { failure: Some("disk full".to_owned()), lost_exits: 2, ..well.clone() };
        let unsigned = LedgerFacts { unsigned: Some("no key".to_owned()), ..well.clone() };
        assert_eq!(judge(None, None, &[]), (Status::Ok, vec![]));
        assert_eq!(judge(Some(&well), None, &[]).0, Status::Ok);
        assert_eq!(judge(Some(&unsigned), None, &[]).0, Status::Degraded);
        assert_eq!(judge(Some(&well), Some("x"), &[]).0, Status::Degraded);
        let (status, reasons) = judge(Some(&broken), None, &[]);
        assert_eq!((status, reasons.len()), (Status::Failing, 2));
        assert_eq!(reasons[0], "the ledger cannot be written: disk full");
        let server = |is_down| ServerFacts {
            name: "git".to_owned(),
            state: "blocked",
            is_down,
            tools: 0,
            trouble: Some("no such program".to_owned()),
            changed: Vec::new(),
            unpinned: 0,
        };
        assert_eq!(judge(None, None, &[server(false)]).0, Status::Ok);
        let (status, reasons) = judge(None, None, &[server(false), server(true)]);
        assert_eq!((status, reasons.len()), (Status::Degraded, 1));
        assert_eq!(reasons[0], "the server `git` is unavailable: no such program");
        let changed = ServerFacts { changed: vec!["push".to_owned()], ..server(false) };
        let (status, reasons) = judge(None, None, &[changed]);
        assert_eq!((status, reasons.len()), (Status::Degraded, 1));
        assert!(reasons[0].contains("`git`") && reasons[0].contains("push"), "{reasons:?}");
        // Nothing of these waits, so nobody is sent to accept it.
        let unpinned = ServerFacts { unpinned: 2, ..server(false) };
        let (status, reasons) = judge(None, None, &[unpinned]);
        assert_eq!((status, reasons.len()), (Status::Degraded, 1));
        assert!(reasons[0].starts_with("2 tools of `git` are not pinned"), "{reasons:?}");
        assert!(!reasons[0].contains("server accept"), "{reasons:?}");
    }
}
