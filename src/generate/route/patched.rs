//! Route configurations with the patches of EnvoyFilters, put together from encoded virtual hosts: one that no patch is for is
//! the same bytes as without patches, and one with patches is made once for each list of them.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;
use prost::Message;
use rayon::prelude::*;

use super::{
    table::{EncodedHost, RouteTable, VirtualHostMemo, assembled},
    virtual_host::VirtualHostInputs,
};
use crate::{
    generate::{check::Refusal, envoy_filter::Patching},
    proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost},
};

/// Fewer virtual hosts are not worth another thread.
const WORTH_A_THREAD: usize = 32;

/// The bytes of a table with its patches.
pub(super) fn encode(
    table: &RouteTable<'_>,
    memo: &VirtualHostMemo,
    mut patching: Patching<'_>,
) -> (Bytes, Vec<Refusal>) {
    let inputs = || table.hosts.par_iter().with_min_len(WORTH_A_THREAD);
    let Some(fields) = patching.route_fields(table.fields()) else {
        let hosts: Vec<EncodedHost> = inputs().map(|host| memo.encoded(host)).collect();
        let mut refused: Vec<Refusal> = hosts.iter().flat_map(|host| host.refused.iter().cloned()).collect();
        let decoded = hosts.iter().filter_map(|host| VirtualHost::decode(host.bytes.clone()?).ok());
        let all = decoded.chain(table.last.clone()).collect();
        let patched = patching.route_configuration(RouteConfiguration { virtual_hosts: all, ..table.fields() });
        refused.extend(patching.into_refusals());
        return (patched.encode_to_vec().into(), refused);
    };
    let patches = patching.of_hosts(&table.name);
    let patch = |inputs: &VirtualHostInputs<'_>| match patches.key(&inputs.name, &inputs.domains) {
        Some(key) => memo.get_or_build(inputs.key() ^ key, || patched(&patching, &table.name, inputs, memo)),
        None => memo.encoded(inputs),
    };
    let mut hosts: Vec<EncodedHost> = inputs().map(patch).collect();
    // One that is left out without patches too is not removed by them.
    let is_removed = |(inputs, host): &(&VirtualHostInputs<'_>, &EncodedHost)| {
        host.bytes.is_none() && memo.encoded(inputs).bytes.is_some()
    };
    let removed = table.hosts.iter().zip(&hosts).filter(is_removed);
    let removed: HashSet<String> = removed.map(|(inputs, _)| inputs.name.clone()).collect();
    if let Some(last) = &table.last {
        let plain = EncodedHost { bytes: Some(last.encode_to_vec().into()), refused: [].into() };
        let is_patched = patches.key(&last.name, &last.domains).is_some();
        hosts.push(if is_patched { patched_bytes(&patching, &table.name, &plain) } else { plain });
    }
    let mut told = BTreeSet::new();
    let refused = hosts.iter().flat_map(|host| host.refused.iter()).filter(|refusal| told.insert(*refusal));
    let mut refused: Vec<Refusal> = refused.cloned().collect();
    let mut hosts: Vec<Bytes> = hosts.into_iter().filter_map(|host| host.bytes).collect();
    if patching.adds_hosts(&table.name) {
        let taken: Vec<VirtualHost> = hosts.iter().filter_map(|host| VirtualHost::decode(host.clone()).ok()).collect();
        hosts.extend(
            patching.added_hosts(&table.name, &taken, &removed).iter().map(|host| Bytes::from(host.encode_to_vec())),
        );
    }
    refused.extend(patching.into_refusals());
    (assembled(&fields, hosts), refused)
}

/// A virtual host with its patches. One that Envoy takes is checked and encoded once, after its patches; another one is
/// checked before them, so that it loses single routes alone.
fn patched(
    patching: &Patching<'_>,
    configuration: &str,
    inputs: &VirtualHostInputs<'_>,
    memo: &VirtualHostMemo,
) -> EncodedHost {
    let mut own = patching.again();
    let (host, _) = inputs.unchecked();
    let bytes = match own.virtual_host(configuration, host) {
        None => None,
        Some((_, Some(bytes))) => Some(bytes.into()),
        Some((_, None)) => return patched_bytes(patching, configuration, &memo.encoded(inputs)),
    };
    EncodedHost { bytes, refused: own.into_refusals().into() }
}

/// The patches on a virtual host that was checked.
fn patched_bytes(patching: &Patching<'_>, configuration: &str, host: &EncodedHost) -> EncodedHost {
    let Some(decoded) = host.bytes.clone().and_then(|bytes| VirtualHost::decode(bytes).ok()) else {
        return host.clone();
    };
    let mut own = patching.again();
    let bytes = match own.virtual_host(configuration, decoded.clone()) {
        Some((same, _)) if same == decoded => host.bytes.clone(),
        Some((patched, bytes)) => Some(bytes.unwrap_or_else(|| patched.encode_to_vec()).into()),
        None => None,
    };
    let refused = host.refused.iter().cloned().chain(own.into_refusals()).collect();
    EncodedHost { bytes, refused }
}
