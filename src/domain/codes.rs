//! Every code that a tool of colibri's own may answer with, and what it means.
//!
//! Owns: the words of `docs/errors.md`. Which tool answers with which code is in the tools' own schemas.

use super::failure::code as call;
use super::provider::code as server;
use super::task::code as task;
use super::thought::code as thought;

/// One code.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// Stable, for machines.
    pub name: &'static str,
    /// When it is the answer, and what to do then.
    pub meaning: &'static str,
    /// What the error carries beside its message.
    pub carries: &'static str,
}

const fn code(name: &'static str, meaning: &'static str, carries: &'static str) -> Code {
    Code { name, meaning, carries }
}

/// The codes of the call path: any tool may answer with them.
pub const OF_CALLS: [Code; 5] = [
    code(
        call::INVALID_PARAMS,
        "The arguments do not fit the tool's input schema. The tool did not run.",
        "`details.issues`: each with `path` and `message`",
    ),
    code(
        call::HANDLER_ERROR,
        "The tool failed, or panicked. A failure with a code of its own has it in `details.code` and in front of the message.",
        "`details.code`, where there is one",
    ),
    code(
        call::AUDIT_ENTER_FAILED,
        "The call could not be put on record, so the tool did not run. `server_health` says why.",
        "",
    ),
    code(
        call::AUDIT_EXIT_FAILED,
        "The tool ran, but its end is not on record. Only with `audit.onExitFailure: \"fail\"`.",
        "",
    ),
    code(call::TOOL_NOT_ADMITTED, "The mode does not admit the tool. The tool did not run.", ""),
];

/// The codes of calls to servers' tools that colibri itself fails.
pub const OF_SERVERS: [Code; 10] = [
    code(
        server::INIT_FAILED,
        "The server cannot be started or met, and no repetition cures it: no such program, not authorised, no common version, a missing sandbox layer.",
        "",
    ),
    code(
        server::UNAVAILABLE,
        "The server is not connected, or the connection was lost with the call on it. Try later.",
        "`details.reason`: `mcp_restart_in_progress`, `mcp_restart_failed`, `init_failed`, `link_lost`; `details.age_ms`",
    ),
    code(server::TIMEOUT, "No answer within the deadline. The server was told, and is probed.", ""),
    code(server::CRASHED, "The server's process ended during the call.", "`details.stderr`: its last words"),
    code(
        server::EXECUTE_FAILED,
        "The server answered a JSON-RPC error, which the client gets as it is. The code is for the record.",
        "",
    ),
    code(server::POLICY_DENIED, "The mode does not admit the tool. It was not called.", "`details.reason`"),
    code(
        server::INVALID_INPUT,
        "The arguments do not fit the schema that the server gave. The tool was not called.",
        "`details.issues`: each with `path` and `message`",
    ),
    code(server::CANCELLED, "The client took the call back, or colibri is stopping. For the record.", ""),
    code(server::TERMINATED, "The server has been closed, or colibri is stopping.", ""),
    code(
        server::TOOL_ERROR,
        "The tool said `isError`; the client gets its result unchanged. The code is for the record.",
        "",
    ),
];

/// The codes of tasks, reasons and sessions.
pub const OF_TOOLS: [Code; 12] = [
    code(task::NOT_FOUND, "There is no task of that id.", "`id`"),
    code(task::INVALID_TRANSITION, "The state machine has no such step.", "`from`, `to`, `allowed`"),
    code(
        task::WRITEBACK_REQUIRED,
        "DONE needs a reason on record: add one with `thought_record`.",
        "`missing_fields`",
    ),
    code(
        task::CONFLICT,
        "The task has another version than the one given: somebody changed it. Read it again.",
        "`expected`, `found`",
    ),
    code(
        task::CYCLE,
        "The tasks would wait for each other.",
        "`cycle`: the ids, from the task back to itself",
    ),
    code(thought::SESSION_NOT_FOUND, "There is no session of that id.", ""),
    code(thought::SESSION_EXISTS, "There is a session of that id already.", ""),
    code(thought::SESSION_FINALIZED, "The session is sealed; nothing can be added. Begin another.", ""),
    code(thought::ALREADY_FINALIZED, "The session was sealed before; `merkle_root` tells its root.", ""),
    code(thought::NOT_FINALIZED, "The session is not sealed yet; `merkle_finalize` seals it.", ""),
    code(thought::NO_RECORDS, "The session has no reasons to seal.", ""),
    code(thought::SESSION_REQUIRED, "`audit.requireSession` is set, and no session was named.", ""),
];
