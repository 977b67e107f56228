//! Patches of route configurations, virtual hosts and routes (Istio's `rc_patch.go`).

use std::{
    collections::{BTreeSet, HashSet},
    hash::Hash,
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3Default;

use super::{Patching, fitting, is_merge, matching, merge};
use crate::{
    generate::check,
    proto::{
        envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost},
        networking::envoy_filter::{ApplyTo, patch::Operation},
    },
    push::envoy_filters::Patch,
};

/// The patches that may change the virtual hosts of one route configuration.
#[derive(Debug)]
pub struct HostPatches<'a> {
    patches: Vec<&'a Patch>,
    key: u128,
}

impl HostPatches<'_> {
    /// The key of these patches; `None` where none is for this virtual host.
    #[must_use]
    pub fn key(&self, name: &str, domains: &[String]) -> Option<u128> {
        self.patches.iter().any(|patch| matching::virtual_host(patch, name, domains)).then_some(self.key)
    }
}

impl Patching<'_> {
    fn is_for_routes(&self, patch: &Patch, name: &str) -> bool {
        matching::route_configuration(patch, self.context, self.ports, name)
    }

    fn route_patches<'s>(&'s self, target: ApplyTo, name: &'s str) -> impl Iterator<Item = &'s Arc<Patch>> {
        self.patches(target).filter(move |patch| self.is_for_routes(patch, name))
    }

    /// Whether some patch is for a route configuration of this name or for something in it.
    #[must_use]
    pub fn patches_routes(&self, name: &str) -> bool {
        let targets = [ApplyTo::RouteConfiguration, ApplyTo::VirtualHost, ApplyTo::HttpRoute];
        targets.into_iter().any(|target| self.route_patches(target, name).next().is_some())
    }

    /// Whether some patch is for route configurations or for something in them.
    #[must_use]
    pub fn patches_any_routes(&self) -> bool {
        let targets = [ApplyTo::RouteConfiguration, ApplyTo::VirtualHost, ApplyTo::HttpRoute];
        targets.into_iter().any(|target| self.patches(target).next().is_some())
    }

    /// A route configuration with its patches, as far as Envoy takes the result.
    #[must_use]
    pub fn route_configuration(&mut self, configuration: RouteConfiguration) -> RouteConfiguration {
        if !self.patches_routes(&configuration.name) {
            return configuration;
        }
        let name = configuration.name.clone();
        let same_name = |patched: &RouteConfiguration| match patched.name == name {
            true => fit(patched),
            false => Err("the name of the route configuration is another".to_string()),
        };
        let apply = |p: &Patching<'_>, c: RouteConfiguration| Some(patched(p, c));
        let resource = format_args!("route configuration {name}");
        let patched = fitting(self, resource, configuration.clone(), apply, same_name);
        patched.map_or(configuration, |(patched, _)| patched)
    }

    /// The fields of a route configuration beside its virtual hosts, with their patches; `None` where a patch brings virtual
    /// hosts along, which the other patches are for too.
    #[must_use]
    pub fn route_fields(&mut self, fields: RouteConfiguration) -> Option<RouteConfiguration> {
        let name = fields.name.clone();
        let apply = |p: &Patching<'_>, c: RouteConfiguration| Some(merged(p, c, &name));
        let same_name = |patched: &RouteConfiguration| match patched.name == name {
            true => check::encoded(patched).map(drop).map_err(|found| check::reasons(&found)),
            false => Err("the name of the route configuration is another".to_string()),
        };
        let resource = format_args!("route configuration {name}");
        let patched = fitting(self, resource, fields, apply, same_name).map(|(patched, _)| patched);
        patched.filter(|patched| patched.virtual_hosts.is_empty())
    }

    /// The patches for virtual hosts of a route configuration and for their routes.
    #[must_use]
    pub fn of_hosts<'s>(&'s self, configuration: &'s str) -> HostPatches<'s> {
        let hosts = self.route_patches(ApplyTo::VirtualHost, configuration);
        let hosts = hosts.filter(|patch| patch.operation != Operation::Add);
        let patches: Vec<&Patch> =
            hosts.chain(self.route_patches(ApplyTo::HttpRoute, configuration)).map(|patch| &**patch).collect();
        // A patched name decides the patches that follow: all of them count.
        let mut hasher = Xxh3Default::new();
        configuration.hash(&mut hasher);
        patches.iter().for_each(|patch| patch.identity().hash(&mut hasher));
        HostPatches { patches, key: hasher.digest128() }
    }

    /// A virtual host with its patches, as far as Envoy takes the result; `None` for one that is removed. Its bytes come along
    /// where Envoy is known to take it.
    #[must_use]
    pub fn virtual_host(&mut self, configuration: &str, host: VirtualHost) -> Option<(VirtualHost, Option<Vec<u8>>)> {
        let name = host.name.clone();
        let resource = format_args!("virtual host {name} of route configuration {configuration}");
        let apply = |p: &Patching<'_>, mut host: VirtualHost| patch_host(p, configuration, &mut host).then_some(host);
        fitting(self, resource, host, apply, fit_host)
    }

    /// Virtual hosts that are added to these; names and domains are unique. Names that patches remove stay removed, as in Istio.
    #[must_use]
    pub fn added_hosts(
        &mut self,
        configuration: &str,
        taken: &[VirtualHost],
        removed: &HashSet<String>,
    ) -> Vec<VirtualHost> {
        let added: Vec<Arc<Patch>> = self.additions(configuration).cloned().collect();
        let mut names: HashSet<String> = taken.iter().map(|host| host.name.clone()).collect();
        let mut domains: HashSet<String> = taken.iter().flat_map(|host| host.domains.iter().cloned()).collect();
        let mut hosts = Vec::new();
        for patch in added {
            let host: VirtualHost = patch.value.as_ref().map(|value| value.decoded()).unwrap_or_default();
            let resource = format!("virtual host {} of route configuration {configuration}", host.name);
            self.begin();
            let mut result = fit_host(&host).map(drop);
            if let Some(domain) = host.domains.iter().find(|domain| domains.contains(*domain)) {
                result = Err(format!("another virtual host has the domain {domain:?}"));
            } else if removed.contains(&host.name) {
                result = Err("a patch removes the virtual hosts of that name".to_string());
            } else if names.contains(&host.name) {
                result = Err("there is a virtual host of that name".to_string());
            }
            if result.is_ok() {
                names.insert(host.name.clone());
                domains.extend(host.domains.iter().cloned());
                hosts.push(host);
            }
            self.done(&patch, &resource, result);
            self.keep();
        }
        hosts
    }

    /// Whether virtual hosts are added to a route configuration.
    #[must_use]
    pub fn adds_hosts(&self, configuration: &str) -> bool {
        self.additions(configuration).next().is_some()
    }

    fn additions<'s>(&'s self, configuration: &'s str) -> impl Iterator<Item = &'s Arc<Patch>> {
        self.route_patches(ApplyTo::VirtualHost, configuration).filter(|patch| patch.operation == Operation::Add)
    }
}

/// The bytes of a virtual host that Envoy takes.
fn fit_host(host: &VirtualHost) -> Result<Vec<u8>, String> {
    check::encoded(host).map_err(|found| check::reasons(&found))
}

fn fit(configuration: &RouteConfiguration) -> Result<(), String> {
    check::encoded(configuration).map_err(|found| check::reasons(&found))?;
    let (mut names, mut domains) = (HashSet::new(), HashSet::new());
    for host in &configuration.virtual_hosts {
        if !names.insert(&host.name) {
            return Err(format!("two virtual hosts are called {:?}", host.name));
        }
        if let Some(domain) = host.domains.iter().find(|domain| !domains.insert(*domain)) {
            return Err(format!("two virtual hosts have the domain {domain:?}"));
        }
    }
    Ok(())
}

fn merged(patching: &Patching<'_>, mut configuration: RouteConfiguration, name: &str) -> RouteConfiguration {
    for patch in patching.route_patches(ApplyTo::RouteConfiguration, name).filter(|p| is_merge(p.operation)) {
        let result = merge::patch(&mut configuration, patch);
        patching.done(patch, format_args!("route configuration {name}"), result);
    }
    configuration
}

/// The patched route configuration, whether Envoy takes it or not.
#[must_use]
pub fn patched(patching: &Patching<'_>, configuration: RouteConfiguration) -> RouteConfiguration {
    let name = configuration.name.clone();
    let mut configuration = merged(patching, configuration, &name);
    let mut removed = BTreeSet::new();
    for host in &mut configuration.virtual_hosts {
        if !patch_host(patching, &name, host) {
            removed.insert(host.name.clone());
        }
    }
    for patch in patching.additions(&name) {
        configuration.virtual_hosts.extend(patch.value.as_ref().map(|value| value.decoded::<VirtualHost>()));
        patching.applied(patch);
    }
    configuration.virtual_hosts.retain(|host| !removed.contains(&host.name));
    configuration
}

/// `false` for a virtual host that is removed.
fn patch_host(patching: &Patching<'_>, configuration: &str, host: &mut VirtualHost) -> bool {
    for patch in patching.route_patches(ApplyTo::VirtualHost, configuration) {
        if patch.operation == Operation::Add || !matching::of_host(patch, host) {
            continue;
        }
        match patch.operation {
            Operation::Remove => {
                patching.applied(patch);
                return false;
            }
            Operation::Replace => {
                *host = patch.value.as_ref().map(|value| value.decoded()).unwrap_or_default();
                patching.applied(patch);
            }
            _ => {
                let result = merge::patch(host, patch);
                let resource = format_args!("virtual host {} of route configuration {configuration}", host.name);
                patching.done(patch, resource, result);
            }
        }
    }
    patch_routes(patching, configuration, host);
    true
}

fn patch_routes(patching: &Patching<'_>, configuration: &str, host: &mut VirtualHost) {
    let routes = std::mem::take(&mut host.routes);
    // Removed routes keep their place until the others are inserted.
    let mut routes: Vec<Option<Route>> =
        routes.into_iter().map(|route| patch_route(patching, configuration, host, route)).collect();
    for patch in patching.route_patches(ApplyTo::HttpRoute, configuration).filter(|p| matching::of_host(p, host)) {
        let wanted = matching::wanted_route(patch);
        let value = || patch.value.as_ref().map(|value| value.decoded::<Route>());
        let is_it = |route: &Option<Route>| route.as_ref().is_some_and(|route| matching::route(wanted, route));
        let found = routes.iter().position(is_it);
        let place = match (patch.operation, wanted.is_some(), found) {
            (Operation::Add, _, _) | (Operation::InsertAfter, false, _) => routes.len(),
            (Operation::InsertBefore | Operation::InsertFirst, false, _) | (Operation::InsertFirst, true, Some(_)) => 0,
            (Operation::InsertBefore, true, Some(found)) => found,
            (Operation::InsertAfter, true, Some(found)) => found + 1,
            _ => continue,
        };
        routes.insert(place, value());
        patching.applied(patch);
    }
    host.routes = routes.into_iter().flatten().collect();
}

/// `None` for a route that is removed.
fn patch_route(patching: &Patching<'_>, configuration: &str, host: &VirtualHost, mut route: Route) -> Option<Route> {
    for patch in patching.route_patches(ApplyTo::HttpRoute, configuration) {
        if !matching::of_host(patch, host) || !matching::route(matching::wanted_route(patch), &route) {
            continue;
        }
        if patch.operation == Operation::Remove {
            patching.applied(patch);
            return None;
        }
        if is_merge(patch.operation) {
            let result = merge::patch(&mut route, patch);
            let resource = format_args!("route {:?} of virtual host {} of {configuration}", route.name, host.name);
            patching.done(patch, resource, result);
        }
    }
    Some(route)
}
