//! `colibri server accept`: what waits for a person's word is shown, and exactly that is accepted.
//!
//! Owns: how a changed definition is laid out for a person, and the digests that stand for what was seen.

use serde_json::{Value, json};

use crate::domain::merkle::Hash;
use crate::domain::operator::Request;
use crate::domain::pin::{Difference, differences, digest_of_all, readable};

use super::super::Session;
use super::super::consent::{agreed, can_be_asked};
use super::super::fault::{Exit, Fault};
use super::super::out;
use super::{Named, SOON, ask};

/// How much of one definition is shown. More is no longer read, and is told of; and what was not shown whole is not
/// accepted by a yes.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// How many are named that were not shown whole. More say nothing more.
const NAMED_MAX: usize = 5;

/// How much of a name is shown among others.
const NAME_CHARS_MAX: usize = 100;

/// A server, and what of it is accepted.
#[derive(clap::Args)]
pub(in crate::cli) struct Accepted {
    #[command(flatten)]
    named: Named,
    /// The tools, by their server's own names, or `(instructions)` [default: all that wait]
    tools: Vec<String>,
    /// Do not ask: accept what is shown now, if it is shown whole
    #[arg(long, short)]
    yes: bool,
    /// Accept this and nothing else, without showing it: TOOL=DIGEST, or the one DIGEST of all that waits
    #[arg(long, value_name = "[TOOL=]DIGEST", conflicts_with = "yes")]
    digest: Vec<String>,
}

/// `colibri server accept`.
pub(in crate::cli) fn accept(session: &Session, accepted: &Accepted) -> Result<(), Fault> {
    let Accepted { named, tools, yes, digest } = accepted;
    let word =
        if digest.is_empty() { looked_at(session, named, tools, *yes)? } else { Some(given(tools, digest)?) };
    let Some(Word { tools, digest, shown }) = word else { return out::line("nothing is accepted") };
    let request = Request::Accept { server: named.server.clone(), tools, digest };
    let mut answer = ask(session, &named.which, &request, SOON)?;
    if session.json {
        if let Some(shown) = shown {
            answer["changes"] = shown.into();
        }
        return out::json(&answer);
    }
    let names = answer["accepted"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.into_iter().try_for_each(|name| out::line(&format!("accepted {}", out::visible(name))))
}

/// What somebody agrees to.
struct Word {
    tools: Vec<String>,
    /// Of all of them together.
    digest: Hash,
    /// What they were shown.
    shown: Option<Vec<Value>>,
}

/// What somebody has looked at just now and agrees to. Nothing if they do not agree.
fn looked_at(session: &Session, named: &Named, tools: &[String], yes: bool) -> Result<Option<Word>, Fault> {
    let request = Request::Show { server: named.server.clone() };
    let mut shown = ask(session, &named.which, &request, SOON)?;
    let server = shown["server"]["name"].as_str().unwrap_or(&named.server).to_owned();
    let Value::Array(mut changes) = shown["changes"].take() else { return Err(unreadable()) };
    let waits = |tool: &str, changes: &[Value]| changes.iter().any(|change| change["tool"] == tool);
    if changes.is_empty() {
        let what = format!("no tool waits to be accepted: `{server}` offers what it offered before");
        return Err(Fault::new(Exit::Usage, what));
    }
    if let Some(stranger) = tools.iter().find(|tool| !waits(tool, &changes)) {
        let what = format!("the tool `{stranger}` of `{server}` does not wait to be accepted");
        return Err(Fault::new(Exit::Usage, what));
    }
    let digest = if tools.is_empty() {
        shown["changes_digest"].as_str().and_then(|digest| digest.parse().ok())
    } else {
        changes.retain(|change| tools.iter().any(|tool| change["tool"] == **tool));
        let pairs: Option<Vec<(&str, Hash)>> = changes.iter().map(pair).collect();
        pairs.map(digest_of_all)
    };
    let digest = digest.ok_or_else(unreadable)?;
    // JSON shows all that there is.
    let unread = if session.json { absent(&changes) } else { show(&changes)? };
    let obstacle = if !unread.is_empty() {
        Some(not_whole(&server, &unread))
    } else if !yes && (session.json || !can_be_asked()) {
        let way = if tools.is_empty() { digest.to_string() } else { "TOOL=DIGEST".to_owned() };
        Some(format!("nobody can be asked here; if you have seen what changed, add --yes, or --digest {way}"))
    } else {
        None
    };
    if let Some(obstacle) = obstacle {
        if session.json {
            out::json(&json!({ "accepted": [], "changes": changes, "changes_digest": digest }))?;
        }
        return Err(Fault::new(Exit::Usage, format!("nothing is accepted: {obstacle}")));
    }
    let question = format!("Accept this of `{}`, as it is now?", out::visible(&server));
    let agrees = yes || agreed(&question)?;
    Ok(agrees.then(|| Word { tools: tools.to_vec(), digest, shown: Some(changes) }))
}

/// Those whose definition is not there at all.
fn absent(changes: &[Value]) -> Vec<&str> {
    changes.iter().filter(|change| !change["definition"].is_string()).map(name).collect()
}

/// Why a yes is not enough: it would be about what nobody has seen.
fn not_whole(server: &str, unread: &[&str]) -> String {
    let named = unread
        .iter()
        .take(NAMED_MAX)
        .map(|tool| format!("`{}`", out::visible(&out::head(tool, NAME_CHARS_MAX))));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if let Some(more) = unread.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        named = format!("{named} and {more} more");
    }
    let server = out::visible(server);
    format!(
        "there is too much of {named} to be shown whole; accept the others by their names, and this with --digest TOOL=DIGEST once you have read it: colibri server show {server} --json"
    )
}

/// What a script knows that it wants.
fn given(tools: &[String], digests: &[String]) -> Result<Word, Fault> {
    let usage = |what: String| Fault::new(Exit::Usage, what);
    let parsed = |digest: &str| -> Result<Hash, Fault> {
        let wrong = |_| usage(format!("`{digest}` is no digest: it has 64 hexadecimal digits"));
        digest.parse().map_err(wrong)
    };
    if let ([], [all]) = (tools, digests)
        && !all.contains('=')
    {
        return Ok(Word { tools: Vec::new(), digest: parsed(all)?, shown: None });
    }
    let mut pairs = Vec::new();
    for given in digests {
        match (given.rsplit_once('='), tools) {
            (Some((tool, digest)), []) => pairs.push((tool.to_owned(), parsed(digest)?)),
            (None, [tool]) if digests.len() == 1 => pairs.push((tool.clone(), parsed(given)?)),
            _ => {
                let what =
                    "give --digest TOOL=DIGEST for each tool, or one --digest DIGEST for all that waits";
                return Err(usage(what.to_owned()));
            }
        }
    }
    let digest = digest_of_all(pairs.iter().map(|(tool, digest)| (&**tool, *digest)));
    Ok(Word { tools: pairs.into_iter().map(|(tool, _)| tool).collect(), digest, shown: None })
}

fn pair(change: &Value) -> Option<(&str, Hash)> {
    Some((change["tool"].as_str()?, change["found"].as_str()?.parse().ok()?))
}

fn name(change: &Value) -> &str {
    change["tool"].as_str().unwrap_or("?")
}

fn unreadable() -> Fault {
    Fault::new(Exit::Unexpected, "the running colibri does not say what waits; is it another version?")
}

/// What waits, for a person who decides: the digests, and what is different or, without anything to compare with, the
/// whole definition. What hides in it is made visible. Gives the names of those that were not shown whole.
pub(super) fn show(changes: &[Value]) -> Result<Vec<&str>, Fault> {
    let mut unread = Vec::new();
    for change in changes {
        let text = |key: &str| change[key].as_str();
        let (kind, tool) = (text("kind").unwrap_or("?"), name(change));
        out::line(&format!("{kind:<8} {}", out::visible(tool)))?;
        for (key, head) in [("pinned", "was"), ("found", "is")] {
            if let Some(digest) = text(key) {
                out::line(&format!("  {head:<4} {}", out::visible(digest)))?;
            }
        }
        let Some(definition) = text("definition") else {
            out::line("  its definition is not shown: there is too much of it")?;
            unread.push(tool);
            continue;
        };
        let parts = text("former").and_then(|former| differences(former, definition));
        let is_whole = match parts {
            Some(parts) => laid_out_apart(&parts)?,
            None => laid_out("  ", &readable(definition))?,
        };
        if !is_whole {
            unread.push(tool);
        }
    }
    Ok(unread)
}

/// What is different, part by part. Tells whether all that is new was shown: what was before is not what is accepted.
fn laid_out_apart(parts: &[Difference]) -> Result<bool, Fault> {
    let mut is_whole = true;
    for Difference { at, before, after } in parts {
        out::line(&format!("  {}", out::visible(if at.is_empty() { "text" } else { at })))?;
        if let Some(before) = before {
            laid_out("    - ", before)?;
        }
        if let Some(after) = after {
            is_whole &= laid_out("    + ", after)?;
        }
    }
    Ok(is_whole)
}

/// A piece of JSON, each line behind a margin. Tells whether that was all of it.
fn laid_out(margin: &str, json: &str) -> Result<bool, Fault> {
    let end = json.floor_char_boundary(SHOWN_BYTES_MAX);
    for line in json[..end].lines() {
        out::line(&format!("{margin}{}", out::visible_json(line)))?;
    }
    if end < json.len() {
        out::line(&format!("{margin}… and {} bytes more: --json has them", json.len() - end))?;
    }
    Ok(end == json.len())
}
