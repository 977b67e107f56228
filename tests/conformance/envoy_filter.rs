//! Family `envoyfilter`: EnvoyFilters with resources before and after.

use std::sync::Arc;

use pilothouse::{
    generate::envoy_filter::{Patching, cluster, extension_configs, listener, route},
    model::{ConfigSnapshot, Mesh},
    proto::{
        envoy::config::{cluster::v3::Cluster, listener::v3::Listener, route::v3::RouteConfiguration},
        from_json,
        networking::envoy_filter::PatchContext,
    },
    push::{PushContext, context::PushInputs},
};
use prost::{Message, Name};
use serde_json::{Value, json};

use crate::{
    data::{self, Case, Verdict},
    environment, generate, normal,
};

pub fn check(case: &Case) -> Verdict {
    let description = data::json(&case.folder.join("case.json"));
    let (configs, _) = environment::configs(&data::yaml(&case.folder.join("config.yaml")), "", "", false);
    let mesh = Mesh::from_values(&json!({"rootNamespace": ""}), &Value::Null, "cluster.local", "Kubernetes").unwrap();
    let inputs = PushInputs { configs: ConfigSnapshot::of(configs), mesh: Arc::new(mesh), ..PushInputs::default() };
    let context = PushContext::build(inputs);
    // Patches are compared with the version in the metadata.
    let mut proxy = description["proxy"].clone();
    proxy["istioVersion"] = proxy["metadata"]["ISTIO_VERSION"].clone();
    let view = environment::view(&context, &proxy);
    let patch_context = description["patchContext"].as_str().unwrap();
    let patching = Patching::new(&view.patches, PatchContext::from_str_name(patch_context).unwrap());
    let before = &description["before"];
    let got: Vec<Value> = match description["kind"].as_str().unwrap() {
        "listeners" => {
            let skip_adds = description["skipAdds"] == true;
            generate::json(&listener::all_patched(&patching, read::<Listener>(before), skip_adds))
        }
        "clusters" => {
            let host = description["serviceHost"].as_str().unwrap_or_default();
            let hosts: Vec<&str> = Some(host).into_iter().filter(|host| !host.is_empty()).collect();
            let before = read::<Cluster>(before).into_iter();
            let mut after: Vec<_> = before.filter_map(|c| cluster::patched(&patching, c, &hosts)).collect();
            after.extend(cluster::all_added(&patching));
            generate::json(&after)
        }
        "routeConfiguration" => {
            let before: RouteConfiguration = from_json(before, true).unwrap();
            generate::json(&[route::patched(&patching, before)])
        }
        _ => {
            let names: Vec<&str> =
                description["requestedNames"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            generate::json(&extension_configs(&view.patches, &names).0)
        }
    };
    let wanted = match &description["after"] {
        Value::Array(list) => list.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    if got == wanted {
        return Verdict::Passed;
    }
    let mut lines = Vec::new();
    for index in 0..wanted.len().max(got.len()) {
        let of = |list: &[Value]| list.get(index).cloned().unwrap_or(Value::Null);
        lines.extend(normal::first_difference(&format!("[{index}]"), &of(&wanted), &of(&got)));
    }
    Verdict::of(lines)
}

fn read<M: Message + Name + Default>(list: &Value) -> Vec<M> {
    list.as_array().into_iter().flatten().map(|one| from_json(one, true).unwrap()).collect()
}
