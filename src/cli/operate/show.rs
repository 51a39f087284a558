//! How servers are shown to people.

use serde_json::Value;

use super::super::fault::Fault;
use super::super::out::{self, Colour};
use super::accept;

/// How much of an error or a line is shown in a table's row.
const WORDS_CHARS_MAX: usize = 160;

const HEADS: [&str; 11] = [
    "SERVER",
    "STATE",
    "REVISION",
    "TRANSPORT",
    "PID",
    "MEMORY",
    "UP",
    "RESTARTS",
    "TOOLS",
    "CALLS",
    "WAITING",
];

/// A table of servers, and below it what is wrong and what each said last.
pub(in crate::cli) fn server_rows(servers: &Value) -> Result<(), Fault> {
    let servers = servers.as_array().map(Vec::as_slice).unwrap_or_default();
    if servers.is_empty() {
        return out::line("no servers");
    }
    let rows: Vec<Vec<String>> = servers.iter().map(cells).collect();
    out::table_with(&HEADS, &rows, |column, cell| (column == 1).then(|| colour(cell)).flatten())?;
    for server in servers {
        let name = server["name"].as_str().unwrap_or("?");
        for (key, what) in [("trouble", "error"), ("last_words", "stderr")] {
            if let Some(words) = server[key].as_str() {
                out::line(&out::visible(&format!(
                    "  {name}: {what}: {}",
                    out::head(words, WORDS_CHARS_MAX)
                )))?;
            }
        }
    }
    Ok(())
}

fn cells(server: &Value) -> Vec<String> {
    let text = |key: &str| match &server[key] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let memory = server["memory_bytes"].as_u64().map_or_else(|| "-".to_owned(), mebibytes);
    let up = server["uptime_ms"].as_u64().map_or_else(|| "-".to_owned(), span);
    vec![
        text("name"),
        text("state"),
        text("revision"),
        text("transport"),
        text("pid"),
        memory,
        up,
        text("restarts"),
        text("tools"),
        text("in_flight"),
        text("waiting"),
    ]
}

fn colour(state: &str) -> Option<Colour> {
    match state {
        "ready" | "probing" => Some(Colour::Green),
        "connecting" | "restarting" | "backoff" | "closing" => Some(Colour::Yellow),
        "blocked" | "exhausted" | "broken" | "untrusted" => Some(Colour::Red),
        _ => None,
    }
}

/// One server with everything that is known of it.
pub(super) fn closely(shown: &Value) -> Result<(), Fault> {
    let (server, entry) = (&shown["server"], &shown["configuration"]);
    for key in ["name", "state", "transport", "revision", "pid", "restarts", "in_flight", "queue"] {
        row(key, &server[key])?;
    }
    row("memory", &server["memory_bytes"].as_u64().map(mebibytes).into())?;
    row("up", &server["uptime_ms"].as_u64().map(span).into())?;
    let tally = &server["tally"];
    row("calls", &format!("{} sent on, {} failed", tally["calls"], tally["failed"]).into())?;
    row("error", &server["trouble"])?;
    row("stderr", &server["last_words"])?;
    let words = [&entry["command"]].into_iter().chain(entry["args"].as_array().into_iter().flatten());
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    row("command", &words.join(" ").into())?;
    for key in ["url", "env", "headers", "cwd", "sandbox", "limits", "timeout", "start", "origin"] {
        row(key, &entry[key])?;
    }
    let tools = shown["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    if tools.is_empty() {
        out::line("no tools")?;
    } else {
        out::line("")?;
        let rows: Vec<Vec<String>> = tools.iter().map(tool).collect();
        out::table(&["TOOL", "AS CLIENTS CALL IT", "FLAGS"], &rows)?;
    }
    let changes = shown["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if changes.is_empty() {
        return Ok(());
    }
    let name = out::visible(server["name"].as_str().unwrap_or("?"));
    out::line(&format!("\nnot what was first seen; to take it for good: colibri server accept {name}"))?;
    accept::show(changes)?;
    row("all", &shown["changes_digest"])
}

fn tool(tool: &Value) -> Vec<String> {
    let flags = [("read_only", "reads"), ("idempotent", "may be repeated")];
    let mut flags: Vec<String> =
        flags.iter().filter(|(key, _)| tool[key] == true).map(|(_, flag)| (*flag).to_owned()).collect();
    flags.extend(tool["withheld"].as_str().map(|why| format!("withheld: {why}")));
    let hidden = tool["hidden"].as_array().into_iter().flatten().filter_map(Value::as_str);
    flags.extend(hidden.map(|found| format!("hides: {found}")));
    let text = |key: &str| tool[key].as_str().unwrap_or("-").to_owned();
    vec![text("tool"), text("name"), flags.join("; ")]
}

/// A name and its value; nothing if there is none.
pub(in crate::cli) fn row(name: &str, value: &Value) -> Result<(), Fault> {
    let value = match value {
        Value::Null => return Ok(()),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.iter().all(Value::is_string) => {
            all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    if value.is_empty() {
        return Ok(());
    }
    out::line(&format!("{name:<11} {}", out::visible(&value)))
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// A span as people say it, in its two largest units at most.
pub(in crate::cli) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_people_say_them() {
        for (millis, shown) in [
            (999, "0 s"),
            (59_000, "59 s"),
            (61_000, "1 min"),
            (3_600_000, "1 h 0 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(millis), shown);
        }
        assert_eq!(mebibytes(1_600_000), "1.5 MiB");
    }
}
