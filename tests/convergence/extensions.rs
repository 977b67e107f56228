//! Random WasmPlugins and TrafficExtensions: Lua, modules that Envoy can fetch, and modules that it cannot.

use serde_json::{Value, json};

use crate::{random::Random, traffic::targets};

const PHASES: [&str; 4] = ["UNSPECIFIED_PHASE", "AUTHN", "AUTHZ", "STATS"];

/// Phase, priority, match and workloads.
fn common(random: &mut Random, name: &str) -> Value {
    let mut spec = targets(random, name);
    spec["phase"] = json!(random.of(&PHASES));
    if random.chance(50) {
        spec["priority"] = json!(random.below(20));
    }
    if random.chance(40) {
        spec["match"] =
            json!([{"mode": random.of(&["CLIENT", "SERVER"]), "ports": [{"number": random.of(&[80, 8080])}]}]);
    }
    spec
}

/// A module: over HTTP with its digest or without, in a file, or in an image.
fn module(random: &mut Random) -> Value {
    let mut module = match random.below(4) {
        0 => json!({"url": "oci://registry.example/module:1"}),
        1 => json!({"url": "file:///opt/module.wasm"}),
        2 => json!({"url": "https://files.example/module.wasm"}),
        _ => json!({"url": "https://files.example/module.wasm", "sha256": format!("{:064x}", random.below(3))}),
    };
    module["failStrategy"] = json!(random.of(&["FAIL_OPEN", "FAIL_CLOSE"]));
    if random.chance(50) {
        module["pluginConfig"] = json!({"number": random.below(3)});
    }
    module
}

pub fn wasm_plugin(random: &mut Random, name: &str) -> Value {
    let (mut spec, module) = (common(random, name), module(random));
    spec.as_object_mut().unwrap().extend(module.as_object().unwrap().clone());
    if random.chance(30) {
        spec["type"] = json!("NETWORK");
    }
    json!({"metadata": {}, "spec": spec})
}

pub fn traffic_extension(random: &mut Random, name: &str) -> Value {
    let mut spec = common(random, name);
    if random.chance(50) {
        spec["lua"] = json!({"inlineCode": format!("-- {}", random.below(3))});
    } else {
        spec["wasm"] = module(random);
    }
    json!({"metadata": {}, "spec": spec})
}
