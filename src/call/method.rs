//! The same path for what servers offer beside tools: reading a resource, getting a prompt, completing an argument,
//! watching a resource. On record under the method's name, with what it was asked as its arguments.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::audit::{Enter, Outcome};
use crate::domain::contain::contain;
use crate::domain::failure::{Failure, invalid_params};
use crate::domain::log::visible;
use crate::domain::provider::{ProviderError, Unavailable};
use crate::fleet::roster::{Calling, What};
use crate::fleet::seek::{Named, Place};
use crate::mcp::raw::Members;

use super::envelope::{Ended, Form};
use super::proxied::{Servers, failed};
use super::{Call, Path, Refused, Reply, validate};

/// How much of an unknown name is repeated.
const SHOWN_CHARS_MAX: usize = 200;

/// The scheme of colibri's own resources.
const SKILLS: &str = "skill://";

/// A method of the protocol that a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Read,
    Subscribe,
    Unsubscribe,
    Prompt,
    Complete,
}

/// What is asked, as far as colibri reads it.
enum Asked<'a> {
    Uri(Cow<'a, str>),
    Prompt(Cow<'a, str>),
    /// The reference, raw, and what it refers to.
    Complete(&'a RawValue, Reference<'a>),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference<'a> {
    #[serde(rename = "ref/prompt")]
    Prompt {
        #[serde(borrow)]
        name: Cow<'a, str>,
    },
    #[serde(rename = "ref/resource")]
    Resource {
        #[serde(borrow)]
        uri: Cow<'a, str>,
    },
}

impl Method {
    /// The method that a call is of, if servers are to answer it: colibri's own resources are not theirs.
    pub(super) fn of(call: &Call, answers_skills: bool) -> Option<Self> {
        let method = Self::named(&call.tool).filter(|_| call.hidden)?;
        let arguments = call.arguments.as_deref().unwrap_or_default();
        let is_own = method == Self::Read
            && answers_skills
            && matches!(method.read(arguments), Ok(Asked::Uri(uri)) if uri.starts_with(SKILLS));
        (!is_own).then_some(method)
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Read, Self::Subscribe, Self::Unsubscribe, Self::Prompt, Self::Complete]
            .into_iter()
            .find(|method| method.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "resources/read",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::Prompt => "prompts/get",
            Self::Complete => "completion/complete",
        }
    }

    /// Stage 2: the shape of the params. What is inside them is for the server to judge.
    fn read(self, params: &[u8]) -> Result<Asked<'_>, serde_json::Error> {
        #[derive(Deserialize)]
        struct Resource<'a> {
            #[serde(borrow)]
            uri: Cow<'a, str>,
        }
        #[derive(Deserialize)]
        struct Prompt<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(default, borrow, rename = "arguments")]
            _arguments: Option<Members<'a>>,
        }
        #[derive(Deserialize)]
        struct Complete<'a> {
            #[serde(borrow, rename = "ref")]
            reference: &'a RawValue,
            #[serde(borrow, rename = "argument")]
            _argument: Argument<'a>,
        }
        #[derive(Deserialize)]
        struct Argument<'a> {
            #[serde(borrow, rename = "name")]
            _name: Cow<'a, str>,
            #[serde(borrow, rename = "value")]
            _value: Cow<'a, str>,
        }
        Ok(match self {
            Self::Read | Self::Subscribe | Self::Unsubscribe => {
                Asked::Uri(serde_json::from_slice::<Resource<'_>>(params)?.uri)
            }
            Self::Prompt => Asked::Prompt(serde_json::from_slice::<Prompt<'_>>(params)?.name),
            Self::Complete => {
                let Complete { reference, .. } = serde_json::from_slice(params)?;
                Asked::Complete(reference, serde_json::from_str(reference.get())?)
            }
        })
    }
}

impl Asked<'_> {
    fn named(&self) -> Named<'_> {
        match self {
            Self::Uri(uri) => Named::Resource(uri),
            Self::Prompt(name) | Self::Complete(_, Reference::Prompt { name }) => Named::Prompt(name),
            Self::Complete(_, Reference::Resource { uri }) => Named::Template(uri),
        }
    }

    /// The params as the server is asked: the same, under the name that it knows.
    fn params(&self, given: &[u8], own: &str) -> Vec<u8> {
        let quoted = serde_json::to_vec(own).expect("a text always serialises");
        let with = |object: &[u8], key: &str, value: &[u8]| {
            Members::of(object).map_or_else(|| object.to_vec(), |members| members.with(key, value))
        };
        match self {
            Self::Uri(_) => with(given, "uri", &quoted),
            Self::Prompt(_) => with(given, "name", &quoted),
            Self::Complete(raw, reference) => {
                let key = if matches!(reference, Reference::Prompt { .. }) { "name" } else { "uri" };
                with(given, "ref", &with(raw.get().as_bytes(), key, &quoted))
            }
        }
    }
}

impl Path {
    /// Stages 2 to 5 of a method that a server answers.
    pub(super) async fn run_method(&self, servers: &Servers, call: Call, method: Method) -> Reply {
        let enter = call.enter();
        let asked = match method.read(&enter.arguments) {
            Ok(asked) => asked,
            Err(error) => {
                let failure = invalid_params(vec![validate::whole(error.to_string())]);
                return self.reject(&enter, Refused::Failed(failure)).await;
            }
        };
        let sought = call.cancel.run_until_cancelled(servers.fleet.seek(asked.named())).await;
        let refused = match sought {
            Some(Ok(Some(place))) => {
                let Some(failure) = unwatched(servers, method, &place) else {
                    if let Err(error) = self.sink.enter(&enter).await {
                        return self.not_recorded(&enter, &error).await;
                    }
                    let ended = self.dispatch_method(servers, call, method, &asked, &place, &enter).await;
                    return self.exit(&enter, ended).await;
                };
                Refused::Failed(failure)
            }
            Some(Ok(None)) => unknown(servers, asked.named()),
            Some(Err(failed)) => Refused::Failed(failed.error.failure(&failed.server)),
            None => Refused::Cancelled,
        };
        self.reject(&enter, refused).await
    }

    async fn dispatch_method(
        &self,
        servers: &Servers,
        call: Call,
        method: Method,
        asked: &Asked<'_>,
        place: &Place,
        enter: &Enter,
    ) -> Ended {
        let Call { id, arrived, notices, cancel, caller, .. } = call;
        let params = asked.params(&enter.arguments, &place.own);
        // The protocol repeats in a header what is read or got, and nothing of the others.
        let name = matches!(method, Method::Read | Method::Prompt).then_some(&*place.own);
        let what = What::Other { server: &place.server, method: method.name(), params: &params, name };
        let calling = Calling { id, arrived, what, notices, cancel, rounds: None, session: caller.session };
        match contain(servers.fleet.call(calling)).await {
            Ok(Ok(result)) => answered(result, &servers.fleet.name_of(&place.server)),
            Ok(Err(failure)) => failed(failure),
            Err(panicked) => {
                let message = format!("colibri failed inside: {}", panicked.message);
                Ended::failed(Outcome::Error, Failure::new(super::code::HANDLER_ERROR, message))
            }
        }
    }
}

/// Why a resource cannot be watched, if it cannot.
fn unwatched(servers: &Servers, method: Method, place: &Place) -> Option<Failure> {
    let watches = matches!(method, Method::Subscribe | Method::Unsubscribe);
    if !watches || servers.fleet.catalog().borrow().abilities(&place.server).subscribe {
        return None;
    }
    let server = servers.fleet.name_of(&place.server);
    let message = format!("server `{server}` does not tell of changes of its resources");
    Some(invalid_params(vec![validate::whole(message)]))
}

fn unknown(servers: &Servers, named: Named<'_>) -> Refused {
    let (code, what, name) = match named {
        Named::Prompt(name) => ("UNKNOWN_PROMPT", "prompt", name),
        Named::Resource(uri) | Named::Template(uri) => ("UNKNOWN_RESOURCE", "resource", uri),
    };
    let hint = servers.fleet.nearest_to(named);
    let hint = hint.map(|known| format!("; did you mean `{}`?", visible(&known))).unwrap_or_default();
    let shown: String = visible(name).chars().take(SHOWN_CHARS_MAX).collect();
    Refused::Unknown { code, message: format!("unknown {what} `{shown}`{hint}") }
}

/// The server's own result.
fn answered(result: Bytes, server: &str) -> Ended {
    if result.trim_ascii_start().first() == Some(&b'{') {
        return Ended { outcome: Outcome::Ok, body: result, error: None, form: Form::Result, note: None };
    }
    let why = "the server answered with a result that is no object".into();
    let error = ProviderError::Unavailable { reason: Unavailable::LinkLost { sent: true }, why, age: None };
    Ended::failed(Outcome::Error, error.failure(server))
}
