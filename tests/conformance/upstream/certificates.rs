//! Certificates that the suite makes before its tests: Secrets of servers and clients, ConfigMaps of authorities.

use std::{collections::BTreeMap, sync::LazyLock};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

/// A certificate and its key, as PEM.
pub struct Pair {
    pub chain: String,
    pub key: String,
}

impl Pair {
    /// The key, decoded.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// The certificates of a text.
pub fn chain(text: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().unwrap()
}

/// Everything that was made.
pub struct Certificates {
    /// `NAMESPACE/NAME` of a Secret → its content.
    pub secrets: BTreeMap<String, Pair>,
    /// `NAMESPACE/NAME` of a ConfigMap → the certificate of an authority.
    pub authorities: BTreeMap<String, String>,
    /// Clients of listeners that ask for a certificate: the roots that the Gateway trusts by default, and those on one port.
    pub clients: [Pair; 2],
}

/// Made once.
pub static CERTIFICATES: LazyLock<Certificates> = LazyLock::new(make);

const INFRA: &str = "gateway-conformance-infra";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn pair(authority: &Authority, names: &[&str]) -> Pair {
    let uri = |name: &&&str| name.starts_with("spiffe://");
    let hosts: Vec<String> = names.iter().filter(|n| !uri(n)).map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    let uris = names.iter().filter(uri).map(|n| SanType::URI((*n).try_into().unwrap()));
    params.subject_alt_names.extend(uris);
    let key = KeyPair::generate().unwrap();
    let made = params.signed_by(&key, authority).unwrap();
    Pair { chain: made.pem(), key: key.serialize_pem() }
}

fn make() -> Certificates {
    let [servers, mismatch, clients, per_port] = ["servers", "mismatch", "clients", "clients of a port"].map(authority);
    let server = |namespace: &str, name: &str, names: &[&str]| (format!("{namespace}/{name}"), pair(&servers, names));
    let backend = ["abc.example.com", "other.example.com", "spiffe://abc.example.com/test-identity"];
    let secrets = [
        server("gateway-conformance-web-backend", "certificate", &["*.example.com"]),
        server(INFRA, "tls-validity-checks-certificate", &["*.org", "*.wildcard.org"]),
        server(INFRA, "tls-passthrough-checks-certificate", &["abc.example.com"]),
        server("gateway-conformance-app-backend", "tls-passthrough-checks-certificate", &["abc.example.com"]),
        server(INFRA, "tls-terminate-checks-certificate", &["tls.example.com"]),
        server(INFRA, "tls-checks-certificate", &backend),
        server(INFRA, "tls-checks-client-certificate", &["client.example.com"]),
    ];
    let root = |name: &str, authority: &Authority| (format!("{INFRA}/{name}"), authority.pem());
    let authorities = [
        root("tls-checks-ca-certificate", &servers),
        root("mismatch-ca-certificate", &mismatch),
        root("tls-validity-checks-ca-certificate", &clients),
        root("tls-validity-checks-per-port-ca-certificate", &per_port),
    ];
    Certificates {
        secrets: secrets.into(),
        authorities: authorities.into(),
        clients: [pair(&clients, &["client.example.org"]), pair(&per_port, &["client.example.org"])],
    }
}

/// The Secrets and ConfigMaps.
pub fn documents() -> Vec<Value> {
    let meta = |key: &String| {
        let (namespace, name) = key.split_once('/').unwrap();
        json!({"name": name, "namespace": namespace})
    };
    let secrets = CERTIFICATES.secrets.iter().map(|(key, pair)| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta(key), "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": pair.chain, "tls.key": pair.key}})
    });
    let maps = CERTIFICATES.authorities.iter().map(|(key, certificate)| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(key), "data": {"ca.crt": certificate}})
    });
    secrets.chain(maps).collect()
}
