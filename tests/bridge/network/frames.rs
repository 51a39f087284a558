//! WebSocket frames, by hand: what a client sends is read, what a server sends is written, right or
//! wrong.

use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::wire::Heard;

/// What a frame is.
pub(crate) const TEXT: u8 = 1;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// A frame of the client's, unmasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

/// The first frame of these bytes, and how many bytes it took; nothing if it is not whole.
pub(crate) fn read(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    assert_eq!(second & 0x80, 0x80, "a client masks every frame");
    let (length, at) = match second & 0x7f {
        126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
        length => (usize::from(length), 2),
    };
    let mask = bytes.get(at..at + 4)?;
    let masked = bytes.get(at + 4..at + 4 + length)?;
    let payload = masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    Some((Frame { opcode: first & 0x0f, payload }, at + 4 + length))
}

/// A whole frame, unmasked as a server sends it.
pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    [&head(opcode, payload.len() as u64), payload].concat()
}

/// Its head alone: it may promise more than will come.
pub(crate) fn head(opcode: u8, length: u64) -> Vec<u8> {
    let mut head = vec![0x80 | opcode];
    match length {
        0..126 => head.push(length as u8),
        126..0x1_0000 => {
            head.push(126);
            head.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&length.to_be_bytes());
        }
    }
    head
}

/// The answer to a handshake. `extra` is more of its headers, each with its line's end.
pub(crate) fn switch(heard: &Heard, extra: &str) -> String {
    let key = heard.header("sec-websocket-key").expect("a handshake has a key");
    let accept = derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {accept}\r\n{extra}\r\n"
    )
}
