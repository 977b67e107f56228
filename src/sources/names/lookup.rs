//! Questions to name servers: those of the system, or those that are named.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use hickory_resolver::{
    ResolverBuilder, TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
};

use super::rules::{FamilyAnswer, NameRecords, NameRules};
use crate::{settings::NameSettings, sources::polled::Poll};

/// Asks by DNS. The settings of the system are read for each question: they change while the process lives.
#[derive(Debug, Clone)]
pub struct Dns {
    servers: Arc<[SocketAddr]>,
    patience: Duration,
}

impl Dns {
    /// Asks the servers that the settings name, else those of the system.
    #[must_use]
    pub fn new(settings: &NameSettings) -> Self {
        Self { servers: settings.servers.as_slice().into(), patience: settings.patience }
    }

    fn resolver(&self, strategy: LookupIpStrategy) -> Result<TokioResolver, NetError> {
        let mut builder = if self.servers.is_empty() { TokioResolver::builder_tokio()? } else { of(&self.servers) };
        let options = builder.options_mut();
        options.ip_strategy = strategy;
        // A name is looked up when its last answer has expired, so a cache would hold nothing.
        options.cache_size = 0;
        options.attempts = options.attempts.max(1);
        options.timeout = options.timeout.min(self.patience / 2);
        builder.build()
    }

    async fn family(self, name: String, strategy: LookupIpStrategy) -> FamilyAnswer {
        let (dns, patience) = (self.clone(), self.patience);
        let asked = async move {
            // The files of the system are read here.
            let resolver = tokio::task::spawn_blocking(move || dns.resolver(strategy));
            let resolver = resolver.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
            match resolver.lookup_ip(name).await {
                Ok(found) => {
                    Ok((found.iter().collect(), found.valid_until().saturating_duration_since(Instant::now())))
                }
                Err(error) if error.is_no_records_found() => Ok((Vec::new(), Duration::ZERO)),
                Err(error) => Err(error.to_string()),
            }
        };
        let in_time = tokio::time::timeout(patience, asked).await;
        in_time.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")))
    }
}

fn of(servers: &[SocketAddr]) -> ResolverBuilder<TokioRuntimeProvider> {
    let server = |address: &SocketAddr| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = address.port();
            connection
        });
        NameServerConfig::new(address.ip(), true, connections.into())
    };
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}

impl Poll<NameRules> for Dns {
    fn poll(&self, name: &Arc<str>, (): &()) -> BoxFuture<'static, NameRecords> {
        // Names are whole ones, as Istio takes them: no search domain counts.
        let whole = format!("{}.", name.trim_end_matches('.'));
        let v4 = self.clone().family(whole.clone(), LookupIpStrategy::Ipv4Only);
        let v6 = self.clone().family(whole, LookupIpStrategy::Ipv6Only);
        async move {
            let (v4, v6) = tokio::join!(v4, v6);
            NameRecords { v4, v6 }
        }
        .boxed()
    }
}
