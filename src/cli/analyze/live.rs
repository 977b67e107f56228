//! The objects of a live cluster beside those of files: asked for once, with the rights of the kubeconfig's user.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use clap::Args;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    analysis::Object,
    cli::{Refusal, complain, from_env},
    model::{
        Config, KindClass, Mesh, Origin,
        decode::with_warnings,
        validation::{Validation, validate},
    },
    runtime::catch,
    settings::{KubeAccess, KubeSettings},
    sources::{
        Refused,
        kube::{Cluster, Listing, Unlisted, list_once, mesh_values},
    },
};

/// The cluster that is analysed, and the part of it that findings are shown of.
#[derive(Debug, Clone, Args)]
pub struct LiveArgs {
    /// Analyze the objects of the cluster of this kubeconfig, too. A file's object replaces the cluster's of the same name.
    #[arg(long, env = "PILOTHOUSE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one when this is not given.
    #[arg(long, env = "PILOTHOUSE_CONTEXT", value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Show findings about the cluster's objects of this namespace; that of the context when this is not given. Objects of all
    /// namespaces are read, for references, as far as they may be listed.
    #[arg(short, long, env = "PILOTHOUSE_NAMESPACE", value_name = "NAME", requires = "kubeconfig")]
    pub namespace: Option<String>,
    /// Show findings about the cluster's objects of all namespaces.
    #[arg(short = 'A', long, env = "PILOTHOUSE_ALL_NAMESPACES", requires = "kubeconfig", conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Namespace of the cluster's mesh settings, which count where --mesh-config and --networks-config are not given.
    #[arg(
        short,
        long,
        alias = "istioNamespace",
        env = "PILOTHOUSE_ISTIO_NAMESPACE",
        default_value_t = from_env("ISTIO_NAMESPACE", "istio-system"),
        value_name = "NAME"
    )]
    pub istio_namespace: String,
    /// Revision of the control plane whose mesh settings count.
    #[arg(long, env = "PILOTHOUSE_REVISION", default_value = "", value_name = "NAME")]
    pub revision: String,
}

/// What a cluster holds.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// All objects.
    pub objects: Vec<Object>,
    /// Those that are sound by themselves.
    pub configs: Vec<Arc<Config>>,
    /// Those that are not.
    pub refused: Vec<Refused>,
    /// The mesh settings.
    pub mesh: Option<Mesh>,
    /// The namespace whose findings are shown; `None` for all.
    pub namespace: Option<String>,
}

impl Live {
    /// Whether findings about an object of a namespace are shown.
    pub fn shows(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.namespace.as_ref().is_none_or(|shown| shown == namespace)
    }
}

/// Asks the cluster of the arguments, if they name one, for the objects that no file has. `domain` and `cluster_id` are those of
/// the mesh.
///
/// # Errors
/// A kubeconfig that cannot be used, and a server that does not answer or lists nothing.
pub(super) fn read(args: &LiveArgs, files: &[Object], domain: &str, cluster_id: &str) -> anyhow::Result<Option<Live>> {
    let Some(path) = &args.kubeconfig else { return Ok(None) };
    let refusal = |reason: String| Refusal(format!("--kubeconfig {}: {reason}", path.display()));
    let access = KubeAccess::Kubeconfig { path: path.clone(), context: args.context.clone() };
    let settings = KubeSettings {
        namespace: args.istio_namespace.clone(),
        revision: args.revision.clone(),
        ..KubeSettings::new(access)
    };
    let cluster = Cluster::new(cluster_id, settings, watch::Sender::new(Arc::new(Mesh::default())).subscribe());
    let asked = (!args.all_namespaces).then(|| args.namespace.as_deref().unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (listing, mesh) = runtime.block_on(async {
        let listing = list_once(&cluster, asked).await;
        let mesh = if listing.is_ok() { mesh_values(&cluster).await } else { Ok((Value::Null, Value::Null)) };
        (listing, mesh)
    });
    let listing = listing.map_err(|reason| refusal(without_path(&reason, path)))?;
    if listing.listed == 0
        && listing.unlisted.iter().all(|unlisted| unlisted.only.is_none())
        && let Some(first) = listing.unlisted.first()
    {
        return Err(refusal(format!("nothing may be listed: {}: {}", first.resource, first.reason)).into());
    }
    for unlisted in &listing.unlisted {
        complain(&refusal(told(unlisted)).to_string());
    }
    let mesh = mesh.and_then(|(config, networks)| {
        Mesh::from_values(&config, &networks, domain, cluster_id)
            .map_err(|e| format!("mesh settings of the cluster: {e}"))
    });
    let mesh = mesh.inspect_err(|reason| complain(&refusal(format!("{reason}; the defaults count")).to_string())).ok();
    let namespace = asked.map(|name| if name.is_empty() { listing.namespace.clone() } else { name.to_string() });
    let mut live = decoded(listing, files, &format!("kube:{cluster_id}"));
    (live.mesh, live.namespace) = (mesh, namespace);
    Ok(Some(live))
}

/// The reason, which names the kubeconfig by itself where it is at fault.
fn without_path(reason: &str, path: &std::path::Path) -> String {
    let named = format!("kubeconfig {}: ", path.display());
    reason.strip_prefix(&named).unwrap_or(reason).replace('\n', " ")
}

fn told(unlisted: &Unlisted) -> String {
    let Unlisted { resource, reason, only } = unlisted;
    match only {
        Some(namespace) => format!("{resource} are read of the namespace {namespace} alone: {reason}"),
        None => format!("{resource} are not analysed: {reason}"),
    }
}

/// Reads the objects by their kinds, without those that a file has.
fn decoded(listing: Listing, files: &[Object], source: &str) -> Live {
    let replaced: BTreeSet<_> = files.iter().map(identity).collect();
    let mut live = Live::default();
    for value in listing.objects {
        let Some((object, refused)) = read_object(value, source) else { continue };
        if replaced.contains(&identity(&object)) {
            continue;
        }
        match refused {
            Some(reason) => live.refused.push(Refused {
                file: String::new(),
                line: 0,
                column: 0,
                kind: object.kind.clone(),
                namespace: object.namespace.to_string(),
                name: object.name.to_string(),
                reason,
            }),
            None => live.configs.extend(object.config().cloned()),
        }
        live.objects.push(object);
    }
    live
}

fn identity(object: &Object) -> (&str, &str, Arc<str>, Arc<str>) {
    (&object.group, &object.kind, object.namespace.clone(), object.name.clone())
}

/// An object, and the reason for which it is refused.
fn read_object(value: Value, source: &str) -> Option<(Object, Option<String>)> {
    let is_read = |value: &Value| {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        crate::model::Kind::parse(text("apiVersion"), text("kind")).is_some()
    };
    if !is_read(&value) {
        return Some((Object::unread(value, source.to_string())?, None));
    }
    let origin = Origin { source: source.into(), ..Origin::default() };
    let read = catch(|| {
        let (config, mut warnings) = with_warnings(&value, origin).map_err(|e| e.to_string())?;
        let Validation { errors, warnings: more } = validate(&config);
        if config.kind().class() == KindClass::Kubernetes {
            // A newer server has newer fields.
            warnings.clear();
        }
        warnings.extend(more);
        let refused = (!errors.is_empty()).then(|| errors.join("; "));
        Ok::<_, String>((Object::read(Arc::new(config), warnings), refused))
    });
    let reason = match read {
        Ok(Ok(read)) => return Some(read),
        Ok(Err(reason)) => reason,
        Err(_) => "reading it failed inside pilothouse; please report this object".to_string(),
    };
    Some((Object::unread(value, source.to_string())?, Some(reason)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(namespace: &str, http: &Value) -> Value {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": "a", "namespace": namespace}, "spec": {"hosts": ["a.example"], "http": http}})
    }

    #[test]
    fn a_file_replaces_an_object_of_the_cluster_and_a_bad_one_is_named() {
        let good = json!([{"route": [{"destination": {"host": "a.example"}}]}]);
        let file = Object::unread(service("shop", &good), "x.yaml:1".to_string()).unwrap();
        let deployment =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}});
        let objects = vec![service("shop", &json!([])), service("ours", &json!([])), service("n", &good), deployment];
        let live = decoded(Listing { objects, ..Listing::default() }, &[file], "kube:c");
        assert_eq!(live.objects.iter().map(Object::full_name).collect::<Vec<_>>(), ["ours/a", "n/a", "n/d"]);
        assert_eq!(live.refused.iter().map(|r| &*r.namespace).collect::<Vec<_>>(), ["ours"]);
        assert_eq!(live.configs.len(), 1);
        let live = Live { namespace: Some("n".to_string()), ..live };
        assert!(live.shows("n") && live.shows("") && !live.shows("ours"));
    }
}
