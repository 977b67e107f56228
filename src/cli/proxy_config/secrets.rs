//! Secrets as rows: the certificates in them, never their keys.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::{super::table, objects::NONE};

/// istioctl's columns, and the object that a name stands for.
pub(super) fn table(secrets: &[(&'static str, Value)]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    table_at(secrets, i64::try_from(now).unwrap_or(i64::MAX))
}

fn table_at(secrets: &[(&'static str, Value)], now: i64) -> String {
    if secrets.is_empty() {
        return "No active or warming secrets found.\n".to_string();
    }
    let titles =
        ["RESOURCE NAME", "TYPE", "STATUS", "VALID CERT", "SERIAL NUMBER", "NOT AFTER", "NOT BEFORE", "OBJECT"];
    let mut rows = vec![titles.map(String::from)];
    for (state, secret) in secrets {
        let name = secret["name"].as_str().unwrap_or_default().to_string();
        let (kind, source) = kind_and_source(secret);
        let [valid, serial, after, before] = source.and_then(first_certificate).map_or_else(
            || ["false".to_string(), NONE.to_string(), NONE.to_string(), NONE.to_string()],
            |der| shown(&der, now),
        );
        let object = object_of(&name).unwrap_or_else(|| NONE.to_string());
        rows.push([name, kind.to_string(), (*state).to_string(), valid, serial, after, before, object]);
    }
    table::aligned(&rows)
}

fn kind_and_source(secret: &Value) -> (&'static str, Option<&Value>) {
    let chain = &secret["tlsCertificate"]["certificateChain"];
    let roots = &secret["validationContext"]["trustedCa"];
    match () {
        () if secret["tlsCertificate"].is_object() => ("Cert Chain", Some(chain)),
        () if secret["validationContext"].is_object() => ("CA", Some(roots)),
        () if secret["genericSecret"].is_object() => ("Generic", None),
        () => ("Unknown", None),
    }
}

/// The first certificate of a source of data; a file is not read, since it is on the proxy's machine.
fn first_certificate(source: &Value) -> Option<Vec<u8>> {
    let text = match (source["inlineString"].as_str(), source["inlineBytes"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (_, Some(bytes)) => base64::engine::general_purpose::STANDARD.decode(bytes).ok()?,
        _ => return None,
    };
    let blocks = pem::parse_many(text).ok()?;
    blocks.into_iter().find(|block| block.tag() == "CERTIFICATE").map(pem::Pem::into_contents)
}

fn shown(der: &[u8], now: i64) -> [String; 4] {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return ["false".to_string(), NONE.to_string(), NONE.to_string(), NONE.to_string()];
    };
    let validity = certificate.validity();
    let (before, after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let time = |at| Timestamp::from_second(at).map_or_else(|_| NONE.to_string(), |at| at.to_string());
    let serial: String = certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect();
    let serial = serial.trim_start_matches("00").to_string();
    [(before..=after).contains(&now).to_string(), serial, time(after), time(before)]
}

/// The object that a name of Istio's SDS stands for.
fn object_of(name: &str) -> Option<String> {
    let (kind, rest) = name.split_once("://")?;
    let kind = match kind {
        "kubernetes" | "kubernetes-gateway" => "Secret",
        "configmap" => "ConfigMap",
        _ => return None,
    };
    // Without a namespace it is that of the proxy.
    Some(rest.split_once('/').map_or_else(|| format!("{kind}/{rest}"), |(ns, name)| format!("{kind}/{name}.{ns}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn certificates_are_shown_and_keys_are_not() {
        let made = rcgen::generate_simple_self_signed(vec!["web.example".to_string()]).unwrap();
        let text = made.cert.pem();
        let bytes = base64::engine::general_purpose::STANDARD.encode(&text);
        let secrets = [
            (
                "ACTIVE",
                json!({"name": "kubernetes://shop/web", "tlsCertificate": {"certificateChain": {"inlineBytes": bytes}, "privateKey": "hush"}}),
            ),
            ("WARMING", json!({"name": "ROOTCA", "validationContext": {"trustedCa": {"inlineString": text}}})),
            ("STATIC", json!({"name": "x", "tlsCertificate": {"certificateChain": {"filename": "/etc/x"}}})),
        ];
        let (_, certificate) = X509Certificate::from_der(made.cert.der()).unwrap();
        let validity = certificate.validity();
        let table = table_at(&secrets, validity.not_before.timestamp() + 1);
        let rows: Vec<Vec<&str>> =
            table.lines().skip(1).map(|l| l.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect()).collect();
        assert_eq!(rows[0][..4], ["kubernetes://shop/web", "Cert Chain", "ACTIVE", "true"]);
        assert!(rows[0][5].ends_with('Z') && rows[0][7] == "Secret/web.shop", "{table}");
        assert_eq!(rows[1][..4], ["ROOTCA", "CA", "WARMING", "true"]);
        assert_eq!(rows[1][4], rows[0][4], "the serial number");
        assert_eq!(rows[2][..5], ["x", "Cert Chain", "STATIC", "false", "-"]);
        assert!(!table.contains("hush"));
        let late = table_at(&secrets, validity.not_after.timestamp() + 1);
        assert!(late.lines().nth(1).unwrap().contains("false"), "{late}");
        assert!(table_at(&[], 0).starts_with("No active"));
    }
}
