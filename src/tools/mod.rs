//! What colibri itself serves: the registry of native tools, and the tools, one file per domain.
//!
//! Owns: how a typed function becomes a tool (schemas derived, arguments parsed, result enveloped).
//! Uses: `store` for durable truth, `domain` for rules.
//! Must not know: protocol frames, turns, audit records, or that servers exist.

mod error;
pub mod proofs;
mod schema;
pub mod server;
pub mod skills;
pub mod tasks;
pub mod thoughts;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::domain::audit::{CallId, Pending};
use crate::domain::clock::Moment;
use crate::domain::tool::{Annotations, Definition, InvalidToolName, check_native_name};

pub use error::ToolError;

/// What a tool says of itself. Schemas are not here: they derive from the types of its function.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct ToolConfig {
    /// For people.
    pub title: Cow<'static, str>,
    /// For models: what it does and when to use it.
    pub description: Cow<'static, str>,
    /// Whether it changes anything. `READONLY` does not admit it then.
    pub mutates: bool,
    /// Whether what it changes is lost.
    pub destructive: bool,
    /// Whether asking twice is the same as asking once.
    pub idempotent: bool,
    /// The codes with which it may refuse (pattern B).
    pub refusals: &'static [&'static str],
    /// Whether it stands behind a method of the protocol, or a command, and is no tool to clients: it
    /// is not listed and cannot be called as one. Its name may be a method's, with `/` in it.
    pub hidden: bool,
    /// The codes with which it may fail (pattern A): see [`ToolError::coded`].
    pub failures: &'static [&'static str],
}

impl ToolConfig {
    /// A tool that only reads and never refuses; the start of every other.
    pub const NONE: Self = Self {
        title: Cow::Borrowed(""),
        description: Cow::Borrowed(""),
        mutates: false,
        destructive: false,
        idempotent: false,
        refusals: &[],
        hidden: false,
        failures: &[],
    };
}

/// What a tool's function is told about the call it serves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// The call's correlation id.
    pub call: CallId,
    /// When the call arrived.
    pub arrived: Moment,
    /// Cancelled when nobody waits for the result any more.
    pub cancel: CancellationToken,
}

impl Context {
    /// What there is to know of a call.
    pub fn new(call: CallId, arrived: Moment, cancel: CancellationToken) -> Self {
        Self { call, arrived, cancel }
    }
}

/// A call whose arguments are parsed: all that is left is to run it.
pub type Ready = Box<dyn FnOnce(Context) -> Pending<'static, Result<Box<RawValue>, ToolError>> + Send>;

type Prepare = dyn Fn(Value) -> Result<Ready, serde_json::Error> + Send + Sync;

/// One native tool.
pub struct Tool {
    /// Its entry in `tools/list`.
    pub definition: Definition,
    /// Whether it changes anything.
    pub mutates: bool,
    /// The codes with which it may refuse.
    pub refusals: &'static [&'static str],
    /// See [`ToolConfig::hidden`].
    pub hidden: bool,
    prepare: Box<Prepare>,
}

impl Tool {
    /// Parses arguments that the schema has admitted.
    pub fn prepare(&self, arguments: Value) -> Result<Ready, serde_json::Error> {
        (self.prepare)(arguments)
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Tool({})", self.definition.name)
    }
}

/// Why a tool cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// See [`check_native_name`].
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    /// Names are unique.
    #[error("tool already registered: {0}")]
    Duplicate(String),
    /// MCP arguments are an object, always.
    #[error("the input schema of {0} is not an object: take a struct with named fields")]
    NotAnObject(String),
    /// Clients have been told what there is.
    #[error("tool registered too late: {0}; register before the server starts")]
    TooLate(String),
}

/// The native tools, by name.
#[derive(Debug, Default)]
pub struct Registry {
    tools: BTreeMap<Arc<str>, Tool>,
}

impl Registry {
    /// Makes a typed function a tool. `A` and `O` give the schemas that `tools/list` shows.
    pub fn register<A, O, F, Fut>(
        &mut self,
        name: &str,
        config: ToolConfig,
        function: F,
    ) -> Result<(), RegisterError>
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema,
        F: Fn(A, Context) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        if config.hidden {
            name.split('/').try_for_each(check_native_name)?;
        } else {
            check_native_name(name)?;
        }
        if self.tools.contains_key(name) {
            return Err(RegisterError::Duplicate(name.to_owned()));
        }
        let input_schema = schema::input::<A>().ok_or_else(|| RegisterError::NotAnObject(name.to_owned()))?;
        let definition = Definition {
            name: name.into(),
            title: config.title.into_owned(),
            description: config.description.into_owned(),
            input_schema,
            output_schema: schema::envelope::<O>(config.refusals, config.failures),
            annotations: Annotations {
                read_only: !config.mutates,
                destructive: config.destructive,
                idempotent: config.idempotent || !config.mutates,
                open_world: false,
            },
        };
        let prepare = move |arguments: Value| -> Result<Ready, serde_json::Error> {
            let (arguments, function): (A, F) = (serde_json::from_value(arguments)?, function.clone());
            Ok(Box::new(move |context| {
                Box::pin(async move {
                    let output = function(arguments, context).await?;
                    Ok(to_raw_value(&output)?)
                })
            }))
        };
        let ToolConfig { mutates, refusals, hidden, .. } = config;
        let tool = Tool { definition, mutates, refusals, hidden, prepare: Box::new(prepare) };
        self.tools.insert(name.into(), tool);
        Ok(())
    }

    /// All of them, ordered by name.
    pub fn into_tools(self) -> impl Iterator<Item = Tool> {
        self.tools.into_values()
    }

    /// Their names and whether they change anything, ordered by name.
    pub fn names(&self) -> impl Iterator<Item = (&str, bool)> {
        self.tools.iter().map(|(name, tool)| (&**name, tool.mutates))
    }
}
