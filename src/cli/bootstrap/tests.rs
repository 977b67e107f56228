//! The files that clients start with.

use super::{
    envoy::{prove_envoy, secure_envoy},
    grpc::{Refresh, prove_grpc, secure_grpc},
    *,
};

fn envoy(node: &Node, metadata: &Value, server: &Server<'_>, delta: bool) -> Value {
    super::envoy::envoy(node, metadata, &service_cluster(None, node), server, delta)
}

fn grpc(node: &Node, metadata: &Value, address: &str) -> Value {
    super::grpc::grpc(node, metadata, address, Refresh::default())
}

fn document(args: &BootstrapArgs, metadata: Map<String, Value>) -> Result<Value, String> {
    made(args, metadata, None).map(|made| made.bootstrap)
}

fn node(metadata: Value) -> Node {
    Node::from_parts("sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", metadata, Locality::default()).unwrap()
}

#[test]
fn a_server_by_name_is_resolved_and_one_by_address_is_not() {
    let node = node(json!({"LABELS": {"app": "web"}}));
    let kind = |host: &str| {
        envoy(&node, &json!({}), &Server::Tcp(host, 15010), true)["static_resources"]["clusters"][0]["type"].clone()
    };
    assert_eq!(kind("pilothouse.example"), "STRICT_DNS");
    assert_eq!(kind("::1"), "STATIC");
    let bootstrap = envoy(&node, &json!({}), &Server::Tcp("::1", 1), true);
    assert_eq!(bootstrap["node"]["cluster"], "web.shop");
    let layer = &bootstrap["layered_runtime"]["layers"][0]["static_layer"];
    assert_eq!(layer["re2.max_program_size.error_level"], 32_768);
    assert_eq!(layer["envoy.reloadable_features.http_reject_path_with_fragment"], false);
}

#[test]
fn a_root_certificate_makes_both_clients_dial_the_secure_listener() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "abc\n").unwrap();
    let mut of_envoy = envoy(&node(json!({})), &json!({}), &Server::Tcp("h", 15012), false);
    secure_envoy(&mut of_envoy, Path::new("/root.pem.sds.json"), "istiod");
    prove_envoy(&mut of_envoy, &token).unwrap();
    let header = &of_envoy["dynamic_resources"]["ads_config"]["grpc_services"][0]["initial_metadata"][0];
    assert_eq!(header["value"], "Bearer abc");
    let socket = &of_envoy["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
    let validation = &socket["common_tls_context"]["combined_validation_context"];
    let source = &validation["validation_context_sds_secret_config"]["sds_config"]["path_config_source"];
    assert_eq!(source["path"], "/root.pem.sds.json");
    let names = &validation["default_validation_context"]["match_typed_subject_alt_names"];
    assert_eq!(names[0]["matcher"]["exact"], "istiod");
    let mut secrets = Secrets::default();
    secrets.add_root(Path::new("/etc/pki/root.pem"));
    let secret = &secrets.list[0]["validation_context"];
    assert_eq!(secret["trusted_ca"]["filename"], "/etc/pki/root.pem");
    assert_eq!(secret["watched_directory"]["path"], "/etc/pki");
    assert!(prove_envoy(&mut of_envoy, Path::new("/nowhere")).unwrap_err().contains("/nowhere"));
    let mut of_grpc = grpc(&node(json!({})), &json!({}), "h:15012");
    secure_grpc(&mut of_grpc, Path::new("/root.pem"), Refresh::default());
    prove_grpc(&mut of_grpc, &token);
    assert_eq!(of_grpc["xds_servers"][0]["channel_creds"][0]["type"], "tls");
}

#[test]
fn both_clients_say_where_they_are() {
    let of = |locality: &str| {
        let id = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local";
        let node = Node::from_parts(id, json!({}), Locality::parse(locality)).unwrap();
        [envoy(&node, &json!({}), &Server::Tcp("h", 1), false), grpc(&node, &json!({}), "h:1")]
            .map(|bootstrap| bootstrap["node"]["locality"].clone())
    };
    let whole = json!({"region": "east", "zone": "z1", "sub_zone": "rack"});
    assert_eq!(of("east/z1/rack"), [whole.clone(), whole]);
    assert_eq!(of("east"), [json!({"region": "east"}), json!({"region": "east"})]);
    assert_eq!(of(""), [json!({}), json!({})]);
}

#[test]
fn certificates_of_grpc_come_from_the_metadata() {
    assert!(grpc(&node(json!({})), &json!({}), "h:1").get("certificate_providers").is_none());
    let metadata = json!({"TLS_CLIENT_CERT_CHAIN": "/c.pem", "TLS_CLIENT_KEY": "/k.pem"});
    let bootstrap = grpc(&node(metadata.clone()), &metadata, "h:1");
    assert_eq!(bootstrap["certificate_providers"]["default"]["config"]["private_key_file"], "/k.pem");
}

fn parsed(arguments: &[&str]) -> BootstrapArgs {
    #[derive(clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        args: BootstrapArgs,
    }
    let node = ["--node", "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local"];
    <Parsed as clap::Parser>::parse_from(["bootstrap"].iter().chain(arguments).chain(&node)).args
}

#[test]
fn the_folder_of_certificates_stands_for_the_metadata_that_names_no_files() {
    let args = parsed(&["grpc", "--xds-address", "h:1", "--certs-dir", "/run/certs"]);
    let metadata = json!({"TLS_CLIENT_ROOT_CERT": "/own.pem"});
    let bootstrap = document(&args, metadata.as_object().unwrap().clone()).unwrap();
    let provider = &bootstrap["certificate_providers"]["default"]["config"];
    assert_eq!(provider["certificate_file"], "/run/certs/cert-chain.pem");
    assert_eq!(provider["ca_certificate_file"], "/own.pem");
    assert_eq!(bootstrap["node"]["metadata"]["TLS_SERVER_KEY"], "/run/certs/key.pem");
    let args = parsed(&["grpc", "--xds-address", "h:1", "--certs-dir", "/run/certs", "--root-cert", "/r.pem"]);
    let credentials = document(&args, Map::new()).unwrap()["xds_servers"][0]["channel_creds"][0].clone();
    assert_eq!(credentials["config"]["private_key_file"], "/run/certs/key.pem");
    assert_eq!(credentials["config"]["ca_certificate_file"], "/r.pem");
    assert_eq!([&credentials["config"], provider].map(|config| config["refresh_interval"].clone()), ["900s", "900s"]);
    let given = ["--certs-dir", "/run/certs", "--root-cert", "/r.pem", "--refresh-interval", "2m"];
    let bootstrap = document(&parsed(&[&["grpc", "--xds-address", "h:1"][..], &given].concat()), Map::new()).unwrap();
    let provider = &bootstrap["certificate_providers"]["default"]["config"];
    let credentials = &bootstrap["xds_servers"][0]["channel_creds"][0]["config"];
    assert_eq!([credentials, provider].map(|config| config["refresh_interval"].clone()), ["120s", "120s"]);
}

#[test]
fn a_folder_of_certificates_proves_an_envoy_without_a_token_and_each_secret_has_a_file() {
    let given = ["envoy", "--xds-address", "h:1", "--certs-dir", "/run/certs", "--root-cert", "/r.pem"];
    let made = made(&parsed(&given), Map::new(), None).unwrap();
    let socket = &made.bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
    let context = &socket["common_tls_context"];
    let proof = &context["tls_certificate_sds_secret_configs"][0];
    let root = &context["combined_validation_context"]["validation_context_sds_secret_config"];
    let path = |secret: &Value| secret["sds_config"]["path_config_source"]["path"].clone();
    assert_eq!([path(root), path(proof)], ["/r.pem.sds.json", "/r.pem.sds.1.json"]);
    let names: Vec<&Value> = made.secrets.list.iter().map(|secret| &secret["name"]).collect();
    assert_eq!(names, [&root["name"], &proof["name"]]);
    assert_eq!(made.secrets.list[1]["tls_certificate"]["private_key"]["filename"], "/run/certs/key.pem");
}

#[test]
fn a_token_is_sent_over_tls_or_within_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "abc\n").unwrap();
    let token = ["--token-file", token.to_str().unwrap()];
    let of = |client: &[&str]| document(&parsed(&[client, &token].concat()), Map::new());
    let local = of(&["envoy", "--xds-address", "unix:/run/xds.sock"]).unwrap();
    let service = &local["dynamic_resources"]["ads_config"]["grpc_services"][0];
    assert_eq!(service["initial_metadata"][0]["value"], "Bearer abc");
    assert!(local["static_resources"]["clusters"][0].get("transport_socket").is_none());
    for wrong in [&["envoy", "--xds-address", "h:1"], &["grpc", "--xds-address", "unix:/run/xds.sock"]] {
        assert!(of(wrong).unwrap_err().contains("--token-file"), "{wrong:?}");
    }
    assert!(of(&["grpc", "--xds-address", "h:1", "--root-cert", "/r.pem"]).is_ok());
}

#[test]
fn a_unix_socket_is_a_pipe() {
    let node = node(json!({}));
    let bootstrap = envoy(&node, &json!({}), &Server::parse("unix:/run/xds.sock").unwrap(), true);
    let cluster = &bootstrap["static_resources"]["clusters"][0];
    let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
    assert_eq!(endpoint["address"], json!({"pipe": {"path": "/run/xds.sock"}}));
    assert_eq!((&cluster["type"], &cluster["upstream_connection_options"]), (&json!("STATIC"), &json!({})));
}

#[test]
fn the_socket_of_a_workload_is_a_cluster_and_an_entry_of_the_metadata() {
    let of = |further: &[&str]| {
        let arguments = [&["envoy", "--workload-socket", "unix:///run/spire/api.sock"], further].concat();
        document(&parsed(&arguments), Map::new()).unwrap()
    };
    let plain = of(&["--xds-address", "h:1"]);
    assert_eq!(plain["node"]["metadata"]["WORKLOAD_IDENTITY_SOCKET_FILE"], "/run/spire/api.sock");
    let cluster = &plain["static_resources"]["clusters"][1];
    let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
    assert_eq!(
        (&cluster["name"], &endpoint["address"]["pipe"]["path"]),
        (&"sds-grpc".into(), &"/run/spire/api.sock".into())
    );

    // The certificate proves the workload where nothing else does.
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "abc\n").unwrap();
    let secure = ["--xds-address", "h:1", "--root-cert", "/r.pem"];
    let own = |bootstrap: &Value| {
        let socket = &bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"];
        socket["common_tls_context"]["tls_certificate_sds_secret_configs"][0]["name"].clone()
    };
    assert_eq!(own(&of(&secure)), "default");
    assert_eq!(own(&of(&[&secure[..], &["--token-file", token.to_str().unwrap()]].concat())), Value::Null);

    let grpc = parsed(&["grpc", "--xds-address", "h:1", "--workload-socket", "/run/spire/api.sock"]);
    assert!(document(&grpc, Map::new()).unwrap_err().contains("--workload-socket"));
    let relative = parsed(&["envoy", "--xds-address", "h:1", "--workload-socket", "api.sock"]);
    let path = document(&relative, Map::new()).unwrap()["node"]["metadata"]["WORKLOAD_IDENTITY_SOCKET_FILE"].clone();
    assert!(path.as_str().is_some_and(|path| path.starts_with('/') && path.ends_with("/api.sock")), "{path}");
}
