//! A process that reads a folder, a cluster and another control plane, with a host of each behind one Envoy. They go one after
//! another, then all together, then the process goes too and begins without them: no request fails.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::runtime::Runtime;

use crate::{
    admin::{Admin, server},
    config::gateway_of,
    mesh::{ControlPlane, folder},
    process::{scratch, wait_for},
    server::Server,
    shop::{
        CRDS, HOST, Shop, apply, arguments, until_answered, until_saved, until_saved_is_served, until_stale, until_well,
    },
    traffic::Traffic,
};

const OF_CLUSTER: &str = "cluster.example";
const OF_UPSTREAM: &str = "upstream.example";
const HOSTS: [&str; 3] = [HOST, OF_CLUSTER, OF_UPSTREAM];
/// The names of the sources of each.
const NAMES: [&str; 3] = ["file:", "kube:Kubernetes/", "xds:"];

/// The three of them.
struct Sources {
    runtime: Runtime,
    shop: Shop,
    configs: PathBuf,
    aside: PathBuf,
    cluster: Option<Server>,
    address: String,
    upstream: ControlPlane,
}

impl Sources {
    fn start() -> Option<Self> {
        let runtime = Runtime::new().unwrap();
        let (cluster, admin) = runtime.block_on(server(&CRDS))?;
        let shop = Shop::open();
        runtime.block_on(apply(&admin, &shop.behind_gateways(OF_CLUSTER, "v1")));
        let edge = gateway_of("edge", shop.port);
        let configs = folder(&[("edge.yaml", edge), ("host.yaml", shop.behind_gateways(HOST, "v1"))]);
        let upstream = ControlPlane::start(&[("host.yaml", shop.behind_gateways(OF_UPSTREAM, "v1"))]);
        let (aside, address) = (scratch().join("aside"), cluster.address());
        Some(Self { runtime, shop, configs, aside, cluster: Some(cluster), address, upstream })
    }

    fn go(&mut self, source: usize) {
        match (source, &mut self.cluster) {
            (0, _) => fs::rename(&self.configs, &self.aside).unwrap(),
            (1, Some(cluster)) => self.runtime.block_on(cluster.kill()),
            _ => self.upstream.process.kill(),
        }
    }

    /// Brings one back with its host in this version.
    fn come_back(&mut self, source: usize, version: &str) {
        let objects = self.shop.behind_gateways(HOSTS[source], version);
        match source {
            0 => {
                fs::write(self.aside.join("host.yaml"), objects).unwrap();
                fs::rename(&self.aside, &self.configs).unwrap();
            }
            1 => {
                let cluster = self.runtime.block_on(self.cluster.take().unwrap().restart(&self.address));
                let admin = self.runtime.block_on(Admin::of(&cluster));
                self.runtime.block_on(apply(&admin, &objects));
                self.cluster = Some(cluster);
            }
            _ => {
                self.upstream.write("host.yaml", &objects);
                self.upstream.restart();
            }
        }
    }

    fn until_answered(&self, version: &str) {
        HOSTS.iter().for_each(|host| until_answered(self.shop.port, host, version));
    }
}

#[test]
fn all_sources_go_and_so_does_the_process() {
    let Some(mut sources) = Sources::start() else { return };
    let (state, upstream) = (scratch(), format!("127.0.0.1:{}", sources.upstream.grpc_port));
    let mut flags = arguments(&[
        ("--config-dir", &sources.configs),
        ("--kubeconfig", &sources.cluster.as_ref().unwrap().kubeconfig),
        ("--upstream", Path::new(&upstream)),
        ("--state-dir", &state),
    ]);
    flags.push("--state-grace=1s".into());
    let mut plane = ControlPlane::launch(scratch(), &flags);
    plane.wait_ready();
    let envoy = sources.shop.edge(&plane);
    sources.until_answered("v1");
    until_saved(&state, 7);
    let traffic = HOSTS.map(|host| Traffic::start(sources.shop.port, host));
    let more = || traffic.iter().for_each(|t| t.more(30));

    for (number, name) in NAMES.iter().enumerate() {
        sources.go(number);
        until_stale(&plane, name);
        NAMES.iter().filter(|other| *other != name).for_each(|other| until_well(&plane, other));
        more();
        sources.come_back(number, "v1");
        until_well(&plane, name);
    }

    (0..NAMES.len()).for_each(|number| sources.go(number));
    NAMES.iter().for_each(|name| until_stale(&plane, name));
    more();
    plane.process.kill();
    more();
    plane.restart();
    for name in ["file:", "xds:", "kube:Kubernetes/crd", "kube:Kubernetes/registry"] {
        until_saved_is_served(&plane, name);
    }
    wait_for("Envoy is back", || (envoy.stat("control_plane.connected_state") == 1).then_some(()));
    more();

    (0..NAMES.len()).for_each(|number| sources.come_back(number, "v2"));
    NAMES.iter().for_each(|name| until_well(&plane, name));
    sources.until_answered("v2");
    traffic.into_iter().for_each(Traffic::end);
    envoy.assert_no_nacks();
}
