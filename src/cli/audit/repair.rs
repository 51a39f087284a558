//! The acts on the ledger that only a person may do: replacing its key, or giving it up.

use serde_json::json;

use crate::app;
use crate::store::{Paths, Store, StoreError, accept_loss as give_up, public_keys};

use super::super::Session;
use super::super::fault::{Exit, Fault};
use super::super::out;
use super::super::serve::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum KeyCommand {
    /// Print the public key that verifies the log; with --json all that ever did
    Show,
    /// Replace the key; the old one signs the record that names the new one
    Rotate,
}

#[derive(clap::Args)]
pub(crate) struct AcceptLossArguments {
    /// Really do it
    #[arg(long)]
    yes: bool,
}

pub(super) fn key(session: &Session, command: &KeyCommand) -> Result<(), Fault> {
    let (loaded, logger) = session.load()?;
    match command {
        KeyCommand::Show => {
            let keys: Vec<String> = public_keys(&Paths::beside(&loaded.config.database))?
                .iter()
                .map(ToString::to_string)
                .collect();
            let Some(newest) = keys.last() else {
                return Err(
                    StoreError::NotFound("there is no key yet; `colibri serve` makes it".to_owned()).into()
                );
            };
            if session.json { out::json(&json!({ "keys": keys })) } else { out::line(newest) }
        }
        KeyCommand::Rotate => {
            let patience = loaded.config.startup_timeout;
            let (old, new) = block_on(async {
                let (store, closing) = Store::open(app::store_options(&loaded.config, &logger))?;
                let rotated = match app::ready(&store, patience).await {
                    Ok(()) => store.rotate_key().await.map_err(app::RunError::from),
                    Err(error) => Err(error),
                };
                closing.close().await;
                rotated
            })??;
            if session.json {
                return out::json(&json!({ "old": old, "new": new }));
            }
            out::line(&format!("old {old}\nnew {new}"))
        }
    }
}

pub(super) fn accept_loss(session: &Session, arguments: &AcceptLossArguments) -> Result<(), Fault> {
    let (loaded, logger) = session.load()?;
    let options = app::store_options(&loaded.config, &logger);
    let patience = loaded.config.startup_timeout;
    let opened = block_on(async {
        let (store, closing) =
            Store::open(app::store_options(&loaded.config, &crate::domain::log::Logger::silent()))?;
        let opened = app::ready(&store, patience).await;
        closing.close().await;
        opened
    })?;
    let reason = match opened {
        Ok(()) => return Err(Fault::new(Exit::Usage, "the ledger is sound; there is no loss to accept")),
        Err(app::RunError::Store(reason)) => reason,
        Err(other) => return Err(other.into()),
    };
    match reason {
        StoreError::RolledBack { .. } | StoreError::Key { .. } | StoreError::Corrupt { .. } => {}
        // A disk that is full or a newer schema is not a loss; giving up the log would not help.
        other => return Err(other.into()),
    }
    if !arguments.yes {
        let message = format!(
            "the ledger is refused: {reason}. To give the log up for a new one that names it, add --yes"
        );
        return Err(Fault::new(Exit::StoreUnusable, message));
    }
    give_up(&options, &reason)?;
    out::line("a new log is open; its first record names the old one and why it was given up")
}
