//! Which remote clusters a set of Secrets names. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::config::Kubeconfig;

use crate::{
    settings::KubeconfigText,
    sources::{Refused, SourceId},
};

/// The kubeconfigs of one Secret or file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct NamedClusters {
    /// When it was created, as text that sorts by time.
    pub(super) created: String,
    /// Kubeconfigs by cluster id; `None` for a value that is no text.
    pub(super) clusters: BTreeMap<String, Option<Arc<str>>>,
}

/// A remote cluster that is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCluster {
    /// The Secret (`NAMESPACE/NAME`) or the file that names it.
    pub by: Arc<str>,
    /// The kubeconfig; `None` for one that is refused: the last good one stays in force.
    pub kubeconfig: Option<KubeconfigText>,
}

/// The objects that name remote clusters, as refusals tell of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedBy<'a> {
    /// The source that reads them.
    pub(super) source: &'a SourceId,
    /// Their kind: a Secret or a file.
    pub(super) kind: &'a str,
    /// Their namespace; empty for files.
    pub(super) namespace: &'a str,
}

/// Remote clusters by id.
pub type Wanted = BTreeMap<String, WantedCluster>;

/// The clusters to follow, and the refused parts of the Secrets. A cluster that several Secrets name is the
/// oldest one's. `main` and `taken` are ids that no Secret may name, `allowed` are options that a kubeconfig may have
/// although they read files or run programs.
pub(super) fn wanted(
    secrets: &BTreeMap<String, NamedClusters>,
    main: &str,
    taken: &[String],
    allowed: &BTreeSet<String>,
    NamedBy { source, kind, namespace }: NamedBy<'_>,
) -> (Wanted, Vec<Refused>) {
    let mut by_age: Vec<(&String, &NamedClusters)> = secrets.iter().collect();
    by_age.sort_by(|a, b| (&a.1.created, a.0).cmp(&(&b.1.created, b.0)));
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut wanted, mut refused) = (Wanted::new(), Vec::new());
    for (secret, named) in by_age {
        for (id, text) in &named.clusters {
            let mut refuse = |reason: String| {
                refused.push(Refused {
                    file: source.to_string(),
                    line: 0,
                    column: 0,
                    kind: kind.to_string(),
                    namespace: namespace.to_string(),
                    name: secret.clone(),
                    reason: format!("cluster {id}: {reason}"),
                });
            };
            if id == main {
                refuse("this is the main cluster's id".to_string());
            } else if taken.contains(id) {
                refuse("it is named on the command line".to_string());
            } else if let Some(owner) = owners.get(id.as_str()) {
                refuse(format!("{kind} {owner} names it already"));
            } else {
                owners.insert(id, secret);
                let checked =
                    text.as_ref().ok_or_else(|| "not a text".to_string()).and_then(|t| check(t, allowed).map(|()| t));
                let text = checked.map(|t| KubeconfigText(t.clone())).map_err(&mut refuse).ok();
                let by =
                    if namespace.is_empty() { secret.as_str().into() } else { format!("{namespace}/{secret}").into() };
                wanted.insert(id.clone(), WantedCluster { by, kubeconfig: text });
            }
        }
    }
    (wanted, refused)
}

/// A kubeconfig from elsewhere may neither run programs nor read files of this machine (Istio's `sanitizeKubeConfig`),
/// unless the option is allowed by name (`PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS`).
/// Parsers quote their input, which may be a credential: reasons are our own.
fn check(text: &str, allowed: &BTreeSet<String>) -> Result<(), String> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| "not a kubeconfig".to_string())?;
    let current = kubeconfig.current_context.as_deref().unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|c| c.name == current).and_then(|c| c.context.as_ref());
    let context = context.ok_or("it has no current context")?;
    let server = kubeconfig.clusters.iter().find(|c| c.name == context.cluster);
    if server.and_then(|c| c.cluster.as_ref()).is_none_or(|c| c.server.is_none()) {
        return Err("its current context leads to no server".to_string());
    }
    let authorities = kubeconfig.clusters.iter().filter_map(|c| c.cluster.as_ref());
    let mut options: Vec<(&str, &str)> = authorities
        .filter(|c| c.certificate_authority.is_some())
        .map(|_| ("certificate-authority", "certificateAuthority"))
        .collect();
    for user in kubeconfig.auth_infos.iter().filter_map(|u| u.auth_info.as_ref()) {
        options.extend(user.exec.as_ref().map(|_| ("exec", "exec")));
        options.extend(user.auth_provider.as_ref().map(|p| ("auth-provider", p.name.as_str())));
        options.extend(user.client_key.as_ref().map(|_| ("client-key", "clientKey")));
        options.extend(user.client_certificate.as_ref().map(|_| ("client-certificate", "clientCertificate")));
        options.extend(user.token_file.as_ref().map(|_| ("tokenFile", "tokenFile")));
    }
    if let Some((field, _)) = options.into_iter().find(|(_, name)| !allowed.contains(*name)) {
        return Err(format!("{field} is not allowed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str) -> Option<Arc<str>> {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
             clusters: [{{name: s, cluster: {{server: 'https://x'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        Some(text.into())
    }

    fn secret(created: &str, clusters: &[(&str, Option<Arc<str>>)]) -> NamedClusters {
        let clusters = clusters.iter().map(|(id, text)| ((*id).to_string(), text.clone())).collect();
        NamedClusters { created: created.to_string(), clusters }
    }

    #[test]
    fn the_oldest_secret_names_a_cluster_and_a_bad_one_stops_no_other() {
        let good = || kubeconfig("{token: hunter2}");
        let server = "server: 'https://x'";
        let with_authority =
            good().map(|text| text.replace(server, &format!("{server}, certificate-authority: /dev/zero")).into());
        let secrets = BTreeMap::from([
            ("b".to_string(), secret("2024", &[("west", good()), ("main", good()), ("flagged", good())])),
            ("a".to_string(), secret("2025", &[("west", kubeconfig("{token: other}")), ("east", good())])),
            ("c".to_string(), secret("2026", &[("odd", Some("hunter2: [".into())), ("binary", None)])),
            ("d".to_string(), secret("2026", &[("exec", kubeconfig("{exec: {command: rm}}"))])),
            ("e".to_string(), secret("2026", &[("file", kubeconfig("{tokenFile: /etc/passwd}"))])),
            ("f".to_string(), secret("2026", &[("authority", with_authority)])),
        ]);
        let taken = ["flagged".to_string()];
        let of = |allowed: &BTreeSet<String>| {
            wanted(
                &secrets,
                "main",
                &taken,
                allowed,
                NamedBy { source: &"test".into(), kind: "Secret", namespace: "istio-system" },
            )
        };
        let (wanted, refused) = of(&BTreeSet::new());
        let followed: Vec<&str> =
            wanted.iter().filter(|(_, k)| k.kubeconfig.is_some()).map(|(id, _)| id.as_str()).collect();
        assert_eq!(followed, ["east", "west"]);
        assert_eq!(wanted["west"].kubeconfig, good().map(KubeconfigText), "the older Secret's");
        let reasons: Vec<String> = refused.iter().map(|r| format!("{} {}", r.name, r.reason)).collect();
        assert_eq!(
            reasons,
            [
                "b cluster flagged: it is named on the command line",
                "b cluster main: this is the main cluster's id",
                "a cluster west: Secret b names it already",
                "c cluster binary: not a text",
                "c cluster odd: not a kubeconfig",
                "d cluster exec: exec is not allowed",
                "e cluster file: tokenFile is not allowed",
                "f cluster authority: certificate-authority is not allowed",
            ]
        );
        assert!(!format!("{wanted:?}").contains("hunter2"));
        // Options that the operator allows by name are taken.
        let allowed = ["exec", "tokenFile", "certificateAuthority"].map(str::to_string);
        let (wanted, refused) = of(&BTreeSet::from(allowed));
        assert_eq!(wanted.values().filter(|k| k.kubeconfig.is_some()).count(), 5);
        assert_eq!(refused.len(), 5);
    }
}
