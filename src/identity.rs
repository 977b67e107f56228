//! Who a client is, and the certificates that prove it: the certificate authority of the mesh, TLS of the servers, join tokens.
//!
//! A private key never leaves the process but for the folder that keeps the authority's own. The cryptography is ring's, the
//! certificates rcgen's, TLS rustls'. Nothing here decides what an identity may see: that is told where it is served.
//!
//! [`AuthorityActor`] owns the authority and publishes it with the TLS configuration of the secure listener; a new one replaces
//! the old only when it is whole, and connections that stand are not touched.

mod actor;
pub mod authenticate;
pub mod authority;
mod files;
pub mod join_token;
mod jwt;
pub mod tls;
mod trust;
mod workloads;

pub use actor::{AuthorityActor, AuthorityHandle, CertificatePublisher};
pub use authenticate::{Authenticator, Presented, TrustDomains, Unauthenticated};
pub use authority::{Authority, IssueError, Lifetimes};
pub use join_token::JoinTokens;
pub use trust::{Origin, Trust, TrustError, TrustSettings};
pub use workloads::CertificateHold;
