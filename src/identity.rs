//! The identities of clients, and the certificates that prove them: the certificate authority of the mesh, TLS of the servers,
//! join tokens, tokens of service accounts.
//!
//! A private key never leaves the process but for the folder that keeps the authority's own. The cryptography is ring's, the
//! certificates rcgen's, TLS rustls'. Nothing here decides the rights of an identity: the rooms that serve it do.
//!
//! [`AuthorityActor`] owns the authority and publishes it with the TLS configuration of the secure listener; a new one replaces
//! the old only when it is whole, and connections that stand are not touched.

mod actor;
pub mod authenticate;
pub mod authority;
pub mod certificate_folder;
mod certificate_request;
mod client_certificate;
mod cluster_root;
mod files;
mod forwarded;
mod holders;
pub mod issuer;
pub mod join_token;
mod jwt;
mod reading;
mod reviewed_tokens;
mod revocations;
mod root_config_maps;
mod secret_access;
pub mod tls;
mod trust;
mod users;
mod workloads;

pub use actor::{AuthorityActor, AuthorityHandle, AuthoritySetup, CertificatePublisher, NamespaceReaders};
pub use authenticate::{Authenticator, Presented, Proof, TrustDomains, Unauthenticated};
pub use authority::{Authority, IssueError, Lifetimes};
pub use certificate_folder::CertificateFolder;
pub use certificate_request::{CertificateRequest, RequestError, WorkloadFiles};
pub use client_certificate::ClientRoots;
pub use cluster_root::{ClusterRoot, SecretStore};
pub use holders::{IdentityHold, SecretReaderHold};
pub use issuer::{IssuedTokens, IssuerRule};
pub use join_token::JoinTokens;
pub use reviewed_tokens::{ClusterTokens, FindCluster, TokenReviewer};
pub use revocations::Revocations;
pub use root_config_maps::RootConfigMaps;
pub use secret_access::{AccessPublisher, AccessReviewer, ClusterAccess, SecretAccessActor, SecretAccessHandle};
pub use trust::{Origin, Trust, TrustError, TrustSettings};
pub use users::LocalUsers;
