//! The objects of a cluster as they are now, listed once, for the commands that need no server.
//!
//! A kind that the server does not have is no finding; one that may not be listed is named, and the others are there. Where the
//! whole cluster may not be listed, the one namespace that is asked about is.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use http::Request;
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, GroupVersionKind},
};
use serde::Deserialize;
use serde_json::Value;

use super::{Cluster, RawObject, groups::field_selector, read::cut, watch_error::of_error};
use crate::model::Kind;

/// Objects of a page.
const PAGE: u32 = 500;
/// Requests at the same time.
const AT_ONCE: usize = 8;
/// Lists of a kind that begin anew because a page has expired.
const TRIES: usize = 5;

/// Kinds of workloads that no source reads: group, version, kind, plural.
const WORKLOADS: [(&str, &str, &str, &str); 4] = [
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("batch", "v1", "CronJob", "cronjobs"),
];

/// Kinds that are large, and that no analysis looks at.
const PASSED_OVER: [Kind; 4] = [Kind::Endpoints, Kind::EndpointSlice, Kind::Node, Kind::MutatingWebhookConfiguration];

/// A kind that could not be listed in full.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unlisted {
    /// Plural and group.
    pub resource: String,
    /// The server's answer.
    pub reason: String,
    /// The only namespace that was listed; `None` where nothing was.
    pub only: Option<String>,
}

/// The objects of a cluster at one time.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The objects, with their kinds. Of Secrets only the parts that are read as credentials.
    pub objects: Vec<Value>,
    /// Kinds that are missing, or here in part.
    pub unlisted: Vec<Unlisted>,
    /// Kinds that were listed.
    pub listed: usize,
    /// The namespace of the context.
    pub namespace: String,
}

#[derive(Clone)]
struct Wanted {
    resource: ApiResource,
    kind: Option<Kind>,
    is_namespaced: bool,
}

#[derive(Deserialize)]
struct Served {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

/// Lists the objects that an analysis reads. `namespace` is the one that is asked about; `None` for all of them, and an empty
/// name for that of the context.
///
/// # Errors
/// The kubeconfig cannot be used, or the server does not answer, or not to us.
pub async fn list_once(cluster: &Cluster, namespace: Option<&str>) -> Result<Listing, String> {
    let client = cluster.client().await.map_err(|e| e.to_string())?;
    let of_context = client.default_namespace().to_string();
    let namespace = namespace.map(|name| if name.is_empty() { of_context.as_str() } else { name });
    let wanted = served(cluster, &client).await?;
    let mut all = Listing { namespace: of_context.clone(), ..Listing::default() };
    let lists = stream::iter(wanted).map(|wanted| {
        let client = client.clone();
        async move {
            let listed = list(cluster, &client, &wanted, namespace).await;
            (wanted, listed)
        }
    });
    let lists: Vec<_> = lists.buffered(AT_ONCE).collect().await;
    for (wanted, (objects, unlisted)) in lists {
        all.listed += usize::from(unlisted.is_none());
        all.objects.extend(objects.iter().filter_map(|object| value(object, &wanted)));
        all.unlisted.extend(unlisted);
    }
    Ok(all)
}

/// Our kinds that the server has, each in the version that is read.
async fn served(cluster: &Cluster, client: &Client) -> Result<Vec<Wanted>, String> {
    let kinds = || Kind::ALL.iter().copied().filter(|kind| !PASSED_OVER.contains(kind));
    let mut versions: BTreeSet<(&str, &str)> = WORKLOADS.iter().map(|w| (w.0, w.1)).collect();
    versions.extend(kinds().flat_map(|kind| kind.versions().iter().map(move |version| (kind.group(), *version))));
    let asked = stream::iter(versions).map(|at| async move { (at, resources(cluster, client, at).await) });
    let asked: Vec<_> = asked.buffered(AT_ONCE).collect().await;
    let mut there: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    for (at, answer) in asked {
        there.insert(at, answer?);
    }
    let has =
        |group: &str, version: &str, plural: &str| there.get(&(group, version)).is_some_and(|r| r.contains(plural));
    let resource = |group: &str, version: &str, kind: &str, plural: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    };
    let read = kinds().filter_map(|kind| {
        let version = kind.versions().iter().find(|version| has(kind.group(), version, kind.plural()))?;
        let resource = resource(kind.group(), version, kind.as_str(), kind.plural());
        Some(Wanted { resource, kind: Some(kind), is_namespaced: kind.namespaced() })
    });
    let workloads = WORKLOADS.iter().filter(|(group, version, _, plural)| has(group, version, plural));
    let workloads = workloads.map(|(group, version, kind, plural)| Wanted {
        resource: resource(group, version, kind, plural),
        kind: None,
        is_namespaced: true,
    });
    Ok(read.chain(workloads).collect())
}

/// The resources of a group in a version, by plural; none for a group that the server does not have.
async fn resources(cluster: &Cluster, client: &Client, at: (&str, &str)) -> Result<BTreeSet<String>, String> {
    let path = match at {
        ("", version) => format!("/api/{version}"),
        (group, version) => format!("/apis/{group}/{version}"),
    };
    let request = Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    match tokio::time::timeout(cluster.settings().list_timeout, client.request::<Served>(request)).await {
        Ok(Ok(served)) => Ok(served.resources.into_iter().map(|resource| resource.name).collect()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(BTreeSet::new()),
        Ok(Err(error)) => Err(of_error(&error)),
        Err(_) => Err("no answer".to_string()),
    }
}

/// All objects of a kind that may be listed.
async fn list(
    cluster: &Cluster,
    client: &Client,
    wanted: &Wanted,
    namespace: Option<&str>,
) -> (Vec<RawObject>, Option<Unlisted>) {
    let resource = &wanted.resource;
    let dot = if resource.group.is_empty() { "" } else { "." };
    let unlisted = |reason: String, only: Option<&str>| Unlisted {
        resource: format!("{}{dot}{}", resource.plural, resource.group),
        reason,
        only: only.map(str::to_string),
    };
    let reason = match pages(cluster, &Api::all_with(client.clone(), resource), wanted).await {
        Ok(objects) => return (objects, None),
        Err(reason) => reason,
    };
    if let Some(namespace) = namespace.filter(|_| wanted.is_namespaced) {
        let api = Api::namespaced_with(client.clone(), namespace, resource);
        if let Ok(objects) = pages(cluster, &api, wanted).await {
            return (objects, Some(unlisted(reason, Some(namespace))));
        }
    }
    (Vec::new(), Some(unlisted(reason, None)))
}

async fn pages(cluster: &Cluster, api: &Api<RawObject>, wanted: &Wanted) -> Result<Vec<RawObject>, String> {
    let mut expired = 0;
    let (mut all, mut next) = (Vec::new(), None);
    loop {
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.continue_token = next.take();
        parameters.field_selector = wanted.kind.and_then(field_selector).map(str::to_string);
        match tokio::time::timeout(cluster.settings().list_timeout, api.list(&parameters)).await {
            Ok(Ok(page)) => {
                all.extend(page.items);
                next = page.metadata.continue_.filter(|token| !token.is_empty());
                if next.is_none() {
                    return Ok(all);
                }
            }
            // The version of the first page is no longer kept.
            Ok(Err(kube::Error::Api(status))) if status.code == 410 && expired < TRIES => {
                expired += 1;
                all.clear();
            }
            Ok(Err(error)) => return Err(of_error(&error)),
            Err(_) => return Err("no answer".to_string()),
        }
    }
}

/// The object with its kind, without the parts that are no one's business here.
fn value(object: &RawObject, wanted: &Wanted) -> Option<Value> {
    let mut value: Value = serde_json::from_str(object.text()).ok()?;
    let fields = value.as_object_mut()?;
    fields.shift_insert(0, "apiVersion".to_string(), wanted.resource.api_version.as_str().into());
    fields.shift_insert(1, "kind".to_string(), wanted.resource.kind.as_str().into());
    match wanted.kind {
        // Of pods the analysis sees the whole.
        Some(kind) if kind != Kind::Pod => cut(kind, fields),
        _ => drop(fields.get_mut("metadata").and_then(Value::as_object_mut).map(|m| m.shift_remove("managedFields"))),
    }
    Some(value)
}
