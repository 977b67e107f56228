//! Endpoints objects, converted to EndpointSlices as Kubernetes' mirroring controller does: file sources have no such
//! controller. Mirrored slices are used only for a Service without slices of its own.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{EndpointAddress, Endpoints},
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
};

use crate::model::{Config, Spec};

/// Prefix of the names of mirrored slices; no object can have such a name.
const PREFIX: &str = "endpoints/";

/// Name of the `index`th mirrored slice of an Endpoints object.
pub fn slice_name(endpoints: &str, index: usize) -> Arc<str> {
    format!("{PREFIX}{endpoints}/{index}").into()
}

/// Whether a slice with this name is mirrored.
pub fn is_mirrored(slice: &str) -> bool {
    slice.starts_with(PREFIX)
}

/// The slices of an Endpoints object, one per subset, labelled with the Service of the same name.
pub fn slices(config: &Config, object: &Endpoints, label: &str) -> Vec<Arc<Config>> {
    let subsets = object.subsets.iter().flatten().enumerate();
    let of = |(index, subset): (usize, &k8s_openapi::api::core::v1::EndpointSubset)| {
        let ready = subset.addresses.iter().flatten().map(|a| endpoint(a, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|a| endpoint(a, false));
        let ports = subset.ports.iter().flatten().map(|p| EndpointPort {
            app_protocol: p.app_protocol.clone(),
            name: p.name.clone(),
            port: Some(p.port),
            protocol: p.protocol.clone(),
        });
        let slice = EndpointSlice {
            address_type: "IPv4".to_string(),
            endpoints: Some(ready.chain(not_ready).collect()),
            ports: Some(ports.collect()),
            ..EndpointSlice::default()
        };
        let mut meta = config.meta.clone();
        meta.labels = BTreeMap::from([(label.to_string(), meta.name.to_string())]);
        meta.name = slice_name(&config.meta.name, index);
        Arc::new(Config { meta, spec: Spec::EndpointSlice(Arc::new(slice)), ..config.clone() })
    };
    subsets.map(of).collect()
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), serving: Some(ready), terminating: Some(false) }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}
