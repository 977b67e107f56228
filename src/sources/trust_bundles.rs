//! SPIFFE bundles of `caCertificates`, fetched: a source whose content is root certificates instead of objects.
//!
//! A bundle is fetched again when its server says so, and every half hour at the latest (Istio's
//! `RemoteDefaultPollPeriod`). A failure keeps the last good certificates without end: trust ends when the mesh config or
//! the bundle says so, never by an outage.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};

use super::{
    keys::HttpFetch,
    polled::{Poll, PollRules, PolledSource, Taken},
};
use crate::model::trust_anchors::{self, Anchors};

/// The source of SPIFFE bundles.
pub type BundleSource = PolledSource<BundleRules>;

/// The longest pause after a failure.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// The longest time between two fetches.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// The shortest one, whatever the bundle says.
const LEAST_REFRESH: Duration = Duration::from_secs(1);
/// No fetch takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The rules of SPIFFE bundles.
#[derive(Debug)]
pub struct BundleRules;

/// The certificates of one bundle.
#[derive(Debug, Default)]
pub struct HeldAnchors(Option<Anchors>);

impl PollRules for BundleRules {
    type Key = Arc<str>;
    type Terms = ();
    type Answer = Result<String, String>;
    type Held = HeldAnchors;
    type Value = Anchors;

    const SOURCE: &'static str = "spiffe-bundles:mesh-config";
    const KEYS: &'static str = "bundles";
    const POLLED: &'static str = "fetched";
    const MOST_KEYS: usize = 100;
    const MOST_BYTES: usize = 8 << 20;

    fn take(&self, held: &mut HeldAnchors, answer: Self::Answer, room: usize, _: Instant) -> Taken {
        let bundle = answer.and_then(|text| {
            let bundle = trust_anchors::of_bundle(&text)?;
            let bytes: usize = bundle.anchors.iter().map(|anchor| anchor.len()).sum();
            if bytes > room { Err("the bundles are too large together".to_string()) } else { Ok(bundle) }
        });
        match bundle {
            Ok(bundle) => {
                let changed = held.0.as_ref() != Some(&bundle.anchors);
                held.0 = Some(bundle.anchors);
                let refresh = bundle.refresh.filter(|hint| !hint.is_zero()).unwrap_or(REFRESH);
                Taken { changed, next: Ok(refresh.clamp(LEAST_REFRESH, REFRESH)) }
            }
            Err(error) => Taken { changed: false, next: Err(error) },
        }
    }

    fn longest_retry(&self) -> Duration {
        LONGEST_RETRY
    }

    fn value(held: &HeldAnchors) -> Option<Anchors> {
        held.0.clone()
    }

    fn bytes(held: &HeldAnchors) -> usize {
        held.0.iter().flat_map(|anchors| anchors.iter()).map(|anchor| anchor.len()).sum()
    }

    fn text(url: &Arc<str>) -> &str {
        url
    }

    fn log(url: &Arc<str>, error: &str, kept: bool) {
        tracing::warn!(%url, error, kept, "a SPIFFE bundle of caCertificates cannot be fetched");
    }
}

impl Poll<BundleRules> for HttpFetch {
    fn poll(&self, url: &Arc<str>, (): &()) -> BoxFuture<'static, Result<String, String>> {
        let (fetch, url) = (self.clone(), url.clone());
        async move {
            let in_time = tokio::time::timeout(PATIENCE, fetch.get(&url)).await;
            in_time.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;
    use crate::sources::polled::PolledTable;

    fn bundle(refresh: u64) -> String {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let keys = serde_json::json!([{"use": "x509-svid", "x5c": [base64]}]);
        serde_json::json!({"keys": keys, "spiffe_refresh_hint": refresh}).to_string()
    }

    #[test]
    fn a_failure_keeps_the_last_good_certificates_without_end() {
        let (mut table, mut now) = (PolledTable::new(BundleRules), Instant::now());
        let url: Arc<str> = "https://a.example".into();
        let wanted: BTreeMap<Arc<str>, ()> = [(url.clone(), ())].into();
        table.demand(&wanted, now);
        for (refresh, pause) in [(300, 300), (0, 1800), (86_400, 1800)] {
            assert!(table.poll_next(now).is_some(), "it is due");
            assert!(table.answered(&url, Ok(bundle(refresh)), now));
            let next = now + Duration::from_secs(pause);
            assert_eq!(table.wake_at(), Some(next));
            now = next;
        }
        let last = table.values();
        for answer in [Err("down".to_string()), Ok("{}".to_string()), Ok("secret".to_string())] {
            assert!(table.poll_next(now).is_some());
            assert!(!table.answered(&url, answer, now));
            now += LONGEST_RETRY;
        }
        assert!(!table.demand(&wanted, now + Duration::from_secs(365 * 86_400)));
        assert_eq!(table.values(), last);
        assert!(!table.problems()[&url].contains("secret"), "{:?}", table.problems());
        assert!(table.demand(&BTreeMap::new(), now), "a URL that is gone takes its certificates along");
    }
}
