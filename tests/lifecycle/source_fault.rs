//! A source panics, ends, fails, or hangs: it is run again, and its last content stays in force meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use pilothouse::{
    app,
    model::{Config, Origin, decode},
    runtime::Shutdown,
    sources::{Change, Source, SourceBatch, SourceId, SourcePort},
};
use serde_json::json;
use tokio::sync::Notify;

use crate::{
    proxy::Proxies,
    stage::{end, restarted, settings, until},
};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Panic,
    End,
    Fail,
    Hang,
}

/// Each run delivers one object more than the last, waits for the word, and then has its fault; the last one works.
struct Faulty {
    faults: Vec<Fault>,
    runs: AtomicUsize,
    go: Arc<Notify>,
}

fn object(number: usize) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": format!("o{number}"), "namespace": "shop"},
        "spec": {"hosts": [format!("o{number}.example")], "resolution": "DNS",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]},
    });
    Arc::new(decode::from_value(&document, Origin::default()).unwrap())
}

impl Source for Faulty {
    fn id(&self) -> SourceId {
        "test".into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let (fault, go) = (self.faults.get(run).copied(), self.go.clone());
        Box::pin(async move {
            let full = Change::Full((0..=run).map(object).collect());
            port.sink.apply(SourceBatch { source: "test".into(), change: full }).await?;
            port.board.write(|r| r.state = pilothouse::sources::SourceState::Synced);
            loop {
                port.board.beat();
                tokio::select! {
                    () = port.stop.cancelled() => return Ok(()),
                    () = go.notified() => break,
                    () = tokio::time::sleep(Duration::from_millis(20)) => {}
                }
            }
            match fault {
                Some(Fault::Panic) => panic!("as the test wants"),
                Some(Fault::Fail) => anyhow::bail!("as the test wants"),
                Some(Fault::Hang) => std::future::pending().await,
                Some(Fault::End) | None => Ok(()),
            }
        })
    }
}

#[actix::test]
async fn it_is_run_again_and_no_proxy_loses_anything() {
    let (faults, go) = ([Fault::Panic, Fault::End, Fault::Fail, Fault::Hang], Arc::new(Notify::new()));
    let source = Faulty { faults: faults.to_vec(), runs: AtomicUsize::new(0), go: go.clone() };
    let mut quick = settings(&[], None);
    (quick.sources.silence, quick.sources.rescan) = (Duration::from_millis(400), Duration::from_millis(50));
    let running = app::build_with(quick, vec![Arc::new(source)], Shutdown::default()).await.unwrap();
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let mut proxies = Proxies::connect(running.addresses.grpc).await;
    proxies.until("o0.example").await;
    for (number, fault) in (1..).zip(faults) {
        go.notify_one();
        restarted(&running, "source test", number).await;
        let report = running.sources[0].board.read();
        assert!(!report.last_error.is_empty(), "{fault:?} is not told");
        assert!(running.registry.snapshot().services.len() >= number as usize, "{fault:?} deleted something");
        proxies.until(&format!("o{number}.example")).await;
    }
    end(running).await;
}
