//! The identity of a client, and the credentials that prove it.
//!
//! Plain text proves nothing. The system names the user behind a Unix socket; a token of that client counts first. Over TLS a client
//! certificate is looked at first, then a bearer token, then the certificate that a trusted gateway forwards. A client with a
//! credential that does not hold is refused, even if another one would.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::SystemTime,
};

use futures::future::BoxFuture;
use ipnet::IpNet;
use rustls_pki_types::CertificateDer;

use super::{
    ClientRoots, IssuedTokens, TokenReviewer,
    client_certificate::CertificateProof,
    forwarded,
    issuer::IssuedError,
    join_token::{JoinProof, JoinTokens, MAX_TOKEN},
    reviewed_tokens::ReviewedTokens,
    revocations::Revocations,
    tls::identity_of,
    users::{LocalUsers, Standing},
};
use crate::{model::Identity, sources::kube::TokenVerdict, telemetry::LogThrottle};

/// Bytes of the header `authorization` that are read: a token has less.
const MAX_AUTHORIZATION: usize = 32 << 10;
/// Bytes of the id of a cluster that are read.
const MAX_CLUSTER: usize = 253;

/// The credentials of a client.
#[derive(Clone, Default)]
pub struct Presented {
    /// It came over TLS.
    pub secure: bool,
    /// Its certificate, which the handshake has verified.
    pub certificate: Option<CertificateDer<'static>>,
    /// The certificates that lead from it to its root.
    pub intermediates: Vec<CertificateDer<'static>>,
    /// The text of its header `authorization`.
    pub authorization: Option<String>,
    /// The text of its header `x-forwarded-client-cert`.
    pub forwarded: Option<String>,
    /// Where it comes from.
    pub peer: Option<SocketAddr>,
    /// The user of this machine that it belongs to, where it came over a Unix socket.
    pub user: Option<u32>,
    /// Its header `clusterid`: the cluster that its token is of; empty for the control plane's own.
    pub cluster: String,
}

impl Presented {
    /// The credentials in the headers of a request, over gRPC and HTTP alike; `header` gives the text of a header by its name.
    /// A header that is longer than any credential counts as absent.
    #[must_use]
    pub fn of_headers<'a>(header: impl Fn(&'static str) -> Option<&'a str>) -> Self {
        let text = |name, most| header(name).filter(|text| text.len() <= most).map(String::from);
        Self {
            authorization: text("authorization", MAX_AUTHORIZATION),
            forwarded: text("x-forwarded-client-cert", forwarded::MAX_HEADER),
            // As Istio's agent sends it.
            cluster: text("clusterid", MAX_CLUSTER).unwrap_or_default(),
            ..Self::default()
        }
    }
}

impl std::fmt::Debug for Presented {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Presented").field("secure", &self.secure).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The result of a check of proofs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proof {
    /// The proven identity; `None` over plain text, and for a user whose node is believed.
    pub identity: Option<Identity>,
    /// The node is believed: the user behind the client may do all that this process may.
    pub believes_node: bool,
    /// The join token that proves it.
    token: Option<JoinProof>,
    /// The client certificate that proves it.
    certificate: Option<Arc<CertificateProof>>,
}

impl From<Identity> for Proof {
    fn from(identity: Identity) -> Self {
        Self { identity: Some(identity), ..Self::default() }
    }
}

/// The reason that a client is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// It is a user of this machine without an identity.
    #[error("user {0} of this machine has no identity (--unix-peer names one), and no bearer token was presented")]
    User(u32),
    /// It presents nothing.
    #[error("neither a client certificate nor a bearer token was presented")]
    Nothing,
    /// Its certificate proves no identity of the mesh.
    #[error("the client certificate is refused: {0}")]
    Certificate(String),
    /// The certificate that a gateway forwards proves no identity of the mesh.
    #[error("the header x-forwarded-client-cert is refused: {0}")]
    Forwarded(String),
    /// Its token does not hold.
    #[error("{0}")]
    Token(String),
    /// The issuer of its token gives no answer; the client may come again.
    #[error("the service account token cannot be checked: {0}")]
    Unavailable(String),
}

/// The trust domains of a mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustDomains {
    /// The mesh's own.
    pub own: String,
    /// Those that are as good (`trustDomainAliases`).
    pub aliases: Vec<String>,
}

impl TrustDomains {
    fn contain(&self, domain: &str) -> bool {
        self.own == domain || self.aliases.iter().any(|alias| alias == domain)
    }
}

/// The reason after a change of the roots or of the lists of revoked certificates.
const NOT_TRUSTED: &str = "it is trusted no more";

/// Proves identities.
#[derive(Clone)]
pub struct Authenticator {
    tokens: Option<(JoinTokens, Revocations)>,
    issued: Option<IssuedTokens>,
    reviewed: Option<ReviewedTokens>,
    /// Addresses of gateways whose word about their clients' certificates is believed.
    gateways: Arc<[IpNet]>,
    /// Clients of xDS have to prove an identity, and those over plain text as well.
    xds: bool,
    plain_text: bool,
    users: LocalUsers,
    /// The roots of client certificates; none are in force without an authority.
    roots: ClientRoots,
    trust_domains: Arc<dyn Fn() -> TrustDomains + Send + Sync>,
    refusals: Arc<LogThrottle>,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Believes identities of these trust domains (the mesh's own and its aliases), and join tokens where a folder keeps them.
    /// Must run inside a runtime.
    #[must_use]
    pub fn new(tokens: Option<JoinTokens>, trust_domains: Arc<dyn Fn() -> TrustDomains + Send + Sync>) -> Self {
        Self {
            tokens: tokens.map(|tokens| (tokens.clone(), Revocations::follow(tokens))),
            issued: None,
            reviewed: None,
            gateways: Arc::new([]),
            xds: true,
            plain_text: false,
            users: LocalUsers::default(),
            roots: ClientRoots::default(),
            trust_domains,
            refusals: Arc::default(),
        }
    }

    /// Believes tokens of service accounts too, which this reviewer judges.
    #[must_use]
    pub fn with_reviewer(self, reviewer: Arc<dyn TokenReviewer>) -> Self {
        Self { reviewed: Some(ReviewedTokens::of(reviewer)), ..self }
    }

    /// Believes tokens of an issuer too (`JWT_RULE`).
    #[must_use]
    pub fn with_issuer(self, issued: IssuedTokens) -> Self {
        Self { issued: Some(issued), ..self }
    }

    /// Believes gateways in these networks about the certificates of their clients (`TRUSTED_GATEWAY_CIDR`).
    #[must_use]
    pub fn with_gateways(self, gateways: &[IpNet]) -> Self {
        Self { gateways: gateways.into(), ..self }
    }

    /// Has clients over plain text prove an identity as well (`XDS_AUTH_PLAINTEXT`).
    #[must_use]
    pub fn with_plain_text(self, plain_text: bool) -> Self {
        Self { plain_text, ..self }
    }

    /// Has clients of xDS prove an identity (`XDS_AUTH`).
    #[must_use]
    pub fn with_xds(self, xds: bool) -> Self {
        Self { xds, ..self }
    }

    /// Follows these roots of client certificates: streams end when theirs is taken away.
    #[must_use]
    pub fn with_roots(self, roots: ClientRoots) -> Self {
        Self { roots, ..self }
    }

    /// Trusts these users of this machine on the Unix socket.
    #[must_use]
    pub fn with_users(self, users: LocalUsers) -> Self {
        Self { users, ..self }
    }

    /// The proof of a client's identity; none is asked for over plain text.
    ///
    /// # Errors
    /// [`Unauthenticated`] when a client that has to proves none.
    pub async fn authenticate(&self, presented: Presented) -> Result<Proof, Unauthenticated> {
        if !presented.secure && presented.user.is_none() && !self.plain_text {
            return Ok(Proof::default());
        }
        if let Some(certificate) = presented.certificate {
            let identity = self.of_certificate(&certificate)?;
            let proof = CertificateProof::of(certificate, presented.intermediates);
            // The handshake may have been before a change of the roots.
            let verifier = self.roots.follow().borrow().clone();
            if verifier.is_some_and(|verifier| !proof.holds(&*verifier)) {
                return Err(Unauthenticated::Certificate(NOT_TRUSTED.to_string()));
            }
            return Ok(Proof { certificate: Some(Arc::new(proof)), ..identity.into() });
        }
        if let Some(bearer) = presented.authorization.as_deref().and_then(bearer) {
            if bearer.len() > MAX_TOKEN {
                return Err(Unauthenticated::Token(format!("the token has more than {MAX_TOKEN} bytes")));
            }
            return self.of_token(&presented.cluster, bearer.to_string()).await;
        }
        if let Some(header) = presented.forwarded.as_deref().filter(|_| self.is_gateway(presented.peer)) {
            return self.of_forwarded(header).map(Proof::from);
        }
        let user = presented.user.ok_or(Unauthenticated::Nothing)?;
        match self.users.standing(user) {
            Standing::Account(namespace, service_account) => Ok(self.own(namespace, service_account).into()),
            Standing::Node => Ok(Proof { believes_node: true, ..Proof::default() }),
            Standing::Unknown => Err(Unauthenticated::User(user)),
        }
    }

    /// As [`Authenticator::admit`], for xDS. Where no proof is asked for, none counts but the user behind a Unix socket.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`].
    pub async fn admit_to_xds(&self, presented: Presented) -> Result<Proof, Unauthenticated> {
        if self.xds || presented.user.is_some() { self.admit(presented).await } else { Ok(Proof::default()) }
    }

    /// As [`Authenticator::authenticate`]; a client that is refused is counted and told of.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`].
    pub async fn admit(&self, presented: Presented) -> Result<Proof, Unauthenticated> {
        let peer = presented.peer;
        self.authenticate(presented).await.inspect_err(|error| self.refused(&error.to_string(), peer))
    }

    /// Counts and logs a client whose proof is refused.
    pub fn refused(&self, reason: &str, peer: Option<SocketAddr>) {
        metrics::counter!("pilothouse_xds_authentication_failures").increment(1);
        if let Some(times) = self.refusals.note(1) {
            let peer = peer.map(|peer| peer.to_string());
            tracing::warn!(peer, reason, times, "a client is refused");
        }
    }

    /// Ends when a proof holds no more, with the reason.
    #[must_use]
    pub fn lapse(&self, proof: &Proof) -> BoxFuture<'static, &'static str> {
        let revocations = self.tokens.as_ref().map(|(_, revocations)| revocations.clone());
        if let Some((revocations, token)) = revocations.zip(proof.token.clone()) {
            return Box::pin(async move {
                revocations.lapse(token).await;
                "the join token is revoked"
            });
        }
        if let Some(certificate) = proof.certificate.clone() {
            let roots = self.roots.follow();
            return Box::pin(async move {
                certificate.lapse(roots).await;
                "the client certificate is refused: it is trusted no more"
            });
        }
        Box::pin(std::future::pending())
    }

    fn of_certificate(&self, certificate: &CertificateDer<'_>) -> Result<Identity, Unauthenticated> {
        let identity = identity_of(certificate).map_err(Unauthenticated::Certificate)?;
        self.of_mesh(identity).map_err(Unauthenticated::Certificate)
    }

    fn of_forwarded(&self, header: &str) -> Result<Identity, Unauthenticated> {
        let identity = forwarded::identity(header).map_err(|e| Unauthenticated::Forwarded(e.to_string()))?;
        self.of_mesh(identity).map_err(Unauthenticated::Forwarded)
    }

    fn of_mesh(&self, identity: Identity) -> Result<Identity, String> {
        if (self.trust_domains)().contain(&identity.trust_domain) {
            return Ok(identity);
        }
        Err(format!("{} is no trust domain of this mesh", identity.trust_domain.escape_debug()))
    }

    fn is_gateway(&self, peer: Option<SocketAddr>) -> bool {
        // An IPv4 address that is written as IPv6 is the same address.
        let ip: Option<IpAddr> = peer.map(|peer| peer.ip().to_canonical());
        ip.is_some_and(|ip| self.gateways.iter().any(|network| network.contains(&ip)))
    }

    async fn of_token(&self, cluster: &str, token: String) -> Result<Proof, Unauthenticated> {
        if self.reviewed.is_none() && self.issued.is_none() || JoinTokens::is_meant_by(&token) {
            return self.of_join_token(token).await;
        }
        let is_issued = |issued: &&IssuedTokens| issued.are_meant_by(&token);
        let issued = self.issued.as_ref().filter(is_issued).map(|issued| issued.verify(&token, SystemTime::now()));
        // Istio asks the cluster, too, about a token that the rule refuses: both may be of one issuer.
        let (namespace, service_account) = match (issued, &self.reviewed) {
            (Some(Ok(account)), _) => account,
            (_, Some(reviewed)) => of_reviewed(reviewed, cluster, token).await?,
            (Some(Err(error @ IssuedError::NoKeys)), None) => {
                return Err(Unauthenticated::Unavailable(error.to_string()));
            }
            (Some(Err(error)), None) => return Err(Unauthenticated::Token(error.to_string())),
            (None, None) => {
                return Err(Unauthenticated::Token("the token is refused: it is of another issuer".to_string()));
            }
        };
        Ok(self.own(namespace, service_account).into())
    }

    fn own(&self, namespace: String, service_account: String) -> Identity {
        Identity {
            trust_domain: (self.trust_domains)().own.into(),
            namespace: namespace.into(),
            service_account: service_account.into(),
        }
    }

    async fn of_join_token(&self, token: String) -> Result<Proof, Unauthenticated> {
        let Some((tokens, _)) = self.tokens.clone() else {
            return Err(Unauthenticated::Token(
                "join tokens are not accepted here (--state-dir keeps their key)".to_string(),
            ));
        };
        // Files are read.
        let verified = tokio::task::spawn_blocking(move || tokens.prove(&token, SystemTime::now())).await;
        let (claims, token) = verified
            .map_err(|e| Unauthenticated::Token(e.to_string()))?
            .map_err(|e| Unauthenticated::Token(e.to_string()))?;
        let identity = Some(self.own(claims.namespace, claims.service_account));
        Ok(Proof { identity, token: Some(token), ..Proof::default() })
    }
}

/// Namespace and name of the service account whose token this is.
async fn of_reviewed(
    reviewed: &ReviewedTokens,
    cluster: &str,
    token: String,
) -> Result<(String, String), Unauthenticated> {
    match reviewed.review(cluster, token).await {
        Ok(TokenVerdict::ServiceAccount { namespace, name }) => Ok((namespace, name)),
        Ok(TokenVerdict::Refused(reason)) => {
            Err(Unauthenticated::Token(format!("the service account token is refused: {reason}")))
        }
        Err(error) => Err(Unauthenticated::Unavailable(error)),
    }
}

/// The token of an `authorization` header.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::identity::{
        authority::{Authority, new_root},
        tls::certificates,
    };

    const HOUR: Duration = Duration::from_secs(3600);

    fn authenticator(tokens: Option<JoinTokens>) -> Authenticator {
        let domains = || TrustDomains { own: "mesh".into(), aliases: vec!["old".into()] };
        Authenticator::new(tokens, Arc::new(domains))
    }

    fn with_certificate(id: &str) -> Presented {
        let now = SystemTime::now();
        let authority = Authority::new(&new_root("mesh", now, HOUR).unwrap(), now).unwrap();
        let issued = authority.issue(&Identity::parse(id).unwrap(), HOUR, now).unwrap();
        let certificate = certificates(&issued.certificate.chain, "").unwrap().into_iter().next();
        Presented { secure: true, certificate, ..Presented::default() }
    }

    #[tokio::test]
    async fn certificates_prove_identities_of_the_trust_domain_and_its_aliases() {
        let authenticator = authenticator(None);
        for id in ["spiffe://mesh/ns/a/sa/b", "spiffe://old/ns/a/sa/b"] {
            let proof = authenticator.authenticate(with_certificate(id)).await.unwrap();
            assert_eq!(proof.identity, Identity::parse(id));
        }
        let foreign = authenticator.authenticate(with_certificate("spiffe://other/ns/a/sa/b")).await;
        assert!(matches!(foreign, Err(Unauthenticated::Certificate(_))));
    }

    #[tokio::test]
    async fn tokens_prove_identities_over_tls_only() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = JoinTokens::of(folder.path());
        let (token, claims) = tokens.create("shop", "cart", HOUR, SystemTime::now()).unwrap();
        let authenticator = authenticator(Some(tokens.clone()));
        let present =
            |secure, text: &str| Presented { secure, authorization: Some(text.to_string()), ..Presented::default() };
        let identity = Identity::parse("spiffe://mesh/ns/shop/sa/cart");
        for scheme in ["Bearer", "bearer"] {
            let presented = present(true, &format!("{scheme} {token}"));
            assert_eq!(authenticator.authenticate(presented).await.unwrap().identity, identity);
        }
        let plain = authenticator.authenticate(present(false, &format!("Bearer {token}"))).await;
        assert_eq!(plain, Ok(Proof::default()));
        for text in ["", "Bearer", "Bearer ", &format!("Basic {token}"), &token] {
            assert_eq!(authenticator.authenticate(present(true, text)).await, Err(Unauthenticated::Nothing), "{text}");
        }
        tokens.revoke(&claims.jti).unwrap();
        let revoked = authenticator.authenticate(present(true, &format!("Bearer {token}"))).await;
        assert!(matches!(revoked, Err(Unauthenticated::Token(text)) if text.contains("revoked")));
    }

    #[tokio::test]
    async fn a_certificate_that_does_not_hold_is_not_made_good_by_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = JoinTokens::of(folder.path());
        let (token, _) = tokens.create("shop", "cart", HOUR, SystemTime::now()).unwrap();
        let foreign = with_certificate("spiffe://other/ns/a/sa/b");
        let presented = Presented { authorization: Some(format!("Bearer {token}")), ..foreign };
        assert!(authenticator(Some(tokens)).authenticate(presented).await.is_err());
        assert_eq!(
            authenticator(None).authenticate(Presented { secure: true, ..Presented::default() }).await,
            Err(Unauthenticated::Nothing)
        );
    }

    #[tokio::test]
    async fn a_forwarded_certificate_is_believed_of_trusted_gateways_only() {
        let networks: Vec<IpNet> = ["10.1.0.0/16", "fd00::/64"].map(|n| n.parse().unwrap()).to_vec();
        let authenticator = authenticator(None).with_gateways(&networks);
        let forwards = |peer: &str, uri: &str| Presented {
            secure: true,
            forwarded: Some(format!("By=spiffe://mesh/ns/x/sa/gateway;Hash=00;URI={uri}")),
            peer: Some(peer.parse().unwrap()),
            ..Presented::default()
        };
        let id = "spiffe://mesh/ns/a/sa/b";
        for peer in ["10.1.2.3:1", "[fd00::7]:1", "[::ffff:10.1.2.3]:1"] {
            let proof = authenticator.authenticate(forwards(peer, id)).await.unwrap();
            assert_eq!(proof.identity, Identity::parse(id), "{peer}");
        }
        for peer in ["10.2.0.1:1", "127.0.0.1:1", "[::1]:1", "[fd00:0:0:1::7]:1", "[::ffff:10.2.0.1]:1"] {
            assert_eq!(authenticator.authenticate(forwards(peer, id)).await, Err(Unauthenticated::Nothing), "{peer}");
        }
        for foreign in ["spiffe://other/ns/a/sa/b", "https://mesh/ns/a/sa/b", "spiffe://mesh/ns/a/sa/b/c", ""] {
            let refused = authenticator.authenticate(forwards("10.1.2.3:1", foreign)).await;
            assert!(matches!(refused, Err(Unauthenticated::Forwarded(_))), "{foreign}: {refused:?}");
        }
        // A certificate of the connection itself comes first: the gateway is then the client.
        let own = Presented {
            certificate: with_certificate("spiffe://mesh/ns/x/sa/gateway").certificate,
            ..forwards("10.1.2.3:1", id)
        };
        let proof = authenticator.authenticate(own).await.unwrap();
        assert_eq!(proof.identity, Identity::parse("spiffe://mesh/ns/x/sa/gateway"));
        let plain = Presented { secure: false, ..forwards("10.1.2.3:1", id) };
        assert_eq!(authenticator.authenticate(plain.clone()).await, Ok(Proof::default()), "plain text proves nothing");
        let over_plain = authenticator.with_plain_text(true).authenticate(plain).await.unwrap();
        assert_eq!(over_plain.identity, Identity::parse(id));
    }
}
