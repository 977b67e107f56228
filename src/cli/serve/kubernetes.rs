//! Arguments on the Kubernetes cluster to read.

use std::{env, path::PathBuf, time::Duration};

use clap::Args;

use super::super::from_env;
use crate::{
    model::{Features, Kind},
    proto::go_duration,
    settings::{KubeAccess, KubeSettings, LeaseSettings, RemoteSettings, left_out},
};

/// The Kubernetes cluster to read, and the parts of it.
#[derive(Debug, Clone, Default, Args)]
pub struct KubeArgs {
    /// Read config, services and pods from the cluster of this kubeconfig, after the folders. Inside a cluster, without
    /// --config-dir, that cluster is read; or, as by istiod, the one of the file that KUBECONFIG names, where there is one.
    #[arg(long, env = "PILOTHOUSE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one when this is not given.
    #[arg(long, env = "PILOTHOUSE_KUBE_CONTEXT", value_name = "NAME", requires = "kubeconfig")]
    pub kube_context: Option<String>,
    /// Folder with the token and the CA of the service account, inside a cluster.
    #[arg(
        long,
        env = "PILOTHOUSE_SERVICE_ACCOUNT_DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount",
        value_name = "DIR"
    )]
    pub service_account_dir: PathBuf,
    /// Read these namespaces only.
    #[arg(
        long,
        alias = "appNamespace",
        env = "PILOTHOUSE_WATCH_NAMESPACE",
        value_name = "NAMESPACE",
        value_delimiter = ','
    )]
    pub watch_namespace: Vec<String>,
    /// Our revision: objects that name another one in the label istio.io/rev are not read.
    #[arg(long, env = "PILOTHOUSE_REVISION", default_value_t = from_env("REVISION", ""), value_name = "NAME")]
    pub revision: String,
    /// Namespace of the ConfigMap with the mesh settings (`istio`, or `istio-REVISION`).
    #[arg(
        long,
        short = 'n',
        env = "PILOTHOUSE_NAMESPACE",
        default_value_t = from_env("POD_NAMESPACE", "istio-system"),
        value_name = "NAMESPACE"
    )]
    pub namespace: String,
    /// Write statuses back to the cluster: true or false; inside a cluster true by default, with a
    /// kubeconfig false.
    #[arg(long, env = "PILOTHOUSE_WRITE_STATUS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub write_status: Option<bool>,
    /// Duration of the lease for writing statuses without a renewal by its holder; another process writes after that. A
    /// process that stops reporting is counted for twice this time, and the workloads that registered with it are kept.
    #[arg(long, env = "PILOTHOUSE_LEASE_DURATION", default_value = "30s", value_parser = lease, value_name = "DURATION")]
    pub lease_duration: Option<LeaseSettings>,
    /// Service registries: without `Kubernetes`, only config is read from the cluster.
    #[arg(
        long,
        env = "PILOTHOUSE_REGISTRIES",
        default_value = "Kubernetes",
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = registry
    )]
    pub registries: Vec<String>,
}

/// The lease of this duration, renewed and watched as Istio does it: half of it, and a quarter.
fn lease(text: &str) -> Result<LeaseSettings, String> {
    let duration = go_duration(text).filter(|d| d.as_secs() > 0 && d.subsec_nanos() == 0);
    let duration = duration.ok_or_else(|| format!("{text:?} is not a duration of whole seconds such as 30s"))?;
    Ok(LeaseSettings { duration, renew: duration / 2, look: duration / 4 })
}

/// A registry name that Istio knows; `Mock` counts as none.
fn registry(text: &str) -> Result<String, String> {
    match text {
        "" | "Kubernetes" | "Mock" => Ok(text.to_string()),
        _ => Err("Kubernetes is the only one that is read; an empty list reads none".to_string()),
    }
}

/// The file of KUBECONFIG, which Istio's chart always names: it is there where its optional Secret is.
fn mounted(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0))
}

impl KubeArgs {
    /// Discovery of other clusters, and the waiting for them.
    #[must_use]
    pub fn remotes(&self, features: &Features) -> RemoteSettings {
        let mut left_out =
            left_out(&features.ignore_resources, &features.include_resources, features.enable_gateway_api);
        if !features.workload_entry_cross_cluster || !features.enable_k8s_select_workload_entries {
            left_out.insert(Kind::WorkloadEntry);
        }
        let folder = &features.multicluster_kubeconfig_path;
        let here = || KubeAccess::InCluster { account: self.service_account_dir.clone() };
        let allowed = features.insecure_kubeconfig_options.split(',').map(str::trim).filter(|o| !o.is_empty());
        RemoteSettings {
            patience: features.remote_cluster_timeout,
            kubeconfigs: (!folder.is_empty()).then(|| folder.into()),
            secrets_in: (features.local_cluster_secret_watcher && features.external_istiod).then(here),
            allowed: allowed.map(str::to_string).collect(),
            left_out,
        }
    }

    /// The cluster, if there is one. `alone`: no folder is read.
    #[must_use]
    pub fn settings(&self, alone: bool, deletion_hold: Duration, features: &Features) -> Option<KubeSettings> {
        let access = match &self.kubeconfig {
            Some(path) => KubeAccess::Kubeconfig { path: path.clone(), context: self.kube_context.clone() },
            None if alone && env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                match mounted(env::var_os("KUBECONFIG").map(PathBuf::from)) {
                    Some(path) => KubeAccess::Kubeconfig { path, context: None },
                    None => KubeAccess::InCluster { account: self.service_account_dir.clone() },
                }
            }
            None => return None,
        };
        let write_status = self.write_status.unwrap_or(self.kubeconfig.is_none());
        let of_flag = self.watch_namespace.iter().filter(|n| !n.is_empty());
        let mut watch_namespaces: Vec<String> = of_flag.cloned().collect();
        if watch_namespaces.is_empty() && !features.informer_watch_namespace.is_empty() {
            watch_namespaces.push(features.informer_watch_namespace.clone());
        }
        Some(KubeSettings {
            write_status,
            lease: self.lease_duration.unwrap_or_default(),
            registry: self.registries.iter().any(|r| r == "Kubernetes"),
            watch_namespaces,
            left_out: left_out(&features.ignore_resources, &features.include_resources, features.enable_gateway_api),
            shared_mesh: features.shared_mesh_config.clone(),
            revision: self.revision.clone(),
            namespace: self.namespace.clone(),
            deletion_hold,
            ..KubeSettings::new(access)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        kube: KubeArgs,
    }

    fn parsed(more: &[&str]) -> KubeArgs {
        let args = ["pilothouse", "--kubeconfig", "here"].into_iter().chain(more.iter().copied());
        Alone::try_parse_from(args).unwrap().kube
    }

    #[test]
    fn a_kubeconfig_that_is_not_mounted_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        assert_eq!((mounted(None), mounted(Some(path.clone())), mounted(Some(dir.path().into()))), (None, None, None));
        std::fs::write(&path, "").unwrap();
        assert_eq!(mounted(Some(path.clone())), None);
        std::fs::write(&path, "kind: Config").unwrap();
        assert_eq!(mounted(Some(path.clone())), Some(path));
    }

    #[test]
    fn istios_flags_reach_the_settings_of_a_cluster() {
        let mut features = Features::default();
        for (name, value) in [
            ("ISTIO_WATCH_NAMESPACE", "shop"),
            ("PILOT_REMOTE_CLUSTER_TIMEOUT", "7s"),
            ("PILOT_ENABLE_GATEWAY_API", "false"),
            ("SHARED_MESH_CONFIG", "shared"),
        ] {
            assert_eq!(features.set(name, value), Ok(true));
        }
        let of = |args: &[&str]| parsed(args).settings(true, Duration::ZERO, &features).unwrap();
        let settings = of(&[]);
        assert_eq!(settings.watch_namespaces, ["shop"]);
        assert_eq!(settings.shared_mesh, "shared");
        assert!(settings.left_out.contains(&Kind::HTTPRoute) && !settings.left_out.contains(&Kind::VirtualService));
        assert_eq!(of(&["--watch-namespace", "a,b"]).watch_namespaces, ["a", "b"], "the flag of the command line wins");
        assert_eq!(parsed(&[]).remotes(&features).patience, Duration::from_secs(7));
        assert_eq!(parsed(&[]).remotes(&Features::default()).patience, Duration::from_secs(30));
    }

    #[test]
    fn istios_flags_reach_the_settings_of_remote_clusters() {
        let remotes = |flags: &[(&str, &str)]| {
            let mut features = Features::default();
            for (name, value) in flags {
                assert_eq!(features.set(name, value), Ok(true));
            }
            parsed(&["--service-account-dir", "account"]).remotes(&features)
        };
        let plain = remotes(&[]);
        assert!(plain.kubeconfigs.is_none() && plain.secrets_in.is_none() && plain.allowed.is_empty());
        let folder = remotes(&[("PILOT_MULTICLUSTER_KUBECONFIG_PATH", "/etc/remotes")]);
        assert_eq!(folder.kubeconfigs.as_deref(), Some(std::path::Path::new("/etc/remotes")));
        let allowed = remotes(&[("PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS", "exec, tokenFile,,")]).allowed;
        assert_eq!(allowed.into_iter().collect::<Vec<_>>(), ["exec", "tokenFile"]);
        // As in Istio, the Secrets are looked for here only where the control plane is outside of the cluster that it serves.
        let (local, external) = (("LOCAL_CLUSTER_SECRET_WATCHER", "true"), ("EXTERNAL_ISTIOD", "true"));
        assert!(remotes(&[local]).secrets_in.is_none() && remotes(&[external]).secrets_in.is_none());
        let here = remotes(&[local, external]).secrets_in;
        let is_here = |access: &KubeAccess| matches!(access, KubeAccess::InCluster { account } if *account == std::path::Path::new("account"));
        assert!(here.as_ref().is_some_and(is_here), "{here:?}");
    }
}
