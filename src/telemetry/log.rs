//! Structured logs on standard error.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Installs the log. `level` is a level (`info`) or a list of `target=level`. A second call changes nothing.
///
/// # Errors
/// A text, when `level` is neither.
pub fn init_log(level: &str, format: LogFormat) -> Result<(), String> {
    let mut filter = EnvFilter::try_new(level).map_err(|e| format!("log level {level:?}: {e}"))?;
    if !level.contains("kube") {
        // It writes an error for each refused connection; our sources say so themselves, once.
        for quiet in ["kube_client=off", "kube_runtime=off"] {
            filter = filter.add_directive(quiet.parse().map_err(|e| format!("log directive {quiet}: {e}"))?);
        }
    }
    let registry = tracing_subscriber::registry().with(filter);
    let _ = match format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(colours)).try_init()
        }
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
        }
    };
    Ok(())
}
