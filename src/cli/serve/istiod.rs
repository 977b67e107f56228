//! Flags of istiod that its chart or its users pass and that have nothing to act on here: each is named once at the start, and
//! none ends the program.

use clap::Args;

/// The flags, with any value.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Without effect, accepted for istiod's charts")]
pub struct IstiodArgs {
    /// Address of istiod's webhooks, which are not served here.
    #[arg(long, alias = "httpsAddr", env = "PILOTHOUSE_HTTPS_ADDR", hide = true)]
    pub https_addr: Option<String>,
    /// Requests a second to Kubernetes; watches here need few.
    #[arg(long, alias = "kubernetesApiQPS", env = "PILOTHOUSE_KUBERNETES_API_QPS", hide = true)]
    pub kubernetes_api_qps: Option<f32>,
    /// The same in bursts.
    #[arg(long, alias = "kubernetesApiBurst", env = "PILOTHOUSE_KUBERNETES_API_BURST", hide = true)]
    pub kubernetes_api_burst: Option<u32>,
    /// Profiles of Go's runtime.
    #[arg(long, env = "PILOTHOUSE_PROFILE", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub profile: Option<bool>,
    /// Namespace of istiod's CNI.
    #[arg(long, alias = "cniNamespace", env = "PILOTHOUSE_CNI_NAMESPACE", hide = true)]
    pub cni_namespace: Option<String>,
    /// Address of ControlZ; its scopes are at --http-addr, below /scopej.
    #[arg(long, alias = "ctrlz_address", env = "PILOTHOUSE_CTRLZ_ADDRESS", hide = true)]
    pub ctrlz_address: Option<String>,
    /// Port of ControlZ.
    #[arg(long, alias = "ctrlz_port", env = "PILOTHOUSE_CTRLZ_PORT", hide = true)]
    pub ctrlz_port: Option<u16>,
    /// Scopes whose lines name their callers; every line here names its module.
    #[arg(long, alias = "log_caller", env = "PILOTHOUSE_LOG_CALLER", hide = true)]
    pub log_caller: Option<String>,
    /// Scopes whose lines have stack traces.
    #[arg(long, alias = "log_stacktrace_level", env = "PILOTHOUSE_LOG_STACKTRACE_LEVEL", hide = true)]
    pub log_stacktrace_level: Option<String>,
    /// Files of the log, which goes to standard error.
    #[arg(long, alias = "log_target", env = "PILOTHOUSE_LOG_TARGET", hide = true)]
    pub log_target: Vec<String>,
}

impl IstiodArgs {
    /// The flags that were given, in istiod's spelling.
    #[must_use]
    pub fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("--httpsAddr", self.https_addr.is_some()),
            ("--kubernetesApiQPS", self.kubernetes_api_qps.is_some()),
            ("--kubernetesApiBurst", self.kubernetes_api_burst.is_some()),
            ("--profile", self.profile.is_some()),
            ("--cniNamespace", self.cni_namespace.is_some()),
            ("--ctrlz_address", self.ctrlz_address.is_some()),
            ("--ctrlz_port", self.ctrlz_port.is_some()),
            ("--log_caller", self.log_caller.is_some()),
            ("--log_stacktrace_level", self.log_stacktrace_level.is_some()),
            ("--log_target", !self.log_target.is_empty()),
        ];
        flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }
}
