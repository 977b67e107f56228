//! The comparison of an answer with the expected one.

use serde_json::{Map, Value};

use super::{client::Answer, list, text};

type Verdict = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(why()) }
}

/// Compares an HTTP answer with the expected one. `sent` is the destination of the request: scheme and host.
pub fn http(expected: &Value, sent: (&str, &str), answer: &Answer) -> Verdict {
    let response = &expected["response"];
    let wanted: Vec<u64> = match (&response["statusCode"], &response["statusCodes"]) {
        (Value::Number(code), _) => code.as_u64().into_iter().collect(),
        (_, Value::Array(codes)) => codes.iter().filter_map(Value::as_u64).collect(),
        _ => vec![200],
    };
    ensure(wanted.contains(&u64::from(answer.status)), || format!("status {} and not {wanted:?}", answer.status))?;
    response_headers(response, answer)?;
    if !expected["redirectRequest"].is_null() {
        return redirect(expected, sent, answer);
    }
    let seen = answer.seen();
    if answer.status != 200 || expected["request"]["method"] == "OPTIONS" {
        return Ok(());
    }
    ensure(!seen.is_null(), || format!("not an answer of a backend: {:?}", answer.body))?;
    request_seen(expected, &seen)?;
    backend(expected, &seen)
}

/// Compares a gRPC answer.
pub fn grpc(expected: &Value, answer: &Answer) -> Verdict {
    let wanted = expected["response"]["code"].as_u64().unwrap_or(0);
    // An answer that is not gRPC's stands for the code that gRPC clients make of its status.
    let code = answer.code().unwrap_or(match answer.status {
        404 => 12,
        502..=504 => 14,
        _ => 2,
    });
    ensure(code == wanted, || format!("code {code} and not {wanted}"))?;
    if code != 0 {
        return Ok(());
    }
    let seen = answer.seen();
    headers(&expected["response"]["headers"], &expected["response"]["absentHeaders"], |name| seen_header(&seen, name))?;
    backend(expected, &seen)
}

/// The pod that answered.
pub fn backend(expected: &Value, seen: &Value) -> Verdict {
    let (wanted, pod) = (text(&expected["backend"]), text(&seen["pod"]));
    ensure(pod.starts_with(wanted), || format!("{pod:?} answered and not {wanted}"))?;
    let namespace = text(&expected["namespace"]);
    let elsewhere = !wanted.is_empty() && !namespace.is_empty() && seen["namespace"] != namespace;
    ensure(!elsewhere, || format!("a pod of {} answered and not of {namespace}", seen["namespace"]))
}

fn request_seen(expected: &Value, seen: &Value) -> Verdict {
    let (sent, wanted) = (&expected["request"], &expected["expectedRequest"]);
    let of_grpc = sent["protocol"] == "grpc";
    for (key, default) in [("path", "/"), ("method", "GET"), ("host", "")] {
        if of_grpc && wanted[key].is_null() {
            continue;
        }
        let or_sent = if key == "host" { &Value::Null } else { &sent[key] };
        let want = wanted[key].as_str().or(or_sent.as_str()).unwrap_or(default);
        ensure(want.is_empty() || seen[key] == want, || format!("the backend saw {key} {} and not {want}", seen[key]))?;
    }
    let sni = wanted["sni"].as_str().or(sent["sni"].as_str()).filter(|_| !seen["tls"].is_null());
    ensure(sni.is_none_or(|sni| seen["tls"]["sni"] == sni), || format!("the backend saw {}", seen["tls"]))?;
    if !sent["clientCert"].is_null() {
        ensure(seen["tls"]["clientCertificates"].as_u64() > Some(0), || "no client certificate".to_string())?;
    }
    headers(&wanted["headers"], &wanted["absentHeaders"], |name| seen_header(seen, name))
}

/// A header that a test names once, or with all its values.
fn joined(value: &Value) -> String {
    value.as_str().map_or_else(|| list(value).map(text).collect::<Vec<_>>().join(","), String::from)
}

fn seen_header(seen: &Value, name: &str) -> Option<String> {
    let values = seen["headers"].as_object()?.iter().find(|(k, _)| k.eq_ignore_ascii_case(name))?.1;
    Some(list(values).map(text).collect::<Vec<_>>().join(","))
}

fn response_headers(response: &Value, answer: &Answer) -> Verdict {
    let got = |name: &str| {
        let values: Vec<_> =
            answer.headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
        (!values.is_empty()).then(|| values.join(","))
    };
    headers(&response["headers"], &response["absentHeaders"], got)?;
    for (name, valid) in response["validHeaderValues"].as_object().unwrap_or(&Map::new()) {
        let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_whitespace()).collect() };
        let value = got(name).unwrap_or_default();
        let found = list(valid).any(|v| plain(text(v)).eq_ignore_ascii_case(&plain(&value)));
        ensure(found, || format!("header {name} is {value:?} and none of {valid}"))?;
    }
    Ok(())
}

fn headers(wanted: &Value, absent: &Value, got: impl Fn(&str) -> Option<String>) -> Verdict {
    for (name, want) in wanted.as_object().unwrap_or(&Map::new()) {
        let (value, want) = (got(name), joined(want));
        ensure(value.as_ref() == Some(&want), || format!("header {name} is {value:?} and not {want}"))?;
    }
    for name in list(absent).map(text) {
        let value = got(name);
        ensure(value.is_none(), || format!("header {name} is {value:?} and should not be there"))?;
    }
    Ok(())
}

/// The Location, part by part; a part that is not named is as in the request.
fn redirect(expected: &Value, (sent_scheme, sent_host): (&str, &str), answer: &Answer) -> Verdict {
    let location = answer.headers.get("location").and_then(|l| l.to_str().ok()).unwrap_or_default();
    let uri: hyper::Uri = location.parse().map_err(|e| format!("location {location:?}: {e}"))?;
    let (wanted, sent) = (&expected["redirectRequest"], &expected["request"]);
    let scheme = wanted["scheme"].as_str().unwrap_or(sent_scheme);
    let host = wanted["host"].as_str().unwrap_or(sent_host.split(':').next().unwrap_or_default());
    let path = wanted["path"].as_str().or(sent["path"].as_str()).unwrap_or("/");
    let same = uri.scheme_str() == Some(scheme) && uri.host() == Some(host) && uri.path() == path;
    ensure(same, || format!("location {location:?} and not {scheme} {host} {path}"))?;
    let default = if scheme == "https" { 443 } else { 80 };
    let want = wanted["port"].as_str().and_then(|p| p.parse().ok()).unwrap_or(default);
    let port = uri.port_u16().unwrap_or(default);
    ensure(port == want, || format!("location {location:?} and not port {want}"))
}
