//! Route configurations as bytes, put together from virtual hosts that are encoded once.

use bytes::Bytes;
use prost::Message;

use super::{
    gateway::{self, Configs},
    patched,
    sidecar::{self, ByPort},
    table::{self, RouteTable, VirtualHostMemo},
};
use crate::{
    generate::{
        check::Refusal,
        envoy_filter::{Patching, service_context},
    },
    push::{ProxyView, PushContext},
};

/// One outbound route configuration of a sidecar; decodes to the result of [`super::sidecar_outbound`].
#[must_use]
pub fn sidecar_outbound_encoded(context: &PushContext, view: &ProxyView, name: &str, memo: &VirtualHostMemo) -> Bytes {
    let scope = context.scope(view);
    let table = sidecar::table(context, view, &scope, name, &mut ByPort::new());
    bytes(table.as_ref(), name, memo, None).0
}

/// All route configurations that a proxy asks for, in the order of the names. Inputs that several of them share are
/// gathered once. For a sidecar `view` is the outbound half. Each has its refusals.
#[must_use]
pub fn encoded<S: AsRef<str>>(
    context: &PushContext,
    view: &ProxyView,
    names: &[S],
    memo: &VirtualHostMemo,
) -> Vec<(Bytes, Vec<Refusal>)> {
    let scope = context.scope(view);
    let names = names.iter().map(AsRef::as_ref);
    let patching = || (!view.patches.is_empty()).then(|| Patching::new(&view.patches, service_context(view)));
    if !view.is_router() {
        let mut by_port = ByPort::new();
        return names
            .map(|name| {
                bytes(sidecar::table(context, view, &scope, name, &mut by_port).as_ref(), name, memo, patching())
            })
            .collect();
    }
    let Some(merged) = context.merged_gateway(view) else {
        return names.map(|name| bytes(None, name, memo, None)).collect();
    };
    names
        .map(|name| {
            let patching = || patching().map(|patching| patching.with_ports(&merged.port_map));
            let configs = Configs::of(context, view, &merged, name);
            bytes(gateway::table(context, view, &scope, &merged, &configs, name).as_ref(), name, memo, patching())
        })
        .collect()
}

fn bytes(
    table: Option<&RouteTable>,
    name: &str,
    memo: &VirtualHostMemo,
    patching: Option<Patching<'_>>,
) -> (Bytes, Vec<Refusal>) {
    let Some(table) = table else { return (table::empty(name).encode_to_vec().into(), Vec::new()) };
    match patching.filter(|patching| patching.patches_routes(name)) {
        Some(patching) => patched::encode(table, memo, patching),
        None => table.encode(memo),
    }
}
