//! Envoys beside their control plane, over its Unix socket: the system names their user, so that neither a token nor TLS is needed; a
//! token is taken as well.

use std::ffi::{OsStr, OsString};

use crate::{
    envoy::Launch,
    http::{Echo, get},
    joined::token_of,
    mesh::{ControlPlane, folder},
    mutual_tls::{CLIENT, HANDSHAKES, SERVER, mesh_of, metadata},
    process::{free_port, scratch, wait_for},
};

#[test]
fn envoys_get_certificates_over_the_unix_socket() {
    let (echo, inbound, egress) = (Echo::start("server"), free_port(), free_port());
    let configs = folder(&[("mesh.yaml", mesh_of(echo.port, inbound, egress, "STRICT"))]);
    let (state, run) = (scratch(), tempfile::tempdir().unwrap());
    let socket = run.path().join("xds.sock");
    let arguments: Vec<OsString> = vec![
        "--config-dir".into(),
        configs.clone().into(),
        "--state-dir".into(),
        state.clone().into(),
        "--grpc-unix-socket".into(),
        socket.clone().into(),
    ];
    let mut plane = ControlPlane::launch(configs, &arguments);
    plane.wait_ready();
    let join = |node: &str, app: &str, arguments: &[&OsStr]| {
        Launch { socket: Some(&socket), arguments, ..Launch::new(&[], node, &metadata(app)) }.start()
    };
    let server = join(SERVER, "server", &[]);
    let token = token_of(&state, "client");
    let client = join(CLIENT, "client", &["--token-file".as_ref(), token.as_os_str()]);
    let answer = || get(egress, "web.example", "/", &[]).ok().filter(|a| a.status == 200).map(|a| a.seen("name"));
    assert_eq!(wait_for("the call over mutual TLS", answer), "server");
    assert!(client.stat(HANDSHAKES) > 0, "the client's connection is TLS");
    assert!(get(inbound, "web.example", "/", &[]).is_err(), "plain text is refused");

    // Killed, the process leaves its socket behind; the next one takes its place and the Envoys come back.
    let before = client.stat("sds.default.update_success");
    plane.crash_and_restart();
    wait_for("a new certificate", || {
        assert_eq!(answer().as_deref(), Some("server"), "a request fails while the control plane is away");
        (client.stat("sds.default.update_success") > before).then_some(())
    });
    server.assert_no_nacks();
    client.assert_no_nacks();
}
