//! Clusters as rows.

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{
    super::table,
    objects::{NONE, Services, name_of},
};

/// Direction of traffic, seen from the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// To the workload of the proxy.
    Inbound,
    /// From it.
    Outbound,
}

/// The clusters that are shown: those that fit all of these.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterFilter {
    /// Part of the service's host.
    #[arg(long, env = "PILOTHOUSE_FQDN", value_name = "TEXT")]
    pub fqdn: Option<String>,
    /// Direction of the traffic.
    #[arg(long, env = "PILOTHOUSE_DIRECTION", value_enum, ignore_case = true)]
    pub direction: Option<Direction>,
    /// Port of the service.
    // Kubernetes sets PILOTHOUSE_PORT in Pods beside a Service of that name.
    #[arg(long, env = "PILOTHOUSE_FILTER_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Part of the subset's name.
    #[arg(long, env = "PILOTHOUSE_SUBSET", value_name = "TEXT")]
    pub subset: Option<String>,
}

/// The parts of the name of a service's cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name<'a> {
    /// Host of the service; the whole name of a cluster of another form.
    pub(super) host: &'a str,
    subset: &'a str,
    port: Option<u16>,
    direction: &'a str,
}

impl<'a> Name<'a> {
    /// Reads `DIRECTION|PORT|SUBSET|HOST`, also with `_.` in place of `|`, as gateways between networks name them.
    pub(super) fn of(name: &'a str) -> Self {
        let parse = |mark: &str| {
            let mut parts = name.splitn(4, mark);
            let (direction, port, subset, host) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
            let known = direction.starts_with("inbound") || direction.starts_with("outbound");
            Some(Self { host, subset, port: port.parse().ok(), direction }).filter(|_| known)
        };
        parse("|").or_else(|| parse("_.")).unwrap_or(Self { host: name, subset: "", port: None, direction: "" })
    }
}

fn name(cluster: &Value) -> Name<'_> {
    Name::of(cluster["name"].as_str().unwrap_or_default())
}

impl ClusterFilter {
    /// The clusters that fit, by host, subset, port and direction.
    pub(super) fn kept(&self, mut clusters: Vec<Value>) -> Vec<Value> {
        clusters.retain(|cluster| self.fits(&name(cluster)));
        clusters.sort_by(|a, b| name(a).cmp(&name(b)));
        clusters
    }

    /// Whether the cluster of this name fits.
    pub(super) fn fits_name(&self, name: &str) -> bool {
        self.fits(&Name::of(name))
    }

    fn fits(&self, name: &Name<'_>) -> bool {
        let direction = |wanted: &Direction| match wanted {
            Direction::Inbound => name.direction.starts_with("inbound"),
            Direction::Outbound => name.direction.starts_with("outbound"),
        };
        self.fqdn.as_ref().is_none_or(|text| name.host.contains(text.as_str()))
            && self.direction.as_ref().is_none_or(direction)
            && self.port.is_none_or(|port| name.port == Some(port))
            && self.subset.as_ref().is_none_or(|text| name.subset.contains(text.as_str()))
    }
}

/// istioctl's columns, and the object of the service.
pub(super) fn table(clusters: &[Value], services: &Services) -> String {
    let titles = ["SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE", "OBJECT"];
    let mut rows = vec![titles.map(String::from)];
    let cell = |text: &str| if text.is_empty() { NONE.to_string() } else { text.to_string() };
    for cluster in clusters {
        let Name { host, subset, port, direction } = name(cluster);
        let port = port.map(|port| port.to_string()).unwrap_or_default();
        let kind = cluster["type"].as_str().or_else(|| cluster["clusterType"]["name"].as_str()).unwrap_or("STATIC");
        let metadata = &cluster["metadata"];
        let rule = name_of(metadata).unwrap_or_default();
        let object = services.of_cluster(metadata).unwrap_or_default();
        rows.push([host, &port, subset, direction, kind, &rule, &object].map(cell));
    }
    table::aligned(&rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clusters() -> Vec<Value> {
        let rule = "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/web";
        vec![
            json!({"name": "PassthroughCluster", "type": "ORIGINAL_DST"}),
            json!({"name": "outbound|80|v1|web.example", "type": "EDS", "metadata": {"filterMetadata": {"istio": {
                "config": rule, "services": [{"host": "web.example", "name": "web.example", "namespace": "shop"}]}}}}),
            json!({"name": "outbound|80||web.example", "type": "EDS"}),
            json!({"name": "inbound|8080||"}),
            json!({"name": "outbound_.9080_._.web.example"}),
        ]
    }

    #[test]
    fn columns_and_their_order() {
        let text = table(&ClusterFilter::default().kept(clusters()), &Services::default());
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["-", "8080", "-", "inbound", "STATIC", "-", "-"]);
        assert_eq!(rows[2], ["PassthroughCluster", "-", "-", "-", "ORIGINAL_DST", "-", "-"]);
        assert_eq!(rows[3][..4], ["web.example", "80", "-", "outbound"]);
        assert_eq!(rows[4], ["web.example", "9080", "-", "outbound", "STATIC", "-", "-"]);
        assert_eq!(rows[5], ["web.example", "80", "v1", "outbound", "EDS", "web.shop", "shop/web.example"]);
        assert_eq!(rows.len(), 6);
    }

    #[test]
    fn filters_are_joined() {
        let kept = |filter: ClusterFilter| filter.kept(clusters()).len();
        let text = |text: &str| Some(text.to_string());
        assert_eq!(kept(ClusterFilter { fqdn: text("web"), ..Default::default() }), 3);
        assert_eq!(kept(ClusterFilter { fqdn: text("web"), port: Some(80), ..Default::default() }), 2);
        assert_eq!(kept(ClusterFilter { subset: text("v1"), ..Default::default() }), 1);
        assert_eq!(kept(ClusterFilter { direction: Some(Direction::Inbound), ..Default::default() }), 1);
        assert_eq!(
            kept(ClusterFilter { direction: Some(Direction::Outbound), port: Some(1), ..Default::default() }),
            0
        );
    }
}
