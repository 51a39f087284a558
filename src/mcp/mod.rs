//! MCP as data: frames, the JSON-RPC envelope, the protocol revisions, and what is said in each.
//!
//! Owns: which bytes are a frame, which frames are messages, which error each other frame gets, and
//! how colibri's answers are written in every revision.
//! Uses: `domain` for what a tool is.
//! Must not know: sockets, threads, tasks, who is connected. Everything here is a function of bytes.
//!
//! A frame comes in through [`lines`] (where does it end?), [`scan`] (is it JSON, and where are the
//! six keys?), [`envelope`] (is it a request?) and [`params`] (what does it ask?). An answer goes out
//! through [`answer`], [`lists`], [`listen`] and [`resources`]. Toward other servers, [`request`] writes, and over
//! HTTP [`headers`] repeats and [`sse`] frames.

pub mod answer;
pub mod envelope;
pub mod error;
pub mod headers;
pub mod lines;
pub mod listen;
pub mod lists;
pub mod params;
pub mod raw;
pub mod request;
pub mod resources;
pub mod revision;
pub mod scan;
pub mod sse;
