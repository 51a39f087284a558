//! Whether two effective configurations of a server are the same, secrets included.
//!
//! Owns: what counts as a change. Must not know: what is done about one.

use std::fmt;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::domain::merkle;

use super::secret::{Expanded, Secret};
use super::server::{OAuthConfig, ServerConfig};

/// SHA-256's block.
const BLOCK_BYTES: usize = 64;

/// What an effective configuration comes to under a key. Equal if and only if everything is, secret values
/// among it. It cannot be printed or written: who had it and the key could try out secrets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Identity(***)")
    }
}

impl Identity {
    /// For comparing in memory. It must not be kept or shown.
    pub fn in_memory(self) -> merkle::Hash {
        merkle::Hash(self.0)
    }
}

impl ServerConfig {
    /// The same for the same effective configuration, different for any other. `key` is random and of this
    /// process, so that nothing can be told from an identity that leaks.
    pub fn identity(&self, key: &[u8; 32]) -> Identity {
        let whole = serde_json::to_vec(&laid_open(self)).expect("a configuration always serialises");
        Identity(keyed_hash(key, &whole))
    }
}

/// HMAC-SHA-256 (RFC 2104).
fn keyed_hash(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let pad = |byte: u8| {
        let mut block = [byte; BLOCK_BYTES];
        block.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

/// Everything with the texts as they are used. The pattern names every field, so that a new one must be
/// decided upon here: what serialises as shown (a secret, a text with variables) is laid open by hand.
fn laid_open(config: &ServerConfig) -> Value {
    let ServerConfig {
        transport,
        command,
        args,
        env,
        env_file,
        cwd,
        url,
        headers,
        oauth,
        tools_allowed,
        tools_denied,
        disabled,
        required,
        start,
        shared,
        isolation,
        pool,
        health_probe,
        queue,
        timeout,
        max_total_timeout,
        connect_timeout,
        acquire_timeout,
        idle_close,
        probe_interval,
        probe_timeout,
        pin,
        validate_output,
        restart,
        sandbox,
        limits,
        tools,
    } = config;
    let value = |text: &Option<Expanded>| text.as_ref().map(|text| text.value().to_owned());
    let secrets = |all: &std::collections::BTreeMap<String, Secret>| -> Vec<(String, String)> {
        all.iter().map(|(name, secret)| (name.clone(), secret.expose().to_owned())).collect()
    };
    json!([
        [transport, value(command), args.iter().map(Expanded::value).collect::<Vec<_>>()],
        [secrets(env), value(env_file), value(cwd), value(url), secrets(headers), signing_in(oauth)],
        [
            tools_allowed,
            tools_denied,
            disabled,
            required,
            start,
            shared,
            isolation,
            pool,
            health_probe,
            queue
        ],
        [timeout, max_total_timeout, connect_timeout, acquire_timeout, idle_close],
        [probe_interval, probe_timeout, pin, validate_output, restart, sandbox, limits, tools],
    ])
}

fn signing_in(oauth: &OAuthConfig) -> Value {
    let OAuthConfig {
        client_id,
        client_secret,
        client_key_file,
        client_metadata_url,
        scopes,
        callback_port,
        grant,
        allow_private_addresses,
    } = oauth;
    json!([
        client_id.as_ref().map(Expanded::value),
        client_secret.as_ref().map(Secret::expose),
        client_key_file.as_ref().map(Expanded::value),
        client_metadata_url,
        scopes,
        callback_port,
        grant,
        allow_private_addresses,
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::from_value;

    use super::super::schema;
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn config(entry: Value) -> ServerConfig {
        from_value(entry).expect("an entry that fits the structs")
    }

    /// A value of each key that is not its default.
    fn others() -> BTreeMap<&'static str, Vec<Value>> {
        BTreeMap::from([
            ("type", vec![json!("sse")]),
            ("command", vec![json!("x"), json!("y")]),
            ("args", vec![json!(["a", "b"]), json!(["a b"]), json!(["b", "a"])]),
            ("env", vec![json!({"A": "1"}), json!({"A": "2"}), json!({"B": "1"})]),
            ("envFile", vec![json!("/x")]),
            ("cwd", vec![json!("/x")]),
            ("url", vec![json!("http://x")]),
            ("headers", vec![json!({"A": "1"}), json!({"A": "2"})]),
            (
                "oauth",
                vec![
                    json!({"clientId": "x"}),
                    json!({"clientSecret": "x"}),
                    json!({"clientSecret": "y"}),
                    json!({"clientKeyFile": "x"}),
                    json!({"clientMetadataUrl": "x"}),
                    json!({"scopes": "x"}),
                    json!({"callbackPort": 1}),
                    json!({"grant": "clientCredentials"}),
                    json!({"allowPrivateAddresses": true}),
                ],
            ),
            ("toolsAllowed", vec![json!(["x"])]),
            ("toolsDenied", vec![json!(["x"])]),
            ("disabled", vec![json!(true)]),
            ("required", vec![json!(true)]),
            ("start", vec![json!("onUse")]),
            ("shared", vec![json!(false)]),
            ("isolation", vec![json!("call"), json!("session")]),
            ("pool", vec![json!({ "size": 3 }), json!({ "maxUses": 9 })]),
            ("healthProbe", vec![json!("listTools")]),
            ("queue", vec![json!("x")]),
            ("timeout", vec![json!(1)]),
            ("maxTotalTimeout", vec![json!(1)]),
            ("connectTimeout", vec![json!(1)]),
            ("acquireTimeout", vec![json!(1)]),
            ("idleClose", vec![json!(1)]),
            ("probeInterval", vec![json!(1)]),
            ("probeTimeout", vec![json!(1)]),
            ("pin", vec![json!("enforce")]),
            ("validateOutput", vec![json!("enforce")]),
            ("restart", vec![json!("bounded"), json!({"jitter": 0.1}), json!({"maxAttempts": 3})]),
            ("sandbox", vec![json!("off"), json!({"network": "none"}), json!({"network": ["h:1"]})]),
            ("limits", vec![json!({"memoryMb": 1}), json!({"processes": 1})]),
            ("tools", vec![json!({"t": {"retry": true}}), json!({"t": {"timeout": 1}})]),
        ])
    }

    #[test]
    fn any_change_is_a_change_and_nothing_else_is() {
        let others = others();
        let known: BTreeSet<&str> = schema::server()["properties"]
            .as_object()
            .expect("a server is an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(others.keys().copied().collect::<BTreeSet<_>>(), known, "every key has its line above");
        let mut seen = vec![("nothing", ServerConfig::default().identity(&KEY))];
        for (key, values) in others {
            for value in values {
                let changed = config(json!({ key: value }));
                let identity = changed.identity(&KEY);
                assert_eq!(identity, changed.clone().identity(&KEY), "{key} {value}");
                let same = seen.iter().find(|(_, other)| *other == identity);
                assert_eq!(same, None, "{key} {value}");
                seen.push((key, identity));
            }
        }
    }

    /// What variables came to counts, not how they were written; and the key counts.
    #[test]
    fn a_changed_variable_is_a_change() {
        let mut one = config(json!({"command": "x", "args": ["${A}"]}));
        let mut other = one.clone();
        "1".clone_into(&mut one.args[0].value);
        "2".clone_into(&mut other.args[0].value);
        assert_ne!(one.identity(&KEY), other.identity(&KEY));
        assert_ne!(one.identity(&KEY), one.identity(&[8; 32]));
        assert_eq!(format!("{:?}", one.identity(&KEY)), "Identity(***)");
    }

    /// The first case of RFC 4231 that a key of 32 bytes can show: a shorter key is padded with zeros.
    #[test]
    fn the_keyed_hash_is_the_standard_one() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let hash = keyed_hash(&key, b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(merkle::Hash(hash).to_string(), expected);
    }
}
