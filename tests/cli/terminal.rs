//! `colibri serve`, typed by a person.

use crate::hostile::child::{Home, PING};
use crate::support::terminal::at_terminal;

/// It says what it serves, where its data is and what to try; the line to try works; Ctrl-D ends it.
#[test]
fn a_person_at_a_terminal_is_told_what_this_is() {
    let home = Home::new();
    let (screen, status) = at_terminal(&home, "serve", &format!("{PING}\n\u{4}"));
    for word in [
        "colibri serves MCP here",
        &format!("data      {}", home.database().display()),
        "mode      FULL",
        "servers   0 configured",
        r#"try       {"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        "colibri call server_health",
        "Ctrl-D",
        "[colibri] ready",
        r#"{"jsonrpc":"2.0","id":"ping","result":{}}"#,
    ] {
        assert!(screen.contains(word), "{word:?} is not on the screen:\n{screen}");
    }
    assert_eq!(status.code(), Some(0), "{screen}");
}
