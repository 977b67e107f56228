//! Resources as an upstream gives them.

use pilothouse::{
    model::{Origin, decode::from_value, mcp},
    proto::{to_any, wkt::Any},
};
use serde_json::{Value, json};

/// Type URL of ServiceEntries.
pub const URL: &str = "networking.istio.io/v1/ServiceEntry";

fn resource(name: &str, spec: Value) -> Any {
    let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": name, "namespace": "shop"}, "spec": spec});
    to_any(&mcp::to_resource(&from_value(&document, Origin::default()).unwrap()).unwrap())
}

/// A ServiceEntry of this host.
pub fn entry(name: &str, host: &str) -> Any {
    let ports = json!([{"number": 80, "name": "http", "protocol": "HTTP"}]);
    resource(name, json!({"hosts": [host], "ports": ports, "resolution": "DNS"}))
}

/// A ServiceEntry that does not pass validation.
pub fn bad(name: &str) -> Any {
    resource(name, json!({"hosts": []}))
}
