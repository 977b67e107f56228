//! The examples at the end of `--help`, for each type of resources.

pub(super) const WHOLE: &str = "Examples:
  pilothouse proxy-config cluster web.shop --fqdn reviews --direction outbound
  pilothouse proxy-config listener --envoy-admin 127.0.0.1:15000 --port 15006
  curl -s localhost:15000/config_dump?include_eds | pilothouse proxy-config route -f - -o json";

pub(super) const CLUSTER: &str = "Examples:
  pilothouse proxy-config cluster web.shop --fqdn reviews --direction outbound
  pilothouse proxy-config cluster --envoy-admin 127.0.0.1:15000 --port 9080 --subset v2 -o yaml";

pub(super) const LISTENER: &str = "Examples:
  pilothouse proxy-config listener web.shop --port 15006
  pilothouse proxy-config listener --envoy-admin 127.0.0.1:15000 --type HTTP --address 0.0.0.0";

pub(super) const ROUTE: &str = "Examples:
  pilothouse proxy-config route web.shop --name 9080
  curl -s localhost:15000/config_dump | pilothouse proxy-config route -f - -o json";

pub(super) const ENDPOINT: &str = "Examples:
  pilothouse proxy-config endpoint web.shop --cluster 'outbound|9080||reviews.shop.svc.cluster.local'
  pilothouse proxy-config endpoint --envoy-admin 127.0.0.1:15000 --status UNHEALTHY";

pub(super) const SECRET: &str = "Example:
  pilothouse proxy-config secret web.shop";

pub(super) const BOOTSTRAP: &str = "Examples:
  pilothouse proxy-config bootstrap --envoy-admin 127.0.0.1:15000
  pilothouse proxy-config bootstrap --envoy-admin 127.0.0.1:15000 -o table";

pub(super) const ECDS: &str = "Example:
  pilothouse proxy-config ecds web.shop -o yaml";

pub(super) const ALL: &str = "Examples:
  pilothouse proxy-config all web.shop --fqdn reviews --port 9080
  pilothouse proxy-config all web.shop -o json > dump.json";
