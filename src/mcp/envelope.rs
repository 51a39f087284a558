//! Which frames are messages. What is not one gets its exact error here and goes no further.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

use super::error::Error;
use super::scan::{BATCH_MEMBERS_MAX, Key, Members, Shape, scan};

/// One frame, read.
#[derive(Debug, PartialEq)]
pub enum Frame {
    /// A message on its own.
    Single(Message),
    /// A JSON array of them: at least one, at most [`BATCH_MEMBERS_MAX`].
    Batch(Vec<Message>),
}

/// One message of a client.
#[derive(Debug, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// To be repeated in the answer.
        id: Id,
        /// What is asked.
        method: String,
        /// With what, as raw JSON.
        params: Option<Bytes>,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
        /// With what, as raw JSON.
        params: Option<Bytes>,
    },
    /// The answer to a request of ours.
    Response {
        /// Of our request; absent if it could not be read.
        id: Option<Id>,
        /// The result, or the error, as raw JSON.
        outcome: Result<Bytes, Bytes>,
    },
    /// No message at all.
    Refused {
        /// Of the request it was meant to be, as far as that could be read.
        id: Option<Id>,
        /// What to answer.
        error: Error,
    },
}

/// A request's id, repeated byte for byte: 2^53+1 stays what it is.
#[derive(Clone, Debug)]
pub struct Id {
    raw: Arc<str>,
    /// The same for all spellings: `"a"` and `"\u0061"` are one id.
    plain: Arc<str>,
}

impl Id {
    /// Reads a string or an integer; anything else identifies nothing.
    pub fn read(raw: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(raw).ok()?;
        let raw = Arc::<str>::from(text);
        match text.as_bytes() {
            // A lone surrogate is no text: repeated, it would make an answer that strict parsers refuse.
            [b'"', .., b'"'] if text.contains('\\') => {
                let plain =
                    serde_json::from_str::<String>(text).and_then(|plain| serde_json::to_string(&plain));
                plain.ok().map(|plain| Self { raw, plain: plain.into() })
            }
            [b'"', .., b'"'] => Some(Self { plain: Arc::clone(&raw), raw }),
            [b'-', digits @ ..] | digits if is_integer(digits) => Some(Self { plain: Arc::clone(&raw), raw }),
            _ => None,
        }
    }

    /// As the client wrote it.
    pub fn raw(&self) -> &str {
        &self.raw
    }
}

fn is_integer(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.plain == other.plain
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.plain.hash(state);
    }
}

/// Reads a frame. Never fails: what is wrong with it is one of its messages.
pub fn read(frame: &Bytes) -> Frame {
    let refused = |error| Frame::Single(Message::Refused { id: None, error });
    match scan(frame) {
        Err(error) => refused(Error::parse(format!("not valid JSON: {error}"))),
        Ok(Shape::Other) => refused(Error::invalid_request("a message is a JSON object")),
        Ok(Shape::Object(members)) => Frame::Single(message(frame, &members)),
        Ok(Shape::Batch(batch)) if batch.count == 0 => refused(Error::invalid_request("the batch is empty")),
        Ok(Shape::Batch(batch)) if batch.count > BATCH_MEMBERS_MAX => refused(Error::invalid_request(
            format!("a batch of {} messages: send at most {BATCH_MEMBERS_MAX} at once", batch.count),
        )),
        Ok(Shape::Batch(batch)) => {
            let read = |members: &Option<Members>| match members {
                Some(members) => message(frame, members),
                None => {
                    Message::Refused { id: None, error: Error::invalid_request("a message is a JSON object") }
                }
            };
            Frame::Batch(batch.members.iter().map(read).collect())
        }
    }
}

fn message(frame: &Bytes, members: &Members) -> Message {
    let value = |key| members.get(key).map(|span| frame.slice(span));
    let raw_id = value(Key::Id);
    let id = raw_id.as_deref().and_then(Id::read);
    let refuse = |id: Option<Id>, what: String| Message::Refused { id, error: Error::invalid_request(what) };

    if let Some(fault) = members.fault {
        return refuse(id, fault.to_string());
    }
    if value(Key::Jsonrpc).as_deref() != Some(br#""2.0""#) {
        return refuse(id, r#"`jsonrpc` must be "2.0""#.to_owned());
    }
    let method = match (value(Key::Method), value(Key::Result), value(Key::Error)) {
        (Some(method), None, None) => method,
        // Whatever its id: answering an answer could go on for ever.
        (None, Some(result), None) => return Message::Response { id, outcome: Ok(result) },
        (None, None, Some(error)) => return Message::Response { id, outcome: Err(error) },
        (None, None, None) => return refuse(id, "`method` is missing".to_owned()),
        _ => return refuse(id, "a message has one of `method`, `result` and `error`".to_owned()),
    };
    let Ok(method) = serde_json::from_slice::<String>(&method) else {
        return refuse(id, "`method` must be a string".to_owned());
    };
    let params = value(Key::Params);
    match (raw_id, id) {
        (None, _) => Message::Notification { method, params },
        (Some(_), Some(id)) => Message::Request { id, method, params },
        (Some(_), None) => refuse(None, "`id` must be a string or an integer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `request ID METHOD PARAMS`, `notification METHOD PARAMS`, `response`, or `CODE ID: MESSAGE`.
    fn tell(message: &Message) -> String {
        let text = |params: &Option<Bytes>| {
            params.as_ref().map_or("-".to_owned(), |raw| String::from_utf8_lossy(raw).into_owned())
        };
        match message {
            Message::Request { id, method, params } => {
                format!("request {} {method} {}", id.raw(), text(params))
            }
            Message::Notification { method, params } => format!("notification {method} {}", text(params)),
            Message::Response { id, outcome } => {
                let (kind, body) =
                    outcome.as_ref().map_or_else(|error| ("error", error), |result| ("result", result));
                format!("{kind} {} {}", id.as_ref().map_or("null", Id::raw), String::from_utf8_lossy(body))
            }
            Message::Refused { id, error } => {
                format!("{} {}: {}", error.code, id.as_ref().map_or("null", Id::raw), error.message)
            }
        }
    }

    #[track_caller]
    fn check(frame: &str, expected: &str) {
        let told = match read(&Bytes::copy_from_slice(frame.as_bytes())) {
            Frame::Single(message) => tell(&message),
            Frame::Batch(messages) => {
                format!("[{}]", messages.iter().map(tell).collect::<Vec<_>>().join(", "))
            }
        };
        assert_eq!(told, expected, "{frame}");
    }

    #[test]
    fn messages_keep_their_bytes() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping -");
        check(
            r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"tools\/list","params":{ "x" : 1.50}}"#,
            r#"request 9007199254740993 tools/list { "x" : 1.50}"#,
        );
        check(r#"{"jsonrpc":"2.0","id":"\u0061","method":"m","x":1}"#, r#"request "\u0061" m -"#);
        check(r#"{"jsonrpc":"2.0","id":-7,"method":"m","params":[]}"#, "request -7 m []");
        check(r#"{"jsonrpc":"2.0","method":"m","params":{}}"#, "notification m {}");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{ "a":1.0 }}"#, r#"result 1 { "a":1.0 }"#);
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, r#"error null {"code":1}"#);
    }

    /// Bad input on stdio: each gets its exact JSON-RPC error.
    #[test]
    fn what_is_no_message_gets_its_exact_error() {
        check("{", "-32700 null: not valid JSON: a key is missing at byte 1");
        check("7", "-32600 null: a message is a JSON object");
        check(r#"{"id":1,"method":"m"}"#, r#"-32600 1: `jsonrpc` must be "2.0""#);
        check(r#"{"jsonrpc":"1.0","id":"x","method":"m"}"#, r#"-32600 "x": `jsonrpc` must be "2.0""#);
        check(r#"{"jsonrpc":"2.0","id":1}"#, "-32600 1: `method` is missing");
        check(r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "-32600 1: `method` must be a string");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, "-32600 1: `method` must be a string");
        for id in ["null", "1.0", "1e3", "1.5", "true", "[1]", "{}", r#""\ud800""#] {
            check(
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#),
                "-32600 null: `id` must be a string or an integer",
            );
        }
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":1}"#,
            "-32600 1: a message has one of `method`, `result` and `error`",
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#,
            "-32600 1: a message has one of `method`, `result` and `error`",
        );
        check(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, "-32600 1: the key `id` is there twice");
        check(
            r#"{"jsonrpc":"2.0","id":1,"Method":"m"}"#,
            "-32600 1: a key differs from `method` only in case: keys are exact",
        );
    }

    #[test]
    fn a_batch_is_read_member_by_member() {
        check(
            r#"[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","method":"n"},3,{"jsonrpc":"2.0","id":4}]"#,
            "[request 1 m -, notification n -, -32600 null: a message is a JSON object, -32600 4: `method` is missing]",
        );
        check("[]", "-32600 null: the batch is empty");
        let many = format!("[{}1]", "1,".repeat(9_999));
        check(&many, "-32600 null: a batch of 10000 messages: send at most 100 at once");
    }

    #[test]
    fn an_id_is_the_same_however_it_is_spelled() {
        let id = |raw: &str| Id::read(raw.as_bytes());
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert_ne!(id(r#""1""#), id("1"));
        assert_eq!(id(r#""\ud800""#), None);
        for nothing in ["", "\"", "-", "1.0", "null"] {
            assert_eq!(id(nothing), None, "{nothing}");
        }
    }
}
