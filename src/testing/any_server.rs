//! TLS clients of tests that connect to servers of every certificate.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig};

use crate::sources::xds::Unverified;

/// The configuration of a client that takes every server, with this certificate of its own.
///
/// # Errors
/// When certificate and key do not fit.
pub fn client_of_any_server(
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)));
    match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}
