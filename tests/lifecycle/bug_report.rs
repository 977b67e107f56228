//! The archive of `bug-report` has every page and the configuration of every proxy, and no key material.

use std::{collections::BTreeMap, fs, io::Read, path::Path};

use base64::Engine;
use pilothouse::{
    proto::{envoy::config::core::v3::Node, json_to_struct},
    testing::AdsClient,
    xds::ResourceType,
};
use serde_json::{Value, json};

use crate::{
    confirm::aside,
    proxy_config::{refusal, said},
    stage::{DEADLINE, end, entry, start, until},
};

/// The files of an archive.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(archive).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o600);
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name.strip_prefix("pilothouse-bug-report/").unwrap().to_string(), text)
    });
    entries.collect()
}

#[actix::test]
async fn everything_is_in_it_but_keys() {
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let made = rcgen::generate_simple_self_signed(vec!["web.example".to_string()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": "edge"},
        "data": {"tls.crt": base64(&chain), "tls.key": base64(&key)}});
    let gateway = json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "edge", "namespace": "edge"},
        "spec": {"selector": {"app": "edge"}, "servers": [{"hosts": ["*"],
            "port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "tls": {"mode": "SIMPLE", "credentialName": "tls"}}]}});
    let route = json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"hosts": ["a.example"], "http": [{"headers": {"request": {"set": {"authorization": "Bearer hush-hush"}}},
            "route": [{"destination": {"host": "a.example"}}]}]}});
    let keys = json!({"keys": [{"kty": "oct", "k": "aHVzaC1rZXk"}]}).to_string();
    let tokens = json!({"apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication", "metadata": {"name": "t", "namespace": "shop"},
        "spec": {"jwtRules": [{"issuer": "i", "jwks": keys}]}});
    let dir = tempfile::tempdir().unwrap();
    let documents: String = [secret, gateway, route, tokens].iter().map(|d| format!("---\n{d}\n")).collect();
    fs::write(dir.path().join("all.yaml"), entry("a", "a.example") + &documents).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.4").await.unwrap();
    let router = client.with_node(Node {
        id: "router~10.0.0.4~gw.edge~edge.svc.cluster.local".into(),
        metadata: json_to_struct(&json!({"NAMESPACE": "edge", "LABELS": {"app": "edge"}, "SERVICE_ACCOUNT": "gw"})),
        ..Node::default()
    });
    let mut stream = router.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Secret, &["kubernetes://tls"], "").await.unwrap();
    let sent = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap().unwrap();
    let key_line = key.lines().nth(1).unwrap().to_string();
    assert!(String::from_utf8_lossy(&sent.resources[0].value).contains(&key_line), "the proxy has the key");

    let http = running.addresses.http.to_string();
    let folder = dir.path().to_path_buf();
    aside(move || {
        let table = said(&["proxy-config", "secret", "gw.edge", "--http-addr", &http]);
        let row: Vec<&str> =
            table.lines().nth(1).unwrap().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        assert_eq!(row[..4], ["kubernetes://tls", "Cert Chain", "ACTIVE", "true"], "{table}");
        assert_eq!(row.last(), Some(&"Secret/tls"), "{table}");
        for form in ["json", "yaml"] {
            let document = said(&["pc", "secret", "gw.edge", "--http-addr", &http, "-o", form]);
            assert!(document.contains("[redacted]") && !document.contains(&key_line), "{document}");
        }
        let archive = folder.join("report.tar.gz");
        let path = archive.to_str().unwrap();
        let text = said(&["bug-report", "--archive", path, "--http-addr", &http]);
        assert!(text.contains("files in"), "{text}");
        let files = files(&archive);
        let pages: Vec<String> = serde_json::from_str(&{
            let answer = crate::confirm::ask(http.parse().unwrap(), "GET /debug/list HTTP/1.0");
            answer.split_once("\r\n\r\n").unwrap().1.to_string()
        })
        .unwrap();
        for page in pages.iter().filter_map(|page| page.strip_prefix("/debug/")) {
            let is_of_one = ["config_dump", "describez", "ecdsz", "edsz", "ndsz", "sidecarz"].contains(&page);
            assert_eq!(files.contains_key(&format!("debug/{page}.json")), !is_of_one, "{page}");
        }
        let failed: Vec<&String> = files.keys().filter(|name| name.ends_with(".error")).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(files["metrics.txt"].contains("pilot_xds"));
        let flags: Value = serde_json::from_str(&files["debug/flagz.json"]).unwrap();
        assert_eq!(flags["version"], env!("CARGO_PKG_VERSION"));
        let dump = files.iter().find(|(name, _)| name.starts_with("proxies/gw.edge")).expect("a dump").1;
        assert!(dump.contains("kubernetes://tls") && dump.contains("[redacted]"), "{dump}");

        let in_base64 = base64::engine::general_purpose::STANDARD.encode(&key);
        for (name, text) in &files {
            for wanted in [key_line.as_str(), &in_base64[..40], "hush-hush", "aHVzaC1rZXk", "PRIVATE KEY"] {
                assert!(!text.contains(wanted), "{name} has {wanted}");
            }
        }
        assert!(refusal(&["bug-report", "--archive", path, "--http-addr", &http], 65).contains("exists already"));
        let line = refusal(&["bug-report", "--archive", "/no/such/x", "--http-addr", &http], 65);
        assert!(line.contains("--archive /no/such/x"), "{line}");
        let line = refusal(&["bug-report", "--archive", &format!("{path}.2"), "--http-addr", "127.0.0.1:1"], 70);
        assert!(line.contains("127.0.0.1:1"), "{line}");
    })
    .await;
    end(running).await;
}
