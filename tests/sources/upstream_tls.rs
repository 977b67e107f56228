//! `tlsSettings` of `configSources`: names that the upstream's certificate may have, Secrets, revoked certificates.

use std::{fs, path::Path, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use pilothouse::{
    model::Mesh,
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        mesh::ConfigSource,
        networking::{ClientTlsSettings, client_tls_settings::TlSmode},
    },
    settings::UpstreamSettings,
    sources::{
        SourcePort, SourceState,
        xds::{Credentials, SecretData, UpstreamSource, UpstreamTarget},
    },
    testing::ScriptedUpstream,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::{DEADLINE, recorder::run};

type Upstream = ScriptedUpstream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

const SPIFFE: &str = "spiffe://td/ns/istio-system/sa/istiod";
const DNS: &str = "upstream.example";

/// An authority, and certificates of it.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key, of the serial number 7.
    fn issue(&self) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![DNS.to_string()]).unwrap();
        params.subject_alt_names.push(SanType::URI(SPIFFE.try_into().unwrap()));
        params.serial_number = Some(SerialNumber::from(7));
        [params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem()]
    }

    /// A list that revokes this serial number.
    fn revoking(&self, serial: u64) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// One Secret, `up`.
struct Secrets(Mutex<SecretData>);

impl Credentials for Secrets {
    fn secret<'a>(&'a self, name: &'a str) -> BoxFuture<'a, anyhow::Result<SecretData>> {
        let found = (name == "up").then(|| self.0.lock().clone());
        async move { found.ok_or_else(|| anyhow::anyhow!("there is no such Secret")) }.boxed()
    }
}

fn settings() -> UpstreamSettings {
    UpstreamSettings { delta: true, first_pause: Duration::from_millis(20), ..UpstreamSettings::default() }
}

fn start(upstream: &Upstream, tls: ClientTlsSettings, secrets: Option<Arc<dyn Credentials>>) -> SourcePort {
    let address = format!("xds://{}", upstream.address);
    let source = ConfigSource { address, tls_settings: Some(tls), ..ConfigSource::default() };
    let target = UpstreamTarget::of_source(&source, &settings(), &Mesh::default()).unwrap().reading(secrets);
    run(&UpstreamSource::new(target, &settings(), DEADLINE * 10)).0
}

/// The upstream is connected to.
async fn connects(upstream: &mut Upstream, tls: ClientTlsSettings, secrets: Option<Arc<dyn Credentials>>) {
    let port = start(upstream, tls, secrets);
    let stream = tokio::time::timeout(DEADLINE, upstream.accept()).await;
    assert!(stream.unwrap().is_some(), "{}", port.board.read().last_error);
    port.stop.cancel();
}

/// The upstream is not connected to, with this reason.
async fn is_refused(upstream: &Upstream, tls: ClientTlsSettings, secrets: Option<Arc<dyn Credentials>>, reason: &str) {
    let port = start(upstream, tls, secrets);
    tokio::time::timeout(DEADLINE, port.board.until(|r| r.last_error.contains(reason)))
        .await
        .unwrap_or_else(|_| panic!("{reason}: {}", port.board.read().last_error));
    assert_eq!(port.board.read().state, SourceState::Starting);
    port.stop.cancel();
}

fn written(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn one_of_the_names_is_enough_and_the_chain_counts_in_any_case() {
    let (dir, authority, other) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    let [cert, key] = authority.issue();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&cert, &key));
    let mut upstream = Upstream::start(Some(tls)).await.unwrap();
    let ca = written(dir.path(), "ca.pem", &authority.pem());
    let simple = |names: &[&str]| ClientTlsSettings {
        mode: TlSmode::Simple.into(),
        ca_certificates: ca.clone(),
        subject_alt_names: named(names),
        ..ClientTlsSettings::default()
    };
    // The certificate is not for the address itself.
    is_refused(&upstream, simple(&[]), None, "certificate").await;
    for names in [&[SPIFFE][..], &[DNS], &["other.example", "Upstream.Example"], &["spiffe://td/ns/x/sa/y", SPIFFE]] {
        connects(&mut upstream, simple(names), None).await;
    }
    connects(&mut upstream, ClientTlsSettings { sni: DNS.to_string(), ..simple(&[]) }, None).await;
    let text = ClientTlsSettings { ca_certificates: authority.pem(), ..simple(&[DNS]) };
    connects(&mut upstream, text, None).await;
    let none = "none of the subjectAltNames";
    is_refused(&upstream, simple(&["other.example", "spiffe://td/ns/x/sa/y"]), None, none).await;
    // The name alone proves nothing.
    let foreign = ClientTlsSettings { ca_certificates: other.pem(), ..simple(&[SPIFFE, DNS]) };
    is_refused(&upstream, foreign.clone(), None, "certificate").await;
    connects(&mut upstream, ClientTlsSettings { insecure_skip_verify: Some(true), ..foreign }, None).await;
    for (serial, is_in_force) in [(8, true), (7, false)] {
        let list = written(dir.path(), "ca.crl", &authority.revoking(serial));
        let tls = ClientTlsSettings { ca_crl: list, ..simple(&[SPIFFE]) };
        if is_in_force {
            connects(&mut upstream, tls, None).await;
        } else {
            is_refused(&upstream, tls, None, "evoked").await;
        }
    }
}

#[tokio::test]
async fn a_secret_has_authorities_and_our_certificate() {
    let authority = Authority::new();
    let ([cert, key], [own, own_key]) = (authority.issue(), authority.issue());
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(cert, key))
        .client_ca_root(Certificate::from_pem(authority.pem()));
    let mut upstream = Upstream::start(Some(tls)).await.unwrap();
    let mutual = |name: &str| ClientTlsSettings {
        mode: TlSmode::Mutual.into(),
        credential_name: name.to_string(),
        subject_alt_names: named(&[SPIFFE]),
        ..ClientTlsSettings::default()
    };
    let data = |pairs: &[(&str, &str)]| -> SecretData {
        pairs.iter().map(|(key, value)| ((*key).to_string(), value.as_bytes().to_vec())).collect()
    };
    let ca = authority.pem();
    let whole = data(&[("ca.crt", &ca), ("tls.crt", &own), ("tls.key", &own_key)]);
    let secrets = Arc::new(Secrets(Mutex::new(data(&[("ca.crt", &ca)]))));
    is_refused(&upstream, mutual("up"), None, "there is no Kubernetes API server").await;
    is_refused(&upstream, mutual("down"), Some(secrets.clone()), "credentialName down: there is no such Secret").await;
    is_refused(&upstream, mutual("up"), Some(secrets.clone()), "neither cert nor tls.crt").await;
    // A Secret that is mended is read by the next attempt.
    let port = start(&upstream, mutual("up"), Some(secrets.clone()));
    tokio::time::timeout(DEADLINE, port.board.until(|r| !r.last_error.is_empty())).await.unwrap();
    *secrets.0.lock() = whole;
    tokio::time::timeout(DEADLINE, upstream.accept()).await.unwrap().unwrap();
    port.stop.cancel();
    // SIMPLE shows no certificate of ours, which this upstream does not take.
    let simple = ClientTlsSettings { mode: TlSmode::Simple.into(), ..mutual("up") };
    let port = start(&upstream, simple, Some(secrets));
    tokio::time::timeout(DEADLINE, port.board.until(|r| !r.last_error.is_empty())).await.unwrap();
    port.stop.cancel();
}
