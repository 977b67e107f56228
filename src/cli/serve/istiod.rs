//! Flags of istiod that its charts and operators pass: signs of life on connections, and flags with nothing to act on here, each
//! of which is named once at the start.

use std::time::Duration;

use clap::Args;

use super::{super::from_env, duration};

/// Flags of istiod.
#[derive(Debug, Clone, Args)]
pub struct IstiodArgs {
    /// A connection without a sign of life for this long is asked for one (Istio's GRPC_KEEPALIVE_INTERVAL).
    #[arg(long, alias = "keepaliveInterval", env = "PILOTHOUSE_KEEPALIVE_INTERVAL", default_value_t = from_env("GRPC_KEEPALIVE_INTERVAL", "30s"), value_name = "DURATION")]
    pub keepalive_interval: String,
    /// A connection that gives no sign of life for this long after that is closed (Istio's GRPC_KEEPALIVE_TIMEOUT).
    #[arg(long, alias = "keepaliveTimeout", env = "PILOTHOUSE_KEEPALIVE_TIMEOUT", default_value_t = from_env("GRPC_KEEPALIVE_TIMEOUT", "10s"), value_name = "DURATION")]
    pub keepalive_timeout: String,
    /// No effect: there are no webhooks.
    #[arg(long, alias = "httpsAddr", env = "PILOTHOUSE_HTTPS_ADDR", hide = true)]
    pub https_addr: Option<String>,
    /// No effect: requests to the API server are paced by its answers.
    #[arg(long, alias = "kubernetesApiQPS", env = "PILOTHOUSE_KUBERNETES_API_QPS", hide = true)]
    pub kubernetes_api_qps: Option<f32>,
    /// No effect, as the one before.
    #[arg(long, alias = "kubernetesApiBurst", env = "PILOTHOUSE_KUBERNETES_API_BURST", hide = true)]
    pub kubernetes_api_burst: Option<u32>,
    /// No effect: there are no profiles of Go.
    #[arg(long, env = "PILOTHOUSE_PROFILE", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub profile: Option<bool>,
    /// No effect: the log goes to standard error.
    #[arg(long, alias = "log_target", env = "PILOTHOUSE_LOG_TARGET", hide = true)]
    pub log_target: Vec<String>,
    /// No effect: lines have no stacks.
    #[arg(long, alias = "log_stacktrace_level", env = "PILOTHOUSE_LOG_STACKTRACE_LEVEL", hide = true)]
    pub log_stacktrace_level: Option<String>,
    /// No effect: lines name their module.
    #[arg(long, alias = "log_caller", env = "PILOTHOUSE_LOG_CALLER", hide = true)]
    pub log_caller: Option<String>,
    /// No effect: the pages at --http-addr are the way in.
    #[arg(long, alias = "ctrlz_port", env = "PILOTHOUSE_CTRLZ_PORT", hide = true)]
    pub ctrlz_port: Option<u16>,
    /// No effect, as the one before.
    #[arg(long, alias = "ctrlz_address", env = "PILOTHOUSE_CTRLZ_ADDRESS", hide = true)]
    pub ctrlz_address: Option<String>,
    /// No effect: Secrets of remote clusters are in the namespace of --namespace.
    #[arg(long, alias = "clusterRegistriesNamespace", env = "PILOTHOUSE_CLUSTER_REGISTRIES_NAMESPACE", hide = true)]
    pub cluster_registries_namespace: Option<String>,
    /// No effect: nodes are not untainted.
    #[arg(long, alias = "cniNamespace", env = "PILOTHOUSE_CNI_NAMESPACE", hide = true)]
    pub cni_namespace: Option<String>,
}

impl IstiodArgs {
    /// The interval at which a connection is asked for a sign of life, and the time that it has for one.
    pub(super) fn keepalive(&self) -> anyhow::Result<(Duration, Duration)> {
        let read = |flag: &str, text: &str| {
            let time = duration(text).map_err(|error| anyhow::anyhow!("{flag}: {error}"))?;
            anyhow::ensure!(!time.is_zero(), "{flag}: it must be longer than {text}");
            Ok(time)
        };
        Ok((
            read("--keepalive-interval", &self.keepalive_interval)?,
            read("--keepalive-timeout", &self.keepalive_timeout)?,
        ))
    }

    /// Each flag that is given and changes nothing, with the reason.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let paced = "requests to the API server are paced by its answers";
        let pages = "the pages at --http-addr are the way in";
        let elsewhere = self.log_target.iter().any(|target| target != "stderr");
        let flags = [
            ("--httpsAddr", self.https_addr.as_ref().is_some_and(|a| !a.is_empty()), "there are no webhooks"),
            ("--kubernetesApiQPS", self.kubernetes_api_qps.is_some(), paced),
            ("--kubernetesApiBurst", self.kubernetes_api_burst.is_some(), paced),
            ("--profile", self.profile == Some(true), "there are no profiles of Go"),
            ("--log_target", elsewhere, "the log goes to standard error"),
            ("--log_stacktrace_level", self.log_stacktrace_level.is_some(), "lines have no stacks"),
            ("--log_caller", self.log_caller.is_some(), "lines name their module"),
            ("--ctrlz_port", self.ctrlz_port.is_some(), pages),
            ("--ctrlz_address", self.ctrlz_address.is_some(), pages),
            (
                "--clusterRegistriesNamespace",
                self.cluster_registries_namespace.is_some(),
                "Secrets of remote clusters are in the namespace of --namespace",
            ),
            ("--cniNamespace", self.cni_namespace.is_some(), "nodes are not untainted"),
        ];
        let given = flags.into_iter().filter(|(_, given, _)| *given);
        given.map(|(flag, _, why)| format!("{flag} has no effect: {why}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        istiod: IstiodArgs,
    }

    fn parsed(more: &[&str]) -> IstiodArgs {
        Alone::try_parse_from(["pilothouse"].iter().chain(more)).unwrap().istiod
    }

    #[test]
    fn flags_without_meaning_are_taken_and_each_is_named_once() {
        assert_eq!(parsed(&[]).without_effect(), [""; 0]);
        let all = [
            "--httpsAddr=:15017",
            "--kubernetesApiQPS=80.5",
            "--kubernetesApiBurst=160",
            "--profile",
            "--log_target",
            "stdout",
            "--log_stacktrace_level=default:none",
            "--log_caller=ads",
            "--ctrlz_port=9876",
            "--ctrlz_address=localhost",
            "--clusterRegistriesNamespace=istio-system",
            "--cniNamespace=kube-system",
        ];
        let named = parsed(&all).without_effect();
        assert_eq!(named.len(), 11, "{named:?}");
        for flag in all.iter().filter(|flag| flag.starts_with("--")) {
            let flag = flag.split('=').next().unwrap();
            assert_eq!(
                named.iter().filter(|text| text.starts_with(&format!("{flag} has no effect: "))).count(),
                1,
                "{flag}"
            );
        }
        assert_eq!(parsed(&["--profile=false", "--log_target=stderr", "--httpsAddr="]).without_effect(), [""; 0]);
    }

    #[test]
    fn keepalive_is_in_force() {
        let args = parsed(&["--keepaliveInterval=1m", "--keepaliveTimeout", "3s"]);
        assert_eq!(args.keepalive().unwrap(), (Duration::from_secs(60), Duration::from_secs(3)));
        for wrong in ["0s", "soon"] {
            let error = parsed(&["--keepaliveInterval", wrong]).keepalive().unwrap_err().to_string();
            assert!(error.starts_with("--keepalive-interval: ") && error.contains(wrong), "{error}");
        }
    }
}
