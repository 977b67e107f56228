//! Generates Rust types and one descriptor set from Envoy's .proto files (inside the published `envoy-types` package,
//! which is never compiled itself) and from Istio's, which are ours (this folder). Maps are ordered and byte fields are
//! `Bytes`, so that equal messages encode to equal bytes. The rules that Envoy's files set for their fields (`validate.rules`)
//! become a table, by which the program checks generated resources before it sends them.

mod rules;

use std::{
    collections::HashSet,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Envoy files that hold what we send or what users patch in; their imports come along.
const ENVOY_ROOTS: &[&str] = &[
    "envoy/admin/v3/config_dump.proto",
    "envoy/admin/v3/clusters.proto",
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/trace/v3/zipkin.proto",
    "envoy/config/trace/v3/opentelemetry.proto",
    "envoy/config/trace/v3/datadog.proto",
    "envoy/config/trace/v3/skywalking.proto",
    "envoy/service/accesslog/v3/als.proto",
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/service/status/v3/csds.proto",
    "envoy/service/load_stats/v3/lrs.proto",
    "envoy/service/cluster/v3/cds.proto",
    "envoy/service/endpoint/v3/eds.proto",
    "envoy/service/listener/v3/lds.proto",
    "envoy/service/route/v3/rds.proto",
    "envoy/service/secret/v3/sds.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/extensions/access_loggers/file/v3/file.proto",
    "envoy/extensions/access_loggers/grpc/v3/als.proto",
    "envoy/extensions/access_loggers/open_telemetry/v3/logs_service.proto",
    "envoy/extensions/access_loggers/stats/v3/stats.proto",
    "envoy/extensions/access_loggers/stream/v3/stream.proto",
    "envoy/extensions/access_loggers/filters/cel/v3/cel.proto",
    "envoy/extensions/clusters/dynamic_forward_proxy/v3/cluster.proto",
    "envoy/extensions/common/dynamic_forward_proxy/v3/dns_cache.proto",
    "envoy/extensions/compression/brotli/compressor/v3/brotli.proto",
    "envoy/extensions/compression/brotli/decompressor/v3/brotli.proto",
    "envoy/extensions/compression/gzip/compressor/v3/gzip.proto",
    "envoy/extensions/compression/gzip/decompressor/v3/gzip.proto",
    "envoy/extensions/compression/zstd/compressor/v3/zstd.proto",
    "envoy/extensions/compression/zstd/decompressor/v3/zstd.proto",
    "envoy/extensions/filters/http/buffer/v3/buffer.proto",
    "envoy/extensions/filters/http/compressor/v3/compressor.proto",
    "envoy/extensions/filters/http/cors/v3/cors.proto",
    "envoy/extensions/filters/http/decompressor/v3/decompressor.proto",
    "envoy/extensions/filters/http/dynamic_forward_proxy/v3/dynamic_forward_proxy.proto",
    "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto",
    "envoy/extensions/filters/http/ext_proc/v3/ext_proc.proto",
    "envoy/extensions/filters/http/fault/v3/fault.proto",
    "envoy/extensions/filters/http/grpc_stats/v3/config.proto",
    "envoy/extensions/filters/http/grpc_web/v3/grpc_web.proto",
    "envoy/extensions/filters/http/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/filters/http/header_to_metadata/v3/header_to_metadata.proto",
    "envoy/extensions/filters/http/health_check/v3/health_check.proto",
    "envoy/extensions/filters/http/jwt_authn/v3/config.proto",
    "envoy/extensions/filters/http/local_ratelimit/v3/local_rate_limit.proto",
    "envoy/extensions/filters/http/lua/v3/lua.proto",
    "envoy/extensions/filters/http/ratelimit/v3/rate_limit.proto",
    "envoy/extensions/filters/http/rbac/v3/rbac.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/http/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/http/set_metadata/v3/set_metadata.proto",
    "envoy/extensions/filters/http/stateful_session/v3/stateful_session.proto",
    "envoy/extensions/filters/http/wasm/v3/wasm.proto",
    "envoy/extensions/filters/listener/http_inspector/v3/http_inspector.proto",
    "envoy/extensions/filters/listener/original_dst/v3/original_dst.proto",
    "envoy/extensions/filters/listener/original_src/v3/original_src.proto",
    "envoy/extensions/filters/listener/proxy_protocol/v3/proxy_protocol.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/connection_limit/v3/connection_limit.proto",
    "envoy/extensions/filters/network/echo/v3/echo.proto",
    "envoy/extensions/filters/network/ext_authz/v3/ext_authz.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/mongo_proxy/v3/mongo_proxy.proto",
    "envoy/extensions/filters/network/rbac/v3/rbac.proto",
    "envoy/extensions/filters/network/redis_proxy/v3/redis_proxy.proto",
    "envoy/extensions/filters/network/set_filter_state/v3/set_filter_state.proto",
    "envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3/sni_dynamic_forward_proxy.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    "envoy/extensions/filters/network/wasm/v3/wasm.proto",
    "envoy/extensions/health_checkers/redis/v3/redis.proto",
    "envoy/extensions/formatter/req_without_query/v3/req_without_query.proto",
    "envoy/extensions/http/header_formatters/preserve_case/v3/preserve_case.proto",
    "envoy/extensions/http/stateful_session/cookie/v3/cookie.proto",
    "envoy/extensions/http/stateful_session/header/v3/header.proto",
    "envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3/client_side_weighted_round_robin.proto",
    "envoy/extensions/load_balancing_policies/least_request/v3/least_request.proto",
    "envoy/extensions/load_balancing_policies/override_host/v3/override_host.proto",
    "envoy/extensions/load_balancing_policies/round_robin/v3/round_robin.proto",
    "envoy/extensions/matching/actions/transform_stat/v3/transform_stat.proto",
    "envoy/extensions/matching/common_inputs/network/v3/network_inputs.proto",
    "envoy/extensions/matching/common_inputs/stats/v3/stats.proto",
    "envoy/extensions/network/dns_resolver/cares/v3/cares_dns_resolver.proto",
    "envoy/extensions/path/match/uri_template/v3/uri_template_match.proto",
    "envoy/extensions/path/rewrite/uri_template/v3/uri_template_rewrite.proto",
    "envoy/extensions/request_id/uuid/v3/uuid.proto",
    "envoy/extensions/retry/host/previous_hosts/v3/previous_hosts.proto",
    "envoy/extensions/retry/priority/previous_priorities/v3/previous_priorities_config.proto",
    "envoy/extensions/tracers/opentelemetry/resource_detectors/v3/dynatrace_resource_detector.proto",
    "envoy/extensions/tracers/opentelemetry/resource_detectors/v3/environment_resource_detector.proto",
    "envoy/extensions/tracers/opentelemetry/samplers/v3/dynatrace_sampler.proto",
    "envoy/extensions/transport_sockets/internal_upstream/v3/internal_upstream.proto",
    "envoy/extensions/transport_sockets/proxy_protocol/v3/upstream_proxy_protocol.proto",
    "envoy/extensions/transport_sockets/quic/v3/quic_transport.proto",
    "envoy/extensions/transport_sockets/raw_buffer/v3/raw_buffer.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/extensions/wasm/v3/wasm.proto",
    "envoy/type/matcher/v3/string.proto",
    "xds/type/matcher/v3/matcher.proto",
];

const PROTO_FOLDERS: &[&str] = &[
    "data-plane-api",
    "xds",
    "googleapis",
    "cel-spec/proto",
    "client_model",
    "opentelemetry-proto",
    "protoc-gen-validate",
    "ratelimit",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=.");
    println!("cargo:rerun-if-changed=../Cargo.lock");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);

    let envoy = envoy_types()?.join("proto");
    let qualified = out.join("qualified");
    qualify_names(&envoy.join("data-plane-api"), &qualified)?;
    let mut includes = vec![own.clone(), qualified];
    includes.extend(PROTO_FOLDERS.iter().map(|f| envoy.join(f)));

    let mut own_roots = Vec::new();
    protos_below(&own, &own, &mut own_roots)?;
    let roots: Vec<String> = ENVOY_ROOTS.iter().map(|r| (*r).to_string()).chain(own_roots.iter().cloned()).collect();

    let (set, rules) = compile(&roots, &includes)?;
    fs::write(out.join("rules.rs"), rules::table(&rules)?)?;
    fs::write(out.join("descriptors.bin"), set.encode_to_vec())?;
    fs::write(out.join("own_descriptors.bin"), with_imports(&set, own_roots).encode_to_vec())?;
    prost_build::Config::new()
        .btree_map(["."])
        .bytes(["."])
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .include_file("protos.rs")
        .compile_fds(set)?;
    Ok(())
}

/// protox takes `common.…` inside `envoy.extensions.clusters` for the package `…clusters.common`, which protoc does not
/// see because no file imports it. The names are written out in a copy that shadows the original.
fn qualify_names(source: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    const FILES: &[(&str, &str, &str)] = &[(
        "envoy/extensions/clusters/dynamic_forward_proxy/v3/cluster.proto",
        " common.dynamic_forward_proxy.v3.",
        " .envoy.extensions.common.dynamic_forward_proxy.v3.",
    )];
    for (file, from, to) in FILES {
        let path = target.join(file);
        fs::create_dir_all(path.parent().ok_or("a file without a folder")?)?;
        fs::write(path, fs::read_to_string(source.join(file))?.replace(from, to))?;
    }
    Ok(())
}

/// Each root is compiled alone and the results merged by file name: protox resolves a type against every file that it
/// has seen, imported or not, and so fails on the whole tree at once. The second result holds the rules of the fields, which
/// are extensions that the first cannot hold.
fn compile(roots: &[String], includes: &[PathBuf]) -> Result<(FileDescriptorSet, Vec<rules::File>), Box<dyn Error>> {
    let mut seen = HashSet::new();
    let (mut file, mut rules) = (Vec::<FileDescriptorProto>::new(), Vec::new());
    for root in roots {
        let wrong = |e: protox::Error| format!("{root}: {e:?}");
        let mut compiler = protox::Compiler::new(includes).map_err(wrong)?;
        compiler.include_imports(true).include_source_info(true).open_file(root).map_err(wrong)?;
        let encoded = compiler.encode_file_descriptor_set();
        for (f, r) in FileDescriptorSet::decode(&*encoded)?.file.into_iter().zip(rules::Set::decode(&*encoded)?.file) {
            if seen.insert(f.name().to_string()) {
                file.push(f);
                rules.push(r);
            }
        }
    }
    for f in &mut file {
        f.source_code_info = None;
    }
    Ok((FileDescriptorSet { file }, rules))
}

/// These files of a set and all that they import. Files stand behind their imports.
fn with_imports(set: &FileDescriptorSet, names: Vec<String>) -> FileDescriptorSet {
    let mut wanted: HashSet<String> = names.into_iter().collect();
    for f in set.file.iter().rev() {
        if wanted.contains(f.name()) {
            wanted.extend(f.dependency.iter().cloned());
        }
    }
    FileDescriptorSet { file: set.file.iter().filter(|f| wanted.contains(f.name())).cloned().collect() }
}

/// The folder that cargo unpacked `envoy-types` into.
fn envoy_types() -> Result<PathBuf, Box<dyn Error>> {
    let cargo = env::var("CARGO")?;
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--features", "envoy-protos", "--filter-platform"])
        .arg(env::var("TARGET")?)
        .current_dir(env::var("CARGO_MANIFEST_DIR")?)
        .output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("cargo metadata, asked for the folder of envoy-types: {error}").into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|p| p["name"] == "envoy-types")
        .and_then(|p| p["manifest_path"].as_str())
        .ok_or("cargo metadata names no package envoy-types")?;
    Ok(Path::new(manifest).parent().ok_or("envoy-types has no folder")?.to_path_buf())
}

fn protos_below(base: &Path, folder: &Path, into: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            protos_below(base, &path, into)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            into.push(path.strip_prefix(base)?.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}
