//! Names of statistics by pattern (Istio's `BuildStatPrefix`).

use crate::model::{Port, Registry, Service};

/// Fills in a pattern such as `%SERVICE%_%SERVICE_PORT%`.
#[must_use]
pub fn fill_in(pattern: &str, service: &Service, subset: &str, port: &Port, target_port: u32) -> String {
    let kubernetes = service.registry == Registry::Kubernetes;
    let (short, name) = if kubernetes {
        (format!("{}.{}", service.name, service.namespace), &*service.name)
    } else {
        (service.hostname.to_string(), &*service.hostname)
    };
    pattern
        .replace("%SERVICE%", &short)
        .replace("%SERVICE_NAME%", name)
        .replace("%SERVICE_FQDN%", &service.hostname)
        .replace("%SUBSET_NAME%", subset)
        .replace("%TARGET_PORT%", &target_port.to_string())
        .replace("%SERVICE_PORT%", &port.port.to_string())
        .replace("%SERVICE_PORT_NAME%", &port.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_holder_is_filled_in() {
        let mut service = Service {
            hostname: "a.b.svc.cluster.local".into(),
            name: "a".into(),
            namespace: "b".into(),
            registry: Registry::Kubernetes,
            ..Service::default()
        };
        let port = Port { name: "http".into(), port: 80, ..Port::default() };
        let pattern =
            "%SERVICE%/%SERVICE_NAME%/%SERVICE_FQDN%/%SUBSET_NAME%/%TARGET_PORT%/%SERVICE_PORT%/%SERVICE_PORT_NAME%";
        assert_eq!(fill_in(pattern, &service, "v1", &port, 8080), "a.b/a/a.b.svc.cluster.local/v1/8080/80/http");
        service.registry = Registry::External;
        assert_eq!(
            fill_in("%SERVICE%/%SERVICE_NAME%", &service, "", &port, 0),
            "a.b.svc.cluster.local/a.b.svc.cluster.local"
        );
    }
}
