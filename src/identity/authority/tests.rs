//! Issued certificates, refused requests, and the parts that make an authority.

use rcgen::{CertificateSigningRequest, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use x509_parser::{extensions::GeneralName, prelude::ParsedExtension};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn root() -> Material {
    new_root("cluster.local", now(), 24 * HOUR).unwrap()
}

fn identity() -> Identity {
    Identity::parse("spiffe://cluster.local/ns/shop/sa/cart").unwrap()
}

fn request(key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> CertificateSigningRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    change(&mut params);
    params.serialize_request(key).unwrap()
}

/// Names, whether it is a CA's, and its last second.
fn told(chain: &str) -> (Vec<String>, bool, u64) {
    let leaf = only(chain, "leaf").unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap().value.general_names.iter().map(|name| match name {
        GeneralName::URI(uri) => (*uri).to_string(),
        other => other.to_string(),
    });
    (names.collect(), parsed.is_ca(), parsed.validity().not_after.timestamp() as u64)
}

/// Signed by the first certificate of the roots.
fn is_signed_by(chain: &str, issuer: &str) -> bool {
    let (leaf, root) = (only(chain, "leaf").unwrap(), only(issuer, "root").unwrap());
    let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    let (_, root) = x509_parser::parse_x509_certificate(&root).unwrap();
    leaf.verify_signature(Some(root.public_key())).is_ok()
}

#[test]
fn a_request_gets_the_proven_identity_and_nothing_that_it_asks_for() {
    let authority = Authority::new(&root(), now()).unwrap();
    let asks = request(&KeyPair::generate().unwrap(), |params| {
        params.subject_alt_names = vec![SanType::URI("spiffe://cluster.local/ns/admin/sa/root".try_into().unwrap())];
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "admin");
    });
    let issued = authority.sign(&asks.pem().unwrap(), &identity(), HOUR, now()).unwrap();
    let (names, is_ca, last) = told(&issued.chain);
    assert_eq!(names, ["spiffe://cluster.local/ns/shop/sa/cart"]);
    assert!(!is_ca);
    assert_eq!(last, 1_800_000_000 + 3600);
    assert!(is_signed_by(&issued.chain, authority.roots()));
    let leaf = only(&issued.chain, "leaf").unwrap();
    let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    assert_eq!(leaf.subject().iter().count(), 0, "no subject of its own");
    let critical =
        leaf.extensions().iter().find(|e| matches!(e.parsed_extension(), ParsedExtension::SubjectAlternativeName(_)));
    assert!(critical.unwrap().critical, "the identity is a critical extension where there is no subject (RFC 5280)");
}

#[test]
fn equal_keys_get_serial_numbers_of_their_own() {
    let authority = Authority::new(&root(), now()).unwrap();
    let asks = request(&KeyPair::generate().unwrap(), |_| {}).pem().unwrap();
    let serial = || authority.sign(&asks, &identity(), HOUR, now()).unwrap().serial;
    assert_ne!(serial(), serial());
}

#[test]
fn keys_of_other_kinds_are_accepted_and_weak_or_giant_ones_refused() {
    let authority = Authority::new(&root(), now()).unwrap();
    for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let asks = request(&KeyPair::generate_for(algorithm).unwrap(), |_| {}).pem().unwrap();
        assert!(authority.sign(&asks, &identity(), HOUR, now()).is_ok());
    }
    // Operations with a giant key take the time of thousands of others.
    for (bits, request) in
        [("1024", include_str!("samples/csr-rsa-1024.pem")), ("9216", include_str!("samples/csr-rsa-9216.pem"))]
    {
        let refused = authority.sign(request, &identity(), HOUR, now());
        assert!(matches!(&refused, Err(IssueError::Request(text)) if text.contains(bits)), "{refused:?}");
    }
}

#[test]
fn a_request_that_its_key_did_not_sign_is_refused() {
    let authority = Authority::new(&root(), now()).unwrap();
    let der = request(&KeyPair::generate().unwrap(), |_| {}).der().to_vec();
    let mut forged = der.clone();
    *forged.last_mut().unwrap() ^= 1;
    for bytes in [forged, der[..der.len() / 2].to_vec(), Vec::new()] {
        let text = pem::encode(&pem::Pem::new("CERTIFICATE REQUEST", bytes));
        assert!(matches!(authority.sign(&text, &identity(), HOUR, now()), Err(IssueError::Request(_))));
    }
    for text in ["", "no PEM", &"x".repeat(MAX_REQUEST + 1)] {
        assert!(matches!(authority.sign(text, &identity(), HOUR, now()), Err(IssueError::Request(_))));
    }
}

#[test]
fn a_certificate_ends_with_its_authority() {
    let authority = Authority::new(&root(), now()).unwrap();
    let late = now() + 23 * HOUR;
    let issued = authority.issue(&identity(), 24 * HOUR, late).unwrap();
    assert_eq!(issued.certificate.not_after, now() + 24 * HOUR);
    assert!(matches!(authority.issue(&identity(), HOUR, now() + 24 * HOUR), Err(IssueError::Expired)));
    assert!(Authority::new(&root(), now() + 25 * HOUR).is_err(), "an expired authority does not start");
}

#[test]
fn lifetimes_are_those_of_the_request_within_the_bound() {
    let lifetimes = Lifetimes::default();
    assert_eq!(lifetimes.of(0).unwrap(), 24 * HOUR);
    assert_eq!(lifetimes.of(-5).unwrap(), 24 * HOUR);
    assert_eq!(lifetimes.of(60).unwrap(), Duration::from_secs(60));
    assert!(matches!(lifetimes.of(i64::MAX), Err(IssueError::Lifetime(..))));
}

/// An intermediate below a root.
fn intermediate(above: &Material) -> Material {
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_ca_cert_pem(&above.certificate, KeyPair::from_pem(&above.key).unwrap()).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "intermediate");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.not_before = now().into();
    params.not_after = (now() + 12 * HOUR).into();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    Material {
        chain: certificate.clone() + &above.certificate,
        certificate,
        key: key.serialize_pem(),
        roots: above.roots.clone(),
        revoked: String::new(),
    }
}

#[test]
fn an_intermediate_sends_its_chain_without_the_root() {
    let above = root();
    let material = intermediate(&above);
    let authority = Authority::new(&material, now()).unwrap();
    let issued = authority.issue(&identity(), HOUR, now()).unwrap();
    let chain = all(&issued.certificate.chain, "chain").unwrap();
    assert_eq!(chain.len(), 2, "leaf and intermediate");
    assert_eq!(chain[1], only(&material.certificate, "").unwrap());
    assert!(is_signed_by(&issued.certificate.chain, &material.certificate));
    let without_chain = Material { chain: String::new(), ..material };
    let issued = Authority::new(&without_chain, now()).unwrap().issue(&identity(), HOUR, now()).unwrap();
    assert_eq!(all(&issued.certificate.chain, "chain").unwrap().len(), 2);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let (one, two) = (root(), root());
    let told = |material: Material| Authority::new(&material, now()).unwrap_err().to_string();
    assert!(told(Material { key: two.key.clone(), ..one.clone() }).contains("not the CA certificate's"));
    assert!(told(Material { roots: two.roots.clone(), ..one.clone() }).contains("does not lead to a root"));
    assert!(told(Material { roots: String::new(), ..one.clone() }).contains("no root certificate"));
    assert!(told(Material { key: "x".into(), ..one.clone() }).contains("private key"));
    assert!(told(Material { certificate: "x".into(), ..one.clone() }).contains("CA certificate"));
    let authority = Authority::new(&one, now()).unwrap();
    let leaf = authority.issue(&identity(), HOUR, now()).unwrap();
    let not_a_ca = Material { certificate: leaf.certificate.chain, key: leaf.key, ..one };
    assert!(told(not_a_ca).contains("not one of a certificate authority"));
}

/// A list of the certificates with these serial numbers, by the authority of this material.
fn revoked(material: &Material, serials: &[u64]) -> String {
    let key = KeyPair::from_pem(&material.key).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&material.certificate, key).unwrap();
    let certificate = |serial: &u64| rcgen::RevokedCertParams {
        serial_number: (*serial).into(),
        revocation_time: now().into(),
        reason_code: None,
        invalidity_date: None,
    };
    let list = rcgen::CertificateRevocationListParams {
        this_update: now().into(),
        next_update: (now() + HOUR).into(),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(certificate).collect(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    list.signed_by(&issuer).unwrap().pem().unwrap()
}

#[test]
fn a_list_of_revoked_certificates_has_to_be_the_authority_s_and_whole() {
    let (above, other) = (root(), root());
    let below = intermediate(&above);
    let told = |revoked: String| {
        let material = Material { revoked, ..below.clone() };
        Authority::new(&material, now()).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let (of_root, of_intermediate) = (revoked(&above, &[]), revoked(&below, &[7]));
    assert_eq!(told(of_root.clone() + &of_intermediate), "");
    assert_eq!(told(of_intermediate.clone()), "");
    assert!(told(of_root).contains("has none of CN=intermediate"));
    assert!(told(of_intermediate.clone() + &revoked(&other, &[7])).contains("not signed by a certificate of the auth"));
    assert!(told("secret".into()).contains("no list in PEM"));
    let material = Material { revoked: of_intermediate, ..below };
    let authority = Authority::new(&material, now()).unwrap();
    assert_eq!((authority.revoked(), authority.roots_without_list().len()), (&*material.revoked, 1));
}

#[test]
fn keys_are_read_as_openssl_writes_them() {
    for (name, text) in
        [("PKCS #1", include_str!("samples/ca-key-pkcs1.pem")), ("SEC 1", include_str!("samples/ca-key-sec1.pem"))]
    {
        let key = key::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = now().into();
        params.not_after = (now() + HOUR).into();
        let certificate = params.self_signed(&key).unwrap().pem();
        let (roots, key) = (certificate.clone(), text.to_string());
        let material = Material { roots, certificate, key, ..Material::default() };
        let authority = Authority::new(&material, now()).unwrap();
        assert!(authority.issue(&identity(), HOUR, now()).is_ok(), "{name}");
    }
}
