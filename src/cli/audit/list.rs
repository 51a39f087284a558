//! Reading the ledger: calls as people think of them, records as they are.

use std::time::Duration;

use serde_json::{Value, json};

use crate::store::{Action, ActionFilter, Reader, RecordRow};

use super::super::fault::Fault;
use super::super::out;
use super::super::serve::block_on;

/// How often `tail -f` looks. Nothing pushes: a reader never asks anything of the writer.
const FOLLOW_PERIOD: Duration = Duration::from_millis(250);

/// A misspelt one would list nothing, as if all were well.
const OUTCOMES: [&str; 7] = ["running", "ok", "error", "rejected", "timeout", "cancelled", "unknown"];

/// How much of a name that a client chose is listed; `audit show` has the rest.
const NAME_CHARS_MAX: usize = 60;

/// What a line says of a record, as far as the record has it.
const BRIEFLY: [&str; 11] =
    ["server", "tool", "outcome", "code", "by", "from", "to", "limit", "how", "message", "reason"];

/// Records read at once.
const RANGE_RECORDS: u64 = 1024;

#[derive(clap::Args)]
pub(crate) struct ListArguments {
    /// Only calls of this tool
    #[arg(long)]
    tool: Option<String>,
    /// Only with this outcome
    #[arg(long, value_parser = OUTCOMES)]
    outcome: Option<String>,
    /// Only from this call number on
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

#[derive(clap::Args)]
pub(crate) struct ShowArguments {
    /// A call, by its number or its correlation id
    #[arg(required_unless_present = "index")]
    call: Option<String>,
    /// A record, by its index, instead of a call
    #[arg(long, value_name = "N", conflicts_with = "call")]
    index: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct TailArguments {
    /// How many of the newest records to begin with
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    lines: u64,
    /// Go on with records as they are written
    #[arg(short, long)]
    follow: bool,
}

pub(super) fn list(reader: &Reader, arguments: &ListArguments, json: bool) -> Result<(), Fault> {
    let ListArguments { tool, outcome, from, limit } = arguments;
    let filter = ActionFilter { tool: tool.clone(), outcome: outcome.clone(), from: *from, limit: *limit };
    let actions = reader.actions(&filter)?;
    if json {
        return out::json(&json!({ "actions": actions }));
    }
    let row = |action: &Action| {
        let Action { sequence_no, at, tool, outcome, code, duration_ms, client, user, .. } = action;
        let outcome = code.as_ref().map_or_else(|| outcome.clone(), |code| format!("{outcome} ({code})"));
        let duration = duration_ms.map(|ms| format!("{ms} ms")).unwrap_or_default();
        vec![
            sequence_no.to_string(),
            at.clone(),
            out::head(tool, NAME_CHARS_MAX),
            outcome,
            duration,
            out::head(client, NAME_CHARS_MAX),
            user.clone(),
        ]
    };
    let heads = ["CALL", "AT", "TOOL", "OUTCOME", "TOOK", "CLIENT", "USER"];
    out::table(&heads, &actions.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn show(reader: &Reader, arguments: &ShowArguments, json: bool) -> Result<(), Fault> {
    let indices = match (&arguments.call, arguments.index) {
        (_, Some(index)) => vec![index],
        (call, None) => {
            let action = reader.action(call.as_deref().unwrap_or_default())?;
            std::iter::once(action.enter_index).chain(action.exit_index).collect()
        }
    };
    let records = indices.into_iter().map(|index| whole(reader, index)).collect::<Result<Vec<_>, _>>()?;
    if json {
        return out::json(&json!({ "records": records }));
    }
    records.iter().try_for_each(out::pretty)
}

/// A record with what is kept of its body.
fn whole(reader: &Reader, index: u64) -> Result<Value, Fault> {
    let RecordRow { bytes, leaf, .. } = reader.record(index)?;
    let record: Value = serde_json::from_str(&bytes).unwrap_or_else(|_| json!({ "unreadable": bytes }));
    let body = reader.body(index)?.map(|body| {
        let text = String::from_utf8_lossy(&body.kept).into_owned();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    });
    Ok(json!({ "record": record, "leaf": leaf, "body": body }))
}

pub(super) fn tail(reader: &Reader, arguments: &TailArguments, json: bool) -> Result<(), Fault> {
    let mut next = reader.extent()?.1.saturating_sub(arguments.lines);
    block_on(async {
        let mut beat = tokio::time::interval(FOLLOW_PERIOD);
        loop {
            beat.tick().await;
            match print_from(reader, next, json)? {
                Some(printed) if arguments.follow => next = printed,
                _ => return Ok(()),
            }
        }
    })?
}

/// Prints all there is, and gives the next index; none if whoever read it has seen enough.
fn print_from(reader: &Reader, mut next: u64, json: bool) -> Result<Option<u64>, Fault> {
    loop {
        let rows = reader.records(next, RANGE_RECORDS)?;
        for row in &rows {
            // A record is one line of JSON already; its bytes as they are have `audit export` and `audit prove`.
            if !out::line_if_read(&if json { out::visible_json(&row.bytes) } else { brief(row) })? {
                return Ok(None);
            }
        }
        next += rows.len() as u64;
        if (rows.len() as u64) < RANGE_RECORDS {
            return Ok(Some(next));
        }
    }
}

/// One line for people.
fn brief(row: &RecordRow) -> String {
    let record: Value = serde_json::from_str(&row.bytes).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(|text| out::head(text, NAME_CHARS_MAX));
    let facts = &record["facts"];
    let about = BRIEFLY.iter().filter_map(|key| text(&facts[key])).collect::<Vec<_>>().join(" ");
    // Of what is a list, how long it is.
    let lists = ["tools", "layers", "servers"].iter().filter_map(|key| {
        let listed = facts[*key].as_array()?.len() as u64;
        let all = facts["server_count"].as_u64().filter(|_| *key == "servers");
        Some(format!(" {} {key}", all.unwrap_or(listed)))
    });
    let about = about + &lists.collect::<String>();
    let call = facts["sequence_no"].as_u64().map(|number| format!("call {number} ")).unwrap_or_default();
    let (at, event) = (text(&record["at"]).unwrap_or_default(), text(&record["event"]).unwrap_or_default());
    out::visible(&format!("{:>8}  {at}  {event:<12} {call}{about}", row.index))
}
