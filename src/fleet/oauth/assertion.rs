//! A client that proves who it is with a key of its own: a signed statement in place of a secret
//! (RFC 7523). Signed by the same cryptography that TLS uses; there is no second one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use uuid::Uuid;

use crate::domain::clock::Timestamp;
use crate::domain::grant::Secret;

use super::error::OAuthError;

/// How long a statement holds: as long as it may take to arrive.
const LIFE_SECONDS: u64 = 300;

/// What a key can do, by the names that both sides call it, and the length of each half of an elliptic
/// curve's signature.
const ALGORITHMS: [(SignatureScheme, &str, Option<usize>); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, "ES256", Some(32)),
    (SignatureScheme::ECDSA_NISTP384_SHA384, "ES384", Some(48)),
    (SignatureScheme::RSA_PKCS1_SHA256, "RS256", None),
    (SignatureScheme::ED25519, "EdDSA", None),
];

/// The statement that `client_id` speaks to `audience` now. `accepted` are the algorithms that the
/// authorization server takes; any, if it does not say.
pub(super) fn assertion(
    key: &Secret,
    client_id: &str,
    audience: &str,
    accepted: Option<&[String]>,
    now: Timestamp,
) -> Result<String, OAuthError> {
    let wrong = |what: &str| OAuthError::Settings(format!("the client's key {what}"));
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| wrong("is not a private key in PEM (`BEGIN PRIVATE KEY`)"))?;
    let key = any_supported_type(&key).map_err(|_| wrong("is neither RSA nor P-256, P-384 or Ed25519"))?;
    let usable = ALGORITHMS.iter().find_map(|(scheme, name, half)| {
        let is_accepted = accepted.is_none_or(|accepted| accepted.iter().any(|accepted| accepted == name));
        Some((key.choose_scheme(&[*scheme]).filter(|_| is_accepted)?, *name, *half))
    });
    let (pen, name, half) =
        usable.ok_or_else(|| wrong("is of a kind that the authorization server does not take"))?;
    let seconds = now.0 / 1000;
    let head = json!({ "alg": name, "typ": "JWT" });
    let claims = json!({
        "iss": client_id, "sub": client_id, "aud": audience,
        "iat": seconds, "exp": seconds + LIFE_SECONDS, "jti": Uuid::now_v7(),
    });
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&head), part(&claims));
    let signature = pen.sign(signed.as_bytes()).map_err(|_| wrong("does not sign"))?;
    let signature = match half {
        Some(half) => halves(&signature, half).ok_or_else(|| wrong("does not sign"))?,
        None => signature,
    };
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// TLS writes an elliptic curve's signature as two numbers in DER; a statement has them side by side, each
/// filled up with zeros.
fn halves(der: &[u8], half: usize) -> Option<Vec<u8>> {
    let (body, rest) = take(der, 0x30)?;
    let (first, second) = take(body, 0x02)?;
    let (second, end) = take(second, 0x02)?;
    if !rest.is_empty() || !end.is_empty() {
        return None;
    }
    let mut both = Vec::with_capacity(2 * half);
    for number in [first, second] {
        let number = number.strip_prefix(&[0]).unwrap_or(number);
        both.resize(both.len() + half.checked_sub(number.len())?, 0);
        both.extend_from_slice(number);
    }
    Some(both)
}

/// The content of the first DER value, which must be of this kind, and what follows it.
fn take(der: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        _ => return None,
    };
    (tag == kind && rest.len() >= length).then(|| rest.split_at(length))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// RFC 8410 §10.3, which is nobody's key.
    const ED25519: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";

    #[test]
    fn a_statement_says_who_to_whom_and_for_how_long() {
        let key = Secret::new(ED25519);
        let made = assertion(&key, "me", "https://issuer.example", None, Timestamp(1_000_999)).unwrap();
        let parts: Vec<&str> = made.split('.').collect();
        let json =
            |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
        assert_eq!(json(parts[0]), json!({ "alg": "EdDSA", "typ": "JWT" }));
        let claims = json(parts[1]);
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("me"), &json!("me")));
        assert_eq!(claims["aud"], "https://issuer.example");
        assert_eq!((&claims["iat"], &claims["exp"]), (&json!(1000), &json!(1300)));
        let signature: [u8; 64] = URL_SAFE_NO_PAD.decode(parts[2]).unwrap().try_into().unwrap();
        let public = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";
        let public: Vec<u8> =
            (0..32).map(|at| u8::from_str_radix(&public[2 * at..2 * at + 2], 16).unwrap()).collect();
        let public = ed25519_dalek::VerifyingKey::from_bytes(&public.try_into().unwrap()).unwrap();
        let signed = format!("{}.{}", parts[0], parts[1]);
        public.verify_strict(signed.as_bytes(), &signature.into()).unwrap();
    }

    #[test]
    fn a_key_that_cannot_be_used_is_not_shown() {
        let accepted = ["ES256".to_owned()];
        for (key, accepted, word) in [
            ("canary", None, "not a private key"),
            ("-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n", None, "neither RSA"),
            (ED25519, Some(&accepted[..]), "does not take"),
        ] {
            let refused = assertion(&Secret::new(key), "me", "you", accepted, Timestamp(0)).unwrap_err();
            let words = refused.to_string();
            assert!(words.contains(word) && !words.contains("canary") && !words.contains("Y2Fu"), "{words}");
        }
    }

    #[test]
    fn a_signature_in_der_becomes_two_halves() {
        let der = |numbers: &[&[u8]]| {
            let body: Vec<u8> = numbers
                .iter()
                .flat_map(|number| [&[2, u8::try_from(number.len()).unwrap()][..], number].concat())
                .collect();
            [&[0x30, u8::try_from(body.len()).unwrap()][..], &body].concat()
        };
        assert_eq!(halves(&der(&[&[1, 2], &[0, 0x80]]), 2), Some(vec![1, 2, 0, 0x80]));
        assert_eq!(halves(&der(&[&[1], &[2]]), 2), Some(vec![0, 1, 0, 2]));
        for broken in [
            &der(&[&[1, 2, 3], &[1]])[..],
            &der(&[&[1]]),
            &der(&[&[1], &[2], &[3]]),
            &[0x30, 5, 2],
            &[],
            &[0x30, 0x81],
        ] {
            assert_eq!(halves(broken, 2), None, "{broken:?}");
        }
    }
}
