//! What several stories share.

pub(crate) mod library;

/// colibri's own tools, in the order in which they are listed.
pub(crate) const NATIVE_TOOLS: [&str; 14] = [
    "audit_session_start",
    "audit_verify_chain",
    "merkle_finalize",
    "merkle_root",
    "server_health",
    "server_ping",
    "skill_list",
    "task_create",
    "task_get",
    "task_list",
    "task_next_actions",
    "task_update",
    "thought_record",
    "thought_record_list",
];

/// Where a child writes what it covered, when that is measured. An environment that is cleared for a
/// story keeps this one variable.
pub(crate) fn measured() -> Option<(&'static str, std::ffi::OsString)> {
    const VARIABLE: &str = "LLVM_PROFILE_FILE";
    std::env::var_os(VARIABLE).map(|file| (VARIABLE, file))
}
