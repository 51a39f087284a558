//! The envelope of native results, built as bytes: what the tool wrote is never parsed again.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::domain::audit::Outcome;
use crate::domain::failure::{Failure, Refusal};

/// How a call ended, ready for the client and for the record.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) body: Bytes,
    pub(super) error: Option<Failure>,
    pub(super) form: Form,
    /// What the client is told beside a server's result.
    pub(super) note: Option<String>,
}

/// What the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An envelope of colibri's own.
    Envelope,
    /// A server's whole result.
    Result,
    /// A server's JSON-RPC error.
    Error,
}

impl Ended {
    /// `{"ok":true,"data":…}`
    pub(super) fn ok(data: &RawValue) -> Self {
        let body = [b"{\"ok\":true,\"data\":", data.get().as_bytes(), b"}"].concat().into();
        Self { outcome: Outcome::Ok, body, error: None, form: Form::Envelope, note: None }
    }

    /// Pattern A: `{"ok":false,"error":…}`
    pub(super) fn failed(outcome: Outcome, failure: Failure) -> Self {
        let body = [b"{\"ok\":false,\"error\":", json(&failure).as_slice(), b"}"].concat().into();
        Self { outcome, body, error: Some(failure), form: Form::Envelope, note: None }
    }

    /// Pattern B: a success envelope around a no.
    pub(super) fn refused(refusal: Refusal) -> Self {
        let body = [b"{\"ok\":true,\"data\":{\"ok\":false,\"error\":", json(&refusal).as_slice(), b"}}"]
            .concat()
            .into();
        let error = Some(Failure::new(refusal.code, refusal.message));
        Self { outcome: Outcome::Error, body, error, form: Form::Envelope, note: None }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings and JSON values always serialise")
}
