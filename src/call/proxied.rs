//! The same path for a server's tool: validated against the schema its server gave, put on record, sent,
//! and put on record again. Turns are its server's own business.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use crate::domain::audit::{CallId, Enter, Outcome};
use crate::domain::contain::contain;
use crate::domain::event::{News, SUMMARY_BYTES_MAX, summary};
use crate::domain::failure::Failure;
use crate::domain::names::split;
use crate::domain::provider::{ProviderError, Rule, Unavailable};
use crate::domain::tool::Listed;
use crate::fleet;
use crate::fleet::catalog::{Catalog, Proxied};
use crate::fleet::roster::{Calling, Failed, Fleet, Found, What};
use crate::mcp::lists::ToolList;
use crate::mcp::raw::Members;

use super::envelope::{Ended, Form};
use super::output::Promised;
use super::schemas::{self, Schema, Schemas};
use super::validate::{Wrong, whole};
use super::{Call, Path, Refused, Reply, UNKNOWN_TOOL, output};

/// The servers' side of the path.
pub(super) struct Servers {
    pub(super) fleet: Fleet,
    schemas: Schemas,
    /// The whole list, and the catalog it was made of.
    listed: Mutex<(Arc<Catalog>, Arc<ToolList>)>,
}

impl Servers {
    pub(super) fn new(fleet: Fleet) -> Self {
        Self { fleet, schemas: Schemas::default(), listed: Mutex::new((Arc::default(), Arc::default())) }
    }

    /// What a server has of that name; nothing if none has, or nobody wants to know any more.
    pub(super) async fn found(&self, call: &Call) -> Option<Found> {
        let found = call.cancel.run_until_cancelled(self.fleet.find_for(&call.tool, call.arrived)).await?;
        (!matches!(found, Found::Stranger)).then_some(found)
    }

    /// Colibri's own tools and the servers', ordered by name; made once for each catalog.
    pub(super) fn listed(&self, native: &[Listed], admits: impl Fn(&Proxied) -> bool) -> Arc<ToolList> {
        let catalog = Arc::clone(&self.fleet.catalog().borrow());
        let mut listed = self.listed.lock().expect("nothing panics while it holds the list");
        if listed.1.is_empty() || !Arc::ptr_eq(&listed.0, &catalog) {
            let proxied = catalog.tools().iter().filter(|tool| admits(tool)).map(|tool| Listed::Proxied {
                name: Arc::clone(&tool.name),
                definition: tool.definition.clone(),
            });
            let all = native.iter().cloned().chain(proxied).collect();
            *listed = (catalog, Arc::new(ToolList::new(all)));
        }
        Arc::clone(&listed.1)
    }
}

impl Servers {
    /// A result is what its tool promised, or that it is not is told; or it is refused, if its owner wants that.
    async fn keeps_its_promise(
        &self,
        tool: &Arc<Proxied>,
        call: CallId,
        ended: Ended,
        news: News,
    ) -> (Ended, News) {
        let enforced = self.fleet.enforces_output(&tool.server);
        let issues = match self.schemas.of(tool).await.output {
            Schema::Ready(schema) => output::broken(&schema, &ended.body).await,
            // What cannot be checked cannot be enforced, and must not pass as if it had been.
            Schema::Unusable(reason) if enforced && Promised::of(&ended.body) != Promised::Nothing => {
                vec![whole(format!("the output schema cannot be used: {reason}"))]
            }
            Schema::Absent | Schema::Unusable(_) => Vec::new(),
        };
        if issues.is_empty() {
            return (ended, news);
        }
        let told = output::told(&issues);
        self.fleet.mismatched(tool, call, &told);
        if !enforced {
            return (Ended { note: Some(told), ..ended }, news);
        }
        let error = output::refused(issues, &ended.body);
        let failure = error.failure(&self.fleet.name_of(&tool.server));
        (Ended::failed(error.meaning().outcome, failure), News::failed(&tool.tool, &error))
    }
}

impl Path {
    /// Stages 2 to 5 of a call to a server's tool.
    pub(super) async fn run_proxied(&self, servers: &Servers, call: Call, found: Found) -> Reply {
        let enter = call.enter();
        let (server, tool) = split(&call.tool).unwrap_or(("", &call.tool));
        let tool = match found {
            Found::Tool(tool) => tool,
            Found::Refused(failed) => {
                servers.fleet.bus().tell(server, call.id, News::failed(tool, &failed.error));
                return self.reject(&enter, Refused::Failed(failed.error.failure(&failed.server))).await;
            }
            Found::Stranger => {
                let message = format!("unknown tool `{}`", call.tool);
                return self.reject(&enter, Refused::Unknown { code: UNKNOWN_TOOL, message }).await;
            }
        };
        if let Err(error) = self.check_proxied(servers, &tool, &enter).await {
            servers.fleet.bus().tell(&tool.server, call.id, News::failed(&tool.tool, &error));
            let failure = error.failure(&servers.fleet.name_of(&tool.server));
            return self.reject(&enter, Refused::Failed(failure)).await;
        }
        if let Err(error) = self.sink.enter(&enter).await {
            return self.not_recorded(&enter, &error).await;
        }
        let ended = self.dispatch_proxied(servers, call, &tool, &enter).await;
        self.exit(&enter, ended).await
    }

    async fn dispatch_proxied(
        &self,
        servers: &Servers,
        call: Call,
        tool: &Arc<Proxied>,
        enter: &Enter,
    ) -> Ended {
        let Call { id, arrived, notices, cancel, rounds, caller, .. } = call;
        let what = What::Tool { tool, arguments: &enter.arguments };
        let rounds = rounds.as_ref().map(|rounds| fleet::roster::Rounds {
            capabilities: &rounds.capabilities,
            given: rounds.given.as_deref(),
        });
        let calling = Calling { id, arrived, session: caller.session, what, notices, cancel, rounds };
        let outcome = match contain(servers.fleet.call(calling)).await {
            Ok(outcome) => outcome,
            Err(panicked) => {
                let message = format!("colibri failed inside: {}", panicked.message);
                return Ended::failed(Outcome::Error, Failure::new(super::code::HANDLER_ERROR, message));
            }
        };
        let duration = self.clock.now().since(arrived);
        let (ended, news) = match outcome {
            Ok(result) => passed_on(result, &servers.fleet.name_of(&tool.server), &tool.tool, duration),
            Err(failure) => {
                let news = News::failed(&tool.tool, &failure.error);
                (failed(failure), news)
            }
        };
        let (ended, news) = match ended.form {
            Form::Result if ended.error.is_none() => servers.keeps_its_promise(tool, id, ended, news).await,
            _ => (ended, news),
        };
        servers.fleet.bus().tell(&tool.server, id, news);
        ended
    }

    async fn check_proxied(
        &self,
        servers: &Servers,
        tool: &Arc<Proxied>,
        enter: &Enter,
    ) -> Result<(), ProviderError> {
        if !self.mode.admits(&tool.name, !tool.read_only) {
            return Err(ProviderError::PolicyDenied(Rule::Mode));
        }
        // What cannot be checked here, its server alone can.
        let Schema::Ready(schema) = servers.schemas.of(tool).await.input else { return Ok(()) };
        match schemas::check(&schema, enter.arguments.clone()).await {
            Err(Wrong::Broken(issues)) => Err(ProviderError::InvalidInput(issues)),
            Ok(()) | Err(Wrong::Unchecked(_)) => Ok(()),
        }
    }
}

/// The tool's own result, with whatever it says of itself, and the event it makes.
fn passed_on(result: Bytes, server: &str, tool: &str, duration: Duration) -> (Ended, News) {
    if result.trim_ascii_start().first() != Some(&b'{') {
        let why = "the server answered with a result that is no object".into();
        let reason = Unavailable::LinkLost { sent: true };
        let error = ProviderError::Unavailable { reason, why, age: None };
        return (Ended::failed(Outcome::Error, error.failure(server)), News::failed(tool, &error));
    }
    // Nearly no result says it at all, and those are not taken apart.
    let says_error = memchr::memmem::find(&result, b"isError").is_some()
        && Members::of(&result)
            .and_then(|members| members.get("isError"))
            .is_some_and(|is| is.get() == "true");
    if says_error {
        let error = Some(ProviderError::ToolError.failure(server));
        let ended = Ended { outcome: Outcome::Error, body: result, error, form: Form::Result, note: None };
        return (ended, News::failed(tool, &ProviderError::ToolError));
    }
    let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let news = News::ToolCompleted { tool: tool.to_owned(), duration_ms, summary: beginning(&result) };
    (Ended { outcome: Outcome::Ok, body: result, error: None, form: Form::Result, note: None }, news)
}

/// The beginning of a result, for an event.
fn beginning(result: &[u8]) -> String {
    // One byte more than a summary shows, so that it says that there is more.
    let head = &result[..result.len().min(SUMMARY_BYTES_MAX + 4)];
    summary(&String::from_utf8_lossy(head))
}

pub(super) fn failed(Failed { server, error, relayed, .. }: Failed) -> Ended {
    let (outcome, failure) = (error.meaning().outcome, error.failure(&server));
    match relayed {
        Some(raw) => Ended { outcome, body: raw, error: Some(failure), form: Form::Error, note: None },
        None => Ended::failed(outcome, failure),
    }
}
