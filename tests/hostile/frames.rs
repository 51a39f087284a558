//! One bad frame at a time: its exact error, nothing else, and then a good request.

use super::child::{Colibri, brief};

fn nested(depth: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}{}}}"#,
        "[".repeat(depth - 1),
        "]".repeat(depth - 1)
    )
}

/// Sends a frame, and expects one answer; then a ping is answered too.
#[track_caller]
fn check(colibri: &mut Colibri, frame: &[u8], expected: &str) {
    let shown = String::from_utf8_lossy(&frame[..frame.len().min(120)]).into_owned();
    colibri.send_bytes(frame);
    colibri.send_bytes(b"\n");
    assert_eq!(brief(&colibri.answer()), expected, "{shown}");
    colibri.assert_lives();
}

/// CO-12, bad input on stdio: what is not JSON gets -32700, whatever id it may have had in mind.
#[test]
fn what_is_not_json_is_a_parse_error() {
    let mut colibri = Colibri::speaking("2025-11-25");
    let table: &[&[u8]] = &[
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}",
        b"\xc0\xaf",             // Overlong.
        b"\"\xed\xa0\x80\"",     // A surrogate in UTF-8.
        b"\"\xf4\x90\x80\x80\"", // Beyond Unicode.
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
        b"\0",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\0ng\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\0",
        br#"{"jsonrpc":"2.0","id":1,"method":"ping"}{}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#,
        br#"{"jsonrpc":"2.0","id":01,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":+1,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":NaN,"method":"ping"}"#,
        b"{'jsonrpc':'2.0'}",
        b"hello?",
        b"Content-Length: 44\r",
        b" ",
    ];
    for frame in table {
        check(&mut colibri, frame, "null -32700");
    }
    for depth in [129, 100_000] {
        check(&mut colibri, nested(depth).as_bytes(), "null -32700");
    }
    assert!(colibri.finish().is_empty());
}

/// CO-12, bad input on stdio: what is JSON and no message gets its exact error, with the id where one
/// could be read.
#[test]
fn what_is_no_message_gets_its_exact_error() {
    let mut colibri = Colibri::speaking("2025-11-25");
    for (frame, expected) in [
        ("7", "null -32600"),
        ("null", "null -32600"),
        ("\"ping\"", "null -32600"),
        ("{}", "null -32600"),
        ("[]", "null -32600"),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "1 -32600"),
        (r#"{"id":1,"method":"ping"}"#, "1 -32600"),
    ] {
        check(&mut colibri, frame.as_bytes(), expected);
    }
    for (members, expected) in [
        (r#""id":1"#, "1 -32600"),
        (r#""id":1,"Method":"ping""#, "1 -32600"),
        (r#""id":1,"method":"ping","METHOD":"tools/list""#, "1 -32600"),
        (r#""id":1,"method":"ping","param\u017f":{}"#, "1 -32600"),
        (r#""id":1,"method":"ping","paramſ":{}"#, "1 -32600"),
        (r#""id":1,"m\u0065thod":"ping""#, "1 -32600"),
        (r#""id":1,"method":"ping","method":"tools/list""#, "1 -32600"),
        (r#""id":1,"id":2,"method":"ping""#, "1 -32600"),
        (r#""id":1,"method":"ping","jsonrpc":"2.0""#, "1 -32600"),
        (r#""id":1,"method":"ping","params":{},"params":{}"#, "1 -32600"),
        (r#""id":1,"method":["ping"]"#, "1 -32600"),
        (r#""id":1,"method":"ping","result":{}"#, "1 -32600"),
        (r#""id":1.5,"method":"ping""#, "null -32600"),
        (r#""id":null,"method":"ping""#, "null -32600"),
        (r#""id":{},"method":"ping""#, "null -32600"),
        (r#""id":true,"method":"ping""#, "null -32600"),
        (r#""id":"\udc00","method":"ping""#, "null -32600"),
        (r#""id":1,"method":"no/such""#, "1 -32601"),
        (r#""id":1,"method":"""#, "1 -32601"),
        (r#""id":1,"method":"tools/list","params":[]"#, "1 -32602"),
        (r#""id":1,"method":"tools/list","params":{"cursor":"?"}"#, "1 -32602"),
        (r#""id":1,"method":"tools/call","params":{"name":"x","name":"y"}"#, "1 -32602"),
        (r#""id":1,"method":"tools/call","params":{"name":"\ud800"}"#, "1 -32602"),
        (r#""id":1,"method":"tools/call","params":{"name":null}"#, "1 -32602"),
        (r#""id":1,"method":"tools/call""#, "1 -32602"),
        (r#""id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}"#, "1 -32600"),
        (r#""id":1,"method":"logging/setLevel","params":{"level":"loud"}"#, "1 -32602"),
    ] {
        check(&mut colibri, format!(r#"{{"jsonrpc":"2.0",{members}}}"#).as_bytes(), expected);
    }
    assert!(colibri.finish().is_empty());
}

/// The deepest nesting that is allowed is answered, as are the odd forms that are none of a receiver's
/// business: blanks, a carriage return, empty lines.
#[test]
fn what_is_odd_but_right_is_answered() {
    let mut colibri = Colibri::speaking("2025-11-25");
    for (frame, expected) in [
        (nested(128).as_str(), "1 -32602"), // Read, and then found to be no object.
        ("\n\r\n  {\"jsonrpc\":\"2.0\",\t\"id\" : 1 ,\"method\":\"ping\"} \r", "1 ok"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"p\u0069ng","x":1e400,"y":"\ud800"}"#, "1 ok"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1e400,"a":"\udc00"}}"#, "1 ok"),
        (r#"{"jsonrpc":"2.0","id":"","method":"ping"}"#, "\"\" ok"),
        (r#"{"jsonrpc":"2.0","id":"\u0000","method":"ping"}"#, "\"\\u0000\" ok"),
    ] {
        assert_eq!(colibri.ask(frame), expected, "{frame}");
    }
    // Never answered: answers to nothing, and notifications of whatever kind.
    for frame in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"?"}}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"server_ping"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/nonsense","params":7}"#,
    ] {
        colibri.send(frame);
        colibri.assert_lives();
    }
    assert!(colibri.finish().is_empty());
}

/// An id comes back byte for byte: 2^53+1 is not rounded.
#[test]
fn an_id_is_repeated_as_it_was_written() {
    let ids = ["9007199254740993", "-1", "123456789012345678901234567890", r#""\u0061\/é""#, "-0"];
    let asked = ids.map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n")).concat();
    let home = super::child::Home::new();
    let output = super::endings::pipe(home.command().arg("serve"), asked.as_bytes());
    let expected = ids.map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n")).concat();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

/// CO-5, bad input on stdio: what JSON allows and no value can hold is `INVALID_PARAMS` of a native tool.
#[test]
fn arguments_that_no_value_can_hold_are_invalid_params() {
    let mut colibri = Colibri::speaking("2025-11-25");
    for arguments in [
        r#"{"a":"\ud800"}"#,
        r#"{"\udfff":1}"#,
        r#"{"a":1e400}"#,
        r#"{"a":-1e999}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1,"b":2}}"#,
        r#"{"unknown":true}"#,
        "[]",
        "\"text\"",
        "7",
    ] {
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"server_ping","arguments":{arguments}}}}}"#
        );
        assert_eq!(colibri.ask(&frame), "1 INVALID_PARAMS", "{arguments}");
        colibri.assert_lives();
    }
    // Absent, and as good as absent.
    for rest in ["", r#","arguments":null"#, r#","arguments":{}"#] {
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"server_ping"{rest}}}}}"#
        );
        assert_eq!(colibri.ask(&frame), "1 ok", "{rest}");
    }
}

/// Bad input on stdio: a frame of exactly the limit is read, one byte more is not; a large argument is
/// not repeated to who sent it.
#[test]
fn the_frame_limit_is_exact_and_errors_are_small() {
    const LIMIT: usize = 4 << 20;
    let mut colibri = Colibri::speaking("2025-11-25");
    let (head, tail) = (r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":""#, r#""}"#);
    let padded = |length: usize| format!("{head}{}{tail}", "x".repeat(length - head.len() - tail.len()));
    assert_eq!(colibri.ask(&padded(LIMIT)), "1 ok");
    assert_eq!(colibri.ask(&padded(LIMIT + 1)), "null -32600");
    colibri.assert_lives();

    let long = "z".repeat(2 << 20);
    for (frame, expected) in [
        (format!(r#"{{"name":"server_ping","arguments":{{"{long}":1}}}}"#), "1 INVALID_PARAMS"),
        (format!(r#"{{"name":"server_ping","arguments":"{long}"}}"#), "1 INVALID_PARAMS"),
        (format!(r#"{{"name":"{long}"}}"#), "1 -32602"),
        (
            format!(
                r#"{{"name":"server_ping","_meta":{{"io.modelcontextprotocol/protocolVersion":"{long}"}}}}"#
            ),
            "1 -32022",
        ),
    ] {
        colibri.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{frame}}}"#));
        let answer = colibri.answer();
        assert_eq!(brief(&answer), expected);
        let size = answer.to_string().len();
        assert!(size < 8 << 10, "{size} bytes: {expected}");
    }
    assert_eq!(colibri.ask(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{long}"}}"#)), "1 -32601");
    assert!(colibri.finish().is_empty());
}
