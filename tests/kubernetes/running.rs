//! A whole process on clusters.

use std::time::Duration;

use pilothouse::{
    app::{self, Running},
    runtime::Shutdown,
    settings::{AdminSettings, ListenAddress, Settings, SourceSettings, XdsSettings},
};

use crate::stage::DEADLINE;

/// Settings of a process with these sources, which listens at free ports.
pub fn settings(sources: SourceSettings) -> Settings {
    Settings {
        sources,
        xds: XdsSettings {
            grpc_address: ListenAddress::loopback(0),
            trust_loopback: Some(true),
            ..XdsSettings::default()
        },
        admin: AdminSettings {
            http_address: ListenAddress::loopback(0),
            monitoring_address: None,
            ..AdminSettings::default()
        },
        ..Settings::default()
    }
}

/// Starts the process.
pub async fn run(settings: Settings) -> Running {
    app::build(settings, Shutdown::default()).await.unwrap()
}

/// Stops it.
pub async fn end(running: Running) {
    running.shutdown.begin();
    tokio::time::timeout(DEADLINE, running.wait()).await.unwrap().unwrap();
}

/// Waits for a state of the process, described for the failure.
pub async fn until(running: &Running, state: &str, holds: impl Fn(&Running) -> bool) {
    let wait = async {
        while !holds(running) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    let reports: Vec<_> = running.all_sources.all().iter().map(|s| s.board.read()).collect();
    assert!(waited.is_ok(), "{state} does not come\n{reports:#?}");
}
