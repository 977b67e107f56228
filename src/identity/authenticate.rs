//! The identity of a client, and the credentials that prove it.
//!
//! Plain text proves nothing. Over TLS a client certificate is looked at first, then a bearer token. A client with a
//! credential that does not hold is refused, even if another one would.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use rustls_pki_types::CertificateDer;

use super::{
    TokenReviewer,
    join_token::{JoinTokens, MAX_TOKEN},
    reviewed_tokens::ReviewedTokens,
    tls::identity_of,
};
use crate::{model::Identity, sources::kube::TokenVerdict, telemetry::LogThrottle};

/// The credentials of a client.
#[derive(Clone, Default)]
pub struct Presented {
    /// It came over TLS.
    pub secure: bool,
    /// Its certificate, which the handshake has verified.
    pub certificate: Option<CertificateDer<'static>>,
    /// The text of its header `authorization`.
    pub authorization: Option<String>,
}

impl std::fmt::Debug for Presented {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Presented").field("secure", &self.secure).finish_non_exhaustive()
    }
}

/// Why a client is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// It presents nothing.
    #[error("neither a client certificate nor a bearer token was presented")]
    Nothing,
    /// Its certificate proves no identity of the mesh.
    #[error("the client certificate is refused: {0}")]
    Certificate(String),
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

/// Proves identities.
#[derive(Clone)]
pub struct Authenticator {
    tokens: Option<JoinTokens>,
    reviewed: Option<ReviewedTokens>,
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
    #[must_use]
    pub fn new(tokens: Option<JoinTokens>, trust_domains: Arc<dyn Fn() -> TrustDomains + Send + Sync>) -> Self {
        Self { tokens, reviewed: None, trust_domains, refusals: Arc::default() }
    }

    /// Believes tokens of service accounts too, which this reviewer judges.
    #[must_use]
    pub fn with_reviewer(self, reviewer: Arc<dyn TokenReviewer>) -> Self {
        Self { reviewed: Some(ReviewedTokens::of(reviewer)), ..self }
    }

    /// The identity that a client proves; `None` over plain text.
    ///
    /// # Errors
    /// [`Unauthenticated`] when a client over TLS proves none.
    pub async fn authenticate(&self, presented: Presented) -> Result<Option<Identity>, Unauthenticated> {
        if !presented.secure {
            return Ok(None);
        }
        if let Some(certificate) = &presented.certificate {
            return self.of_certificate(certificate).map(Some);
        }
        let bearer = presented.authorization.as_deref().and_then(bearer).ok_or(Unauthenticated::Nothing)?;
        if bearer.len() > MAX_TOKEN {
            return Err(Unauthenticated::Token(format!("the token has more than {MAX_TOKEN} bytes")));
        }
        self.of_token(bearer.to_string()).await.map(Some)
    }

    /// As [`Authenticator::authenticate`]; a client that is refused is counted and told of.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`].
    pub async fn admit(
        &self,
        presented: Presented,
        peer: Option<SocketAddr>,
    ) -> Result<Option<Identity>, Unauthenticated> {
        self.authenticate(presented).await.inspect_err(|error| self.refused(&error.to_string(), peer))
    }

    /// Counts a client that is not who it says, and tells of it.
    pub fn refused(&self, reason: &str, peer: Option<SocketAddr>) {
        metrics::counter!("pilothouse_xds_authentication_failures").increment(1);
        if let Some(times) = self.refusals.note(1) {
            let peer = peer.map(|peer| peer.to_string());
            tracing::warn!(peer, reason, times, "a client is refused");
        }
    }

    fn of_certificate(&self, certificate: &CertificateDer<'_>) -> Result<Identity, Unauthenticated> {
        let identity = identity_of(certificate).map_err(Unauthenticated::Certificate)?;
        if !(self.trust_domains)().contain(&identity.trust_domain) {
            let domain = identity.trust_domain.escape_debug();
            return Err(Unauthenticated::Certificate(format!("{domain} is no trust domain of this mesh")));
        }
        Ok(identity)
    }

    async fn of_token(&self, token: String) -> Result<Identity, Unauthenticated> {
        let (namespace, service_account) = match &self.reviewed {
            Some(reviewed) if !JoinTokens::is_meant_by(&token) => of_reviewed(reviewed, token).await?,
            _ => self.of_join_token(token).await?,
        };
        Ok(Identity {
            trust_domain: (self.trust_domains)().own.into(),
            namespace: namespace.into(),
            service_account: service_account.into(),
        })
    }

    async fn of_join_token(&self, token: String) -> Result<(String, String), Unauthenticated> {
        let Some(tokens) = self.tokens.clone() else {
            return Err(Unauthenticated::Token(
                "join tokens are not accepted here (--state-dir keeps their key)".to_string(),
            ));
        };
        // Files are read.
        let verified = tokio::task::spawn_blocking(move || tokens.verify(&token, SystemTime::now())).await;
        let claims = verified
            .map_err(|e| Unauthenticated::Token(e.to_string()))?
            .map_err(|e| Unauthenticated::Token(e.to_string()))?;
        Ok((claims.namespace, claims.service_account))
    }
}

/// Namespace and name of the service account whose token this is.
async fn of_reviewed(reviewed: &ReviewedTokens, token: String) -> Result<(String, String), Unauthenticated> {
    match reviewed.review(token).await {
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
        Presented { secure: true, certificate, authorization: None }
    }

    #[tokio::test]
    async fn certificates_prove_identities_of_the_trust_domain_and_its_aliases() {
        let authenticator = authenticator(None);
        for id in ["spiffe://mesh/ns/a/sa/b", "spiffe://old/ns/a/sa/b"] {
            assert_eq!(authenticator.authenticate(with_certificate(id)).await, Ok(Identity::parse(id)));
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
            |secure, text: &str| Presented { secure, certificate: None, authorization: Some(text.to_string()) };
        let identity = Identity::parse("spiffe://mesh/ns/shop/sa/cart");
        for scheme in ["Bearer", "bearer"] {
            let presented = present(true, &format!("{scheme} {token}"));
            assert_eq!(authenticator.authenticate(presented).await, Ok(identity.clone()));
        }
        assert_eq!(authenticator.authenticate(present(false, &format!("Bearer {token}"))).await, Ok(None));
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
}
