//! Panics and signals: what the process does when it is told to end, or breaks.

use std::backtrace::Backtrace;
use std::io;
use std::panic::PanicHookInfo;
use std::sync::Once;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::domain::contain::{is_contained, note_backtrace, panic_message};
use crate::domain::log::Logger;

/// Installs the panic hook, once for the process, however often it is asked to.
pub(super) fn install_panic_hook(logger: &Logger) {
    static INSTALLED: Once = Once::new();
    let logger = logger.clone();
    INSTALLED.call_once(|| std::panic::set_hook(Box::new(move |panic| on_panic(&logger, panic))));
}

/// A tool's panic is an answer; any other is the end, said on stderr and told by the exit code.
fn on_panic(logger: &Logger, panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|location| format!(" at {location}")).unwrap_or_default();
    if is_contained() {
        note_backtrace(format!("{place}\n{}", Backtrace::force_capture()));
        return;
    }
    logger.error(format_args!("[colibri] panic: {}{place}", payload_message(panic)));
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing after a broken invariant can be trusted, main included"
    )]
    std::process::exit(1);
}

fn payload_message(panic: &PanicHookInfo<'_>) -> String {
    panic.payload_as_str().map_or_else(|| panic_message(&()), str::to_owned)
}

/// SIGTERM and SIGINT ask for a clean stop.
pub(super) fn stop_on_signals(stop: CancellationToken) -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = stop.cancelled() => {}
        }
        stop.cancel();
    });
    Ok(())
}
