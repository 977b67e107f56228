//! Conformance: inputs with the outputs that Istio itself gave for them, run through our generators and the simulator.
//!
//! The recordings lie beside the repository (`../shared/conformance`, or `PILOTHOUSE_CONFORMANCE`); without them the cases in
//! `tests/conformance/cases` run alone, and that is said. Each family prints passed / failed / not yet. What passes is
//! written in `tests/conformance/passing.txt`; a case of that list that stops passing fails the test.
//!
//! `tests/conformance/differences.yaml` holds the cases that differ on purpose, with the reason.
//!
//! For work: `PILOTHOUSE_CASES=xds/se-` runs only matching cases and prints every difference;
//! `PILOTHOUSE_RATCHET=update` rewrites the list.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod calls;
mod data;
mod differences;
mod environment;
#[path = "../clients/envoy.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod envoy;
mod gateway_api;
mod generate;
#[path = "../clients/http.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod http;
mod ingress;
mod normal;
#[path = "../clients/process.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod process;
mod ratchet;
mod routes;
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
fn calls_go_where_istio_says() {
    run("calls", || data::cases("calls", "case.json"), calls::check);
}

#[test]
fn generated_resources_equal_recorded_ones() {
    run("generate", || data::cases("generate", "case.json"), generate::check);
}

#[test]
fn virtual_services_become_recorded_routes() {
    run("routes", routes::cases, routes::check);
}

#[test]
fn proxies_are_sent_what_istiod_sends() {
    run("xds", xds::cases, xds::check);
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
fn gateway_api_is_translated_as_istio_does() {
    run("gateway-api", || data::cases("gateway-api", "expected-status.yaml"), gateway_api::check);
}

#[test]
fn gateway_apis_own_tests_find_the_statuses_that_they_ask_for() {
    run("gateway-api-upstream", upstream::cases, upstream::check);
}

#[test]
fn gateway_apis_own_tests_get_the_answers_that_they_ask_for() {
    upstream::run();
}
