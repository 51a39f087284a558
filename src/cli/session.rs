//! `colibri session`: reasons that belong together, sealed under one root.

use serde_json::{Value, json};

use crate::domain::thought::code;

use super::Session;
use super::fault::Fault;
use super::invoke::{at_desk, invoke};
use super::out;
use super::task::{said, word};
use super::thought;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri session start \"Choose the storage\" --id storage
  colibri thought add --task 019f… --type decision --session storage \"SQLite\"
  colibri session finalize storage
  colibri audit prove --session storage               a file that proves all of it offline";

/// The name on record.
const CLIENT: &str = "colibri session";

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Begin a session
    Start {
        /// What it is for
        intent: String,
        /// The task it is about
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        /// Its id [default: a new one]
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// Seal a session: nothing can be added, and its root is signed with the log
    Finalize {
        /// Its id
        id: String,
    },
    /// Show a session: its root once it is sealed, and its records
    Show {
        /// Its id
        id: String,
    },
}

pub(super) fn run(session: &Session, command: Command) -> Result<(), Fault> {
    match command {
        Command::Start { intent, task, id } => {
            let ask = said([("intent", json!(intent)), ("task_id", json!(task)), ("session_id", json!(id))]);
            invoke(session, CLIENT, "audit_session_start", &ask, |started| {
                out::line(&out::visible(word(&started["session_id"])))
            })
        }
        Command::Finalize { id } => {
            let ask = json!({ "session_id": id });
            invoke(session, CLIENT, "merkle_finalize", &ask, |sealed| {
                seal(sealed)?;
                out::talk(&format!("prove it to anyone: colibri audit prove --session {}", out::visible(&id)))
            })
        }
        Command::Show { id } => show(session, &id),
    }
}

fn show(session: &Session, id: &str) -> Result<(), Fault> {
    let ask = json!({ "session_id": id }).to_string();
    let (root, records) = at_desk(session, CLIENT, async |desk| {
        let root = desk.call("merkle_root", ask.clone()).await?;
        let is_there = !root.is_error() || root.refusal() == Some(code::NOT_FINALIZED);
        let records =
            if is_there && !session.json { Some(desk.call("thought_record_list", ask).await?) } else { None };
        Ok((root, records))
    })?;
    let Some(records) = records else { return root.tell(session.json, |_| Ok(())) };
    if root.is_error() {
        out::line(&format!("session      {}\nstate        open", out::visible(id)))?;
    } else {
        root.tell(false, seal)?;
    }
    out::line("")?;
    records.tell(false, |page| {
        thought::table(&page["records"])?;
        super::task::more(&page["next_cursor"], "colibri thought list")
    })
}

fn seal(sealed: &Value) -> Result<(), Fault> {
    let text = |key: &str| out::visible(word(&sealed[key]));
    out::line(&format!(
        "session      {}\nstate        sealed at {}\nrecords      {}\nroot         {}\nheld by      record {} of the ledger",
        text("session_id"),
        text("finalized_at"),
        sealed["record_count"],
        text("root"),
        sealed["index"],
    ))
}
