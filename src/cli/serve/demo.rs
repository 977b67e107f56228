//! The demo that is served when nothing else is asked for. Its only backends are this server's own pages, so nothing else
//! has to run.

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

/// Where the demo is, and three things to try.
pub(super) fn welcome(addresses: &Addresses) -> String {
    let Addresses { grpc, http, .. } = addresses;
    format!(
        "
pilothouse serves the demo in {FOLDER} (edit a file there, and what is connected follows)
  xDS    {grpc}
  pages  http://{http}/

Three things to try:
  1. A gateway: start Envoy, then ask it (one request in ten goes to the other subset; the header picks it)
       pilothouse bootstrap envoy --xds-address {grpc} --node 'router~127.0.0.1~gateway.demo~demo.svc.cluster.local' > envoy.json
       envoy -c envoy.json
       curl -i http://127.0.0.1:{GATEWAY_PORT}/version
       curl -i -H 'x-subset: v2' http://127.0.0.1:{GATEWAY_PORT}/version
  2. A gRPC program that finds its server by xDS (here: this server's own health service)
       pilothouse bootstrap grpc --xds-address {grpc} --node 'sidecar~127.0.0.1~me.demo~demo.svc.cluster.local' > grpc.json
       GRPC_XDS_BOOTSTRAP=grpc.json your-program xds:///control.demo.example:15010
  3. What goes on: open http://{http}/ in a browser, or
       pilothouse proxy-status --http-addr {http}
"
    )
}
