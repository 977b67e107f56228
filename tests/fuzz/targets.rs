//! The targets of fuzzing: each takes any bytes, and panics when something does not hold.
//!
//! Plain functions, for `main.rs` (the short run of `cargo test`) and `long.rs` (under libFuzzer). A target holds what its
//! reader promises: no panic, the same answer for the same bytes, answers of bounded size, and accepted input reads back.

mod admin;
mod clients;
mod cluster;
mod documents;
mod names;
pub mod objects;
mod patches;
mod sessions;
mod texts;
mod upstream;
pub mod world;

/// A target.
pub struct Target {
    /// The name of its corpus.
    pub name: &'static str,
    /// The function that takes one input.
    pub run: fn(&[u8]),
    /// Words that its inputs are made of, one a line.
    pub words: &'static str,
    /// Runs in the time of one run of a parser.
    pub weight: usize,
}

const LIGHT: usize = 1;
/// It builds or asks a whole mesh.
const HEAVY: usize = 25;

macro_rules! targets {
    ($($name:ident: $module:ident, $weight:ident, $words:expr;)+) => {
        /// All of them: those that read messages of network clients come first.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $module::$name, words: $words, weight: $weight }),+];
    };
}

targets! {
    grpc_frames: clients, LIGHT, "";
    sotw_request: clients, LIGHT, "";
    delta_request: clients, LIGHT, "";
    node: clients, HEAVY, METADATA;
    node_metadata: clients, HEAVY, METADATA;
    sotw_session: sessions, LIGHT, "";
    delta_session: sessions, LIGHT, "";
    resource_names: names, HEAVY, RESOURCES;
    load_report: clients, LIGHT, "";
    debug_question: clients, LIGHT, DEBUG;
    admin_access: admin, LIGHT, DEBUG;
    upstream_sotw: upstream, LIGHT, KINDS;
    upstream_delta: upstream, LIGHT, KINDS;
    mcp_resource: upstream, LIGHT, KINDS;
    yaml_documents: documents, LIGHT, YAML;
    yaml_values: documents, LIGHT, YAML;
    json_documents: documents, LIGHT, YAML;
    saved_content: documents, LIGHT, YAML;
    mesh_config: documents, HEAVY, MESH;
    kube_object: cluster, LIGHT, YAML;
    kube_list: cluster, LIGHT, YAML;
    remote_secret: cluster, LIGHT, KUBECONFIG;
    kubeconfig: cluster, LIGHT, KUBECONFIG;
    mesh_config_map: cluster, HEAVY, MESH;
    registration_entry: cluster, LIGHT, METADATA;
    pem: texts, LIGHT, PEM;
    certificates: objects, LIGHT, PEM;
    cel: texts, LIGHT, CEL;
    references: texts, LIGHT, CEL;
    header_formats: texts, LIGHT, CEL;
    regexes: texts, LIGHT, CEL;
    key_sets: texts, LIGHT, CEL;
    hosts: names, LIGHT, RESOURCES;
    label_selectors: names, LIGHT, METADATA;
    plain_names: names, LIGHT, RESOURCES;
    durations: texts, LIGHT, CEL;
    flags: admin, LIGHT, DEBUG;
    command_line: admin, LIGHT, DEBUG;
    bootstrap: admin, LIGHT, METADATA;
    envoy_filters: objects, LIGHT, "";
    envoy_filter_patches: patches, HEAVY, "";
    istio_objects: objects, HEAVY, "";
    gateway_api_objects: objects, HEAVY, "";
    kubernetes_objects: objects, HEAVY, "";
    changes: objects, HEAVY, "";
    calls: objects, HEAVY, "";
}

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

const METADATA: &str = "sidecar~\nrouter~\nwaypoint~\n10.0.0.9~\nweb-0.shop~\nshop.svc.cluster.local\nLABELS\nNAMESPACE\n\
    INSTANCE_IPS\nCLUSTER_ID\nISTIO_VERSION\n1.32.0\nGENERATOR\ngrpc\napi\nNETWORK\nPOD_PORTS\nDNS_CAPTURE\ntrue\n\
    INTERCEPTION_MODE\nTPROXY\nNONE\nHTTP10\nROUTER_MODE\nPROXY_CONFIG\nSERVICE_ACCOUNT\nAUTO_REGISTER_GROUP\n\
    WORKLOAD_ENTRY\nIDLE_TIMEOUT\nTLS_CLIENT_CERT_CHAIN\nTLS_CLIENT_KEY\nTLS_CLIENT_ROOT_CERT\nENABLE_HBONE\n\
    UNPRIVILEGED_POD\nENVOY_STATUS_PORT\nENVOY_PROMETHEUS_PORT\nmatchLabels\nmatchExpressions\nIn\nNotIn\nExists\n\
    istio.io/workloadController\nistio.io/connectedAt\nistio.io/disconnectedAt\n2026-01-01T00:00:00Z";
const RESOURCES: &str = "outbound|\ninbound|\noutbound_.80_._.\n|80|\n|v1|\npay.test\n*.\nkubernetes://\nkubernetes-gateway://\n\
    configmap://\nfile-cert:\nxds.istio.io/grpc/lds/inbound/\n0.0.0.0:\n:80\n[::1]\nhttp.80\nhttps.443.\n-cacert\n\
    default\nROOTCA\nallow_any\nblock_all\nBlackHoleCluster\nspiffe://cluster.local/ns/shop/sa/default\n10.0.0.0/8\n\
    region/zone/subzone\n.svc.cluster.local";
const DEBUG: &str = "config_dump?proxyID=\n&types=cds,lds\n&resource=\nistio.io/debug\nistio.io/debug/syncz\n\
    istio.io/debug/config_dump\nndsz\nedsz\nhost\norigin\nsec-fetch-site\nlocalhost\n127.0.0.1:8080\n[::1]:80\nPOST\nserve\n\
    render\nvalidate\nbootstrap\nproxy-status\n--config-dir\n--xds-address\n--deletion-hold\n10m\n--grpc-addr\n\
    --remote-cluster\nA=B\nPILOT_ENABLE_\ntrue\n5s\n100";
const KINDS: &str = "networking.istio.io/v1/ServiceEntry\nnetworking.istio.io/v1alpha3/VirtualService\n\
    gateway.networking.k8s.io/v1/HTTPRoute\ncore/v1/Service\ncore/v1alpha1/MeshConfig\n\
    type.googleapis.com/istio.mcp.v1alpha1.Resource\ntype.googleapis.com/istio.networking.v1alpha3.ServiceEntry\n\
    type.googleapis.com/google.protobuf.Struct\nshop/a";
const YAML: &str = "apiVersion: \nkind: \nmetadata:\nname: \nnamespace: \nspec:\n---\n- \n: |\n&a\n*a\n<<: \n!!binary \n\
    {}\n[]\nnull\n~\n\\t\n%YAML 1.2\nList\nitems:\nnetworking.istio.io/v1\nVirtualService\nServiceEntry\nhosts:\n\
    \"apiVersion\":\n\"kind\":\n\"metadata\":\n\"spec\":\n\"status\":\nv1\nService\nPod\nSecret";
const MESH: &str = "mesh: |\nmeshNetworks: |\n\"data\":\n\"mesh\":\ndefaultConfig:\nrootNamespace: \ntrustDomain: \n\
    extensionProviders:\nname: \nnetworks:\nendpoints:\nfromRegistry: \nfromCidr: \ngateways:\naddress: \nport: \n\
    accessLogFile: \noutboundTrafficPolicy:\nmode: \nconfigSources:\nlocalityLbSetting:\ndefaultServiceExportTo:\n\
    discoverySelectors:\nserviceSettings:\n1s\n/dev/stdout";
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: \ncontexts:\nclusters:\nusers:\ncluster:\nuser:\n\
    server: https://\nexec:\nauth-provider:\ntokenFile: \ntoken: \nclient-key: \nclient-certificate: \n\
    client-certificate-data: \ncertificate-authority: \ncertificate-authority-data: \ninsecure-skip-tls-verify: \n\
    proxy-url: \ntls-server-name: \n\"data\":\n\"metadata\":\n\"creationTimestamp\":";
const PEM: &str = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n\
    -----END PRIVATE KEY-----\n-----BEGIN RSA PRIVATE KEY-----\n-----BEGIN EC PRIVATE KEY-----\n-----BEGIN X509 CRL-----\n\
    tls.crt\ntls.key\nca.crt\ncert\nkey\ncacert";
const CEL: &str = "request.headers['x']\n.exists(a, a == 1)\n.all(\nhas(\n&&\n||\n? 1 : 2\nb'\\\\x00'\nr\"\"\"\n0x1fu\n1e9\n\
    %START_TIME%\n%REQ(:path)%\n%DYNAMIC_METADATA([\"a\", \"b\"])%\n%%\nhttps://\n[::1]:80\n%2f\n(?:\n{1,1000}\n\\\\pL\n[^a]\n\
    (?P<n>\n\"keys\":\n\"kty\":\n\"RSA\"\n\"EC\"\n1h2m3.5s\n100ms\n1us\n-1s\n0";

/// The number of known objects that are accepted, and the number of all.
pub fn known_objects() -> (usize, usize) {
    let taken = world::DOCUMENTS.iter().filter_map(world::taken).count();
    (taken, world::DOCUMENTS.len())
}
