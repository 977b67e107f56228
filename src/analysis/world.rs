//! The objects of a run with the indexes that analyzers share: workloads, hosts, namespaces.
//!
//! Also the decision which references may be judged at all: see the room's page.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{
    destinations::destinations,
    object::{Content, Object, TEMPLATES, pairs},
};
use crate::{
    model::{Config, Kind, Labels, Mesh, Registry, Service, Visibility, host, labels},
    push::PushContext,
};

/// A set of pods, or another workload, by the labels that selectors look at.
pub(super) struct Workload<'a> {
    /// Name of the object.
    pub name: &'a str,
    /// Namespace of the object.
    pub namespace: &'a str,
    /// Labels of its pods.
    pub labels: Cow<'a, Labels>,
    /// Annotations of its pods.
    pub annotations: Cow<'a, Labels>,
    /// Whether the labels are those of the running workload, with everything that a platform adds.
    pub is_running: bool,
    /// Whether its node is shown, so that it has all labels of its place.
    pub has_place: bool,
    /// The ingress gateway that every installation of Istio has: assumed, since no object shows it.
    pub is_assumed: bool,
}

/// What all analyzers read.
pub(super) struct World<'a> {
    /// All objects.
    pub objects: &'a [Object],
    /// The context made of them.
    pub context: &'a PushContext,
    /// The time, in seconds since the Unix epoch.
    pub now: i64,
    /// All workloads.
    pub workloads: Vec<Workload<'a>>,
    /// Labels of the Namespace objects, by name.
    pub namespaces: BTreeMap<&'a str, Cow<'a, Labels>>,
    kinds: BTreeMap<Kind, Vec<(usize, &'a Arc<Config>)>>,
    names: HashMap<(Kind, &'a str, &'a str), &'a Arc<Config>>,
    /// Subsets of DestinationRules with their labels, by the full host of the rule.
    subsets: HashMap<Arc<str>, Vec<(&'a str, &'a Labels)>>,
    /// Subsets that routes name, by the full host of the destination; the empty name for none.
    routed: HashMap<Arc<str>, BTreeSet<&'a str>>,
    has_cluster_services: bool,
}

impl<'a> World<'a> {
    /// Indexes the objects.
    pub fn of(objects: &'a [Object], context: &'a PushContext, now: i64) -> Self {
        let nodes =
            objects.iter().filter(|o| o.kind == "Node" && o.group.is_empty()).map(|o| (&*o.name, o.labels())).collect();
        let mut workloads: Vec<Workload<'a>> = objects.iter().filter_map(|object| workload(object, &nodes)).collect();
        workloads.push(ingress_gateway());
        let namespaces = objects.iter().filter(|o| o.kind == "Namespace" && o.group.is_empty());
        let services = &context.inputs.registry.services;
        let mut world = Self {
            objects,
            context,
            now,
            workloads,
            namespaces: namespaces.map(|o| (&*o.name, o.labels())).collect(),
            kinds: BTreeMap::new(),
            names: HashMap::new(),
            subsets: HashMap::new(),
            routed: HashMap::new(),
            has_cluster_services: services.iter().any(|s| s.registry == Registry::Kubernetes),
        };
        world.index();
        world
    }

    fn index(&mut self) {
        let read = self.objects.iter().enumerate().filter_map(|(i, object)| Some((i, object.config()?)));
        for (index, config) in read.filter(|(_, config)| config.is_of_main_cluster()) {
            let (namespace, name) = (&*config.meta.namespace, &*config.meta.name);
            self.kinds.entry(config.kind()).or_default().push((index, config));
            self.names.entry((config.kind(), namespace, name)).or_insert(config);
            if let Some(rule) = config.destination_rule() {
                let subsets = rule.subsets.iter().map(|subset| (subset.name.as_str(), &subset.labels));
                let host = self.full_host(&rule.host, namespace);
                self.subsets.entry(host).or_default().extend(subsets);
            }
            for found in config.virtual_service().into_iter().flat_map(destinations) {
                let host = self.full_host(&found.destination.host, namespace);
                self.routed.entry(host).or_default().insert(&found.destination.subset);
            }
        }
    }

    /// Mesh settings.
    pub fn mesh(&self) -> &'a Mesh {
        self.context.mesh()
    }

    /// The objects of a kind, with their indexes.
    pub fn list(&self, kind: Kind) -> impl Iterator<Item = (usize, &'a Arc<Config>)> + use<'_, 'a> {
        self.kinds.get(&kind).into_iter().flatten().copied()
    }

    /// The objects of a kind that is not read.
    pub fn unread(&self, group: &'static str, kind: &'static str) -> impl Iterator<Item = (usize, &'a Object)> {
        self.objects.iter().enumerate().filter(move |(_, o)| o.kind == kind && o.group == group)
    }

    /// The object with this name.
    pub fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<&'a Arc<Config>> {
        self.names.get(&(kind, namespace, name)).copied()
    }

    /// Whether there is an object of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.contains_key(&kind)
    }

    /// The labels of a subset of a host, in a DestinationRule of that host or of a wildcard that covers it.
    pub fn subset(&self, full: &str, name: &str) -> Option<&'a Labels> {
        let of = |list: &Vec<(&'a str, &'a Labels)>| list.iter().find(|(n, _)| *n == name).map(|(_, labels)| *labels);
        let wild = || self.subsets.iter().filter(|(host, _)| host::is_wildcard(host) && host::matches(host, full));
        self.subsets.get(full).and_then(of).or_else(|| wild().find_map(|(_, list)| of(list)))
    }

    /// The subsets of a host that routes name; `None` where no route leads to the host.
    pub fn routed_subsets(&self, full: &str) -> Option<&BTreeSet<&'a str>> {
        self.routed.get(full)
    }

    /// Whether there are workloads, so that a selector may be looked for.
    pub fn has_workloads(&self) -> bool {
        self.workloads.iter().any(|workload| !workload.is_assumed)
    }

    /// The workloads that a selector takes: in one namespace, or in all for `None`.
    pub fn selected<'s>(
        &'s self,
        selector: &'s Labels,
        namespace: Option<&'s str>,
    ) -> impl Iterator<Item = &'s Workload<'a>> {
        let here = move |w: &&Workload<'_>| namespace.is_none_or(|n| w.namespace == n);
        self.workloads.iter().filter(here).filter(move |w| labels::matches(selector, &*w.labels))
    }

    /// The full name of a host that an object of a namespace names.
    pub fn full_host(&self, name: &str, namespace: &str) -> Arc<str> {
        host::resolve_short_name(name, namespace, &self.mesh().domain)
    }

    /// Whether the absence of a host says something: hosts of the cluster are looked for where there are Services, others where
    /// there is any service.
    pub fn may_judge_host(&self, full: &str) -> bool {
        let of_cluster = full.ends_with(&format!(".svc.{}", self.mesh().domain));
        if of_cluster { self.has_cluster_services } else { !self.context.inputs.registry.services.is_empty() }
    }

    /// The service of a full host name that is visible in one of the namespaces; all of them see what is public.
    pub fn service(&self, full: &str, namespaces: &[&str]) -> Option<&'a Arc<Service>> {
        let context = self.context;
        let is_seen = |service: &&&Arc<Service>| namespaces.iter().any(|n| context.services.is_visible(service, n));
        let exact = context.services.of_host(full).iter();
        let wild = || context.inputs.registry.services.iter().filter(|s| host::is_wildcard(&s.hostname));
        let named = exact.collect::<Vec<_>>().into_iter();
        let first = named.clone().find(|s| is_seen(&s));
        first.or_else(|| wild().filter(|s| host::matches(&s.hostname, full)).find(|s| is_seen(&s)))
    }

    /// The namespaces whose view counts for the references of an object: those that it is exported to, else its own. A name
    /// that no namespace has stands for all of them: it sees what is public.
    pub fn readers<'s>(&self, export_to: &'s [String], own: &'s str) -> Vec<&'s str> {
        if export_to.is_empty() {
            return vec![own];
        }
        let reader = |to: &'s String| match Visibility::parse(to) {
            Visibility::Private => own,
            _ => to.as_str(),
        };
        export_to.iter().map(reader).collect()
    }

    /// Whether a namespace has injection: by its own label, or by those of the pods.
    pub fn is_in_mesh(&self, namespace: &str, labels: &Labels, annotations: &Labels) -> bool {
        const INJECT: &str = "sidecar.istio.io/inject";
        if let Some(inject) = labels.get(INJECT).or_else(|| annotations.get(INJECT)) {
            return inject == "true";
        }
        self.namespaces.get(namespace).is_some_and(|labels| {
            labels.get("istio-injection").map_or(labels.contains_key("istio.io/rev"), |value| value == "enabled")
        })
    }

    /// Whether something shows that a namespace exists.
    pub fn knows_namespace(&self, fits: impl Fn(&str) -> bool) -> bool {
        let built_in = ["default", "kube-system", "istio-system", &self.mesh().config.root_namespace];
        let of_objects = self.objects.iter().filter(|o| !is_policy(o)).map(|o| &*o.namespace);
        built_in.into_iter().chain(self.namespaces.keys().copied()).chain(of_objects).any(fits)
    }
}

/// Whether an object may stand in any namespace that its author misspelt.
fn is_policy(object: &Object) -> bool {
    object.group.ends_with("istio.io")
}

fn workload<'a>(object: &'a Object, nodes: &HashMap<&str, Cow<'_, Labels>>) -> Option<Workload<'a>> {
    let of = |labels: Cow<'_, Labels>, annotations: Cow<'_, Labels>, is_running| {
        let (labels, annotations) = (Cow::Owned(labels.into_owned()), Cow::Owned(annotations.into_owned()));
        Workload {
            name: &object.name,
            namespace: &object.namespace,
            labels,
            annotations,
            is_running,
            has_place: false,
            is_assumed: false,
        }
    };
    match &object.content {
        Content::Read(config) => match config.kind() {
            Kind::Pod => {
                let mut labels = object.labels().into_owned();
                let node = config.pod()?.spec.as_ref().and_then(|spec| nodes.get(spec.node_name.as_deref()?));
                let of_node = node.into_iter().flat_map(|labels| labels.iter());
                let of_node = of_node.filter(|(key, value)| is_place(key) && !value.is_empty());
                labels.extend(of_node.map(|(key, value)| (key.clone(), value.clone())));
                let workload = of(Cow::Owned(labels), object.annotations(), true);
                Some(Workload { has_place: node.is_some(), ..workload })
            }
            Kind::WorkloadEntry => {
                let mut labels = config.workload_entry()?.labels.clone();
                labels.extend(config.meta.labels.clone());
                Some(of(Cow::Owned(labels), object.annotations(), true))
            }
            Kind::WorkloadGroup => {
                let group = config.workload_group()?;
                let mut labels = group.template.as_ref().map(|t| t.labels.clone()).unwrap_or_default();
                labels.extend(group.metadata.as_ref().map(|m| m.labels.clone()).unwrap_or_default());
                Some(of(Cow::Owned(labels), Cow::Owned(Labels::new()), false))
            }
            _ => None,
        },
        Content::Unread(document) => {
            let template = match object.kind.as_str() {
                kind if TEMPLATES.contains(&kind) => document.pointer("/spec/template/metadata"),
                "CronJob" => document.pointer("/spec/jobTemplate/spec/template/metadata"),
                _ => return None,
            };
            let part = |key: &str| Cow::Owned(pairs(template.and_then(|meta: &Value| meta.get(key))));
            Some(of(part("labels"), part("annotations"), false))
        }
    }
}

/// Whether a label is of the place that a workload runs at: it comes from its node.
pub(super) fn is_place(key: &str) -> bool {
    key.starts_with("topology.") || key == "kubernetes.io/hostname" || key == "istio-locality"
}

/// The gateway that Istio's own files bring along.
fn ingress_gateway() -> Workload<'static> {
    let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
    let labels = Labels::from([pair("istio", "ingressgateway"), pair("app", "istio-ingressgateway")]);
    Workload {
        name: "istio-ingressgateway",
        namespace: "istio-system",
        labels: Cow::Owned(labels),
        annotations: Cow::Owned(Labels::new()),
        is_running: false,
        has_place: false,
        is_assumed: true,
    }
}
