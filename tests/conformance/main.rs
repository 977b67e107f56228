//! Conformance: inputs with the outputs that Istio itself gave for them, run through our generators and the simulator.
//!
//! The scenarios of the family `xds` are in the repository (`recorded`, which says in which form). The recordings of the other
//! families lie beside it (`../shared/conformance`, or `PILOTHOUSE_CONFORMANCE`); without them the cases in
//! `tests/conformance/cases` run alone, and that is said. Each family prints passed / failed / not yet. What passes is
//! written in `tests/conformance/passing.txt`; a case of that list that stops passing fails the test.
//!
//! `tests/conformance/differences.yaml` holds the cases that differ on purpose, with the reason.
//!
//! Gateway API's own tests are played in three ways: their demands on statuses are asked of the translation; their requests go
//! through real Envoys, which leaves `target/gateway-api-conformance-report.yaml`
//! (`cargo test --test conformance gateway_apis_own_tests_get`); and some of them, or with
//! `PILOTHOUSE_ALL_THROUGH_API_SERVER=1` all, go through a real API server.
//!
//! For work: `PILOTHOUSE_CASES=xds/se-` runs only matching cases and prints every difference;
//! `PILOTHOUSE_RATCHET=update` rewrites the list.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../kubernetes/admin.rs"]
#[allow(dead_code, reason = "the tests of the sources use more of it")]
mod admin;
mod authorization;
mod calls;
mod data;
mod differences;
mod environment;
#[path = "../clients/envoy.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod envoy;
mod envoy_filter;
mod gateway_api;
mod generate;
#[path = "../clients/http.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod http;
mod ingress;
mod kinds;
mod loader;
#[path = "../clients/network.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod network;
mod normal;
#[path = "../clients/process.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod process;
mod ratchet;
mod recorded;
mod routes;
mod samples;
#[path = "../kubernetes/server.rs"]
#[allow(dead_code, reason = "the tests of the sources use more of it")]
mod server;
mod service_apis;
#[path = "../clients/skipped.rs"]
mod skipped;
mod stock;
mod telemetry;
#[path = "../clients/tools.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod tools;
mod upstream;
mod validation;
mod xds;

use data::Case;
use ratchet::Report;

fn run(family: &str, cases: fn() -> Vec<Case>, check: fn(&Case) -> data::Verdict) {
    let filter = std::env::var("PILOTHOUSE_CASES").unwrap_or_default();
    let verbose = !filter.is_empty();
    let mut report = Report::new(family);
    for case in cases().into_iter().filter(|c| filter.split(',').any(|f| c.id.contains(f))) {
        let verdict = check(&case);
        if verbose {
            for line in verdict.lines() {
                println!("{}: {line}", case.id);
            }
        }
        report.add(case.id, verdict);
    }
    report.finish(verbose);
}

#[test]
fn the_table_of_kinds_is_that_of_the_lists() {
    kinds::check();
}

#[test]
fn calls_go_where_istio_says() {
    run("calls", || data::cases("calls", "case.json"), calls::check);
}

#[test]
fn generated_resources_equal_recorded_ones() {
    run("generate", || data::cases("generate", "case.json"), generate::check);
}

#[test]
fn benchmark_configurations_become_recorded_resources() {
    run("benchmarks", || data::cases("benchmarks", "case.json"), generate::check);
}

#[test]
fn samples_of_a_release_are_taken() {
    run("samples", samples::cases, samples::check);
}

#[test]
fn envoy_filters_patch_resources_as_recorded() {
    run("envoyfilter", || data::cases("envoyfilter", "case.json"), envoy_filter::check);
}

#[test]
fn telemetries_become_recorded_logs_spans_and_filters() {
    run("telemetry", telemetry::cases, telemetry::check);
}

#[test]
fn authorization_policies_become_recorded_filters() {
    run("authorization", authorization::cases, authorization::check);
}

#[test]
fn virtual_services_become_recorded_routes() {
    run("routes", routes::cases, routes::check);
}

#[test]
fn proxies_are_sent_the_resources_of_istiod() {
    run("xds", xds::cases, xds::check);
}

#[test]
fn the_scenarios_in_the_repository_are_the_recorded_ones() {
    recorded::check();
}

#[test]
fn stock_envoys_load_their_resources() {
    stock::load();
}

#[test]
fn stock_mode_makes_the_changes_of_the_table() {
    stock::table();
}

#[test]
fn ingresses_become_gateways_and_virtual_services() {
    run("ingress", ingress::cases, ingress::check);
}

#[test]
fn objects_are_valid_where_istio_says_so() {
    run("validation", validation::cases, validation::check);
}

#[test]
fn parts_of_objects_and_mesh_settings_are_valid_where_istio_says_so() {
    run("validation-fragments", validation::fragments::cases, validation::fragments::check);
}

#[test]
fn objects_are_accepted_where_an_api_server_accepts_them() {
    run("validation-schema", validation::schema::cases, validation::schema::check);
}

#[test]
fn schemas_of_istios_kinds_are_those_of_its_definitions() {
    validation::schema::compare_with_the_definitions();
}

#[test]
fn gateway_api_is_translated_as_istio_does() {
    run("gateway-api", || data::cases("gateway-api", "expected-status.yaml"), gateway_api::check);
}

#[test]
fn the_service_apis_are_translated_as_istio_did() {
    run("service-apis", || data::cases("service-apis", "input.yaml"), service_apis::check);
}

#[test]
fn gateway_apis_own_tests_find_the_statuses_that_they_ask_for() {
    run("gateway-api-upstream", upstream::cases, upstream::check);
}

#[test]
fn gateway_apis_own_tests_get_the_answers_that_they_ask_for() {
    upstream::run();
}

#[test]
fn gateway_apis_own_tests_find_the_same_statuses_in_an_api_server() {
    upstream::run_through_the_api_server();
}
