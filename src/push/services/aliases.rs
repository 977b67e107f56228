//! ExternalName services: the other names of a service (Istio's `resolveServiceAliases`).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use crate::model::{Hostname, Resolution, Service};

/// Fills in [`Service::aliases`] of every service that an ExternalName service stands for, through chains of aliases.
/// Aliases that lead in a circle stand for nothing, as in Kubernetes' DNS.
pub(super) fn resolve(services: &mut [Arc<Service>]) {
    let targets: HashMap<Hostname, Hostname> = services
        .iter()
        .filter(|s| s.resolution == Resolution::Alias)
        .map(|s| (s.hostname.clone(), s.external_name.as_str().into()))
        .collect();
    if targets.is_empty() {
        return;
    }
    let mut aliases: HashMap<Hostname, BTreeSet<(Arc<str>, Hostname)>> = HashMap::new();
    for alias in services.iter().filter(|s| s.resolution == Resolution::Alias) {
        if let Some(concrete) = concrete(&targets, &alias.external_name) {
            aliases.entry(concrete).or_default().insert((alias.namespace.clone(), alias.hostname.clone()));
        }
    }
    for service in services {
        let Some(names) = aliases.get(&service.hostname) else { continue };
        let names: Vec<_> = names.iter().map(|(namespace, host)| (host.clone(), namespace.clone())).collect();
        if service.aliases != names {
            *service = Arc::new(Service { aliases: names, ..Service::clone(service) }.stamped());
        }
    }
}

/// The name at the end of the chain that begins with `name`; `None` for a circle.
fn concrete(targets: &HashMap<Hostname, Hostname>, name: &str) -> Option<Hostname> {
    let mut name: Hostname = name.into();
    let mut seen = HashSet::new();
    while let Some(next) = targets.get(&name) {
        if !seen.insert(name) {
            return None;
        }
        name = next.clone();
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alias(host: &str, of: &str) -> Arc<Service> {
        let resolution = Resolution::Alias;
        Arc::new(Service { hostname: host.into(), external_name: of.into(), resolution, ..Service::default() })
    }

    #[test]
    fn chains_end_at_the_concrete_service_and_circles_nowhere() {
        let concrete = Arc::new(Service { hostname: "c".into(), ..Service::default() });
        let mut services = vec![alias("b", "a"), alias("a", "c"), concrete, alias("x", "y"), alias("y", "x")];
        resolve(&mut services);
        let names: Vec<Vec<&str>> =
            services.iter().map(|s| s.aliases.iter().map(|(host, _)| &**host).collect()).collect();
        assert_eq!(names, [vec![], vec![], vec!["a", "b"], vec![], vec![]]);
    }
}
