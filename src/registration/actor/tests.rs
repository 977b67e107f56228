//! The events that wake the actor.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{
    registration::{Limits, MemoryEntries},
    runtime::{RestartBudget, Shutdown},
};

/// An actor without connections, and the senders of its inputs.
struct Stage {
    configs: watch::Sender<Arc<ConfigSnapshot>>,
    gone: watch::Sender<Gone>,
    publications: watch::Sender<u64>,
    /// The number of looks at the objects in force.
    looks: Arc<AtomicUsize>,
    _handle: RegistrationHandle,
}

impl Stage {
    fn new() -> Self {
        let stops = Shutdown::default();
        let supervision =
            Supervision::new(RestartBudget::new(3, stops), Duration::from_millis(10), Duration::from_millis(20));
        let (configs, gone, publications) = (watch::Sender::default(), watch::Sender::default(), watch::Sender::new(0));
        let looks = Arc::<AtomicUsize>::default();
        let (counted, published) = (looks.clone(), publications.subscribe());
        let setup = Setup {
            me: "me".into(),
            features: Arc::default(),
            configs: configs.subscribe(),
            publications: publications.subscribe(),
            is_complete: Arc::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                *published.borrow() > 0
            }),
            memory: MemoryEntries::default(),
            cluster: None,
            limits: Limits::default(),
            gone: gone.subscribe(),
        };
        let handle = RegistrationActor::start(&supervision, setup);
        Self { configs, gone, publications, looks, _handle: handle }
    }

    async fn looked_after(&self, before: usize) -> usize {
        looked_after(&self.looks, before).await
    }
}

/// The number of looks, once there are more than `before`.
async fn looked_after(looks: &AtomicUsize, before: usize) -> usize {
    let look = async {
        while looks.load(Ordering::Relaxed) <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.expect("the actor was not woken");
    looks.load(Ordering::Relaxed)
}

#[actix::test]
async fn each_input_wakes_the_actor_and_no_clock_does_while_nothing_is_due() {
    let stage = Stage::new();
    stage.publications.send_replace(1);
    let complete = stage.looked_after(0).await;
    // Four times the pause: a look for its own sake would fall in here.
    tokio::time::sleep(4 * PAUSE).await;
    assert_eq!(stage.looks.load(Ordering::Relaxed), complete, "nothing has happened");
    stage.configs.send_replace(Arc::default());
    let objects = stage.looked_after(complete).await;
    stage.gone.send_replace(Arc::new(["other".to_string()].into()));
    let ended = stage.looked_after(objects).await;
    stage.publications.send_replace(2);
    tokio::time::sleep(4 * PAUSE).await;
    assert_eq!(stage.looks.load(Ordering::Relaxed), ended, "a publication alone changes nothing");
    // Without a cluster nobody tells of other processes.
    let Stage { gone, configs, looks, _handle, .. } = stage;
    drop(gone);
    configs.send_replace(Arc::default());
    looked_after(&looks, ended).await;
}
